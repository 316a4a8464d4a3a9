/* What the operators' loops have in common: attributes, outputs, axes, broadcasting. */
#ifndef HP_MODEL_ONNX_CALL_H
#define HP_MODEL_ONNX_CALL_H

#include <stdbool.h>

#include "model/onnx/operator.h"

/* ---- attributes: of the type that onnx_operator_check has seen to ---- */

int64_t call_int(const struct onnx_call *c, const char *name, int64_t fallback);
double call_float(const struct onnx_call *c, const char *name, double fallback);
const char *call_string(const struct onnx_call *c, const char *name, const char *fallback);
/* Whether it is there. */
bool call_ints(const struct onnx_call *c, const char *name, const int64_t **out, int *n);
/* Integers that newer opsets have as an input and older ones as an attribute, at most ND_DIMS_MAX;
 * *n is -1 where there are neither. HP_EPARSE. */
int call_list(const struct onnx_call *c, int input, const char *name, int64_t out[ND_DIMS_MAX],
              int *n);

/* ---- inputs and outputs ---- */

/* NULL: left out. */
const struct ndarray *call_in(const struct onnx_call *c, int i);
/* What making the last output returns where shapes alone are asked for: the operator has said all
 * and goes no further. */
enum { CALL_SHAPED = -1000 };
/* Makes output i. Where shapes alone are asked for it has no data, whatever this returns. */
int call_make(struct onnx_call *c, int i, enum ndarray_type type, int n_dims, const int64_t *dims);
/* Output i as a copy of an array, with the same elements in another shape. */
int call_copy(struct onnx_call *c, int i, const struct ndarray *from, int n_dims,
              const int64_t *dims);
/* A failure of the call: HP_EINVAL and the text. */
int call_fail(const struct onnx_call *c, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* All inputs that are there have the type of the first. */
int call_types_agree(const struct onnx_call *c);
int call_want_float(const struct onnx_call *c, int input);

/* ---- axes ---- */

/* An axis of `n_dims`, counted from the end where negative; -1 and the failure. */
int call_axis(const struct onnx_call *c, int64_t axis, int n_dims);
/* Product of dims [from, to). */
int64_t dims_product(const int64_t *dims, int from, int to);
/* Elements between two neighbours along each axis of a dense array. */
void dims_strides(const int64_t *dims, int n_dims, int64_t *strides);
/* The last axis first. */
static inline int64_t dims_at_least(int64_t v, int64_t least)
{
    return v < least ? least : v;
}

/* ---- walking several arrays over one shape ---- */

enum { WALK_ARRAYS_MAX = 3 };
struct nd_walk {
    int n_dims, n_arrays;
    int64_t dims[ND_DIMS_MAX], at[ND_DIMS_MAX];
    int64_t strides[WALK_ARRAYS_MAX][ND_DIMS_MAX];
    int64_t offset[WALK_ARRAYS_MAX]; /* of the element where it is */
};

/* The shape that arrays broadcast to; HP_EINVAL where they do not fit. */
int call_broadcast(const struct onnx_call *c, const struct ndarray *const *arrays, int n,
                   struct ndarray *shape);
/* A walk over `shape` (its dims) with arrays that broadcast to it. */
void walk_begin(struct nd_walk *w, const struct ndarray *shape, const struct ndarray *const *arrays,
                int n);
/* An array's elements as a walk over some axes, and within it one over the others (`inner`), whose
 * elements it returns. */
int64_t walk_divide(const struct ndarray *x, const bool is_inner[ND_DIMS_MAX],
                    struct nd_walk *outer, struct nd_walk *inner);
/* To the next element, the last axis fastest. */
void walk_next(struct nd_walk *w);

#endif
