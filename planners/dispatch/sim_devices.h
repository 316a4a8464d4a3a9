/* Simulated devices and NICs under virtual time: they take a random factor of the planned time,
 * begin no work before its reserved start, its input's arrival and the end of the work before it,
 * and report to the scheduler what they used. */
#ifndef HP_PLANNERS_DISPATCH_SIM_DEVICES_H
#define HP_PLANNERS_DISPATCH_SIM_DEVICES_H

#include "planners/dispatch/dispatch.h"
#include "planners/dispatch/simulation.h"

struct sim_devices;

/* Counts finished requests in `result`. HP_ENOMEM. */
int sim_devices_create(const struct dispatch_topology *t, struct dispatch *d,
                       const struct simulate_options *o, struct simulate_result *result,
                       struct sim_devices **out, struct err *e);
void sim_devices_destroy(struct sim_devices **im);
/* Takes a batch that the scheduler sends. HP_ENOMEM. */
int sim_devices_send(struct sim_devices *im, const struct dispatch_action *a);
/* When something happens next; INT64_MAX: nothing. */
int64_t sim_devices_next(const struct sim_devices *im);
/* Lets it happen. */
void sim_devices_step(struct sim_devices *im);
/* The last finish so far. */
int64_t sim_devices_last(const struct sim_devices *im);

#endif
