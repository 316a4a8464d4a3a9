/* A plan that does not fit the load: models are asked for in other parts than the weights with
 * which it was planned, and one of them is not on time. The measured load becomes the weights, a
 * plan is made with them in the background, and takes over where it serves enough more of that
 * load. Off where the workload has no "replan_margin", which is also what it has to gain. */
#ifndef HP_COORDINATOR_POOLS_POOL_MIX_H
#define HP_COORDINATOR_POOLS_POOL_MIX_H

#include "coordinator/pools/pool_state.h"

void pool_mix_step(struct coord *c);
/* Who asked is answered with the plan that serves and the one that the load of the last window
 * would have. HP_ENOENT: nothing is applied or asked. */
int pool_mix_diff(struct coord *c, uint64_t peer, uint64_t ask, struct err *e);

#endif
