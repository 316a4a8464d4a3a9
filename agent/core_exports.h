/* Keys and values of this agent's sequences that go elsewhere. */
#ifndef HP_AGENT_CORE_EXPORTS_H
#define HP_AGENT_CORE_EXPORTS_H

#include "agent/core_state.h"

/* `kv_export`: a sequence's keys and values go elsewhere, piece by piece. */
void core_kv_export(struct agent_core *c, struct message_ref *m);
/* A piece has left, or found no buffer, or its link broke. */
void core_kv_left(struct agent_core *c, const struct agent_event *ev);
/* Batches have been handed out: what goes as it is computed goes on. */
void core_kv_follow(struct agent_core *c);
/* Tries again what had no buffer, gives up what takes too long. */
void core_exports_tick(struct agent_core *c, uint64_t now_ns);
uint64_t core_exports_deadline(const struct agent_core *c);

#endif
