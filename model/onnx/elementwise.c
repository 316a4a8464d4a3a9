#include "model/onnx/elementwise.h"

#include <math.h>
#include <string.h>

#include "model/onnx/call.h"

/* The two numbers of an operator, by the names that it has for them. */
static void numbers_read(const struct onnx_call *c, double *a, double *b)
{
    bool is_selu = strcmp(c->op->name, "Selu") == 0, is_shrink = strcmp(c->op->name, "Shrink") == 0;
    *a = call_float(c, is_selu ? "gamma" : is_shrink ? "lambd" : "alpha", c->op->a);
    *b = call_float(c, is_selu ? "alpha" : is_shrink ? "bias" : "beta", c->op->b);
    if (strcmp(c->op->name, "Gelu") == 0)
        *a = strcmp(call_string(c, "approximate", "none"), "tanh") == 0;
}

int onnx_run_unary(struct onnx_call *c)
{
    const struct ndarray *x = c->in[0];
    const struct onnx_operator *op = c->op;
    double a, b;
    numbers_read(c, &a, &b);
    int rc = call_make(c, 0, x->type, x->n_dims, x->dims);
    if (rc < 0)
        return rc;
    bool is_float = ndarray_type_is_float(x->type);
    if (is_float ? !op->unary : !op->i64)
        return call_fail(c, "of %s", ndarray_type_name(x->type));
    if (!is_float) {
        for (int64_t i = 0; i < x->count; i++)
            ndarray_set_i64(c->out, i, op->i64(ndarray_i64(x, i), 0));
        return 0;
    }
    for (int64_t i = 0; i < x->count; i++)
        ndarray_set_f64(c->out, i, op->unary(ndarray_f64(x, i), a, b));
    return 0;
}

int onnx_run_not(struct onnx_call *c)
{
    const struct ndarray *x = c->in[0];
    if (x->type != ND_BOOL)
        return call_fail(c, "of %s", ndarray_type_name(x->type));
    int rc = call_make(c, 0, ND_BOOL, x->n_dims, x->dims);
    for (int64_t i = 0; rc == 0 && i < x->count; i++)
        ndarray_set_i64(c->out, i, !ndarray_i64(x, i));
    return rc;
}

int onnx_run_is(struct onnx_call *c)
{
    const struct ndarray *x = c->in[0];
    double a = (double)call_int(c, "detect_positive", 1);
    double b = (double)call_int(c, "detect_negative", 1);
    int rc = call_want_float(c, 0);
    rc = rc < 0 ? rc : call_make(c, 0, ND_BOOL, x->n_dims, x->dims);
    for (int64_t i = 0; rc == 0 && i < x->count; i++)
        ndarray_set_i64(c->out, i, c->op->unary(ndarray_f64(x, i), a, b) != 0);
    return rc;
}

/* ---- two inputs ---- */

/* out = f(x, y), broadcast; by integers where both are and the operator has such. */
static int run_two(struct onnx_call *c, const struct ndarray *x, const struct ndarray *y,
                   enum ndarray_type type, onnx_binary_f64 *f64, onnx_binary_i64 *i64)
{
    const struct ndarray *two[] = {x, y};
    struct ndarray shape;
    int rc = call_broadcast(c, two, 2, &shape);
    rc = rc < 0 ? rc : call_make(c, 0, type, shape.n_dims, shape.dims);
    if (rc < 0)
        return rc;
    bool is_float = ndarray_type_is_float(x->type) || ndarray_type_is_float(y->type);
    if (is_float ? !f64 : !i64)
        return call_fail(c, "of %s", ndarray_type_name(x->type));
    struct nd_walk w;
    walk_begin(&w, &shape, two, 2);
    for (int64_t i = 0; i < shape.count; i++, walk_next(&w))
        if (is_float)
            ndarray_set_f64(c->out, i,
                            f64(ndarray_f64(x, w.offset[0]), ndarray_f64(y, w.offset[1])));
        else
            ndarray_set_i64(c->out, i,
                            i64(ndarray_i64(x, w.offset[0]), ndarray_i64(y, w.offset[1])));
    return 0;
}

