#include "model/onnx/window.h"

#include <string.h>

#include "model/onnx/call.h"

enum { WINDOW_MOST = 1 << 30 }; /* of any size in it: sums of a few cannot overflow */

/* An attribute with a number for each axis into the last ones of out[3]; the others are `other`. */
static int axis_numbers(const struct onnx_call *c, const char *name, int n_axes, int64_t fallback,
                        int64_t least, int64_t out[WINDOW_AXES])
{
    const int64_t *ints;
    int n;
    for (int d = 0; d < WINDOW_AXES; d++)
        out[d] = fallback;
    if (!call_ints(c, name, &ints, &n))
        return 0;
    if (n != n_axes)
        return call_fail(c, "%d %s for %d axes", n, name, n_axes);
    for (int d = 0; d < n; d++) {
        if (ints[d] < least || ints[d] > WINDOW_MOST)
            return call_fail(c, "%s of %lld", name, (long long)ints[d]);
        out[WINDOW_AXES - n_axes + d] = ints[d];
    }
    return 0;
}

static int pads_read(const struct onnx_call *c, struct window *w)
{
    const int64_t *ints;
    int n;
    if (!call_ints(c, "pads", &ints, &n))
        return 0;
    if (n != 2 * w->n_axes)
        return call_fail(c, "%d pads for %d axes", n, w->n_axes);
    for (int d = 0; d < w->n_axes; d++) {
        int at = WINDOW_AXES - w->n_axes + d;
        w->before[at] = ints[d];
        w->after[at] = ints[d + w->n_axes];
        for (int side = 0; side < 2; side++)
            if (ints[d + side * w->n_axes] < 0 || ints[d + side * w->n_axes] > WINDOW_MOST)
                return call_fail(c, "pads of %lld", (long long)ints[d + side * w->n_axes]);
    }
    return 0;
}

static int sizes_read(const struct onnx_call *c, const struct ndarray *x, const int64_t *kernel,
                      struct window *w)
{
    *w = (struct window){.n_axes = x->n_dims - 2};
    if (w->n_axes < 1 || w->n_axes > WINDOW_AXES)
        return call_fail(c, "of %d dimensions; 3 to 5 are known", x->n_dims);
    int rc = axis_numbers(c, "kernel_shape", w->n_axes, 1, 1, w->kernel);
    rc = rc < 0 ? rc : axis_numbers(c, "strides", w->n_axes, 1, 1, w->stride);
    rc = rc < 0 ? rc : axis_numbers(c, "dilations", w->n_axes, 1, 1, w->dilation);
    rc = rc < 0 ? rc : pads_read(c, w);
    if (rc < 0)
        return rc;
    const int64_t *ints;
    int n;
    bool has_kernel = call_ints(c, "kernel_shape", &ints, &n);
    if (!has_kernel && !kernel)
        return call_fail(c, "without a kernel_shape");
    for (int d = 0; d < WINDOW_AXES; d++)
        w->in[d] = 1;
    for (int d = 0; d < w->n_axes; d++) {
        int at = WINDOW_AXES - w->n_axes + d;
        w->in[at] = x->dims[2 + d];
        if (kernel && has_kernel && kernel[d] != w->kernel[at])
            return call_fail(c, "its kernel_shape is %lld, its weights' %lld",
                             (long long)w->kernel[at], (long long)kernel[d]);
        if (kernel)
            w->kernel[at] = kernel[d];
        if (w->in[at] > WINDOW_MOST || w->kernel[at] < 1 || w->kernel[at] > WINDOW_MOST)
            return call_fail(c, "a kernel of %lld on %lld", (long long)w->kernel[at],
                             (long long)w->in[at]);
    }
    return 0;
}

/* As many pads as make the output in / stride long, an odd one behind or before. */
static void pads_same(struct window *w, int d, bool upper)
{
    int64_t reach = w->dilation[d] * (w->kernel[d] - 1) + 1;
    int64_t out = (w->in[d] + w->stride[d] - 1) / w->stride[d];
    int64_t pads = dims_at_least((out - 1) * w->stride[d] + reach - w->in[d], 0);
    w->before[d] = upper ? pads / 2 : pads - pads / 2;
    w->after[d] = pads - w->before[d];
}

