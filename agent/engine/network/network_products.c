/* Convolutions and products of matrices, with what follows them, as oneDNN's primitives. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "agent/engine/network/network_int.h"
#include "model/onnx/call.h"
#include "model/onnx/window.h"

/* What posts add or multiply by, in the output's layout, as views with `n_dims` axes of which the
 * first are joined where the output's are. */
static int others_find(struct network_plan *p, struct network_tail *t, enum network_layout layout,
                       const struct nn_view *y, struct network_view *views, struct err *e)
{
    for (int i = 0; i < t->posts.n; i++) {
        struct nn_post *post = &t->posts.list[i];
        views[NN_OTHER + i].root = -1;
        if (post->kind == NN_POST_FUNCTION)
            continue;
        int other = t->others[i], count = 0;
        bool same = p->values[other].array.count == nn_view_count(y);
        int rc = network_need(p, other, same ? layout : LAYOUT_PLAIN, &views[NN_OTHER + i], e);
        if (rc < 0)
            return rc;
        post->other = *y;
        for (int d = 0; d < y->n_dims && !same; d++) {
            bool is_channel = d == (layout == LAYOUT_LAST ? 1 : y->n_dims - 1) &&
                              p->values[other].array.count > 1;
            post->other.dims[d] = is_channel ? y->dims[d] : 1;
            count += is_channel;
        }
        if (!same)
            nn_view_dense(&post->other);
        if (!same && count == 0 && p->values[other].array.count > 1)
            return HP_EUNSUPPORTED;
    }
    return 0;
}

/* ---- convolutions ---- */

/* Weights and bias, batch normalizations that follow folded in. */
struct conv_weights {
    float *weights, *bias;
    bool owns_weights, owns_bias;
};

static const float *known_floats(const struct network_plan *p, int value, int64_t count)
{
    const struct network_value *v = value < 0 ? NULL : &p->values[value];
    return v && v->is_known && v->array.type == ND_F32 && v->array.count == count ? v->array.data
                                                                                  : NULL;
}

static int bias_own(struct conv_weights *w, int64_t channels, struct err *e)
{
    if (w->owns_bias)
        return 0;
    float *bias = calloc((size_t)channels + 16, sizeof *bias);
    if (!bias)
        return err_no_memory(e, "a bias");
    if (w->bias)
        memcpy(bias, w->bias, (size_t)channels * sizeof *bias);
    w->bias = bias;
    w->owns_bias = true;
    return 0;
}

/* Folds a batch normalization of `value` into weights and bias: 1, and *value is its output. */
static int norm_fold(struct network_plan *p, int *value, int64_t channels, int64_t each,
                     struct conv_weights *w, struct err *e)
{
    int node = network_only_reader(p, *value);
    const struct onnx_node *k = node < 0 ? NULL : &p->o->nodes[node];
    if (!k || *k->domain || strcmp(k->op, "BatchNormalization") != 0 || k->inputs[0] != *value)
        return 0;
    const float *by[4];
    for (int i = 0; i < 4; i++)
        if (!(by[i] = known_floats(p, k->inputs[i + 1], channels)))
            return 0;
    struct onnx_call c = network_call(p->network, node, NULL, NULL);
    float *weights =
        w->owns_weights ? w->weights : malloc((size_t)(channels * each) * sizeof *weights);
    if (!weights)
        return err_no_memory(e, "folded weights");
    if (!w->owns_weights)
        memcpy(weights, w->weights, (size_t)(channels * each) * sizeof *weights);
    w->weights = weights;
    w->owns_weights = true;
    int rc = bias_own(w, channels, e);
    for (int64_t o = 0; rc == 0 && o < channels; o++) {
        double scale = (double)by[0][o] / sqrt((double)by[3][o] + call_float(&c, "epsilon", 1e-5));
        for (int64_t i = 0; i < each; i++)
            weights[o * each + i] = (float)(weights[o * each + i] * scale);
        w->bias[o] = (float)((w->bias[o] - (double)by[2][o]) * scale + (double)by[1][o]);
    }
    p->values[k->outputs[0]].array = p->values[*value].array;
    p->values[k->outputs[0]].is_shaped = true;
    p->is_done[node] = rc == 0;
    *value = k->outputs[0];
    return rc < 0 ? rc : 1;
}

