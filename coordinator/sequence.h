/* One request as it goes through a deployment: state, lists and lookups (sequences.h acts). */
#ifndef HP_COORDINATOR_SEQUENCE_H
#define HP_COORDINATOR_SEQUENCE_H

#include "common/machine.h"
#include "coordinator/state.h"

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
    struct sampling_params sampling;
    bool ignore_end;
    struct request_callbacks callbacks; /* SEQUENCE_REQUEST */
    bool ends;                          /* the room for its end is reserved (effects.h) */
    struct err why;                     /* of its end */
    char client[REQUEST_CLIENT_BYTES];  /* whose share of the queue it takes; "": hpctl, and whoever
                                           did not say */
    uint64_t peer, ask;                 /* the other kinds: whose question it answers */
    uint32_t *output;                   /* SEQUENCE_GREEDY */
    uint64_t n_output, n_logits;
    uint64_t asked_ns, opened_ns, first_ns, last_ns;
    uint64_t sign_ns, wait_ns; /* its last sign of life, and since when the next is waited for
                                  (sequence_deadlines.h) */
    double predicted_s;        /* of reading its prompt */
};

/* ---- the lists of a deployment ---- */

void sequence_wait(struct deployment *d, struct sequence *s);       /* at the end of the queue */
void sequence_unlink(struct deployment *d, struct sequence *s);     /* of the queue */
void sequence_activate(struct deployment *d, struct sequence *s);   /* from the queue */
void sequence_deactivate(struct deployment *d, struct sequence *s); /* and gives its room back */
struct sequence *sequence_active(const struct deployment *d, uint64_t id);
struct sequence *sequence_of_request(struct coord *c, uint64_t request);

void sequence_move(struct sequence *s, int to); /* the one setter of its state */
struct request_usage sequence_usage(const struct coord *c, const struct sequence *s);
void sequence_free(struct sequence *s);
/* A list of them. */
void sequences_free(struct sequence **list);

#endif
