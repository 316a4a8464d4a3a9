#include "model/onnx/resize.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model/onnx/call.h"

enum resize_mode { RESIZE_NEAREST, RESIZE_LINEAR, RESIZE_CUBIC };
enum resize_grid {
    GRID_HALF_PIXEL,
    GRID_HALF_PIXEL_SYMMETRIC,
    GRID_PYTORCH_HALF_PIXEL,
    GRID_ALIGN_CORNERS,
    GRID_ASYMMETRIC,
    GRID_CROP
};
enum resize_round { ROUND_PREFER_FLOOR, ROUND_PREFER_CEIL, ROUND_FLOOR, ROUND_CEIL };

static const char *const mode_names[] = {"nearest", "linear", "cubic", NULL};
static const char *const grid_names[] = {"half_pixel",
                                         "half_pixel_symmetric",
                                         "pytorch_half_pixel",
                                         "align_corners",
                                         "asymmetric",
                                         "tf_crop_and_resize",
                                         NULL};
static const char *const round_names[] = {"round_prefer_floor", "round_prefer_ceil", "floor",
                                          "ceil", NULL};

struct resize {
    enum resize_mode mode;
    enum resize_grid grid;
    enum resize_round round;
    bool antialias, excludes; /* exclude_outside */
    double cubic_a, outside;  /* extrapolation_value */
    int n_dims;
    int64_t dims[ND_DIMS_MAX];                                        /* of the output */
    double scales[ND_DIMS_MAX], begin[ND_DIMS_MAX], end[ND_DIMS_MAX]; /* roi */
};

static int choice_read(const struct onnx_call *c, const char *name, const char *fallback,
                       const char *const *names, int *out)
{
    const char *value = call_string(c, name, fallback);
    for (*out = 0; names[*out]; ++*out)
        if (strcmp(names[*out], value) == 0)
            return 0;
    return err_set(c->e, HP_EUNSUPPORTED, "with %s %.40s", name, value);
}

/* ---- what it is told ---- */

static int scales_apply(const struct onnx_call *c, const double *scales, int n, const int *axes,
                        struct resize *r)
{
    for (int i = 0; i < n; i++) {
        int d = axes[i];
        double size = floor((double)c->in[0]->dims[d] * scales[i] *
                            (r->grid == GRID_CROP ? r->end[d] - r->begin[d] : 1));
        if (!(scales[i] > 0) || !(size >= 0 && size <= 9e15))
            return call_fail(c, "a scale of %g", scales[i]);
        r->scales[d] = scales[i];
        r->dims[d] = (int64_t)size;
    }
    return 0;
}

static int sizes_apply(const struct onnx_call *c, const struct ndarray *sizes, const int *axes,
                       struct resize *r)
{
    const char *policy = call_string(c, "keep_aspect_ratio_policy", "stretch");
    double common = 0;
    bool larger = strcmp(policy, "not_smaller") == 0, keeps = strcmp(policy, "stretch") != 0;
    for (int64_t i = 0; i < sizes->count; i++) {
        int d = axes[i];
        double in = (double)c->in[0]->dims[d], scale = (double)ndarray_i64(sizes, i) / in;
        if (ndarray_i64(sizes, i) < 0 || (in == 0 && ndarray_i64(sizes, i) > 0))
            return call_fail(c, "a size of %lld", (long long)ndarray_i64(sizes, i));
        common = i == 0 || (larger ? scale > common : scale < common) ? scale : common;
        r->dims[d] = ndarray_i64(sizes, i);
        r->scales[d] = r->dims[d] ? scale : 1;
    }
    for (int64_t i = 0; keeps && i < sizes->count; i++) {
        double size = floor((double)c->in[0]->dims[axes[i]] * common + 0.5);
        if (!(size >= 0 && size <= 9e15))
            return call_fail(c, "a scale of %g", common);
        r->scales[axes[i]] = common;
        r->dims[axes[i]] = (int64_t)size;
    }
    return 0;
}

static int axes_read(const struct onnx_call *c, int axes[ND_DIMS_MAX], int *n)
{
    const int64_t *ints;
    *n = c->in[0]->n_dims;
    for (int i = 0; i < *n; i++)
        axes[i] = i;
    if (!call_ints(c, "axes", &ints, n))
        return 0;
    if (*n > c->in[0]->n_dims)
        return call_fail(c, "%d axes of %d dimensions", *n, c->in[0]->n_dims);
    for (int i = 0; i < *n; i++)
        if ((axes[i] = call_axis(c, ints[i], c->in[0]->n_dims)) < 0)
            return HP_EINVAL;
    return 0;
}

