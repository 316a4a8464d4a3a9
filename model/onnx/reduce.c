#include "model/onnx/reduce.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model/onnx/call.h"

/* ---- over any axes ---- */

struct reduction {
    double sum, largest;
    int64_t whole; /* of integers */
    bool is_first;
};

static void reduction_add(struct reduction *r, int kind, double v, int64_t i)
{
    bool first = r->is_first;
    r->is_first = false;
    switch (kind) {
    case REDUCE_PROD:
        r->sum = first ? v : r->sum * v;
        r->whole = first ? i : (int64_t)((uint64_t)r->whole * (uint64_t)i);
        return;
    case REDUCE_MAX:
        r->sum = first || v > r->sum || v != v ? v : r->sum;
        r->whole = first || i > r->whole ? i : r->whole;
        return;
    case REDUCE_MIN:
        r->sum = first || v < r->sum || v != v ? v : r->sum;
        r->whole = first || i < r->whole ? i : r->whole;
        return;
    case REDUCE_L1:
        v = fabs(v);
        i = i < 0 ? (int64_t)(0 - (uint64_t)i) : i;
        break;
    case REDUCE_L2:
    case REDUCE_SUM_SQUARE:
        v *= v;
        i = (int64_t)((uint64_t)i * (uint64_t)i);
        break;
    case REDUCE_LOG_SUM_EXP: /* two sums that keep their size: of exp(v - the largest so far) */
        if (first || v > r->largest) {
            r->sum = first || isinf(r->largest) ? 0 : r->sum * exp(r->largest - v);
            r->largest = v;
        }
        r->sum += isinf(v) && v == r->largest ? 1 : exp(v - r->largest);
        return;
    default: break;
    }
    r->sum += v;
    r->whole = (int64_t)((uint64_t)r->whole + (uint64_t)i);
}

static double reduction_end(const struct reduction *r, int kind, int64_t n)
{
    switch (kind) {
    case REDUCE_PROD: return r->is_first ? 1 : r->sum;
    case REDUCE_MAX: return r->is_first ? -INFINITY : r->sum;
    case REDUCE_MIN: return r->is_first ? INFINITY : r->sum;
    case REDUCE_MEAN: return r->sum / (double)n;
    case REDUCE_L2: return sqrt(r->sum);
    case REDUCE_LOG_SUM: return log(r->sum);
    case REDUCE_LOG_SUM_EXP: return r->is_first ? -INFINITY : log(r->sum) + r->largest;
    default: return r->sum;
    }
}

/* The largest integer of a type, or the least. */
static int64_t whole_limit(enum ndarray_type type, bool largest)
{
    int bits = 8 * (int)ndarray_type_bytes(type);
    bool is_signed = type == ND_I8 || type == ND_I16 || type == ND_I32 || type == ND_I64;
    int64_t most = type == ND_BOOL ? 1 : is_signed ? INT64_MAX >> (64 - bits) : -1; /* all bits */
    return largest ? most : is_signed ? -most - 1 : 0;
}

static int64_t reduction_end_whole(const struct reduction *r, int kind, int64_t n,
                                   enum ndarray_type type)
{
    if (r->is_first && (kind == REDUCE_MIN || kind == REDUCE_MAX)) /* of nothing */
        return whole_limit(type, kind == REDUCE_MIN);
    if (kind == REDUCE_MEAN)
        return n ? r->whole / n : 0;
    if (kind == REDUCE_L2)
        return (int64_t)sqrt((double)r->whole);
    return kind == REDUCE_PROD && r->is_first ? 1 : r->whole;
}

/* Which axes go: all where none are named or the list is empty, unless that means none. */
static int reduce_axes(struct onnx_call *c, bool gone[ND_DIMS_MAX])
{
    int64_t axes[ND_DIMS_MAX];
    int n, n_dims = c->in[0]->n_dims, rc = call_list(c, 1, "axes", axes, &n);
    if (rc < 0)
        return rc;
    bool all = n <= 0 && !call_int(c, "noop_with_empty_axes", 0);
    for (int d = 0; d < ND_DIMS_MAX; d++)
        gone[d] = all;
    for (int i = 0; i < n; i++) {
        int axis = call_axis(c, axes[i], n_dims);
        if (axis < 0)
            return HP_EINVAL;
        gone[axis] = true;
    }
    return 0;
}

