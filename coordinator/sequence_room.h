/* Pages for a sequence whose turn it is, and its opening on the stages. A sequence reserves its
 * prompt and a usual answer (growth.h); room is counted in pages, a shared one once
 * (common/kv_account.h), and what is kept of others gives way. On the core's thread. */
#ifndef HP_COORDINATOR_SEQUENCE_ROOM_H
#define HP_COORDINATOR_SEQUENCE_ROOM_H

#include "coordinator/deployment.h"
#include "coordinator/prefixes.h"
#include "coordinator/sequence.h"

/* The sequence fits beside those that run, whatever is kept. */
bool sequence_may_fit(const struct deployment *d, const struct sequence *s,
                      const struct prefix_hit *hit);
/* What is kept goes until the sequence fits, that with which it begins last: of that first what
 * follows the pages in common, since these count once. May shorten or empty *hit. False: it does
 * not fit beside those that run, and nothing has changed. */
bool sequence_room_make(struct coord *c, struct deployment *d, const struct sequence *s,
                        struct prefix_hit *hit);
/* From the queue, where room has been made, to all stages. Where memory is lacking it fails (and is
 * freed), or begins anew if it was tied to another plan (sequence_ends.h). */
void sequence_open(struct coord *c, struct deployment *d, struct sequence *s,
                   const struct prefix_hit *hit);

#endif
