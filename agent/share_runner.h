/* A share of a device: a thread, with others that help it on cores of its own, that holds some
 * blocks of a network and runs one batch after the other, each at the time that the coordinator has
 * reserved for it, and sends what comes out on to the next share of the batch's way. Everything
 * that a batch needs to go on travels with it (transport/frame_tensors.h). Where its order says so
 * the network is measured there instead, and no batch comes.
 *
 * Any thread may call; nothing blocks but share_runner_destroy. */
#ifndef HP_AGENT_SHARE_RUNNER_H
#define HP_AGENT_SHARE_RUNNER_H

#include "agent/share_measure.h"
#include "agent/share_peers.h"
#include "transport/message_ref.h"

struct share_runner;

struct share_report {
    uint64_t slot, ticket;
    int status; /* HP_PENDING: weights are in, the warm-up goes on */
    const struct err *error;
};

struct share_runner_config {
    uint64_t slot, ticket;
    struct message_ref *prepare; /* a stage_prepare with a share; held */
    const char *path;            /* of the model in the store */
    const int *cores;            /* of the box, [n_cores]; 0: any. Of the whole device where it is
                                    measured */
    int n_cores;
    int n_threads;                 /* that compute; of the whole device where it is measured */
    struct device *device;         /* that computes, and outlives it; NULL: these threads */
    uint64_t memory_bytes;         /* that its network and values may take */
    struct network_memory *memory; /* of all networks of the device, outlives it; NULL: nobody
                                      counts */
    uint64_t queue_bytes;          /* of batches that wait */
    struct data_endpoint *data;    /* outlives it */
    const struct paced *paced;     /* NULL: it stands for nothing */
    /* The end of the load, and before it that the warm-up begins. */
    void (*loaded)(void *ctx, const struct share_report *r);
    /* A batch came and will have no result. Not under any lock of the runner's. */
    void (*failed)(void *ctx, const struct frame_header *h, uint32_t share, int code,
                   const char *text);
    /* Of a share that is only measured, on its thread: how it goes, and what came of it
     * (hp-profile/1 of the network's layers, "" where it failed). */
    void (*measures)(void *ctx, uint64_t id, const struct share_measuring *how);
    void (*measured)(void *ctx, uint64_t id, const char *profile, const struct err *e);
    const char *kind; /* of the device */
    void *ctx;
};

/* Begins to load. HP_ENOMEM: no thread. */
int share_runner_create(const struct share_runner_config *c, struct share_runner **out,
                        struct err *e);
/* The run that goes on ends behind its node, what waits is dropped. share_runner_has_ended says
 * when share_runner_destroy does not wait any more. */
void share_runner_stop(struct share_runner *r);
bool share_runner_has_ended(const struct share_runner *r);
void share_runner_destroy(struct share_runner **r);

/* Where batches go from now on; holds the table (NULL: nowhere). */
void share_runner_connect(struct share_runner *r, struct share_peers *peers);
/* Whether frames of this plan and share are for it. */
bool share_runner_is(const struct share_runner *r, const struct frame_header *h);
uint64_t share_runner_session(const struct share_runner *r);
/* A batch, which came at `arrived_ns`. Takes the payload; whatever is wrong with it is told to
 * `failed`. */
void share_runner_batch(struct share_runner *r, const struct frame_header *h,
                        struct data_buffer *payload, uint64_t arrived_ns);

struct share_runner_view {
    bool ready, running;
    uint64_t queued, done;
    double busy_s, planned_s;
    uint64_t input_bytes; /* of a frame with its largest batch; once it is ready */
};
struct share_runner_view share_runner_view(struct share_runner *r);

#endif
