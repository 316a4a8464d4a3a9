/* Shares of plans of pools. Their batches pass whoever holds the slot (share_runner.h). */
#ifndef HP_AGENT_CORE_SHARES_H
#define HP_AGENT_CORE_SHARES_H

#include "agent/core_state.h"

/* A `stage_prepare` with a share: held and fetched, or refused with a word. */
void core_share_prepare(struct agent_core *c, struct message_ref *m);
/* `share_connect`: where batches go from all shares of the plan that are here, also those that are
 * not ready yet. */
void core_share_connect(struct agent_core *c, struct message_ref *m);
/* What a share has done and what waits for it, for the next heartbeat. */
void core_share_metered(struct agent_core *c, const struct agent_event *ev);
/* A batch will have no result: the coordinator hears why. */
void core_share_failed(struct agent_core *c, const struct agent_event *ev);

#endif
