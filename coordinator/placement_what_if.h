/* What a deployment would be on other boxes: planned beside what runs, with its context and room
 * for keys and values, and never carried out. */
#ifndef HP_COORDINATOR_PLACEMENT_WHAT_IF_H
#define HP_COORDINATOR_PLACEMENT_WHAT_IF_H

#include "coordinator/requests.h"

struct coord;

/* As requests.h says of `what_if`. */
int placement_what_if(struct coord *c, const struct request_what_if *w, struct err *e);

#endif
