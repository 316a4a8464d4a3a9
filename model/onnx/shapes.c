#include "model/onnx/shapes.h"

#include <math.h>
#include <string.h>

#include "model/onnx/call.h"

static int64_t index_clamped(int64_t v, int64_t n)
{
    v = v < 0 ? v + n : v;
    return v < 0 ? 0 : v > n ? n : v;
}

int onnx_run_shape(struct onnx_call *c)
{
    const struct ndarray *x = c->in[0];
    int64_t first = index_clamped(call_int(c, "start", 0), x->n_dims);
    int64_t end = index_clamped(call_int(c, "end", x->n_dims), x->n_dims);
    int64_t n = end > first ? end - first : 0;
    int rc = call_make(c, 0, ND_I64, 1, &n);
    for (int64_t i = 0; rc == 0 && i < n; i++)
        ndarray_set_i64(c->out, i, x->dims[first + i]);
    return rc;
}

int onnx_run_size(struct onnx_call *c)
{
    int rc = call_make(c, 0, ND_I64, 0, NULL);
    if (rc == 0)
        ndarray_set_i64(c->out, 0, c->in[0]->count);
    return rc;
}

int onnx_run_reshape(struct onnx_call *c)
{
    const struct ndarray *x = c->in[0];
    int64_t dims[ND_DIMS_MAX], known = 1;
    int n, free_at = -1, rc = call_list(c, 1, "shape", dims, &n);
    if (rc < 0 || n < 0)
        return rc < 0 ? rc : call_fail(c, "without a shape");
    bool zeros = call_int(c, "allowzero", 0) != 0;
    for (int d = 0; d < n; d++) {
        if (dims[d] == 0 && !zeros) {
            if (d >= x->n_dims)
                return call_fail(c, "size %d is to be the input's, which has %d", d, x->n_dims);
            dims[d] = x->dims[d];
        }
        if (dims[d] == -1 && free_at >= 0)
            return call_fail(c, "two sizes are -1");
        if (dims[d] == -1)
            free_at = d;
        else if (dims[d] < 0 || __builtin_mul_overflow(known, dims[d], &known))
            return call_fail(c, "a size of %lld", (long long)dims[d]);
    }
    if (free_at >= 0) {
        if (known == 0 || x->count % known)
            return call_fail(c, "%lld elements do not fill rows of %lld", (long long)x->count,
                             (long long)known);
        dims[free_at] = x->count / known;
    }
    struct ndarray to;
    rc = ndarray_shape(&to, x->type, n, dims, c->e);
    if (rc == 0 && to.count != x->count)
        return call_fail(c, "%lld elements do not fit %lld", (long long)x->count,
                         (long long)to.count);
    return rc < 0 ? rc : call_copy(c, 0, x, n, dims);
}

int onnx_run_flatten(struct onnx_call *c)
{
    const struct ndarray *x = c->in[0];
    int64_t axis = call_int(c, "axis", 1);
    if (axis < -(int64_t)x->n_dims || axis > x->n_dims)
        return call_fail(c, "axis %lld of %d dimensions", (long long)axis, x->n_dims);
    int at = (int)(axis < 0 ? axis + x->n_dims : axis);
    int64_t dims[] = {dims_product(x->dims, 0, at), dims_product(x->dims, at, x->n_dims)};
    return call_copy(c, 0, x, 2, dims);
}

int onnx_run_squeeze(struct onnx_call *c)
{
    const struct ndarray *x = c->in[0];
    int64_t axes[ND_DIMS_MAX], dims[ND_DIMS_MAX];
    bool gone[ND_DIMS_MAX] = {false};
    int n, n_dims = 0, rc = call_list(c, 1, "axes", axes, &n);
    if (rc < 0)
        return rc;
    for (int i = 0; i < n; i++) {
        int axis = call_axis(c, axes[i], x->n_dims);
        if (axis < 0)
            return HP_EINVAL;
        if (x->dims[axis] != 1)
            return call_fail(c, "axis %d is %lld long", axis, (long long)x->dims[axis]);
        gone[axis] = true;
    }
    for (int d = 0; d < x->n_dims; d++)
        if (n < 0 ? x->dims[d] != 1 : !gone[d])
            dims[n_dims++] = x->dims[d];
    return call_copy(c, 0, x, n_dims, dims);
}

int onnx_run_unsqueeze(struct onnx_call *c)
{
    const struct ndarray *x = c->in[0];
    int64_t axes[ND_DIMS_MAX], dims[ND_DIMS_MAX];
    bool is_new[ND_DIMS_MAX] = {false};
    int n, rc = call_list(c, 1, "axes", axes, &n);
    if (rc < 0 || n < 0)
        return rc < 0 ? rc : call_fail(c, "without axes");
    if (x->n_dims + n > ND_DIMS_MAX)
        return call_fail(c, "%d dimensions; at most %d are known", x->n_dims + n, ND_DIMS_MAX);
    for (int i = 0; i < n; i++) {
        int axis = call_axis(c, axes[i], x->n_dims + n);
        if (axis < 0 || is_new[axis])
            return axis < 0 ? HP_EINVAL : call_fail(c, "axis %d twice", axis);
        is_new[axis] = true;
    }
    for (int d = 0, from = 0; d < x->n_dims + n; d++)
        dims[d] = is_new[d] ? 1 : x->dims[from++];
    return call_copy(c, 0, x, x->n_dims + n, dims);
}

