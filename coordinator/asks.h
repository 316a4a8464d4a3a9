/* Questions to agents that wait for an answer, most often because hpctl asked one. */
#ifndef HP_COORDINATOR_ASKS_H
#define HP_COORDINATOR_ASKS_H

#include "common/digest.h"
#include "coordinator/state.h"
#include "transport/message.h"

struct member;

struct agent_ask {
    uint64_t id; /* ours, towards agents: by chance, so that nobody else's answer has it */
    char asked[MEMBER_NAME]; /* who alone may answer; "": all who were asked (STORE_STATE) */
    uint64_t peer, ask;      /* hpctl's; 0 where nobody waits */
    enum message_type type;  /* of the answer awaited */
    char what[DIGEST_HEX];   /* STORE_STATE, PROFILE_RESULT: the model */
    char kind[DEVICE_KIND];  /* PROFILE_RESULT: of the device that is measured */
    bool f32;                /* PROFILE_RESULT: what it computes in */
    uint32_t awaited;        /* answers to come */
    uint64_t until_ns;
};

/* `asked` NULL: several. NULL: too many wait. */
struct agent_ask *asks_add(struct coord *c, enum message_type type, const struct member *asked,
                           uint64_t peer, uint64_t ask, uint64_t until_ns);
struct agent_ask *asks_find(struct coord *c, uint64_t id, enum message_type type);
/* The question that this member answers; NULL where it was asked none. */
struct agent_ask *asks_answered(struct coord *c, const struct member *by, uint64_t id,
                                enum message_type type);
void asks_end(struct coord *c, struct agent_ask *a);
/* Whoever asked over this connection is gone; the answers are of use all the same. */
void asks_peer_gone(struct coord *c, uint64_t peer);
void asks_free(struct coord *c);

#endif
