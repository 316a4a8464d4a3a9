/* Convolutions that oneDNN has no good kernel for: depthwise ones whose window is larger than the
 * picture, as our own loops, and transposed ones whose windows lie side by side, as a product of
 * matrices whose numbers are laid out anew. */
#include <stdlib.h>
#include <string.h>

#include "agent/engine/network/network_int.h"

/* ---- depthwise ---- */

struct direct_step {
    struct nn_pool pool; /* weights and bias are filled in when it runs */
    struct network_view to, from, weights, bias;
    bool has_bias;
};

static void direct_part(void *job, int part, int parts)
{
    const struct network_job *j = job;
    const struct direct_step *d = j->data;
    struct nn_pool pool = d->pool;
    pool.weights = network_in(j->p, &d->weights);
    pool.bias = d->has_bias ? network_in(j->p, &d->bias) : NULL;
    nn_pool_part(j->p->kernels, &pool, part, parts, network_out(j->p, &d->to),
                 network_in(j->p, &d->from));
}

static int direct_run(struct network_plan *p, const struct network_step *s, struct err *e)
{
    const struct direct_step *d = s->data;
    const int64_t *k = d->pool.kernel;
    (void)e;
    network_job_run(p, s, nn_view_count(&d->to.v) * k[0] * k[1] * k[2], direct_part);
    return 0;
}

static int direct_run_there(struct network_plan *p, const struct network_step *s, struct err *e)
{
    const struct direct_step *w = s->data;
    const struct network_device *d = p->facts->device;
    struct nn_pool pool = w->pool;
    pool.weights = network_there_in(p, &w->weights);
    pool.bias = w->has_bias ? network_there_in(p, &w->bias) : NULL;
    const float *x = network_there_in(p, &w->from);
    d->arrays->pool(d->stream, &pool, network_there_out(p, &w->to), x);
    (void)e;
    return 0;
}

static void pool_describe(const struct nn_conv *v, struct nn_pool *pool)
{
    *pool = (struct nn_pool){.batch = v->x.dims[0], .channels = v->x.dims[1]};
    for (int d = 0; d < NN_AXES; d++) {
        int from = d - (NN_AXES - v->n_axes);
        bool there = from >= 0;
        pool->in[d] = there ? v->x.dims[2 + from] : 1;
        pool->out[d] = there ? v->y.dims[2 + from] : 1;
        pool->kernel[d] = there ? v->kernel[from] : 1;
        pool->stride[d] = there ? v->stride[from] : 1;
        pool->dilation[d] = there ? v->dilation[from] : 1;
        pool->before[d] = there ? v->before[from] : 0;
        pool->after[d] = there ? v->after[from] : 0;
    }
}

/* [n, m] as [m, n], for good. */
static int turned_root(struct network_plan *p, const float *x, int64_t n, int64_t m,
                       struct network_view *out, struct err *e)
{
    float *data = calloc((size_t)(n * m), sizeof *data);
    if (!data)
        return err_no_memory(e, "turned weights");
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < m; j++)
            data[j * n + i] = x[i * m + j];
    *out = (struct network_view){
        .root = network_root_fixed(p, data, (uint64_t)(n * m) * sizeof *data, true, e)};
    return out->root < 0 ? out->root : 0;
}

int network_depthwise_add(struct network_plan *p, int node, const struct nn_conv *v,
                          const float *weights, const float *bias, int value, struct err *e)
{
    int64_t channels = v->x.dims[1], taps = 1;
    for (int d = 0; d < v->n_axes; d++)
        taps *= v->kernel[d];
    struct direct_step *s = calloc(1, sizeof *s);
    if (!s)
        return err_no_memory(e, "a step");
    pool_describe(v, &s->pool);
    s->has_bias = bias != NULL;
    int rc = turned_root(p, weights, channels, taps, &s->weights, e);
    rc = rc < 0 || !bias ? rc : turned_root(p, bias, 1, channels, &s->bias, e);
    rc = rc < 0 ? rc : network_need(p, p->o->nodes[node].inputs[0], LAYOUT_LAST, &s->from, e);
    rc = rc < 0 ? rc : network_make_view(p, value, &v->y, &s->to, e);
    if (rc < 0) {
        free(s);
        return rc;
    }
    network_root_use(p, s->to.root);
    network_root_use(p, s->from.root);
    network_root_use(p, s->weights.root);
    if (s->has_bias)
        network_root_use(p, s->bias.root);
    struct network_step step = {.run = direct_run,
                                .run_there = direct_run_there,
                                .free = free,
                                .data = s,
                                .name = "window",
                                .node = node};
    rc = network_step_add(p, &step, e);
    return rc < 0 ? rc : 1;
}

/* ---- transposed ---- */

