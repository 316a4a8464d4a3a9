/* What is left of candidates, and the draw among them: the plain way, weight by weight, which says
 * what a seed means. */
#ifndef HP_AGENT_ENGINE_SAMPLER_CUTS_H
#define HP_AGENT_ENGINE_SAMPLER_CUTS_H

#include "agent/engine/sampler_kernels.h"

/* In the order in which they stand. */
double sampler_mass(const uint64_t *c, size_t n);
/* The heaviest whose weights together reach top_p of all: how many they are, at the front in their
 * order. n is 1 and more, as everywhere here. */
size_t sampler_cut_top_p(uint64_t *c, size_t n, double top_p);
/* Those that weigh `least` and more, in the order in which they stood. */
size_t sampler_cut_light(uint64_t *c, size_t n, float least);
/* All of them, heavier first. */
void sampler_sort(uint64_t *c, size_t n);
/* `chance` is 0 to 1. */
uint32_t sampler_draw(const uint64_t *c, size_t n, double chance);

#endif
