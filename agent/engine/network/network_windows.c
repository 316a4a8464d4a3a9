/* Poolings, sums along axes, normalizations, softmax and resizing. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "agent/engine/network/network_int.h"
#include "model/onnx/call.h"
#include "model/onnx/reduce.h"
#include "model/onnx/resize.h"
#include "model/onnx/window.h"

/* ---- poolings ---- */

struct pool_step {
    struct nn_pool pool;
    struct network_view to, from;
};

static void pool_part(void *job, int part, int parts)
{
    const struct network_job *j = job;
    const struct pool_step *d = j->data;
    nn_pool_part(j->p->kernels, &d->pool, part, parts, network_out(j->p, &d->to),
                 network_in(j->p, &d->from));
}

static int pool_run(struct network_plan *p, const struct network_step *s, struct err *e)
{
    const struct pool_step *d = s->data;
    (void)e;
    network_job_run(p, s, nn_view_count(&d->from.v), pool_part);
    return 0;
}

static int pool_run_there(struct network_plan *p, const struct network_step *s, struct err *e)
{
    const struct pool_step *w = s->data;
    const struct network_device *d = p->facts->device;
    const float *x = network_there_in(p, &w->from);
    d->arrays->pool(d->stream, &w->pool, network_there_out(p, &w->to), x);
    (void)e;
    return 0;
}

/* Adds a step of two views, which it uses. */
static int views_step(struct network_plan *p, struct network_step step,
                      const struct network_view *to, const struct network_view *from, struct err *e)
{
    network_root_use(p, to->root);
    network_root_use(p, from->root);
    step.free = free;
    int rc = network_step_add(p, &step, e);
    return rc < 0 ? rc : 1;
}

int network_lower_pool(struct network_plan *p, int node, const struct onnx_call *c, struct err *e)
{
    const struct onnx_node *k = c->node;
    struct window w;
    if (!network_is_f32(p, k->inputs[0]) || k->n_outputs != 1 ||
        window_read(c, c->in[0], NULL, &w) < 0)
        return 0;
    struct pool_step *s = calloc(1, sizeof *s);
    if (!s)
        return err_no_memory(e, "a step");
    s->pool = (struct nn_pool){.batch = c->in[0]->dims[0],
                               .channels = c->in[0]->dims[1],
                               .is_max = strcmp(k->op, "MaxPool") == 0,
                               .counts_pads = call_int(c, "count_include_pad", 0) != 0};
    memcpy(s->pool.in, w.in, sizeof w.in);
    memcpy(s->pool.out, w.out, sizeof w.out);
    memcpy(s->pool.kernel, w.kernel, sizeof w.kernel);
    memcpy(s->pool.stride, w.stride, sizeof w.stride);
    memcpy(s->pool.dilation, w.dilation, sizeof w.dilation);
    memcpy(s->pool.before, w.before, sizeof w.before);
    memcpy(s->pool.after, w.after, sizeof w.after);
    struct nn_view out = network_sizes(&p->values[k->outputs[0]].array);
    network_strides(&out, LAYOUT_LAST);
    int rc = network_need(p, k->inputs[0], LAYOUT_LAST, &s->from, e);
    rc = rc < 0 ? rc : network_make_view(p, k->outputs[0], &out, &s->to, e);
    if (rc == 0)
        return views_step(p,
                          (struct network_step){.run = pool_run,
                                                .run_there = pool_run_there,
                                                .data = s,
                                                .name = "pool",
                                                .node = node},
                          &s->to, &s->from, e);
    free(s);
    return rc;
}

/* ---- along axes ---- */

struct reduce_step {
    struct nn_reduction reduction;
    struct network_view to, from;
};

static void reduce_part(void *job, int part, int parts)
{
    const struct network_job *j = job;
    const struct reduce_step *r = j->data;
    nn_reduce_part(j->p->kernels, &r->reduction, part, parts, network_out(j->p, &r->to),
                   network_in(j->p, &r->from));
}

static int reduce_run(struct network_plan *p, const struct network_step *s, struct err *e)
{
    const struct reduce_step *r = s->data;
    (void)e;
    network_job_run(p, s, nn_view_count(&r->from.v), reduce_part);
    return 0;
}

static int reduce_run_there(struct network_plan *p, const struct network_step *s, struct err *e)
{
    const struct reduce_step *r = s->data;
    const struct network_device *d = p->facts->device;
    const float *x = network_there_in(p, &r->from);
    d->arrays->reduce(d->stream, &r->reduction, network_there_out(p, &r->to), x);
    (void)e;
    return 0;
}

