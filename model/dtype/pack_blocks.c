/* Float32 to the formats with blocks of 32 (blocks.c says how they lie). */
#include <assert.h>
#include <string.h>

#include "model/dtype/dtype_int.h"
#include "model/dtype/quantise.h"

static void half_put(uint8_t *at, float f)
{
    uint16_t h = dtype_f32_to_f16(f);
    memcpy(at, &h, sizeof h);
}

/* ---- a scale ---- */

static void signed_codes(const struct quantise_grid *g, const float *x, float scale, uint8_t *codes)
{
    float entries[SMALL_BLOCK_ELEMENTS];
    quantise_round(g, x, SMALL_BLOCK_ELEMENTS, quantise_inverse(scale), entries);
    for (size_t i = 0; i < SMALL_BLOCK_ELEMENTS; i++)
        codes[i] = (uint8_t)quantise_code(g, entries[i]);
}

/* The scale as a half at `block`, and the codes for it. */
static void scaled_codes(const struct quantise_grid *g, const float *x, uint8_t *block,
                         uint8_t *codes)
{
    half_put(block, quantise_scale(g, x, SMALL_BLOCK_ELEMENTS));
    signed_codes(g, x, dtype_half_at(block), codes);
}

static void pairs_put(const uint8_t *codes, uint8_t *pairs)
{
    for (size_t i = 0; i < 16; i++)
        pairs[i] = (uint8_t)((codes[i] & 0xf) | (codes[i + 16] & 0xf) << 4);
}

static void fifths_put(const uint8_t *codes, uint8_t *high)
{
    memset(high, 0, 4);
    for (size_t i = 0; i < SMALL_BLOCK_ELEMENTS; i++)
        high[i / 8] |= (uint8_t)(codes[i] >> 4 << i % 8);
}

void q8_0_from_f32(const float *in, size_t n, void *dst)
{
    static const struct quantise_grid grid = {.low = -127, .high = 127};
    uint8_t *block = dst, codes[SMALL_BLOCK_ELEMENTS];
    assert(n % SMALL_BLOCK_ELEMENTS == 0);
    for (size_t at = 0; at < n; at += SMALL_BLOCK_ELEMENTS, block += Q8_0_BYTES) {
        scaled_codes(&grid, in + at, block, codes);
        for (size_t i = 0; i < SMALL_BLOCK_ELEMENTS; i++)
            block[2 + i] = (uint8_t)(codes[i] + grid.low);
    }
}

void q4_0_from_f32(const float *in, size_t n, void *dst)
{
    static const struct quantise_grid grid = {.low = -8, .high = 7};
    uint8_t *block = dst, codes[SMALL_BLOCK_ELEMENTS];
    assert(n % SMALL_BLOCK_ELEMENTS == 0);
    for (size_t at = 0; at < n; at += SMALL_BLOCK_ELEMENTS, block += Q4_0_BYTES) {
        scaled_codes(&grid, in + at, block, codes);
        pairs_put(codes, block + 2);
    }
}

void q5_0_from_f32(const float *in, size_t n, void *dst)
{
    static const struct quantise_grid grid = {.low = -16, .high = 15};
    uint8_t *block = dst, codes[SMALL_BLOCK_ELEMENTS];
    assert(n % SMALL_BLOCK_ELEMENTS == 0);
    for (size_t at = 0; at < n; at += SMALL_BLOCK_ELEMENTS, block += Q5_0_BYTES) {
        scaled_codes(&grid, in + at, block, codes);
        fifths_put(codes, block + 2);
        pairs_put(codes, block + 6);
    }
}

void iq4_nl_from_f32(const float *in, size_t n, void *dst)
{
    const struct quantise_grid grid = {-127, 113, dtype_iq4_values, 16};
    uint8_t *block = dst, codes[SMALL_BLOCK_ELEMENTS];
    assert(n % SMALL_BLOCK_ELEMENTS == 0);
    for (size_t at = 0; at < n; at += SMALL_BLOCK_ELEMENTS, block += IQ4_NL_BYTES) {
        scaled_codes(&grid, in + at, block, codes);
        pairs_put(codes, block + 2);
    }
}

