#include "agent/backend/plain/narrow.h"

#include <math.h>
#include <string.h>

static const float most_f16 = 65504;

static void to_f16(const float *src, size_t n, uint16_t *out)
{
    for (size_t i = 0; i < n; i++) {
        float v = src[i];
        v = v > most_f16 ? most_f16 : v;
        v = v < -most_f16 ? -most_f16 : v;
        out[i] = dtype_f32_to_f16(v);
    }
}

/* The upper half, plus one where the lower is more than half of it, or half and the upper is odd.
 */
static void to_bf16(const float *src, size_t n, uint16_t *out)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &src[i], sizeof bits);
        bool nan = (bits & 0x7fffffff) > 0x7f800000;
        out[i] = nan ? (uint16_t)(bits >> 16 | 0x40)
                     : (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    }
}

static uint32_t magnitude_bits(float v)
{
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    return bits & 0x7fffffff;
}

static size_t largest_of(const float *block)
{
    size_t at = 0;
    for (size_t i = 1; i < Q8_WIRE_ELEMENTS; i++)
        at = magnitude_bits(block[i]) > magnitude_bits(block[at]) ? i : at;
    return at;
}

static void block_to_q8(const float *block, uint8_t *out)
{
    float rest[Q8_WIRE_ELEMENTS];
    size_t kept = largest_of(block);
    memcpy(rest, block, sizeof rest);
    rest[kept] = 0;
    struct q8_scale s = q8_scale_of(magnitude_bits(rest[largest_of(rest)]));
    memcpy(out, &s.scale, sizeof s.scale);
    memcpy(out + sizeof s.scale, &block[kept], sizeof block[kept]);
    int8_t *codes = (int8_t *)out + 2 * sizeof s.scale;
    for (size_t i = 0; i < Q8_WIRE_ELEMENTS; i++) {
        float v = rest[i] < s.most ? rest[i] : s.most;
        v = v > -s.most ? v : -s.most;
        codes[i] = (int8_t)lrintf(v * s.inverse);
    }
    codes[kept] = Q8_WIRE_KEPT;
}

static void to_q8(const float *src, size_t n, uint8_t *out)
{
    for (size_t i = 0; i < n; i += Q8_WIRE_ELEMENTS, out += Q8_WIRE_BYTES)
        block_to_q8(src + i, out);
}

static void q8_back(const uint8_t *src, size_t n, float *out)
{
    dtype_info(DTYPE_Q8_WIRE)->to_f32(src, n, out);
}

const struct narrow_kernels narrow_plain = {to_f16, to_bf16, to_q8, q8_back};
