/* One request as it goes through a deployment: state, lists and lookups (sequences.h acts). */
#ifndef HP_COORDINATOR_SEQUENCE_H
#define HP_COORDINATOR_SEQUENCE_H

#include "common/digest.h"
#include "common/kv_account.h"
#include "common/machine.h"
#include "common/map.h"
#include "coordinator/state.h"

enum sequence_state { SEQUENCE_WAITING, SEQUENCE_ACTIVE, SEQUENCE_CLOSED, SEQUENCE_STATE_COUNT };
extern const struct machine_state sequence_states[];

enum sequence_kind {
    SEQUENCE_REQUEST,
    SEQUENCE_GREEDY,
    SEQUENCE_LOGITS,
    /* Nobody's request: */
    SEQUENCE_PREFILL, /* reads a prompt for a sequence of another deployment (handoffs.h) */
    SEQUENCE_MOVE,    /* awaits the keys and values of one that runs on another, to go on for it */
    SEQUENCE_REPLICA, /* awaits the same, to keep them in case that one is lost (replication.h) */
};

/* Keys and values on their way from the stages that read a prompt to those that go on. */
struct handoff {
    struct sequence *to, *from; /* NULL: has ended, or does not need the other any more */
    bool fetch;                 /* `from` had it all but for its last token */
    bool read;                  /* `from` has computed all */
    uint64_t read_ns;
    size_t n_parts, n_awaited, n_received, n_sent;
    struct handoff_part {
        int from_stage, to_stage;
        uint64_t session;
        bool awaited, received, sent; /* as the stages told */
    } parts[];
};

struct sequence {
    struct sequence *next;
    uint64_t id, request;
    UT_hash_handle by_request, by_id;
    struct deployment *deployment;
    struct client_row *of; /* whose it is, while it waits or runs */
    enum sequence_kind kind;
    int state;
    uint32_t *prompt; /* [n_ids]: of one that may be kept, its output follows */
    size_t n_prompt, n_ids, room_ids;
    uint64_t max_tokens, kv_tokens; /* kv_tokens: what it may become */
    uint64_t reserved;              /* of these, what its stages have reserved (growth.h) */
    uint64_t resumed; /* it was opened anew with so many tokens of its answer, as if they were its
                         prompt's */
    int32_t priority; /* lower goes first */
    bool again;       /* it ran before, and goes before all others that wait */
    uint64_t lost_ns; /* since when its stages have lost it and it goes without a token; 0: not */
    uint32_t losses;  /* so often since its last token */
    uint32_t places;  /* so often of these an agent went with it */
    bool starved;     /* it waits for room to grow */
    bool reads;       /* its stages read its prompt */
    bool awaits_weights;       /* they missed some when it was let in */
    struct kv_holding holding; /* of the deployment's kv, while it is active */
    uint64_t share;            /* the sequence that it begins with; 0: it begins anew */
    uint32_t shared;           /* so many tokens of that one */
    uint32_t known;            /* the same, as it looked when it came (targets.h) */
    uint32_t cached;           /* the same, when it was opened first */
    uint64_t fork;             /* the request whose prompt it has, too; 0: none */
    bool forks;                /* others fork of it */
    uint64_t awaits;           /* a sequence whose prompt it waits for, to share it; 0: none */
    bool alone;                /* sharing has failed: it is opened without */
    struct handoff *handoff;   /* another plan reads its prompt, or it reads one; NULL: none */
    uint32_t handed; /* up to so many of its tokens, those behind the shared ones come with their
                        keys and values from there */
    uint32_t found;  /* of these, so many were not computed for it */
    bool spilled;    /* these are read back from where its agents spill (spills.h), */
    struct digest spill_page; /* up to the page of this name */
    bool unspilled;           /* that has failed: it is not tried again */
    uint32_t weighed[2];      /* tokens of what was spilled, and of what others have, for which it
                                 was last said whether they are worth reading; 0: none */
    uint64_t replica, keeper, keeper_generation; /* its first `replicated` tokens are kept as that
                                 sequence of this deployment, too (replicas.h); 0: nowhere */
    uint32_t replicated;
    bool stays;         /* its move to another deployment has been tried */
    bool reads_itself;  /* a handoff has failed: its prompt is read by its own stages */
    uint64_t passed;    /* the deployment's `passes` in which others go before it (admission.c) */
    uint64_t slice;     /* of this one; 0: by the plan */
    bool planned;       /* slices by the plan, whatever its kind */
    uint32_t end_token; /* that ended it, once it has */
    uint32_t said_width, prompt_width; /* scores of each token that is told, and of the prompt's */
    size_t n_scored; /* of its prompt's tokens but the first, so many have their scores told */
    struct sampling_params sampling;
    bool ignore_end;
    bool embeds;     /* SEQUENCE_REQUEST for a row instead of tokens */
    uint64_t number; /* of the client's request, which lines of the log name (request_name) */
    struct request_callbacks callbacks; /* SEQUENCE_REQUEST */
    bool ends;                          /* the room for its end is reserved (effects.h) */
    struct score *scores;               /* of a stream's tokens, [n_scores], as they were told */
    size_t n_scores, room_scores;
    uint64_t stream;  /* SEQUENCE_REQUEST that outlives this process (streams.h); 0: it does not */
    bool adopted;     /* it runs since before this process began, and not all of its stages have */
    uint64_t held_id; /* said so: as it is called there, */
    uint64_t held_stages;              /* and, as bits, the stages that have */
    struct err why;                    /* of its end, or of its first loss since its last token */
    char client[REQUEST_CLIENT_BYTES]; /* whose share of the queue it takes; "": hpctl, and whoever
                                          did not say */
    uint64_t peer, ask;                /* the other kinds: whose question it answers */
    uint32_t *output;                  /* SEQUENCE_GREEDY */
    uint64_t n_output, n_logits;
    uint64_t queued_ns; /* since when it is in the queue */
    uint64_t asked_ns, opened_ns, first_ns, last_ns;
    uint64_t first_clock_ns, first_generation; /* first_ns by the clock of the last stage of that
                                                  generation; 0: not known */
    uint64_t sign_ns, wait_ns; /* its last sign of life, and since when the next is waited for
                                  (sequence_deadlines.h) */
    double predicted_s;        /* of reading its prompt */
    double ahead_s;            /* of the same and of all prompts that are read before it */
    double planned_s;          /* of its own, by the slices that it was read in; 0: not known */
};

