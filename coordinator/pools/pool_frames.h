/* The frame with which a batch leaves: its whole way, and of each input the samples of its
 * requests, one after the other. */
#ifndef HP_COORDINATOR_POOLS_POOL_FRAMES_H
#define HP_COORDINATOR_POOLS_POOL_FRAMES_H

#include "coordinator/pools/pool_state.h"

/* All requests of its parts are there. NULL: no memory, or it is more than a frame may have, which
 * *why tells apart. */
struct coord_frame *pool_frame_make(struct coord *c, const struct pool_plan *p,
                                    const struct pool_batch *b, struct err *why);

#endif
