/* The sessions of frames: which are welcome, for how long, and from whom. */
#ifndef HP_AGENT_CORE_SESSIONS_H
#define HP_AGENT_CORE_SESSIONS_H

#include "agent/core_state.h"

/* Frames of the stage's sessions are welcome; those of its input from `input_from` alone. */
void core_stage_sessions_allow(struct agent_core *c, const struct core_stage *s);
/* Frames of these sessions are not welcome any more, once nothing else uses them. */
void core_stage_sessions_revoke(struct agent_core *c, uint64_t session, uint64_t input_session);
/* `chunk_grant`: a session for chunks is welcome, or not any more. Of AGENT_MAX_GRANTS the oldest
 * gives way. */
void core_grant(struct agent_core *c, struct message_ref *m);
/* `from`: the key of the only sender; empty: anybody who may connect. */
void core_session_allow(struct agent_core *c, uint64_t session, struct pack_span from);
/* Frames of the session are not welcome any more, once nothing else uses it. */
void core_session_revoke(struct agent_core *c, uint64_t session);

#endif
