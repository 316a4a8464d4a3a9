#include "model/onnx/move.h"

#include <string.h>

#include "model/onnx/call.h"

static void element_copy(const struct ndarray *to, int64_t at, const struct ndarray *from,
                         int64_t from_at)
{
    size_t each = ndarray_type_bytes(to->type);
    memcpy((char *)to->data + (size_t)at * each, (const char *)from->data + (size_t)from_at * each,
           each);
}

int onnx_run_transpose(struct onnx_call *c)
{
    const struct ndarray *x = c->in[0];
    const int64_t *perm = NULL;
    int64_t dims[ND_DIMS_MAX], strides[ND_DIMS_MAX];
    bool taken[ND_DIMS_MAX] = {false};
    int n = x->n_dims;
    struct nd_walk w = {.n_dims = n, .n_arrays = 1};
    bool has_perm = call_ints(c, "perm", &perm, &n);
    dims_strides(x->dims, x->n_dims, strides);
    for (int d = 0; d < n && n == x->n_dims; d++) {
        int64_t from = has_perm ? perm[d] : n - 1 - d;
        if (from < 0 || from >= n || taken[from])
            return call_fail(c, "its perm is no permutation of %d axes", x->n_dims);
        taken[from] = true;
        dims[d] = w.dims[d] = x->dims[from];
        w.strides[0][d] = strides[from];
    }
    int rc = n == x->n_dims ? call_make(c, 0, x->type, n, dims)
                            : call_fail(c, "%d axes of %d dimensions", n, x->n_dims);
    for (int64_t i = 0; rc == 0 && i < x->count; i++, walk_next(&w))
        element_copy(c->out, i, x, w.offset[0]);
    return rc;
}

/* ---- along one axis ---- */

/* Copies blocks of `bytes`, as many as both have, which lie so far apart. */
static void blocks_copy(char *to, size_t to_step, const char *from, size_t from_step, size_t bytes,
                        int64_t n)
{
    for (int64_t i = 0; i < n && bytes > 0; i++)
        memcpy(to + (size_t)i * to_step, from + (size_t)i * from_step, bytes);
}

int onnx_run_concat(struct onnx_call *c)
{
    const struct ndarray *x = c->in[0];
    int axis = call_axis(c, call_int(c, "axis", 1), x->n_dims), rc = call_types_agree(c);
    int64_t dims[ND_DIMS_MAX];
    if (axis < 0 || rc < 0)
        return HP_EINVAL;
    memcpy(dims, x->dims, sizeof dims);
    for (int i = 1; i < c->n_in; i++) {
        if (c->in[i]->n_dims != x->n_dims)
            return call_fail(c, "input %d has another number of dimensions", i);
        for (int d = 0; d < x->n_dims; d++)
            if (d != axis && c->in[i]->dims[d] != x->dims[d])
                return call_fail(c, "input %d does not fit: %lld and %lld along axis %d", i,
                                 (long long)c->in[i]->dims[d], (long long)x->dims[d], d);
        if (__builtin_add_overflow(dims[axis], c->in[i]->dims[axis], &dims[axis]))
            return call_fail(c, "too long");
    }
    rc = call_make(c, 0, x->type, x->n_dims, dims);
    size_t inner = (size_t)dims_product(x->dims, axis + 1, x->n_dims) * ndarray_type_bytes(x->type);
    int64_t outer = dims_product(x->dims, 0, axis);
    size_t at = 0;
    for (int i = 0; rc == 0 && i < c->n_in; i++) {
        size_t block = (size_t)c->in[i]->dims[axis] * inner;
        blocks_copy((char *)c->out->data + at, (size_t)dims[axis] * inner, c->in[i]->data, block,
                    block, outer);
        at += block;
    }
    return rc;
}

/* Lengths of the parts: said, or as equal as can be. */
static int split_lengths(struct onnx_call *c, int64_t whole, int64_t *lengths, int room)
{
    const struct ndarray *in = call_in(c, 1);
    const int64_t *ints = NULL;
    int n = c->n_out;
    int64_t sum = 0, parts = call_int(c, "num_outputs", n);
    if (n > room || parts != n)
        return call_fail(c, "%lld parts and %d outputs", (long long)parts, n);
    bool has_ints = call_ints(c, "split", &ints, &n);
    if (in)
        n = in->count < room ? (int)in->count : room;
    if (n != c->n_out)
        return call_fail(c, "%d lengths and %d outputs", n, c->n_out);
    int64_t each = (whole + n - 1) / n;
    for (int i = 0; i < n; i++) {
        int64_t left = whole - sum > 0 ? whole - sum : 0;
        lengths[i] = in ? ndarray_i64(in, i) : has_ints ? ints[i] : (each < left ? each : left);
        if (lengths[i] < 0 || lengths[i] > whole)
            return call_fail(c, "a part of %lld of %lld", (long long)lengths[i], (long long)whole);
        sum += lengths[i];
    }
    return sum == whole ? 0
                        : call_fail(c, "its parts are %lld long together, the input %lld",
                                    (long long)sum, (long long)whole);
}

