/* Random changes of s->now, in s->step. */
#ifndef HP_PLANNERS_PIPELINE_STEPS_H
#define HP_PLANNERS_PIPELINE_STEPS_H

#include "planners/pipeline/search_int.h"

/* Uniform in 0 .. n - 1. */
static inline int step_pick(struct exact *x, int n)
{
    return (int)(random_next(&x->random) % (uint64_t)n);
}
/* Another order of devices with balanced layers; one stage more, less or elsewhere. Both set the
 * value. False: nothing changed, impossible, or far worse. */
bool step_order(struct pipeline_search *s);
bool step_stage(struct pipeline_search *s);
/* Another slicing for the same stages; some ends and cuts a little elsewhere. They do not set the
 * value. */
void step_slices(struct pipeline_search *s);
void step_nearby(struct pipeline_search *s);

#endif
