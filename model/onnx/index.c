#include "model/onnx/index.h"

#include <string.h>

#include "model/onnx/call.h"

/* An index of `n` elements, counted from the end where negative; -1 and the failure. */
static int64_t index_of(const struct onnx_call *c, const struct ndarray *indices, int64_t i,
                        int64_t n)
{
    int64_t v = ndarray_i64(indices, i);
    if (v >= -n && v < n)
        return v < 0 ? v + n : v;
    call_fail(c, "index %lld of %lld", (long long)v, (long long)n);
    return -1;
}

static int want_indices(const struct onnx_call *c, int input)
{
    return ndarray_type_is_float(c->in[input]->type) ? call_fail(c, "its indices are no integers")
                                                     : 0;
}

static const char *bytes_at(const struct ndarray *a, int64_t element)
{
    return (const char *)a->data + (size_t)element * ndarray_type_bytes(a->type);
}

int onnx_run_gather(struct onnx_call *c)
{
    const struct ndarray *x = c->in[0], *indices = c->in[1];
    int axis = call_axis(c, call_int(c, "axis", 0), x->n_dims);
    int64_t dims[2 * ND_DIMS_MAX];
    if (axis < 0 || want_indices(c, 1) < 0)
        return HP_EINVAL;
    int n = x->n_dims - 1 + indices->n_dims, at = 0;
    for (int d = 0; d < axis; d++)
        dims[at++] = x->dims[d];
    for (int d = 0; d < indices->n_dims; d++)
        dims[at++] = indices->dims[d];
    for (int d = axis + 1; d < x->n_dims; d++)
        dims[at++] = x->dims[d];
    int rc = call_make(c, 0, x->type, n, dims);
    int64_t inner = dims_product(x->dims, axis + 1, x->n_dims);
    int64_t outer = dims_product(x->dims, 0, axis);
    size_t block = (size_t)inner * ndarray_type_bytes(x->type);
    for (int64_t k = 0; rc == 0 && k < indices->count; k++) {
        int64_t from = index_of(c, indices, k, x->dims[axis]);
        if (from < 0)
            return HP_EINVAL;
        for (int64_t o = 0; o < outer && block > 0; o++)
            memcpy((char *)c->out->data + (size_t)(o * indices->count + k) * block,
                   bytes_at(x, (o * x->dims[axis] + from) * inner), block);
    }
    return rc;
}

/* A walk over `indices`, and where its elements lie in an array of `x`'s shape when the axis'
 * index is replaced: offset + index * step. */
static int elements_walk(struct onnx_call *c, int axis, struct nd_walk *w, int64_t *step)
{
    const struct ndarray *x = c->in[0], *indices = c->in[1];
    if (want_indices(c, 1) < 0)
        return HP_EINVAL;
    if (indices->n_dims != x->n_dims)
        return call_fail(c, "indices of %d dimensions into %d", indices->n_dims, x->n_dims);
    *w = (struct nd_walk){.n_dims = x->n_dims, .n_arrays = 1};
    dims_strides(x->dims, x->n_dims, w->strides[0]);
    memcpy(w->dims, indices->dims, sizeof w->dims);
    for (int d = 0; d < x->n_dims; d++)
        if (d != axis && indices->dims[d] > x->dims[d])
            return call_fail(c, "%lld indices along axis %d, which is %lld long",
                             (long long)indices->dims[d], d, (long long)x->dims[d]);
    *step = w->strides[0][axis];
    w->strides[0][axis] = 0;
    return 0;
}

int onnx_run_gather_elements(struct onnx_call *c)
{
    const struct ndarray *x = c->in[0], *indices = c->in[1];
    int axis = call_axis(c, call_int(c, "axis", 0), x->n_dims);
    struct nd_walk w;
    int64_t step;
    int rc = axis < 0 ? HP_EINVAL : elements_walk(c, axis, &w, &step);
    rc = rc < 0 ? rc : call_make(c, 0, x->type, indices->n_dims, indices->dims);
    size_t each = ndarray_type_bytes(x->type);
    for (int64_t i = 0; rc == 0 && i < indices->count; i++, walk_next(&w)) {
        int64_t k = index_of(c, indices, i, x->dims[axis]);
        if (k < 0)
            return HP_EINVAL;
        memcpy((char *)c->out->data + (size_t)i * each, bytes_at(x, w.offset[0] + k * step), each);
    }
    return rc;
}

/* ---- what is put ---- */

