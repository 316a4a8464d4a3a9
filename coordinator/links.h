/* What the data path between every two agents is like, as they measured it: which pair measures
 * next, and what came of it. One pair at a time in the whole cluster, never where sequences run or
 * stages are being prepared; soon after an agent joins, then every few minutes. */
#ifndef HP_COORDINATOR_LINKS_H
#define HP_COORDINATOR_LINKS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/status.h"
#include "transport/message.h"

struct core;
struct member;

enum {
    LINKS_SETTLE_MS = 1000,    /* after an agent joins */
    LINKS_REFRESH_MS = 300000, /* after a measurement; in large clusters later, so that a pair has
                                  LINKS_PAIR_MS on average */
    LINKS_PAIR_MS = 2500,
    LINKS_RETRY_MS = 30000, /* after a failure */
    LINKS_ANSWER_MS = 8000, /* an agent that has not answered by then does not */
    LINKS_SCAN = 256,       /* pairs looked at in one tick */
    LINKS_DOUBT_MS = 5000,  /* a result that differs from the last by LINKS_DOUBT_TIMES is measured
                               again after so long, and believed when it comes again */
    LINKS_DOUBT_TIMES = 4,
};

/* From the member that holds it to another. */
struct member_link {
    const struct member *to;
    double latency_s, bandwidth_bytes_per_s; /* 0: never measured */
    uint64_t measured_s;                     /* Unix time */
    uint64_t due_ns;                         /* when it is to be measured (again) */
    double doubted_bytes_per_s;              /* a result that was not believed; 0: none */
    char failure[160];                       /* why the last measurement failed; "": it did not */
};

/* hpctl waits until every link has been measured that can be (`topo --measure`). */
struct links_ask {
    uint64_t peer, id;
};

/* The probe that goes on; id 0: none. */
struct links_probe {
    uint64_t id, session, until_ns;
    struct member *from, *to;
    bool echoing; /* the far end is ready */
};

/* What was measured from one member to another; NULL: nothing yet. */
const struct member_link *links_find(const struct member *from, const struct member *to);

/* "tcp 10.0.0.5:7071": where an agent's data channel listens. */
void links_address_text(const struct member *m, char *out, size_t size);

void links_tick(struct core *c);
/* Measures all links now; answers `id` of `peer` with progress and then the cluster. HP_ENOMEM. */
int links_measure(struct core *c, uint64_t peer, uint64_t id, struct err *e);
/* The cluster as hp-cluster/1 and, beside it, `unreachable`: [{"from", "to", "address", "why"}],
 * pairs whose data path did not work when it was last tried. */
json_t *links_cluster(const struct core *c);
void links_peer_gone(struct core *c, uint64_t peer);
void links_result(struct core *c, struct member *m, uint64_t id,
                  const struct message_link_result *r);
/* An agent has joined (again): what it measured before may not hold any more. */
void links_member_joined(struct core *c, struct member *m);
/* Before a member is freed: nobody may point at it. */
void links_member_removed(struct core *c, struct member *m);
/* The store's record of what one agent measured; the members are there already. */
int links_restore(struct core *c, const char *name, const json_t *record, struct err *e);

#endif
