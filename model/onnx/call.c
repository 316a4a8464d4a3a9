#include "model/onnx/call.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int64_t call_int(const struct onnx_call *c, const char *name, int64_t fallback)
{
    const struct onnx_attribute *a = onnx_attribute(c->node, name);
    return a && a->type == ONNX_INT ? a->u.i : fallback;
}

double call_float(const struct onnx_call *c, const char *name, double fallback)
{
    const struct onnx_attribute *a = onnx_attribute(c->node, name);
    return a && a->type == ONNX_FLOAT ? (double)a->u.f : fallback;
}

const char *call_string(const struct onnx_call *c, const char *name, const char *fallback)
{
    const struct onnx_attribute *a = onnx_attribute(c->node, name);
    return a && a->type == ONNX_STRING ? a->u.s : fallback;
}

bool call_ints(const struct onnx_call *c, const char *name, const int64_t **out, int *n)
{
    const struct onnx_attribute *a = onnx_attribute(c->node, name);
    if (!a || a->type != ONNX_INTS)
        return false;
    *out = a->u.ints;
    *n = a->n;
    return true;
}

int call_list(const struct onnx_call *c, int input, const char *name, int64_t out[ND_DIMS_MAX],
              int *n)
{
    const struct ndarray *in = call_in(c, input);
    const int64_t *ints;
    *n = -1;
    if (in) {
        if (in->count > ND_DIMS_MAX || in->n_dims > 1 || ndarray_type_is_float(in->type))
            return call_fail(c, "its %s are no list of at most %d integers", name, ND_DIMS_MAX);
        *n = (int)in->count;
        for (int i = 0; i < *n; i++)
            out[i] = ndarray_i64(in, i);
    } else if (call_ints(c, name, &ints, n)) {
        if (*n > ND_DIMS_MAX)
            return call_fail(c, "%d %s; at most %d are known", *n, name, ND_DIMS_MAX);
        memcpy(out, ints, (size_t)*n * sizeof *out);
    }
    return 0;
}

const struct ndarray *call_in(const struct onnx_call *c, int i)
{
    return i < c->n_in ? c->in[i] : NULL;
}

int call_make(struct onnx_call *c, int i, enum ndarray_type type, int n_dims, const int64_t *dims)
{
    if (!c->shapes_only)
        return ndarray_make(&c->out[i], type, n_dims, dims, c->limit, c->e);
    int rc = ndarray_shape(&c->out[i], type, n_dims, dims, c->e);
    if (rc == 0 && ndarray_bytes(&c->out[i]) > c->limit)
        rc = err_set(c->e, HP_ELIMIT, "%lld elements", (long long)c->out[i].count);
    return rc < 0 ? rc : ++c->n_shaped >= c->n_out ? CALL_SHAPED : 0;
}

int call_copy(struct onnx_call *c, int i, const struct ndarray *from, int n_dims,
              const int64_t *dims)
{
    int rc = call_make(c, i, from->type, n_dims, dims);
    if (rc == 0 && c->out[i].count != from->count)
        return call_fail(c, "%lld elements do not fit %lld", (long long)from->count,
                         (long long)c->out[i].count);
    if (rc == 0 && from->count > 0 && c->out[i].data)
        memcpy(c->out[i].data, from->data, ndarray_bytes(from));
    return rc;
}