static int refuse_old_broadcast(struct onnx_call *c)
{
    return c->opset < 7 && call_int(c, "broadcast", 0)
               ? err_set(c->e, HP_EUNSUPPORTED,
                         "broadcasts as before opset 7; convert the model "
                         "to a newer opset")
               : 0;
}

int onnx_run_arithmetic(struct onnx_call *c)
{
    int rc = call_types_agree(c);
    rc = rc < 0 ? rc : refuse_old_broadcast(c);
    return rc < 0 ? rc : run_two(c, c->in[0], c->in[1], c->in[0]->type, c->op->f64, c->op->i64);
}

int onnx_run_compare(struct onnx_call *c)
{
    int rc = call_types_agree(c);
    rc = rc < 0 ? rc : refuse_old_broadcast(c);
    return rc < 0 ? rc : run_two(c, c->in[0], c->in[1], ND_BOOL, c->op->f64, c->op->i64);
}

int onnx_run_pow(struct onnx_call *c)
{
    return run_two(c, c->in[0], c->in[1], c->in[0]->type, c->op->f64, c->op->i64);
}

static int64_t mod_divisor_sign(int64_t x, int64_t y)
{
    if (y == 0 || y == -1)
        return 0;
    int64_t r = x % y;
    return r != 0 && (r < 0) != (y < 0) ? r + y : r;
}

static int64_t mod_dividend_sign(int64_t x, int64_t y)
{
    return y == 0 || y == -1 ? 0 : x % y;
}

static double mod_floats(double x, double y)
{
    double r = fmod(x, y);
    return r != 0 && (r < 0) != (y < 0) ? r + y : r;
}

int onnx_run_mod(struct onnx_call *c)
{
    bool is_fmod = call_int(c, "fmod", 0) != 0;
    int rc = call_types_agree(c);
    return rc < 0 ? rc
                  : run_two(c, c->in[0], c->in[1], c->in[0]->type, is_fmod ? fmod : mod_floats,
                            is_fmod ? mod_dividend_sign : mod_divisor_sign);
}

static int64_t bits_left(int64_t x, int64_t by)
{
    return (uint64_t)by < 64 ? (int64_t)((uint64_t)x << by) : 0;
}

static int64_t bits_right(int64_t x, int64_t by)
{
    return (uint64_t)by < 64 ? (int64_t)((uint64_t)x >> by) : 0;
}

int onnx_run_bit_shift(struct onnx_call *c)
{
    const char *direction = call_string(c, "direction", "");
    enum ndarray_type type = c->in[0]->type;
    bool left = strcmp(direction, "LEFT") == 0;
    if (!left && strcmp(direction, "RIGHT") != 0)
        return call_fail(c, "its direction is \"%.40s\", neither LEFT nor RIGHT", direction);
    if (type != ND_U8 && type != ND_U16 && type != ND_U32 && type != ND_U64)
        return call_fail(c, "of %s", ndarray_type_name(type));
    int rc = call_types_agree(c);
    return rc < 0 ? rc : run_two(c, c->in[0], c->in[1], type, NULL, left ? bits_left : bits_right);
}

int onnx_run_variadic(struct onnx_call *c)
{
    struct ndarray shape;
    int rc = call_types_agree(c);
    if (rc == 0 && c->shapes_only) {
        rc = call_broadcast(c, c->in, c->n_in, &shape);
        return rc < 0 ? rc : call_make(c, 0, c->in[0]->type, shape.n_dims, shape.dims);
    }
    rc = rc < 0 ? rc : call_copy(c, 0, c->in[0], c->in[0]->n_dims, c->in[0]->dims);
    for (int i = 1; i < c->n_in && rc == 0; i++) {
        struct ndarray before = c->out[0];
        c->out[0] = (struct ndarray){0};
        rc = run_two(c, &before, c->in[i], before.type, c->op->f64, c->op->i64);
        ndarray_free(&before);
    }
    for (int64_t i = 0; rc == 0 && c->op->kind == 1 && i < c->out->count; i++)
        ndarray_set_f64(c->out, i, ndarray_f64(c->out, i) / c->n_in);
    return rc;
}