int onnx_run_split(struct onnx_call *c)
{
    enum { PARTS_MAX = 1024 };
    const struct ndarray *x = c->in[0];
    int64_t dims[ND_DIMS_MAX], lengths[PARTS_MAX];
    int axis = call_axis(c, call_int(c, "axis", 0), x->n_dims);
    int rc = axis < 0 ? HP_EINVAL : split_lengths(c, x->dims[axis], lengths, PARTS_MAX);
    if (rc < 0)
        return rc;
    size_t inner = (size_t)dims_product(x->dims, axis + 1, x->n_dims) * ndarray_type_bytes(x->type);
    int64_t outer = dims_product(x->dims, 0, axis);
    size_t at = 0;
    memcpy(dims, x->dims, sizeof dims);
    for (int i = 0; i < c->n_out && rc == 0; i++) {
        size_t block = (size_t)lengths[i] * inner;
        dims[axis] = lengths[i];
        rc = call_make(c, i, x->type, x->n_dims, dims);
        if (rc == 0 && c->out[i].data)
            blocks_copy(c->out[i].data, block, (const char *)x->data + at,
                        (size_t)x->dims[axis] * inner, block, outer);
        at += block;
    }
    return rc;
}

static int64_t index_clamp(int64_t v, int64_t low, int64_t high)
{
    return v < low ? low : v > high ? high : v;
}

/* How many elements of an axis a slice has; *first becomes where it begins. */
static int64_t slice_axis(int64_t n, int64_t *first, int64_t end, int64_t step)
{
    if (n == 0)
        return 0;
    int64_t begin = *first < 0 ? *first + n : *first, stop = end < 0 ? end + n : end;
    *first = begin = index_clamp(begin, 0, step > 0 ? n : n - 1);
    stop = step > 0 ? index_clamp(stop, 0, n) : index_clamp(stop, -1, n - 1);
    if (step > 0)
        return stop > begin ? (stop - begin - 1) / step + 1 : 0;
    return begin > stop ? (begin - stop - 1) / -step + 1 : 0;
}

int onnx_run_slice(struct onnx_call *c)
{
    const struct ndarray *x = c->in[0];
    int64_t starts[ND_DIMS_MAX], ends[ND_DIMS_MAX], axes[ND_DIMS_MAX], steps[ND_DIMS_MAX];
    int n, n_ends, n_axes, n_steps = -1, rc = call_list(c, 1, "starts", starts, &n);
    rc = rc < 0 ? rc : call_list(c, 2, "ends", ends, &n_ends);
    rc = rc < 0 ? rc : call_list(c, 3, "axes", axes, &n_axes);
    rc = rc < 0 ? rc : call_list(c, 4, "steps", steps, &n_steps);
    if (rc < 0)
        return rc;
    if (n < 0 || n_ends != n || (n_axes >= 0 && n_axes != n) || (n_steps >= 0 && n_steps != n) ||
        n > x->n_dims)
        return call_fail(c, "its starts, ends, axes and steps are not as many");
    struct nd_walk w = {.n_dims = x->n_dims, .n_arrays = 1};
    bool taken[ND_DIMS_MAX] = {false};
    dims_strides(x->dims, x->n_dims, w.strides[0]);
    memcpy(w.dims, x->dims, sizeof w.dims);
    for (int i = 0; i < n; i++) {
        int axis = call_axis(c, n_axes >= 0 ? axes[i] : i, x->n_dims);
        int64_t step = n_steps >= 0 ? steps[i] : 1, first = starts[i];
        if (axis < 0 || step == 0)
            return axis < 0 ? HP_EINVAL : call_fail(c, "a step of 0");
        if (taken[axis])
            return call_fail(c, "axis %d twice", axis);
        taken[axis] = true;
        step = step < -INT64_MAX ? -INT64_MAX : step;
        w.dims[axis] = slice_axis(x->dims[axis], &first, ends[i], step);
        w.offset[0] += w.dims[axis] > 0 ? first * w.strides[0][axis] : 0;
        if (w.dims[axis] > 1)
            w.strides[0][axis] *= step;
    }
    rc = call_make(c, 0, x->type, x->n_dims, w.dims);
    for (int64_t i = 0; rc == 0 && i < c->out->count; i++, walk_next(&w))
        element_copy(c->out, i, x, w.offset[0]);
    return rc;
}

