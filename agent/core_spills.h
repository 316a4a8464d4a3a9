/* What this agent has spilled of chains of tokens, as the coordinator sees it. */
#ifndef HP_AGENT_CORE_SPILLS_H
#define HP_AGENT_CORE_SPILLS_H

#include "agent/core_state.h"

/* A stage is ready: the coordinator hears what is spilled of its chains. */
void core_spills_begin(struct agent_core *c, const struct core_stage *s);
/* What is spilled of a stage's chains, or changed: passed on to the coordinator. */
void core_spills_told(struct agent_core *c, const struct agent_event *ev);
/* `sequence_spill`: the first pages of a sequence are spilled; nothing, where it does not have
 * them. */
void core_sequence_spill(struct agent_core *c, struct message_ref *m);
/* What an open sequence begins with is read back, where it says so. */
void core_spill_back(struct agent_core *c, const struct core_stage *s,
                     const struct core_sequence *own);

#endif
