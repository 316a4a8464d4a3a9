/* Mixtures whose blocks fit no agent: their experts become layers of their own, group by group. */
#ifndef HP_COORDINATOR_EXPERT_GROUPS_H
#define HP_COORDINATOR_EXPERT_GROUPS_H

#include "coordinator/deployment.h"

/* There is no plan; `has_room` where the devices together have the room for the model. True: the
 * deployment's model is divided further now, and is to be planned anew once it is open. Where no
 * division helps the model is whole again. Either way what the deployment was is forgotten, for its
 * layers had other numbers. What a deployment was asked for with (--expert-groups, a plan's) stays.
 */
bool expert_groups_next(struct coord *c, struct deployment *d, bool has_room);

#endif
