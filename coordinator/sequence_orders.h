/* What the stages are told of a sequence: open (with its slices), close. */
#ifndef HP_COORDINATOR_SEQUENCE_ORDERS_H
#define HP_COORDINATOR_SEQUENCE_ORDERS_H

#include "coordinator/deployment.h"
#include "coordinator/sequence.h"

/* False: some stage did not hear of it, for want of memory. */
bool sequence_order_open(struct coord *c, struct deployment *d, const struct sequence *s);
void sequence_order_close(struct coord *c, struct deployment *d, const struct sequence *s);

#endif