static int conv_describe(const struct network_plan *p, const struct onnx_call *c, bool turned,
                         struct nn_conv *v)
{
    const struct ndarray *x = c->in[0], *weights = c->in[1];
    struct window w;
    int rc = turned ? window_read_turned(c, x, weights->dims + 2, &w)
                    : window_read(c, x, weights->dims + 2, &w);
    if (rc < 0)
        return rc;
    *v = (struct nn_conv){.n_axes = w.n_axes, .groups = call_int(c, "group", 1), .turned = turned};
    v->x = network_sizes(x);
    v->y = network_sizes(&p->values[c->node->outputs[0]].array);
    for (int d = 0; d < w.n_axes; d++) {
        int at = WINDOW_AXES - w.n_axes + d;
        int64_t reach = w.dilation[at] * (w.kernel[at] - 1) + 1;
        v->kernel[d] = w.kernel[at];
        v->stride[d] = w.stride[at];
        v->dilation[d] = w.dilation[at];
        v->before[d] = w.before[at];
        /* As much as the output needs: what it lacks (ceil_mode aside) may be less than the pads.
         */
        v->after[d] = turned ? w.stride[at] * (w.in[at] - 1) + reach - w.before[at] - w.out[at]
                             : (w.out[at] - 1) * w.stride[at] + reach - w.in[at] - w.before[at];
    }
    return 0;
}

/* A convolution with the longest tail that oneDNN takes. */
static int conv_make(struct network_plan *p, struct nn_conv *v, struct network_tail *t,
                     struct network_view *views, struct nn_op **op, struct err *e)
{
    int rc;
    do {
        rc = others_find(p, t, LAYOUT_LAST, &v->y, views, e);
        v->posts = t->posts;
        rc = rc < 0 ? rc : nn_conv_make(p->nn, v, op, e);
    } while (rc == HP_EUNSUPPORTED && network_tail_drop(t));
    return rc;
}

static int64_t weights_count(const struct nn_conv *v)
{
    int64_t n = v->x.dims[1] / v->groups * v->y.dims[1];
    for (int d = 0; d < v->n_axes; d++)
        n *= v->kernel[d];
    return n;
}

static int conv_add(struct network_plan *p, int node, struct nn_conv *v, struct conv_weights *w,
                    int value, struct err *e)
{
    struct network_tail t;
    struct network_view views[NN_OTHER + NN_POSTS] = {0};
    struct nn_op *op;
    network_tail_find(p, value, LAYOUT_LAST, &t);
    network_strides(&v->x, LAYOUT_LAST);
    network_strides(&v->y, LAYOUT_LAST);
    v->has_bias = w->bias != NULL;
    int rc = v->turned ? network_blocks_add(p, node, v, w->weights, w->bias, value, e) : 0;
    if (rc != 0)
        return rc;
    rc = conv_make(p, v, &t, views, &op, e);
    if (rc == HP_EUNSUPPORTED && !v->turned && v->groups == v->x.dims[1] &&
        v->groups == v->y.dims[1])
        return network_depthwise_add(p, node, v, w->weights, w->bias, value, e);
    if (rc < 0)
        return rc == HP_EUNSUPPORTED ? 0 : rc;
    views[NN_BIAS].root = views[NN_SCRATCH].root = views[NN_WEIGHTS].root = -1;
    rc = network_need(p, p->o->nodes[node].inputs[0], LAYOUT_LAST, &views[NN_X], e);
    if (rc == 0)
        rc = (w->owns_weights ? network_weights_pack : network_weights_later)(
            p, op, w->weights, weights_count(v), &views[NN_WEIGHTS], e);
    if (rc == 0 && w->bias) {
        views[NN_BIAS] = (struct network_view){
            .root = network_root_fixed(p, w->bias, (uint64_t)v->y.dims[1] * sizeof *w->bias,
                                       w->owns_bias, e)};
        w->owns_bias = false;
        rc = views[NN_BIAS].root < 0 ? views[NN_BIAS].root : 0;
    }
    rc = rc < 0 ? rc : network_make_view(p, t.value, &v->y, &views[NN_Y], e);
    if (rc < 0) {
        nn_op_free(&op);
        return rc;
    }
    network_tail_take(p, &t);
    const struct network_deed deed = {DEED_CONV, "conv", {.conv = *v}};
    rc = network_op_add(p, op, node, &deed, views, NN_OTHER + t.posts.n, e);
    return rc < 0 ? rc : 1;
}

