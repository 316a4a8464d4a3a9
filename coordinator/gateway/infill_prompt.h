/* The tokens of a gap that is to be filled in, as models learn them: pieces of other files, then
 * what stands before it and behind it, each behind its mark, and the mark of what is to come. Only
 * prompt.c includes this. Any thread. */
#ifndef HP_COORDINATOR_GATEWAY_INFILL_PROMPT_H
#define HP_COORDINATOR_GATEWAY_INFILL_PROMPT_H

#include <jansson.h>

#include "common/bytes.h"
#include "common/status.h"
#include "model/tokenizer/tokenizer.h"

/* Appends at most `room` ids (u32) of a body's "input_prefix", "input_suffix" and "input_extra" (a
 * list of {"filename", "text"}); marks that somebody spells there are text. Where it is too much,
 * the beginning of the files goes first; then the end of what stands behind the gap beyond a
 * quarter, and the beginning of what stands before it. HP_EUNSUPPORTED: the vocabulary marks no
 * gaps; HP_EINVAL: not even the marks have room; HP_ENOMEM. */
int infill_prompt_make(const json_t *root, const struct tokenizer *t, uint64_t room,
                       struct buffer *ids, struct err *e);

#endif