/* ---- pads ---- */

enum pad_mode { PAD_CONSTANT, PAD_REFLECT, PAD_EDGE, PAD_WRAP };

/* Where element `at` of a padded axis comes from; -1: it is new. */
static int64_t pad_source(enum pad_mode mode, int64_t at, int64_t n)
{
    if (at >= 0 && at < n)
        return at;
    switch (mode) {
    case PAD_EDGE: return at < 0 ? 0 : n - 1;
    case PAD_WRAP: return (at % n + n) % n;
    case PAD_REFLECT: {
        if (n == 1)
            return 0;
        int64_t period = 2 * (n - 1), r = (at % period + period) % period;
        return r < n ? r : period - r;
    }
    default: return -1;
    }
}

static int pad_lengths(struct onnx_call *c, int64_t before[ND_DIMS_MAX], int64_t dims[ND_DIMS_MAX])
{
    const struct ndarray *x = c->in[0], *in = c->opset < 11 ? NULL : call_in(c, 1);
    const int64_t *ints = NULL;
    int64_t axes[ND_DIMS_MAX];
    bool taken[ND_DIMS_MAX] = {false};
    int n = 0, n_axes = -1, rc = c->opset < 18 ? 0 : call_list(c, 3, "axes", axes, &n_axes);
    if (rc < 0)
        return rc;
    if (in)
        n = in->count <= 2 * ND_DIMS_MAX ? (int)in->count : -1;
    else if (!call_ints(c, "pads", &ints, &n) && !call_ints(c, "paddings", &ints, &n))
        n = -1;
    int each = n_axes >= 0 ? n_axes : x->n_dims;
    if (n != 2 * each)
        return call_fail(c, "its pads are not two for each of %d axes", each);
    for (int i = 0; i < each; i++) {
        int axis = n_axes >= 0 ? call_axis(c, axes[i], x->n_dims) : i;
        int64_t a = in ? ndarray_i64(in, i) : ints[i];
        int64_t b = in ? ndarray_i64(in, i + each) : ints[i + each];
        if (axis < 0)
            return HP_EINVAL;
        if (taken[axis])
            return call_fail(c, "axis %d twice", axis);
        taken[axis] = true;
        before[axis] = a;
        if (a < -dims[axis] || b < -dims[axis] ||
            __builtin_add_overflow(dims[axis], a, &dims[axis]) ||
            __builtin_add_overflow(dims[axis], b, &dims[axis]) || dims[axis] < 0)
            return call_fail(c, "pads of %lld and %lld on %lld", (long long)a, (long long)b,
                             (long long)x->dims[axis]);
    }
    return 0;
}

int onnx_run_pad(struct onnx_call *c)
{
    static const char *const modes[] = {"constant", "reflect", "edge", "wrap"};
    const struct ndarray *x = c->in[0], *value = c->opset < 11 ? NULL : call_in(c, 2);
    const char *name = call_string(c, "mode", "constant");
    int64_t before[ND_DIMS_MAX] = {0}, dims[ND_DIMS_MAX], strides[ND_DIMS_MAX];
    int mode = 0;
    while (mode < 4 && strcmp(modes[mode], name) != 0)
        mode++;
    if (mode == 4)
        return err_set(c->e, HP_EUNSUPPORTED, "in mode %.40s", name);
    memcpy(dims, x->dims, sizeof dims);
    int rc = pad_lengths(c, before, dims);
    if (rc == 0 && value && (value->count != 1 || value->type != x->type))
        rc = call_fail(c, "what it pads with is no single number of the input's type");
    rc = rc < 0 ? rc : call_make(c, 0, x->type, x->n_dims, dims);
    if (rc < 0)
        return rc;
    if (mode != PAD_CONSTANT && x->count == 0 && c->out->count > 0)
        return call_fail(c, "of nothing");
    double constant = call_float(c, "value", 0);
    dims_strides(x->dims, x->n_dims, strides);
    struct nd_walk w;
    walk_begin(&w, c->out, NULL, 0);
    for (int64_t i = 0; i < c->out->count; i++, walk_next(&w)) {
        int64_t from = 0;
        bool is_new = false;
        for (int d = 0; d < x->n_dims; d++) {
            int64_t at = pad_source((enum pad_mode)mode, w.at[d] - before[d], x->dims[d]);
            is_new |= at < 0;
            from += at * strides[d];
        }
        if (!is_new)
            element_copy(c->out, i, x, from);
        else if (value)
            element_copy(c->out, i, value, 0);
        else if (constant != 0)
            ndarray_set_f64(c->out, i, constant);
    }
    return 0;
}