enum put_how { PUT_SET, PUT_ADD, PUT_MUL, PUT_MAX, PUT_MIN };

static int put_how(const struct onnx_call *c, enum put_how *how)
{
    static const char *const names[] = {"none", "add", "mul", "max", "min"};
    const char *name = call_string(c, "reduction", "none");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i], name) == 0) {
            *how = (enum put_how)i;
            return 0;
        }
    return err_set(c->e, HP_EUNSUPPORTED, "with reduction %.40s", name);
}

static double put_f64(enum put_how how, double a, double b)
{
    return how == PUT_ADD   ? a + b
           : how == PUT_MUL ? a * b
           : how == PUT_MAX ? (a > b ? a : b)
                            : (a < b ? a : b);
}

static int64_t put_i64(enum put_how how, int64_t a, int64_t b)
{
    return how == PUT_ADD   ? (int64_t)((uint64_t)a + (uint64_t)b)
           : how == PUT_MUL ? (int64_t)((uint64_t)a * (uint64_t)b)
           : how == PUT_MAX ? (a > b ? a : b)
                            : (a < b ? a : b);
}

static void element_put(struct onnx_call *c, enum put_how how, int64_t to, int64_t from)
{
    const struct ndarray *out = c->out, *updates = c->in[2];
    size_t each = ndarray_type_bytes(out->type);
    if (how == PUT_SET)
        memcpy((char *)out->data + (size_t)to * each, bytes_at(updates, from), each);
    else if (ndarray_type_is_float(out->type))
        ndarray_set_f64(out, to, put_f64(how, ndarray_f64(out, to), ndarray_f64(updates, from)));
    else
        ndarray_set_i64(out, to, put_i64(how, ndarray_i64(out, to), ndarray_i64(updates, from)));
}

int onnx_run_scatter_elements(struct onnx_call *c)
{
    const struct ndarray *x = c->in[0], *indices = c->in[1], *updates = c->in[2];
    int axis = call_axis(c, call_int(c, "axis", 0), x->n_dims);
    enum put_how how;
    struct nd_walk w;
    int64_t step;
    int rc = axis < 0 ? HP_EINVAL : put_how(c, &how);
    rc = rc < 0 ? rc : elements_walk(c, axis, &w, &step);
    if (rc == 0 && (!ndarray_same_shape(indices, updates) || updates->type != x->type))
        rc = call_fail(c, "its updates are not like its indices and data");
    rc = rc < 0 ? rc : call_copy(c, 0, x, x->n_dims, x->dims);
    for (int64_t i = 0; rc == 0 && i < indices->count; i++, walk_next(&w)) {
        int64_t k = index_of(c, indices, i, x->dims[axis]);
        if (k < 0)
            return HP_EINVAL;
        element_put(c, how, w.offset[0] + k * step, i);
    }
    return rc;
}

/* ---- by tuples of indices ---- */

/* Tuples along the last axis of the indices: how many, how long, and elements that each names
 * behind `batch` axes that both have in common. */
struct tuples {
    int64_t n, inner, per_batch, batch_elements;
    int length, batch;
};

static int tuples_of(struct onnx_call *c, int64_t batch, struct tuples *t)
{
    const struct ndarray *x = c->in[0], *indices = c->in[1];
    if (want_indices(c, 1) < 0)
        return HP_EINVAL;
    int64_t length = indices->n_dims > 0 ? indices->dims[indices->n_dims - 1] : 0;
    if (length < 1 || batch < 0 || batch >= indices->n_dims || length > x->n_dims - batch)
        return call_fail(c, "indices of %lld numbers into %d dimensions behind %lld of batches",
                         (long long)length, x->n_dims, (long long)batch);
    for (int d = 0; d < batch; d++)
        if (indices->dims[d] != x->dims[d])
            return call_fail(c, "its batches are %lld and %lld", (long long)indices->dims[d],
                             (long long)x->dims[d]);
    *t = (struct tuples){.n = indices->count / length,
                         .inner = dims_product(x->dims, (int)(batch + length), x->n_dims),
                         .per_batch = dims_product(indices->dims, (int)batch, indices->n_dims - 1),
                         .batch_elements = dims_product(x->dims, (int)batch, x->n_dims),
                         .length = (int)length,
                         .batch = (int)batch};
    return 0;
}

