/* What a batch really took beside what was reserved for it: its agents' times, by our clock, and
 * believed only as far as they can be true. */
#ifndef HP_COORDINATOR_POOLS_POOL_FEEDBACK_H
#define HP_COORDINATOR_POOLS_POOL_FEEDBACK_H

#include "coordinator/infer_times.h"
#include "coordinator/pools/pool_state.h"
#include "transport/frame_tensors.h"

/* Corrects the reservations, counts for the shares, and learns how much later than computed results
 * are here. *times gets what a batch has of it (a request's own times are left alone). Returns
 * how many seconds it was computed, at all shares together. */
double pool_feedback_take(const struct coord *c, struct pool_plan *p, const struct pool_batch *b,
                          const struct frame_leg *legs, struct infer_times *times);

#endif
