/* Pools as people see them (JSON). */
#ifndef HP_COORDINATOR_POOLS_POOL_DESCRIBE_H
#define HP_COORDINATOR_POOLS_POOL_DESCRIBE_H

#include "coordinator/pools/pool_state.h"

/* All of it. NULL: no memory. */
json_t *pool_describe(struct coord *c);
/* How far the shares of a plan are: {"phase": "preparing", "stages": [{"on", "state", "done_bytes",
 * "total_bytes"}]}. */
json_t *pool_describe_progress(const struct pool_plan *p);

#endif
