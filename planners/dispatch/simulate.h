/* Serves a stream of arrivals under virtual time and counts what met its deadline. The
 * scheduler is that of planners/dispatch/dispatch.h; only the devices and NICs are simulated.
 *
 * Without noise every reservation is used as planned, so a batch's finish is known when it is sent.
 * With noise a batch's computing and transfers take a random factor of their planned time, wait for
 * devices and NICs that are late, and are reported back to the scheduler when they end. Memory does
 * not grow with the number of requests. */
#ifndef HP_PLANNERS_DISPATCH_SIMULATE_H
#define HP_PLANNERS_DISPATCH_SIMULATE_H

#include "planners/dispatch/simulation.h"

/* HP_ENOMEM, and what the stream says. Zero-initialise `out`; simulate_result_free after, also on
 * failure. */
int simulate_run(const struct dispatch_topology *t, const struct simulate_options *o,
                 arrival_next_fn next, void *next_ctx, struct simulate_result *out, struct err *e);

#endif