static int reduce_add(struct network_plan *p, int node, const bool gone[NN_DIMS], bool is_max,
                      bool is_mean, struct err *e)
{
    const struct onnx_node *k = &p->o->nodes[node];
    struct reduce_step *s = calloc(1, sizeof *s);
    if (!s)
        return err_no_memory(e, "a step");
    int rc = network_need(p, k->inputs[0], LAYOUT_ANY, &s->from, e);
    struct nn_view dense = network_sizes(&p->values[k->outputs[0]].array);
    rc = rc < 0 ? rc : network_make_view(p, k->outputs[0], &dense, &s->to, e);
    if (rc < 0) {
        free(s);
        return rc;
    }
    struct nn_view few = s->from.v;
    double n = 1;
    for (int d = 0; d < few.n_dims; d++) {
        n *= gone[d] ? (double)few.dims[d] : 1;
        few.dims[d] = gone[d] ? 1 : few.dims[d];
    }
    nn_view_dense(&few);
    s->reduction = nn_reduction_make(&s->from.v, &few, gone);
    s->reduction.is_max = is_max;
    s->reduction.scale = is_mean ? (float)(1 / n) : 1;
    return views_step(p,
                      (struct network_step){.run = reduce_run,
                                            .run_there = reduce_run_there,
                                            .data = s,
                                            .name = "reduce",
                                            .node = node},
                      &s->to, &s->from, e);
}

int network_lower_global_pool(struct network_plan *p, int node, const struct onnx_call *c,
                              struct err *e)
{
    bool gone[NN_DIMS] = {false}, is_max = strcmp(c->node->op, "GlobalMaxPool") == 0;
    if (!network_is_f32(p, c->node->inputs[0]))
        return 0;
    for (int d = 2; d < c->in[0]->n_dims; d++)
        gone[d] = true;
    return reduce_add(p, node, gone, is_max, !is_max, e);
}

int network_lower_reduce(struct network_plan *p, int node, const struct onnx_call *c, struct err *e)
{
    int64_t axes[ND_DIMS_MAX];
    int n, kind = c->op->kind;
    bool gone[NN_DIMS] = {false}, is_mean = kind == REDUCE_MEAN;
    if (!network_is_f32(p, c->node->inputs[0]) ||
        (!is_mean && kind != REDUCE_SUM && kind != REDUCE_MAX) ||
        (call_in(c, 1) && !p->values[c->node->inputs[1]].is_known) ||
        call_list(c, 1, "axes", axes, &n) < 0 || n == 0 || call_int(c, "noop_with_empty_axes", 0))
        return 0;
    for (int d = 0; d < c->in[0]->n_dims; d++)
        gone[d] = n < 0;
    for (int i = 0; i < n; i++)
        gone[call_axis(c, axes[i], c->in[0]->n_dims)] = true;
    return reduce_add(p, node, gone, kind == REDUCE_MAX, is_mean, e);
}

/* ---- normalizations ---- */

struct norm_step {
    struct network_view to, from, scale, shift;
    int64_t rows, n,
        channels; /* channels 0: scale and shift are rows; else a row has one channel */
    float epsilon, low, high;
    bool has_scale, has_shift;
};

static void rows_part(void *job, int part, int parts)
{
    const struct network_job *j = job;
    const struct norm_step *d = j->data;
    const struct nn_kernels *k = j->p->kernels;
    const float *scale = d->has_scale ? network_in(j->p, &d->scale) : NULL;
    const float *shift = d->has_shift ? network_in(j->p, &d->shift) : NULL;
    for (int64_t r = d->rows * part / parts; r < d->rows * (part + 1) / parts; r++) {
        const float *x = network_in(j->p, &d->from) + r * d->n;
        float *out = network_out(j->p, &d->to) + r * d->n;
        int64_t channel = d->channels ? r % d->channels : 0;
        k->normalise(x, d->channels ? NULL : scale, d->channels ? NULL : shift, d->epsilon, out,
                     (size_t)d->n);
        if (d->channels)
            k->unary(NN_SCALE, scale[channel], shift[channel], out, out, (size_t)d->n);
    }
}

static int rows_run(struct network_plan *p, const struct network_step *s, struct err *e)
{
    const struct norm_step *d = s->data;
    (void)e;
    network_job_run(p, s, d->rows * d->n, rows_part);
    return 0;
}

