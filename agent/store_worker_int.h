/* What the files of the store's thread share, from bottom to top: store_links.c (to peers),
 * store_answers.c (what peers ask for), store_jobs.c (what is brought here), store_worker.c (the
 * thread and its orders). All of it is the thread's own. */
#ifndef HP_AGENT_STORE_WORKER_INT_H
#define HP_AGENT_STORE_WORKER_INT_H

#include <pthread.h>

#include "agent/chunk_index.h"
#include "agent/event_queue.h"
#include "agent/fetch.h"
#include "agent/store_answers.h"
#include "agent/store_worker.h"

/* What a slot wants of the store; one a slot. */
struct store_job {
    uint64_t slot, ticket;
    struct message_ref *prepare;
    struct store_model *model;
    struct fetch *fetch; /* NULL: done, failed, or only held */
    struct chunk_index index;
    bool use_path;
    uint64_t moved_bytes, told_ns;
    size_t told_wanted;
    struct err lost; /* why the first chunk is wanted that should have been here; code 0: none is */
    uint32_t secret; /* in `batch` of what it asks: a "not here" of whoever was not asked does not
                        count */
    struct store_job *next;
};

struct store_worker {
    struct store_worker_config config;
    struct weight_store *store;
    struct event_queue orders;
    pthread_t thread;
    bool started, quitting;
    struct store_job *jobs;
    struct store_links links;
    struct store_answers answers;
};

/* What the store holds now; also the answer to an order with this ticket. */
void store_models_tell(struct store_worker *w, uint64_t ticket, int status,
                       const struct err *error);

/* Holds the message (a stage_prepare). False: no memory for a job. */
bool store_job_start(struct store_worker *w, uint64_t slot, uint64_t ticket,
                     struct message_ref *prepare);
void store_job_drop(struct store_worker *w, uint64_t slot);
/* Some work on a job that fetches; true when there may be more to do at once. */
bool store_job_step(struct store_worker *w, struct store_job *j);
/* A chunk that came, or word that it is not where it was asked for. */
void store_chunk_in(struct store_worker *w, const struct frame_header *h,
                    const struct data_buffer *payload);
void store_job_link_down(struct store_worker *w, uint64_t number);

#endif
