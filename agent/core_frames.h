/* The frames that come. */
#ifndef HP_AGENT_CORE_FRAMES_H
#define HP_AGENT_CORE_FRAMES_H

#include "agent/core_state.h"

/* A frame: for a stage of this agent, for another one's time, or for nobody here; the last two are
 * dropped and counted. */
void core_frame(struct agent_core *c, const struct agent_event *ev);

#endif
