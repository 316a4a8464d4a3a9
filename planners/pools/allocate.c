#include "planners/pools/allocate.h"

#include <math.h>
#include <stdlib.h>

#include "planners/pools/grid.h"
#include "planners/pools/share.h"
#include "planners/pools/tables.h"

int pools_grid_cells(const struct pools_problem *p, const int *available)
{
    int cells = grid_over(p, available).cells;
    return cells <= POOLS_MAX_ALL_CELLS / p->n_models ? cells : 0;
}

/* ---- the models share the cluster ---- */

static double model_value(const struct sharing *w, int m, int cell)
{
    return (w->base->models[m].rate + w->tables[m].best[cell]) / w->p->models[m].weight;
}

/* The best max-min at point c when model m takes some of it and the models before it the rest.
 * Along a row one side rises and the other falls, so the best lies where they cross. */
static double model_split(const struct sharing *w, int m, int c)
{
    const struct grid *g = &w->g;
    int at[POOLS_MAX_KINDS], d[POOLS_MAX_KINDS] = {0}, end[POOLS_MAX_KINDS],
                             zero[POOLS_MAX_KINDS] = {0};
    grid_coordinates(g, c, at);
    for (int k = 0; k < g->n; k++)
        end[k] = at[k] + 1;
    double best = 0;
    const double *before = w->least[m - 1];
    int width = at[g->n - 1];
    do {
        int mine = grid_cell(g, d), rest = c - mine, lo = 0, hi = width;
        while (lo < hi) { /* the first j at which the model has at least what the others have */
            int mid = (lo + hi) / 2;
            if (model_value(w, m, mine + mid) >= before[rest - mid])
                hi = mid;
            else
                lo = mid + 1;
        }
        best = fmax(best, fmin(model_value(w, m, mine + lo), before[rest - lo]));
        if (lo > 0)
            best = fmax(best, fmin(model_value(w, m, mine + lo - 1), before[rest - lo + 1]));
    } while (grid_next_row(g, zero, end, d));
    return best;
}

static int devices_share_out(struct sharing *w, struct err *e)
{
    int n = w->p->n_models;
    for (int m = 0; m < n; m++) {
        w->least[m] = malloc((size_t)w->g.cells * sizeof **w->least);
        if (!w->least[m])
            return err_no_memory(e, "sharing out the devices");
        for (int c = m == n - 1 ? w->g.cells - 1 : 0; c < w->g.cells; c++)
            w->least[m][c] = m == 0 ? model_value(w, 0, c) : model_split(w, m, c);
    }
    return 0;
}

/* The fewest devices, as parts of their kinds' numbers, with which model m still lets everyone
 * reach `target`. */
static int cheapest_share(const struct sharing *w, int m, int c, double target)
{
    const struct grid *g = &w->g;
    int at[POOLS_MAX_KINDS], d[POOLS_MAX_KINDS], best = c;
    double least = INFINITY;
    grid_coordinates(g, c, at);
    for (int cell = 0; cell <= c; cell++) {
        double cost = 0;
        bool inside =
            model_value(w, m, cell) >= target && (m == 0 || w->least[m - 1][c - cell] >= target);
        if (!inside)
            continue;
        grid_coordinates(g, cell, d);
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
static int allocation_add_part(const struct sharing *w, int m, int structure, double rate,
                               bool whole, struct pools_allocation *a, struct err *e)
{
    const struct pools_structure *s = &w->by_model[m].items[structure];
    int count[POOLS_MAX_STAGES];
    for (int d = 0; d < s->n_stages; d++) {
        int v = whole ? w->p->kinds[s->stages[d].kind].shares[s->stages[d].share] : 1;
        count[d] = v * (int)fmax(1, ceil(rate / (v * s->stages[d].share_rate) - 1e-9));
    }
    return pools_allocation_add_shares(w->p, a, m, s, count, e);
}

static int allocation_add_item(const struct sharing *w, int m, const struct table_item *item,
                               struct pools_allocation *a, struct err *e)
{
    const struct table_origin *o = &item->from;
    int rc = allocation_add_part(w, m, o->a, o->rate_a, o->b < 0, a, e);
    return rc < 0 || o->b < 0 ? rc : allocation_add_part(w, m, o->b, o->rate_b, false, a, e);
}

static int allocation_add_model(const struct sharing *w, int m, int cell,
                                struct pools_allocation *a, struct err *e)
{
    const struct rate_table *t = &w->tables[m];
    int rc = 0;
    for (int level = t->n_levels - 1; level >= 0 && rc == 0; level--)
        for (;;) {
            int i = t->last[(size_t)level * (size_t)w->g.cells + (size_t)cell];
            if (i < 0)
                break;
            if ((rc = allocation_add_item(w, m, &t->items[i], a, e)) < 0)
                break;
            cell -= t->items[i].cell;
            if (w->p->pipelines_per_assignment > 0)
                break; /* one item a level */
        }
    return rc;
}

static int allocation_add_all(const struct sharing *w, struct pools_allocation *a, struct err *e)
{
    int c = w->g.cells - 1, n = w->p->n_models;
    double target = w->least[n - 1][c] * (1 - 1e-12);
    for (int m = n - 1; m >= 0; m--) {
        int mine = cheapest_share(w, m, c, target);
        int rc = allocation_add_model(w, m, mine, a, e);
        if (rc < 0)
            return rc;
        c -= mine;
    }
    return 0;
}

static void work_free(struct sharing *w)
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
    struct sharing w = {.p = p,
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
    int rc = w.tables && w.least ? 0 : err_no_memory(e, "sharing out the devices");
    for (int m = 0; rc == 0 && m < p->n_models; m++)
        rc = p->pipelines_per_assignment > 0 ? table_limited(&w, m, p->pipelines_per_assignment, e)
                                             : table_unlimited(&w, m, e);
    if (rc == 0)
        rc = devices_share_out(&w, e);
    if (rc == 0)
        rc = allocation_add_all(&w, a, e);
    work_free(&w);
    pools_allocation_refresh(p, a);
    return rc;
}
