/* Taking an agent out of service: `node.drain`, and back. Nothing moves before it is known that
 * everything can: for each deployment that serves there a plan without the agent is made first,
 * while it serves on. */
#ifndef HP_COORDINATOR_DRAINS_H
#define HP_COORDINATOR_DRAINS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/status.h"

struct coord;
struct member;

/* 0: it drains from now on. HP_PENDING: (peer, ask) is answered when the plans are there, with the
 * agent or with HP_EINFEASIBLE, which says which deployment cannot move and why. `force`: whatever
 * becomes of the deployments. HP_EBUSY: that is being found out already, or a deployment that
 * served is on its way, perhaps to this agent. */
int drain_start(struct coord *c, struct member *m, bool force, uint64_t peer, uint64_t ask,
                struct err *e);
/* Takes it back; what has not moved stays. */
void drain_undo(struct coord *c, struct member *m);
/* Goes on with those that are undecided. */
void drains_advance(struct coord *c);
void drains_peer_gone(struct coord *c, uint64_t peer);

#endif
