/* What waits for the disk: messages that say or order something whose record is not written yet.
 * Each peer gets its messages in their order; what depends on nothing stored (tokens, acks of
 * heartbeats) passes. Where the store cannot be written nothing waits: changes are refused by name,
 * and serving goes on. */
#ifndef HP_COORDINATOR_HOLDING_H
#define HP_COORDINATOR_HOLDING_H

#include "coordinator/state.h"

/* Numbers the changes of a batch and takes out what must wait. */
void holding_take(struct coord *c, struct effects_batch *b);
/* The store has written all batches up to `number`; or it could not, and why. False: it cannot be
 * written. */
bool holding_stored(struct coord *c, uint64_t number, const struct err *why);
/* Whether anything may be changed now: HP_ENOSPACE, HP_EIO ... where it could not be stored. */
int holding_may_change(const struct coord *c, struct err *e);
void holding_free(struct coord *c);

#endif
