/* How much load a plan serves, found by simulating streams of arrivals. All loads are requests per
 * second and unit of weight; `target` is the part of requests that must meet their deadline;
 * `seconds` are virtual. Functions give HP_ENOMEM and what the simulation says. */
#ifndef HP_PLANNERS_POOLS_SERVED_H
#define HP_PLANNERS_POOLS_SERVED_H

#include <stdbool.h>
#include <stdint.h>

#include "common/status.h"
#include "planners/dispatch/topology.h"

/* Whether every model meets the target, over `n_seeds` streams, when the load is `level`. */
int pools_load_is_met(const struct dispatch_topology *t, double level, double target,
                      double seconds, uint64_t seed, int n_seeds, bool *yes, struct err *e);
/* The most that is met between `low`, which is met (or 0), and `high`, which is not. */
int pools_load_between(const struct dispatch_topology *t, double low, double high, double target,
                       double seconds, uint64_t seed, int n_seeds, double *served, struct err *e);
/* The most that is met at all: the highest least throughput / weight, with Poisson arrivals in
 * proportion to the weights. `guess` is near where to look. */
int pools_served(const struct dispatch_topology *t, double guess, double target, double seconds,
                 uint64_t seed, int n_seeds, double *served, struct err *e);

#endif
