#include "planners/pools/tables.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "planners/pools/grid.h"
#include "planners/pools/share.h"

/* rate[n]: the most that n devices of a kind give to the stages on it. Devices go one by one to the
 * slowest stage. */
static void kind_rates(const struct pools_structure *s, int kind, int most, double *rate)
{
    int have[POOLS_MAX_STAGES] = {0};
    for (int n = 0; n <= most; n++) {
        double least = INFINITY;
        int slowest = 0;
        for (int d = 0; d < s->n_stages; d++)
            if (s->stages[d].kind == kind && have[d] * s->stages[d].device_rate < least) {
                least = have[d] * s->stages[d].device_rate;
                slowest = d;
            }
        rate[n] = least;
        have[slowest]++;
    }
}

static void table_offer(struct rate_table *t, const struct pools_structure *all, int cell,
                        double rate, int structure)
{
    double more = rate - t->single[cell];
    if (t->who[cell].a >= 0 && fabs(more) <= 1e-12 * rate) {
        /* Equals: the one with fewer stages, then the one that leaves more time. */
        const struct pools_structure *a = &all[structure], *b = &all[t->who[cell].a];
        if (a->n_stages > b->n_stages ||
            (a->n_stages == b->n_stages && a->latency_s >= b->latency_s))
            return;
    } else if (more <= 0) {
        return;
    }
    t->single[cell] = rate;
    t->who[cell] = (struct table_origin){structure, -1, rate, 0};
}

/* A structure that is offered: the kinds that it uses, and for each rates[0 .. size): what so many
 * devices of that kind give. */
struct offering {
    int index, n_kinds, kinds[POOLS_MAX_STAGES];
    const double *rates[POOLS_MAX_STAGES];
};

/* `room`: for rates of all kinds. False: there is no device of some kind. */
static bool offering_make(const struct grid *g, const struct pools_structure *s, double *room,
                          struct offering *o)
{
    for (int k = 0; k < g->n; k++)
        for (int d = 0; d < s->n_stages; d++)
            if (s->stages[d].kind == k) {
                kind_rates(s, k, g->size[k] - 1, room);
                o->rates[o->n_kinds] = room;
                o->kinds[o->n_kinds++] = k;
                room += g->size[k];
                break;
            }
    for (int i = 0; i < o->n_kinds; i++)
        if (g->size[o->kinds[i]] < 2)
            return false;
    return true;
}

/* Offers it with at[] devices of each kind but the last, and any number of that one which pays. */
static void offer_row(const struct sharing *w, struct rate_table *t,
                      const struct pools_structure *all, const struct offering *o, const int *at)
{
    const struct grid *g = &w->g;
    double before = INFINITY;
    int cell = 0, n = o->n_kinds;
    for (int i = 0; i < n; i++)
        cell += at[i] * g->stride[o->kinds[i]];
    for (int i = 0; i < n - 1; i++)
        before = fmin(before, o->rates[i][at[i]]);
    const double *last = o->rates[n - 1];
    int stride = g->stride[o->kinds[n - 1]],
        most = w->rule == POOLS_ANY ? g->size[o->kinds[n - 1]] - 1 : 1;
    for (int j = 1; j <= most; j++) {
        double rate = fmin(before, last[j]);
        if (rate > 0)
            table_offer(t, all, cell + (j - 1) * stride, rate, o->index);
        if (last[j] >= before)
            break;
    }
}

/* The next numbers of devices of all kinds but the last; false: these were the last. */
static bool offering_next(const struct sharing *w, const struct offering *o, int *at)
{
    for (int i = o->n_kinds - 2; i >= 0; i--) {
        if (++at[i] < (w->rule == POOLS_ANY ? w->g.size[o->kinds[i]] : 2))
            return true;
        at[i] = 1;
    }
    return false;
}

/* Offers the structure at every point where it needs all the devices. */
static void offer_structure(const struct sharing *w, struct rate_table *t,
                            const struct pools_structure *all, int index, double *rates)
{
    struct offering o = {.index = index};
    int at[POOLS_MAX_STAGES];
    if (!offering_make(&w->g, &all[index], rates, &o))
        return;
    for (int i = 0; i < o.n_kinds; i++)
        at[i] = 1;
    do
        offer_row(w, t, all, &o, at);
    while (offering_next(w, &o, at));
}

/* Adds to t->items the points where one more device of every kind in use pays, of what stands in
 * the table now. */
