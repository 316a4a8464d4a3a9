/* From spec to serving and back: the steps of a deployment through its states, and its ends. */
#ifndef HP_COORDINATOR_LIFECYCLE_H
#define HP_COORDINATOR_LIFECYCLE_H

#include "coordinator/deployment.h"
#include "coordinator/verdict.h"

/* Takes every deployment as far as it can go now. */
void lifecycle_advance(struct coord *c);
/* Acts on what a handler found. */
void lifecycle_judge(struct coord *c, const struct verdict *v);
/* It can not go on as it is: ends its sequences, and plans anew. */
void lifecycle_break(struct coord *c, struct deployment *d, const struct err *why);
/* Answers go to (peer, ask) when its agents have unloaded. */
void lifecycle_undeploy(struct coord *c, struct deployment *d, uint64_t peer, uint64_t ask);
void lifecycle_peer_gone(struct coord *c, uint64_t peer); /* hpctl went away */
void lifecycle_free(struct coord *c);

#endif
