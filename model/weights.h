/* A named, typed, mapped tensor of a model file. Plain data; the model owns name and bytes. */
#ifndef HP_MODEL_WEIGHTS_H
#define HP_MODEL_WEIGHTS_H

#include <stdint.h>

#include "common/status.h"
#include "model/dtype/dtype.h"

/* How a file keeps a weight whose bytes are not those of its `dtype`: in two tensors, one of values
 * and one of scales. */
enum weight_stored {
    WEIGHT_PLAIN,
    WEIGHT_F8_E4M3, /* eight bits times a float, which many have in common; its dtype is F32 */
    WEIGHT_F8_E5M2,
    WEIGHT_MXFP4_APART, /* four bits, element 2i in the low half of byte i, and exponents; its dtype
                           is MXFP4 */
};

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
    enum weight_stored stored;
    /* Of what is not WEIGHT_PLAIN: `tile_rows` x `tile_columns` elements have one scale; `scales`
     * has the tiles row by row, of a matrix whose row `first_row` is this weight's first. NULL: all
     * have 1. */
    const struct weight *scales;
    uint64_t tile_rows, tile_columns, first_row;
};

/* Rows and columns of a matrix; a vector has one row, a stack of matrices the rows of all. */
uint64_t weight_shape_rows(const struct weight *w);
uint64_t weight_shape_columns(const struct weight *w);
/* What it takes with the bytes of its `dtype`. */
uint64_t weight_dtype_bytes(const struct weight *w);
/* The first block (or element) whose scale is infinite or not a number, or -1, as dtype_bad_block.
 */
int64_t weight_bad_block(const struct weight *w);
/* Rows [first, first + n) as blocks of its `dtype`; any thread. Not of weights whose parts are
 * tensors of their own. */
void weight_rows_make(const struct weight *w, uint64_t first, uint64_t n, void *out);
/* The same as float32, [n, columns]. HP_ENOMEM. */
int weight_rows_f32(const struct weight *w, uint64_t first, uint64_t n, float *out, struct err *e);

#endif
