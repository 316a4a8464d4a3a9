/* Arrays of any number of dimensions in host memory: what NumPy's files and ONNX graphs are made
 * of. Row-major, dense, little-endian; a scalar has no dimension and one element. Plain data. */
#ifndef HP_MODEL_NDARRAY_H
#define HP_MODEL_NDARRAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/bytes.h"
#include "common/status.h"

/* Numbers of ONNX's TensorProto.DataType. */
enum ndarray_type {
    ND_F32 = 1,
    ND_U8 = 2,
    ND_I8 = 3,
    ND_U16 = 4,
    ND_I16 = 5,
    ND_I32 = 6,
    ND_I64 = 7,
    ND_BOOL = 9,
    ND_F16 = 10,
    ND_F64 = 11,
    ND_U32 = 12,
    ND_U64 = 13,
    ND_TYPE_COUNT,
    ND_OPERATOR = 64, /* no numbers: `data` is what a node works with (model/onnx/rows.h) */
};

enum { ND_DIMS_MAX = 8 };

struct ndarray {
    enum ndarray_type type;
    int n_dims;
    int64_t dims[ND_DIMS_MAX];
    int64_t count; /* elements: the product of dims */
    void *data;    /* aligned for its type */
    bool owned;    /* by the array: ndarray_free frees it */
};

/* Bytes of an element; 0: no such type. */
size_t ndarray_type_bytes(enum ndarray_type type);
/* "float32", as NumPy says it; "unknown". */
const char *ndarray_type_name(enum ndarray_type type);
static inline bool ndarray_type_is_float(enum ndarray_type type)
{
    return type == ND_F32 || type == ND_F16 || type == ND_F64;
}
static inline uint64_t ndarray_bytes(const struct ndarray *a)
{
    return (uint64_t)a->count * ndarray_type_bytes(a->type);
}

/* Fills in type, dims and count, without data. HP_EINVAL: a negative size, too many dimensions, or
 * more bytes than 2^62. */
int ndarray_shape(struct ndarray *a, enum ndarray_type type, int n_dims, const int64_t *dims,
                  struct err *e);
/* The same, with zeroed data of its own, of at most `limit` bytes (HP_ELIMIT). HP_ENOMEM. */
int ndarray_make(struct ndarray *a, enum ndarray_type type, int n_dims, const int64_t *dims,
                 uint64_t limit, struct err *e);
/* All zero afterwards. */
void ndarray_free(struct ndarray *a);
bool ndarray_same_shape(const struct ndarray *a, const struct ndarray *b);
/* "3x224x224"; "scalar". Returns `out`. */
enum { ND_SHAPE_TEXT = ND_DIMS_MAX * 21 };
const char *ndarray_shape_text(const struct ndarray *a, char out[ND_SHAPE_TEXT]);

/* Element i as a number. Of floats to integers: toward zero, beyond the range its end, NaN to 0. */
double ndarray_f64(const struct ndarray *a, int64_t i);
int64_t ndarray_i64(const struct ndarray *a, int64_t i);
void ndarray_set_f64(const struct ndarray *a, int64_t i, double v);
void ndarray_set_i64(const struct ndarray *a, int64_t i, int64_t v);

/* An array as bytes behind what is there, and out of them: data of its own, of at most `limit`
 * bytes. HP_EPARSE, HP_ELIMIT, HP_ENOMEM. */
void ndarray_pack(const struct ndarray *a, struct buffer *out);
int ndarray_unpack(struct ndarray *a, struct reader *r, uint64_t limit, struct err *e);

#endif
