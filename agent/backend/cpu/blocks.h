/* Products with quantised weights, in as many bytes as their files have: inputs are quantised too,
 * to eight bits with a scale for every 32, and integers are multiplied. Each byte of the weights is
 * read once for up to BLOCK_MAX_ROWS rows, or for all rows by way of panels.
 *
 * The error of an output is at most that of its inputs' rounding: the sum over k of |w[k]| times
 * half of x's scale there, which is the largest |x| of 32 over 127; and float32's own, beside which
 * it is small. Inputs below the least normal float32 count as 0. */
#ifndef HP_AGENT_BACKEND_CPU_BLOCKS_H
#define HP_AGENT_BACKEND_CPU_BLOCKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "model/dtype/dtype.h"

enum {
    BLOCK_RUN = 32,     /* inputs that share a scale */
    BLOCK_MAX_ROWS = 4, /* of one call */
    BLOCK_TILE = 6      /* rows of inputs that many rows are cut into */
};

/* Quantised rows: an input is scales * value; `halves` has the sums of its 16 inputs for each half
 * of a run. Memory of one row: block_row_bytes. */
struct block_row {
    const int8_t *values; /* [n] */
    const float *scales;  /* [n / BLOCK_RUN] */
    const float *sums;    /* [n / BLOCK_RUN]: of a run's inputs, as quantised */
    const float *halves;  /* [n / 16]: the same, of half a run */
};

static inline size_t block_row_bytes(size_t n)
{
    return n + n / BLOCK_RUN * 4 * sizeof(float);
}

static inline struct block_row block_row_at(const uint8_t *memory, size_t n)
{
    const float *scales = (const float *)(const void *)(memory + n);
    return (struct block_row){(const int8_t *)memory, scales, scales + n / BLOCK_RUN,
                              scales + 2 * (n / BLOCK_RUN)};
}

/* out[r * out_stride + c] = sum over k < n of x[r][k] * w[c][k], plus what is there where it
 * accumulates; for `rows` up to BLOCK_MAX_ROWS and `cols` rows of weights, w_stride bytes apart. n
 * is a whole number of blocks. */
typedef void (*block_dot_fn)(const struct block_row *x, int rows, const uint8_t *w, size_t w_stride,
                             size_t cols, size_t n, bool accumulate, float *out, size_t out_stride);

/* A run of a tile's rows, quantised as those of block_row are, for products of many rows with one
 * format. */
struct block_tile_run {
    int8_t values[BLOCK_RUN / 4][BLOCK_TILE][4];
    int32_t starts[2][BLOCK_TILE]; /* of the run or of its halves: values' sum, times what bytes of
                                      panels are too great by, less than 0 */
    float sums[2][BLOCK_TILE];     /* of the run's inputs or of its halves', as quantised */
    float scales[BLOCK_TILE];
};

/* out[r * out_stride + c] (+)= sum over the inputs of `runs` runs of x[r] * a panel's, for `rows`
 * up to BLOCK_TILE rows and panel_outputs outputs. */
typedef void (*block_panel_dot_fn)(const struct block_tile_run *x, int rows, const uint8_t *panel,
                                   size_t runs, bool accumulate, float *out, size_t out_stride);

struct block_kernels {
    /* A row of n inputs, a multiple of BLOCK_RUN, into block_row_bytes(n) at `out`, aligned for
     * floats. */
    void (*quantise)(const float *x, size_t n, uint8_t *out);
    /* Rows of weights as the file has them, which are left over where `lanes` do not divide a
     * matrix's; NULL for what is not in blocks. */
    block_dot_fn dot[DTYPE_COUNT];
    /* How many rows of weights lie side by side (block_lanes.h), and the same products with them:
     * of `cols`, a multiple of it, where w_stride is the bytes of one row. */
    size_t lanes;
    block_dot_fn lanes_dot[DTYPE_COUNT];
    /* Many rows: weights' bytes are taken out of their blocks once for all of them, into panels of
     * panel_outputs outputs, a multiple of `lanes`. A panel is what panel_make makes of n inputs of
     * a group's blocks, for each of its groups, one behind the other: panel_bytes for a run of a
     * group. */
    size_t panel_outputs;
    size_t (*panel_bytes)(enum dtype t);
    void (*panel_make[DTYPE_COUNT])(const uint8_t *group, size_t n, uint8_t *panel);
    block_panel_dot_fn panel_dot[DTYPE_COUNT];
    /* n inputs of up to BLOCK_TILE rows, x_stride floats apart, as n / BLOCK_RUN runs; rows that
     * are missing are zeros. */
    void (*tile_make)(enum dtype t, const float *x, size_t x_stride, int rows, size_t n,
                      struct block_tile_run *out);
    /* n weights, a whole number of blocks, to the bits of their format's to_f32. */
    void (*unpack[DTYPE_COUNT])(const uint8_t *src, size_t n, float *out);
};

extern const struct block_kernels blocks_avx2, blocks_avx512;

#endif