/* First element that tuple i names; -1 and the failure. */
static int64_t tuple_element(struct onnx_call *c, const struct tuples *t, int64_t i)
{
    const struct ndarray *x = c->in[0];
    int64_t at = 0;
    for (int k = 0; k < t->length; k++) {
        int64_t v = index_of(c, c->in[1], i * t->length + k, x->dims[t->batch + k]);
        if (v < 0)
            return -1;
        at = at * x->dims[t->batch + k] + v;
    }
    return at * t->inner + (t->batch ? i / t->per_batch * t->batch_elements : 0);
}

int onnx_run_gather_nd(struct onnx_call *c)
{
    const struct ndarray *x = c->in[0], *indices = c->in[1];
    struct tuples t;
    int64_t dims[2 * ND_DIMS_MAX];
    int rc = tuples_of(c, call_int(c, "batch_dims", 0), &t), n = 0;
    if (rc < 0)
        return rc;
    for (int d = 0; d < indices->n_dims - 1; d++)
        dims[n++] = indices->dims[d];
    for (int d = t.batch + t.length; d < x->n_dims; d++)
        dims[n++] = x->dims[d];
    rc = call_make(c, 0, x->type, n, dims);
    size_t block = (size_t)t.inner * ndarray_type_bytes(x->type);
    for (int64_t i = 0; rc == 0 && i < t.n && block > 0; i++) {
        int64_t from = tuple_element(c, &t, i);
        if (from < 0)
            return HP_EINVAL;
        memcpy((char *)c->out->data + (size_t)i * block, bytes_at(x, from), block);
    }
    return rc;
}

int onnx_run_scatter_nd(struct onnx_call *c)
{
    const struct ndarray *x = c->in[0], *updates = c->in[2];
    enum put_how how;
    struct tuples t;
    int rc = put_how(c, &how);
    rc = rc < 0 ? rc : tuples_of(c, 0, &t);
    if (rc == 0 && (updates->count != t.n * t.inner || updates->type != x->type))
        rc = call_fail(c, "its updates are not like its indices and data");
    rc = rc < 0 ? rc : call_copy(c, 0, x, x->n_dims, x->dims);
    for (int64_t i = 0; rc == 0 && i < t.n && t.inner > 0; i++) {
        int64_t to = tuple_element(c, &t, i);
        if (to < 0)
            return HP_EINVAL;
        for (int64_t k = 0; k < t.inner; k++)
            element_put(c, how, to + k, i * t.inner + k);
    }
    return rc;
}

int onnx_run_one_hot(struct onnx_call *c)
{
    const struct ndarray *x = c->in[0], *values = c->in[2];
    int64_t dims[ND_DIMS_MAX + 1];
    if (c->in[1]->count != 1 || values->count != 2)
        return call_fail(c, "without one depth and two values");
    int64_t depth = ndarray_i64(c->in[1], 0);
    int axis = call_axis(c, call_int(c, "axis", -1), x->n_dims + 1);
    if (axis < 0 || depth <= 0)
        return axis < 0 ? HP_EINVAL : call_fail(c, "of depth %lld", (long long)depth);
    for (int d = 0; d <= x->n_dims; d++)
        dims[d] = d < axis ? x->dims[d] : d == axis ? depth : x->dims[d - 1];
    int rc = call_make(c, 0, values->type, x->n_dims + 1, dims);
    int64_t inner = dims_product(x->dims, axis, x->n_dims);
    size_t each = ndarray_type_bytes(values->type);
    for (int64_t i = 0; rc == 0 && i < c->out->count; i++) {
        int64_t hot = ndarray_i64(x, i / (depth * inner) * inner + i % inner);
        hot = hot < 0 ? hot + depth : hot;
        bool is_hot = hot == i / inner % depth;
        memcpy((char *)c->out->data + (size_t)i * each, bytes_at(values, is_hot), each);
    }
    return rc;
}

int onnx_run_non_zero(struct onnx_call *c)
{
    const struct ndarray *x = c->in[0];
    int64_t found = 0, at = 0;
    for (int64_t i = 0; i < x->count; i++)
        found += ndarray_f64(x, i) != 0;
    int64_t dims[] = {x->n_dims, found};
    int rc = call_make(c, 0, ND_I64, 2, dims);
    struct nd_walk w;
    walk_begin(&w, x, NULL, 0);
    for (int64_t i = 0; rc == 0 && i < x->count; i++, walk_next(&w)) {
        if (ndarray_f64(x, i) == 0)
            continue;
        for (int d = 0; d < x->n_dims; d++)
            ndarray_set_i64(c->out, d * found + at, w.at[d]);
        at++;
    }
    return rc;
}