static bool lies_side_by_side(const struct nn_conv *v)
{
    bool fits = v->n_axes == 2 && v->groups == 1;
    for (int d = 0; d < v->n_axes && fits; d++)
        fits = v->kernel[d] == v->stride[d] && v->dilation[d] == 1 && v->before[d] == 0 &&
               v->after[d] == 0;
    return fits;
}

/* Weights [in, out, rows, columns] as [in, rows, columns, out], and the bias for each of these. */
static int blocks_make(const struct nn_conv *v, const float *weights, const float *bias,
                       float **out_weights, float **out_bias, struct err *e)
{
    int64_t in = v->x.dims[1], out = v->y.dims[1], taps = v->kernel[0] * v->kernel[1];
    *out_weights = calloc((size_t)(in * out * taps), sizeof **out_weights);
    *out_bias = calloc((size_t)(out * taps), sizeof **out_bias);
    if (!*out_weights || !*out_bias) {
        free(*out_weights);
        free(*out_bias);
        return err_no_memory(e, "turned weights");
    }
    for (int64_t i = 0; i < in; i++)
        for (int64_t o = 0; o < out; o++)
            for (int64_t t = 0; t < taps; t++)
                (*out_weights)[(i * taps + t) * out + o] = weights[(i * out + o) * taps + t];
    for (int64_t i = 0; bias && i < out * taps; i++)
        (*out_bias)[i] = bias[i % out];
    return 0;
}

static int product_describe(const struct nn_conv *v, struct nn_matmul *m)
{
    int64_t columns = v->y.dims[1] * v->kernel[0] * v->kernel[1];
    *m = (struct nn_matmul){.packs = true, .has_bias = true};
    m->x = (struct nn_view){.n_dims = 2,
                            .dims = {v->x.dims[0] * v->x.dims[2] * v->x.dims[3], v->x.dims[1]}};
    m->w = (struct nn_view){.n_dims = 2, .dims = {v->x.dims[1], columns}};
    m->y = (struct nn_view){.n_dims = 2, .dims = {m->x.dims[0], columns}};
    nn_view_dense(&m->x);
    nn_view_dense(&m->w);
    nn_view_dense(&m->y);
    return 0;
}

/* What the product makes, [batch, rows, columns, rows and columns of a window, channels], into the
 * picture. */
static int blocks_spread(struct network_plan *p, const struct nn_conv *v, int value, int root,
                         struct err *e)
{
    int64_t out = v->y.dims[1], width = v->y.dims[3];
    struct network_view to, from = {.root = root, .v = {.n_dims = 6}};
    const int64_t dims[] = {v->x.dims[0], v->x.dims[2], v->x.dims[3],
                            v->kernel[0], v->kernel[1], out};
    const int64_t strides[] = {
        v->y.strides[0], v->kernel[0] * width * out, v->kernel[1] * out, width * out, out, 1};
    memcpy(from.v.dims, dims, sizeof dims);
    nn_view_dense(&from.v);
    int rc = network_make_view(p, value, &v->y, &to, e);
    to.v = from.v;
    memcpy(to.v.strides, strides, sizeof strides);
    return rc < 0 ? rc : network_copy_add(p, &to, &from, e);
}

int network_blocks_add(struct network_plan *p, int node, const struct nn_conv *v,
                       const float *weights, const float *bias, int value, struct err *e)
{
    struct nn_matmul m;
    struct nn_op *op;
    float *turned, *each;
    struct network_view views[NN_OTHER] = {0};
    if (!lies_side_by_side(v))
        return 0;
    product_describe(v, &m);
    int rc = nn_matmul_make(p->nn, &m, &op, e);
    if (rc < 0)
        return rc == HP_EUNSUPPORTED ? 0 : rc;
    rc = blocks_make(v, weights, bias, &turned, &each, e);
    if (rc == 0) {
        rc = network_weights_pack(p, op, turned, nn_view_count(&m.w), &views[NN_WEIGHTS], e);
        free(turned);
        views[NN_BIAS].root = network_root_fixed(
            p, each, (uint64_t)(nn_view_count(&m.y) / m.y.dims[0]) * sizeof *each, true, e);
        rc = rc < 0 ? rc : views[NN_BIAS].root < 0 ? views[NN_BIAS].root : 0;
    }
    rc = rc < 0 ? rc : network_need(p, p->o->nodes[node].inputs[0], LAYOUT_LAST, &views[NN_X], e);
    views[NN_Y].root =
        rc < 0 ? rc : network_root_new(p, (uint64_t)nn_view_count(&m.y) * sizeof(float), e);
    if (views[NN_Y].root < 0) {
        nn_op_free(&op);
        return views[NN_Y].root;
    }
    views[NN_SCRATCH].root = -1;
    const struct network_deed deed = {DEED_PRODUCT, "product", {.product = m}};
    rc = network_op_add(p, op, node, &deed, views, NN_OTHER, e);
    rc = rc < 0 ? rc : blocks_spread(p, v, value, views[NN_Y].root, e);
    return rc < 0 ? rc : 1;
}
