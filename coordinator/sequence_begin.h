/* Where the prompt of a sequence whose turn it is comes from: its own stages compute it, the plan
 * that reads prompts for them does (handoffs.h), or another deployment has it and sends it
 * (prefix_peers.h). In the latter two cases a second sequence, on that plan, is tied to it. */
#ifndef HP_COORDINATOR_SEQUENCE_BEGIN_H
#define HP_COORDINATOR_SEQUENCE_BEGIN_H

#include "coordinator/deployment.h"
#include "coordinator/prefixes.h"
#include "coordinator/sequence.h"

/* Opens the sequence, for which its own stages have room (sequence_room.h) and with which it may
 * begin there, and whoever reads its prompt. False: it waits on, for room on the plan that reads
 * prompts or, without what is shared here, on its own. */
bool sequence_begin(struct coord *c, struct deployment *d, struct sequence *s,
                    const struct prefix_hit *hit);

#endif
