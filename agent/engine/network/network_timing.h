/* Times of steps of a plan: runs of them whole and with a look at the clock after each step take
 * turns until both are known well enough. */
#ifndef HP_AGENT_ENGINE_NETWORK_NETWORK_TIMING_H
#define HP_AGENT_ENGINE_NETWORK_NETWORK_TIMING_H

#include "agent/engine/network/network_plan.h"
#include "agent/engine/network/network_profile.h"

struct network_timing {
    struct network_plan *plan;
    int first, end; /* steps, which are ready */
    /* Of all steps: what runs take and give, copies included. NULL: what enters is put to the
     * border before the first step before each run, which does not count. */
    const struct ndarray *const *inputs;
    struct ndarray *outputs;
    const struct ndarray *border, *entering; /* [n_entering] */
    int n_entering;
    const int *layers; /* by step of the plan */
    int first_layer, n_layers;
};

/* For the budget, and longer where eleven pairs of runs take longer. seconds[n_layers]: of each
 * layer. Who watches (ask->watch) hears how it goes on. As steps fail; HP_ENOMEM. */
int network_timing_take(const struct network_timing *t, const struct network_profile_ask *ask,
                        double budget_s, int64_t batch, struct network_profile_runs *out,
                        double *seconds, struct err *e);
/* Runs until the network is to stop, which is 0; `warm` is told once, after the first run. */
int network_timing_press(const struct network_timing *t, const struct env *env,
                         void (*warm)(void *ctx), void *ctx, struct err *e);

#endif
