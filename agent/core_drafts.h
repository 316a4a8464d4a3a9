/* Guesses of the next tokens on the last stage: who gets some, how they went, what they cost. */
#ifndef HP_AGENT_CORE_DRAFTS_H
#define HP_AGENT_CORE_DRAFTS_H

#include "agent/core_state.h"

/* Of a sequence that has been opened on the last stage, and may be guessed for. */
void core_drafts_begin(const struct core_stage *s, struct core_sequence *own);
/* Fills in the guesses of a batch's runs, for whoever samples. */
void core_drafts_order(const struct core_stage *s, struct batch *b);
/* A run of the sequence has given tokens: its first `right` guesses, of ids[], and one more. */
void core_drafts_ran(struct agent_core *c, struct core_stage *s, struct core_sequence *own,
                     const struct batch_run *run, const uint32_t *ids, uint32_t right);
/* Guesses of what follows, into rows that have room for BATCH_MAX_DRAFTS, and at most `room`: how
 * many. */
uint32_t core_drafts_say(const struct core_stage *s, struct core_sequence *own, uint32_t room,
                         struct frame_token *rows);

#endif
