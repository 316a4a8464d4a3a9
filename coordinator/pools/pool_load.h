/* What clients ask of a plan, in windows of some seconds: how many samples of each model a second,
 * whether or not they are served, and how many of their answers are on time. */
#ifndef HP_COORDINATOR_POOLS_POOL_LOAD_H
#define HP_COORDINATOR_POOLS_POOL_LOAD_H

#include "coordinator/pools/pool_state.h"

enum { POOL_LOAD_WINDOW_MS = 10000 };

struct pool_load;

/* For a plan whose lines and models are known. NULL: no memory. */
struct pool_load *pool_load_create(const struct pool_plan *p);
void pool_load_note(struct pool_plan *p, int line, uint32_t samples);
/* True: a window has ended, of which the others below tell. Before the first they tell of nothing
 * asked. */
bool pool_load_step(const struct coord *c, struct pool_plan *p);
/* Samples a second of a model, and what part of its answers was on time; how many that were. */
double pool_load_asked(const struct pool_plan *p, int model);
double pool_load_attainment(const struct pool_plan *p, int model, uint64_t *answers);
/* The same load in samples of the longest length, which take the devices as long. */
double pool_load_weight(const struct pool_plan *p, int model);
/* Whether both have the same models in the same lengths: what is asked of one can be held against
 * the other. */
bool pool_load_fits(const struct pool_plan *p, const struct pool_plan *load);
/* How many times what was asked of `load` a plan of the same models promises to serve; INFINITY:
 * nothing was asked. */
double pool_load_level(const struct pool_plan *p, const struct pool_plan *load);

#endif
