/* One request from admission to its last token: KV room, the queue, slices, stop, length, cancel,
 * failure. */
#ifndef HP_COORDINATOR_SEQUENCES_H
#define HP_COORDINATOR_SEQUENCES_H

#include <stdbool.h>
#include <stdint.h>

#include "common/machine.h"
#include "common/status.h"
#include "coordinator/requests.h"
#include "transport/message.h"

struct core;
struct deployment;
struct member;

enum sequence_state { SEQUENCE_WAITING, SEQUENCE_ACTIVE, SEQUENCE_CLOSED, SEQUENCE_STATE_COUNT };
extern const struct machine_state sequence_states[];

enum sequence_kind { SEQUENCE_REQUEST, SEQUENCE_GREEDY, SEQUENCE_LOGITS };

struct sequence {
    struct sequence *next;
    uint64_t id, request;
    struct deployment *deployment;
    enum sequence_kind kind;
    int state;
    uint32_t *prompt;
    size_t n_prompt;
    uint64_t max_tokens, kv_tokens; /* kv_tokens: what it reserves */
    uint64_t slice;                 /* of this one; 0: by the plan */
    bool planned;                   /* slices by the plan, whatever its kind */
    struct request_sampling sampling;
    bool ignore_end;
    struct request_callbacks callbacks; /* SEQUENCE_REQUEST */
    bool ends;                          /* the room for its end is reserved (core_ends_reserve) */
    struct err why;                     /* of its end */
    char client[REQUEST_CLIENT_BYTES];  /* whose share of the queue it takes; "": hpctl, and whoever
                                           did not say */
    uint64_t peer, ask;                 /* the other kinds: whose question it answers */
    uint32_t *output;                   /* SEQUENCE_GREEDY */
    uint64_t n_output, n_logits;
    uint64_t asked_ns, opened_ns, first_ns, last_ns;
    uint64_t sign_ns,
        wait_ns; /* its last sign of life, and since when it is waited for (sequence_deadlines.h) */
    double predicted_s; /* of reading its prompt */
};

/* A list of them. */
void sequences_free(struct sequence **list);

/* requests.h */
int sequences_request_open(struct core *c, const struct request *r, uint64_t *id, struct err *e);
void sequences_request_cancel(struct core *c, uint64_t id, bool satisfied,
                              struct request_usage *usage);
/* `greedy` and `logits` on live agents; the answers go to (peer, ask). `tokens` 0: logits. */
int sequences_ask_open(struct core *c, struct deployment *d, uint64_t peer, uint64_t ask,
                       const uint32_t *ids, size_t n, uint64_t tokens, uint64_t slice,
                       struct err *e);

/* `prefill`: the same prompt `count` times at once, each for one token, in the plan's slices; one
 * answer when all have it. */
int sequences_prefill_open(struct core *c, struct deployment *d, uint64_t peer, uint64_t ask,
                           const uint32_t *ids, size_t n, uint64_t count, struct err *e);

void sequences_tokens(struct core *c, struct member *m, const struct message_tokens *t);
void sequences_logits(struct core *c, struct member *m, const struct message_logits *l);
void sequences_failed(struct core *c, struct member *m, const struct message_sequence_failed *f);
/* Whoever asked over this connection is gone. */
void sequences_peer_gone(struct core *c, uint64_t peer);
/* Admits from the queue what has room now, and drops what waited too long. */
void sequences_admit(struct core *c, struct deployment *d);
/* Ends what is open (and, with `waiting`, the queue) with an error. */
void sequences_fail_all(struct core *c, struct deployment *d, bool waiting, const struct err *why);

#endif
