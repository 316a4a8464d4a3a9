#include <immintrin.h>

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

const struct narrow_kernels narrow_avx512 = {to_f16, to_bf16};