int call_fail(const struct onnx_call *c, const char *fmt, ...)
{
    char text[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return err_set(c->e, HP_EINVAL, "%s", text);
}

int call_types_agree(const struct onnx_call *c)
{
    const struct ndarray *first = NULL;
    for (int i = 0; i < c->n_in; i++) {
        if (first && c->in[i] && c->in[i]->type != first->type)
            return call_fail(c, "its inputs are %s and %s", ndarray_type_name(first->type),
                             ndarray_type_name(c->in[i]->type));
        first = first ? first : c->in[i];
    }
    return 0;
}

int call_want_float(const struct onnx_call *c, int input)
{
    const struct ndarray *in = call_in(c, input);
    return !in || ndarray_type_is_float(in->type)
               ? 0
               : call_fail(c, "input %d is %s, where floats are wanted", input,
                           ndarray_type_name(in->type));
}

int call_axis(const struct onnx_call *c, int64_t axis, int n_dims)
{
    if (axis >= -(int64_t)n_dims && axis < n_dims)
        return (int)(axis < 0 ? axis + n_dims : axis);
    call_fail(c, "axis %lld of %d dimensions", (long long)axis, n_dims);
    return -1;
}

int64_t dims_product(const int64_t *dims, int from, int to)
{
    int64_t product = 1;
    for (int d = from; d < to; d++)
        product *= dims[d];
    return product;
}

void dims_strides(const int64_t *dims, int n_dims, int64_t *strides)
{
    int64_t step = 1;
    for (int d = n_dims - 1; d >= 0; d--) {
        strides[d] = step;
        step *= dims[d];
    }
}

int call_broadcast(const struct onnx_call *c, const struct ndarray *const *arrays, int n,
                   struct ndarray *shape)
{
    int64_t dims[ND_DIMS_MAX];
    int n_dims = 0;
    for (int i = 0; i < n; i++)
        n_dims = arrays[i]->n_dims > n_dims ? arrays[i]->n_dims : n_dims;
    for (int d = 0; d < n_dims; d++) {
        dims[d] = 1;
        for (int i = 0; i < n; i++) {
            int at = d - (n_dims - arrays[i]->n_dims);
            int64_t size = at < 0 ? 1 : arrays[i]->dims[at];
            if (size != 1 && dims[d] != 1 && size != dims[d]) {
                char a[ND_SHAPE_TEXT], b[ND_SHAPE_TEXT];
                return call_fail(c, "%s and %s do not broadcast", ndarray_shape_text(arrays[0], a),
                                 ndarray_shape_text(arrays[i], b));
            }
            dims[d] = size != 1 ? size : dims[d];
        }
    }
    return ndarray_shape(shape, arrays[0]->type, n_dims, dims, c->e);
}

void walk_begin(struct nd_walk *w, const struct ndarray *shape, const struct ndarray *const *arrays,
                int n)
{
    *w = (struct nd_walk){.n_dims = shape->n_dims, .n_arrays = n};
    memcpy(w->dims, shape->dims, sizeof w->dims);
    for (int k = 0; k < n; k++) {
        int64_t strides[ND_DIMS_MAX];
        int missing = shape->n_dims - arrays[k]->n_dims;
        dims_strides(arrays[k]->dims, arrays[k]->n_dims, strides);
        for (int d = 0; d < shape->n_dims; d++)
            w->strides[k][d] =
                d < missing || arrays[k]->dims[d - missing] == 1 ? 0 : strides[d - missing];
    }
}

int64_t walk_divide(const struct ndarray *x, const bool is_inner[ND_DIMS_MAX],
                    struct nd_walk *outer, struct nd_walk *inner)
{
    int64_t strides[ND_DIMS_MAX], n = 1;
    *outer = *inner = (struct nd_walk){.n_arrays = 1};
    dims_strides(x->dims, x->n_dims, strides);
    for (int d = 0; d < x->n_dims; d++) {
        struct nd_walk *w = is_inner[d] ? inner : outer;
        w->dims[w->n_dims] = x->dims[d];
        w->strides[0][w->n_dims++] = strides[d];
        n *= is_inner[d] ? x->dims[d] : 1;
    }
    return n;
}

void walk_next(struct nd_walk *w)
{
    for (int d = w->n_dims - 1; d >= 0; d--) {
        bool is_over = ++w->at[d] == w->dims[d];
        for (int k = 0; k < w->n_arrays; k++)
            w->offset[k] += is_over ? -w->strides[k][d] * (w->dims[d] - 1) : w->strides[k][d];
        if (!is_over)
            return;
        w->at[d] = 0;
    }
}
