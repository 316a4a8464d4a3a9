/* A deployment that lost agents and serves on fewer grows back: the layout that it had is
 * remembered, and taken again when its agents are here, have the room, and nothing runs. */
#ifndef HP_COORDINATOR_REGROWTH_H
#define HP_COORDINATOR_REGROWTH_H

#include "coordinator/deployment.h"
#include "coordinator/verdict.h"

/* The deployment is planned anew although it served: that layout is wished back. */
void regrowth_wish(struct deployment *d);
void regrowth_forget(struct deployment *d);
void regrowth_served(struct deployment *d); /* it serves; `served` is set */
/* True when it was growing back: what it served on before is to be tried again. */
bool regrowth_failed(struct deployment *d);
/* A step of one that serves: to break is to grow back. */
struct verdict regrowth_step(struct coord *c, struct deployment *d);

#endif
