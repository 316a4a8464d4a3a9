/* Quantised formats with blocks of 256: small integers, scales of runs of 16 or 32 in a few bits,
 * and halves that scale those. Source: ggml-common.h and ggml-quants.c of llama.cpp. */
#include <assert.h>
#include <string.h>

#include "model/dtype/dtype_int.h"

/* Element i of 256 in two bits: of 128 elements, 32 bytes hold four runs of 32, lowest bits first.
 */
static int two_bits(const uint8_t *bytes, size_t i)
{
    return bytes[i / 128 * 32 + i % 32] >> i % 128 / 32 * 2 & 3;
}

/* Element i of 256 in four bits: of 64 elements, 32 bytes hold two runs of 32, low bits first. */
static int four_bits(const uint8_t *bytes, size_t i)
{
    return bytes[i / 64 * 32 + i % 32] >> i % 64 / 32 * 4 & 0xf;
}

/* 16 bytes with a scale (low four bits) and a least value (high) for every 16 elements, 64 bytes of
 * elements, a half for the scales, a half for the least values. */
void q2_k_to_f32(const void *src, size_t n, float *out)
{
    assert(n % SUPERBLOCK_ELEMENTS == 0);
    const uint8_t *block = src;
    for (size_t at = 0; at < n; at += SUPERBLOCK_ELEMENTS, block += Q2_K_BYTES) {
        float scales = dtype_half_at(block + 80), least = dtype_half_at(block + 82);
        for (size_t i = 0; i < SUPERBLOCK_ELEMENTS; i++)
            out[at + i] = scales * (float)(block[i / 16] & 0xf) * (float)two_bits(block + 16, i) -
                          least * (float)(block[i / 16] >> 4);
    }
}

static int q3_k_scale(const uint8_t *scales, size_t run)
{
    int low = scales[run % 8] >> run / 8 * 4 & 0xf, high = scales[8 + run % 4] >> run / 4 * 2 & 3;
    return (low | high << 4) - 32;
}

/* 32 bytes of third bits (bit i / 32 of byte i % 32), 64 bytes of two bits, 16 scales of six bits
 * in 12 bytes, a half: scale * (bits - 4). */
void q3_k_to_f32(const void *src, size_t n, float *out)
{
    assert(n % SUPERBLOCK_ELEMENTS == 0);
    const uint8_t *block = src;
    for (size_t at = 0; at < n; at += SUPERBLOCK_ELEMENTS, block += Q3_K_BYTES) {
        float all = dtype_half_at(block + 108);
        for (size_t i = 0; i < SUPERBLOCK_ELEMENTS; i++) {
            int bits = two_bits(block + 32, i) | (block[i % 32] >> i / 32 & 1) << 2;
            out[at + i] = all * (float)q3_k_scale(block + 96, i / 16) * (float)(bits - 4);
        }
    }
}

static void q4_k_scales(const uint8_t *packed, size_t run, uint8_t *scale, uint8_t *least)
{
    if (run < 4) {
        *scale = packed[run] & 63;
        *least = packed[run + 4] & 63;
        return;
    }
    *scale = (uint8_t)((packed[run + 4] & 0xf) | (packed[run - 4] >> 6) << 4);
    *least = (uint8_t)(packed[run + 4] >> 4 | (packed[run] >> 6) << 4);
}

/* Halves for scales and for least values, 12 bytes with eight of each in six bits, then elements of
 * 4 or 5 bits, whose fifth bits (bit i / 32 of byte i % 32) come before the others. */
static void q45_k_block(const uint8_t *block, const uint8_t *fifth, const uint8_t *four, float *out)
{
    float scales = dtype_half_at(block), leasts = dtype_half_at(block + 2);
    for (size_t run = 0; run < 8; run++) {
        uint8_t scale, least;
        q4_k_scales(block + 4, run, &scale, &least);
        float by = scales * (float)scale, less = leasts * (float)least;
        for (size_t i = run * 32; i < run * 32 + 32; i++) {
            int bits = four_bits(four, i) | (fifth ? (fifth[i % 32] >> run & 1) << 4 : 0);
            out[i] = by * (float)bits - less;
        }
    }
}

void q4_k_to_f32(const void *src, size_t n, float *out)
{
    assert(n % SUPERBLOCK_ELEMENTS == 0);
    const uint8_t *block = src;
    for (size_t at = 0; at < n; at += SUPERBLOCK_ELEMENTS, block += Q4_K_BYTES)
        q45_k_block(block, NULL, block + 16, out + at);
}

void q5_k_to_f32(const void *src, size_t n, float *out)
{
    assert(n % SUPERBLOCK_ELEMENTS == 0);
    const uint8_t *block = src;
    for (size_t at = 0; at < n; at += SUPERBLOCK_ELEMENTS, block += Q5_K_BYTES)
        q45_k_block(block, block + 16, block + 48, out + at);
}

/* 128 elements of a Q6_K block: `low` has the low four bits of elements l and l + 64 (l + 32 and
 * l + 96) in byte l (l + 32), `high` the other two bits of l, l + 32, l + 64 and l + 96 in byte l.
 */
static void q6_k_half(const uint8_t *low, const uint8_t *high, const int8_t *scales, float all,
                      float *out)
{
    for (size_t i = 0; i < 128; i++) {
        size_t l = i % 32, quarter = i / 32, sixteenth = i / 16;
        int bits = low[l + quarter % 2 * 32] >> quarter / 2 * 4 & 0xf,
            rest = high[l] >> quarter * 2 & 3;
        out[i] = all * (float)scales[sixteenth] * (float)((bits | rest << 4) - 32);
    }
}

/* 256 elements of six bits: low four, high two, a signed scale for every 16, a half for all. */
void q6_k_to_f32(const void *src, size_t n, float *out)
{
    assert(n % SUPERBLOCK_ELEMENTS == 0);
    const uint8_t *block = src;
    for (size_t at = 0; at < n; at += SUPERBLOCK_ELEMENTS, block += Q6_K_BYTES) {
        const uint8_t *high = block + 128;
        const int8_t *scales = (const int8_t *)(high + 64);
        float all = dtype_half_at(high + 64 + 16);
        q6_k_half(block, high, scales, all, out + at);
        q6_k_half(block + 64, high + 32, scales + 8, all, out + at + 128);
    }
}

static int iq4_xs_scale(const uint8_t *block, size_t run)
{
    int low = block[4 + run / 2] >> run % 2 * 4 & 0xf, high = block[2 + run / 4] >> run % 4 * 2 & 3;
    return (low | high << 4) - 32;
}

/* A half, eight scales of six bits (high two, then low four), and eight runs of 32 as in IQ4_NL. */
void iq4_xs_to_f32(const void *src, size_t n, float *out)
{
    assert(n % SUPERBLOCK_ELEMENTS == 0);
    const uint8_t *block = src;
    for (size_t at = 0; at < n; at += SUPERBLOCK_ELEMENTS, block += IQ4_XS_BYTES)
        for (size_t run = 0; run < 8; run++) {
            float scale = dtype_half_at(block) * (float)iq4_xs_scale(block, run);
            const uint8_t *pairs = block + 8 + run * 16;
            for (size_t i = 0; i < 16; i++) {
                out[at + run * 32 + i] = scale * (float)dtype_iq4_values[pairs[i] & 0xf];
                out[at + run * 32 + 16 + i] = scale * (float)dtype_iq4_values[pairs[i] >> 4];
            }
        }
}
