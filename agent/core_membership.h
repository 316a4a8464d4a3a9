/* What this agent is to its cluster: outside, joining, or a member that beats and is heard. */
#ifndef HP_AGENT_CORE_MEMBERSHIP_H
#define HP_AGENT_CORE_MEMBERSHIP_H

#include "agent/core_state.h"

/* The control channel is connecting: joins. */
void core_start(struct agent_core *c, const struct agent_event *ev);
/* `welcome`: a member from now on. Of another run of the coordinator: streams alone go on. */
void core_welcome(struct agent_core *c, struct message_ref *m);
/* `refused`: joins anew, waits, or quits where nobody will ever know its key. */
void core_refused(struct agent_core *c, struct message_ref *m);
/* `heartbeat_ack`: the coordinator hears this agent. */
void core_heartbeat_ack(struct agent_core *c, struct message_ref *m);
/* `members`: who may connect to the data endpoint from now on. */
void core_members_told(struct agent_core *c, struct message_ref *m);
/* What the weight store holds has changed: kept for the next join, and told. */
void core_store_changed(struct agent_core *c, const struct agent_event *ev);
/* Figures for the next heartbeat; losses of links are told at once. */
void core_meter(struct agent_core *c, const struct agent_event *ev);
/* While this process itself stood still it read nothing: what it missed then is not the
 * coordinator's silence, nor that of neighbours and of those whose keys and values come or go. */
void core_pause_forgive(struct agent_core *c, uint64_t now_ns);
/* Joins, beats, and frees all sequences where the coordinator is gone for too long. */
void core_member_tick(struct agent_core *c, uint64_t now_ns);
uint64_t core_member_deadline(const struct agent_core *c);

#endif