/* Questions of hpctl compute all of what they ask about. */
static inline bool sequence_may_share(const struct sequence *s)
{
    return s->kind == SEQUENCE_REQUEST || s->kind == SEQUENCE_PREFILL ||
           s->kind == SEQUENCE_REPLICA;
}
/* Tokens that its stages are given to read: its prompt, and of its answer what it is opened anew
 * with. */
static inline uint32_t sequence_given(const struct sequence *s)
{
    return (uint32_t)(s->n_prompt + s->resumed);
}
/* Of these, so many are there before it begins: shared, or brought from elsewhere. */
static inline uint32_t sequence_had(const struct sequence *s)
{
    return s->handed > s->shared ? s->handed : s->shared;
}
/* Whether it takes room as its tokens come. */
static inline bool sequence_grows(const struct sequence *s)
{
    return s->kind != SEQUENCE_LOGITS && s->kind != SEQUENCE_PREFILL &&
           s->kind != SEQUENCE_REPLICA && !s->embeds;
}
/* Whether it can begin anew where it is now: all its tokens are known. */
static inline bool sequence_can_resume(const struct sequence *s)
{
    return sequence_grows(s) && !s->planned && !s->handoff && s->n_ids == s->n_prompt + s->n_output;
}
/* Whether nothing is missing of what it needs to go on elsewhere: what it told is known, or nobody
 * has heard a part of its answer. */
static inline bool sequence_can_recover(const struct sequence *s)
{
    bool whole = s->kind == SEQUENCE_LOGITS || s->embeds;
    return whole ? s->n_logits == 0 : s->n_ids == s->n_prompt + s->n_output;
}
/* Whether it may be what ends agents: such a one goes on alone until it has a token. */
static inline bool sequence_is_suspect(const struct sequence *s)
{
    return s->places > 1;
}
/* Who has the lower priority comes first; of the same, who was asked for first. */
static inline bool sequence_is_before(const struct sequence *a, const struct sequence *b)
{
    return a->priority != b->priority ? a->priority < b->priority : a->request < b->request;
}

/* Whether its prompt has tokens whose scores nobody has been told. */
static inline bool sequence_scores(const struct sequence *s)
{
    return s->prompt_width && s->n_scored + 1 < s->n_prompt;
}

/* The sequence answers nobody, and is counted nowhere. */
static inline bool sequence_is_silent(const struct sequence *s)
{
    return s->kind == SEQUENCE_PREFILL || s->kind == SEQUENCE_MOVE || s->kind == SEQUENCE_REPLICA;
}

/* Its output follows its prompt, as far as it is known without a gap: it may be kept, and begin
 * anew. Where there is no memory there is a gap. */
void sequence_note(struct sequence *s, const uint32_t *ids, size_t n);
/* So many more of its tokens have these scores, said_width each. False: no memory. */
bool sequence_scores_keep(struct sequence *s, const uint8_t *bytes, size_t tokens);

/* ---- the lists of a deployment ---- */

/* At the end of the queue. False: no memory, and it is not in it. */
bool sequence_wait(struct coord *c, struct deployment *d, struct sequence *s);
/* From the queue, with a number of its own; it begins with `shared` tokens of `from` (NULL: anew).
 * False: no memory, and it waits still. */
bool sequence_activate(struct deployment *d, struct sequence *s, const struct kv_holding *from,
                       uint32_t shared);
/* The same of one that runs already, with the number that its stages know. */
bool sequence_adopt(struct deployment *d, struct sequence *s, uint64_t id);
/* From where it runs to the front of the queue, behind older ones that are there for the same
 * reason: it is to be opened anew. */
void sequence_requeue(struct deployment *d, struct sequence *s);
/* Out of the queue, or from where it ran, whose room it gives back; closed. */
void sequence_leave(struct coord *c, struct deployment *d, struct sequence *s);
/* NULL: none such. */
struct sequence *sequence_active(const struct deployment *d, uint64_t id);
struct sequence *sequence_of_request(const struct coord *c, uint64_t request);
struct sequence *sequence_of_stream(const struct coord *c, uint64_t stream);

/* `to` has what `from` had so far and answers its request from now on; `from` answers nobody. */
void sequence_take_over(struct coord *c, struct sequence *to, struct sequence *from);
/* The sequence has nothing to do with another plan's any more. */
void sequence_untie(struct sequence *s);

/* Tokens so far, and the seconds of waiting, reading and writing as far as they have come. */
struct request_usage sequence_usage(const struct coord *c, const struct sequence *s);
void sequence_free(struct sequence *s);
/* A list of those that have left. */
void sequences_free(struct sequence **list);
/* All that wait or run, without a word to anybody. */
void sequences_drop(struct coord *c, struct deployment *d);

#endif
