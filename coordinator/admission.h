/* Who is let in: requests of gateways and questions of hpctl, the queue, and whose turn it is. */
#ifndef HP_COORDINATOR_ADMISSION_H
#define HP_COORDINATOR_ADMISSION_H

#include "coordinator/deployment.h"
#include "coordinator/requests.h"
#include "coordinator/sequence.h"

/* requests.h */
int admission_request_open(struct coord *c, const struct request_spec *r, uint64_t *id,
                           struct err *e);
void admission_request_cancel(struct coord *c, uint64_t id, bool satisfied,
                              struct request_usage *usage);
/* `greedy` and `logits` on live agents; the answers go to (peer, ask). `tokens` 0: logits. */
int admission_ask_open(struct coord *c, struct deployment *d, uint64_t peer, uint64_t ask,
                       const uint32_t *ids, size_t n, uint64_t tokens, uint64_t slice,
                       struct err *e);
/* `prefill`: the same prompt `count` times at once, each for one token, in the plan's slices; one
 * answer when all have it. */
int admission_prefill_open(struct coord *c, struct deployment *d, uint64_t peer, uint64_t ask,
                           const uint32_t *ids, size_t n, uint64_t count, struct err *e);
/* Admits from the queue what has room now, and drops what waited too long. */
void admission_advance(struct coord *c, struct deployment *d);
/* The same of its partner, too: who waits for the plan that reads, or for what it has read, may go
 * on. */
void admission_advance_both(struct coord *c, struct deployment *d);
/* Whoever asked over this connection is gone. */
void admission_peer_gone(struct coord *c, uint64_t peer);

#endif