static int rows_run_there(struct network_plan *p, const struct network_step *s, struct err *e)
{
    const struct norm_step *n = s->data;
    const struct network_device *d = p->facts->device;
    const struct array_norm c = {.x = network_there_in(p, &n->from),
                                 .scale = n->has_scale ? network_there_in(p, &n->scale) : NULL,
                                 .shift = n->has_shift ? network_there_in(p, &n->shift) : NULL,
                                 .out = network_there_out(p, &n->to),
                                 .rows = n->rows,
                                 .n = n->n,
                                 .channels = n->channels,
                                 .epsilon = n->epsilon};
    d->arrays->norm(d->stream, &c);
    (void)e;
    return 0;
}

static const struct network_step rows_norm = {.run = rows_run, .run_there = rows_run_there};

/* `how`: what runs it. */
static int norm_add(struct network_plan *p, int node, struct norm_step *s, enum network_layout in,
                    const struct network_step *how, struct err *e)
{
    const struct onnx_node *k = &p->o->nodes[node];
    struct network_value *made = &p->values[k->outputs[0]];
    struct nn_view out = network_sizes(&made->array);
    network_strides(&out, in);
    int rc = network_need(p, k->inputs[0], in, &s->from, e);
    rc = rc < 0 ? rc : network_make_view(p, k->outputs[0], &out, &s->to, e);
    if (rc < 0) {
        free(s);
        return rc;
    }
    if (s->has_scale)
        network_root_use(p, s->scale.root);
    if (s->has_shift)
        network_root_use(p, s->shift.root);
    struct network_step step = *how;
    step.data = s;
    step.name = "norm";
    step.node = node;
    return views_step(p, step, &s->to, &s->from, e);
}

/* Scale and shift of one number for each of n. */
static int scales_need(struct network_plan *p, const struct onnx_node *k, int64_t n,
                       struct norm_step *s, struct err *e)
{
    int rc = 0;
    for (int i = 1; i < 3 && rc == 0; i++) {
        bool has = i < k->n_inputs && k->inputs[i] >= 0;
        if (has && (!network_is_f32(p, k->inputs[i]) || p->values[k->inputs[i]].array.count != n))
            return HP_EUNSUPPORTED;
        if (has)
            rc = network_need(p, k->inputs[i], LAYOUT_PLAIN, i == 1 ? &s->scale : &s->shift, e);
        *(i == 1 ? &s->has_scale : &s->has_shift) = has;
    }
    return rc;
}

int network_lower_layer_norm(struct network_plan *p, int node, const struct onnx_call *c,
                             struct err *e)
{
    int axis = call_axis(c, call_int(c, "axis", -1), c->in[0]->n_dims);
    if (!network_is_f32(p, c->node->inputs[0]) || c->n_out != 1 || axis < 0)
        return 0;
    struct norm_step *s = calloc(1, sizeof *s);
    if (!s)
        return err_no_memory(e, "a step");
    s->n = dims_product(c->in[0]->dims, axis, c->in[0]->n_dims);
    s->rows = c->in[0]->count / s->n;
    s->epsilon = (float)call_float(c, "epsilon", 1e-5);
    int rc = scales_need(p, c->node, s->n, s, e);
    if (rc == 0)
        return norm_add(p, node, s, LAYOUT_PLAIN, &rows_norm, e);
    free(s);
    return rc == HP_EUNSUPPORTED ? 0 : rc;
}

int network_lower_instance_norm(struct network_plan *p, int node, const struct onnx_call *c,
                                struct err *e)
{
    if (!network_is_f32(p, c->node->inputs[0]) || c->in[0]->n_dims < 3)
        return 0;
    struct norm_step *s = calloc(1, sizeof *s);
    if (!s)
        return err_no_memory(e, "a step");
    s->channels = c->in[0]->dims[1];
    s->rows = c->in[0]->dims[0] * s->channels;
    s->n = c->in[0]->count / s->rows;
    s->epsilon = (float)call_float(c, "epsilon", 1e-5);
    int rc = scales_need(p, c->node, s->channels, s, e);
    if (rc == 0)
        return norm_add(p, node, s, LAYOUT_PLAIN, &rows_norm, e);
    free(s);
    return rc == HP_EUNSUPPORTED ? 0 : rc;
}

