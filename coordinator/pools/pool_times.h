/* Deadlines of requests: what messages take beside computing is taken off them. */
#ifndef HP_COORDINATOR_POOLS_POOL_TIMES_H
#define HP_COORDINATOR_POOLS_POOL_TIMES_H

#include "coordinator/pools/pool_state.h"

/* By when computing is to end, so that the answer is here by `deadline_ns`: what messages take
 * beside is taken off, at most half of the time that there is. */
int64_t pool_times_due(const struct pool_plan *p, int line, int64_t from_ns, int64_t deadline_ns);
/* A request was dropped for what messages take, and nothing of its line is under way that could
 * say that they take less by now. */
void pool_times_doubt(struct pool_plan *p, int line);
/* The soonest that one request more would be answered, in milliseconds from now; above 1e9: never.
 */
double pool_times_soonest_ms(const struct pool_plan *p, int line, int64_t now_ns);

#endif
