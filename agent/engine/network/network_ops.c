/* Steps that are a primitive of oneDNN's. */
#include <stdlib.h>
#include <string.h>

#include "agent/engine/network/network_int.h"

struct op_step {
    struct nn *nn;
    struct nn_op *op;
    int n_views;
    struct network_view views[NN_OTHER + NN_POSTS]; /* by slot */
};

static void op_free(void *data)
{
    struct op_step *s = data;
    nn_op_free(&s->op);
    free(s);
}

static int op_run(struct network_plan *p, const struct network_step *s, struct err *e)
{
    const struct op_step *o = s->data;
    return nn_op_run(p->nn, o->op, e);
}

int network_op_add(struct network_plan *p, struct nn_op *op, int node, const char *name,
                   const struct network_view *views, int n_views, struct err *e)
{
    struct op_step *s = calloc(1, sizeof *s);
    if (!s) {
        nn_op_free(&op);
        return err_no_memory(e, "a step");
    }
    s->op = op;
    s->n_views = n_views;
    memcpy(s->views, views, (size_t)n_views * sizeof *views);
    for (int i = 0; i < n_views; i++)
        if (views[i].root >= 0)
            network_root_use(p, views[i].root);
    struct network_step step = {
        .run = op_run, .free = op_free, .data = s, .name = name, .node = node};
    return network_step_add(p, &step, e);
}

bool network_step_is_op(const struct network_step *s, size_t *scratch_bytes)
{
    const struct op_step *o = s->data;
    if (s->run != op_run)
        return false;
    *scratch_bytes = nn_op_scratch_bytes(o->op);
    return true;
}

bool network_step_is_cut(const struct network_step *s)
{
    const struct op_step *o = s->data;
    return s->run == op_run && nn_op_pieces(o->op) > 1;
}

void network_op_bind(struct network_plan *p, const struct network_step *s, void *scratch)
{
    const struct op_step *o = s->data;
    if (s->run != op_run)
        return;
    for (int i = 0; i < o->n_views; i++)
        if (o->views[i].root >= 0)
            nn_op_bind(o->op, i, network_in(p, &o->views[i]));
    nn_op_bind(o->op, NN_SCRATCH, scratch);
}

/* NULL, and the failure. */
static void *packed_make(struct network_plan *p, const struct nn_op *op, const float *weights,
                         struct err *e)
{
    size_t bytes = (nn_op_weight_bytes(op) + 63) / 64 * 64;
    void *packed = aligned_alloc(64, bytes ? bytes : 64);
    if (!packed)
        err_no_memory(e, "packed weights");
    else if (nn_op_pack(p->nn, op, weights, packed, e) == 0)
        return packed;
    free(packed);
    return NULL;
}

int network_weights_pack(struct network_plan *p, const struct nn_op *op, const float *weights,
                         struct network_view *out, struct err *e)
{
    void *packed = packed_make(p, op, weights, e);
    if (!packed)
        return e->code;
    *out =
        (struct network_view){.root = network_root_weights(p, packed, nn_op_weight_bytes(op), e)};
    return out->root < 0 ? out->root : 0;
}

int network_weights_later(struct network_plan *p, const struct nn_op *op, const float *weights,
                          struct network_view *out, struct err *e)
{
    *out = (struct network_view){.root = network_root_fixed(p, weights, false, e)};
    if (out->root < 0)
        return out->root;
    p->roots[out->root].later = op;
    p->roots[out->root].unpacked = weights;
    return 0;
}

int network_weights_ready(struct network_plan *p, int first, int end, struct err *e)
{
    for (int i = 0; i < p->n_roots; i++) {
        struct network_root *r = &p->roots[i];
        if (!r->later || r->last < first || r->first >= end)
            continue;
        void *packed = packed_make(p, r->later, r->unpacked, e);
        const void *kept =
            packed ? network_weights_keep(p, packed, nn_op_weight_bytes(r->later), e) : NULL;
        if (!kept)
            return e->code;
        r->fixed = kept;
        r->owns = !p->facts->shelf;
        r->later = NULL;
    }
    return 0;
}