static void affine_part(void *job, int part, int parts)
{
    const struct network_job *j = job;
    const struct norm_step *d = j->data;
    const float *scale = network_in(j->p, &d->scale), *shift = network_in(j->p, &d->shift);
    for (int64_t r = d->rows * part / parts; r < d->rows * (part + 1) / parts; r++)
        j->p->kernels->affine(network_in(j->p, &d->from) + r * d->n, scale, shift, d->low, d->high,
                              network_out(j->p, &d->to) + r * d->n, (size_t)d->n);
}

static int affine_run(struct network_plan *p, const struct network_step *s, struct err *e)
{
    const struct norm_step *d = s->data;
    (void)e;
    network_job_run(p, s, d->rows * d->n, affine_part);
    return 0;
}

/* x * scale + shift, to [low, high], of rows of channels. */
static int affine_run_there(struct network_plan *p, const struct network_step *s, struct err *e)
{
    const struct norm_step *n = s->data;
    const struct nn_view rows = {2, {n->rows, n->n}, {n->n, 1}},
                         each = {2, {n->rows, n->n}, {0, 1}};
    const struct nn_view *views[] = {&rows, &rows, &each};
    struct array_elements c = {.rule = ARRAY_BINARY, .f = NN_TIMES};
    c.loop = nn_loop_make(views, LOOP_VIEWS);
    network_there_elements(p, c, &n->to, &n->from, &n->scale);
    c.f = NN_ADD;
    network_there_elements(p, c, &n->to, &n->to, &n->shift);
    c = (struct array_elements){
        .rule = ARRAY_UNARY, .f = NN_BOUND, .a = n->low, .b = n->high, .loop = c.loop};
    if (isfinite(n->low) || isfinite(n->high))
        network_there_elements(p, c, &n->to, &n->to, NULL);
    (void)e;
    return 0;
}

/* Mean and variance of batches, which are known, as scale and shift. */
static int affine_fold(struct network_plan *p, const struct onnx_call *c, struct norm_step *s,
                       struct err *e)
{
    const struct onnx_node *k = c->node;
    const float *by[4];
    for (int i = 0; i < 4; i++) {
        const struct network_value *v = &p->values[k->inputs[i + 1]];
        if (!v->is_known || v->array.type != ND_F32 || v->array.count != s->n)
            return HP_EUNSUPPORTED;
        by[i] = v->array.data;
    }
    float *data = calloc(2 * (size_t)s->n, sizeof *data);
    if (!data)
        return err_no_memory(e, "a scale");
    for (int64_t i = 0; i < s->n; i++) {
        double scale = (double)by[0][i] / sqrt((double)by[3][i] + (double)s->epsilon);
        data[i] = (float)scale;
        data[s->n + i] = (float)((double)by[1][i] - (double)by[2][i] * scale);
    }
    s->scale = (struct network_view){
        .root = network_root_fixed(p, data, 2 * (uint64_t)s->n * sizeof *data, true, e)};
    s->shift = (struct network_view){.root = s->scale.root, .offset = s->n};
    return s->scale.root < 0 ? s->scale.root : 0;
}

static const struct network_step affine_norm = {.run = affine_run, .run_there = affine_run_there};

int network_lower_batch_norm(struct network_plan *p, int node, const struct onnx_call *c,
                             struct err *e)
{
    if (!network_is_f32(p, c->node->inputs[0]) || c->in[0]->n_dims < 2)
        return 0;
    struct norm_step *s = calloc(1, sizeof *s);
    if (!s)
        return err_no_memory(e, "a step");
    s->n = c->in[0]->dims[1];
    s->rows = c->in[0]->count / s->n;
    s->epsilon = (float)call_float(c, "epsilon", 1e-5);
    s->low = -INFINITY;
    s->high = INFINITY;
    s->has_scale = true;
    int rc = affine_fold(p, c, s, e);
    if (rc < 0) {
        free(s);
        return rc == HP_EUNSUPPORTED ? 0 : rc;
    }
    rc = norm_add(p, node, s, LAYOUT_LAST, &affine_norm, e);
    /* A Relu behind it is a bound. */
    int made = c->node->outputs[0], next = rc < 0 ? -1 : network_only_reader(p, made);
    if (next < 0 || strcmp(p->o->nodes[next].op, "Relu") != 0 || *p->o->nodes[next].domain)
        return rc;
    s->low = 0;
    p->is_done[next] = true;
    p->values[p->o->nodes[next].outputs[0]].array = p->values[made].array;
    p->values[p->o->nodes[next].outputs[0]].is_shaped = true;
    network_set_view(p, p->o->nodes[next].outputs[0], &s->to);
    return rc;
}

