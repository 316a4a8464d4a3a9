/* Copies of layers that other agents run: fetched into the store and left there. */
#ifndef HP_AGENT_CORE_COPIES_H
#define HP_AGENT_CORE_COPIES_H

#include "agent/core_state.h"

/* Fetches the layers of a `stage_prepare` with `copy`; holds the message meanwhile. */
void core_copy_begin(struct agent_core *c, struct message_ref *m);
/* How the fetch of a copy goes. False: it is no copy that this is about. */
bool core_copy_fetched(struct agent_core *c, const struct agent_progress *p);
/* With the core: those that are still being fetched. */
void core_copies_free(struct agent_core *c);

#endif
