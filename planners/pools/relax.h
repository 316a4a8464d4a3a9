/* The linear relaxation over structures, solved by lp_solve: devices may be divided at will.
 *
 * maximise T  with  sum of x[m][s] >= weight[m] T  and, for every kind, sum of x[m][s] *
 * cost[s][kind] <= devices, where cost is the sum of 1 / device_rate over the structure's stages on
 * that kind. No plan, with whole devices or with shared ones, serves more than T, as long as the
 * structures left out are dominated in their costs. The duals price devices, and so tell which
 * structures an optimal plan may use at all. Columns enter as pricing finds them, so that hundreds
 * of thousands of structures are no burden. */
#ifndef HP_PLANNERS_POOLS_RELAX_H
#define HP_PLANNERS_POOLS_RELAX_H

#include "common/env.h"
#include "planners/pools/problem.h"
#include "planners/pools/structures.h"

struct pools_column {
    int model, structure;
    double rate; /* x in the optimum */
};

struct pools_relaxation {
    double bound;                  /* T; 0 when some model has no structure */
    double price[POOLS_MAX_KINDS]; /* of a device: change of T */
    double *value; /* [models]: what one request per second of the model is worth; the prices of its
                      best structure */
    struct pools_column *columns; /* those with a rate above 0 */
    int n_columns;
    int rounds;
    double seconds; /* spent inside lp_solve */
};

/* `available` devices by kind. Zero-initialise before; pools_relaxation_free after. HP_EBUG when
 * lp_solve fails, HP_ENOMEM. */
int pools_relax(const struct pools_problem *p, const struct pools_structures *by_model,
                const int *available, const struct env *env, struct pools_relaxation *out,
                struct err *e);
void pools_relaxation_free(struct pools_relaxation *r);

/* By how much a request through this structure costs more than the model's best, as a part of that;
 * 0 for those of an optimal plan. */
double pools_reduced_cost(const struct pools_problem *p, const struct pools_relaxation *r,
                          int model, const struct pools_structure *s);

#endif
