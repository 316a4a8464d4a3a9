/* How the next token is drawn from logits: the one struct that the gateway fills, sequence_open
 * carries and the sampler (agent/engine/sampler.h) goes by.
 *
 * A new parameter touches three places: here (a member, and its row in sampling.c, which tells its
 * name, range and defaults to the gateway and to whoever checks), its row among those of
 * sequence_open in transport/message.c, and where it acts, agent/engine/sampler.c. */
#ifndef HP_COMMON_SAMPLING_H
#define HP_COMMON_SAMPLING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/pack.h"
#include "common/status.h"

enum {
    SAMPLING_MAX_BIAS = 300,
    SAMPLING_MAX_LATE_IDS = 256,
    SAMPLING_INFILL_MOST = 256 /* tokens whose texts are compared with each other */
};

/* What cuts and weighs the tokens between their logits and the draw. */
enum sampling_step {
    SAMPLING_NO_STEP,
    SAMPLING_TEMPERATURE,
    SAMPLING_TOP_K,
    SAMPLING_TOP_P,
    SAMPLING_MIN_P,
    SAMPLING_INFILL, /* leaves what surely stands in a gap, else the gap's end (sampler_infill.h) */
    SAMPLING_STEPS
};
enum { SAMPLING_STEP_BITS = 4 };

struct sampling_bias {
    uint64_t token;
    double bias; /* added to its logit as a float */
};

struct sampling_params {
    double temperature;        /* 0: greedy */
    double top_p, min_p;       /* 1 and 0: off */
    double repetition_penalty; /* 1: off; divides positive and multiplies negative logits of tokens
                                  seen in prompt or output */
    double presence_penalty, frequency_penalty; /* over tokens of the output */
    uint64_t penalty_window; /* all three are over so many of the last tokens of prompt and output
                                instead; 0: off */
    uint64_t top_k;          /* 0: off */
    uint64_t steps; /* their order, SAMPLING_STEP_BITS each from the lowest on; those that are not
                       named are left out. 0: temperature, top_k, top_p, min_p */
    uint64_t seed;
    uint64_t min_tokens;       /* the first so many of the output are none of `late_ids`; 0: off */
    struct pack_list bias;     /* struct sampling_bias; whose, the holder says */
    struct pack_u32s late_ids; /* as `bias` */
    struct pack_span grammar;  /* what alone may be said (model/grammar/grammar.h); empty:
                                  anything; as `bias` */
};

extern const struct sampling_params sampling_greedy; /* all else off */

/* A parameter that is one number. */
struct sampling_number {
    const char *name; /* the OpenAI field */
    size_t offset;    /* of a double in struct sampling_params */
    double low, high; /* what makes sense; above `low` alone where above_low */
    bool above_low;
    double asked_low, asked_high, usual; /* what a client may ask for, and gets without asking */
};
extern const struct sampling_number sampling_numbers[]; /* a row without a name ends them */
static inline double *sampling_number_of(struct sampling_params *p, const struct sampling_number *n)
{
    return (double *)(void *)((char *)p + n->offset);
}

/* The i-th of them, from 0 on; SAMPLING_NO_STEP behind the last. */
static inline enum sampling_step sampling_step_at(uint64_t steps, int i)
{
    uint64_t shift = (uint64_t)i * SAMPLING_STEP_BITS;
    return shift < 64 ? (enum sampling_step)(steps >> shift & ((1u << SAMPLING_STEP_BITS) - 1))
                      : SAMPLING_NO_STEP;
}
bool sampling_has_step(uint64_t steps, enum sampling_step step);

/* HP_EINVAL; the text names the OpenAI field. */
int sampling_check(const struct sampling_params *p, uint64_t vocabulary, struct err *e);

/* As they came over a wire, where a number that is missing reads as 0: one of which 0 makes no
 * sense is off. */
void sampling_fill(struct sampling_params *p);

/* A copy whose bias and grammar are its own, until sampling_free. HP_ENOMEM, and then *to is
 * greedy. */
int sampling_copy(struct sampling_params *to, const struct sampling_params *from, struct err *e);
void sampling_free(struct sampling_params *p);

#endif
