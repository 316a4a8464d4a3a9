#include "planners/pools/allocate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "planners/pools/share.h"

/* Numbers of devices by kind, the last kind running fastest. */
struct grid {
    int n;
    int size[POOLS_MAX_KINDS], stride[POOLS_MAX_KINDS];
    int cells;
};

/* What serves best at one point of the grid: one pipeline, or two that share devices (b is -1, or
 * the second one's structure). */
struct origin {
    int a, b;
    double rate_a, rate_b;
};

struct item {
    int cell;
    int at[POOLS_MAX_KINDS];
    struct origin from;
    double rate;
};

struct table {
    double
        *single; /* [cells]: best rate of one pipeline or pair that takes exactly these devices */
    struct origin *who; /* [cells]: which; a is -1 where there is none */
    struct item *items;
    int n_items;
    double *best; /* [cells]: best rate of any set of pipelines within these devices */
    int *last;    /* [levels][cells]: item taken last to reach it; -1: none */
    int n_levels; /* 1, or one for every sequence of kinds and pipeline that may use it */
};

struct work {
    const struct pools_problem *p;
    const struct pools_structures *by_model;
    enum pools_rule rule;
    struct grid g;
    struct table *tables; /* by model */
    double **least;       /* [model][cells]: best max-min of models 0..m */
    const struct pools_allocation *base;
    const struct pools_chosen *pairs; /* by model: structures to pair; NULL: none */
};

static int no_memory(struct err *e)
{
    return err_set(e, HP_ENOMEM, "out of memory while sharing out the devices");
}

static struct grid grid_over(const struct pools_problem *p, const int *available)
{
    struct grid g = {.n = p->n_kinds, .cells = 1};
    for (int k = g.n - 1; k >= 0; k--) {
        g.size[k] = available[k] + 1;
        g.stride[k] = g.cells;
        if (g.cells > POOLS_MAX_CELLS / g.size[k])
            return (struct grid){0};
        g.cells *= g.size[k];
    }
    return g;
}

int pools_grid_cells(const struct pools_problem *p, const int *available)
{
    int cells = grid_over(p, available).cells;
    return cells <= POOLS_MAX_ALL_CELLS / p->n_models ? cells : 0;
}

static void coordinates(const struct grid *g, int cell, int *at)
{
    for (int k = 0; k < g->n; k++)
        at[k] = cell / g->stride[k] % g->size[k];
}

/* Steps through the grid's points in all dimensions but the last, between `from` and the end of the
 * grid; at[last] stays. False after the last. */
static bool next_row(const struct grid *g, const int *from, const int *end, int *at)
{
    for (int k = g->n - 2; k >= 0; k--) {
        if (++at[k] < end[k])
            return true;
        at[k] = from[k];
    }
    return false;
}

static int cell_of(const struct grid *g, const int *at)
{
    int c = 0;
    for (int k = 0; k < g->n; k++)
        c += at[k] * g->stride[k];
    return c;
}

/* ---- one pipeline
 * ------------------------------------------------------------------------------------------------
 */

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

static void offer(struct table *t, const struct pools_structure *all, int cell, double rate,
                  int structure)
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
    t->who[cell] = (struct origin){structure, -1, rate, 0};
}

/* Offers the structure at every point where it needs all the devices: kinds[0..n) are those it
 * uses. */
