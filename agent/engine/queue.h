/* Which batch a stage runs next. One queue a stage and generation: the sequences that are open on
 * it, on the first stage what is left of their prompts and the tokens that came back, on the others
 * the frames that arrived. It decides and does no I/O; the core (agent_core.h) carries out.
 *
 * The first stage makes the batches: decode tokens of at most ceil(decoding / stages) sequences, so
 * that all stages stay busy, and between two of those one slice of a prompt; prompts take turns
 * slice by slice. Short slices of at most ceil(prompts / stages) prompts go together, up to
 * QUEUE_RIDE_TOKENS in all (chunked prefill: Agrawal et al., Sarathi-Serve, OSDI 2024). Where it is
 * the only stage, slices that are not longer than that go into one batch with the decode tokens
 * that wait. It has at most 2 * stages + 1 batches in flight, of these at most 2 * stages slices,
 * and `stages` while anybody answers (back-pressure): tokens have room beside all slices there may
 * be. A flight ends when its batch has been through, whoever was closed meanwhile, or when its time
 * is up. The other stages take frames whose runs are *due*: their sequence is open and its KV ends
 * where the run begins; among them decode batches and slices take turns, each kind in the order of
 * its batch numbers. A decode token may have guesses of the next ones with it; those that were
 * wrong are taken back by the sequence's next run, which begins before them. A run beyond what is
 * reserved for its sequence is not due. Runs of closed sequences are dropped from their batch; what
 * cannot be due yet waits, within bounds. A batch of which nothing is left goes on at once
 * (queue_dead_take), unless its frame came twice.
 *
 * A batch counts as run once it is handed out: those that follow it may be handed out before it is
 * done, since they run in order. */
#ifndef HP_AGENT_ENGINE_QUEUE_H
#define HP_AGENT_ENGINE_QUEUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/batch.h"
#include "common/status.h"
#include "transport/frame.h" /* FRAME_MAX_RUNS */

enum { QUEUE_MAX_STAGES = 4096, QUEUE_EARLY_CLOSES = 64 };
/* Slices of at most so many tokens take little longer than a decode step, and beyond the first
 * stage take their turns with those. */
enum { QUEUE_SHORT_TOKENS = 16 };
/* Slices of at most so many tokens cost less together with decode tokens than apart: on a CPU one
 * of 16 and a token take 0.79 of the time of both, one of 64 0.92, one of 128 0.96, one of 256 as
 * much (bench/results/streams.txt). */
enum { QUEUE_RIDE_TOKENS = 128 };

struct queue_config {
    bool first, last;
    uint32_t n_stages, max_batch_tokens, max_sequences;
    uint32_t beside_tokens;   /* of a slice while anything decodes; 0: any */
    uint64_t hold_limit_ns;   /* frames that wait for so long without progress are given up */
    uint64_t flight_limit_ns; /* first stage: a batch that left is waited for so long, and ten times
                                 what it should take */
    uint64_t flight_linger_ns; /* one whose sequences are all closed is waited for so long */
};

/* One sequence on this stage. Plain data; only the queue changes it, but for `owner`. */
struct queue_sequence {
    uint64_t id;
    void *owner; /* the caller's own */
    bool ready;  /* the stage has room for it */
    bool all_logits;
    uint32_t said_width, scored_width; /* of batch_run; scored_width: of the prompt's tokens */
    uint32_t length;                   /* tokens in the KV cache here */
    uint32_t certain;                  /* of these: tokens that are no guesses */
    uint32_t reserved; /* tokens that it may have there now; what is beyond waits. 0: any */
    /* the first stage's part */
    const uint32_t *prompt, *slices;
    uint32_t n_prompt, n_slices, next_slice;
    uint32_t slice_left; /* of a slice that was cut */
    uint32_t token;      /* to run next, when has_token */
    uint32_t awaited;    /* the batch that its next token comes from, when awaiting */
    bool has_token, awaiting, finished;
    uint32_t drafts[BATCH_MAX_DRAFTS]; /* guesses of what follows `token`, to be verified with it */
    uint32_t n_drafts;
    uint64_t token_order;
};

struct queue;

/* HP_EINVAL, HP_ENOMEM. */
int queue_create(const struct queue_config *c, struct queue **out, struct err *e);
/* Hands buffers of waiting frames to `release`; owners of sequences must have been taken back. */
void queue_destroy(struct queue **q, void (*release)(void *ctx, void *buffer), void *ctx);

