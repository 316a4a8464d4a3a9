/* The kernels for AVX2 with FMA and F16C: 8 floats to a vector, 16 vector registers; also where
 * products of bytes have instructions of their own beside them (AVX-VNNI). */
#include <immintrin.h>

#include "agent/backend/cpu/kernels.h"

#define VEC __m256
#define LANES 8
#define TILE_VECTORS 2
#define DOT_COLUMNS 3

#define v_zero _mm256_setzero_ps
#define v_set1 _mm256_set1_ps
#define v_load _mm256_loadu_ps
#define v_store _mm256_storeu_ps
#define v_add _mm256_add_ps
#define v_sub _mm256_sub_ps
#define v_mul _mm256_mul_ps
#define v_div _mm256_div_ps
#define v_max _mm256_max_ps
#define v_min _mm256_min_ps
#define v_fma _mm256_fmadd_ps
#define v_round(x) _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)

static inline __m256 v_exp2n(__m256 n)
{
    return _mm256_castsi256_ps(
        _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23));
}

/* Sums of four vectors at once; each adds its own lanes in the same order as v_sum. */
static inline __m128 v_sum4(__m256 a, __m256 b, __m256 c, __m256 d)
{
    __m256 s = _mm256_hadd_ps(_mm256_hadd_ps(a, b), _mm256_hadd_ps(c, d));
    return _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1));
}

static inline float v_sum(__m256 v)
{
    return _mm_cvtss_f32(v_sum4(v, v, v, v));
}

static inline float v_greatest(__m256 v)
{
    __m128 s = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    s = _mm_max_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_max_ss(s, _mm_shuffle_ps(s, s, 1)));
}

static inline __m256 v_load_f16(const uint8_t *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p));
}

static inline __m256 v_load_bf16(const uint8_t *p)
{
    __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}

static inline __m256 v_load_i8(const uint8_t *p)
{
    return _mm256_cvtepi32_ps(
        _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p)));
}

static inline __m256 v_load_u4(const uint8_t *p, bool high)
{
    __m256i wide = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p));
    wide = high ? _mm256_srli_epi32(wide, 4) : _mm256_and_si256(wide, _mm256_set1_epi32(0xf));
    return _mm256_cvtepi32_ps(_mm256_sub_epi32(wide, _mm256_set1_epi32(8)));
}

static inline void v_store_f16(uint16_t *p, __m256 v)
{
    _mm_storeu_si128((__m128i *)(void *)p,
                     _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

#define v_swap(x) _mm256_permute_ps(x, 0xb1)
#define v_evens_twice _mm256_moveldup_ps
#define v_odds_twice _mm256_movehdup_ps
#define v_sub_add _mm256_addsub_ps

/* Lanes 0, 1, 4 and 5, then the others: what shuffling halves by themselves has put elsewhere. */
static inline __m256 v_halves_joined(__m256 v)
{
    return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(v), 0xd8));
}

static inline __m256 v_evens(__m256 a, __m256 b)
{
    return v_halves_joined(_mm256_shuffle_ps(a, b, 0x88));
}

static inline __m256 v_odds(__m256 a, __m256 b)
{
    return v_halves_joined(_mm256_shuffle_ps(a, b, 0xdd));
}

/* ---- integers ---- */

#define IVEC __m256i
#define i_zero _mm256_setzero_si256
#define i_set1 _mm256_set1_epi32
#define i_dot(sum, a, b) _mm256_add_epi32(sum, _mm256_madd_epi16(a, b))
#define i_float _mm256_cvtepi32_ps

static inline __m256i i_load_pairs(const uint8_t *p)
{
    return _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(const void *)p));
}

static inline __m256 i_low(__m256i pairs)
{
    return _mm256_cvtepi32_ps(_mm256_srai_epi32(_mm256_slli_epi32(pairs, 16), 16));
}

static inline __m256 i_high(__m256i pairs)
{
    return _mm256_cvtepi32_ps(_mm256_srai_epi32(pairs, 16));
}

static inline void i_store_i16(int16_t *p, __m256 v)
{
    __m256i wide = _mm256_cvtps_epi32(v);
    _mm_storeu_si128((__m128i *)(void *)p, _mm_packs_epi32(_mm256_castsi256_si128(wide),
                                                           _mm256_extracti128_si256(wide, 1)));
}

#define NARROW_KERNELS &narrow_avx2
#define BLOCK_TABLE &blocks_avx2
#include "agent/backend/cpu/kernels_simd.inc"

const struct cpu_kernels kernels_avx2 = {
    .name = "avx2", COMMON_KERNELS, .attend = head_attend, .words = &words_avx2};
#undef BLOCK_TABLE
#define BLOCK_TABLE &blocks_avx_vnni
const struct cpu_kernels kernels_avx_vnni = {
    .name = "avx_vnni", COMMON_KERNELS, .attend = head_attend, .words = &words_avx_vnni};
