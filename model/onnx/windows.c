#include "model/onnx/windows.h"

#include <math.h>
#include <stdlib.h>

#include "model/onnx/call.h"
#include "model/onnx/window.h"

/* ---- convolutions, in float32 ---- */

/* Weights [outputs, inputs of a group, ...], or turned [inputs, outputs of a group, ...]. */
struct conv {
    struct window w;
    int64_t batch, groups, in, out; /* channels of a group */
    const float *x, *weights, *bias;
    float *y;
};

static int conv_read(struct onnx_call *c, bool turned, struct conv *v)
{
    const struct ndarray *x = c->in[0], *weights = c->in[1], *bias = call_in(c, 2);
    *v = (struct conv){.groups = call_int(c, "group", 1)};
    for (int i = 0; i < c->n_in; i++)
        if (c->in[i] && c->in[i]->type != ND_F32)
            return err_set(c->e, HP_EUNSUPPORTED, "of %s; float32 is known",
                           ndarray_type_name(c->in[i]->type));
    if (weights->n_dims != x->n_dims || v->groups < 1 || v->groups > dims_at_least(x->dims[1], 1))
        return call_fail(c, "weights of %d dimensions for an input of %d, %lld groups",
                         weights->n_dims, x->n_dims, (long long)v->groups);
    int rc = turned ? window_read_turned(c, x, weights->dims + 2, &v->w)
                    : window_read(c, x, weights->dims + 2, &v->w);
    if (rc < 0)
        return rc;
    int64_t in = x->dims[1], given = weights->dims[0];
    bool fits = turned || !__builtin_mul_overflow(weights->dims[1], v->groups, &given);
    if (!fits || in % v->groups || given != in || (!turned && weights->dims[0] % v->groups))
        return call_fail(c, "weights for %lld channels in %lld groups, and an input of %lld",
                         (long long)given, (long long)v->groups, (long long)in);
    v->batch = x->dims[0];
    v->in = in / v->groups;
    v->out = turned ? weights->dims[1] : weights->dims[0] / v->groups;
    int64_t channels;
    if (__builtin_mul_overflow(v->out, v->groups, &channels))
        return call_fail(c, "too many channels");
    if (bias && bias->count != channels)
        return call_fail(c, "%lld biases for %lld channels", (long long)bias->count,
                         (long long)channels);
    rc = window_make(c, 0, ND_F32, channels, &v->w);
    if (rc < 0)
        return rc;
    v->x = x->data;
    v->weights = weights->data;
    v->bias = bias ? bias->data : NULL;
    v->y = c->out->data;
    return 0;
}

static void conv_bias(const struct conv *v)
{
    int64_t plane = window_size(v->w.out), channels = v->out * v->groups;
    for (int64_t i = 0; v->bias && i < v->batch * channels; i++)
        for (int64_t k = 0; k < plane; k++)
            v->y[i * plane + k] = v->bias[i % channels];
}

/* The outputs [*first, *end) whose element `at` (stride * i + shift) lies in [0, n). */
static void axis_reach(int64_t stride, int64_t shift, int64_t n, int64_t out, int64_t *first,
                       int64_t *end)
{
    *first = shift >= 0 ? 0 : (-shift + stride - 1) / stride;
    *end = n - shift <= 0 ? 0 : (n - shift - 1) / stride + 1;
    *end = *end > out ? out : *end;
}

/* Rows of one plane of many (the larger, `big`) and one of few (`small`), for one weight: element
 * i of small meets element stride * i + shift of big. Turned, big is what is made. */
static void rows_meet(const struct window *w, const int64_t *big, const int64_t *small,
                      const int64_t at[WINDOW_AXES], float weight, bool turned, const float *from,
                      float *to)
{
    int64_t shift[WINDOW_AXES], first[WINDOW_AXES], end[WINDOW_AXES];
    for (int d = 0; d < WINDOW_AXES; d++) {
        shift[d] = at[d] * w->dilation[d] - w->before[d];
        axis_reach(w->stride[d], shift[d], big[d], small[d], &first[d], &end[d]);
    }
    for (int64_t a = first[0]; a < end[0]; a++)
        for (int64_t b = first[1]; b < end[1]; b++) {
            int64_t few = (a * small[1] + b) * small[2];
            int64_t many =
                ((a * w->stride[0] + shift[0]) * big[1] + b * w->stride[1] + shift[1]) * big[2] +
                shift[2];
            if (turned)
                for (int64_t i = first[2]; i < end[2]; i++)
                    to[many + i * w->stride[2]] += weight * from[few + i];
            else if (w->stride[2] == 1)
                for (int64_t i = first[2]; i < end[2]; i++)
                    to[few + i] += weight * from[many + i];
            else
                for (int64_t i = first[2]; i < end[2]; i++)
                    to[few + i] += weight * from[many + i * w->stride[2]];
        }
}

