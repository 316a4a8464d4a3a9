/* Guesses of a sequence's next tokens, which the stages verify in one step with the token that is
 * due (speculative decoding). They come from the sequence itself: where its last tokens stood
 * before, what followed there may follow here (prompt lookup decoding). How many are made depends
 * on how many were right lately and on what a step with so many takes, as it was measured; where
 * they do not pay none are made, and seldom one is tried.
 *
 * A guess is never believed: the last stage samples from its own logits, and goes on to the next
 * guess only where what it sampled is that guess. So what is said is the same with guesses and
 * without, token by token. */
#ifndef HP_AGENT_ENGINE_DRAFTS_H
#define HP_AGENT_ENGINE_DRAFTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/batch.h"

/* What a step takes by its number of guesses. One a stage; zero-initialised knows nothing. */
struct draft_costs {
    double step_s[1 + BATCH_MAX_DRAFTS];
    uint64_t heard[1 + BATCH_MAX_DRAFTS]; /* in which step that was measured last; 0: never */
    uint64_t steps;
};
void draft_costs_add(struct draft_costs *c, uint32_t n_drafts, double seconds);
/* In steps without guesses; what was not measured lately is put between its neighbours. NULL:
 * guesses cost next to nothing. */
double draft_costs_of(const struct draft_costs *c, uint32_t n_drafts);

/* Of one sequence. */
struct drafts;

/* Copies the prompt; `most_tokens`: that the sequence may become. NULL: no memory. */
struct drafts *drafts_create(const uint32_t *prompt, size_t n_prompt, size_t most_tokens);
void drafts_destroy(struct drafts *d);

/* The sequence goes on with this token. */
void drafts_token(struct drafts *d, uint32_t token);
/* A step verified `n` guesses (not 0), of which the first `right` were. */
void drafts_judge(struct drafts *d, uint32_t n, uint32_t right);
/* Guesses of what follows, at most `most`: how many. They hold until the next call. */
uint32_t drafts_make(struct drafts *d, const struct draft_costs *c, uint32_t most,
                     const uint32_t **out);
/* The guesses that were made last. */
const uint32_t *drafts_made(const struct drafts *d, uint32_t *n);

#endif
