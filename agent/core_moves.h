/* Keys and values that come to this agent's sequences or go elsewhere: how far they are, what the
 * coordinator hears of it, and their end. */
#ifndef HP_AGENT_CORE_MOVES_H
#define HP_AGENT_CORE_MOVES_H

#include "agent/core_state.h"

/* The stage that an order means; NULL: there is none, and *e says so. */
struct core_stage *core_kv_stage(struct agent_core *c, uint64_t deployment, uint64_t generation,
                                 uint64_t stage, struct err *e);
/* An answer to a kv_import or kv_export; `e` where it failed, else NULL. */
void core_kv_say(struct agent_core *c, uint64_t id, const struct message_kv_state *state,
                 const struct err *e);
/* The last of what a sequence begins with has come: its senders' sessions end. */
void core_kv_received(struct agent_core *c, const struct core_stage *s, struct core_sequence *own);
/* All of it has left (e NULL), or will not. */
void core_kv_export_end(struct agent_core *c, struct core_kv_export *x, const struct err *e);
/* The sequence is closed: what was under way for it fails. */
void core_kv_forget(struct agent_core *c, const struct core_stage *s, struct core_sequence *own);
/* This process stood still for so long: what moved meanwhile it could not see. */
void core_kv_forgive(struct agent_core *c, uint64_t gap_ns);

#endif
