#include "common/kv_account.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "common/vector.h"

/* Room for n more pages, so that taking and giving back them fails no more. */
static bool pages_reserve(struct kv_account *a, uint32_t n)
{
    uint32_t wanted = n > a->n_spare ? a->n_pages + n - a->n_spare : a->n_pages;
    return vector_reserve(a->pages, a->room_pages, wanted) &&
           vector_reserve(a->spare, a->room_spare, wanted);
}

static void page_hold(struct kv_account *a, uint32_t page)
{
    struct kv_account_page *p = &a->pages[page];
    a->used += p->holders++ == 0;
    a->used_growing += p->growing++ == 0;
}

static uint32_t page_fresh(struct kv_account *a)
{
    uint32_t page = a->n_spare ? a->spare[--a->n_spare] : a->n_pages++;
    a->pages[page] = (struct kv_account_page){0};
    return page;
}

static void page_leave(struct kv_account *a, uint32_t page, bool kept)
{
    struct kv_account_page *p = &a->pages[page];
    assert(p->holders && (kept || p->growing));
    if (!kept && --p->growing == 0)
        a->used_growing--;
    if (--p->holders)
        return;
    a->used--;
    a->spare[a->n_spare++] = page;
}

bool kv_account_open(struct kv_account *a, struct kv_holding *h, uint64_t tokens,
                     const struct kv_holding *from, uint64_t shared)
{
    uint32_t n = kv_pages_for(tokens), common = (uint32_t)(shared / KV_PAGE_TOKENS);
    assert(common <= n && (!common || (from && common <= from->n_pages)));
    uint32_t *pages = malloc((n ? n : 1) * sizeof *pages);
    if (!pages || !pages_reserve(a, n - common)) {
        free(pages);
        return false;
    }
    for (uint32_t i = 0; i < n; i++) {
        pages[i] = i < common ? from->pages[i] : page_fresh(a);
        page_hold(a, pages[i]);
    }
    *h = (struct kv_holding){.pages = pages, .n_pages = n};
    return true;
}

bool kv_account_grow(struct kv_account *a, struct kv_holding *h, uint64_t tokens)
{
    uint32_t n = kv_pages_for(tokens);
    if (n <= h->n_pages)
        return true;
    uint32_t *pages =
        pages_reserve(a, n - h->n_pages) ? realloc(h->pages, n * sizeof *pages) : NULL;
    if (!pages)
        return false;
    h->pages = pages;
    while (h->n_pages < n) {
        pages[h->n_pages] = page_fresh(a);
        page_hold(a, pages[h->n_pages++]);
    }
    return true;
}

void kv_account_keep(struct kv_account *a, struct kv_holding *h, uint64_t tokens)
{
    uint32_t n = kv_pages_for(tokens);
    while (h->n_pages > n)
        page_leave(a, h->pages[--h->n_pages], h->kept);
    for (uint32_t i = 0; !h->kept && i < h->n_pages; i++)
        a->used_growing -= --a->pages[h->pages[i]].growing == 0;
    h->kept = true;
}

void kv_account_close(struct kv_account *a, struct kv_holding *h)
{
    while (h->n_pages)
        page_leave(a, h->pages[--h->n_pages], h->kept);
    free(h->pages);
    *h = (struct kv_holding){0};
}

uint32_t kv_account_alone(const struct kv_account *a, const struct kv_holding *h)
{
    uint32_t alone = 0;
    for (uint32_t i = 0; i < h->n_pages; i++)
        alone += a->pages[h->pages[i]].holders == 1;
    return alone;
}

uint32_t kv_account_growth(const struct kv_account *a, uint64_t tokens,
                           const struct kv_holding *from, uint64_t shared)
{
    uint32_t growth = kv_account_need(tokens, shared);
    for (uint32_t i = 0; from && i < shared / KV_PAGE_TOKENS && i < from->n_pages; i++)
        growth += a->pages[from->pages[i]].growing == 0;
    return growth;
}

void kv_account_free(struct kv_account *a)
{
    free(a->pages);
    free(a->spare);
    *a = (struct kv_account){0};
}