int onnx_run_reduce(struct onnx_call *c)
{
    const struct ndarray *x = c->in[0];
    bool gone[ND_DIMS_MAX], keeps = call_int(c, "keepdims", 1) != 0;
    int64_t dims[ND_DIMS_MAX];
    int rc = reduce_axes(c, gone), n = 0;
    if (rc < 0)
        return rc;
    for (int d = 0; d < x->n_dims; d++)
        if (keeps || !gone[d])
            dims[n++] = gone[d] ? 1 : x->dims[d];
    if ((rc = call_make(c, 0, x->type, n, dims)) < 0)
        return rc;
    if (c->out->count == 0)
        return 0;
    struct nd_walk outer, inner; /* elements of the input by those of the output */
    int64_t each = walk_divide(x, gone, &outer, &inner);
    /* Logarithms of integers' sums are numbers with fractions before they are integers again. */
    bool is_float = ndarray_type_is_float(x->type) || c->op->kind == REDUCE_LOG_SUM ||
                    c->op->kind == REDUCE_LOG_SUM_EXP;
    for (int64_t o = 0; o < c->out->count; o++, walk_next(&outer)) {
        struct reduction r = {.is_first = true};
        struct nd_walk w = inner;
        for (int64_t i = 0; i < each; i++, walk_next(&w)) {
            int64_t at = outer.offset[0] + w.offset[0];
            reduction_add(&r, c->op->kind, is_float ? ndarray_f64(x, at) : 0,
                          is_float ? 0 : ndarray_i64(x, at));
        }
        if (is_float)
            ndarray_set_f64(c->out, o, reduction_end(&r, c->op->kind, each));
        else
            ndarray_set_i64(c->out, o, reduction_end_whole(&r, c->op->kind, each, x->type));
    }
    return 0;
}

/* ---- along one axis ---- */

/* An axis of the first input: how many lines lie along it, how long they are, how far apart their
 * elements. */
struct onnx_line {
    int axis;
    int64_t outer, n, inner;
};

static int line_of(struct onnx_call *c, int64_t axis, struct onnx_line *l)
{
    const struct ndarray *x = c->in[0];
    l->axis = call_axis(c, axis, x->n_dims);
    if (l->axis < 0)
        return HP_EINVAL;
    l->outer = dims_product(x->dims, 0, l->axis);
    l->n = x->dims[l->axis];
    l->inner = dims_product(x->dims, l->axis + 1, x->n_dims);
    return 0;
}

int onnx_run_arg(struct onnx_call *c)
{
    const struct ndarray *x = c->in[0];
    bool keeps = call_int(c, "keepdims", 1) != 0, last = call_int(c, "select_last_index", 0) != 0;
    int64_t dims[ND_DIMS_MAX];
    struct onnx_line l;
    int n = 0, rc = line_of(c, call_int(c, "axis", 0), &l);
    if (rc < 0)
        return rc;
    for (int d = 0; d < x->n_dims; d++)
        if (keeps || d != l.axis)
            dims[n++] = d == l.axis ? 1 : x->dims[d];
    if ((rc = call_make(c, 0, ND_I64, n, dims)) < 0)
        return rc;
    for (int64_t i = 0; i < c->out->count; i++) {
        int64_t base = i / l.inner * l.n * l.inner + i % l.inner, best = 0;
        for (int64_t k = 1; k < l.n; k++) {
            double a = ndarray_f64(x, base + k * l.inner),
                   b = ndarray_f64(x, base + best * l.inner);
            bool better = c->op->kind ? a < b : a > b;
            best = better || (last && a == b) ? k : best;
        }
        ndarray_set_i64(c->out, i, best);
    }
    return 0;
}

int onnx_run_cumsum(struct onnx_call *c)
{
    const struct ndarray *x = c->in[0];
    bool exclusive = call_int(c, "exclusive", 0) != 0, reverse = call_int(c, "reverse", 0) != 0;
    struct onnx_line l;
    int rc = c->in[1]->count == 1 ? line_of(c, ndarray_i64(c->in[1], 0), &l)
                                  : call_fail(c, "its axis is no single number");
    rc = rc < 0 ? rc : call_make(c, 0, x->type, x->n_dims, x->dims);
    bool is_float = ndarray_type_is_float(x->type);
    for (int64_t line = 0; rc == 0 && l.n > 0 && line < l.outer * l.inner; line++) {
        int64_t base = line / l.inner * l.n * l.inner + line % l.inner;
        double sum = 0;
        uint64_t whole = 0; /* of integers */
        for (int64_t k = 0; k < l.n; k++) {
            int64_t at = base + (reverse ? l.n - 1 - k : k) * l.inner;
            double before = sum;
            uint64_t whole_before = whole;
            if (is_float) {
                sum += ndarray_f64(x, at);
                ndarray_set_f64(c->out, at, exclusive ? before : sum);
            } else {
                whole += (uint64_t)ndarray_i64(x, at);
                ndarray_set_i64(c->out, at, (int64_t)(exclusive ? whole_before : whole));
            }
        }
    }
    return rc;
}

struct onnx_ranked {
    double value;
    int64_t whole, index; /* `whole` of integers, which float64 has not all */
};

/* The greatest first, of equals the first; for the least the values are turned round. */
static int ranked_order(const void *a, const void *b)
{
    const struct onnx_ranked *x = a, *y = b;
    if (x->value != y->value)
        return x->value > y->value ? -1 : 1;
    if (x->whole != y->whole)
        return x->whole > y->whole ? -1 : 1;
    return x->index < y->index ? -1 : 1;
}

