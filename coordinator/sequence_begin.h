/* Where the prompt of a sequence whose turn it is comes from: its own stages compute it, the plan
 * that reads prompts for them does (handoffs.h), or another deployment has it and sends it
 * (prefix_peers.h). In the latter two cases a second sequence, on that plan, is tied to it. */
#ifndef HP_COORDINATOR_SEQUENCE_BEGIN_H
#define HP_COORDINATOR_SEQUENCE_BEGIN_H

#include "coordinator/deployment.h"
#include "coordinator/prefixes.h"
#include "coordinator/sequence.h"

enum sequence_start {
    SEQUENCE_BEGUN,
    SEQUENCE_NO_ROOM,   /* on its own stages, without what is shared there */
    SEQUENCE_NO_READER, /* the plan that is to read its prompt has no room */
};

/* Opens the sequence, for which its own stages have room (sequence_room.h) and with which it may
 * begin there, and whoever reads its prompt; or says for what it waits on. */
enum sequence_start sequence_begin(struct coord *c, struct deployment *d, struct sequence *s,
                                   const struct prefix_hit *hit);

#endif
