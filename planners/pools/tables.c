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

/* Offers the structure at every point where it needs all the devices: kinds[0..n) are those it
 * uses. */
static void offer_structure(const struct sharing *w, struct rate_table *t,
                            const struct pools_structure *all, int index, double *rates)
{
    const struct grid *g = &w->g;
    const struct pools_structure *s = &all[index];
    int kinds[POOLS_MAX_STAGES], n = 0, widest = 0;
    for (int k = 0; k < g->n; k++)
        widest = g->size[k] > widest ? g->size[k] : widest;
    for (int k = 0; k < g->n; k++)
        for (int d = 0; d < s->n_stages; d++)
            if (s->stages[d].kind == k) {
                kind_rates(s, k, g->size[k] - 1, rates + n * widest);
                kinds[n++] = k;
                break;
            }
    int at[POOLS_MAX_STAGES];
    for (int i = 0; i < n; i++) {
        if (g->size[kinds[i]] < 2)
            return;
        at[i] = 1;
    }
    for (;;) {
        double before = INFINITY;
        int cell = 0;
        for (int i = 0; i < n; i++)
            cell += at[i] * g->stride[kinds[i]];
        for (int i = 0; i < n - 1; i++)
            before = fmin(before, rates[i * widest + at[i]]);
        const double *last = rates + (n - 1) * widest;
        int stride = g->stride[kinds[n - 1]],
            most = w->rule == POOLS_ANY ? g->size[kinds[n - 1]] - 1 : 1;
        for (int j = 1; j <= most; j++) {
            double rate = fmin(before, last[j]);
            if (rate > 0)
                table_offer(t, all, cell + (j - 1) * stride, rate, index);
            if (last[j] >= before)
                break;
        }
        int i = n - 2;
        for (; i >= 0; i--) {
            if (++at[i] < (w->rule == POOLS_ANY ? g->size[kinds[i]] : 2))
                break;
            at[i] = 1;
        }
        if (i < 0)
            return;
    }
}

/* Lists the points where one more device of every kind in use pays, for structures of one sequence
 * of kinds (key) or all (-1). */
static int table_list_items(const struct sharing *w, struct rate_table *t, double *upto,
                            struct err *e)
{
    const struct grid *g = &w->g;
    t->items = malloc((size_t)g->cells * sizeof *t->items);
    if (!t->items)
        return err_no_memory(e, "sharing out the devices");
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

/* Any number of pipelines of any structure. */
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

/* At most `limit` pipelines of one sequence of kinds: the sequences join one after the other. Items
 * of all sequences stand in t->items, those of one next to each other. */
int table_limited(const struct sharing *w, int m, int limit, struct err *e)
{
    struct rate_table *t = &w->tables[m];
    const struct pools_structures *all = &w->by_model[m];
    int *keys = malloc((size_t)(all->count + 1) * sizeof *keys), n_keys = 0;
    double *rates = rate_room(&w->g), *upto = malloc((size_t)w->g.cells * sizeof *upto),
           *before = malloc((size_t)w->g.cells * sizeof *before);
    int rc = keys && rates && upto && before ? 0 : err_no_memory(e, "sharing out the devices");
    for (int i = 0; rc == 0 && i < all->count; i++) {
        int key = sequence_of(w->p, &all->items[i]), known = 0;
        while (known < n_keys && keys[known] != key)
            known++;
        if (known == n_keys)
            keys[n_keys++] = key;
    }
    struct table_item *gathered = NULL;
    int n_gathered = 0;
    if (rc == 0)
        rc = table_prepare(w, t, e);
    for (int k = 0; rc == 0 && k < n_keys; k++) {
        memset(t->single, 0, (size_t)w->g.cells * sizeof *t->single);
        for (int c = 0; c < w->g.cells; c++)
            t->who[c].a = -1;
        for (int i = 0; i < all->count; i++)
            if (sequence_of(w->p, &all->items[i]) == keys[k])
                offer_structure(w, t, all->items, i, rates);
        t->items = NULL;
        t->n_items = 0;
        if ((rc = table_list_items(w, t, upto, e)) < 0)
            break;
        struct table_item *more =
            realloc(gathered, (size_t)(n_gathered + t->n_items + 1) * sizeof *more);
        if (!more) {
            free(t->items);
            t->items = NULL;
            rc = err_no_memory(e, "sharing out the devices");
            break;
        }
        gathered = more;
        memcpy(gathered + n_gathered, t->items, (size_t)t->n_items * sizeof *more);
        for (int round = 0; round < limit && rc == 0; round++) {
            memcpy(before, t->best, (size_t)w->g.cells * sizeof *before);
            if ((rc = level_add(w, t, e)) < 0)
                break;
            for (int i = 0; i < t->n_items; i++)
                take_item(&w->g, &t->items[i], n_gathered + i, before, t->best,
                          t->last + (size_t)(t->n_levels - 1) * (size_t)w->g.cells);
            if (memcmp(before, t->best, (size_t)w->g.cells * sizeof *before) == 0)
                break; /* one more pipeline of these kinds serves nothing more */
        }
        n_gathered += t->n_items;
        free(t->items);
    }
    t->items = gathered;
    t->n_items = n_gathered;
    free(keys);
    free(rates);
    free(upto);
    free(before);
    return rc;
}