/* ---- a scale and an offset ---- */

/* `scale` and `least` as halves at `block`, and the codes for them. */
static void line_codes(int high, const float *x, uint8_t *block, uint8_t *codes)
{
    float q[SMALL_BLOCK_ELEMENTS];
    struct quantise_line l = quantise_line(high, x, SMALL_BLOCK_ELEMENTS, false);
    half_put(block, l.scale);
    half_put(block + 2, -l.less);
    l = (struct quantise_line){dtype_half_at(block), -dtype_half_at(block + 2)};
    quantise_line_round(high, x, SMALL_BLOCK_ELEMENTS, l, q);
    for (size_t i = 0; i < SMALL_BLOCK_ELEMENTS; i++)
        codes[i] = (uint8_t)q[i];
}

void q4_1_from_f32(const float *in, size_t n, void *dst)
{
    uint8_t *block = dst, codes[SMALL_BLOCK_ELEMENTS];
    assert(n % SMALL_BLOCK_ELEMENTS == 0);
    for (size_t at = 0; at < n; at += SMALL_BLOCK_ELEMENTS, block += Q4_1_BYTES) {
        line_codes(15, in + at, block, codes);
        pairs_put(codes, block + 4);
    }
}

void q5_1_from_f32(const float *in, size_t n, void *dst)
{
    uint8_t *block = dst, codes[SMALL_BLOCK_ELEMENTS];
    assert(n % SMALL_BLOCK_ELEMENTS == 0);
    for (size_t at = 0; at < n; at += SMALL_BLOCK_ELEMENTS, block += Q5_1_BYTES) {
        line_codes(31, in + at, block, codes);
        fifths_put(codes, block + 4);
        pairs_put(codes, block + 8);
    }
}

/* ---- a power of two ---- */

/* MXFP4's values in ascending order, and the four bits that stand for them. */
static const int8_t mxfp4_ascending[15] = {-12, -8, -6, -4, -3, -2, -1, 0, 1, 2, 3, 4, 6, 8, 12};
static const uint8_t mxfp4_bits[15] = {15, 14, 13, 12, 11, 10, 9, 0, 1, 2, 3, 4, 5, 6, 7};

/* The exponent with the least error, of those about the one at which the largest value just fits.
 */
static uint8_t mxfp4_exponent(const struct quantise_grid *g, const float *x)
{
    float most = 0, best_error = 0;
    for (size_t i = 0; i < SMALL_BLOCK_ELEMENTS; i++)
        most = x[i] > most ? x[i] : -x[i] > most ? -x[i] : most;
    int first = 0, best = -1;
    while (first < 253 && dtype_e8m0_half((uint8_t)first) * (float)g->high < most)
        first++;
    for (int e = first > 2 ? first - 2 : 0; e <= first + 1; e++) {
        float error = quantise_error(g, x, SMALL_BLOCK_ELEMENTS, dtype_e8m0_half((uint8_t)e));
        if (best < 0 || error < best_error) {
            best = e;
            best_error = error;
        }
    }
    return (uint8_t)best;
}

void mxfp4_from_f32(const float *in, size_t n, void *dst)
{
    static const struct quantise_grid grid = {-12, 12, mxfp4_ascending, 15};
    uint8_t *block = dst, codes[SMALL_BLOCK_ELEMENTS];
    assert(n % SMALL_BLOCK_ELEMENTS == 0);
    for (size_t at = 0; at < n; at += SMALL_BLOCK_ELEMENTS, block += MXFP4_BYTES) {
        block[0] = mxfp4_exponent(&grid, in + at);
        signed_codes(&grid, in + at, dtype_e8m0_half(block[0]), codes);
        for (size_t i = 0; i < SMALL_BLOCK_ELEMENTS; i++)
            codes[i] = mxfp4_bits[codes[i]];
        pairs_put(codes, block + 1);
    }
}
