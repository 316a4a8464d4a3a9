/* Clusters too large, or with too many kinds, to table every number of devices: the linear relaxation tells which structures
 * serve how much; most of that is taken in whole devices, and the exact programme shares out what remains
 * (planners/pools/allocate.h). */
#ifndef HP_PLANNERS_POOLS_LARGE_H
#define HP_PLANNERS_POOLS_LARGE_H

#include "planners/pools/allocate.h"
#include "planners/pools/relax.h"

/* Fills `a`, which has no pipelines yet. Tries several divisions between the two halves and keeps the best; then takes some
 * pipelines apart again and again, by chance (`seed`), and shares their devices out anew, until the plan is within `gap` of the
 * bound or `seconds` are over. HP_ENOMEM. */
int pools_allocate_large(const struct pools_problem *p, const struct pools_structures *by_model, const struct pools_relaxation *r,
                         double gap, double seconds, uint64_t seed, const struct env *env, struct pools_allocation *a,
                         struct err *e);

#endif
