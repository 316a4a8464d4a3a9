/* From spec to serving and back: the steps of a deployment through its states. */
#ifndef HP_COORDINATOR_LIFECYCLE_H
#define HP_COORDINATOR_LIFECYCLE_H

#include "coordinator/state.h"

/* Takes every deployment as far as it can go now. */
void lifecycle_advance(struct coord *c);
/* hpctl, which waited for a deployment to serve or to end, has gone. */
void lifecycle_peer_gone(struct coord *c, uint64_t peer);

#endif
