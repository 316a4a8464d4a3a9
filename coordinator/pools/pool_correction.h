/* A plan whose batches take more or less than its profiles say: the workload with these corrected.
 * Off where the workload has no "replan_margin". */
#ifndef HP_COORDINATOR_POOLS_POOL_CORRECTION_H
#define HP_COORDINATOR_POOLS_POOL_CORRECTION_H

#include "coordinator/pools/pool_state.h"

enum { POOL_CORRECTION_BATCHES = 32 /* on devices of a kind, before anything is concluded */ };

/* The plan's workload with times corrected on the kinds of devices where three of four batches of a
 * model were beyond the margin, on one side; why[] says what. NULL: none is. One use is the
 * caller's. */
struct pool_spec *pool_correction_make(const struct pool_plan *p, char why[POOL_WHY]);

#endif
