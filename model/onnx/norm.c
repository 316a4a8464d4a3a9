#include "model/onnx/norm.h"

#include <math.h>
#include <string.h>

#include "model/onnx/call.h"

static int want_length(const struct onnx_call *c, int input, int64_t n)
{
    const struct ndarray *in = call_in(c, input);
    return !in || in->count == n ? 0
                                 : call_fail(c, "input %d has %lld numbers, where %lld are wanted",
                                             input, (long long)in->count, (long long)n);
}

int onnx_run_batch_norm(struct onnx_call *c)
{
    const struct ndarray *x = c->in[0];
    double epsilon = call_float(c, "epsilon", 1e-5);
    if (call_int(c, "training_mode", 0) || (c->opset < 7 && !call_int(c, "is_test", 0)))
        return err_set(c->e, HP_EUNSUPPORTED, "in training");
    /* Before opset 9 every element of a sample could have its own scale. */
    bool by_element = c->opset < 9 && call_int(c, "spatial", 1) == 0;
    int64_t channels = by_element      ? dims_product(x->dims, 1, x->n_dims)
                       : x->n_dims > 1 ? x->dims[1]
                                       : 1;
    int64_t inner = by_element ? 1 : dims_product(x->dims, 2, x->n_dims);
    int rc = call_want_float(c, 0);
    for (int i = 1; i < 5; i++)
        rc = rc < 0 ? rc : want_length(c, i, channels);
    rc = rc < 0 ? rc : call_make(c, 0, x->type, x->n_dims, x->dims);
    for (int64_t i = 0; rc == 0 && i < x->count; i++) {
        int64_t ch = i / inner % channels;
        double scale = ndarray_f64(c->in[1], ch) / sqrt(ndarray_f64(c->in[4], ch) + epsilon);
        ndarray_set_f64(c->out, i,
                        (ndarray_f64(x, i) - ndarray_f64(c->in[3], ch)) * scale +
                            ndarray_f64(c->in[2], ch));
    }
    return rc;
}

/* Mean and 1 / deviation of n numbers from `first` on. */
static void row_moments(const struct ndarray *x, int64_t first, int64_t n, double epsilon,
                        double *mean, double *inverse)
{
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < n; i++)
        sum += ndarray_f64(x, first + i);
    *mean = sum / (double)n;
    for (int64_t i = 0; i < n; i++) {
        double d = ndarray_f64(x, first + i) - *mean;
        squares += d * d;
    }
    *inverse = 1 / sqrt(squares / (double)n + epsilon);
}

/* Whether scale and bias broadcast to what is normalized, and to no more. */
static int layer_norm_fits(const struct onnx_call *c, const struct ndarray *shape,
                           const struct ndarray *const by[2])
{
    for (int i = 0; i < 2; i++) {
        const struct ndarray *two[] = {shape, by[i]};
        struct ndarray both;
        int rc = call_broadcast(c, two, 2, &both);
        if (rc < 0 || !ndarray_same_shape(&both, shape))
            return call_fail(c, "scale or bias do not fit what is normalized");
    }
    return 0;
}