static int targets_read(const struct onnx_call *c, struct resize *r)
{
    /* Upsample and opset 10: input and scales; since 11 there are roi and sizes too. */
    bool is_old = c->opset < 11 || strcmp(c->op->name, "Upsample") == 0;
    const struct ndarray *roi = is_old ? NULL : call_in(c, 1), *scales = call_in(c, is_old ? 1 : 2);
    const struct ndarray *sizes = is_old ? NULL : call_in(c, 3);
    const struct onnx_attribute *old = onnx_attribute(c->node, "scales"); /* Upsample 7 */
    int axes[ND_DIMS_MAX], n, rc = axes_read(c, axes, &n);
    double values[ND_DIMS_MAX];
    if (rc < 0)
        return rc;
    if (r->grid == GRID_CROP) {
        if (!roi || roi->count != 2 * (int64_t)n)
            return call_fail(c, "crops without a region");
        for (int i = 0; i < n; i++) {
            r->begin[axes[i]] = ndarray_f64(roi, i);
            r->end[axes[i]] = ndarray_f64(roi, i + n);
        }
    }
    if (sizes && sizes->count > 0)
        return sizes->count == n
                   ? sizes_apply(c, sizes, axes, r)
                   : call_fail(c, "%lld sizes for %d axes", (long long)sizes->count, n);
    int64_t given = scales ? scales->count : old ? old->n : 0;
    if (given != n)
        return call_fail(c, "%lld scales for %d axes", (long long)given, n);
    for (int i = 0; i < n; i++)
        values[i] = scales ? ndarray_f64(scales, i) : (double)old->u.floats[i];
    return scales_apply(c, values, n, axes, r);
}

static int resize_read(const struct onnx_call *c, struct resize *r)
{
    bool is_old = c->opset < 11 || strcmp(c->op->name, "Upsample") == 0;
    int mode, grid, round_to;
    *r = (struct resize){.n_dims = c->in[0]->n_dims};
    int rc = choice_read(c, "mode", "nearest", mode_names, &mode);
    rc = rc < 0 ? rc
                : choice_read(c, "coordinate_transformation_mode",
                              is_old ? "asymmetric" : "half_pixel", grid_names, &grid);
    rc = rc < 0 ? rc
                : choice_read(c, "nearest_mode", is_old ? "floor" : "round_prefer_floor",
                              round_names, &round_to);
    if (rc < 0)
        return rc;
    r->mode = (enum resize_mode)mode;
    r->grid = (enum resize_grid)grid;
    r->round = (enum resize_round)round_to;
    r->antialias = call_int(c, "antialias", 0) != 0;
    r->excludes = call_int(c, "exclude_outside", 0) != 0;
    r->cubic_a = call_float(c, "cubic_coeff_a", -0.75);
    r->outside = call_float(c, "extrapolation_value", 0);
    memcpy(r->dims, c->in[0]->dims, sizeof r->dims);
    for (int d = 0; d < r->n_dims; d++) {
        r->scales[d] = 1;
        r->end[d] = 1;
    }
    return targets_read(c, r);
}

/* ---- one axis ---- */

/* Where element i of the output lies on the input's grid. */
static double grid_place(const struct resize *r, int d, int64_t i, int64_t in)
{
    double x = (double)i, scale = r->scales[d], out = (double)r->dims[d], n = (double)in;
    switch (r->grid) {
    case GRID_ALIGN_CORNERS: return out > 1 ? x * (n - 1) / (out - 1) : 0;
    case GRID_ASYMMETRIC: return x / scale;
    case GRID_PYTORCH_HALF_PIXEL: return out > 1 ? (x + 0.5) / scale - 0.5 : 0;
    case GRID_HALF_PIXEL_SYMMETRIC: {
        double adjust = out / (n * scale), centre = n / 2;
        return centre * (1 - adjust) + (x + 0.5) / scale - 0.5;
    }
    case GRID_CROP:
        return out > 1 ? r->begin[d] * (n - 1) + x * (r->end[d] - r->begin[d]) * (n - 1) / (out - 1)
                       : 0.5 * (r->begin[d] + r->end[d]) * (n - 1);
    default: return (x + 0.5) / scale - 0.5;
    }
}

static int64_t place_round(enum resize_round how, double x)
{
    switch (how) {
    case ROUND_FLOOR: return (int64_t)floor(x);
    case ROUND_CEIL: return (int64_t)ceil(x);
    case ROUND_PREFER_CEIL: return (int64_t)floor(x + 0.5);
    default: return (int64_t)ceil(x - 0.5);
    }
}

static double kernel_at(const struct resize *r, double t)
{
    double a = r->cubic_a;
    t = fabs(t);
    if (r->mode == RESIZE_LINEAR)
        return t < 1 ? 1 - t : 0;
    if (t < 1)
        return ((a + 2) * t - (a + 3)) * t * t + 1;
    return t < 2 ? ((a * t - 5 * a) * t + 8 * a) * t - 4 * a : 0;
}

