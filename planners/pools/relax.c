#include "planners/pools/relax.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/vector.h"
#include "planners/lp.h"

enum { MAX_ROUNDS = 60 };

/* How many devices of each kind one request per second takes. */
static void structure_cost(const struct pools_problem *p, const struct pools_structure *s,
                           double *by_kind)
{
    for (int k = 0; k < p->n_kinds; k++)
        by_kind[k] = 0;
    for (int d = 0; d < s->n_stages; d++)
        by_kind[s->stages[d].kind] += 1 / s->stages[d].device_rate;
}

static double structure_priced(const struct pools_problem *p, const double *price,
                               const struct pools_structure *s)
{
    double cost[POOLS_MAX_KINDS], sum = 0;
    structure_cost(p, s, cost);
    for (int k = 0; k < p->n_kinds; k++)
        sum += cost[k] * price[k];
    return sum;
}

double pools_reduced_cost(const struct pools_problem *p, const struct pools_relaxation *r,
                          int model, const struct pools_structure *s)
{
    return r->value[model] > 0 ? structure_priced(p, r->price, s) / r->value[model] - 1 : 0;
}

struct master {
    const struct pools_problem *p;
    const struct pools_structures *by_model;
    struct lp_program *lp;
    struct pools_column *columns; /* of the programme, after column 0, which is T */
    int n, room;
    int *model_row, kind_row[POOLS_MAX_KINDS];
    double unit; /* rates are counted in these, so that numbers are near 1 */
};

static int master_start(struct master *w, const int *available, struct err *e)
{
    const struct pools_problem *p = w->p;
    int rc = lp_program_create("pools", true, &w->lp, e);
    if (rc < 0 || (rc = lp_column_add(w->lp, "T", 1, 0, INFINITY, false, e)) < 0)
        return rc;
    for (int m = 0; m < p->n_models; m++) {
        w->model_row[m] = lp_row_add(w->lp, NULL, LP_AT_MOST, 0, e);
        if (w->model_row[m] < 0 ||
            lp_term_add(w->lp, w->model_row[m], 0, p->models[m].weight, e) < 0)
            return e->code;
    }
    for (int k = 0; k < p->n_kinds; k++) {
        w->kind_row[k] = lp_row_add(w->lp, NULL, LP_AT_MOST, available[k], e);
        if (w->kind_row[k] < 0)
            return w->kind_row[k];
    }
    return 0;
}

static int master_add(struct master *w, int model, int structure, struct err *e)
{
    if (!vector_reserve(w->columns, w->room, w->n + 1))
        return err_no_memory(e, "the relaxation of the plan of pools");
    double cost[POOLS_MAX_KINDS];
    structure_cost(w->p, &w->by_model[model].items[structure], cost);
    int c = lp_column_add(w->lp, NULL, 0, 0, INFINITY, false, e);
    if (c < 0 || lp_term_add(w->lp, w->model_row[model], c, -1, e) < 0)
        return e->code;
    for (int k = 0; k < w->p->n_kinds; k++)
        if (cost[k] > 0 && lp_term_add(w->lp, w->kind_row[k], c, cost[k] * w->unit, e) < 0)
            return e->code;
    w->columns[w->n++] = (struct pools_column){model, structure, 0};
    return 0;
}

/* The cheapest structure of a model at these prices; -1: it has none. */
static int structure_cheapest(const struct master *w, int model, const double *price, double *least)
{
    int best = -1;
    *least = INFINITY;
    for (int i = 0; i < w->by_model[model].count; i++) {
        double c = structure_priced(w->p, price, &w->by_model[model].items[i]);
        if (c < *least) {
            *least = c;
            best = i;
        }
    }
    return best;
}

/* First columns: for every model the cheapest structure when kinds cost the inverse of their
 * number, and when only one of them is dear. */
