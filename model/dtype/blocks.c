/* Quantised formats with blocks of 32: small integers with a scale. Source: ggml-common.h and
 * ggml-quants.c of llama.cpp. */
#include <assert.h>
#include <string.h>

#include "model/dtype/dtype_int.h"

/* The scale as a half, then 32 signed bytes; an element is scale * byte. */
void q8_0_to_f32(const void *src, size_t n, float *out)
{
    assert(n % Q8_0_ELEMENTS == 0);
    const uint8_t *block = src;
    for (size_t at = 0; at < n; at += Q8_0_ELEMENTS, block += Q8_0_BYTES) {
        float scale = dtype_half_at(block);
        const int8_t *values = (const int8_t *)(block + sizeof(uint16_t));
        for (size_t i = 0; i < Q8_0_ELEMENTS; i++)
            out[at + i] = scale * (float)values[i];
    }
}

/* Our own, for rows that cross a link: the scale and the kept value as floats, then 64 signed
 * bytes; an element is scale * byte, and that of Q8_WIRE_KEPT the kept value. Residual streams have
 * a few channels that are hundreds of times as large as the others: with the largest value of each
 * block apart, the scale is that of the others. */
void q8_wire_to_f32(const void *src, size_t n, float *out)
{
    assert(n % Q8_WIRE_ELEMENTS == 0);
    const uint8_t *block = src;
    for (size_t at = 0; at < n; at += Q8_WIRE_ELEMENTS, block += Q8_WIRE_BYTES) {
        float scale, kept;
        memcpy(&scale, block, sizeof scale);
        memcpy(&kept, block + sizeof scale, sizeof kept);
        const int8_t *codes = (const int8_t *)(block + sizeof scale + sizeof kept);
        for (size_t i = 0; i < Q8_WIRE_ELEMENTS; i++)
            out[at + i] = codes[i] == Q8_WIRE_KEPT ? kept : scale * (float)codes[i];
    }
}

/* The scale as a half, then 16 bytes: byte i has elements i (low four bits) and i + 16 (high); an
 * element is scale * (four bits - 8). */
void q4_0_to_f32(const void *src, size_t n, float *out)
{
    assert(n % Q4_0_ELEMENTS == 0);
    const uint8_t *block = src;
    for (size_t at = 0; at < n; at += Q4_0_ELEMENTS, block += Q4_0_BYTES) {
        float scale = dtype_half_at(block);
        const uint8_t *pairs = block + sizeof(uint16_t);
        for (size_t i = 0; i < Q4_0_ELEMENTS / 2; i++) {
            out[at + i] = scale * (float)((pairs[i] & 0xf) - 8);
            out[at + i + Q4_0_ELEMENTS / 2] = scale * (float)((pairs[i] >> 4) - 8);
        }
    }
}

/* The scale and the least element as halves, then pairs as those of Q4_0: scale * bits + least. */
void q4_1_to_f32(const void *src, size_t n, float *out)
{
    assert(n % SMALL_BLOCK_ELEMENTS == 0);
    const uint8_t *block = src;
    for (size_t at = 0; at < n; at += SMALL_BLOCK_ELEMENTS, block += Q4_1_BYTES) {
        float scale = dtype_half_at(block), least = dtype_half_at(block + 2);
        for (size_t i = 0; i < 16; i++) {
            out[at + i] = scale * (float)(block[4 + i] & 0xf) + least;
            out[at + 16 + i] = scale * (float)(block[4 + i] >> 4) + least;
        }
    }
}

/* Element i of 32 with five bits: the fifth is bit i of `high`, the other four lie as in Q4_0. */
static int five_bits(const uint8_t *high, const uint8_t *pairs, size_t i)
{
    int four = i < 16 ? pairs[i] & 0xf : pairs[i - 16] >> 4;
    return four | (high[i / 8] >> i % 8 & 1) << 4;
}

/* The scale as a half, 32 fifth bits, then pairs: scale * (bits - 16). */
void q5_0_to_f32(const void *src, size_t n, float *out)
{
    assert(n % SMALL_BLOCK_ELEMENTS == 0);
    const uint8_t *block = src;
    for (size_t at = 0; at < n; at += SMALL_BLOCK_ELEMENTS, block += Q5_0_BYTES)
        for (size_t i = 0; i < SMALL_BLOCK_ELEMENTS; i++)
            out[at + i] = dtype_half_at(block) * (float)(five_bits(block + 2, block + 6, i) - 16);
}

/* Scale and least element as halves, 32 fifth bits, then pairs: scale * bits + least. */
void q5_1_to_f32(const void *src, size_t n, float *out)
{
    assert(n % SMALL_BLOCK_ELEMENTS == 0);
    const uint8_t *block = src;
    for (size_t at = 0; at < n; at += SMALL_BLOCK_ELEMENTS, block += Q5_1_BYTES)
        for (size_t i = 0; i < SMALL_BLOCK_ELEMENTS; i++)
            out[at + i] = dtype_half_at(block) * (float)five_bits(block + 4, block + 8, i) +
                          dtype_half_at(block + 2);
}

const int8_t dtype_iq4_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                     1,    13,   25,  38,  53,  69,  89,  113};
const int8_t dtype_mxfp4_values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

/* As Q4_0, with the four bits an index of 16 values that lie closer about zero. */
void iq4_nl_to_f32(const void *src, size_t n, float *out)
{
    assert(n % SMALL_BLOCK_ELEMENTS == 0);
    const uint8_t *block = src;
    for (size_t at = 0; at < n; at += SMALL_BLOCK_ELEMENTS, block += IQ4_NL_BYTES) {
        float scale = dtype_half_at(block);
        for (size_t i = 0; i < 16; i++) {
            out[at + i] = scale * (float)dtype_iq4_values[block[2 + i] & 0xf];
            out[at + 16 + i] = scale * (float)dtype_iq4_values[block[2 + i] >> 4];
        }
    }
}

/* The scale is a power of two, 2^(first byte - 127), and elements are E2M1: their table has twice
 * their values, so half the scale stands here. */
void mxfp4_to_f32(const void *src, size_t n, float *out)
{
    assert(n % SMALL_BLOCK_ELEMENTS == 0);
    const uint8_t *block = src;
    for (size_t at = 0; at < n; at += SMALL_BLOCK_ELEMENTS, block += MXFP4_BYTES) {
        float half = dtype_e8m0_half(block[0]);
        for (size_t i = 0; i < 16; i++) {
            out[at + i] = half * (float)dtype_mxfp4_values[block[1 + i] & 0xf];
            out[at + 16 + i] = half * (float)dtype_mxfp4_values[block[1 + i] >> 4];
        }
    }
}
