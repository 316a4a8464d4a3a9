/* Tokens for a gap in a text: where it is not clear what stands there, it had better end. This is
 * what llama-server calls its sampler "infill", which editors ask for; that the answers are the
 * same is tested against its library. Pure. */
#ifndef HP_AGENT_ENGINE_SAMPLER_INFILL_H
#define HP_AGENT_ENGINE_SAMPLER_INFILL_H

#include <stddef.h>
#include <stdint.h>

struct token_tree; /* model/grammar/token_tree.h */

/* What is an answer's end, and how tokens read. */
struct infill_vocabulary {
    const struct token_tree *texts; /* NULL: no text begins another */
    const uint32_t *ends;           /* [n_ends] */
    size_t n_ends;
};

/* Cuts candidates (sampler_kernels.h), of which there are 1 to SAMPLING_INFILL_MOST. Gives how many
 * are left, at least 1, heavier first; where it may be an end alone that was no candidate, it is
 * one now.
 *
 * 1. Ends alone are left where three times their share, for each candidate, is more than that of
 *    all others: an end counts for more the less certain what else may follow is.
 * 2. A text with which another one begins has the share of both; the likelier of the two stays.
 * 3. Of what is no end stays what has a fifth of all, or else one end alone; and of that what has
 *    more than its part if all of these and an end were equal. */
size_t sampler_infill_cut(const struct infill_vocabulary *v, uint64_t *c, size_t n);

#endif
