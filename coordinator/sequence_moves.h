/* Sequences that run go on in another deployment of their model (successors.h): each is opened
 * there at its length, with its keys and values on their way (handoffs.h). */
#ifndef HP_COORDINATOR_SEQUENCE_MOVES_H
#define HP_COORDINATOR_SEQUENCE_MOVES_H

#include "coordinator/deployment.h"

/* Begins with those that run on `d`, as many as have room on `heir` and may be on their way at
 * once; the others when this is called again. Each is tried once. */
void sequences_move(struct coord *c, struct deployment *d, struct deployment *heir);

#endif