int onnx_run_where(struct onnx_call *c)
{
    struct ndarray shape;
    if (c->in[0]->type != ND_BOOL || c->in[1]->type != c->in[2]->type)
        return call_fail(c, "of %s, %s and %s", ndarray_type_name(c->in[0]->type),
                         ndarray_type_name(c->in[1]->type), ndarray_type_name(c->in[2]->type));
    int rc = call_broadcast(c, c->in, 3, &shape);
    rc = rc < 0 ? rc : call_make(c, 0, c->in[1]->type, shape.n_dims, shape.dims);
    if (rc < 0)
        return rc;
    size_t each = ndarray_type_bytes(c->in[1]->type);
    struct nd_walk w;
    walk_begin(&w, &shape, c->in, 3);
    for (int64_t i = 0; i < shape.count; i++, walk_next(&w)) {
        int from = ndarray_i64(c->in[0], w.offset[0]) ? 1 : 2;
        memcpy((char *)c->out->data + (size_t)i * each,
               (const char *)c->in[from]->data + (size_t)w.offset[from] * each, each);
    }
    return 0;
}

/* ---- the rest ---- */

int onnx_run_clip(struct onnx_call *c)
{
    const struct ndarray *x = c->in[0], *low = call_in(c, 1), *high = call_in(c, 2);
    int rc = call_types_agree(c);
    rc = rc < 0 ? rc : call_make(c, 0, x->type, x->n_dims, x->dims);
    if (rc < 0)
        return rc;
    if ((low && low->count != 1) || (high && high->count != 1))
        return call_fail(c, "its bounds are no single numbers");
    if (!ndarray_type_is_float(x->type)) {
        int64_t least = low ? ndarray_i64(low, 0) : INT64_MIN;
        int64_t most = high ? ndarray_i64(high, 0) : INT64_MAX;
        for (int64_t i = 0; i < x->count; i++) {
            int64_t v = ndarray_i64(x, i);
            v = v < least ? least : v;
            ndarray_set_i64(c->out, i, v > most ? most : v);
        }
        return 0;
    }
    double least = low ? ndarray_f64(low, 0) : call_float(c, "min", -INFINITY);
    double most = high ? ndarray_f64(high, 0) : call_float(c, "max", INFINITY);
    for (int64_t i = 0; i < x->count; i++) {
        double v = ndarray_f64(x, i);
        v = v < least ? least : v;
        ndarray_set_f64(c->out, i, v > most ? most : v);
    }
    return 0;
}

int onnx_run_cast(struct onnx_call *c)
{
    const struct ndarray *x = c->in[0];
    int64_t to = c->n_in > 1 ? (int64_t)c->in[1]->type : call_int(c, "to", 0);
    enum ndarray_type type = to > 0 && to < ND_TYPE_COUNT ? (enum ndarray_type)to : ND_TYPE_COUNT;
    if (!ndarray_type_bytes(type))
        return err_set(c->e, HP_EUNSUPPORTED, "to data type %lld", (long long)to);
    int rc = call_make(c, 0, type, x->n_dims, x->dims);
    /* Only between integers: float64 has not all of them, and int64 not all of uint64. */
    bool by_float = ndarray_type_is_float(x->type) || ndarray_type_is_float(type);
    for (int64_t i = 0; rc == 0 && i < x->count; i++)
        if (by_float)
            ndarray_set_f64(c->out, i, ndarray_f64(x, i));
        else
            ndarray_set_i64(c->out, i, ndarray_i64(x, i));
    return rc;
}

int onnx_run_identity(struct onnx_call *c)
{
    return call_copy(c, 0, c->in[0], c->in[0]->n_dims, c->in[0]->dims);
}

int onnx_run_dropout(struct onnx_call *c)
{
    const struct ndarray *x = c->in[0], *training = call_in(c, 2);
    if (training && training->count == 1 && ndarray_i64(training, 0))
        return err_set(c->e, HP_EUNSUPPORTED, "in training");
    int rc = onnx_run_identity(c);
    if (rc < 0 || c->n_out < 2)
        return rc;
    /* Before opset 12 the mask of a run that is no training is not filled, before 10 no truths. */
    rc = call_make(c, 1, c->opset < 10 ? x->type : ND_BOOL, x->n_dims, x->dims);
    if (rc == 0 && c->opset >= 12)
        memset(c->out[1].data, 1, (size_t)x->count);
    return rc;
}
