/* A second copy of a deployment's weights (`deploy --copies 2`): once it serves, the store of each
 * stage's neighbour gets the stage's layers, too, one stage after the other, so that any one agent
 * may be lost and those that are left have all layers in their stores. */
#ifndef HP_COORDINATOR_COPIES_H
#define HP_COORDINATOR_COPIES_H

#include "coordinator/deployment.h"
#include "transport/message.h"

enum {
    COPIES_AFTER_MS = 500,   /* of serving */
    COPIES_AGAIN_MS = 30000, /* an order of which nothing was heard is given again */
};

/* Orders what is lacking. */
void copies_step(struct coord *c, struct deployment *d);
/* Whether a `stage_state` is about a copy; then it is taken. */
bool copies_told(struct coord *c, const struct member *m, const struct message_stage_state *s);

#endif
