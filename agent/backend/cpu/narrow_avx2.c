#include <immintrin.h>

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

const struct narrow_kernels narrow_avx2 = {to_f16, to_bf16};
