/* Keys and values that come, for sequences that begin with them. */
#ifndef HP_AGENT_CORE_IMPORTS_H
#define HP_AGENT_CORE_IMPORTS_H

#include "agent/core_state.h"

/* `kv_import`: a sequence awaits its keys and values from this sender. */
void core_kv_import(struct agent_core *c, struct message_ref *m);
/* A FRAME_KV, whosever it is: a piece for the executor, or a sign of life of who sends. */
void core_kv_frame(struct agent_core *c, const struct agent_event *ev);
/* The executor has taken a piece; the last of them lets its sequence run. */
void core_kv_imported(struct agent_core *c, const struct agent_event *ev);
/* Sequences that have awaited theirs for too long fail. */
void core_imports_tick(struct agent_core *c, uint64_t now_ns);
uint64_t core_imports_deadline(const struct agent_core *c);

#endif
