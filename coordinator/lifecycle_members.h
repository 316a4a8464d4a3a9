/* What becomes of deployments when something happens to an agent under them. */
#ifndef HP_COORDINATOR_LIFECYCLE_MEMBERS_H
#define HP_COORDINATOR_LIFECYCLE_MEMBERS_H

#include "coordinator/member.h"

/* The agent has joined: its stages are here, or have to be prepared anew. */
void lifecycle_member_joined(struct coord *c, struct member *m);
/* Some agent may be given stages from now on: what is broken is tried again. */
void lifecycle_member_ready(struct coord *c);
void lifecycle_member_held(struct coord *c, struct member *m); /* as a heartbeat shows */
void lifecycle_member_lost(struct coord *c, struct member *m, const char *why);
void lifecycle_member_drains(struct coord *c, struct member *m);
void lifecycle_member_stays(struct coord *c); /* its draining was taken back */

#endif
