/* What the files of the sampler share: sampler.c picks, sampler_ask.c says how a device would. */
#ifndef HP_AGENT_ENGINE_SAMPLER_INT_H
#define HP_AGENT_ENGINE_SAMPLER_INT_H

#include "agent/backend/backend.h"
#include "agent/engine/sampler.h"
#include "agent/engine/sampler_infill.h"
#include "agent/engine/sampler_order.h"
#include "common/env.h"

struct sampler {
    struct sampling_params params;
    int vocabulary;
    uint64_t n_picks;
    bool adjusts;   /* some penalty or bias is on */
    uint32_t *seen; /* [vocabulary]: tokens of prompt and output, each once */
    size_t n_seen;
    uint8_t *listed;  /* [vocabulary]: it is among these */
    uint32_t *times;  /* [vocabulary]: in the output, or in the window of the penalties */
    uint32_t *recent; /* [n_recent]: with such a window, all tokens since its beginning */
    size_t n_recent, recent_room;
    float *adjusted; /* [vocabulary]: logits with penalties and bias; NULL where nothing adjusts */
    float *weights;  /* [vocabulary] */
    uint64_t *candidates; /* [vocabulary + SAMPLER_SLACK] */
    /* for a device that picks (sampler_ask.c) */
    struct sample_change *changes;
    size_t change_room;
    const struct sampler_kernels *kernels;
    struct sampler_order order;
    /* of a grammar */
    struct matcher *matcher;        /* NULL: none yet */
    const struct token_tree *texts; /* of steps that compare them; NULL: nobody has told */
    uint64_t most_tokens;
    uint32_t *ends, *before; /* before: tokens that were accepted until there is a matcher */
    size_t n_ends, n_before, before_room;
};

/* Whether penalties are over a token that was seen: those of a window forget. */
static inline bool sampler_penalises(const struct sampler *s, uint32_t token)
{
    return !s->params.penalty_window || s->times[token] > 0;
}

/* Uniform in [0, 1) from seed and count alone. */
static inline double sampler_chance(const struct sampler *s)
{
    uint64_t state = s->params.seed;
    state = random_next(&state) + s->n_picks * 0x9e3779b97f4a7c15u;
    return random_unit(&state);
}

#endif
