#include "planners/pools/polish.h"

#include <math.h>
#include <stdlib.h>

#include "planners/lp.h"

/* Columns of the programme: one x for every chosen structure, a count for each of its stages, a D
 * for every model, kind and position. */
struct polish_layout {
    const struct pools_problem *p;
    const struct pools_structures *by_model;
    const struct pools_chosen *chosen;
    struct lp_program *lp;
    int counts[POOLS_MAX_CHOSEN * 4][POOLS_MAX_STAGES]; /* by running number of the structure */
    double unit;                                        /* rates are counted in this */
};

enum { MAX_STRUCTURES = POOLS_MAX_CHOSEN * 4 };

static int add_structure(struct polish_layout *l, const struct pools_structure *s, int model_row,
                         int *fraction_rows, int number, struct err *e)
{
    int x = lp_column_add(l->lp, NULL, 0, 0, INFINITY, false, e);
    if (x < 0 || lp_term_add(l->lp, model_row, x, -1, e) < 0)
        return e->code;
    for (int d = 0; d < s->n_stages; d++) {
        const struct pools_stage *st = &s->stages[d];
        int v = l->p->kinds[st->kind].shares[st->share];
        int count =
            lp_column_add(l->lp, NULL, 0, 0, (double)l->p->kinds[st->kind].count * v, true, e);
        int row = lp_row_add(l->lp, NULL, LP_AT_MOST, 0, e);
        if (count < 0 || row < 0 || lp_term_add(l->lp, row, x, 1, e) < 0 ||
            lp_term_add(l->lp, row, count, -st->share_rate / l->unit, e) < 0 ||
            lp_term_add(l->lp, fraction_rows[st->kind * POOLS_MAX_STAGES + d], count, 1.0 / v, e) <
                0)
            return e->code;
        l->counts[number][d] = count;
    }
    return 0;
}

static int program_build(struct polish_layout *l, struct err *e)
{
    const struct pools_problem *p = l->p;
    int kind_rows[POOLS_MAX_KINDS], number = 0;
    int rc = lp_program_create("shared", true, &l->lp, e);
    if (rc < 0 || (rc = lp_column_add(l->lp, "T", 1, 0, INFINITY, false, e)) < 0)
        return rc;
    for (int k = 0; k < p->n_kinds; k++)
        if ((kind_rows[k] = lp_row_add(l->lp, NULL, LP_AT_MOST, p->kinds[k].count, e)) < 0)
            return kind_rows[k];
    for (int m = 0; m < p->n_models; m++) {
        int fraction_rows[POOLS_MAX_KINDS * POOLS_MAX_STAGES];
        int model_row = lp_row_add(l->lp, NULL, LP_AT_MOST, 0, e);
        if (model_row < 0 || lp_term_add(l->lp, model_row, 0, p->models[m].weight, e) < 0)
            return e->code;
        for (int k = 0; k < p->n_kinds; k++)
            for (int d = 0; d < p->max_stages; d++) {
                int row = lp_row_add(l->lp, NULL, LP_AT_MOST, 0, e);
                int devices = lp_column_add(l->lp, NULL, 0, 0, p->kinds[k].count, true, e);
                if (row < 0 || devices < 0 || lp_term_add(l->lp, row, devices, -1, e) < 0 ||
                    lp_term_add(l->lp, kind_rows[k], devices, 1, e) < 0)
                    return e->code;
                fraction_rows[k * POOLS_MAX_STAGES + d] = row;
            }
        for (int i = 0; i < l->chosen[m].n; i++, number++)
            if ((rc = add_structure(l, &l->by_model[m].items[l->chosen[m].structures[i]], model_row,
                                    fraction_rows, number, e)) < 0)
                return rc;
    }
    return 0;
}

static int solution_take(const struct polish_layout *l, const double *values,
                         struct pools_allocation *to, struct err *e)
{
    int number = 0, rc = 0;
    for (int m = 0; m < l->p->n_models && rc == 0; m++)
        for (int i = 0; i < l->chosen[m].n && rc == 0; i++, number++) {
            const struct pools_structure *s = &l->by_model[m].items[l->chosen[m].structures[i]];
            int count[POOLS_MAX_STAGES];
            bool used = true;
            for (int d = 0; d < s->n_stages; d++) {
                count[d] = (int)lround(values[l->counts[number][d]]);
                used = used && count[d] > 0;
            }
            if (used)
                rc = pools_allocation_add_shares(l->p, to, m, s, count, e);
        }
    pools_allocation_refresh(l->p, to);
    return rc;
}

static bool layout_fits(const struct pools_problem *p, const struct pools_allocation *a)
{
    int used[POOLS_MAX_KINDS];
    pools_allocation_devices(p, a, used);
    for (int k = 0; k < p->n_kinds; k++)
        if (used[k] > p->kinds[k].count)
            return false;
    return true;
}

int pools_polish(const struct pools_problem *p, const struct pools_structures *by_model,
                 const struct pools_chosen *chosen, double bound, double seconds,
                 const struct env *env, struct pools_allocation *a, struct pools_polish *out,
                 struct err *e)
{
    struct polish_layout l = {.p = p, .by_model = by_model, .chosen = chosen, .unit = bound};
    struct lp_result r;
    int total = 0;
    *out = (struct pools_polish){0};
    for (int m = 0; m < p->n_models; m++)
        total += chosen[m].n;
    if (total > MAX_STRUCTURES || !(bound > 0))
        return 0;
    struct lp_limits limits = {.seconds = seconds,
                               .has_known = a->objective > 0,
                               .known_objective = a->objective / bound * (1 + 1e-7)};
    int rc = program_build(&l, e);
    if (rc >= 0)
        rc = lp_program_solve(l.lp, &limits, env, &r, e);
    if (rc == 0) {
        out->seconds = r.seconds;
        out->proven = r.outcome == LP_OPTIMAL || r.outcome == LP_INFEASIBLE;
    }
    if (rc == 0 && r.values && r.objective * bound > a->objective) {
        struct pools_allocation better;
        if ((rc = pools_allocation_init(&better, p->n_models, e)) == 0 &&
            (rc = solution_take(&l, r.values, &better, e)) == 0 && layout_fits(p, &better) &&
            better.objective > a->objective) {
            struct pools_allocation old = *a;
            *a = better;
            better = old;
            out->improved = true;
        }
        pools_allocation_free(&better);
    }
    lp_program_destroy(&l.lp);
    return rc < 0 ? rc : 0;
}
