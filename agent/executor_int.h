/* What the files of the executor share, and nobody else includes, from bottom to top:
 *
 *     executor_direct.c      memory of the device that frames go and come by
 *     executor_slots.c       what the device holds
 *     executor_loads.c       what comes there, and the loader's thread
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
#include "agent/engine/look_ahead.h"
#include "agent/engine/slot.h"
#include "agent/event_queue.h"
#include "agent/executor.h"
#include "transport/stage_bytes.h"

enum order_kind {
    ORDER_LOAD,
    ORDER_UNLOAD,
    ORDER_EXPECT,
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
    ORDER_OVER, /* a batch under way, or a vocabulary's tree, is done: the thread has a look */
    ORDER_QUIT
};

struct load_job;

struct order {
    enum order_kind kind;
    union {
        struct load_job *job; /* LOAD, ADOPT */
        struct executor_run run;
        struct executor_opening sequence; /* UNLOAD, GROW, CLOSE: slot and sequence of it; EXPECT:
                                             the session as the sequence */
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
    /* paced alone */
    double stands_for, paced_bytes;
    struct profile paced_layers; /* of a model in parts; without layers: the profile's own */
    struct profile_part hop;     /* what goes on, of which layer of the profile */
    /* a stage's */
    bool first, last;
    const struct graph *graph;
    struct frame_row row_in, row_out; /* of a token, that cross the borders; 0: none does */
    uint32_t vocabulary, outputs;
    uint32_t row_width; /* of what the head gives: logits, or an encoder's row */
    enum frame_dtype wire;
    struct data_reserve *reserve; /* of outputs; NULL on the last stage */
    struct direct_rooms *direct;  /* NULL: rows go and come by the host */
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
    uint32_t *first_rows; /* of each run, in an input in the device's memory; [first_room] */
    size_t first_room;
    struct forward_device_rows from, to; /* of these */
    struct sample_ask *asks;             /* of each row of logits, for the device; [row_room] */
    uint32_t *row_picked;                /* and what it has picked */
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
    struct look_ahead *ahead; /* finds what samplers with grammars need, between their picks */
    struct order *waiting;    /* openings for whose grammars the vocabulary's tree is being made */
    size_t n_waiting, waiting_room;
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
    struct direct_rooms *ending;   /* of slots that are gone; see executor_direct_reap */
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

/* On any thread: the executor's has a look (ORDER_OVER). `ctx` is the executor. */
static inline void executor_look(void *ctx)
{
    struct executor *x = ctx;
    struct order look = {.kind = ORDER_OVER};
    event_queue_put_as(&x->orders, ORDER_OVER, &look); /* without a place one is there already */
}

/* ---- executor_direct.c; on the executor's thread where nothing else is said */

/* Memory of the device for a stage's large frames, of what is free beside its weights; where there
 * is none they go by the host. On the loader's thread. */
void executor_direct_open(struct executor *x, struct held_slot *h, const struct executor_load *l);
/* The slot goes: what the data channel has of its memory is freed once that is back. */
void executor_direct_close(struct executor *x, struct held_slot *h);
/* Frames for the slot (NULL: nothing) come with this session. */
void executor_direct_expect(struct executor *x, const struct held_slot *h, uint64_t session);
/* Frees what is back. False: some is not. */
bool executor_direct_reap(struct executor *x);
/* A buffer for a batch's frame from the device's memory; NULL: it goes by the host. */
struct data_buffer *executor_direct_output(const struct flight *f, size_t head, size_t bytes);
/* Rows behind a buffer's head. */
struct forward_device_rows executor_direct_rows(const struct data_buffer *b, uint64_t rows);

/* ---- executor_slots.c; on the executor's thread where nothing else is said */

/* On any thread. */
void executor_tell(struct executor *x, const struct executor_report *r);
/* What is free is read anew. */
void executor_memory_note(struct executor *x);
/* What times a paced stage (paced_divide); NULL: the profile's own. */
const struct profile *executor_paced_layers(const struct held_slot *h);

/* NULL when there is no such slot. */
struct held_slot *executor_slot_find(struct executor *x, uint64_t slot);
/* Openings of a slot that wait, of one sequence or (0) of all, are forgotten. False: there was
 * none. */
bool executor_waiting_drop(struct executor *x, uint64_t slot, uint64_t sequence);
/* What a slot owns, and itself. NULL is nothing. */
void executor_slot_free(struct executor *x, struct held_slot *h);
/* What this slot holds goes, if anything. No batch of it is under way. */
void executor_slot_drop(struct executor *x, uint64_t slot);

/* ---- executor_loads.c; on the executor's thread where nothing else is said */

/* A copy of the order; NULL when memory ran out. */
struct load_job *executor_job_make(struct executor *x, const struct executor_load *l);
/* Takes a job to the end of those that are loaded one after the other. */
void executor_job_add(struct executor *x, struct load_job *j);
/* What the loader made is held from now on, unless nobody wants it any more; the job has ended. */
void executor_job_adopt(struct executor *x, struct load_job *j);
void executor_job_free(struct load_job *j);
/* What is in this slot goes, whether it is loaded, being loaded, or waits for that. No batch of it
 * is under way. */
void executor_slot_unload(struct executor *x, uint64_t slot);
/* As what rows cross, as the model has it. */
enum dtype executor_wire_dtype(enum frame_dtype wire);

/* A batch that waits for weights holds up the executor's thread, so that no order ends the loading:
 * this does, of that slot, or of any where the executor ends. On any thread. */
void executor_fill_stop(struct executor *x, uint64_t slot);
/* The loader's thread: `ctx` is the executor. */
void *executor_loader_thread(void *ctx);

/* ---- executor_results.c; on the executor's thread */

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

/* Reports how it went; later where the opening waits for its grammar's vocabulary. */
void executor_sequence_begin(struct executor *x, const struct order *o);
/* Sequences whose opening waits for nothing any more begin. */
void executor_waiting_begin(struct executor *x);
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
