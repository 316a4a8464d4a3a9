/* Logits as penalties, bias and what may not be said yet make them, and the tokens that penalties
 * are over. */
#ifndef HP_AGENT_ENGINE_SAMPLER_ADJUST_H
#define HP_AGENT_ENGINE_SAMPLER_ADJUST_H

#include "agent/engine/sampler_int.h"

/* Once, before any token of the output. */
void sampler_prompt_see(struct sampler *s, const uint32_t *prompt, size_t n);
void sampler_output_see(struct sampler *s, uint32_t token);
/* Writes s->adjusted. */
void sampler_logits_adjust(struct sampler *s, const float *logits);

#endif