static void offer_structure(const struct work *w, struct table *t,
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
                offer(t, all, cell + (j - 1) * stride, rate, index);
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
static int list_items(const struct work *w, struct table *t, double *upto, struct err *e)
{
    const struct grid *g = &w->g;
    t->items = malloc((size_t)g->cells * sizeof *t->items);
    if (!t->items)
        return no_memory(e);
    for (int c = 0; c < g->cells; c++) {
        int at[POOLS_MAX_KINDS];
        double below = 0;
        coordinates(g, c, at);
        for (int k = 0; k < g->n; k++)
            if (at[k] > 0)
                below = fmax(below, upto[c - g->stride[k]]);
        upto[c] = fmax(below, t->single[c]);
        if (t->who[c].a < 0 || t->single[c] <= below * (1 + 1e-12))
            continue;
        struct item *item = &t->items[t->n_items++];
        item->cell = c;
        item->from = t->who[c];
        item->rate = t->single[c];
        memcpy(item->at, at, sizeof at);
    }
    return 0;
}

/* ---- sets of pipelines
 * ------------------------------------------------------------------------------------------- */

/* best[c] = max(best[c], from[c - item] + rate) for every c that has room. With from == best the
 * item may be taken again and again: points come in rising order. */
static void take_item(const struct grid *g, const struct item *item, int index, const double *from,
                      double *best, int *last)
{
    int at[POOLS_MAX_KINDS], width = g->size[g->n - 1] - item->at[g->n - 1];
    memcpy(at, item->at, sizeof at);
    do {
        int to = cell_of(g, at), source = to - item->cell;
        for (int j = 0; j < width; j++) {
            double rate = from[source + j] + item->rate;
            if (rate > best[to + j]) {
                best[to + j] = rate;
                last[to + j] = index;
            }
        }
    } while (next_row(g, item->at, g->size, at));
}

static int sequence_of(const struct pools_problem *p, const struct pools_structure *s)
{
    int key = 0;
    for (int d = 0; d < s->n_stages; d++)
        key = key * (p->n_kinds + 1) + s->stages[d].kind + 1;
    return key;
}

/* One more level of `last`, without items. */
static int level_add(const struct work *w, struct table *t, struct err *e)
{
    size_t cells = (size_t)w->g.cells;
    int *bigger = realloc(t->last, cells * (size_t)(t->n_levels + 1) * sizeof *bigger);
    if (!bigger)
        return no_memory(e);
    t->last = bigger;
    for (size_t i = 0; i < cells; i++)
        t->last[(size_t)t->n_levels * cells + i] = -1;
    t->n_levels++;
    return 0;
}

static int table_prepare(const struct work *w, struct table *t, struct err *e)
{
    size_t cells = (size_t)w->g.cells;
    t->single = calloc(cells, sizeof *t->single);
    t->who = malloc(cells * sizeof *t->who);
    t->best = calloc(cells, sizeof *t->best);
    if (!t->single || !t->who || !t->best)
        return no_memory(e);
    for (size_t i = 0; i < cells; i++)
        t->who[i].a = -1;
    return 0;
}

static double *rate_room(const struct grid *g)
{
    int widest = 0;
    for (int k = 0; k < g->n; k++)
        widest = g->size[k] > widest ? g->size[k] : widest;
    return malloc((size_t)widest * POOLS_MAX_STAGES * sizeof(double));
}

/* ---- pairs that share devices
 * -------------------------------------------------------------------------------------- */

struct pairing {
    const struct grid *g;
    struct table *t;
    int a, b;
};

static void offer_pair(void *ctx, const int *devices, double rate_a, double rate_b)
{
    const struct pairing *w = ctx;
    int cell = cell_of(w->g, devices);
    if (rate_a + rate_b <= w->t->single[cell] * (1 + 1e-12))
        return;
    w->t->single[cell] = rate_a + rate_b;
    w->t->who[cell] = (struct origin){w->a, w->b, rate_a, rate_b};
}

static int offer_pairs(const struct work *w, int m, struct table *t, struct err *e)
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
static int table_unlimited(const struct work *w, int m, struct err *e)
{
    struct table *t = &w->tables[m];
    const struct pools_structures *all = &w->by_model[m];
    int rc = table_prepare(w, t, e);
    if (rc == 0)
        rc = level_add(w, t, e);
    double *rates = rate_room(&w->g), *upto = malloc((size_t)w->g.cells * sizeof *upto);
    if (rc == 0 && (!rates || !upto))
        rc = no_memory(e);
    for (int i = 0; rc == 0 && i < all->count; i++)
        offer_structure(w, t, all->items, i, rates);
    if (rc == 0 && w->pairs)
        rc = offer_pairs(w, m, t, e);
    if (rc == 0)
        rc = list_items(w, t, upto, e);
    for (int i = 0; rc == 0 && i < t->n_items; i++)
        if (t->best[t->items[i].cell] < t->items[i].rate)
            take_item(&w->g, &t->items[i], i, t->best, t->best, t->last);
    free(rates);
    free(upto);
    return rc;
}

/* At most `limit` pipelines of one sequence of kinds: the sequences join one after the other. Items
 * of all sequences stand in t->items, those of one next to each other. */
static int table_limited(const struct work *w, int m, int limit, struct err *e)
{
    struct table *t = &w->tables[m];
    const struct pools_structures *all = &w->by_model[m];
    int *keys = malloc((size_t)(all->count + 1) * sizeof *keys), n_keys = 0;
    double *rates = rate_room(&w->g), *upto = malloc((size_t)w->g.cells * sizeof *upto),
           *before = malloc((size_t)w->g.cells * sizeof *before);
    int rc = keys && rates && upto && before ? 0 : no_memory(e);
    for (int i = 0; rc == 0 && i < all->count; i++) {
        int key = sequence_of(w->p, &all->items[i]), known = 0;
        while (known < n_keys && keys[known] != key)
            known++;
        if (known == n_keys)
            keys[n_keys++] = key;
    }
    struct item *gathered = NULL;
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
        if ((rc = list_items(w, t, upto, e)) < 0)
            break;
        struct item *more = realloc(gathered, (size_t)(n_gathered + t->n_items + 1) * sizeof *more);
        if (!more) {
            free(t->items);
            t->items = NULL;
            rc = no_memory(e);
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

/* ---- the models share the cluster
 * --------------------------------------------------------------------------------- */

static double value(const struct work *w, int m, int cell)
{
    return (w->base->models[m].rate + w->tables[m].best[cell]) / w->p->models[m].weight;
}

/* The best max-min at point c when model m takes some of it and the models before it the rest.
 * Along a row one side rises and the other falls, so the best lies where they cross. */
static double best_split(const struct work *w, int m, int c)
{
    const struct grid *g = &w->g;
    int at[POOLS_MAX_KINDS], d[POOLS_MAX_KINDS] = {0}, end[POOLS_MAX_KINDS],
                             zero[POOLS_MAX_KINDS] = {0};
    coordinates(g, c, at);
    for (int k = 0; k < g->n; k++)
        end[k] = at[k] + 1;
    double best = 0;
    const double *before = w->least[m - 1];
    int width = at[g->n - 1];
    do {
        int mine = cell_of(g, d), rest = c - mine, lo = 0, hi = width;
        while (lo < hi) { /* the first j at which the model has at least what the others have */
            int mid = (lo + hi) / 2;
            if (value(w, m, mine + mid) >= before[rest - mid])
                hi = mid;
            else
                lo = mid + 1;
        }
        best = fmax(best, fmin(value(w, m, mine + lo), before[rest - lo]));
        if (lo > 0)
            best = fmax(best, fmin(value(w, m, mine + lo - 1), before[rest - lo + 1]));
    } while (next_row(g, zero, end, d));
    return best;
}

static int share_out(struct work *w, struct err *e)
{
    int n = w->p->n_models;
    for (int m = 0; m < n; m++) {
        w->least[m] = malloc((size_t)w->g.cells * sizeof **w->least);
        if (!w->least[m])
            return no_memory(e);
        for (int c = m == n - 1 ? w->g.cells - 1 : 0; c < w->g.cells; c++)
            w->least[m][c] = m == 0 ? value(w, 0, c) : best_split(w, m, c);
    }
    return 0;
}

/* The fewest devices, as parts of their kinds' numbers, with which model m still lets everyone
 * reach `target`. */
static int cheapest_share(const struct work *w, int m, int c, double target)
{
    const struct grid *g = &w->g;
    int at[POOLS_MAX_KINDS], d[POOLS_MAX_KINDS], best = c;
    double least = INFINITY;
    coordinates(g, c, at);
    for (int cell = 0; cell <= c; cell++) {
        double cost = 0;
        bool inside =
            value(w, m, cell) >= target && (m == 0 || w->least[m - 1][c - cell] >= target);
        if (!inside)
            continue;
        coordinates(g, cell, d);
        for (int k = 0; k < g->n; k++) {
            inside = inside && d[k] <= at[k];
            cost += (double)d[k] / g->size[k];
        }
        if (inside && cost < least) {
            least = cost;
            best = cell;
        }
    }
    return best;
}

/* Adds as many shares as the rate needs; whole devices where the pipeline has them to itself. */
static int add_part(const struct work *w, int m, int structure, double rate, bool whole,
                    struct pools_allocation *a, struct err *e)
{
    const struct pools_structure *s = &w->by_model[m].items[structure];
    int count[POOLS_MAX_STAGES];
    for (int d = 0; d < s->n_stages; d++) {
        int v = whole ? w->p->kinds[s->stages[d].kind].shares[s->stages[d].share] : 1;
        count[d] = v * (int)fmax(1, ceil(rate / (v * s->stages[d].share_rate) - 1e-9));
    }
    return pools_allocation_add_shares(w->p, a, m, s, count, e);
}

static int add_item(const struct work *w, int m, const struct item *item,
                    struct pools_allocation *a, struct err *e)
{
    const struct origin *o = &item->from;
    int rc = add_part(w, m, o->a, o->rate_a, o->b < 0, a, e);
    return rc < 0 || o->b < 0 ? rc : add_part(w, m, o->b, o->rate_b, false, a, e);
}

static int add_model(const struct work *w, int m, int cell, struct pools_allocation *a,
                     struct err *e)
{
    const struct table *t = &w->tables[m];
    int rc = 0;
    for (int level = t->n_levels - 1; level >= 0 && rc == 0; level--)
        for (;;) {
            int i = t->last[(size_t)level * (size_t)w->g.cells + (size_t)cell];
            if (i < 0)
                break;
            if ((rc = add_item(w, m, &t->items[i], a, e)) < 0)
                break;
            cell -= t->items[i].cell;
            if (w->p->pipelines_per_assignment > 0)
                break; /* one item a level */
        }
    return rc;
}

static int add_all(const struct work *w, struct pools_allocation *a, struct err *e)
{
    int c = w->g.cells - 1, n = w->p->n_models;
    double target = w->least[n - 1][c] * (1 - 1e-12);
    for (int m = n - 1; m >= 0; m--) {
        int mine = cheapest_share(w, m, c, target);
        int rc = add_model(w, m, mine, a, e);
        if (rc < 0)
            return rc;
        c -= mine;
    }
    return 0;
}

static void work_free(struct work *w)
{
    for (int m = 0; m < w->p->n_models; m++) {
        if (w->tables) {
            free(w->tables[m].single);
            free(w->tables[m].who);
            free(w->tables[m].items);
            free(w->tables[m].best);
            free(w->tables[m].last);
        }
        if (w->least)
            free(w->least[m]);
    }
    free(w->tables);
    free(w->least);
}

int pools_allocate(const struct pools_problem *p, const struct pools_structures *by_model,
                   enum pools_rule rule, const struct pools_chosen *pairs, const int *available,
                   struct pools_allocation *a, struct err *e)
{
    struct work w = {.p = p,
                     .by_model = by_model,
                     .rule = rule,
                     .g = grid_over(p, available),
                     .base = a,
                     .pairs = pairs};
    if (w.g.cells == 0)
        return err_set(e, HP_ELIMIT,
                       "the cluster has too many devices to try every number of each kind");
    w.tables = calloc((size_t)p->n_models, sizeof *w.tables);
    w.least = calloc((size_t)p->n_models, sizeof *w.least);
    int rc = w.tables && w.least ? 0 : no_memory(e);
    for (int m = 0; rc == 0 && m < p->n_models; m++)
        rc = p->pipelines_per_assignment > 0 ? table_limited(&w, m, p->pipelines_per_assignment, e)
                                             : table_unlimited(&w, m, e);
    if (rc == 0)
        rc = share_out(&w, e);
    if (rc == 0)
        rc = add_all(&w, a, e);
    work_free(&w);
    pools_allocation_refresh(p, a);
    return rc;
}