/* All weights between one plane of the input and one of the output. */
static void planes_meet(const struct conv *v, bool turned, const float *weights, const float *from,
                        float *to)
{
    const struct window *w = &v->w;
    int64_t at[WINDOW_AXES];
    for (at[0] = 0; at[0] < w->kernel[0]; at[0]++)
        for (at[1] = 0; at[1] < w->kernel[1]; at[1]++)
            for (at[2] = 0; at[2] < w->kernel[2]; at[2]++)
                rows_meet(w, turned ? w->out : w->in, turned ? w->in : w->out, at,
                          weights[(at[0] * w->kernel[1] + at[1]) * w->kernel[2] + at[2]], turned,
                          from, to);
}

static int conv_run(struct onnx_call *c, bool turned)
{
    struct conv v;
    int rc = conv_read(c, turned, &v);
    if (rc < 0)
        return rc;
    conv_bias(&v);
    int64_t in_plane = window_size(v.w.in), out_plane = window_size(v.w.out);
    int64_t kernel = window_size(v.w.kernel);
    for (int64_t n = 0; n < v.batch * v.groups; n++)
        for (int64_t o = 0; o < v.out; o++)
            for (int64_t i = 0; i < v.in; i++) {
                int64_t g = n % v.groups;
                int64_t weight = turned ? (g * v.in + i) * v.out + o : (g * v.out + o) * v.in + i;
                planes_meet(&v, turned, v.weights + weight * kernel,
                            v.x + (n * v.in + i) * in_plane, v.y + (n * v.out + o) * out_plane);
            }
    return 0;
}

int onnx_run_conv(struct onnx_call *c)
{
    return conv_run(c, false);
}

int onnx_run_conv_transpose(struct onnx_call *c)
{
    return conv_run(c, true);
}

/* ---- poolings ---- */

/* What a pooling made of one window: the sum is that of powers of sizes where they have one. */
struct pooled {
    double sum, largest;
    int64_t n, at; /* elements inside the input; the largest one's place in its plane */
};

/* The elements [*first, *end) of a kernel's axis that meet the input, or what is before `most`. */
static void pool_reach(const struct window *w, int d, int64_t out, int64_t least, int64_t most,
                       int64_t *first, int64_t *end)
{
    int64_t at = out * w->stride[d] - w->before[d], step = w->dilation[d];
    *first = at >= least ? 0 : (least - at + step - 1) / step;
    *end = at >= most ? 0 : (most - at - 1) / step + 1;
    *end = *end > w->kernel[d] ? w->kernel[d] : *end;
}

static void pool_window(const struct window *w, const struct ndarray *x, int64_t plane,
                        const int64_t out[WINDOW_AXES], int64_t power, struct pooled *p)
{
    int64_t first[WINDOW_AXES], end[WINDOW_AXES], at[WINDOW_AXES], k[WINDOW_AXES];
    int64_t base = plane * window_size(w->in);
    *p = (struct pooled){.largest = -INFINITY, .at = -1};
    for (int d = 0; d < WINDOW_AXES; d++) {
        pool_reach(w, d, out[d], 0, w->in[d], &first[d], &end[d]);
        at[d] = out[d] * w->stride[d] - w->before[d];
    }
    for (k[0] = first[0]; k[0] < end[0]; k[0]++)
        for (k[1] = first[1]; k[1] < end[1]; k[1]++)
            for (k[2] = first[2]; k[2] < end[2]; k[2]++) {
                int64_t i =
                    ((at[0] + k[0] * w->dilation[0]) * w->in[1] + at[1] + k[1] * w->dilation[1]) *
                        w->in[2] +
                    at[2] + k[2] * w->dilation[2];
                double v = ndarray_f64(x, base + i);
                p->sum += power ? pow(fabs(v), (double)power) : v;
                p->n++;
                if (p->at < 0 || v > p->largest || v != v) {
                    p->largest = v;
                    p->at = i;
                }
            }
}

/* Elements of a window that lie in the input or its pads, not beyond, where ceil_mode reaches. */
static int64_t pool_padded(const struct window *w, const int64_t out[WINDOW_AXES])
{
    int64_t n = 1, first, end;
    for (int d = 0; d < WINDOW_AXES; d++) {
        pool_reach(w, d, out[d], -w->before[d], w->in[d] + w->after[d], &first, &end);
        n *= end - first;
    }
    return n;
}

typedef void pool_put(struct onnx_call *c, const struct window *w, int64_t plane,
                      const int64_t out[WINDOW_AXES], int64_t at);

static int pool_run(struct onnx_call *c, const struct window *w, pool_put *put)
{
    int64_t planes = c->in[0]->dims[0] * c->in[0]->dims[1], at = 0, out[WINDOW_AXES];
    for (int64_t plane = 0; plane < planes; plane++)
        for (out[0] = 0; out[0] < w->out[0]; out[0]++)
            for (out[1] = 0; out[1] < w->out[1]; out[1]++)
                for (out[2] = 0; out[2] < w->out[2]; out[2]++)
                    put(c, w, plane, out, at++);
    return 0;
}

