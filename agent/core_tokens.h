/* What the last stage makes of a batch. */
#ifndef HP_AGENT_CORE_TOKENS_H
#define HP_AGENT_CORE_TOKENS_H

#include "agent/core_state.h"

/* The last stage has run a batch: tokens and logits are told to the coordinator, tokens to the
 * first stage, too. */
void core_tokens_picked(struct agent_core *c, struct core_stage *s, const struct batch *b,
                        const struct agent_event *ev);

#endif
