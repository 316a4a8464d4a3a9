/* Batches that have run: what they took, and where they go on. */
#ifndef HP_AGENT_CORE_BATCHES_H
#define HP_AGENT_CORE_BATCHES_H

#include "agent/core_state.h"

/* An executor has run a batch, or could not. */
void core_batch_done(struct agent_core *c, const struct agent_event *ev);
/* Its sequences fail; a device or weights that failed break the stage. */
void core_batch_failed(struct agent_core *c, struct core_stage *s, const struct batch *b,
                       const struct agent_event *ev);

#endif
