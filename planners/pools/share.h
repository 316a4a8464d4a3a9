/* Two pipelines of a model that share devices: where both have a stage on the same kind at the same
 * position, the fractions of devices that one leaves over serve the other, so that together they
 * take ceil(n1/v1 + n2/v2) devices there and not two ceils.
 */
#ifndef HP_PLANNERS_POOLS_SHARE_H
#define HP_PLANNERS_POOLS_SHARE_H

#include "planners/pools/problem.h"
#include "planners/pools/structures.h"

/* Both serve at these rates with `devices` by kind. */
typedef void (*pools_pair_fn)(void *ctx, const int *devices, double rate_a, double rate_b);

/* Calls `found` for every pair of rates worth trying (where one more share of some stage was just
 * filled) that fits into `available` and saves a device over the two pipelines alone. HP_ENOMEM. */
int pools_pair_each(const struct pools_problem *p, const struct pools_structure *a,
                    const struct pools_structure *b, const int *available, pools_pair_fn found,
                    void *ctx, struct err *e);

/* The model's structures that an optimal plan may use, cheapest first by the relaxation's prices:
 * at most `most`, none dearer than the best by more than `slack`. Gives how many. */
struct pools_relaxation;
int pools_promising(const struct pools_problem *p, int model, const struct pools_structures *all,
                    const struct pools_relaxation *r, double slack, int *chosen, int most);

#endif
