/* Products of many rows with weights in plain formats by 16-bit integers, for CPUs without bf16
 * arithmetic: two of these are multiplied and added where float32 multiplies one.
 *
 * 32 inputs, and 32 weights of an output, become numbers of at most WORD_MOST with a scale: so the
 * 32 products' sum stays within 32 bits. The error of an output is at most the sum over k of
 * |w[k]| * dx + |x[k]| * dw + dx * dw, where dx and dw are half of the scale there, which is the
 * largest of the 32 over WORD_MOST; and float32's own. Sums below the least normal float32 count as
 * 0; what is infinite or no number makes no numbers of its row. */
#ifndef HP_AGENT_BACKEND_CPU_WORDS_H
#define HP_AGENT_BACKEND_CPU_WORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    WORD_RUN = 32,   /* inputs that share a scale */
    WORD_TILE = 6,   /* rows of inputs that many rows are cut into */
    WORD_MOST = 8191 /* of a number */
};

/* A run of a tile's rows: pairs of inputs, and a scale of each row. */
struct word_run {
    int16_t pairs[WORD_RUN / 2][WORD_TILE][2];
    float scales[WORD_TILE];
};

struct word_kernels {
    size_t outputs; /* of a panel */
    /* Up to WORD_TILE rows of n inputs, a multiple of WORD_RUN, x_stride floats apart; rows that
     * are missing are zeros. */
    void (*tile_make)(const float *x, size_t x_stride, int rows, size_t n, struct word_run *out);
    /* `outputs` rows of n weights, stride floats apart, become a panel of word_panel_bytes: of each
     * run pairs side by side, [WORD_RUN / 2][outputs][2], then a scale of each output. */
    void (*panel_make)(const float *w, size_t stride, size_t n, uint8_t *panel);
    /* out[r * out_stride + c] (+)= the products of `rows` rows of a tile and all of a panel's
     * outputs, n inputs each. */
    void (*panel_dot)(const struct word_run *x, int rows, size_t n, const uint8_t *panel,
                      bool accumulate, float *out, size_t out_stride);
};

static inline size_t word_panel_bytes(size_t outputs, size_t n)
{
    return n / WORD_RUN * (WORD_RUN / 2 + 1) * outputs * sizeof(float);
}

/* Of so many rows of inputs, as tiles. */
static inline size_t word_tiles_bytes(size_t rows, size_t n)
{
    return (rows + WORD_TILE - 1) / WORD_TILE * (n / WORD_RUN) * sizeof(struct word_run);
}

extern const struct word_kernels words_avx2, words_avx_vnni, words_avx512;

#endif
