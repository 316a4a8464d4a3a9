/* The plan that reads prompts for a deployment (`deploy --prefill`): a deployment of its own, named
 * NAME/prefill, that is made once the first one serves (so that its agents find all weights), and
 * ends with it. While it does not serve the other's stages read prompts themselves. */
#ifndef HP_COORDINATOR_PREFILL_PLANS_H
#define HP_COORDINATOR_PREFILL_PLANS_H

#include "coordinator/deployment.h"

/* A deployment that wants one serves: it is made where it is not there yet, and whoever hears of
 * the progress of the one hears of the other's from now on. False: there is nothing to make, or
 * *e says why it cannot be. */
bool prefill_plan_begin(struct coord *c, struct deployment *d, struct err *e);
/* Whether the one that this plan reads for is there and still asks for it as it is. */
bool prefill_plan_wanted(struct coord *c, const struct deployment *p);

#endif
