/* Where a mass of weights is reached in their order (heavier first; among equals the lower token), without sorting them: the weights' bits are counted from the
 * highest down, and only what shares them is looked at again. */
#ifndef HP_AGENT_ENGINE_SAMPLER_ORDER_H
#define HP_AGENT_ENGINE_SAMPLER_ORDER_H

#include "agent/engine/sampler_kernels.h"

enum { ORDER_BUCKETS = 2048 };

/* Mass and number of weights by some of their bits. */
struct order_histogram {
    double sum[ORDER_BUCKETS];
    uint32_t count[ORDER_BUCKETS];
};

struct order {
    const struct sampler_kernels *kernels;
    const float *weights; /* [n], 0 to 1; zeros count for nothing */
    size_t n;
    struct candidate *scratch; /* [n] */
    struct order_histogram top, part;
};

/* One weight in the order, and the mass before it and with it. */
struct order_cut {
    struct candidate at;
    double before, after;
};

/* Counts what `order_find_...` will look at; returns the mass of all. Ranks are found only when `ranked`. */
double order_begin(struct order *o, bool ranked);
/* The first with which the mass exceeds `target`. False when none does. */
bool order_find_mass(struct order *o, double target, struct order_cut *out);
/* The k-th, from 1. False when there are fewer. */
bool order_find_rank(struct order *o, uint32_t k, struct order_cut *out);

#endif
