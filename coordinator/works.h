/* Work that is out (work.h): whose model it holds open, and how it comes back. */
#ifndef HP_COORDINATOR_WORKS_H
#define HP_COORDINATOR_WORKS_H

#include "coordinator/state.h"

/* HP_EBUSY: too much is out; the work stays the caller's. `uses` (may be NULL) is not closed
 * meanwhile. */
int works_add(struct coord *c, struct coord_work *w, struct model_slot *uses, struct err *e);
/* Its `run` has ended; true where it held a model open. */
bool works_end(struct coord *c, struct coord_work *w);
/* Asks all that are out to end early. */
void works_cancel(struct coord *c);
/* Nobody wants them any more: none may run. */
void works_drop(struct coord *c);

#endif