int network_lower_softmax(struct network_plan *p, int node, const struct onnx_call *c,
                          struct err *e)
{
    const struct onnx_node *k = c->node;
    bool is_old = c->opset < 13;
    int n_dims = c->in[0]->n_dims;
    int axis = call_axis(c, call_int(c, "axis", is_old ? 1 : -1), n_dims);
    if (!network_is_f32(p, k->inputs[0]) || axis < 0 || n_dims < 1)
        return 0;
    enum network_layout layout = !is_old && axis == 1 && n_dims > 2 ? LAYOUT_LAST : LAYOUT_PLAIN;
    if (!is_old && axis != n_dims - 1 && layout == LAYOUT_PLAIN)
        return 0;
    /* Rows of what the axis has, dense in this layout. */
    int64_t each = is_old ? dims_product(c->in[0]->dims, axis, n_dims) : c->in[0]->dims[axis];
    struct nn_view rows = {
        .n_dims = 2, .dims = {c->in[0]->count / each, each}, .strides = {each, 1}};
    struct network_view views[NN_OTHER] = {0};
    struct nn_op *op;
    int rc = nn_softmax_make(p->nn, &rows, 1, strcmp(k->op, "LogSoftmax") == 0, &op, e);
    if (rc < 0)
        return rc == HP_EUNSUPPORTED ? 0 : rc;
    rc = network_need(p, k->inputs[0], layout, &views[NN_X], e);
    rc = rc < 0 ? rc : network_make_view(p, k->outputs[0], &views[NN_X].v, &views[NN_Y], e);
    if (rc < 0) {
        nn_op_free(&op);
        return rc;
    }
    views[NN_WEIGHTS].root = views[NN_BIAS].root = views[NN_SCRATCH].root = -1;
    const struct network_deed deed = {
        DEED_SOFTMAX,
        "softmax",
        {.softmax = {.rows = rows.dims[0], .n = each, .is_log = strcmp(k->op, "LogSoftmax") == 0}}};
    rc = network_op_add(p, op, node, &deed, views, NN_OTHER, e);
    return rc < 0 ? rc : 1;
}

/* ---- resizing ---- */

/* One axis: [outer, in, inner] to [outer, out, inner], both dense. */
struct resize_step {
    struct network_view to, from;
    int there; /* of a plan on a device: its root of struct array_tap */
    struct onnx_taps taps;
    int64_t outer, in, out, inner;
};

static void resize_free(void *data)
{
    struct resize_step *s = data;
    onnx_taps_free(&s->taps);
    free(s);
}

static int64_t tap_within(const struct resize_step *s, int64_t at)
{
    return at < 0 ? 0 : at >= s->in ? s->in - 1 : at;
}

static void resize_part(void *job, int part, int parts)
{
    const struct network_job *j = job;
    const struct resize_step *s = j->data;
    int64_t rows = s->outer * s->out;
    for (int64_t r = rows * part / parts; r < rows * (part + 1) / parts; r++) {
        int64_t i = r % s->out, a = tap_within(s, s->taps.first[i]),
                b = tap_within(s, s->taps.first[i] + 1);
        const float *x = network_in(j->p, &s->from) + r / s->out * s->in * s->inner;
        float *out = network_out(j->p, &s->to) + r * s->inner;
        if (s->taps.n == 1)
            memcpy(out, x + a * s->inner, (size_t)s->inner * sizeof *out);
        else
            j->p->kernels->blend(x + a * s->inner, (float)s->taps.weights[2 * i], x + b * s->inner,
                                 (float)s->taps.weights[2 * i + 1], out, (size_t)s->inner);
    }
}

static int resize_run(struct network_plan *p, const struct network_step *step, struct err *e)
{
    const struct resize_step *s = step->data;
    (void)e;
    network_job_run(p, step, s->outer * s->out * s->inner, resize_part);
    return 0;
}

/* The taps as a device has them. */
static int taps_keep(struct network_plan *p, struct resize_step *s, struct err *e)
{
    size_t bytes = (size_t)s->out * sizeof(struct array_tap);
    struct array_tap *taps = calloc(1, bytes);
    if (!taps)
        return err_no_memory(e, "a step");
    for (int64_t i = 0; i < s->out; i++) {
        const double *w = s->taps.weights + i * s->taps.n;
        taps[i].at[0] = (int32_t)tap_within(s, s->taps.first[i]);
        taps[i].at[1] = (int32_t)tap_within(s, s->taps.first[i] + 1);
        taps[i].weight[0] = s->taps.n == 1 ? 1 : (float)w[0];
        taps[i].weight[1] = s->taps.n == 1 ? 0 : (float)w[1];
    }
    s->there = network_root_fixed(p, taps, bytes, true, e);
    if (s->there >= 0)
        network_root_use(p, s->there);
    return s->there < 0 ? s->there : 0;
}

