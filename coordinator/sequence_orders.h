/* What the stages are told of a sequence: open (with its slices), close, close all. */
#ifndef HP_COORDINATOR_SEQUENCE_ORDERS_H
#define HP_COORDINATOR_SEQUENCE_ORDERS_H

#include "coordinator/deployment.h"
#include "coordinator/member.h"
#include "coordinator/sequence.h"

/* False: some stage did not hear of it, for want of memory. */
bool sequence_order_open(struct coord *c, struct deployment *d, const struct sequence *s);
void sequence_order_close(struct coord *c, struct deployment *d, const struct sequence *s);
/* All sequences that a stage has which a member holds. */
void sequence_orders_close_all(struct coord *c, const struct member *m,
                               const struct member_held *h);

#endif
