/* Orders to the agents of a deployment's plan: prepare, connect, unload. Orders are
 * level-triggered: what a heartbeat does not show is said again (stage_reports.h). */
#ifndef HP_COORDINATOR_STAGES_H
#define HP_COORDINATOR_STAGES_H

#include "coordinator/deployment.h"

/* The layout that the deployment has becomes its next generation, with a number and tokens of its
 * own. */
void stages_adopt(struct coord *c, struct deployment *d);
/* Tells those that are untold and can hear. */
void stages_prepare(struct coord *c, struct deployment *d);
/* Another agent is told to fetch the layers of a stage into its store, from the agent of that
 * stage. */
void stages_copy(struct coord *c, struct deployment *d, int stage, struct member *to);
void stages_connect(struct coord *c, struct deployment *d);
void stages_unload(struct coord *c, const struct member *m, uint64_t deployment,
                   uint64_t generation);
/* Unloads them wherever they are held. */
void stages_stop(struct coord *c, struct deployment *d);
/* A token for frames: 63 bits wide, since tokens also travel as JSON numbers; never 0. */
uint64_t stages_session_create(struct coord *c);
/* Tells an agent that whoever has the token may ask for, or bring, chunks of the model. */
void stages_grant(struct coord *c, const struct deployment *d, const struct member *m,
                  uint64_t session, bool revoke);

#endif