int network_lower_conv(struct network_plan *p, int node, const struct onnx_call *c, struct err *e)
{
    const struct onnx_node *k = c->node;
    bool turned = strcmp(k->op, "ConvTranspose") == 0;
    struct nn_conv v;
    const float *weights = known_floats(p, k->inputs[1], c->in[1]->count), *bias = NULL;
    if (!network_is_f32(p, k->inputs[0]) || !weights || conv_describe(p, c, turned, &v) < 0)
        return 0;
    int64_t channels = v.y.dims[1];
    if (call_in(c, 2) && !(bias = known_floats(p, k->inputs[2], channels)))
        return 0;
    union {
        const float *in;
        float *out;
    } given = {weights}, added = {bias};
    struct conv_weights w = {.weights = given.out, .bias = added.out};
    int value = k->outputs[0];
    int rc = turned ? 0 : norm_fold(p, &value, channels, c->in[1]->count / channels, &w, e);
    rc = rc < 0 ? rc : conv_add(p, node, &v, &w, value, e);
    if (rc == 0 && value != k->outputs[0])
        p->is_done[network_only_reader(p, k->outputs[0])] = false;
    if (w.owns_weights)
        free(w.weights);
    if (w.owns_bias)
        free(w.bias);
    return rc;
}

/* ---- products ---- */

/* x [.., m, k] times w; `bias` is known, or NULL. Takes the tail of `value`. */
static int product_add(struct network_plan *p, int node, struct nn_matmul *m,
                       struct network_view views[NN_OTHER + NN_POSTS], const float *weights,
                       int value, struct err *e)
{
    struct network_tail t;
    struct nn_op *op;
    int rc;
    network_tail_find(p, value, LAYOUT_PLAIN, &t);
    do {
        rc = others_find(p, &t, LAYOUT_PLAIN, &m->y, views, e);
        m->posts = t.posts;
        rc = rc < 0 ? rc : nn_matmul_make(p->nn, m, &op, e);
    } while (rc == HP_EUNSUPPORTED && network_tail_drop(&t));
    if (rc < 0)
        return rc == HP_EUNSUPPORTED ? 0 : rc;
    struct nn_view dense = network_sizes(&p->values[t.value].array);
    rc = m->packs
             ? network_weights_later(p, op, weights, nn_view_count(&m->w), &views[NN_WEIGHTS], e)
             : 0;
    rc = rc < 0 ? rc : network_make_view(p, t.value, &dense, &views[NN_Y], e);
    if (rc < 0) {
        nn_op_free(&op);
        return rc;
    }
    network_tail_take(p, &t);
    const struct network_deed deed = {DEED_PRODUCT, "product", {.product = *m}};
    rc = network_op_add(p, op, node, &deed, views, NN_OTHER + t.posts.n, e);
    return rc < 0 ? rc : 1;
}

/* A known bias behind the product, of one number a column: 1, and it is done too. */
static int bias_find(struct network_plan *p, int *value, int64_t columns, struct network_view *out,
                     struct err *e)
{
    int node = network_only_reader(p, *value);
    const struct onnx_node *k = node < 0 ? NULL : &p->o->nodes[node];
    if (!k || strcmp(k->op, "Add") != 0 || *k->domain || k->inputs[0] == k->inputs[1])
        return 0;
    int other = k->inputs[k->inputs[0] == *value];
    const float *bias = known_floats(p, other, columns);
    const struct ndarray *a = bias ? &p->values[other].array : NULL;
    if (!a || a->n_dims < 1 || a->n_dims > p->values[*value].array.n_dims ||
        a->dims[a->n_dims - 1] != columns)
        return 0;
    p->values[k->outputs[0]].array = p->values[*value].array;
    p->values[k->outputs[0]].is_shaped = true;
    *out = (struct network_view){
        .root = network_root_fixed(p, bias, (uint64_t)columns * sizeof *bias, false, e)};
    if (out->root < 0)
        return out->root;
    p->is_done[node] = true;
    *value = k->outputs[0];
    return 1;
}

static void matrix_view(struct nn_view *v, int64_t rows, int64_t columns, bool turned)
{
    *v = (struct nn_view){.n_dims = 2, .dims = {rows, columns}};
    v->strides[0] = turned ? 1 : columns;
    v->strides[1] = turned ? rows : 1;
}