static void taps_fill(const struct resize *r, int d, int64_t in, struct onnx_taps *t)
{
    double narrow = r->antialias && r->scales[d] < 1 ? r->scales[d] : 1;
    for (int64_t i = 0; i < r->dims[d]; i++) {
        /* Far outside is far enough; and what is no place is far outside. */
        double x = fmin(fmax(grid_place(r, d, i, in), -9e15), 9e15), sum = 0;
        double *weights = t->weights + i * t->n;
        t->outside[i] = r->grid == GRID_CROP && (x < 0 || x > (double)(in - 1));
        if (r->mode == RESIZE_NEAREST) {
            int64_t at = place_round(r->round, x);
            t->first[i] = at < 0 ? 0 : at >= in ? in - 1 : at;
            weights[0] = 1;
            continue;
        }
        t->first[i] = (int64_t)floor(x) - t->n / 2 + 1;
        for (int k = 0; k < t->n; k++) {
            int64_t at = t->first[i] + k;
            bool is_outside = at < 0 || at >= in;
            weights[k] = kernel_at(r, ((double)at - x) * narrow);
            if (is_outside && r->excludes)
                weights[k] = 0;
            sum += weights[k];
        }
        for (int k = 0; k < t->n && sum != 0; k++)
            weights[k] /= sum;
    }
}

static int taps_make(struct onnx_call *c, const struct resize *r, int d, int64_t in,
                     struct onnx_taps *t)
{
    double narrow = r->antialias && r->scales[d] < 1 ? r->scales[d] : 1;
    double half = ceil((r->mode == RESIZE_CUBIC ? 2 : 1) / narrow);
    if (half > 1 << 20)
        return call_fail(c, "a scale of %g", r->scales[d]);
    t->n = r->mode == RESIZE_NEAREST ? 1 : 2 * (int)half;
    size_t out = (size_t)r->dims[d] + 1;
    if (out > c->limit / sizeof *t->weights / (size_t)t->n)
        return err_set(c->e, HP_ELIMIT, "a size of %lld", (long long)r->dims[d]);
    t->first = calloc(out, sizeof *t->first);
    t->weights = calloc(out * (size_t)t->n, sizeof *t->weights);
    t->outside = calloc(out, sizeof *t->outside);
    if (!t->first || !t->weights || !t->outside)
        return err_no_memory(c->e, "a resized axis");
    taps_fill(r, d, in, t);
    return 0;
}

void onnx_taps_free(struct onnx_taps *t)
{
    free(t->first);
    free(t->weights);
    free(t->outside);
    *t = (struct onnx_taps){0};
}

int onnx_resize_taps(struct onnx_call *c, int d, struct onnx_taps *out)
{
    struct resize r;
    *out = (struct onnx_taps){0};
    int rc = resize_read(c, &r);
    if (rc == 0 && c->in[0]->dims[d] < 1)
        return call_fail(c, "of nothing");
    rc = rc < 0 ? rc : taps_make(c, &r, d, c->in[0]->dims[d], out);
    if (rc < 0)
        onnx_taps_free(out);
    return rc;
}

/* One axis of `x` into `out`, whose other axes are x's. */
static void axis_resize(const struct resize *r, int d, const struct ndarray *x,
                        const struct onnx_taps *t, const struct ndarray *out)
{
    int64_t inner = dims_product(x->dims, d + 1, x->n_dims), n = out->dims[d], in = x->dims[d];
    for (int64_t i = 0; i < out->count; i++) {
        int64_t at = i / inner % n, base = i / inner / n * in * inner + i % inner;
        double sum = 0;
        for (int k = 0; k < t->n; k++) {
            int64_t from = t->first[at] + k;
            from = from < 0 ? 0 : from >= in ? in - 1 : from;
            sum += t->weights[at * t->n + k] * ndarray_f64(x, base + from * inner);
        }
        ndarray_set_f64(out, i, t->outside[at] ? r->outside : sum);
    }
}

int onnx_run_resize(struct onnx_call *c)
{
    struct resize r;
    int rc = resize_read(c, &r);
    struct ndarray now;
    /* All sizes are within the limit before the first axis is made. */
    rc = rc < 0 ? rc : ndarray_shape(&now, c->in[0]->type, r.n_dims, r.dims, c->e);
    if (rc == 0 && ndarray_bytes(&now) > c->limit)
        rc = err_set(c->e, HP_ELIMIT, "%lld elements", (long long)now.count);
    if (rc == 0 && c->shapes_only)
        return call_make(c, 0, c->in[0]->type, r.n_dims, r.dims);
    rc = rc < 0 ? rc : call_copy(c, 0, c->in[0], r.n_dims, c->in[0]->dims);
    for (int d = 0; d < r.n_dims && rc == 0; d++) {
        if (r.dims[d] == c->out->dims[d] && r.scales[d] == 1 && r.grid != GRID_CROP)
            continue;
        int64_t dims[ND_DIMS_MAX];
        struct ndarray before = c->out[0];
        struct onnx_taps t = {0};
        memcpy(dims, before.dims, sizeof dims);
        dims[d] = r.dims[d];
        c->out[0] = (struct ndarray){0};
        rc = before.dims[d] > 0 || dims[d] == 0 ? taps_make(c, &r, d, before.dims[d], &t)
                                                : call_fail(c, "of nothing");
        rc = rc < 0 ? rc : call_make(c, 0, before.type, r.n_dims, dims);
        if (rc == 0)
            axis_resize(&r, d, &before, &t, c->out);
        onnx_taps_free(&t);
        ndarray_free(&before);
    }
    return rc;
}
