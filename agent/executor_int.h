/* What the files of the executor share, and nobody else includes, from bottom to top:
 *
 *     executor_stages.c      the stages that the device holds, and the loader's thread
 *     executor_sequences.c   sequences and samplers
 *     executor_batches.c     a batch through a stage
 *     executor.c             orders, profiles, the thread and the face
 */
#ifndef HP_AGENT_EXECUTOR_INT_H
#define HP_AGENT_EXECUTOR_INT_H

#include <pthread.h>
#include <stdatomic.h>

#include "agent/engine/stage.h"
#include "agent/event_queue.h"
#include "agent/executor.h"

enum order_kind {
    ORDER_LOAD,
    ORDER_UNLOAD,
    ORDER_OPEN,
    ORDER_CLOSE,
    ORDER_RUN,
    ORDER_PROFILE,
    ORDER_ADOPT,
    ORDER_QUIT
};

struct load_job;

struct order {
    enum order_kind kind;
    union {
        struct load_job *job; /* LOAD, ADOPT */
        struct executor_run run;
        struct {
            uint64_t slot, ticket, sequence;
            uint32_t kv_tokens;
            struct sampler *sampler;
        } sequence;
        struct executor_profile profile;
    } u;
};

struct own_sampler {
    uint64_t sequence;
    struct sampler *sampler;
};

struct held_stage {
    uint64_t slot;
    struct model *model;
    struct stage *stage;
    int first_layer, end_layer;
    double stands_for, paced_bytes; /* paced alone */
    uint32_t width, vocabulary, outputs;
    enum frame_dtype wire;
    /* Where rows cross in less than float32, a batch's before they go and after they came: of
     * max_batch_tokens rows; NULL where none go, or come. */
    float *wide_out, *wide_in;
    uint64_t wide_bytes;          /* of both */
    struct data_reserve *reserve; /* of outputs; NULL on the last stage */
    uint64_t reserve_bytes;
    struct own_sampler *samplers; /* by sequence */
    size_t n_samplers, sampler_capacity;
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
    struct held_stage *stages;
    size_t n_stages;
    /* of the batch that runs */
    struct paced_queue queue; /* of the device that this one stands for */
    struct results { /* of the last run and of the one before, which the loop may still read */
        uint32_t *picked;
        size_t picked_capacity;
        float *logits;
        size_t logit_capacity;
    } results[2], *now;
    struct pick *picks;
    size_t pick_capacity;
    float *sampled; /* rows that are only sampled from */
    size_t sampled_capacity;
    /* loads: in their order, the first is the loader's */
    struct load_job *jobs;
    pthread_t loader;
    bool loader_started;
    struct event_queue loader_box; /* of struct load_job *; NULL: end */
    atomic_ullong outputs_bytes;   /* of all reserves */
    atomic_ullong logits_bytes;    /* of rows that are kept for the next batch */
    bool quit_came;                /* while a profile was being made */
    uint64_t ran_ns;               /* when a batch last ran */
};

/* A stage that is being loaded. The loader's thread has it from the moment when it is handed over
 * until it comes back as an order. */
struct load_job {
    struct load_job *next;
    struct executor *x;
    struct executor_load order;
    struct held_stage stage;
    atomic_bool stop; /* nobody wants it any more */
    uint64_t begun_ns, told_ns;
    int status;
    struct err error;
};

/* ---- executor_stages.c; on the executor's thread where nothing else is said */

/* On any thread. */
void executor_tell(struct executor *x, const struct executor_report *r);
/* What is free is read anew. */
void executor_memory_note(struct executor *x);

/* NULL when there is no such stage. */
struct held_stage *executor_stage_find(struct executor *x, uint64_t slot);
/* What a stage owns; its place is the caller's. */
void executor_stage_free(struct executor *x, struct held_stage *h);
/* The stage of this slot goes, whether it is loaded, being loaded, or waits for that. */
void executor_stage_unload(struct executor *x, uint64_t slot);

/* Takes a job to the end of those that are loaded one after the other. */
void executor_job_add(struct executor *x, struct load_job *j);
/* What the loader made becomes a stage, unless nobody wants it any more; the job has ended. */
void executor_job_adopt(struct executor *x, struct load_job *j);
void executor_job_free(struct load_job *j);

/* The loader's thread: `ctx` is the executor. */
void *executor_loader_thread(void *ctx);

/* ---- executor_sequences.c; on the executor's thread */

/* Reports how it went. */
void executor_sequence_begin(struct executor *x, const struct order *o);
void executor_sequence_end(struct executor *x, uint64_t slot, uint64_t sequence);
/* NULL when the sequence has none. */
struct own_sampler *executor_sampler_find(struct held_stage *h, uint64_t sequence);

/* ---- executor_batches.c; on the executor's thread */

/* Runs it, posts its frame, and reports. */
void executor_batch_run(struct executor *x, const struct executor_run *r);

#endif
