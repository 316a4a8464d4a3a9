/* What the stages are told of a sequence: open (with its slices), close, close all. */
#ifndef HP_COORDINATOR_SEQUENCE_ORDERS_H
#define HP_COORDINATOR_SEQUENCE_ORDERS_H

#include "coordinator/deployment.h"
#include "coordinator/member.h"
#include "coordinator/prefixes.h"
#include "coordinator/sequence.h"

/* False: some stage did not hear of it, for want of memory. */
bool sequence_order_open(struct coord *c, struct deployment *d, const struct sequence *s);
/* Its stages may run it up to what is reserved now. */
void sequence_order_grow(struct coord *c, struct deployment *d, const struct sequence *s);
/* Of `keep` tokens the keys and values stay, for others to begin with; 0: of none. */
void sequence_order_close(struct coord *c, struct deployment *d, uint64_t sequence, uint32_t keep);
/* Its first n tokens' whole pages go to where the agents spill, where that is worth it (spills.h);
 * `root` begins their names. Before what closes or shortens it. */
void sequence_order_spill(struct coord *c, struct deployment *d, uint64_t sequence,
                          const struct digest *root, const uint32_t *ids, size_t n);
/* The same of a prefix that is kept, which then goes. */
void sequence_order_put_away(struct coord *c, struct deployment *d, struct prefix *p);
/* A prefix that is kept goes, from the stages and from the index. */
void sequence_order_evict(struct coord *c, struct deployment *d, struct prefix *p);
/* All sequences that a stage has which a member holds. */
void sequence_orders_close_all(struct coord *c, const struct member *m,
                               const struct message_held_stage *h);

#endif