enum auto_pad { AUTO_NOT, AUTO_UPPER, AUTO_LOWER, AUTO_VALID };

static int auto_pad_read(const struct onnx_call *c, enum auto_pad *how)
{
    static const char *const names[] = {"NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"};
    const char *name = call_string(c, "auto_pad", names[0]);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i], name) == 0 || !*name) {
            *how = (enum auto_pad)i;
            return 0;
        }
    return call_fail(c, "auto_pad %.40s", name);
}

int window_read(const struct onnx_call *c, const struct ndarray *x, const int64_t *kernel,
                struct window *w)
{
    enum auto_pad how;
    bool ceils = call_int(c, "ceil_mode", 0) != 0;
    int rc = sizes_read(c, x, kernel, w);
    rc = rc < 0 ? rc : auto_pad_read(c, &how);
    if (rc < 0)
        return rc;
    for (int d = 0; d < WINDOW_AXES; d++) {
        if (how == AUTO_VALID)
            w->before[d] = w->after[d] = 0;
        if (how == AUTO_UPPER || how == AUTO_LOWER)
            pads_same(w, d, how == AUTO_UPPER);
        int64_t reach = w->dilation[d] * (w->kernel[d] - 1) + 1;
        int64_t room = w->in[d] + w->before[d] + w->after[d] - reach;
        if (room < 0 && (!ceils || room <= -w->stride[d] || w->in[d] + w->before[d] == 0))
            return call_fail(c, "a window of %lld on %lld with pads of %lld and %lld",
                             (long long)reach, (long long)w->in[d], (long long)w->before[d],
                             (long long)w->after[d]);
        w->out[d] = room < 0 ? 1 : room / w->stride[d] + 1;
        /* ceil_mode: one window more, if it begins inside the input or its first pad. */
        if (ceils && room > 0 && room % w->stride[d] &&
            w->out[d] * w->stride[d] < w->in[d] + w->before[d])
            w->out[d]++;
    }
    return 0;
}

int window_read_turned(const struct onnx_call *c, const struct ndarray *x, const int64_t *kernel,
                       struct window *w)
{
    enum auto_pad how;
    int64_t extra[WINDOW_AXES], shape[WINDOW_AXES];
    int rc = sizes_read(c, x, kernel, w);
    rc = rc < 0 ? rc : auto_pad_read(c, &how);
    rc = rc < 0 ? rc : axis_numbers(c, "output_padding", w->n_axes, 0, 0, extra);
    rc = rc < 0 ? rc : axis_numbers(c, "output_shape", w->n_axes, -1, 1, shape);
    if (rc < 0)
        return rc;
    for (int d = WINDOW_AXES - w->n_axes; d < WINDOW_AXES; d++) {
        int64_t whole =
            w->stride[d] * (w->in[d] - 1) + extra[d] + w->dilation[d] * (w->kernel[d] - 1) + 1;
        bool same = how == AUTO_UPPER || how == AUTO_LOWER;
        if (same && shape[d] < 0)
            shape[d] = w->in[d] * w->stride[d];
        if (shape[d] >= 0) {
            int64_t pads = dims_at_least(whole - shape[d], 0);
            w->before[d] = how == AUTO_UPPER ? pads / 2 : pads - pads / 2;
            w->after[d] = pads - w->before[d];
            w->out[d] = shape[d];
        } else {
            if (how == AUTO_VALID)
                w->before[d] = w->after[d] = 0;
            w->out[d] = whole - w->before[d] - w->after[d];
        }
        if (w->out[d] < 1)
            return call_fail(c, "nothing is left of %lld with pads of %lld and %lld",
                             (long long)whole, (long long)w->before[d], (long long)w->after[d]);
    }
    for (int d = 0; d < WINDOW_AXES - w->n_axes; d++)
        w->out[d] = 1;
    return 0;
}

int window_make(struct onnx_call *c, int i, enum ndarray_type type, int64_t channels,
                const struct window *w)
{
    int64_t dims[ND_DIMS_MAX] = {c->in[0]->dims[0], channels};
    memcpy(dims + 2, w->out + WINDOW_AXES - w->n_axes, (size_t)w->n_axes * sizeof *dims);
    return call_make(c, i, type, 2 + w->n_axes, dims);
}
