#include <immintrin.h>
#include <stdint.h>

#define WIDE 8
#define HALF 4
#define VF __m256
#define VF_SET _mm256_set1_ps
#define VF_LOAD _mm256_loadu_ps
#define VF_STORE _mm256_storeu_ps
#define VF_MAX _mm256_max_ps
#define VF_ADD _mm256_add_ps
#define VF_SUB _mm256_sub_ps
#define VF_MUL _mm256_mul_ps
#define VF_FMA _mm256_fmadd_ps
#define VF_FMS _mm256_fmsub_ps
#define VF_AT_LEAST(v, least) ((unsigned)_mm256_movemask_ps(_mm256_cmp_ps(v, least, _CMP_GE_OQ)))
#define VF_KEEP(w, v, least) _mm256_and_ps(w, _mm256_cmp_ps(v, least, _CMP_GE_OQ))
#define VF_DIFFER(a, b) ((unsigned)_mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_NEQ_OQ)))
/* By the low three bits of `shifted`; the others, above them, are k of a factor 2^k. */
#define VF_TABLE(t) _mm256_loadu_ps(t)
#define VF_LOOK_UP(table, shifted) _mm256_permutevar8x32_ps(table, _mm256_castps_si256(shifted))
#define VF_SCALE(w, shifted)                                                                       \
    _mm256_castsi256_ps(_mm256_add_epi32(                                                          \
        _mm256_castps_si256(w),                                                                    \
        _mm256_slli_epi32(_mm256_srli_epi32(_mm256_castps_si256(shifted), 3), 23)))
#define VF_EQUAL(a, b) ((unsigned)_mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_EQ_OQ)))
#define VF_BETWEEN(v, low, high)                                                                   \
    ((unsigned)_mm256_movemask_ps(                                                                 \
        _mm256_and_ps(_mm256_cmp_ps(v, low, _CMP_GE_OQ), _mm256_cmp_ps(v, high, _CMP_LE_OQ))))
#define VF_BETWEEN(v, low, high)                                                                   \
    ((unsigned)_mm256_movemask_ps(                                                                 \
        _mm256_and_ps(_mm256_cmp_ps(v, low, _CMP_GE_OQ), _mm256_cmp_ps(v, high, _CMP_LE_OQ))))
/* Lanes whose bit is set from the first, the others from the second. */
#define VF_PICK lanes_pick
#define VH __m128
#define VH_LOAD _mm_loadu_ps
#define VH_STORE _mm_storeu_ps
#define VH_ZERO _mm_setzero_ps()
#define VH_OF _mm256_cvtpd_ps
#define VH_DIFFER(a, b) ((unsigned)_mm_movemask_ps(_mm_cmp_ps(a, b, _CMP_NEQ_OQ)))
#define VH_SET _mm_set1_ps
#define VH_BETWEEN(v, low, high)                                                                   \
    ((unsigned)_mm_movemask_ps(                                                                    \
        _mm_and_ps(_mm_cmp_ps(v, low, _CMP_GE_OQ), _mm_cmp_ps(v, high, _CMP_LE_OQ))))
#define VC __m256i
#define VC_LOAD(p) _mm256_loadu_si256((const __m256i *)(p))
#define VC_SET(c) _mm256_set1_epi64x((long long)(c))
#define VC_TOKENS _mm256_set_epi64x(0xfffffffc, 0xfffffffd, 0xfffffffe, 0xffffffff)
#define VC_SUB _mm256_sub_epi64
#define VC_OF(weights, tokens)                                                                     \
    _mm256_or_si256(_mm256_slli_epi64(_mm256_cvtepu32_epi64(_mm_castps_si128(weights)), 32), tokens)
#define VC_BEFORE(c, pivot)                                                                        \
    ((unsigned)_mm256_movemask_pd(_mm256_castsi256_pd(_mm256_cmpgt_epi64(c, pivot))))
#define VC_PACK_STORE pack_store
#define VD __m256d
#define VD_SET _mm256_set1_pd
#define VD_OF _mm256_cvtps_pd
#define VD_STORE _mm256_storeu_pd
#define VD_ADD _mm256_add_pd
#define VD_SUB _mm256_sub_pd
#define VD_MUL _mm256_mul_pd
#define VD_MAX _mm256_max_pd
#define VD_FMA _mm256_fmadd_pd
#define VD_FNMA _mm256_fnmadd_pd
#define VD_AT_LEAST(v, least) ((unsigned)_mm256_movemask_pd(_mm256_cmp_pd(v, least, _CMP_GE_OQ)))
#define VD_KEEP(e, v, least) _mm256_and_pd(e, _mm256_cmp_pd(v, least, _CMP_GE_OQ))
/* Times 2^k, where the low bits of `shifted` are k. */
#define VD_SCALE(p, shifted)                                                                       \
    _mm256_mul_pd(                                                                                 \
        p, _mm256_castsi256_pd(_mm256_slli_epi64(                                                  \
               _mm256_add_epi64(_mm256_castpd_si256(shifted), _mm256_set1_epi64x(1023)), 52)))

/* Stores those of four whose bit is set side by side; what follows them is undefined. */
static inline void pack_store(uint64_t *out, unsigned mask, __m256i c)
{
    static const uint32_t halves[16][8] = {
        {0},
        {0, 1},
        {2, 3},
        {0, 1, 2, 3},
        {4, 5},
        {0, 1, 4, 5},
        {2, 3, 4, 5},
        {0, 1, 2, 3, 4, 5},
        {6, 7},
        {0, 1, 6, 7},
        {2, 3, 6, 7},
        {0, 1, 2, 3, 6, 7},
        {4, 5, 6, 7},
        {0, 1, 4, 5, 6, 7},
        {2, 3, 4, 5, 6, 7},
        {0, 1, 2, 3, 4, 5, 6, 7},
    };
    __m256i order = _mm256_loadu_si256((const __m256i *)halves[mask]);
    _mm256_storeu_si256((__m256i *)out, _mm256_permutevar8x32_epi32(c, order));
}

static inline __m256 lanes_pick(uint64_t bits, __m256 set, __m256 others)
{
    const __m256i lanes = _mm256_set_epi32(128, 64, 32, 16, 8, 4, 2, 1);
    __m256i mine = _mm256_and_si256(_mm256_set1_epi32((int)(bits & 0xFF)), lanes);
    return _mm256_blendv_ps(others, set, _mm256_castsi256_ps(_mm256_cmpeq_epi32(mine, lanes)));
}

#include "agent/engine/sampler_simd.inc"

static bool cpu_runs_it(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

const struct sampler_kernels sampler_avx2 = {"avx2",      cpu_runs_it, row_greatest,
                                             row_find,    row_weigh,   row_gather,
                                             keep_before, row_sum,     row_rule_out};
