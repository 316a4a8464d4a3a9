/* What became of deployments that lost an agent while they served: how soon it was found, how long
 * they had no place, and how long their sequences paused. Counted here, told by describe and
 * metrics. */
#ifndef HP_COORDINATOR_LOSSES_H
#define HP_COORDINATOR_LOSSES_H

#include "coordinator/deployment.h"

/* The deployment serves no more where it did. */
void losses_place_lost(const struct coord *c, struct deployment *d, const struct err *why);
/* The deployment serves (again). */
void losses_place_found(const struct coord *c, struct deployment *d);
json_t *losses_json(const struct deployment *d);

#endif
