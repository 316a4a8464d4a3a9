/* What agents say of sequences: tokens, logits, failures. */
#ifndef HP_COORDINATOR_SEQUENCES_H
#define HP_COORDINATOR_SEQUENCES_H

#include "coordinator/state.h"
#include "coordinator/verdict.h"
#include "transport/message.h"

/* A message of a closed sequence, of an older generation or of an agent that may not speak of it is
 * counted as stale and changes nothing. */
void sequences_tokens(struct coord *c, struct member *m, const struct message_tokens *t);
void sequences_logits(struct coord *c, struct member *m, const struct message_logits *l);
/* How keys and values go, `part` as their order was numbered (handoffs.h). */
void sequences_kv_state(struct coord *c, struct member *m, uint64_t part,
                        const struct message_kv_state *k);
/* Its deployment breaks where its links do again and again (broken_links.h). */
struct verdict sequences_failed(struct coord *c, struct member *m,
                                const struct message_sequence_failed *f);

#endif
