/* What layers [first, end) need of a device, before anything is on it: the section of the graph,
 * and each weight once in each of its uses with the bytes that it will hold. */
#ifndef HP_AGENT_ENGINE_FORWARD_PLAN_H
#define HP_AGENT_ENGINE_FORWARD_PLAN_H

#include "agent/engine/forward.h"
#include "model/graph/section.h"

/* A weight in one of its uses: a tied embedding is both a table of rows and a matrix. */
struct forward_weight {
    const struct weight *source;
    enum weight_use use;
    uint64_t resident_bytes;
};

struct forward_plan {
    struct graph_section section;
    struct forward_weight *weights; /* [n_weights], in the order of their first use */
    int n_weights;
    int *weight_of; /* [section.n_ops][OP_WEIGHTS_MAX]: row of `weights`, or -1 */
    uint64_t weight_bytes, scratch_bytes;
};

/* Free with forward_plan_free. HP_ENOMEM, HP_EUNSUPPORTED (the device lacks an operator). */
int forward_plan_make(const struct forward_config *c, struct forward_plan *out, struct err *e);
void forward_plan_free(struct forward_plan *p);

#endif