/* ---- blocks of a picture ---- */

/* Walks an input of [batch, channels, rows, columns] as six axes in another order. */
static void six_walk(struct nd_walk *w, const int64_t dims[6], const int order[6])
{
    int64_t strides[6];
    *w = (struct nd_walk){.n_dims = 6, .n_arrays = 1};
    dims_strides(dims, 6, strides);
    for (int d = 0; d < 6; d++) {
        w->dims[d] = dims[order[d]];
        w->strides[0][d] = strides[order[d]];
    }
}

static int picture_block(struct onnx_call *c, int64_t *block)
{
    *block = call_int(c, "blocksize", 0);
    if (c->in[0]->n_dims != 4 || *block <= 0 || *block > 1 << 20)
        return call_fail(c, "of %d dimensions in blocks of %lld", c->in[0]->n_dims,
                         (long long)*block);
    return 0;
}

static int six_move(struct onnx_call *c, const int64_t dims[6], const int order[6],
                    const int64_t to[4])
{
    struct nd_walk w;
    int rc = call_make(c, 0, c->in[0]->type, 4, to);
    six_walk(&w, dims, order);
    for (int64_t i = 0; rc == 0 && i < c->out->count; i++, walk_next(&w))
        element_copy(c->out, i, c->in[0], w.offset[0]);
    return rc;
}

int onnx_run_depth_to_space(struct onnx_call *c)
{
    const int64_t *x = c->in[0]->dims;
    int64_t b;
    int rc = picture_block(c, &b);
    if (rc < 0)
        return rc;
    if (x[1] % (b * b))
        return call_fail(c, "%lld channels in blocks of %lld", (long long)x[1], (long long)b);
    int64_t depth = x[1] / (b * b), to[] = {x[0], depth, x[2] * b, x[3] * b};
    bool crd = strcmp(call_string(c, "mode", "DCR"), "CRD") == 0;
    static const int dcr_order[] = {0, 3, 4, 1, 5, 2}, crd_order[] = {0, 1, 4, 2, 5, 3};
    int64_t dcr[] = {x[0], b, b, depth, x[2], x[3]}, by_row[] = {x[0], depth, b, b, x[2], x[3]};
    return six_move(c, crd ? by_row : dcr, crd ? crd_order : dcr_order, to);
}

int onnx_run_space_to_depth(struct onnx_call *c)
{
    const int64_t *x = c->in[0]->dims;
    int64_t b;
    int rc = picture_block(c, &b);
    if (rc < 0)
        return rc;
    if (x[2] % b || x[3] % b)
        return call_fail(c, "%lld x %lld in blocks of %lld", (long long)x[2], (long long)x[3],
                         (long long)b);
    int64_t to[] = {x[0], x[1] * b * b, x[2] / b, x[3] / b};
    int64_t dims[] = {x[0], x[1], x[2] / b, b, x[3] / b, b};
    static const int order[] = {0, 3, 5, 1, 2, 4};
    return six_move(c, dims, order, to);
}

int onnx_run_trilu(struct onnx_call *c)
{
    const struct ndarray *x = c->in[0], *k = call_in(c, 1);
    bool upper = call_int(c, "upper", 1) != 0;
    if (x->n_dims < 2 || (k && k->count != 1))
        return call_fail(c, "of %d dimensions", x->n_dims);
    int64_t diagonal = k ? ndarray_i64(k, 0) : 0;
    int64_t rows = x->dims[x->n_dims - 2], columns = x->dims[x->n_dims - 1];
    diagonal = diagonal < -rows ? -rows : diagonal > columns ? columns : diagonal;
    int rc = call_make(c, 0, x->type, x->n_dims, x->dims);
    for (int64_t i = 0; rc == 0 && i < x->count; i++) {
        int64_t off = i % columns - i / columns % rows;
        if (upper ? off >= diagonal : off <= diagonal)
            element_copy(c->out, i, x, i);
    }
    return rc;
}
