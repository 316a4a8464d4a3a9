/* Weights of tests, without a model. What they are made of has to outlive them. */
#ifndef HP_TESTS_UNIT_AGENT_BACKEND_WEIGHTS_H
#define HP_TESTS_UNIT_AGENT_BACKEND_WEIGHTS_H

#include <stdint.h>

#include "model/dtype/dtype.h"
#include "model/weights.h"

/* `bytes` get the values in that format. */
static inline struct weight weight_make(enum dtype t, const float *values, uint64_t rows,
                                        uint64_t columns, uint8_t *bytes)
{
    dtype_info(t)->from_f32(values, rows * columns, bytes);
    return (struct weight){.name = "weight",
                           .dtype = t,
                           .format = dtype_info(t)->name,
                           .n_dims = 2,
                           .shape = {rows, columns},
                           .bytes = dtype_bytes(t, rows * columns),
                           .file = -1,
                           .data = bytes};
}

static inline struct weight vector_make(const float *values, uint64_t n)
{
    return (struct weight){.name = "vector",
                           .dtype = DTYPE_F32,
                           .format = "F32",
                           .n_dims = 1,
                           .shape = {n},
                           .bytes = n * sizeof *values,
                           .file = -1,
                           .data = (const uint8_t *)values};
}

#endif