/* A sequence begins, with `length` tokens of its prompt in the KV cache. `prompt` and `slices`
 * (first stage) outlive it. HP_EEXIST when it is open, HP_ECANCELED when it was closed before it
 * was opened, HP_ESTALE when its number is not above all that were opened, HP_EBUSY when
 * max_sequences are open, HP_EINVAL when the slices do not add up to the rest of the prompt. */
int queue_sequence_open(struct queue *q, const struct queue_sequence *s, struct err *e);
void queue_sequence_ready(struct queue *q, uint64_t id);
/* NULL when it is not open. Valid until the next open or close. */
struct queue_sequence *queue_sequence_find(const struct queue *q, uint64_t id);
/* What it is about is dropped. Closing one that has not come yet makes its opening fail. Returns
 * its owner, NULL when it was not open. */
void *queue_sequence_close(struct queue *q, uint64_t id, uint64_t now_ns);
/* Numbers up to this one are of before: frames for those of them that are not open are dropped. */
void queue_numbers_begin(struct queue *q, uint64_t highest);
/* The i-th open sequence in order of id, or NULL. */
struct queue_sequence *queue_sequence_at(const struct queue *q, size_t i);

/* A frame came (not on the first stage). 0: the queue has `buffer` now. HP_EBUSY: no room;
 * HP_EINVAL: more tokens than a batch may have; HP_ENOMEM. */
int queue_frame_add(struct queue *q, uint32_t number, const struct batch_run *runs, uint32_t n_runs,
                    uint32_t n_tokens, void *buffer, uint64_t now_ns);

/* What runs next, or goes on without runs (n_runs 0): false when there is nothing. *dropped counts
 * runs that were taken out. HP_ENOMEM never shows: what cannot be allocated waits. From now on KV
 * is taken to have grown, and tokens are awaited. */
bool queue_next(struct queue *q, struct batch *out, uint64_t *dropped);
/* From now on only batches of at most so many tokens are handed out (UINT32_MAX: any). */
void queue_narrow(struct queue *q, uint32_t most_tokens);
/* Takes out a batch of which nothing is left since its sequences were closed; it goes on without
 * runs (n_runs 0). False when there is none. */
bool queue_dead_take(struct queue *q, struct batch *out, uint64_t *dropped);
/* The batch ran, or failed: then the caller closes its sequences. First stage: it leaves now, and
 * is expected back in `expected_s`. */
void queue_done(struct queue *q, const struct batch *b, uint64_t now_ns, double expected_s);

/* First stage: the batch has been through. Unknown numbers are fine. */
void queue_returned(struct queue *q, uint32_t number, uint64_t now_ns);
/* What is away, and frames that wait, count as if they had begun to wait now: the stages may have
 * been waiting for something else. */
void queue_deadlines_renew(struct queue *q, uint64_t now_ns);
/* First stage: nothing that is on its way comes back (a link broke). */
void queue_flights_clear(struct queue *q);

/* A batch whose time is up. */
struct queue_overdue {
    uint32_t number, n_tokens;
    double away_s;         /* since it left */
    bool heard;            /* anything ever came back */
    uint32_t heard_number; /* what came back last */
    double heard_s;        /* so long ago */
    const uint64_t
        *live; /* [n_live]: its sequences that are open; holds until the next queue_next */
    uint32_t n_live;
};
/* First stage: takes out a flight whose time is up; the caller closes its sequences. False when
 * there is none. */
bool queue_flight_expire(struct queue *q, uint64_t now_ns, struct queue_overdue *out);
/* First stage: the next token of a sequence, from batch `number`, or a guess of what follows the
 * one that was said last. False when the sequence does not wait for one from it (closed, or said
 * twice). */
bool queue_token(struct queue *q, uint32_t number, const struct frame_token *t);

/* What waited too long while nothing else moved: writes up to `max` sequences to `ids` and returns
 * how many. The caller closes them, which drops their runs. Call it while no batch of this queue
 * runs. */
size_t queue_expire(struct queue *q, uint64_t now_ns, uint64_t *ids, size_t max);
/* When queue_expire or queue_flight_expire is to be called next; UINT64_MAX: no need. */
uint64_t queue_deadline_ns(const struct queue *q);

struct queue_view {
    uint32_t sequences, frames, in_flight;
    uint64_t kv_tokens, highest;
};
struct queue_view queue_view(const struct queue *q);

#endif
