#include "agent/spill_entry.h"

#include <stdlib.h>
#include <string.h>

struct spill_entry *spill_entry_make(const struct spill_head *h)
{
    struct spill_entry *x = calloc(1, sizeof *x);
    struct digest *pages = calloc(h->n_pages, sizeof *pages);
    if (!x || !pages) {
        free(x);
        free(pages);
        return NULL;
    }
    memcpy(pages, h->pages, h->n_pages * sizeof *pages);
    x->head = *h;
    x->head.pages = pages;
    x->bytes = spill_file_bytes(h);
    return x;
}

void spill_entry_free(struct spill_entry *x)
{
    if (!x)
        return;
    if (x->parent)
        x->parent->n_children--;
    spill_image_release(x->image);
    free((struct digest *)x->head.pages);
    free(x);
}

/* The page from which on all up to page `upto` of a group is there. */
static uint32_t entry_reach(const struct spill_entry *x, uint32_t group, uint32_t upto)
{
    for (; x; x = x->parent) {
        if (x->head.from[group] < upto)
            upto = x->head.from[group];
        if (upto > x->head.first) /* a parent's pages behind these are another chain's */
            break;
    }
    return upto;
}

static bool entry_begins(const struct spill_entry *x, uint32_t n_pages)
{
    const struct kv_shape *s = &x->head.shape;
    for (uint32_t g = 0; g < s->n_groups; g++)
        if (s->groups[g].n_blocks && entry_reach(x, g, n_pages) > spill_page_seen(s, g, n_pages))
            return false;
    return true;
}

static bool digest_same(const struct digest *a, const struct digest *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

/* The least number of pages that has some of its own. */
static uint32_t entry_floor(const struct spill_entry *x)
{
    uint32_t floor = x->head.first < x->head.n_pages ? x->head.first + 1 : x->head.n_pages;
    for (uint32_t g = 0; g < x->head.shape.n_groups; g++)
        if (x->head.shape.groups[g].n_blocks && x->head.from[g] + 1 < floor)
            floor = x->head.from[g] + 1;
    return floor;
}

/* Whether all pages that are not its own are among the other's. */
static bool entry_hangs(const struct spill_entry *x, const struct spill_entry *on)
{
    uint32_t n = x->head.first;
    return on->head.n_pages >= n && digest_same(&on->head.identity, &x->head.identity) &&
           digest_same(&on->head.pages[n - 1], &x->head.pages[n - 1]) &&
           spill_shape_same(&on->head.shape, &x->head.shape);
}

bool spill_entry_join(struct spill_entry *x, struct spill_entry *parent)
{
    if ((x->head.first > 0) != (parent != NULL) || (parent && !entry_hangs(x, parent)))
        return false;
    x->parent = parent;
    if (!entry_begins(x, x->head.n_pages)) {
        x->parent = NULL;
        return false;
    }
    if (parent)
        parent->n_children++;
    x->least = x->head.n_pages;
    for (uint32_t floor = entry_floor(x); x->least > floor && entry_begins(x, x->least - 1);)
        x->least--;
    return true;
}

bool spill_entry_covers(const struct spill_entry *x, const struct digest *identity,
                        uint32_t n_pages, const struct digest *page)
{
    return x->head.n_pages >= n_pages && x->least <= n_pages &&
           digest_same(&x->head.identity, identity) &&
           digest_same(&x->head.pages[n_pages - 1], page);
}

/* With how many pages of an entry a chain begins. */
static uint32_t entry_common(const struct spill_entry *x, const struct spill_head *h)
{
    uint32_t least = 0, most = x->head.n_pages < h->n_pages ? x->head.n_pages : h->n_pages;
    if (!digest_same(&x->head.identity, &h->identity))
        return 0;
    while (least < most) { /* a name covers all pages before it */
        uint32_t half = least + (most - least + 1) / 2;
        if (digest_same(&x->head.pages[half - 1], &h->pages[half - 1]))
            least = half;
        else
            most = half - 1;
    }
    return least;
}

struct spill_head spill_entry_rest(const struct spill_entry *x, const struct spill_head *whole)
{
    struct spill_head rest = *whole;
    rest.first = spill_shape_same(&x->head.shape, &whole->shape) ? entry_common(x, whole) : 0;
    for (uint32_t g = 0; rest.first && g < rest.shape.n_groups; g++) {
        uint32_t seen = spill_page_seen(&rest.shape, g, rest.n_pages);
        rest.from[g] =
            rest.first > seen && entry_reach(x, g, rest.first) <= seen ? rest.first : seen;
    }
    return rest;
}
