/* What a row of logits says of a token and of the likeliest: logarithms of shares (log-softmax), as
 * common/score.h has them. No state; any thread. */
#ifndef HP_AGENT_ENGINE_SCORES_H
#define HP_AGENT_ENGINE_SCORES_H

#include <stddef.h>

#include "common/score.h"

/* Of logits [n] to out [width], width at least 1. A token beyond the vocabulary, and one whose
 * logit is no number, has no share: -infinity, behind all others. */
void scores_write(const float *logits, size_t n, uint32_t token, uint32_t width, struct score *out);

#endif
