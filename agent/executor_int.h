/* What the files of the executor share, and nobody else includes, from bottom to top:
 *
 *     executor_slots.c       what the device holds, and the loader's thread
 *     executor_results.c     tokens and logits of a batch
 *     executor_batches.c     batches under way, two deep
 *     executor_sequences.c   sequences and samplers
 *     executor_kv.c          keys and values that come and go
 *     executor_spill.c       those that go to the store of what is spilled, and back
 *     executor.c             orders, profiles, the thread and the face
 */
#ifndef HP_AGENT_EXECUTOR_INT_H
#define HP_AGENT_EXECUTOR_INT_H

#include <pthread.h>
#include <stdatomic.h>

#include "agent/engine/forward.h"
#include "agent/engine/grammar_shelf.h"
#include "agent/engine/slot.h"
#include "agent/event_queue.h"
#include "agent/executor.h"
#include "transport/stage_bytes.h"

enum order_kind {
    ORDER_LOAD,
    ORDER_UNLOAD,
    ORDER_OPEN,
    ORDER_GROW,
    ORDER_CLOSE,
    ORDER_RUN,
    ORDER_KV_IMPORT,
    ORDER_KV_EXPORT,
    ORDER_SPILL_OUT,
    ORDER_SPILL_BACK,
    ORDER_PROFILE,
    ORDER_ADOPT,
    ORDER_OVER, /* a batch under way is done: the thread has a look */
    ORDER_QUIT
};

struct load_job;

struct order {
    enum order_kind kind;
    union {
        struct load_job *job; /* LOAD, ADOPT */
        struct executor_run run;
        struct executor_opening sequence; /* UNLOAD, GROW, CLOSE: slot and sequence of it */
        struct executor_kv kv;
        struct executor_spill spill;
        struct executor_profile profile;
    } u;
};

struct own_sampler {
    uint64_t sequence;
    struct sampler *sampler;
};

/* What a slot holds, and what its batches need beside it. */
struct held_slot {
    uint64_t slot;
    enum slot_kind kind;
    struct model *model; /* NULL: of a graph that came without a file */
    struct slot *held;
    int first_layer, end_layer;
    double stands_for, paced_bytes; /* paced alone */
    /* a stage's */
    bool first, last;
    const struct graph *graph;
    uint32_t width_in, width_out; /* elements of a token that cross the borders; 0: none does */
    uint32_t vocabulary, outputs;
    uint32_t row_width; /* of what the head gives: logits, or an encoder's row */
    enum frame_dtype wire;
    struct data_reserve *reserve; /* of outputs; NULL on the last stage */
    uint64_t sampled_bytes;       /* promised to rows that are sampled from, on the last stage */
    uint64_t receiving_bytes;     /* promised to frames on their way here */
    uint64_t reserve_bytes;
    uint64_t counted_bytes;         /* of all three, in outputs_bytes */
    struct grammar_shelf *grammars; /* NULL: none yet */
    struct own_sampler *samplers;   /* by sequence */
    size_t n_samplers, sampler_capacity;
};

/* Rows of logits; they grow to what was asked for most. */
struct logit_rows {
    float *rows;
    size_t capacity;
    bool taken; /* by a batch under way */
};

/* A batch under way. What it picked stays until the place is taken again, by the next batch but
 * one. */
struct flight {
    struct executor *x;
    struct executor_run run;
    struct held_slot *slot; /* NULL: there is none */
    int status;             /* of its submission */
    struct err error;
    bool pending;     /* the device has it, and says when it is done */
    atomic_bool over; /* it has said so */
    uint64_t from_ns;
    struct data_buffer *output; /* not the last stage */
    struct logit_rows *logits;  /* the last */
    bool told;                  /* and somebody wants them all */
    struct logit_rows kept;     /* where those are that somebody wants */
    uint32_t *picked;
    size_t picked_capacity;
    struct score *scores; /* of each run in turn: of what is scored, then of what is picked */
    size_t score_capacity;
    struct logit_rows scored; /* rows that are scored, a few at a time */
    struct forward_scoring scoring;
    struct sample_ask *asks; /* of each row of logits, for the device; [row_room] */
    uint32_t *row_picked;    /* and what it has picked */
    size_t row_room;
    bool sampling; /* the device picks some of the batch's tokens */
    struct forward_sampling device_picks;
};

struct executor {
    struct executor_config config;
    int *cores;
    pthread_t thread;
    bool started;
    struct event_queue orders;
    struct device *device;
    atomic_ullong memory_free;
    atomic_bool quitting;
    struct held_slot **slots; /* [n_slots] */
    size_t n_slots;
    /* batches under way, and what is of the one that ends */
    struct flight flights[SLOT_DEPTH]; /* a ring: the oldest is at `oldest` */
    int oldest, n_flying;
    struct logit_rows sampled[SLOT_DEPTH]; /* rows that are only sampled from */
    struct pick *picks;
    size_t pick_capacity;
    bool looks_ahead; /* a sampler with a grammar came, or has picked, since all were looked at */
    struct scored_row *scored; /* those that are there */
    size_t scored_capacity;
    struct paced_queue queue; /* of the device that this one stands for */
    uint64_t ended_ns;        /* when a batch was last done */
    /* loads: in their order, the first is the loader's */
    struct load_job *jobs;
    pthread_t loader;
    bool loader_started;
    struct event_queue loader_box; /* of struct load_job *; NULL: end */
    pthread_mutex_t fill_lock;     /* of the two below */
    uint64_t fill_slot;            /* the last that the loader began, of those that serve early */
    atomic_bool fill_stop;         /* nobody wants it any more, whatever waits for its weights */
    atomic_ullong outputs_bytes;   /* of all reserves */
    atomic_ullong logits_bytes;    /* of rows that are kept for the next batch */
    bool quit_came;                /* while a profile was being made */
};

