#include <immintrin.h>
#include <string.h>

#include "agent/backend/cpu/narrow.h"

static void to_f16(const float *src, size_t n, uint16_t *out)
{
    const __m512 most = _mm512_set1_ps(65504), least = _mm512_set1_ps(-65504);
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        /* the second operand is the answer where one is NaN */
        __m512 v = _mm512_max_ps(least, _mm512_min_ps(most, _mm512_loadu_ps(src + i)));
        _mm256_storeu_si256((__m256i *)(void *)(out + i),
                            _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    }
    narrow_plain.f16(src + i, n - i, out + i);
}

static void to_bf16(const float *src, size_t n, uint16_t *out)
{
    const __m512i infinity = _mm512_set1_epi32(0x7f800000);
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        __m512i bits = _mm512_loadu_si512(src + i),
                magnitude = _mm512_and_si512(bits, _mm512_set1_epi32(0x7fffffff)),
                odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1)),
                up = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff))),
                quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x400000));
        __mmask16 nan = _mm512_cmpgt_epi32_mask(magnitude, infinity);
        _mm256_storeu_si256(
            (__m256i *)(void *)(out + i),
            _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_mask_mov_epi32(up, nan, quiet), 16)));
    }
    narrow_plain.bf16(src + i, n - i, out + i);
}

enum { LANES = 16, PARTS = Q8_WIRE_ELEMENTS / LANES };

static __m512i magnitude_of(__m512 v)
{
    return _mm512_and_si512(_mm512_castps_si512(v), _mm512_set1_epi32(0x7fffffff));
}

static uint32_t largest_of(const __m512 v[PARTS])
{
    __m512i a = _mm512_max_epu32(magnitude_of(v[0]), magnitude_of(v[1])),
            b = _mm512_max_epu32(magnitude_of(v[2]), magnitude_of(v[3]));
    return _mm512_reduce_max_epu32(_mm512_max_epu32(a, b));
}

/* Takes the first value of that magnitude out of the block; returns its place. */
static unsigned value_take(__m512 v[PARTS], uint32_t magnitude)
{
    uint64_t equal = 0;
    for (int p = 0; p < PARTS; p++)
        equal |=
            (uint64_t)_mm512_cmpeq_epi32_mask(magnitude_of(v[p]), _mm512_set1_epi32((int)magnitude))
            << p * LANES;
    unsigned at = (unsigned)__builtin_ctzll(equal);
    for (unsigned p = 0; p < PARTS; p++)
        v[p] = _mm512_mask_mov_ps(v[p], (__mmask16)(UINT64_C(1) << at >> p * LANES),
                                  _mm512_setzero_ps());
    return at;
}

static void to_q8(const float *src, size_t n, uint8_t *out)
{
    for (size_t i = 0; i < n; i += Q8_WIRE_ELEMENTS, out += Q8_WIRE_BYTES) {
        __m512 v[PARTS];
        for (int p = 0; p < PARTS; p++)
            v[p] = _mm512_loadu_ps(src + i + p * LANES);
        unsigned kept = value_take(v, largest_of(v));
        struct q8_scale s = q8_scale_of(largest_of(v));
        __m512 most = _mm512_set1_ps(s.most), least = _mm512_set1_ps(-s.most),
               inverse = _mm512_set1_ps(s.inverse);
        memcpy(out, &s.scale, sizeof s.scale);
        memcpy(out + 4, src + i + kept, sizeof *src);
        for (int p = 0; p < PARTS; p++) {
            /* the second operand is the answer where one is NaN */
            __m512 held = _mm512_max_ps(_mm512_min_ps(v[p], most), least);
            __m512i code = _mm512_cvtps_epi32(_mm512_mul_ps(held, inverse));
            _mm_storeu_si128((__m128i *)(void *)(out + 8 + p * LANES), _mm512_cvtepi32_epi8(code));
        }
        out[8 + kept] = (uint8_t)Q8_WIRE_KEPT;
    }
}

static void q8_back(const uint8_t *src, size_t n, float *out)
{
    const __m512i mark = _mm512_set1_epi32(Q8_WIRE_KEPT);
    for (size_t i = 0; i < n; i += Q8_WIRE_ELEMENTS, src += Q8_WIRE_BYTES) {
        float pair[2];
        memcpy(pair, src, sizeof pair);
        __m512 scale = _mm512_set1_ps(pair[0]), kept = _mm512_set1_ps(pair[1]);
        for (int p = 0; p < PARTS; p++) {
            __m512i code = _mm512_cvtepi8_epi32(
                _mm_loadu_si128((const __m128i *)(const void *)(src + 8 + p * LANES)));
            __m512 v = _mm512_mul_ps(scale, _mm512_cvtepi32_ps(code));
            _mm512_storeu_ps(out + i + p * LANES,
                             _mm512_mask_mov_ps(v, _mm512_cmpeq_epi32_mask(code, mark), kept));
        }
    }
}

const struct narrow_kernels narrow_avx512 = {to_f16, to_bf16, to_q8, q8_back};
