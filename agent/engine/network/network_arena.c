/* The memory of a plan, or of some of its steps: values laid out in one arena. */
#include <stdlib.h>
#include <string.h>

#include "agent/engine/network/network_int.h"

static int root_order(const void *a, const void *b)
{
    const struct network_root *x = *(const struct network_root *const *)a;
    const struct network_root *y = *(const struct network_root *const *)b;
    return x->bytes != y->bytes ? (x->bytes < y->bytes ? 1 : -1) : x->first - y->first;
}

static bool roots_meet(const struct network_root *a, const struct network_root *b)
{
    return a->first <= b->last && b->first <= a->last;
}

/* The largest first, each at the lowest place where nothing lies that lives beside it. */
static void root_place(struct network_root *r, struct network_root *const *placed, int n)
{
    bool moved = true;
    r->offset = 0;
    while (moved) {
        moved = false;
        for (int i = 0; i < n; i++) {
            const struct network_root *o = placed[i];
            if (roots_meet(r, o) && r->offset < o->offset + o->bytes &&
                o->offset < r->offset + r->bytes) {
                r->offset = o->offset + o->bytes;
                moved = true;
            }
        }
    }
}

/* Whether steps [first, end), or who gives them what enters or takes what leaves, see it; where
 * there are no steps, that is all. */
static bool root_is_seen(const struct network_root *r, int first, int end)
{
    return !r->fixed && r->last >= first && (r->first < end || r->first == first);
}

/* Of the values of these steps alone. */
static int roots_place(struct network_plan *p, int first, int end, uint64_t *out, struct err *e)
{
    struct network_root **order = calloc((size_t)p->n_roots + 1, sizeof *order);
    int n = 0;
    uint64_t bytes = 0, limit = network_limit(p->network);
    if (!order)
        return err_no_memory(e, "a plan");
    for (int i = 0; i < p->n_roots; i++)
        if (root_is_seen(&p->roots[i], first, end))
            order[n++] = &p->roots[i];
    qsort(order, (size_t)n, sizeof(struct network_root *), root_order);
    for (int i = 0; i < n && bytes <= limit; i++) {
        root_place(order[i], order, i);
        bytes =
            order[i]->offset + order[i]->bytes > bytes ? order[i]->offset + order[i]->bytes : bytes;
    }
    free(order);
    *out = bytes;
    return 0;
}

static uint64_t scratch_most(const struct network_plan *p, int first, int end)
{
    uint64_t most = 0;
    for (int i = first; i < end; i++) {
        size_t scratch = 0;
        if (network_step_is_op(&p->steps[i], &scratch) && scratch > most)
            most = scratch;
    }
    return (most + 63) / 64 * 64;
}

static int arena_make(struct network_plan *p, int first, int end, struct err *e)
{
    uint64_t bytes = 0, limit = network_limit(p->network);
    int rc = roots_place(p, first, end, &bytes, e);
    if (rc < 0)
        return rc;
    p->arena_bytes = bytes;
    p->scratch_bytes = scratch_most(p, first, end);
    uint64_t all = bytes + p->scratch_bytes;
    if (all > limit)
        return err_set(e, HP_ELIMIT, "its values need %llu bytes", (unsigned long long)all);
    void *arena = NULL;
    if (p->facts->shelf)
        rc = network_shelf_arena(p->facts->shelf, all + 64, &arena, e);
    else if ((arena = aligned_alloc(64, all + 64)) == NULL)
        rc = err_no_memory(e, "a plan's arena");
    p->arena = arena;
    if (rc < 0)
        return rc;
    memset(p->arena, 0, all);
    for (int i = first; i < end; i++)
        network_op_bind(p, &p->steps[i], p->arena + bytes);
    return p->facts->device ? network_device_arena(p->facts->device, bytes, e) : 0;
}

uint64_t network_plan_peak(const struct network_plan *p, int first, int end)
{
    uint64_t most = 0;
    for (int step = first; step < end; step++) {
        uint64_t bytes = 0;
        for (int i = 0; i < p->n_roots; i++)
            bytes += root_is_seen(&p->roots[i], step, step + 1) ? p->roots[i].bytes : 0;
        most = bytes > most ? bytes : most;
    }
    return most + scratch_most(p, first, end);
}

static void fixed_use(const struct network_plan *p, int first, int end)
{
    for (int i = 0; p->facts->shelf && i < p->n_roots; i++) {
        const struct network_root *r = &p->roots[i];
        bool untold = r->last < 0; /* a step of ours, which does not say what it reads */
        if (r->fixed && (untold || (r->last >= first && r->first < end)))
            network_shelf_use(p->facts->shelf, r->fixed);
    }
}

int network_plan_ready(struct network_plan *p, int first, int end, struct err *e)
{
    int rc = p->facts->device ? network_there_ready(p, first, end, e)
                              : network_weights_ready(p, first, end, e);
    fixed_use(p, first, end);
    for (int i = first; i < end && rc == 0; i++)
        rc = p->steps[i].ready ? p->steps[i].ready(p, &p->steps[i], e) : 0;
    return rc < 0 ? rc : arena_make(p, first, end, e);
}

void network_plan_release(struct network_plan *p, int first, int end)
{
    network_weights_release(p, first, end);
    if (p->facts->device)
        network_device_clear(p->facts->device);
    if (p->facts->rows)
        network_rows_clear(p->facts->rows);
    network_shelf_arenas_free(p->facts->shelf);
    p->arena = NULL;
}
