/* Chunks that no agent has, asked of hpctl while it listens. */
#ifndef HP_COORDINATOR_STAGE_UPLOADS_H
#define HP_COORDINATOR_STAGE_UPLOADS_H

#include "coordinator/deployment.h"

/* Asks hpctl for what no agent has; false when it is needed and nobody listens. */
bool stage_uploads_ask(struct coord *c, struct deployment *d);
void stage_uploads_end(struct coord *c, struct deployment *d);

#endif
