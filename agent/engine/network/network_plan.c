/* Making plans: sizes node by node, steps, memory. */
#include "agent/engine/network/network_plan.h"

#include <stdlib.h>
#include <string.h>

#include "agent/engine/network/network_int.h"
#include "model/onnx/call.h"

/* ---- who lowers what ---- */

static const struct {
    const char *op;
    network_lower_fn *lower;
} lowerings[] = {
    {"Abs", network_lower_unary},
    {"Add", network_lower_binary},
    {"AveragePool", network_lower_pool},
    {"BatchNormalization", network_lower_batch_norm},
    {"Causal", network_lower_causal},
    {"Clip", network_lower_unary},
    {"Concat", network_lower_concat},
    {"Conv", network_lower_conv},
    {"ConvTranspose", network_lower_conv},
    {"Div", network_lower_binary},
    {"Dropout", network_lower_reshape},
    {"Elu", network_lower_unary},
    {"Exp", network_lower_unary},
    {"Flatten", network_lower_reshape},
    {"Gather", network_lower_gather},
    {"Gelu", network_lower_unary},
    {"Gemm", network_lower_gemm},
    {"GlobalAveragePool", network_lower_global_pool},
    {"GlobalMaxPool", network_lower_global_pool},
    {"HardSigmoid", network_lower_unary},
    {"HardSwish", network_lower_unary},
    {"Identity", network_lower_reshape},
    {"InstanceNormalization", network_lower_instance_norm},
    {"LayerNormalization", network_lower_layer_norm},
    {"LeakyRelu", network_lower_unary},
    {"LogSoftmax", network_lower_softmax},
    {"MatMul", network_lower_matmul},
    {"Max", network_lower_binary},
    {"MaxPool", network_lower_pool},
    {"Min", network_lower_binary},
    {"Mish", network_lower_unary},
    {"Mul", network_lower_binary},
    {"Neg", network_lower_unary},
    {"PRelu", network_lower_binary},
    {"Pad", network_lower_pad},
    {"Pow", network_lower_pow},
    {"Reciprocal", network_lower_unary},
    {"ReduceMax", network_lower_reduce},
    {"ReduceMean", network_lower_reduce},
    {"ReduceSum", network_lower_reduce},
    {"Relu", network_lower_unary},
    {"Reshape", network_lower_reshape},
    {"Resize", network_lower_resize},
    {"Rows", network_lower_rows},
    {"Scores", network_lower_scores},
    {"Sigmoid", network_lower_unary},
    {"Slice", network_lower_slice},
    {"Softmax", network_lower_softmax},
    {"Softplus", network_lower_unary},
    {"Split", network_lower_split},
    {"Sqrt", network_lower_unary},
    {"Squeeze", network_lower_reshape},
    {"Sub", network_lower_binary},
    {"Sum", network_lower_binary},
    {"Tanh", network_lower_unary},
    {"Transpose", network_lower_transpose},
    {"Unsqueeze", network_lower_reshape},
    {"Upsample", network_lower_resize},
};

static int node_lower(struct network_plan *p, int node, const struct onnx_call *c, struct err *e)
{
    int rc = 0;
    for (size_t i = 0; i < sizeof lowerings / sizeof *lowerings && rc == 0; i++)
        if (strcmp(lowerings[i].op, c->node->op) == 0)
            rc = lowerings[i].lower(p, node, c, e);
    return rc == 0 ? network_lower_reference(p, node, e) : rc;
}

/* ---- one node ---- */

/* A node's inputs; those that are not known get zeros to be looked at. */
static bool inputs_look(struct network_plan *p, const struct onnx_node *k, struct ndarray *arrays,
                        const struct ndarray **in)
{
    bool known = true, sizes_alone = strcmp(k->op, "Shape") == 0 || strcmp(k->op, "Size") == 0;
    for (int i = 0; i < k->n_inputs; i++) {
        if (k->inputs[i] < 0)
            continue;
        const struct network_value *v = &p->values[k->inputs[i]];
        arrays[i] = v->array;
        arrays[i].owned = false;
        if (!v->is_known)
            arrays[i].data = p->zeros;
        known &= v->is_known;
        in[i] = &arrays[i];
    }
    return known || sizes_alone;
}

