/* The loops of the sampler over a whole vocabulary: one table for each set of instructions, chosen
 * at run time. "plain" says what each means; the others give the same bits. */
#ifndef HP_AGENT_ENGINE_SAMPLER_KERNELS_H
#define HP_AGENT_ENGINE_SAMPLER_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sampler_candidate {
    float weight; /* a logit; after the temperature exp((logit - greatest) / temperature) */
    uint32_t token;
};

struct sampler_kernels {
    const char *name;
    bool (*supported)(void);
    /* The greatest value that is a number; -infinity when there is none. */
    float (*greatest)(const float *x, size_t n);
    /* The first place of a value; n when it is nowhere. */
    size_t (*find)(const float *x, size_t n, float value);
    /* w = (float)exp((x - greatest) / temperature), all but the last rounding in double; 0 for what
     * is no number. */
    void (*weigh)(const float *x, size_t n, double greatest, double temperature, float *w);
    /* Those with low <= w <= high, in their order; returns how many. */
    size_t (*gather)(const float *w, size_t n, float low, float high,
                     struct sampler_candidate *out);
    /* In any order of addition. */
    double (*sum)(const float *w, size_t n);
};

extern const struct sampler_kernels sampler_plain, sampler_avx2, sampler_avx512;
/* All of them, the best first; NULL ends the list. */
extern const struct sampler_kernels *const sampler_kernels_all[];
const struct sampler_kernels *sampler_kernels_best(void);

#endif
