/* Rows of float32 for nn_loops.h: plain loops, compiled for every set of instructions that the
 * kernels have (nn_kernels.inc); the best that the CPU has is chosen once. Sums go by lanes, so
 * their last bits depend on the set. */
#ifndef HP_AGENT_BACKEND_CPU_NN_KERNELS_H
#define HP_AGENT_BACKEND_CPU_NN_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/backend/arrays.h"

struct nn_kernels {
    const char *name;
    void (*unary)(enum nn_unary f, float a, float b, const float *x, float *y, size_t n);
    /* Elements of x and y lie so far apart: 0 for one number. */
    void (*binary)(enum nn_binary f, const float *x, ptrdiff_t x_step, const float *y,
                   ptrdiff_t y_step, float *out, size_t n);
    /* out = x * scale + shift, to [low, high]. */
    void (*affine)(const float *x, const float *scale, const float *shift, float low, float high,
                   float *out, size_t n);
    float (*sum)(const float *x, size_t n);
    float (*largest)(const float *x, size_t n);
    /* out = x * a + y * b. */
    void (*blend)(const float *x, float a, const float *y, float b, float *out, size_t n);
    /* (x - mean) / sqrt(variance + epsilon) * scale + shift; scale and shift may be NULL. */
    void (*normalise)(const float *x, const float *scale, const float *shift, float epsilon,
                      float *out, size_t n);
    /* One element of each of `n` channels from rows x + at[0], x + at[1] ..: their largest, or
     * their sum times `scale`; with `weights`, of which each row has its own [rows, n], the sum of
     * products and `scale` is not looked at. `bias` may be NULL. */
    void (*window)(const float *x, const int64_t *at, int rows, const float *const *weights,
                   const float *bias, bool is_max, float scale, float *out, size_t n);
    /* m rows of n elements, which lie so far apart. */
    void (*copy)(const float *x, ptrdiff_t x_step, float *out, ptrdiff_t out_step, size_t m,
                 size_t n);
    /* out[i][j] = x[i * rows + j * columns], out dense [m, n]. */
    void (*gather)(const float *x, ptrdiff_t rows, ptrdiff_t columns, float *out,
                   ptrdiff_t out_rows, size_t m, size_t n);
};

extern const struct nn_kernels nn_kernels_plain, nn_kernels_avx2, nn_kernels_avx512;
const struct nn_kernels *nn_kernels_choose(void);

#endif