/* Room for zeros as large as a value. */
static int zeros_grow(struct network_plan *p, uint64_t bytes, struct err *e)
{
    if (bytes <= p->zeros_bytes)
        return 0;
    free(p->zeros);
    p->zeros_bytes = bytes;
    p->zeros = calloc(1, p->zeros_bytes);
    if (p->zeros)
        return 0;
    p->zeros_bytes = 0;
    return err_no_memory(e, "a plan");
}

static int outputs_note(struct network_plan *p, const struct onnx_node *k, struct ndarray *made,
                        bool known, struct err *e)
{
    int rc = 0;
    for (int i = 0; i < k->n_outputs; i++) {
        if (k->outputs[i] < 0) {
            ndarray_free(&made[i]);
            continue;
        }
        struct network_value *v = &p->values[k->outputs[i]];
        v->array = made[i];
        v->is_shaped = true;
        v->is_known = known;
        if (!known && rc == 0)
            rc = made[i].count == 0 ? err_set(e, HP_EUNSUPPORTED, "a value of no elements")
                                    : zeros_grow(p, ndarray_bytes(&made[i]), e);
    }
    return rc;
}

static int node_plan(struct network_plan *p, int node, struct ndarray *arrays,
                     const struct ndarray **in, struct ndarray *made, struct err *e)
{
    const struct onnx_node *k = &p->o->nodes[node];
    bool known = inputs_look(p, k, arrays, in);
    int rc = network_node_run(p->network, node, in, !known, made, e);
    rc = rc < 0 ? rc : outputs_note(p, k, made, known, e);
    if (rc < 0 || known)
        return rc;
    inputs_look(p, k, arrays, in); /* the zeros may have moved */
    struct onnx_call c = network_call(p->network, node, in, e);
    rc = node_lower(p, node, &c, e);
    return rc < 0 ? rc : 0;
}

static int nodes_plan(struct network_plan *p, struct err *e)
{
    int most_in = 1, most_out = 1, rc = 0;
    for (int i = 0; i < p->o->n_nodes; i++) {
        most_in = p->o->nodes[i].n_inputs > most_in ? p->o->nodes[i].n_inputs : most_in;
        most_out = p->o->nodes[i].n_outputs > most_out ? p->o->nodes[i].n_outputs : most_out;
    }
    struct ndarray *arrays = calloc((size_t)most_in, sizeof *arrays);
    struct ndarray *made = calloc((size_t)most_out, sizeof *made);
    const struct ndarray **in = calloc((size_t)most_in, sizeof *in);
    if (!arrays || !made || !in)
        rc = err_no_memory(e, "a plan");
    for (int i = 0; i < p->o->n_nodes && rc == 0; i++) {
        if (p->is_done[i] || network_node_is_folded(p->network, i))
            continue;
        memset(arrays, 0, (size_t)most_in * sizeof *arrays);
        memset(made, 0, (size_t)most_out * sizeof *made);
        memset(in, 0, (size_t)most_in * sizeof *in);
        rc = node_plan(p, i, arrays, in, made, e);
    }
    free(arrays);
    free(made);
    free(in);
    return rc;
}

/* ---- all of it ---- */

static int inputs_plan(struct network_plan *p, const struct ndarray *const *inputs, struct err *e)
{
    for (int i = 0; i < p->o->n_inputs; i++) {
        struct network_value *v = &p->values[p->o->inputs[i]];
        if (inputs[i]->count == 0)
            return err_set(e, HP_EUNSUPPORTED, "an input of no elements");
        struct nn_view dense = network_sizes(inputs[i]);
        struct network_view view;
        v->array = *inputs[i];
        v->array.data = NULL;
        v->array.owned = false;
        v->is_shaped = true;
        int rc = zeros_grow(p, ndarray_bytes(inputs[i]), e);
        rc = rc < 0 ? rc : network_make_view(p, p->o->inputs[i], &dense, &view, e);
        if (rc < 0)
            return rc;
        p->in_roots[i] = view.root;
        p->roots[view.root].first = p->roots[view.root].last = 0;
    }
    return 0;
}