static int master_seed(struct master *w, const int *available, struct err *e)
{
    const struct pools_problem *p = w->p;
    double price[POOLS_MAX_KINDS], least;
    w->unit = 0;
    for (int dear = -1; dear < p->n_kinds; dear++) {
        for (int k = 0; k < p->n_kinds; k++)
            price[k] = 1.0 / (available[k] > 0 ? available[k] : 1e-6) * (k == dear ? 1e3 : 1);
        for (int m = 0; m < p->n_models; m++) {
            int i = structure_cheapest(w, m, price, &least);
            if (i < 0)
                return HP_PENDING; /* a model that cannot run: the bound is 0 */
            if (w->unit <= 0)
                w->unit = 1 / least;
            int rc = master_add(w, m, i, e);
            if (rc < 0)
                return rc;
        }
    }
    return 0;
}

/* Adds the structures that the duals show to be worth more than they cost. Gives how many; negative
 * on failure. */
static int master_price(struct master *w, const struct lp_result *r, struct pools_relaxation *out,
                        struct err *e)
{
    const struct pools_problem *p = w->p;
    int added = 0;
    for (int k = 0; k < p->n_kinds; k++)
        out->price[k] = fmax(0, r->duals[w->kind_row[k]]) * w->unit;
    for (int m = 0; m < p->n_models; m++) {
        double least, value = r->duals[w->model_row[m]];
        int best = structure_cheapest(w, m, out->price, &least);
        out->value[m] = value;
        if (best >= 0 && least < value * (1 - 1e-9)) {
            int rc = master_add(w, m, best, e);
            if (rc < 0)
                return rc;
            added++;
        }
    }
    return added;
}

static int take_columns(const struct master *w, const struct lp_result *r,
                        struct pools_relaxation *out, struct err *e)
{
    out->columns = malloc((size_t)(w->n + 1) * sizeof *out->columns);
    if (!out->columns)
        return err_no_memory(e, "the relaxation of the plan of pools");
    for (int i = 0; i < w->n; i++)
        if (r->values[i + 1] > 1e-9 * r->objective) {
            out->columns[out->n_columns] = w->columns[i];
            out->columns[out->n_columns++].rate = r->values[i + 1] * w->unit;
        }
    return 0;
}

static int master_run(struct master *w, const int *available, const struct env *env,
                      struct pools_relaxation *out, struct err *e)
{
    struct lp_result r;
    for (out->rounds = 1;; out->rounds++) {
        int rc = lp_program_solve(w->lp, &(struct lp_limits){.seconds = 10}, env, &r, e);
        if (rc < 0)
            return rc;
        out->seconds += r.seconds;
        if (r.outcome != LP_OPTIMAL || !r.duals)
            return err_set(
                e, HP_EBUG,
                "lp_solve did not solve the relaxation of the plan of pools (outcome %d)",
                (int)r.outcome);
        int added = master_price(w, &r, out, e);
        if (added < 0)
            return added;
        if (added == 0 || out->rounds >= MAX_ROUNDS)
            break;
    }
    /* The duals prove a bound even if pricing was cut short: at these prices nothing is served
     * cheaper than by `least`. */
    double worth = 0, stock = 0, least;
    for (int m = 0; m < w->p->n_models; m++) {
        structure_cheapest(w, m, out->price, &least);
        out->value[m] = least;
        worth += w->p->models[m].weight * least;
    }
    for (int k = 0; k < w->p->n_kinds; k++)
        stock += out->price[k] * available[k];
    out->bound = worth > 0 ? stock / worth : 0;
    return take_columns(w, &r, out, e);
}

int pools_relax(const struct pools_problem *p, const struct pools_structures *by_model,
                const int *available, const struct env *env, struct pools_relaxation *out,
                struct err *e)
{
    struct master w = {.p = p, .by_model = by_model};
    w.model_row = malloc((size_t)p->n_models * sizeof *w.model_row);
    out->value = calloc((size_t)p->n_models, sizeof *out->value);
    int rc = w.model_row && out->value ? master_start(&w, available, e)
                                       : err_no_memory(e, "the relaxation of the plan of pools");
    if (rc == 0)
        rc = master_seed(&w, available, e);
    if (rc == 0)
        rc = master_run(&w, available, env, out, e);
    lp_program_destroy(&w.lp);
    free(w.columns);
    free(w.model_row);
    return rc == HP_PENDING ? 0 : rc;
}

void pools_relaxation_free(struct pools_relaxation *r)
{
    free(r->value);
    free(r->columns);
    *r = (struct pools_relaxation){0};
}