int onnx_run_layer_norm(struct onnx_call *c)
{
    const struct ndarray *x = c->in[0], *bias = call_in(c, 2);
    double epsilon = call_float(c, "epsilon", 1e-5);
    int rc = call_want_float(c, 0), axis = call_axis(c, call_int(c, "axis", -1), x->n_dims);
    if (rc < 0 || axis < 0)
        return HP_EINVAL;
    int64_t n = dims_product(x->dims, axis, x->n_dims), rows = dims_product(x->dims, 0, axis);
    int64_t few[ND_DIMS_MAX];
    for (int d = 0; d < x->n_dims; d++)
        few[d] = d < axis ? x->dims[d] : 1;
    rc = call_make(c, 0, x->type, x->n_dims, x->dims);
    for (int i = 1; i < c->n_out && rc == 0; i++)
        rc = call_make(c, i, ND_F32, x->n_dims, few);
    const struct ndarray *by[] = {c->in[1], bias ? bias : c->in[1]};
    struct ndarray shape;
    rc = rc < 0 ? rc : ndarray_shape(&shape, x->type, x->n_dims - axis, x->dims + axis, c->e);
    rc = rc < 0 ? rc : layer_norm_fits(c, &shape, by);
    if (rc < 0)
        return rc;
    for (int64_t r = 0; r < rows && n > 0; r++) {
        double mean, inverse;
        row_moments(x, r * n, n, epsilon, &mean, &inverse);
        struct nd_walk w;
        walk_begin(&w, &shape, by, 2);
        for (int64_t i = 0; i < n; i++, walk_next(&w))
            ndarray_set_f64(c->out, r * n + i,
                            (ndarray_f64(x, r * n + i) - mean) * inverse *
                                    ndarray_f64(by[0], w.offset[0]) +
                                (bias ? ndarray_f64(bias, w.offset[1]) : 0));
        if (c->n_out > 1)
            ndarray_set_f64(&c->out[1], r, mean);
        if (c->n_out > 2)
            ndarray_set_f64(&c->out[2], r, inverse);
    }
    return 0;
}

int onnx_run_group_norm(struct onnx_call *c)
{
    const struct ndarray *x = c->in[0];
    double epsilon = call_float(c, "epsilon", 1e-5);
    int rc = call_want_float(c, 0);
    if (rc < 0 || x->n_dims < 2)
        return rc < 0 ? rc : call_fail(c, "of %d dimensions", x->n_dims);
    int64_t channels = x->dims[1], inner = dims_product(x->dims, 2, x->n_dims);
    int64_t groups = c->op->kind == 1 ? channels : call_int(c, "num_groups", 0);
    if (groups <= 0 || channels % groups)
        return call_fail(c, "%lld channels in %lld groups", (long long)channels, (long long)groups);
    /* Before opset 21 a group had one scale. */
    int64_t parts = c->op->kind == 1 || c->opset >= 21 ? channels : groups;
    rc = want_length(c, 1, parts);
    rc = rc < 0 ? rc : want_length(c, 2, parts);
    rc = rc < 0 ? rc : call_make(c, 0, x->type, x->n_dims, x->dims);
    int64_t n = channels / groups * inner;
    for (int64_t g = 0; rc == 0 && n > 0 && g < x->dims[0] * groups; g++) {
        double mean, inverse;
        row_moments(x, g * n, n, epsilon, &mean, &inverse);
        for (int64_t i = g * n; i < g * n + n; i++) {
            int64_t part = i / inner % channels / (channels / parts);
            ndarray_set_f64(c->out, i,
                            (ndarray_f64(x, i) - mean) * inverse * ndarray_f64(c->in[1], part) +
                                ndarray_f64(c->in[2], part));
        }
    }
    return rc;
}

/* Which axes a mean is taken over: batch and places where none are named. */
static int mean_axes(const struct onnx_call *c, bool gone[ND_DIMS_MAX])
{
    static const int64_t usual[] = {0, 2, 3};
    const int64_t *axes = usual;
    int n = 3;
    call_ints(c, "axes", &axes, &n);
    memset(gone, 0, ND_DIMS_MAX * sizeof *gone);
    for (int i = 0; i < n; i++) {
        int axis = call_axis(c, axes[i], c->in[0]->n_dims);
        if (axis < 0)
            return HP_EINVAL;
        gone[axis] = true;
    }
    return 0;
}

