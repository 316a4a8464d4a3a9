/* Logits to a token: penalties, bias, temperature, top-k, top-p, min-p, a seed. One sampler a
 * sequence; used by one thread. */
#ifndef HP_AGENT_ENGINE_SAMPLER_H
#define HP_AGENT_ENGINE_SAMPLER_H

#include <stddef.h>
#include <stdint.h>

#include "common/status.h"

enum { SAMPLER_MAX_BIAS = 300 };

struct sampler_params {
    double temperature;        /* 0: greedy */
    uint32_t top_k;            /* 0: off */
    double top_p, min_p;       /* 1 and 0: off */
    double repetition_penalty; /* 1: off; divides positive and multiplies negative logits of tokens
                                  seen in prompt or output */
    double presence_penalty, frequency_penalty; /* over tokens of the output */
    uint64_t seed;
    uint32_t n_bias;
    struct {
        uint32_t token;
        float bias;
    } bias[SAMPLER_MAX_BIAS];
};

extern const struct sampler_params sampler_defaults; /* greedy */

/* Checks ranges; the text names the OpenAI field. */
int sampler_params_check(const struct sampler_params *p, int vocabulary, struct err *e);

struct sampler;
int sampler_create(const struct sampler_params *p, int vocabulary, const uint32_t *prompt,
                   size_t n_prompt, struct sampler **out, struct err *e);
void sampler_destroy(struct sampler **s);
/* Picks from logits [vocabulary] (left as they are) and counts the token as output. The n-th pick
 * of a seed depends on seed and n alone. */
uint32_t sampler_pick(struct sampler *s, const float *logits);
/* Counts a token as output without drawing it (a sequence that is rebuilt). */
void sampler_accept(struct sampler *s, uint32_t token);

struct sampler_kernels;
/* For tests and benchmarks: with these (sampler_kernels.h), not the best. */
void sampler_kernels_use(struct sampler *s, const struct sampler_kernels *k);

#endif
