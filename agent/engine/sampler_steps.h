/* Picks by steps in an order that a request names (sampling_params.steps), which is not that of
 * sampler.c. */
#ifndef HP_AGENT_ENGINE_SAMPLER_STEPS_H
#define HP_AGENT_ENGINE_SAMPLER_STEPS_H

#include "agent/engine/sampler_int.h"

/* A row with penalties and bias, whose greatest is finite. */
uint32_t sampler_steps_pick(struct sampler *s, const float *row, float greatest);

#endif
