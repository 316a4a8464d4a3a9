/* `deploy {name, options}`: makes a deployment, or goes on with one of this name and model that
 * does not serve. */
#ifndef HP_COORDINATOR_DEPLOY_H
#define HP_COORDINATOR_DEPLOY_H

#include "common/pack.h"
#include "coordinator/deployment.h"

/* Answers go to (peer, ask) as the deployment proceeds. */
int deploy_start(struct coord *c, uint64_t peer, uint64_t ask, const char *name, json_t *options,
                 struct pack_span manifest, struct err *e);

#endif
