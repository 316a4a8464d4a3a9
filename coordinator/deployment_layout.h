/* From a deployment to the layout that its stages have, and back, onto members that are there. */
#ifndef HP_COORDINATOR_DEPLOYMENT_LAYOUT_H
#define HP_COORDINATOR_DEPLOYMENT_LAYOUT_H

#include "coordinator/deployment.h"
#include "coordinator/stage_layout.h"

/* Counted; NULL: it has no stages, or there is no memory. */
struct stage_layout *deployment_layout(const struct deployment *d);
/* False where one of its members is not there, or is not to be used. */
bool deployment_layout_usable(struct coord *c, const struct stage_layout *layout);
/* HP_ENOENT: one of its members is not known any more. HP_ENOMEM. */
int deployment_layout_set(struct coord *c, struct deployment *d, const struct stage_layout *layout,
                          struct err *e);

#endif
