#include "model/ndarray.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/dtype/dtype.h"

static const struct {
    const char *name;
    size_t bytes;
} types[ND_TYPE_COUNT] = {
    [ND_F32] = {"float32", 4}, [ND_U8] = {"uint8", 1},   [ND_I8] = {"int8", 1},
    [ND_U16] = {"uint16", 2},  [ND_I16] = {"int16", 2},  [ND_I32] = {"int32", 4},
    [ND_I64] = {"int64", 8},   [ND_BOOL] = {"bool", 1},  [ND_F16] = {"float16", 2},
    [ND_F64] = {"float64", 8}, [ND_U32] = {"uint32", 4}, [ND_U64] = {"uint64", 8},
};

size_t ndarray_type_bytes(enum ndarray_type type)
{
    return type > 0 && type < ND_TYPE_COUNT ? types[type].bytes : 0;
}

const char *ndarray_type_name(enum ndarray_type type)
{
    return ndarray_type_bytes(type) ? types[type].name : "unknown";
}

int ndarray_shape(struct ndarray *a, enum ndarray_type type, int n_dims, const int64_t *dims,
                  struct err *e)
{
    *a = (struct ndarray){.type = type, .n_dims = n_dims, .count = 1};
    if (n_dims < 0 || n_dims > ND_DIMS_MAX)
        return err_set(e, HP_EINVAL, "%d dimensions (at most %d are allowed)", n_dims, ND_DIMS_MAX);
    bool is_empty = false;
    for (int d = 0; d < n_dims; d++) {
        if (dims[d] < 0)
            return err_set(e, HP_EINVAL, "dimension %d is %lld", d, (long long)dims[d]);
        a->dims[d] = dims[d];
        is_empty |= dims[d] == 0;
    }
    /* Of an array without elements the other sizes, too: strides are products of them. */
    for (int d = 0; d < n_dims; d++)
        if (dims[d] > 0 &&
            (__builtin_mul_overflow(a->count, dims[d], &a->count) || a->count > INT64_MAX / 16)) {
            char text[ND_SHAPE_TEXT];
            return err_set(e, HP_EINVAL, "an array of %s elements is too large",
                           ndarray_shape_text(a, text));
        }
    if (is_empty)
        a->count = 0;
    return 0;
}

int ndarray_make(struct ndarray *a, enum ndarray_type type, int n_dims, const int64_t *dims,
                 uint64_t limit, struct err *e)
{
    int rc = ndarray_shape(a, type, n_dims, dims, e);
    if (rc < 0)
        return rc;
    char text[ND_SHAPE_TEXT];
    uint64_t bytes = ndarray_bytes(a);
    if (bytes > limit)
        return err_set(e, HP_ELIMIT, "an array of %s %s needs %llu bytes; %llu are left",
                       ndarray_shape_text(a, text), ndarray_type_name(type),
                       (unsigned long long)bytes, (unsigned long long)limit);
    a->data = calloc(1, bytes ? bytes : 1);
    if (!a->data)
        return err_no_memory(e, "an array of %s", ndarray_shape_text(a, text));
    a->owned = true;
    return 0;
}

void ndarray_free(struct ndarray *a)
{
    if (a->owned)
        free(a->data);
    *a = (struct ndarray){0};
}

bool ndarray_same_shape(const struct ndarray *a, const struct ndarray *b)
{
    return a->n_dims == b->n_dims &&
           memcmp(a->dims, b->dims, (size_t)a->n_dims * sizeof *a->dims) == 0;
}

const char *ndarray_shape_text(const struct ndarray *a, char out[ND_SHAPE_TEXT])
{
    size_t at = 0;
    snprintf(out, ND_SHAPE_TEXT, "scalar");
    for (int d = 0; d < a->n_dims; d++)
        at += (size_t)snprintf(out + at, ND_SHAPE_TEXT - at, d ? "x%lld" : "%lld",
                               (long long)a->dims[d]);
    return out;
}

/* ---- elements ---- */

static int64_t i64_of_f64(double v)
{
    if (v != v)
        return 0;
    if (v >= 9223372036854775808.0)
        return INT64_MAX;
    return v < -9223372036854775808.0 ? INT64_MIN : (int64_t)v;
}

