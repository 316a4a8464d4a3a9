/* The deadlines of what goes on: batches that are away, runs that an executor has, outputs that the
 * next stage does not take, frames that wait for what precedes them. */
#ifndef HP_AGENT_CORE_WATCH_H
#define HP_AGENT_CORE_WATCH_H

#include "agent/core_state.h"

/* Gives up what waited too long: its sequences fail. */
void core_expire(struct agent_core *c, uint64_t now_ns);
uint64_t core_expire_deadline(const struct agent_core *c);
/* One of the stage's outputs is back. */
void core_output_back(struct agent_core *c, struct core_stage *s);
/* The same, as the shell says it. */
void core_output_freed(struct agent_core *c, const struct agent_event *ev);

#endif
