#include "model/weights.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

uint64_t weight_shape_rows(const struct weight *w)
{
    uint64_t rows = 1;
    for (int d = 0; d < w->n_dims - 1; d++)
        rows *= w->shape[d];
    return rows;
}

uint64_t weight_shape_columns(const struct weight *w)
{
    return w->shape[w->n_dims - 1];
}

static uint64_t row_bytes(const struct weight *w)
{
    const struct dtype_info *info = dtype_info(w->dtype);
    return weight_shape_columns(w) / info->block_elements * info->block_bytes;
}

uint64_t weight_dtype_bytes(const struct weight *w)
{
    return weight_shape_rows(w) * row_bytes(w);
}

/* ---- eight bits ---- */

/* Sign, four bits of exponent (bias 7), three of mantissa; no infinity, all ones are no number.
 * Source: OCP 8-bit Floating Point Specification, section 5. */
static float e4m3_value(uint8_t bits)
{
    int exponent = bits >> 3 & 0xf, mantissa = bits & 7;
    float magnitude = exponent == 15 && mantissa == 7 ? NAN
                      : exponent                      ? ldexpf((float)(8 + mantissa), exponent - 10)
                                                      : ldexpf((float)mantissa, -9);
    return bits & 0x80 ? -magnitude : magnitude;
}

/* The upper half of a float16. */
static float e5m2_value(uint8_t bits)
{
    return dtype_f16_to_f32((uint16_t)(bits << 8));
}

static float scale_at(const struct weight *scales, uint64_t i)
{
    const struct dtype_info *info = dtype_info(scales->dtype);
    float f;
    info->to_f32(scales->data + i * info->block_bytes, 1, &f);
    return f;
}

static void f8_rows_make(const struct weight *w, uint64_t first, uint64_t n, float *out)
{
    uint64_t columns = weight_shape_columns(w);
    float values[256];
    for (int i = 0; i < 256; i++)
        values[i] = w->stored == WEIGHT_F8_E4M3 ? e4m3_value((uint8_t)i) : e5m2_value((uint8_t)i);
    for (uint64_t r = 0; r < n; r++) {
        const uint8_t *in = w->data + (first + r) * columns;
        uint64_t tile = w->scales ? (w->first_row + first + r) / w->tile_rows *
                                        ((columns + w->tile_columns - 1) / w->tile_columns)
                                  : 0;
        for (uint64_t c = 0; c < columns; tile++) {
            uint64_t end =
                w->scales && columns - c > w->tile_columns ? c + w->tile_columns : columns;
            float scale = w->scales ? scale_at(w->scales, tile) : 1;
            for (; c < end; c++)
                out[r * columns + c] = values[in[c]] * scale;
        }
    }
}

/* ---- four bits ---- */

/* Neighbours in a byte become elements i and i + 16 in one, with their exponent before them. */
static void mxfp4_rows_make(const struct weight *w, uint64_t first, uint64_t n, uint8_t *out)
{
    uint64_t blocks = weight_shape_columns(w) / SMALL_BLOCK_ELEMENTS;
    const uint8_t *in = w->data + first * blocks * 16,
                  *exponents = w->scales->data + (w->first_row + first) * blocks;
    for (uint64_t b = 0; b < n * blocks; b++, in += 16, out += MXFP4_BYTES) {
        out[0] = exponents[b];
        for (size_t i = 0; i < 16; i++) {
            uint8_t low = in[i / 2], high = in[8 + i / 2];
            out[1 + i] = i % 2 ? (uint8_t)(low >> 4 | (high & 0xf0))
                               : (uint8_t)((low & 0xf) | (high & 0xf) << 4);
        }
    }
}

/* ---- what is wrong ---- */

static int64_t bad_exponent(const struct weight *w)
{
    uint64_t blocks = weight_shape_columns(w) / SMALL_BLOCK_ELEMENTS, first = w->first_row * blocks;
    for (uint64_t b = 0; b < weight_shape_rows(w) * blocks; b++)
        if (w->scales->data[first + b] == 0xff)
            return (int64_t)b;
    return -1;
}

/* Eight bits that are no number, and scales that are none, by element. */
static int64_t bad_element(const struct weight *w)
{
    uint64_t columns = weight_shape_columns(w), tiles = 0;
    bool e4m3 = w->stored == WEIGHT_F8_E4M3;
    for (uint64_t i = 0; i < weight_shape_rows(w) * columns; i++)
        if (e4m3 ? (w->data[i] & 0x7f) == 0x7f : (w->data[i] & 0x7c) == 0x7c)
            return (int64_t)i;
    if (w->scales)
        tiles = (columns + w->tile_columns - 1) / w->tile_columns;
    for (uint64_t r = 0; w->scales && r < weight_shape_rows(w); r++)
        for (uint64_t t = 0; t < tiles; t++)
            if (!isfinite(scale_at(w->scales, (w->first_row + r) / w->tile_rows * tiles + t)))
                return (int64_t)(r * columns + t * w->tile_columns);
    return -1;
}

int64_t weight_bad_block(const struct weight *w)
{
    switch (w->stored) {
    case WEIGHT_F8_E4M3:
    case WEIGHT_F8_E5M2: return bad_element(w);
    case WEIGHT_MXFP4_APART: return bad_exponent(w);
    case WEIGHT_PLAIN: break;
    }
    return dtype_bad_block(w->dtype, w->data, weight_shape_rows(w) * weight_shape_columns(w));
}

/* ---- rows ---- */

void weight_rows_make(const struct weight *w, uint64_t first, uint64_t n, void *out)
{
    assert(w->data);
    switch (w->stored) {
    case WEIGHT_PLAIN:
        memcpy(out, w->data + first * row_bytes(w), (size_t)(n * row_bytes(w)));
        return;
    case WEIGHT_F8_E4M3:
    case WEIGHT_F8_E5M2: f8_rows_make(w, first, n, out); return;
    case WEIGHT_MXFP4_APART: mxfp4_rows_make(w, first, n, out); return;
    }
}

int weight_rows_f32(const struct weight *w, uint64_t first, uint64_t n, float *out, struct err *e)
{
    const struct dtype_info *info = dtype_info(w->dtype);
    size_t elements = (size_t)(n * weight_shape_columns(w));
    if (w->stored == WEIGHT_PLAIN) {
        info->to_f32(w->data + first * row_bytes(w), elements, out);
        return 0;
    }
    if (w->dtype == DTYPE_F32) {
        weight_rows_make(w, first, n, out);
        return 0;
    }
    void *blocks = malloc((size_t)(n * row_bytes(w)));
    if (!blocks)
        return err_no_memory(e, "%llu rows of %s", (unsigned long long)n, w->name);
    weight_rows_make(w, first, n, blocks);
    info->to_f32(blocks, elements, out);
    free(blocks);
    return 0;
}
