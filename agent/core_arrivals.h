/* Weights that come while a stage serves. Deadlines of what may wait for them count from when they
 * last came. */
#ifndef HP_AGENT_CORE_ARRIVALS_H
#define HP_AGENT_CORE_ARRIVALS_H

#include "agent/core_state.h"

/* Weights came for a stage of this agent; or no more will, and it fails. */
void core_stage_filling(struct agent_core *c, const struct agent_event *ev);
/* What other stages of the deployments miss (struct message_loading). */
void core_arrivals_told(struct agent_core *c, const struct pack_list *loading);
/* Whether a run that began then may have waited for weights of a stage of its device. */
bool core_run_awaited_weights(const struct agent_core *c, const struct core_stage *s,
                              uint64_t start_ns);

#endif
