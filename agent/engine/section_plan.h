/* What layers [first, end) of a graph need of a device, before anything is on it: the section of
 * the graph, and each weight once in each of its uses with the bytes that it will hold. */
#ifndef HP_AGENT_ENGINE_SECTION_PLAN_H
#define HP_AGENT_ENGINE_SECTION_PLAN_H

#include <stdatomic.h>

#include "agent/engine/kv_groups.h"
#include "model/graph/section.h"

struct section_config {
    const struct graph *graph; /* outlives what is made of this */
    int first_layer, end_layer;
    struct device *device;
    const struct kv_groups *kv; /* of the graph and these layers; NULL: no attention. Not kept */
    bool f32;                   /* float32 arithmetic on the weights */
    uint64_t sizes[GRAPH_SEQUENCE_SYMBOLS]; /* the most of each symbol; 0 where all is fixed */
    void (*progress)(void *ctx, uint64_t done_bytes,
                     uint64_t total_bytes); /* device bytes of weights; may be NULL */
    void *progress_ctx;
    const atomic_bool *stop; /* loading ends with HP_ECANCELED when it becomes true; may be NULL;
                                with `later` it outlives the section */
    bool later; /* weights come by section_run_fill, in the operators' order, while these run; then
                   without `progress` */
    bool make_up; /* of weights that are zeros the device gets made up ones (made_up.h) */
    const struct model *model; /* with `later`: of the weights, looked at after each, whether all of
                                  it could be read (model_check); NULL: nobody looks */
};

/* Bytes on the device: of weights, of values and scratch, and of what sequences keep. And what
 * slices are quickest in multiples of, as the backend says of the matrices; 0: nobody knows. */
struct section_need {
    uint64_t weight_bytes, activation_bytes, state_bytes;
    uint32_t row_step;
};
/* All but the state. HP_ENOMEM, HP_EUNSUPPORTED. */
int section_footprint(const struct section_config *c, struct section_need *out, struct err *e);
/* HP_EINVAL where the graph has no such layers. */
int section_layers_check(const struct graph *g, int first, int end, struct err *e);
/* HP_ENOMEM says before anything is loaded how many bytes are missing; `beside_bytes` of the
 * device's memory are spoken for. */
int section_memory_check(const struct section_config *c, const struct section_need *need,
                         uint64_t beside_bytes, struct err *e);

/* A weight in one of its uses: a tied embedding is both a table of rows and a matrix. */
struct section_weight {
    const struct weight *source;
    enum weight_use use;
    bool f32; /* float32 arithmetic on it */
    uint64_t resident_bytes;
};

struct section_plan {
    struct graph_section section;
    struct section_weight *weights; /* [n_weights], in the order of their first use */
    int n_weights;
    int *weight_of; /* [section.n_ops][OP_WEIGHTS_MAX]: row of `weights`, or -1 */
    uint64_t weight_bytes, scratch_bytes;
    uint32_t row_step; /* as section_need has it */
};

/* Free with section_plan_free. HP_ENOMEM, HP_EUNSUPPORTED (the device lacks an operator). */
int section_plan_make(const struct section_config *c, struct section_plan *out, struct err *e);
void section_plan_free(struct section_plan *p);

#endif
