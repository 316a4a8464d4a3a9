/* Who is here, and how well: heartbeats, silence, and leaving. */
#ifndef HP_COORDINATOR_MEMBERSHIP_H
#define HP_COORDINATOR_MEMBERSHIP_H

#include "coordinator/member.h"

/* True: the member has become one that may be given stages, or serves on (READY, DRAINING). */
bool membership_heartbeat(struct coord *c, struct member *m, const struct message_heartbeat *h);
/* Time has passed: the next member that is lost, and why; NULL: no other is. Call until NULL. */
struct member *membership_tick(struct coord *c, char *why, size_t size);
void membership_peer_gone(struct coord *c, uint64_t peer);
/* Forgets an agent and its key. HP_EBUSY while it is here or a deployment needs it. */
int membership_remove(struct coord *c, struct member *m, struct err *e);

#endif