int onnx_run_constant(struct onnx_call *c)
{
    const struct onnx_attribute *a = c->node->n_attributes == 1 ? c->node->attributes : NULL;
    int64_t n = a ? a->n : 0;
    int rc;
    switch (a ? a->type : ONNX_GRAPH) {
    case ONNX_TENSOR: return call_copy(c, 0, a->u.tensor, a->u.tensor->n_dims, a->u.tensor->dims);
    case ONNX_FLOAT:
        rc = call_make(c, 0, ND_F32, 0, NULL);
        if (rc == 0)
            ndarray_set_f64(c->out, 0, (double)a->u.f);
        return rc;
    case ONNX_INT:
        rc = call_make(c, 0, ND_I64, 0, NULL);
        if (rc == 0)
            ndarray_set_i64(c->out, 0, a->u.i);
        return rc;
    case ONNX_FLOATS:
    case ONNX_INTS:
        rc = call_make(c, 0, a->type == ONNX_INTS ? ND_I64 : ND_F32, 1, &n);
        if (rc == 0 && n > 0)
            memcpy(c->out->data, a->type == ONNX_INTS ? (const void *)a->u.ints : a->u.floats,
                   ndarray_bytes(c->out));
        return rc;
    default: return err_set(c->e, HP_EUNSUPPORTED, "no number or array of numbers");
    }
}

int onnx_run_constant_of_shape(struct onnx_call *c)
{
    const struct onnx_attribute *a = onnx_attribute(c->node, "value");
    const struct ndarray *value = a ? a->u.tensor : NULL;
    int64_t dims[ND_DIMS_MAX];
    int n, rc = call_list(c, 0, "input", dims, &n);
    if (rc < 0)
        return rc;
    if (value && value->count != 1)
        return call_fail(c, "its value has %lld elements", (long long)value->count);
    rc = call_make(c, 0, value ? value->type : ND_F32, n, dims);
    size_t each = rc < 0 ? 0 : ndarray_type_bytes(c->out->type);
    for (int64_t i = 0; rc == 0 && value && i < c->out->count; i++)
        memcpy((char *)c->out->data + (size_t)i * each, value->data, each);
    return rc;
}

int onnx_run_range(struct onnx_call *c)
{
    int rc = call_types_agree(c);
    for (int i = 0; i < 3 && rc == 0; i++)
        if (c->in[i]->count != 1)
            rc = call_fail(c, "input %d is no single number", i);
    if (rc < 0)
        return rc;
    double first = ndarray_f64(c->in[0], 0), step = ndarray_f64(c->in[2], 0);
    double n = ceil((ndarray_f64(c->in[1], 0) - first) / step);
    if (step == 0 || n != n || n > 9e15)
        return call_fail(c, "from %g in steps of %g", first, step);
    int64_t count = n < 0 ? 0 : (int64_t)n;
    bool is_float = ndarray_type_is_float(c->in[0]->type);
    rc = call_make(c, 0, c->in[0]->type, 1, &count);
    for (int64_t i = 0; rc == 0 && i < count; i++)
        if (is_float)
            ndarray_set_f64(c->out, i, first + (double)i * step);
        else
            ndarray_set_i64(c->out, i, ndarray_i64(c->in[0], 0) + i * ndarray_i64(c->in[2], 0));
    return rc;
}

int onnx_run_expand(struct onnx_call *c)
{
    const struct ndarray *x = c->in[0];
    int64_t dims[ND_DIMS_MAX];
    struct ndarray wanted, shape;
    int n, rc = call_list(c, 1, "shape", dims, &n);
    rc = rc < 0 ? rc : ndarray_shape(&wanted, x->type, n, dims, c->e);
    const struct ndarray *both[] = {x, &wanted};
    rc = rc < 0 ? rc : call_broadcast(c, both, 2, &shape);
    rc = rc < 0 ? rc : call_make(c, 0, x->type, shape.n_dims, shape.dims);
    if (rc < 0)
        return rc;
    size_t each = ndarray_type_bytes(x->type);
    struct nd_walk w;
    walk_begin(&w, &shape, &x, 1);
    for (int64_t i = 0; i < shape.count; i++, walk_next(&w))
        memcpy((char *)c->out->data + (size_t)i * each,
               (const char *)x->data + (size_t)w.offset[0] * each, each);
    return 0;
}

int onnx_run_tile(struct onnx_call *c)
{
    const struct ndarray *x = c->in[0];
    int64_t times[ND_DIMS_MAX], dims[ND_DIMS_MAX], strides[ND_DIMS_MAX];
    int n, rc = call_list(c, 1, "repeats", times, &n);
    if (rc < 0)
        return rc;
    if (n != x->n_dims)
        return call_fail(c, "%d repeats for %d dimensions", n, x->n_dims);
    for (int d = 0; d < n; d++)
        if (times[d] < 0 || __builtin_mul_overflow(x->dims[d], times[d], &dims[d]))
            return call_fail(c, "%lld times", (long long)times[d]);
    rc = call_make(c, 0, x->type, n, dims);
    size_t each = ndarray_type_bytes(x->type);
    dims_strides(x->dims, n, strides);
    struct nd_walk w;
    if (rc == 0)
        walk_begin(&w, c->out, NULL, 0);
    for (int64_t i = 0; rc == 0 && i < c->out->count; i++, walk_next(&w)) {
        int64_t from = 0;
        for (int d = 0; d < n; d++)
            from += w.at[d] % x->dims[d] * strides[d];
        memcpy((char *)c->out->data + (size_t)i * each, (const char *)x->data + (size_t)from * each,
               each);
    }
    return rc;
}