static void max_put(struct onnx_call *c, const struct window *w, int64_t plane,
                    const int64_t out[WINDOW_AXES], int64_t at)
{
    struct pooled p;
    pool_window(w, c->in[0], plane, out, 0, &p);
    ndarray_set_f64(c->out, at, p.largest);
    if (c->n_out < 2)
        return;
    int64_t i = p.at; /* within all of the input; the first axis fastest with storage_order 1 */
    if (i >= 0 && call_int(c, "storage_order", 0))
        i = p.at / (w->in[1] * w->in[2]) +
            w->in[0] * (p.at / w->in[2] % w->in[1] + w->in[1] * (p.at % w->in[2]));
    ndarray_set_i64(&c->out[1], at, plane * window_size(w->in) + i);
}

int onnx_run_max_pool(struct onnx_call *c)
{
    const struct ndarray *x = c->in[0];
    struct window w;
    int rc = window_read(c, x, NULL, &w);
    rc = rc < 0 ? rc : window_make(c, 0, x->type, x->dims[1], &w);
    rc = rc < 0 || c->n_out < 2 ? rc : window_make(c, 1, ND_I64, x->dims[1], &w);
    return rc < 0 ? rc : pool_run(c, &w, max_put);
}

static void average_put(struct onnx_call *c, const struct window *w, int64_t plane,
                        const int64_t out[WINDOW_AXES], int64_t at)
{
    struct pooled p;
    pool_window(w, c->in[0], plane, out, 0, &p);
    int64_t n = call_int(c, "count_include_pad", 0) ? pool_padded(w, out) : p.n;
    ndarray_set_f64(c->out, at, p.sum / (double)n);
}

int onnx_run_average_pool(struct onnx_call *c)
{
    const struct ndarray *x = c->in[0];
    struct window w;
    int rc = call_want_float(c, 0);
    rc = rc < 0 ? rc : window_read(c, x, NULL, &w);
    rc = rc < 0 ? rc : window_make(c, 0, x->type, x->dims[1], &w);
    return rc < 0 ? rc : pool_run(c, &w, average_put);
}

/* The order of a norm. */
static int order_read(const struct onnx_call *c, int64_t *p)
{
    *p = call_int(c, "p", 2);
    return *p > 0 ? 0 : call_fail(c, "of order %lld", (long long)*p);
}

static void norm_put(struct onnx_call *c, const struct window *w, int64_t plane,
                     const int64_t out[WINDOW_AXES], int64_t at)
{
    struct pooled p;
    int64_t order = call_int(c, "p", 2);
    pool_window(w, c->in[0], plane, out, order, &p);
    ndarray_set_f64(c->out, at, pow(p.sum, 1 / (double)order));
}

int onnx_run_lp_pool(struct onnx_call *c)
{
    const struct ndarray *x = c->in[0];
    struct window w;
    int64_t order;
    int rc = order_read(c, &order);
    rc = rc < 0 ? rc : call_want_float(c, 0);
    rc = rc < 0 ? rc : window_read(c, x, NULL, &w);
    rc = rc < 0 ? rc : window_make(c, 0, x->type, x->dims[1], &w);
    return rc < 0 ? rc : pool_run(c, &w, norm_put);
}

/* What a global pooling makes of a plane of n numbers. */
static double plane_pool(const struct onnx_call *c, int64_t first, int64_t n, int64_t order)
{
    double sum = 0, largest = -INFINITY, powers = 0;
    for (int64_t k = 0; k < n; k++) {
        double v = ndarray_f64(c->in[0], first + k);
        sum += v;
        largest = v > largest || v != v ? v : largest;
        powers += c->op->kind == 2 ? pow(fabs(v), (double)order) : 0;
    }
    switch (c->op->kind) {
    case 2: return pow(powers, 1 / (double)order);
    case 1: return largest;
    default: return sum / (double)n;
    }
}

int onnx_run_global_pool(struct onnx_call *c)
{
    const struct ndarray *x = c->in[0];
    int64_t dims[ND_DIMS_MAX], order;
    int rc = order_read(c, &order);
    rc = rc < 0 ? rc : call_want_float(c, 0);
    if (rc < 0 || x->n_dims < 3)
        return rc < 0 ? rc : call_fail(c, "of %d dimensions", x->n_dims);
    int64_t plane = dims_product(x->dims, 2, x->n_dims);
    for (int d = 0; d < x->n_dims; d++)
        dims[d] = d < 2 ? x->dims[d] : 1;
    rc = call_make(c, 0, x->type, x->n_dims, dims);
    for (int64_t i = 0; rc == 0 && i < c->out->count; i++)
        ndarray_set_f64(c->out, i, plane_pool(c, i * plane, plane, order));
    return rc;
}
