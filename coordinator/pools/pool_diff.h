/* Why one plan of pools is another than the one that serves: what the workload says otherwise, and
 * which agents are used anew or no more. Pure. */
#ifndef HP_COORDINATOR_POOLS_POOL_DIFF_H
#define HP_COORDINATOR_POOLS_POOL_DIFF_H

#include "coordinator/pools/pool_state.h"

/* Sentences, for people; `serves` NULL: nothing does. NULL: no memory. */
json_t *pool_diff_reasons(const struct pool_plan *serves, const struct pool_plan *next);

#endif