/* All rows of x by one known matrix [k, n]. */
static int rows_product(struct network_plan *p, int node, int x, const float *weights, bool turned,
                        int64_t k, int64_t n, const float *bias, struct err *e)
{
    struct network_view views[NN_OTHER + NN_POSTS] = {0};
    struct nn_matmul m = {.packs = true};
    int first = p->o->nodes[node].outputs[0], value = first;
    int64_t rows = p->values[x].array.count / k;
    matrix_view(&m.x, rows, k, false);
    matrix_view(&m.w, k, n, turned);
    matrix_view(&m.y, rows, n, false);
    views[NN_BIAS].root = views[NN_SCRATCH].root = views[NN_WEIGHTS].root = -1;
    int rc = network_need(p, x, LAYOUT_PLAIN, &views[NN_X], e);
    if (rc == 0 && bias) {
        views[NN_BIAS].root = network_root_fixed(p, bias, (uint64_t)n * sizeof *bias, false, e);
        rc = views[NN_BIAS].root < 0 ? views[NN_BIAS].root : 0;
    } else if (rc == 0) {
        rc = bias_find(p, &value, n, &views[NN_BIAS], e);
    }
    m.has_bias = views[NN_BIAS].root >= 0;
    rc = rc < 0 ? rc : product_add(p, node, &m, views, weights, value, e);
    if (rc == 0 && value != first)
        p->is_done[network_only_reader(p, first)] = false;
    return rc;
}

static struct nn_view stack_view(const struct ndarray *a, int n_dims)
{
    struct nn_view v = {.n_dims = n_dims};
    for (int d = 0; d < n_dims; d++) {
        int at = d - (n_dims - a->n_dims);
        v.dims[d] = at < 0 ? 1 : a->dims[at];
    }
    nn_view_dense(&v);
    return v;
}

int network_lower_matmul(struct network_plan *p, int node, const struct onnx_call *c, struct err *e)
{
    const struct onnx_node *k = c->node;
    const struct ndarray *x = c->in[0], *w = c->in[1];
    if (!network_is_f32(p, k->inputs[0]) || !network_is_f32(p, k->inputs[1]) || x->n_dims < 2 ||
        w->n_dims < 2)
        return 0;
    int64_t inner = w->dims[w->n_dims - 2], columns = w->dims[w->n_dims - 1];
    const float *weights = known_floats(p, k->inputs[1], w->count);
    if (weights && w->n_dims == 2)
        return rows_product(p, node, k->inputs[0], weights, false, inner, columns, NULL, e);
    struct network_view views[NN_OTHER + NN_POSTS] = {0};
    int n_dims = p->values[k->outputs[0]].array.n_dims;
    struct nn_matmul m = {.x = stack_view(x, n_dims),
                          .w = stack_view(w, n_dims),
                          .y = stack_view(&p->values[k->outputs[0]].array, n_dims)};
    views[NN_BIAS].root = views[NN_SCRATCH].root = -1;
    int rc = network_need(p, k->inputs[0], LAYOUT_PLAIN, &views[NN_X], e);
    rc = rc < 0 ? rc : network_need(p, k->inputs[1], LAYOUT_PLAIN, &views[NN_WEIGHTS], e);
    return rc < 0 ? rc : product_add(p, node, &m, views, NULL, k->outputs[0], e);
}

int network_lower_gemm(struct network_plan *p, int node, const struct onnx_call *c, struct err *e)
{
    const struct onnx_node *k = c->node;
    const struct ndarray *w = c->in[1], *add = call_in(c, 2);
    bool turned = call_int(c, "transB", 0) != 0;
    if (!network_is_f32(p, k->inputs[0]) || w->n_dims != 2)
        return 0;
    const float *weights = known_floats(p, k->inputs[1], w->count), *bias = NULL;
    int64_t inner = w->dims[turned], columns = w->dims[!turned];
    if (add)
        bias = known_floats(p, k->inputs[2], columns);
    if (!weights ||
        (add &&
         (!bias || add->n_dims < 1 || add->n_dims > 2 || add->dims[add->n_dims - 1] != columns)) ||
        call_int(c, "transA", 0) || call_float(c, "alpha", 1) != 1 ||
        (add && call_float(c, "beta", 1) != 1))
        return 0;
    return rows_product(p, node, k->inputs[0], weights, turned, inner, columns, bias, e);
}
