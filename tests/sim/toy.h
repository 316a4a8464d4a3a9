/* A toy model whose every layer mixes a position with all positions before it, so that a lost,
 * doubled or reordered slice changes every token that follows. It stands for the stage compute in
 * the simulated cluster; its tokens can be computed without a cluster. */
#ifndef HP_TESTS_SIM_TOY_H
#define HP_TESTS_SIM_TOY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/bytes.h"
#include "coordinator/core.h"

enum { TOY_LAYERS = 10, TOY_VOCABULARY = 997, TOY_CONTEXT = 160, TOY_END = 5, TOY_WIDTH = 2 };

/* What layers [first, end) remember of one sequence. */
struct toy_memory {
    uint64_t id;
    uint32_t length;
    uint64_t mixed[TOY_LAYERS];
};

/* One position through layers [first, end); `x` is the token id before layer 0. */
uint64_t toy_position(struct toy_memory *m, int first, int end, uint64_t x);
/* Texts of few words repeat themselves, so that some of what is guessed from them is right. */
extern bool toy_few_words;
static inline uint32_t toy_token(uint64_t x)
{
    uint32_t token = (uint32_t)(x % TOY_VOCABULARY);
    return !toy_few_words || token == TOY_END ? token : token % 120 ? token % 3 : TOY_END;
}

/* What is said of a token that follows a position whose value behind the last layer is x: a row of
 * `width` scores. */
void toy_scores(uint64_t x, uint32_t token, uint32_t width, struct score *out);

/* The undisturbed run: up to `max` tokens after the prompt, the end token included. Returns how
 * many. */
size_t toy_run(const uint32_t *prompt, size_t n, bool ignore_end, uint32_t *out, size_t max);

/* What the coordinator knows of it: a manifest with one chunk a layer, and the facts. */
void toy_manifest(const char *name, struct buffer *out);
extern const struct model_facts toy_facts;

#endif
