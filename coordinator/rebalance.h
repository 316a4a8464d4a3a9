/* A deployment that serves is planned anew over the agents that are there now, beside its own
 * stages, and goes where that pays: `rebalance`. Its successor (successors.h) is prepared with
 * weights from the agents' stores, never from hpctl; then what runs goes over with its keys and
 * values, and the place before is left. The context and the room for keys and values stay as they
 * are. Until the successor serves nothing has changed, and a failure leaves all as it was. */
#ifndef HP_COORDINATOR_REBALANCE_H
#define HP_COORDINATOR_REBALANCE_H

#include "coordinator/deployment.h"

/* A request has to be done sooner by this: plans of the same agents from profiles that were
 * measured anew differ by a few hundredths (docs/measurements.md). */
#define REBALANCE_MARGIN 0.1
#define REBALANCE_MOST_MARGIN 100.0

enum { REBALANCE_PREPARE_MS = 600000 }; /* how long the successor may take until it serves */

struct rebalance_wish {
    uint64_t peer, ask; /* who hears what comes of it */
    bool dry;           /* says what would be done */
    double margin;
};

/* 0: it has begun, and (peer, ask) is answered with a report (rebalance_report.h) that has
 * "verdict" and "why": "moving" with more to come, then "moved" once the place before is left;
 * "would_move" with `dry`; "stays" where the gain is below the margin. HP_EBUSY: it does not serve,
 * or is on its way already. HP_EINFEASIBLE: it cannot move, and why: also as an answer, where there
 * is no room beside its stages. */
int rebalance_start(struct coord *c, struct deployment *d, const struct rebalance_wish *w,
                    struct err *e);
/* A step of one that serves. True: its successor has taken over. */
bool rebalance_step(struct coord *c, struct deployment *d);
/* The deployment breaks or ends, or it was to be the successor and will not be: whoever waits hears
 * it. */
void rebalance_break(struct coord *c, struct deployment *d, const struct err *why);
void rebalances_peer_gone(struct coord *c, uint64_t peer);
void rebalance_free(struct deployment *d); /* in silence */

#endif
