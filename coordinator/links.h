/* What the data path between every two agents is like, as they measured it: which pair measures next, and what came of it. One pair at a time in the whole
 * cluster, never where sequences run or stages are being prepared; soon after an agent joins, then every few minutes. */
#ifndef HP_COORDINATOR_LINKS_H
#define HP_COORDINATOR_LINKS_H

#include "common/status.h"
#include "transport/message.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct core;
struct member;

enum {
    LINKS_SETTLE_MS = 1000,    /* after an agent joins */
    LINKS_REFRESH_MS = 300000, /* after a measurement; in large clusters later, so that a pair has LINKS_PAIR_MS on average */
    LINKS_PAIR_MS = 2500,
    LINKS_RETRY_MS = 30000,    /* after a failure */
    LINKS_ANSWER_MS = 8000,    /* an agent that has not answered by then does not */
    LINKS_SCAN = 256,          /* pairs looked at in one tick */
};

/* From the member that holds it to another. */
struct member_link {
    const struct member *to;
    double latency_s, bandwidth_bytes_per_s; /* 0: never measured */
    uint64_t measured_s;                     /* Unix time */
    uint64_t due_ns;                         /* when it is to be measured (again) */
};

/* The probe that goes on; id 0: none. */
struct links_probe {
    uint64_t id, session, until_ns;
    struct member *from, *to;
    bool echoing; /* the far end is ready */
};

/* What was measured from one member to another; NULL: nothing yet. */
const struct member_link *links_find(const struct member *from, const struct member *to);

void links_tick(struct core *c);
void links_result(struct core *c, struct member *m, uint64_t id, const struct message_link_result *r);
/* An agent has joined (again): what it measured before may not hold any more. */
void links_member_joined(struct core *c, struct member *m);
/* Before a member is freed: nobody may point at it. */
void links_member_removed(struct core *c, struct member *m);
/* The store's record of what one agent measured; the members are there already. */
int links_restore(struct core *c, const char *name, const json_t *record, struct err *e);

#endif