/* The elements of a walk, n of them from `first` on. */
static void walk_normalise(const struct onnx_call *c, const struct nd_walk *elements, int64_t first,
                           int64_t n)
{
    const struct ndarray *x = c->in[0];
    double mean = 0, squares = 0;
    struct nd_walk w = *elements;
    for (int64_t i = 0; i < n; i++, walk_next(&w))
        mean += ndarray_f64(x, first + w.offset[0]) / (double)n;
    w = *elements;
    for (int64_t i = 0; i < n; i++, walk_next(&w)) {
        double d = ndarray_f64(x, first + w.offset[0]) - mean;
        squares += d * d;
    }
    double deviation = sqrt(squares / (double)n) + 1e-9; /* as ONNX's own function has it */
    w = *elements;
    for (int64_t i = 0; i < n; i++, walk_next(&w)) {
        int64_t at = first + w.offset[0];
        ndarray_set_f64(c->out, at, (ndarray_f64(x, at) - mean) / deviation);
    }
}

int onnx_run_mean_variance_norm(struct onnx_call *c)
{
    const struct ndarray *x = c->in[0];
    bool gone[ND_DIMS_MAX];
    struct nd_walk outer, inner;
    int rc = call_want_float(c, 0);
    rc = rc < 0 ? rc : mean_axes(c, gone);
    rc = rc < 0 ? rc : call_make(c, 0, x->type, x->n_dims, x->dims);
    if (rc < 0 || x->count == 0)
        return rc;
    int64_t n = walk_divide(x, gone, &outer, &inner);
    for (int64_t i = 0; i < x->count / n; i++, walk_next(&outer))
        walk_normalise(c, &inner, outer.offset[0], n);
    return 0;
}

int onnx_run_lp_norm(struct onnx_call *c)
{
    const struct ndarray *x = c->in[0];
    int axis = call_axis(c, call_int(c, "axis", -1), x->n_dims);
    int64_t p = call_int(c, "p", 2);
    if (axis < 0 || (p != 1 && p != 2) || call_want_float(c, 0) < 0)
        return axis < 0 ? HP_EINVAL : call_fail(c, "of order %lld", (long long)p);
    int64_t n = x->dims[axis], inner = dims_product(x->dims, axis + 1, x->n_dims);
    int rc = call_make(c, 0, x->type, x->n_dims, x->dims);
    for (int64_t line = 0; rc == 0 && n > 0 && line < x->count / n; line++) {
        int64_t base = line / inner * n * inner + line % inner;
        double sum = 0;
        for (int64_t i = 0; i < n; i++) {
            double v = ndarray_f64(x, base + i * inner);
            sum += p == 1 ? fabs(v) : v * v;
        }
        sum = p == 1 ? sum : sqrt(sum);
        for (int64_t i = 0; i < n; i++)
            ndarray_set_f64(c->out, base + i * inner,
                            sum != 0 ? ndarray_f64(x, base + i * inner) / sum : 0);
    }
    return rc;
}

int onnx_run_lrn(struct onnx_call *c)
{
    const struct ndarray *x = c->in[0];
    double alpha = call_float(c, "alpha", 1e-4), beta = call_float(c, "beta", 0.75);
    double bias = call_float(c, "bias", 1);
    int64_t size = call_int(c, "size", 0);
    if (x->n_dims < 2 || size <= 0 || call_want_float(c, 0) < 0)
        return call_fail(c, "of %d dimensions and %lld channels together", x->n_dims,
                         (long long)size);
    int64_t channels = x->dims[1], inner = dims_product(x->dims, 2, x->n_dims);
    int rc = call_make(c, 0, x->type, x->n_dims, x->dims);
    for (int64_t i = 0; rc == 0 && i < x->count; i++) {
        int64_t ch = i / inner % channels, first = ch - (size - 1) / 2, end = ch + size / 2 + 1;
        double squares = 0;
        for (int64_t k = first < 0 ? 0 : first; k < end && k < channels; k++) {
            double v = ndarray_f64(x, i + (k - ch) * inner);
            squares += v * v;
        }
        ndarray_set_f64(c->out, i,
                        ndarray_f64(x, i) / pow(bias + alpha / (double)size * squares, beta));
    }
    return rc;
}
