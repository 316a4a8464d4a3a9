/* Which stage has its device next, and what each executor is given. */
#ifndef HP_AGENT_CORE_TURNS_H
#define HP_AGENT_CORE_TURNS_H

#include "agent/core_state.h"

/* Hands the executors their next batches, if they have room for them and there are any. */
void core_dispatch(struct agent_core *c);

#endif
