/* Which message goes to which handler, and who may say it. Handlers return what they found; what
 * follows from it is called here. */
#ifndef HP_COORDINATOR_DISPATCH_H
#define HP_COORDINATOR_DISPATCH_H

#include "coordinator/state.h"
#include "transport/message.h"

/* Whether this key is an agent's or the admin's. */
bool dispatch_knows(struct coord *c, const char *key);
/* Decodes what this sender may say, into the arena. HP_ELIMIT: more than it may. */
int dispatch_read(struct coord *c, const char *key, const uint8_t *bytes, size_t size,
                  struct arena *arena, struct message *out, struct err *e);
void dispatch_message(struct coord *c, uint64_t peer, const char *key, const struct message *msg);

#endif
