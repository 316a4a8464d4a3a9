/* Clusters too large, or with too many kinds, to table every number of devices: the linear
 * relaxation tells which structures serve how much; most of that is taken in whole devices, and the
 * exact programme shares out what remains (planners/pools/allocate.h). */
#ifndef HP_PLANNERS_POOLS_LARGE_H
#define HP_PLANNERS_POOLS_LARGE_H

#include "planners/pools/allocate.h"
#include "planners/pools/relax.h"

/* Fills `a`, which has no pipelines yet. Tries several divisions between the two halves and keeps
 * the best; then takes some pipelines apart again and again, by chance (`seed`), and shares their
 * devices out anew, until the plan is within `gap` of the bound or `seconds` are over. HP_ENOMEM.
 */
int pools_allocate_large(const struct pools_problem *p, const struct pools_structures *by_model,
                         const struct pools_relaxation *r, double gap, double seconds,
                         uint64_t seed, const struct env *env, struct pools_allocation *a,
                         struct err *e);

/* Keeps, for every model and sequence of kinds, as many structures as pipelines may use that
 * sequence: those that the relaxation's prices favour. Then no plan made of them can use one too
 * often. For problems with limited assignments. HP_ENOMEM.
 */
int pools_limit_structures(const struct pools_problem *p, const struct pools_relaxation *r,
                           struct pools_structures *by_model, struct err *e);

#endif
