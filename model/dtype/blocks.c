/* Quantised formats: blocks of small integers with scales. Source: ggml-common.h and ggml-quants.c
 * of llama.cpp. */
#include <assert.h>
#include <string.h>

#include "model/dtype/dtype_int.h"

static float half_at(const uint8_t *p)
{
    uint16_t h;
    memcpy(&h, p, sizeof h);
    return dtype_f16_to_f32(h);
}

/* The scale as a half, then 32 signed bytes; an element is scale * byte. */
void q8_0_to_f32(const void *src, size_t n, float *out)
{
    assert(n % Q8_0_ELEMENTS == 0);
    const uint8_t *block = src;
    for (size_t at = 0; at < n; at += Q8_0_ELEMENTS, block += Q8_0_BYTES) {
        float scale = half_at(block);
        const int8_t *values = (const int8_t *)(block + sizeof(uint16_t));
        for (size_t i = 0; i < Q8_0_ELEMENTS; i++)
            out[at + i] = scale * (float)values[i];
    }
}

/* The scale as a half, then 16 bytes: byte i has elements i (low four bits) and i + 16 (high); an
 * element is scale * (four bits - 8). */
void q4_0_to_f32(const void *src, size_t n, float *out)
{
    assert(n % Q4_0_ELEMENTS == 0);
    const uint8_t *block = src;
    for (size_t at = 0; at < n; at += Q4_0_ELEMENTS, block += Q4_0_BYTES) {
        float scale = half_at(block);
        const uint8_t *pairs = block + sizeof(uint16_t);
        for (size_t i = 0; i < Q4_0_ELEMENTS / 2; i++) {
            out[at + i] = scale * (float)((pairs[i] & 0xf) - 8);
            out[at + i + Q4_0_ELEMENTS / 2] = scale * (float)((pairs[i] >> 4) - 8);
        }
    }
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
    assert(n % Q6_K_ELEMENTS == 0);
    const uint8_t *block = src;
    for (size_t at = 0; at < n; at += Q6_K_ELEMENTS, block += Q6_K_BYTES) {
        const uint8_t *high = block + 128;
        const int8_t *scales = (const int8_t *)(high + 64);
        float all = half_at(high + 64 + 16);
        q6_k_half(block, high, scales, all, out + at);
        q6_k_half(block + 64, high + 32, scales + 8, all, out + at + 128);
    }
}