static int resize_run_there(struct network_plan *p, const struct network_step *step, struct err *e)
{
    const struct resize_step *s = step->data;
    const struct network_device *d = p->facts->device;
    const struct array_resize c = {.x = network_there_in(p, &s->from),
                                   .taps = p->roots[s->there].kept,
                                   .to = network_there_out(p, &s->to),
                                   .outer = s->outer,
                                   .in = s->in,
                                   .out = s->out,
                                   .inner = s->inner};
    (void)e;
    d->arrays->resize(d->stream, &c);
    return 0;
}

/* Whether every element is made of itself. */
static bool taps_are_identity(const struct onnx_taps *t, int64_t in, int64_t out)
{
    bool same = in == out;
    for (int64_t i = 0; i < out && same; i++)
        same = t->first[i] == i && t->weights[i * t->n] == 1 && !t->outside[i];
    return same;
}

/* Axis d of `from`, whose channels lie last. */
static int resize_axis(struct network_plan *p, int node, struct onnx_call *c, int d, int64_t size,
                       const struct network_view *from, struct network_view *to, struct err *e)
{
    struct resize_step *s = calloc(1, sizeof *s);
    if (!s)
        return err_no_memory(e, "a step");
    int rc = onnx_resize_taps(c, d, &s->taps);
    if (rc == 0 && taps_are_identity(&s->taps, from->v.dims[d], size)) {
        resize_free(s);
        *to = *from;
        return 0;
    }
    bool unknown = rc == 0 && (s->taps.n > 2 || d < 2);
    for (int64_t i = 0; rc == 0 && i < size; i++)
        unknown |= s->taps.outside[i];
    if (rc < 0 || unknown) {
        resize_free(s);
        return unknown ? HP_EUNSUPPORTED : rc;
    }
    *to = (struct network_view){.v = from->v};
    to->v.dims[d] = size;
    network_strides(&to->v, LAYOUT_LAST);
    to->root = network_root_new(p, (uint64_t)nn_view_count(&to->v) * sizeof(float), e);
    if (to->root < 0) {
        resize_free(s);
        return to->root;
    }
    s->to = *to;
    s->from = *from;
    s->in = from->v.dims[d];
    s->out = size;
    s->inner = to->v.strides[d];
    s->outer = nn_view_count(&from->v) / (s->in * s->inner);
    rc = p->facts->device ? taps_keep(p, s, e) : 0;
    if (rc < 0) {
        resize_free(s);
        return rc;
    }
    network_root_use(p, to->root);
    network_root_use(p, from->root);
    struct network_step step = {.run = resize_run,
                                .run_there = resize_run_there,
                                .free = resize_free,
                                .data = s,
                                .name = "resize",
                                .node = node};
    return network_step_add(p, &step, e);
}

int network_lower_resize(struct network_plan *p, int node, const struct onnx_call *c, struct err *e)
{
    const struct onnx_node *k = c->node;
    const struct ndarray *x = c->in[0], *out = &p->values[k->outputs[0]].array;
    struct onnx_call call = *c;
    struct network_view from, to;
    for (int i = 1; i < k->n_inputs; i++)
        if (k->inputs[i] >= 0 && !p->values[k->inputs[i]].is_known)
            return 0;
    if (!network_is_f32(p, k->inputs[0]) || x->n_dims < 3 || x->dims[0] != out->dims[0] ||
        x->dims[1] != out->dims[1] ||
        strcmp(call_string(c, "coordinate_transformation_mode", ""), "tf_crop_and_resize") == 0)
        return 0;
    int rc = network_need(p, k->inputs[0], LAYOUT_LAST, &from, e);
    to = from;
    for (int d = 0; d < x->n_dims && rc == 0; d++, from = to)
        rc = resize_axis(p, node, &call, d, out->dims[d], &from, &to, e);
    if (rc < 0)
        return rc == HP_EUNSUPPORTED ? 0 : rc;
    network_set_view(p, k->outputs[0], &to);
    return 1;
}
