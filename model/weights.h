/* A named, typed, mapped tensor of a model file. Plain data; the model owns name and bytes. */
#ifndef HP_MODEL_WEIGHTS_H
#define HP_MODEL_WEIGHTS_H

#include <stdint.h>

#include "model/dtype/dtype.h"

struct weight {
    const char *name; /* as the file has it */
    enum dtype dtype; /* DTYPE_COUNT for one that nothing here computes with; only model_open_sizes
                         gives such */
    const char *format; /* its name, whether we compute with it or not */
    int n_dims;         /* 1 or 2 for what we run */
    uint64_t
        shape[4]; /* row-major, outermost first: a matrix is [rows = outputs, columns = inputs] */
    uint64_t bytes;
    int file;        /* index into model_files() */
    uint64_t offset; /* of its first byte in that file */
    /* Matrices that rows choose among, each [outputs, inputs]: experts. Then the weight itself is
     * [parts, outputs, inputs], and `data` is NULL where each part is a tensor of its own. */
    const struct weight *const *parts;
    int n_parts, n_parts_used; /* a row takes so many of them */
    const uint8_t
        *data; /* mapped in place, read-only; no alignment beyond 1 is promised (safetensors) */
};

#endif
