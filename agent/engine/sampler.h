/* Logits to a token: penalties, bias, a grammar, temperature, top-k, top-p, min-p, a seed. One
 * sampler a sequence; used by one thread. */
#ifndef HP_AGENT_ENGINE_SAMPLER_H
#define HP_AGENT_ENGINE_SAMPLER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/sampling.h"

struct sampler;
struct automaton;  /* model/grammar/automaton.h */
struct token_tree; /* model/grammar/token_tree.h */
/* Copies the parameters. HP_EINVAL (sampling_check), HP_ENOMEM. */
int sampler_create(const struct sampling_params *p, int vocabulary, const uint32_t *prompt,
                   size_t n_prompt, struct sampler **out, struct err *e);
void sampler_destroy(struct sampler **s);
/* What its parameters' grammar and infill need beside them: tokens that the answer may have, and
 * those that end it (copied). Before any token is accepted. HP_ENOMEM. */
int sampler_expect(struct sampler *s, uint64_t most_tokens, const uint32_t *ends, size_t n_ends,
                   struct err *e);
/* The grammar of its parameters, until it is constrained. */
struct pack_span sampler_grammar(const struct sampler *s);
/* From now on it picks what the grammar's automaton allows, which outlives it; tokens that were
 * accepted before are told to it. As matcher_create. */
int sampler_constrain(struct sampler *s, struct automaton *a, struct err *e);

/* Whether its steps compare how tokens read, and then these, which outlive it. */
bool sampler_needs_texts(const struct sampler *s);
void sampler_texts_use(struct sampler *s, const struct token_tree *texts);

/* Whether sampler_look_ahead would find something. */
bool sampler_lacks(struct sampler *s);
/* Finds what the next pick will need and does not need logits for: the tokens that the grammar
 * allows. False: there was nothing to find. */
bool sampler_look_ahead(struct sampler *s);

/* Picks from logits [vocabulary] (left as they are) and counts the token as output. The n-th pick
 * of a seed depends on seed and n alone. SAMPLER_NONE: the grammar cannot go on (matcher_error). */
#define SAMPLER_NONE UINT32_MAX
uint32_t sampler_pick(struct sampler *s, const float *logits);
/* Counts a token as output without drawing it (a sequence that is rebuilt, a device that has picked
 * it). */
void sampler_accept(struct sampler *s, uint32_t token);

struct sample_ask; /* agent/backend/backend.h */
/* What a device needs to pick what sampler_pick would; its changes hold until the next call. False:
 * the host alone can pick, for a grammar's sake, another order of steps, top-k of very many, a
 * token that is biased twice, or want of memory. */
bool sampler_ask(struct sampler *s, struct sample_ask *out);

struct sampler_kernels;
/* For tests and benchmarks: with these (sampler_kernels.h), not the best. */
void sampler_kernels_use(struct sampler *s, const struct sampler_kernels *k);

#endif
