/* The loops of the sampler over a whole vocabulary: one table for each set of instructions, chosen
 * at run time. "plain" says what each means; the others give the same bits. */
#ifndef HP_AGENT_ENGINE_SAMPLER_KERNELS_H
#define HP_AGENT_ENGINE_SAMPLER_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* A candidate is one number that says weight and token: the bits of the weight (0 to 1, so that
 * they order as the weights do) above, the token turned over below. The greater number comes first:
 * heavier first, among equals the lower token. */
static inline uint64_t sampler_candidate(float weight, uint32_t token)
{
    uint32_t bits;
    memcpy(&bits, &weight, sizeof bits);
    return (uint64_t)bits << 32 | (uint32_t)~token;
}

static inline uint32_t sampler_candidate_token(uint64_t c)
{
    return ~(uint32_t)c;
}

static inline float sampler_candidate_weight(uint64_t c)
{
    uint32_t bits = (uint32_t)(c >> 32);
    float weight;
    memcpy(&weight, &bits, sizeof weight);
    return weight;
}

enum { SAMPLER_SLACK = 16 }; /* candidates beyond the last that a list must have room for */

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
    /* The candidates of weights w for which low <= by <= high, in the order of their tokens, which
     * are numbered from `first`; returns how many. */
    size_t (*gather)(const float *by, const float *w, size_t n, float low, float high,
                     uint32_t first, uint64_t *out);
    /* Moves those that come before one of them to the front, in the order in which they stood, and
     * writes over at most SAMPLER_SLACK behind them; returns how many. */
    size_t (*keep_before)(uint64_t *c, size_t n, uint64_t pivot);
    /* In any order of addition. */
    double (*sum)(const float *w, size_t n);
    /* Values whose bit is not set, in words of 64, become -infinity. */
    void (*rule_out)(float *x, const uint64_t *allowed, size_t n);
};

extern const struct sampler_kernels sampler_plain, sampler_avx2, sampler_avx512;
/* All of them, the best first; NULL ends the list. */
extern const struct sampler_kernels *const sampler_kernels_all[];
const struct sampler_kernels *sampler_kernels_best(void);

#endif