/* Outputs lie in row-major order, and to the end. */
static int outputs_plan(struct network_plan *p, struct err *e)
{
    int rc = 0;
    for (int i = 0; i < p->o->n_outputs && rc == 0; i++) {
        struct network_value *v = &p->values[p->o->outputs[i]];
        struct network_view view;
        if (v->is_known)
            continue;
        if (!v->has_view)
            return err_set(e, HP_EUNSUPPORTED, "an output that nobody makes");
        rc = network_need(p, p->o->outputs[i], LAYOUT_PLAIN, &view, e);
        if (rc == 0)
            p->roots[view.root].last = INT_MAX;
    }
    return rc;
}

static void constants_note(struct network_plan *p)
{
    for (int v = 0; v < p->o->n_values; v++) {
        const struct ndarray *a = network_constant(p->network, v);
        if (!a)
            continue;
        p->values[v] = (struct network_value){.array = *a, .is_shaped = true, .is_known = true};
        p->values[v].array.owned = false;
    }
}

void network_plan_free(struct network_plan **self)
{
    struct network_plan *p = *self;
    *self = NULL;
    if (!p)
        return;
    for (int i = 0; i < p->n_steps; i++)
        if (p->steps[i].free)
            p->steps[i].free(p->steps[i].data);
    for (int i = 0; i < p->n_roots; i++) {
        union {
            const void *in;
            void *out;
        } data = {p->roots[i].owns ? p->roots[i].fixed : NULL};
        free(data.out);
    }
    for (int v = 0; p->values && v < p->o->n_values; v++)
        if (p->values[v].is_known)
            ndarray_free(&p->values[v].array);
    free(p->values);
    free(p->is_done);
    free(p->roots);
    free(p->steps);
    free(p->in_roots);
    if (p->clock)
        p->facts->device->arrays->clock_destroy(&p->clock);
    if (!p->facts->shelf)
        free(p->arena);
    free(p->zeros);
    free(p);
}

int network_plan_make(const struct network_facts *facts, struct nn *nn,
                      const struct ndarray *const *inputs, struct network_plan **out, struct err *e)
{
    struct network_plan *p = calloc(1, sizeof *p);
    if (!p)
        return err_no_memory(e, "a plan");
    *out = p;
    p->facts = facts;
    p->network = facts->network;
    p->o = network_onnx(p->network);
    p->nn = nn;
    p->kernels = nn_kernels_choose();
    p->values = calloc((size_t)p->o->n_values + 1, sizeof *p->values);
    p->is_done = calloc((size_t)p->o->n_nodes + 1, sizeof *p->is_done);
    p->in_roots = calloc((size_t)p->o->n_inputs + 1, sizeof *p->in_roots);
    nn_begin(nn);
    int rc = p->values && p->is_done && p->in_roots ? 0 : err_no_memory(e, "a plan");
    if (rc == 0)
        constants_note(p);
    rc = rc < 0 ? rc : inputs_plan(p, inputs, e);
    rc = rc < 0 ? rc : nodes_plan(p, e);
    rc = rc < 0 ? rc : outputs_plan(p, e);
    for (int i = 0; i < p->n_roots; i++)
        p->roots[i].bytes = (p->roots[i].bytes + 63) / 64 * 64;
    free(p->zeros);
    p->zeros = NULL;
    if (rc == 0 && !facts->shelf)
        rc = network_plan_ready(p, 0, p->n_steps, e);
    if (rc < 0)
        network_plan_free(out);
    return rc;
}

bool network_plan_fits(const struct network_plan *p, const struct ndarray *const *inputs)
{
    for (int i = 0; i < p->o->n_inputs; i++) {
        const struct ndarray *planned = &p->values[p->o->inputs[i]].array;
        if (planned->type != inputs[i]->type || !ndarray_same_shape(planned, inputs[i]))
            return false;
    }
    return true;
}
