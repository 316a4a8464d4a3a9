/* One batch through layers [first, end) of a graph: the weights, the values between operators, and
 * the loop that runs them. */
#ifndef HP_AGENT_ENGINE_FORWARD_H
#define HP_AGENT_ENGINE_FORWARD_H

#include <stdatomic.h>

#include "agent/engine/kv_groups.h"

enum {
    FORWARD_LOGIT_ROWS = 64
}; /* rows that meet the head together: bounds the memory of logits */

enum { FORWARD_DEPTH = 2 };

struct forward_config {
    const struct graph *graph;        /* outlives the forward */
    const struct model_config *model; /* outlives the forward */
    int first_layer, end_layer;
    struct device *device;
    const struct kv_groups *kv; /* of the graph and these layers; not kept */
    bool f32;
    uint32_t max_rows, max_runs;
    void (*progress)(void *ctx, uint64_t done_bytes,
                     uint64_t total_bytes); /* device bytes of weights; may be NULL */
    void *progress_ctx;
    const atomic_bool *stop; /* loading ends with HP_ECANCELED when it becomes true; may be NULL */
};

/* Bytes on the device: of weights, and of values and scratch. HP_ENOMEM, HP_EUNSUPPORTED. */
int forward_footprint(const struct forward_config *c, uint64_t *weight_bytes,
                      uint64_t *activation_bytes, struct err *e);

struct forward;
/* Positions that the layers know; UINT32_MAX where any will do. */
uint32_t forward_positions(const struct forward *f);
/* What all batches are put on: what touches their sequences' KV in turn with them goes there too.
 */
struct stream *forward_stream(const struct forward *f);
int forward_create(const struct forward_config *c, struct forward **out, struct err *e);
void forward_destroy(struct forward **f);

struct forward_batch {
    const struct attention_run *runs; /* [n_runs] */
    int n_runs;
    uint32_t rows;
    const void *input; /* u32 ids [rows] where the layers begin with the embedding, else f32 [rows,
                          width] */
    const uint32_t
        *logit_rows; /* rows whose logits are wanted; used where the layers end with the head */
    uint32_t n_logit_rows;
    float *output; /* f32 [n_logit_rows, vocabulary] where they do, else [rows, width] */
    const struct kv_group *kv; /* by group */
};

/* Puts the batch on the device's stream, and the event after it: waiting for that gives the batch's
 * failure. Input, output and logit_rows stay as they are until then. At most FORWARD_DEPTH batches
 * are under way. */
void forward_submit(struct forward *f, const struct forward_batch *b, struct event *done);

#endif
