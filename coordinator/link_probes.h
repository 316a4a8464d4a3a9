/* Which pair of agents measures its data path next, and what came of it. One pair at a time in the
 * whole cluster, never where sequences run or stages are being prepared; soon after an agent joins,
 * then every few minutes. */
#ifndef HP_COORDINATOR_LINK_PROBES_H
#define HP_COORDINATOR_LINK_PROBES_H

#include "coordinator/links.h"

enum {
    LINKS_SETTLE_MS = 1000,    /* after an agent joins */
    LINKS_REFRESH_MS = 300000, /* after a measurement; in large clusters later, so that a pair has
                                  LINKS_PAIR_MS on average */
    LINKS_PAIR_MS = 2500,
    LINKS_RETRY_MS = 30000,  /* after a failure */
    LINKS_ANSWER_MS = 8000,  /* an agent that has not answered by then does not */
    LINKS_SCAN = 256,        /* pairs looked at in one tick */
    LINKS_DOUBT_MS = 5000,   /* a result that differs from the last by LINKS_DOUBT_TIMES is measured
                                again after so long, and believed when it comes again */
    LINKS_DOUBTS_MS = 12000, /* so long an answer to hpctl waits for results that are doubted */
    LINKS_DOUBT_TIMES = 4,
};

/* Ends a measurement that takes too long, and begins the next that is due. */
void link_probes_tick(struct coord *c);
/* Measures all links now; answers `id` of `peer` with progress and then the cluster. HP_ENOMEM. */
int link_probes_ask(struct coord *c, uint64_t peer, uint64_t id, struct err *e);
void link_probes_peer_gone(struct coord *c, uint64_t peer);
void link_probes_result(struct coord *c, struct member *m, uint64_t id,
                        const struct message_link_result *r);
/* An agent has joined (again): what it measured before may not hold any more. */
void link_probes_member_joined(struct coord *c, struct member *m);
/* Before a member is removed. */
void link_probes_member_removed(struct coord *c, struct member *m);
void link_probes_free(struct coord *c);

#endif
