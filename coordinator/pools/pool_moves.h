/* How one plan of pools follows another: made when agents or the workload have changed, made ready
 * beside the one that serves, taken over, and ended once what it had admitted is answered. hpctl,
 * where it waits for a plan, hears how far that is. On the core's thread. */
#ifndef HP_COORDINATOR_POOLS_POOL_MOVES_H
#define HP_COORDINATOR_POOLS_POOL_MOVES_H

#include "coordinator/pools/pool_state.h"

/* Whoever waits for the next plan is answered: with what serves, or (`why`) with why not. */
void pool_listener_end(struct coord *c, const struct err *why);

/* What is applied from now on; takes `spec`. What was planned is not wanted any more. */
void pool_moves_spec_set(struct coord *c, struct pool_spec *spec);
/* The same with times or weights of our own, which are kept, and plans with it. */
void pool_moves_adopt(struct coord *c, struct pool_spec *spec, const char *why);
/* Begins to plan now. */
void pool_moves_begin(struct coord *c);
/* Plans anew once agents have stayed as they are for a moment. */
void pool_moves_again(struct coord *c);
/* There will be no next plan for now; another one is tried later, each time after a longer wait. */
void pool_moves_fail(struct coord *c, const struct err *why);
/* The plan that is made ready, if there is one, is given up. */
void pool_moves_next_drop(struct coord *c);
/* The plan that serves, if there is one, takes no more requests, and ends. */
void pool_moves_current_end(struct coord *c);
void pool_moves_tick(struct coord *c);

#endif