static uint64_t u64_of_f64(double v)
{
    return v >= 18446744073709551616.0  ? UINT64_MAX
           : v >= 9223372036854775808.0 ? (uint64_t)v
                                        : (uint64_t)i64_of_f64(v);
}

double ndarray_f64(const struct ndarray *a, int64_t i)
{
    switch (a->type) {
    case ND_F32: return (double)((const float *)a->data)[i];
    case ND_F64: return ((const double *)a->data)[i];
    case ND_F16: return (double)dtype_f16_to_f32(((const uint16_t *)a->data)[i]);
    case ND_U64: return (double)((const uint64_t *)a->data)[i];
    default: return (double)ndarray_i64(a, i);
    }
}

int64_t ndarray_i64(const struct ndarray *a, int64_t i)
{
    switch (a->type) {
    case ND_U8: return ((const uint8_t *)a->data)[i];
    case ND_BOOL: return ((const uint8_t *)a->data)[i] != 0;
    case ND_I8: return ((const int8_t *)a->data)[i];
    case ND_U16: return ((const uint16_t *)a->data)[i];
    case ND_I16: return ((const int16_t *)a->data)[i];
    case ND_U32: return ((const uint32_t *)a->data)[i];
    case ND_I32: return ((const int32_t *)a->data)[i];
    case ND_I64:
    case ND_U64: return ((const int64_t *)a->data)[i];
    default: return i64_of_f64(ndarray_f64(a, i));
    }
}

void ndarray_set_f64(const struct ndarray *a, int64_t i, double v)
{
    switch (a->type) {
    case ND_F32: ((float *)a->data)[i] = (float)v; break;
    case ND_F64: ((double *)a->data)[i] = v; break;
    case ND_F16: ((uint16_t *)a->data)[i] = dtype_f32_to_f16((float)v); break;
    case ND_BOOL: ((uint8_t *)a->data)[i] = v != 0; break;
    case ND_U64: ((uint64_t *)a->data)[i] = u64_of_f64(v); break;
    default: ndarray_set_i64(a, i, i64_of_f64(v));
    }
}

void ndarray_set_i64(const struct ndarray *a, int64_t i, int64_t v)
{
    switch (a->type) {
    case ND_U8:
    case ND_I8: ((uint8_t *)a->data)[i] = (uint8_t)v; break;
    case ND_BOOL: ((uint8_t *)a->data)[i] = v != 0; break;
    case ND_U16:
    case ND_I16: ((uint16_t *)a->data)[i] = (uint16_t)v; break;
    case ND_U32:
    case ND_I32: ((uint32_t *)a->data)[i] = (uint32_t)v; break;
    case ND_I64:
    case ND_U64: ((uint64_t *)a->data)[i] = (uint64_t)v; break;
    default: ndarray_set_f64(a, i, (double)v);
    }
}

/* ---- as bytes ---- */

void ndarray_pack(const struct ndarray *a, struct buffer *out)
{
    uint32_t head[] = {(uint32_t)a->type, (uint32_t)a->n_dims};
    buffer_append(out, head, sizeof head);
    buffer_append(out, a->dims, (size_t)a->n_dims * sizeof *a->dims);
    buffer_append(out, a->data, ndarray_bytes(a));
}

int ndarray_unpack(struct ndarray *a, struct reader *r, uint64_t limit, struct err *e)
{
    uint32_t type = reader_u32(r), n_dims = reader_u32(r);
    int64_t dims[ND_DIMS_MAX];
    if (n_dims > ND_DIMS_MAX || !ndarray_type_bytes((enum ndarray_type)type))
        return err_set(e, HP_EPARSE, "no array: its head is damaged");
    for (uint32_t d = 0; d < n_dims; d++)
        dims[d] = reader_i64(r);
    int rc = ndarray_make(a, (enum ndarray_type)type, (int)n_dims, dims, limit, e);
    const uint8_t *data = rc < 0 ? NULL : reader_take(r, ndarray_bytes(a));
    if (rc == 0 && !data) {
        ndarray_free(a);
        return err_set(e, HP_EPARSE, "an array is cut short");
    }
    if (rc == 0 && a->count > 0)
        memcpy(a->data, data, ndarray_bytes(a));
    return rc;
}