static int table_list_items(const struct sharing *w, struct rate_table *t, double *upto,
                            struct err *e)
{
    const struct grid *g = &w->g;
    struct table_item *items =
        realloc(t->items, ((size_t)t->n_items + (size_t)g->cells) * sizeof *items);
    if (!items)
        return err_no_memory(e, "sharing out the devices");
    t->items = items;
    for (int c = 0; c < g->cells; c++) {
        int at[POOLS_MAX_KINDS];
        double below = 0;
        grid_coordinates(g, c, at);
        for (int k = 0; k < g->n; k++)
            if (at[k] > 0)
                below = fmax(below, upto[c - g->stride[k]]);
        upto[c] = fmax(below, t->single[c]);
        if (t->who[c].a < 0 || t->single[c] <= below * (1 + 1e-12))
            continue;
        struct table_item *item = &t->items[t->n_items++];
        item->cell = c;
        item->from = t->who[c];
        item->rate = t->single[c];
        memcpy(item->at, at, sizeof at);
    }
    return 0;
}

/* ---- sets of pipelines ---- */

/* best[c] = max(best[c], from[c - item] + rate) for every c that has room. With from == best the
 * item may be taken again and again: points come in rising order. */
static void take_item(const struct grid *g, const struct table_item *item, int index,
                      const double *from, double *best, int *last)
{
    int at[POOLS_MAX_KINDS], width = g->size[g->n - 1] - item->at[g->n - 1];
    memcpy(at, item->at, sizeof at);
    do {
        int to = grid_cell(g, at), source = to - item->cell;
        for (int j = 0; j < width; j++) {
            double rate = from[source + j] + item->rate;
            if (rate > best[to + j]) {
                best[to + j] = rate;
                last[to + j] = index;
            }
        }
    } while (grid_next_row(g, item->at, g->size, at));
}

static int sequence_of(const struct pools_problem *p, const struct pools_structure *s)
{
    int key = 0;
    for (int d = 0; d < s->n_stages; d++)
        key = key * (p->n_kinds + 1) + s->stages[d].kind + 1;
    return key;
}

/* One more level of `last`, without items. */
static int level_add(const struct sharing *w, struct rate_table *t, struct err *e)
{
    size_t cells = (size_t)w->g.cells;
    int *bigger = realloc(t->last, cells * (size_t)(t->n_levels + 1) * sizeof *bigger);
    if (!bigger)
        return err_no_memory(e, "sharing out the devices");
    t->last = bigger;
    for (size_t i = 0; i < cells; i++)
        t->last[(size_t)t->n_levels * cells + i] = -1;
    t->n_levels++;
    return 0;
}

static int table_prepare(const struct sharing *w, struct rate_table *t, struct err *e)
{
    size_t cells = (size_t)w->g.cells;
    t->single = calloc(cells, sizeof *t->single);
    t->who = malloc(cells * sizeof *t->who);
    t->best = calloc(cells, sizeof *t->best);
    if (!t->single || !t->who || !t->best)
        return err_no_memory(e, "sharing out the devices");
    for (size_t i = 0; i < cells; i++)
        t->who[i].a = -1;
    return 0;
}

static double *rate_room(const struct grid *g)
{
    int widest = 1;
    for (int k = 0; k < g->n; k++)
        widest = g->size[k] > widest ? g->size[k] : widest;
    return malloc((size_t)widest * POOLS_MAX_STAGES * sizeof(double));
}

/* ---- pairs that share devices ---- */

struct pairing {
    const struct grid *g;
    struct rate_table *t;
    int a, b;
};

static void offer_pair(void *ctx, const int *devices, double rate_a, double rate_b)
{
    const struct pairing *w = ctx;
    int cell = grid_cell(w->g, devices);
    if (rate_a + rate_b <= w->t->single[cell] * (1 + 1e-12))
        return;
    w->t->single[cell] = rate_a + rate_b;
    w->t->who[cell] = (struct table_origin){w->a, w->b, rate_a, rate_b};
}

