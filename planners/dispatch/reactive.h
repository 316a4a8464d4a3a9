/* The reactive scheduler that PPipe is compared with (section 7.4): every pool batches on its own,
 * by its part of the deadline, and nothing keeps track of NICs, so transfers queue where many meet.
 */
#ifndef HP_PLANNERS_DISPATCH_REACTIVE_H
#define HP_PLANNERS_DISPATCH_REACTIVE_H

#include "planners/dispatch/simulation.h"

/* Requests go to the pipelines in proportion to their rates. A pool with a free share takes the
 * largest batch whose oldest request still meets the pool's part of the deadline (parts in
 * proportion to computing and transfer), or what is there of it, and drops what is beyond help; it
 * does not wait for more. Results move to the share that the next pool chose, over each NIC in
 * turn. HP_ENOMEM. */
int simulate_reactive(const struct dispatch_topology *t, const struct simulate_options *o,
                      arrival_next_fn next, void *next_ctx, struct simulate_result *out,
                      struct err *e);

#endif
