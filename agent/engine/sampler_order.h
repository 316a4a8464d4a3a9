/* Where a mass of weights is reached in their order (heavier first; among equals the lower token),
 * without sorting them: the weights' bits are counted from the highest down, and only what shares
 * them is looked at again. */
#ifndef HP_AGENT_ENGINE_SAMPLER_ORDER_H
#define HP_AGENT_ENGINE_SAMPLER_ORDER_H

#include "agent/engine/sampler_kernels.h"

enum { ORDER_BUCKETS = 1024 };

/* Mass and number of weights by some of their bits. */
struct sampler_order_histogram {
    double sum[ORDER_BUCKETS];
    uint32_t count[ORDER_BUCKETS];
    uint64_t tally[4][ORDER_BUCKETS]; /* of both, while counting */
};

struct sampler_order {
    const struct sampler_kernels *kernels;
    const float *weights; /* [n], 0 to 1; zeros count for nothing */
    size_t n;
    uint64_t *scratch; /* candidates [n + SAMPLER_SLACK] */
    struct sampler_order_histogram top, part;
};

/* One weight in the order, and the mass before it and with it. */
struct sampler_order_cut {
    float weight;
    uint32_t token;
    double before, after;
};

/* Counts what `sampler_order_find_...` will look at; returns the mass of all. */
double sampler_order_begin(struct sampler_order *o);
/* The weight of the first with which the mass exceeds `target` is at most *high and at least *low.
 * False when none does, or `doubt` more or less could have changed the answer. */
bool sampler_order_bound_mass(const struct sampler_order *o, double target, double doubt,
                              float *low, float *high);
/* The first with which the mass exceeds `target`. False when none does. */
bool sampler_order_find_mass(struct sampler_order *o, double target, struct sampler_order_cut *out);
/* The k-th, from 1. False when there are fewer. */
bool sampler_order_find_rank(struct sampler_order *o, uint32_t k, struct sampler_order_cut *out);

#endif