static int offer_pairs(const struct sharing *w, int m, struct rate_table *t, struct err *e)
{
    int available[POOLS_MAX_KINDS], rc = 0;
    const struct pools_chosen *chosen = &w->pairs[m];
    for (int k = 0; k < w->g.n; k++)
        available[k] = w->g.size[k] - 1;
    for (int i = 0; i < chosen->n; i++)
        for (int j = i + 1; j < chosen->n && rc == 0; j++) {
            struct pairing pair = {&w->g, t, chosen->structures[i], chosen->structures[j]};
            const struct pools_structure *all = w->by_model[m].items;
            rc = pools_pair_each(w->p, &all[pair.a], &all[pair.b], available, offer_pair, &pair, e);
        }
    return rc;
}

int table_unlimited(const struct sharing *w, int m, struct err *e)
{
    struct rate_table *t = &w->tables[m];
    const struct pools_structures *all = &w->by_model[m];
    int rc = table_prepare(w, t, e);
    if (rc == 0)
        rc = level_add(w, t, e);
    double *rates = rate_room(&w->g), *upto = malloc((size_t)w->g.cells * sizeof *upto);
    if (rc == 0 && (!rates || !upto))
        rc = err_no_memory(e, "sharing out the devices");
    for (int i = 0; rc == 0 && i < all->count; i++)
        offer_structure(w, t, all->items, i, rates);
    if (rc == 0 && w->pairs)
        rc = offer_pairs(w, m, t, e);
    if (rc == 0)
        rc = table_list_items(w, t, upto, e);
    for (int i = 0; rc == 0 && i < t->n_items; i++)
        if (t->best[t->items[i].cell] < t->items[i].rate)
            take_item(&w->g, &t->items[i], i, t->best, t->best, t->last);
    free(rates);
    free(upto);
    return rc;
}

/* ---- sequences of kinds, one after the other ---- */

/* Each sequence of kinds that a structure has, once. NULL: no memory. */
static int *sequences_list(const struct sharing *w, const struct pools_structures *all, int *n)
{
    int *keys = malloc((size_t)(all->count + 1) * sizeof *keys);
    *n = 0;
    for (int i = 0; keys && i < all->count; i++) {
        int key = sequence_of(w->p, &all->items[i]), known = 0;
        while (known < *n && keys[known] != key)
            known++;
        if (known == *n)
            keys[(*n)++] = key;
    }
    return keys;
}

/* Offers anew, at every point, what structures of one sequence of kinds give. */
static void offer_sequence(const struct sharing *w, struct rate_table *t,
                           const struct pools_structures *all, int key, double *rates)
{
    memset(t->single, 0, (size_t)w->g.cells * sizeof *t->single);
    for (int c = 0; c < w->g.cells; c++)
        t->who[c].a = -1;
    for (int i = 0; i < all->count; i++)
        if (sequence_of(w->p, &all->items[i]) == key)
            offer_structure(w, t, all->items, i, rates);
}

/* Up to `limit` of the items[first..n_items) join what there is at each point. */
static int items_join(const struct sharing *w, struct rate_table *t, int first, int limit,
                      double *before, struct err *e)
{
    size_t bytes = (size_t)w->g.cells * sizeof *before;
    for (int round = 0; round < limit; round++) {
        memcpy(before, t->best, bytes);
        int rc = level_add(w, t, e);
        if (rc < 0)
            return rc;
        int *last = t->last + (size_t)(t->n_levels - 1) * (size_t)w->g.cells;
        for (int i = first; i < t->n_items; i++)
            take_item(&w->g, &t->items[i], i, before, t->best, last);
        if (memcmp(before, t->best, bytes) == 0)
            break; /* one more pipeline of these kinds serves nothing more */
    }
    return 0;
}

/* The sequences join one after the other: t->items has those of each next to each other. */
int table_limited(const struct sharing *w, int m, int limit, struct err *e)
{
    struct rate_table *t = &w->tables[m];
    const struct pools_structures *all = &w->by_model[m];
    size_t bytes = (size_t)w->g.cells * sizeof(double);
    int n_keys, *keys = sequences_list(w, all, &n_keys);
    double *rates = rate_room(&w->g), *upto = malloc(bytes), *before = malloc(bytes);
    int rc = keys && rates && upto && before ? table_prepare(w, t, e)
                                             : err_no_memory(e, "sharing out the devices");
    for (int k = 0; rc == 0 && k < n_keys; k++) {
        int first = t->n_items;
        offer_sequence(w, t, all, keys[k], rates);
        rc = table_list_items(w, t, upto, e);
        rc = rc < 0 ? rc : items_join(w, t, first, limit, before, e);
    }
    free(keys);
    free(rates);
    free(upto);
    free(before);
    return rc;
}