/* A slot that is being loaded. The loader's thread has it from the moment when it is handed over
 * until it comes back as an order. */
struct load_job {
    struct load_job *next;
    struct executor *x;
    struct executor_load order;
    struct held_slot *slot; /* NULL: it has been taken over */
    atomic_bool stop;       /* nobody wants it any more */
    uint64_t begun_ns, told_ns;
    int status;
    struct err error;
};

/* ---- executor_slots.c; on the executor's thread where nothing else is said */

/* On any thread. */
void executor_tell(struct executor *x, const struct executor_report *r);
/* What is free is read anew. */
void executor_memory_note(struct executor *x);

/* NULL when there is no such slot. */
struct held_slot *executor_slot_find(struct executor *x, uint64_t slot);
/* What a slot owns, and itself. NULL is nothing. */
void executor_slot_free(struct executor *x, struct held_slot *h);
/* What is in this slot goes, whether it is loaded, being loaded, or waits for that. No batch of it
 * is under way. */
void executor_slot_unload(struct executor *x, uint64_t slot);

/* A copy of the order; NULL when memory ran out. */
struct load_job *executor_job_make(struct executor *x, const struct executor_load *l);
/* Takes a job to the end of those that are loaded one after the other. */
void executor_job_add(struct executor *x, struct load_job *j);
/* What the loader made is held from now on, unless nobody wants it any more; the job has ended. */
void executor_job_adopt(struct executor *x, struct load_job *j);
void executor_job_free(struct load_job *j);

/* A batch that waits for weights holds up the executor's thread, so that no order ends the loading:
 * this does, of that slot, or of any where the executor ends. On any thread. */
void executor_fill_stop(struct executor *x, uint64_t slot);
/* The loader's thread: `ctx` is the executor. */
void *executor_loader_thread(void *ctx);

/* ---- executor_results.c; on the executor's thread */

/* Has one sampler find what its next pick needs; false: all have it. */
bool executor_look_ahead(struct executor *x);
/* NULL when the sequence has none. */
struct own_sampler *executor_sampler_find(struct held_slot *h, uint64_t sequence);
/* Room for the rows of logits that the last stage gives. HP_ENOMEM beyond the agent's limit. */
int executor_logits_take(struct executor *x, struct flight *f, struct err *e);
/* Room for what is scored, and who does it: of the flight, until it is complete; NULL: nothing is.
 * HP_ENOMEM. */
int executor_scoring_take(struct executor *x, struct flight *f, const struct forward_scoring **out,
                          struct err *e);
/* Whether a batch under way has a run of this sequence. */
bool executor_batches_have(const struct executor *x, uint64_t slot, uint64_t sequence);
/* What the device may pick of the batch's tokens; NULL: nothing. HP_ENOMEM. */
int executor_sampling_take(struct executor *x, struct flight *f,
                           const struct forward_sampling **out, struct err *e);
/* Picks a token for each run that wants one, and scores it. */
int executor_tokens_pick(struct executor *x, struct flight *f, struct err *e);
void executor_results_free(struct executor *x);

/* ---- executor_batches.c; on the executor's thread */

/* Puts it on the device; where two are under way already, the older one is completed before. */
void executor_batch_submit(struct executor *x, const struct executor_run *r);
/* Completes what is done, oldest first: posts its frame, and reports. */
void executor_batches_land(struct executor *x);
/* Waits for all that are under way, and completes them. */
void executor_batches_settle(struct executor *x);

/* ---- executor_sequences.c; on the executor's thread */

/* Reports how it went. */
void executor_sequence_begin(struct executor *x, const struct order *o);
/* Of these only slot and sequence count, and `length`: so many of its tokens are kept. */
void executor_sequence_more(struct executor *x, const struct executor_opening *o);
void executor_sequence_end(struct executor *x, const struct executor_opening *o);

/* ---- executor_kv.c; on the executor's thread */

/* Puts a piece into its sequence, in the format that the stage keeps, releases its frame and tells
 * EXECUTOR_KV_IMPORTED, with what the sequence still awaits. */
void executor_kv_take(struct executor *x, const struct executor_kv *k);
/* Copies a piece into a frame, in the format it crosses in, posts it and lets the outlet go.
 * EXECUTOR_KV_EXPORTED is told where that fails, with the range where it may be tried again. */
void executor_kv_give(struct executor *x, const struct executor_kv *k);

/* ---- executor_spill.c; on the executor's thread */

/* Copies the whole pages of a chain into an image, which the store has from then on; what fails is
 * logged, and nothing is spilled. Frees k->pages. */
void executor_spill_give(struct executor *x, const struct executor_spill *k);
/* Puts what was spilled into a sequence that awaits it, lets the image go and tells
 * EXECUTOR_KV_IMPORTED; HP_ESTALE: it has another shape, or is less than is awaited. */
void executor_spill_take(struct executor *x, const struct executor_spill *k);

#endif
