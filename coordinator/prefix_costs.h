/* What it would take a deployment's stages to compute a prompt's tokens anew: the sum of the times
 * t(L, x) that their profiles tell, or that the planner guesses where nothing was measured.
 * Computed once for each state of the planner's inputs, looked up in constant time. */
#ifndef HP_COORDINATOR_PREFIX_COSTS_H
#define HP_COORDINATOR_PREFIX_COSTS_H

#include <stdbool.h>
#include <stdint.h>

struct coord;
struct deployment;

enum { PREFIX_CURVE_STEPS = 64 };

/* Zero-initialised: nothing is known. */
struct prefix_curve {
    uint64_t version, generation; /* of the planner's inputs and of the stages that it is of */
    bool known;
    double step;                            /* tokens */
    double seconds[PREFIX_CURVE_STEPS + 1]; /* of the first step * i tokens of a prompt */
};

/* As of now. While an agent is not here, or has no times, it is not known. */
void prefix_curve_update(struct coord *c, struct deployment *d, struct prefix_curve *curve);
/* Of tokens [from, to) of a prompt. Where nothing is known no unit of time, but a token costs the
 * more, the more stand before it. */
double prefix_curve_between(const struct prefix_curve *curve, uint32_t from, uint32_t to);
/* One token behind so many, as in a step of decode; NAN: not known. */
double prefix_step_seconds(struct coord *c, struct deployment *d, uint32_t prefix);

#endif
