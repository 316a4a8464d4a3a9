#include <immintrin.h>
#include <string.h>

#include "agent/backend/cpu/narrow.h"

static void to_f16(const float *src, size_t n, uint16_t *out)
{
    const __m256 most = _mm256_set1_ps(65504), least = _mm256_set1_ps(-65504);
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        /* the second operand is the answer where one is NaN */
        __m256 v = _mm256_max_ps(least, _mm256_min_ps(most, _mm256_loadu_ps(src + i)));
        _mm_storeu_si128((__m128i *)(void *)(out + i),
                         _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    }
    narrow_plain.f16(src + i, n - i, out + i);
}

static __m256i bf16_of(__m256i bits)
{
    const __m256i magnitude = _mm256_set1_epi32(0x7fffffff), one = _mm256_set1_epi32(1);
    __m256i nan = _mm256_cmpgt_epi32(_mm256_and_si256(bits, magnitude),
                                     _mm256_set1_epi32(0x7f800000)),
            odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), one),
            up = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff))),
            quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
    return _mm256_srli_epi32(_mm256_blendv_epi8(up, quiet, nan), 16);
}

static void to_bf16(const float *src, size_t n, uint16_t *out)
{
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        __m256i a = bf16_of(_mm256_loadu_si256((const __m256i *)(const void *)(src + i))),
                b = bf16_of(_mm256_loadu_si256((const __m256i *)(const void *)(src + i + 8)));
        __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(a, b), 0xd8);
        _mm256_storeu_si256((__m256i *)(void *)(out + i), packed);
    }
    narrow_plain.bf16(src + i, n - i, out + i);
}

enum { LANES = 8, PARTS = Q8_WIRE_ELEMENTS / LANES };

static __m256i magnitude_of(__m256 v)
{
    return _mm256_and_si256(_mm256_castps_si256(v), _mm256_set1_epi32(0x7fffffff));
}

static uint32_t largest_of(const __m256 v[PARTS])
{
    __m256i most = magnitude_of(v[0]);
    for (int p = 1; p < PARTS; p++)
        most = _mm256_max_epu32(most, magnitude_of(v[p]));
    __m128i m = _mm_max_epu32(_mm256_castsi256_si128(most), _mm256_extracti128_si256(most, 1));
    m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0x4e));
    m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0xb1));
    return (uint32_t)_mm_cvtsi128_si32(m);
}

/* Takes the first value of that magnitude out of the block; returns its place. */
static unsigned value_take(__m256 v[PARTS], uint32_t magnitude)
{
    const __m256i wanted = _mm256_set1_epi32((int)magnitude),
                  count = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    uint64_t equal = 0;
    for (int p = 0; p < PARTS; p++) {
        __m256i same = _mm256_cmpeq_epi32(magnitude_of(v[p]), wanted);
        equal |= (uint64_t)(unsigned)_mm256_movemask_ps(_mm256_castsi256_ps(same)) << p * LANES;
    }
    unsigned at = (unsigned)__builtin_ctzll(equal);
    for (int p = 0; p < PARTS; p++) {
        __m256i here = _mm256_cmpeq_epi32(count, _mm256_set1_epi32((int)at - p * LANES));
        v[p] = _mm256_andnot_ps(_mm256_castsi256_ps(here), v[p]);
    }
    return at;
}

static __m256i codes_of(__m256 v, const struct q8_scale *s)
{
    /* the second operand is the answer where one is NaN */
    __m256 held =
        _mm256_max_ps(_mm256_min_ps(v, _mm256_set1_ps(s->most)), _mm256_set1_ps(-s->most));
    return _mm256_cvtps_epi32(_mm256_mul_ps(held, _mm256_set1_ps(s->inverse)));
}

static void to_q8(const float *src, size_t n, uint8_t *out)
{
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    for (size_t i = 0; i < n; i += Q8_WIRE_ELEMENTS, out += Q8_WIRE_BYTES) {
        __m256 v[PARTS];
        for (int p = 0; p < PARTS; p++)
            v[p] = _mm256_loadu_ps(src + i + p * LANES);
        unsigned kept = value_take(v, largest_of(v));
        struct q8_scale s = q8_scale_of(largest_of(v));
        memcpy(out, &s.scale, sizeof s.scale);
        memcpy(out + 4, src + i + kept, sizeof *src);
        for (int p = 0; p < PARTS; p += 4) {
            __m256i low = _mm256_packs_epi32(codes_of(v[p], &s), codes_of(v[p + 1], &s)),
                    high = _mm256_packs_epi32(codes_of(v[p + 2], &s), codes_of(v[p + 3], &s));
            _mm256_storeu_si256((__m256i *)(void *)(out + 8 + p * LANES),
                                _mm256_permutevar8x32_epi32(_mm256_packs_epi16(low, high), order));
        }
        out[8 + kept] = (uint8_t)Q8_WIRE_KEPT;
    }
}

static void q8_back(const uint8_t *src, size_t n, float *out)
{
    const __m256i mark = _mm256_set1_epi32(Q8_WIRE_KEPT);
    for (size_t i = 0; i < n; i += Q8_WIRE_ELEMENTS, src += Q8_WIRE_BYTES) {
        float pair[2];
        memcpy(pair, src, sizeof pair);
        __m256 scale = _mm256_set1_ps(pair[0]), kept = _mm256_set1_ps(pair[1]);
        for (int p = 0; p < PARTS; p++) {
            __m256i code = _mm256_cvtepi8_epi32(
                _mm_loadl_epi64((const __m128i *)(const void *)(src + 8 + p * LANES)));
            __m256 v = _mm256_mul_ps(scale, _mm256_cvtepi32_ps(code)),
                   is_kept = _mm256_castsi256_ps(_mm256_cmpeq_epi32(code, mark));
            _mm256_storeu_ps(out + i + p * LANES, _mm256_blendv_ps(v, kept, is_kept));
        }
    }
}

const struct narrow_kernels narrow_avx2 = {to_f16, to_bf16, to_q8, q8_back};
