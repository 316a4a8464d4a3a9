/* Keys and values of long sequences are copied to another deployment of the model while there is
 * nothing else to send (`hpctl deploy --replicate-kv TOKENS`), so that a sequence whose agent is
 * lost goes on from there instead of computing all that it had anew. A copy is a sequence of the
 * other deployment that comes over the frames of a handoff, as one that moves does (handoffs.h),
 * and is kept there as one that has ended (prefixes.h); a lost sequence finds it as any beginning
 * that another deployment has (prefix_peers.h), and takes it where that is sooner.
 *
 * One copy of a deployment is made at a time, while no prompt is being read on either side, and the
 * next no sooner than after three times as long as that one took: links are used for it a quarter
 * of the time at most. A sequence is copied when it has so many tokens, and again whenever it has
 * grown by a quarter. */
#ifndef HP_COORDINATOR_REPLICATION_H
#define HP_COORDINATOR_REPLICATION_H

#include "coordinator/deployment.h"
#include "coordinator/sequence.h"

enum { REPLICATION_AGAIN_MS = 5000 }; /* after a copy that came to nothing */

void replication_step(struct coord *c, struct deployment *d);
/* All of the copy has come: the sequence that it was made of runs on, and knows it. */
void replication_done(struct coord *c, struct sequence *copy);

#endif
