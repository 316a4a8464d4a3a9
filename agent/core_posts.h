/* The frames that leave a stage: batches for the next one, tokens for the first. */
#ifndef HP_AGENT_CORE_POSTS_H
#define HP_AGENT_CORE_POSTS_H

#include "agent/core_state.h"

/* Of the frame that takes a batch to the next stage. */
struct frame_header core_activation_header(const struct agent_core *c, const struct core_stage *s,
                                           const struct batch *b);
/* The sequences of a batch end here. */
void core_batch_fail(struct agent_core *c, struct core_stage *s, const struct batch *b, int code,
                     const char *text);
/* To the first stage: the batch has been through, and the first `n` of c->tokens are its tokens. */
void core_tokens_post(struct agent_core *c, struct core_stage *s, uint32_t batch, uint32_t n);
/* To the next stage: what this one made of a batch (taken), or that nothing is left of it. */
void core_batch_post(struct agent_core *c, struct core_stage *s, const struct batch *b,
                     void *output);
/* A batch without runs goes on; so does one of which nothing is left, unless its frame came twice.
 */
void core_batch_pass_empty(struct agent_core *c, struct core_stage *s, const struct batch *b);
/* Does not run: its input goes back, the batch on without runs (not if its frame came twice). */
void core_batch_drop(struct agent_core *c, struct core_stage *s, const struct batch *b);

#endif