/* What is no number is greater than all. */
static struct onnx_ranked ranked_of(const struct ndarray *x, int64_t at, int64_t index,
                                    bool largest)
{
    if (ndarray_type_is_float(x->type)) {
        double v = ndarray_f64(x, at);
        int beyond = v != v ? 1 : 0, turn = largest ? 1 : -1;
        return (struct onnx_ranked){turn * (beyond ? (double)INFINITY : v), turn * beyond, index};
    }
    int64_t v = ndarray_i64(x, at);
    return (struct onnx_ranked){0, largest ? v : ~v, index};
}

int onnx_run_topk(struct onnx_call *c)
{
    const struct ndarray *x = c->in[0];
    const struct ndarray *count = call_in(c, 1);
    int64_t k = count && count->count == 1 ? ndarray_i64(count, 0) : call_int(c, "k", -1);
    bool largest = call_int(c, "largest", 1) != 0;
    struct onnx_line l;
    int rc = line_of(c, call_int(c, "axis", -1), &l);
    if (rc < 0)
        return rc;
    if (k < 0 || k > l.n)
        return call_fail(c, "the top %lld of %lld", (long long)k, (long long)l.n);
    int64_t dims[ND_DIMS_MAX];
    memcpy(dims, x->dims, sizeof dims);
    dims[l.axis] = k;
    if ((uint64_t)l.n > c->limit / sizeof(struct onnx_ranked))
        return err_set(c->e, HP_ELIMIT, "the order of %lld", (long long)l.n);
    struct onnx_ranked *all = calloc((size_t)l.n + 1, sizeof *all);
    if (!all)
        return err_no_memory(c->e, "a sort");
    size_t each = ndarray_type_bytes(x->type);
    rc = call_make(c, 0, x->type, x->n_dims, dims);
    rc = rc < 0 || c->n_out < 2 ? rc : call_make(c, 1, ND_I64, x->n_dims, dims);
    for (int64_t line = 0; rc == 0 && l.n > 0 && line < l.outer * l.inner; line++) {
        int64_t from = line / l.inner * l.n * l.inner + line % l.inner;
        int64_t to = line / l.inner * k * l.inner + line % l.inner;
        for (int64_t i = 0; i < l.n; i++)
            all[i] = ranked_of(x, from + i * l.inner, i, largest);
        qsort(all, (size_t)l.n, sizeof *all, ranked_order);
        for (int64_t i = 0; i < k; i++) {
            memcpy((char *)c->out->data + (size_t)(to + i * l.inner) * each,
                   (const char *)x->data + (size_t)(from + all[i].index * l.inner) * each, each);
            if (c->n_out > 1)
                ndarray_set_i64(&c->out[1], to + i * l.inner, all[i].index);
        }
    }
    free(all);
    return rc;
}

/* One row: the softmax, its logarithm, or 1 for the first of the largest and 0 for all others. */
static void softmax_line(const struct onnx_call *c, const struct onnx_line *l, int64_t base)
{
    const struct ndarray *x = c->in[0];
    double largest = -INFINITY, sum = 0;
    bool is_first = true;
    for (int64_t i = 0; i < l->n; i++)
        largest = fmax(largest, ndarray_f64(x, base + i * l->inner));
    for (int64_t i = 0; i < l->n; i++)
        sum += exp(ndarray_f64(x, base + i * l->inner) - largest);
    for (int64_t i = 0; i < l->n; i++) {
        double at = ndarray_f64(x, base + i * l->inner), v = at - largest;
        bool is_largest = is_first && at == largest;
        is_first = is_first && !is_largest;
        ndarray_set_f64(c->out, base + i * l->inner,
                        c->op->kind == 2   ? is_largest
                        : c->op->kind == 1 ? v - log(sum)
                                           : exp(v) / sum);
    }
}

/* Rows of a softmax: along one axis from opset 13 on, over all axes from one on before. */
int onnx_run_softmax(struct onnx_call *c)
{
    const struct ndarray *x = c->in[0];
    int64_t axis = call_int(c, "axis", c->opset < 13 ? 1 : -1);
    struct onnx_line l = {0};
    int rc = call_want_float(c, 0);
    if (rc == 0 && c->opset < 13 && axis == x->n_dims)
        l = (struct onnx_line){.outer = x->count, .n = 1, .inner = 1}; /* each number by itself */
    else
        rc = rc < 0 ? rc : line_of(c, axis, &l);
    rc = rc < 0 ? rc : call_make(c, 0, x->type, x->n_dims, x->dims);
    if (rc < 0)
        return rc;
    if (c->opset < 13) {
        l.n *= l.inner;
        l.inner = 1;
    }
    for (int64_t line = 0; line < l.outer * l.inner && l.n > 0; line++)
        softmax_line(c, &l, line / l.inner * l.n * l.inner + line % l.inner);
    return 0;
}
