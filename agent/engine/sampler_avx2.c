#define WIDE 8
#define HALF 4
#define VF __m256
#define VF_SET _mm256_set1_ps
#define VF_LOAD _mm256_loadu_ps
#define VF_STORE _mm256_storeu_ps
#define VF_MAX _mm256_max_ps
#define VF_EQUAL(a, b) ((unsigned)_mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_EQ_OQ)))
#define VF_BETWEEN(v, low, high)                                                                   \
    ((unsigned)_mm256_movemask_ps(                                                                 \
        _mm256_and_ps(_mm256_cmp_ps(v, low, _CMP_GE_OQ), _mm256_cmp_ps(v, high, _CMP_LE_OQ))))
#define VH __m128
#define VH_LOAD _mm_loadu_ps
#define VH_STORE _mm_storeu_ps
#define VH_ZERO _mm_setzero_ps()
#define VH_OF _mm256_cvtpd_ps
#define VH_DIFFER(a, b) ((unsigned)_mm_movemask_ps(_mm_cmp_ps(a, b, _CMP_NEQ_OQ)))
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
#include "agent/engine/sampler_simd.inc"

static bool supported(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

const struct sampler_kernels sampler_avx2 = {"avx2", supported, greatest, find, weigh, gather, sum};
