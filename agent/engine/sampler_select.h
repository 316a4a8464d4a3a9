/* The k candidates that come first, by quickselect. The order in which they then stand is part of
 * what a seed means, so that a pivot is always the middle one. */
#ifndef HP_AGENT_ENGINE_SAMPLER_SELECT_H
#define HP_AGENT_ENGINE_SAMPLER_SELECT_H

#include "agent/engine/sampler_kernels.h"

enum { SAMPLER_SELECT_FEW = 1024 /* above, top-k takes several times as long */ };

/* Brings them to the front of c [n]; k is 1 to n. */
void sampler_select_first(uint64_t *c, size_t n, size_t k);
/* To the same front, fast where k is small; what is behind it is lost. */
void sampler_select_few(const struct sampler_kernels *kernels, uint64_t *c, size_t n, size_t k);

#endif
