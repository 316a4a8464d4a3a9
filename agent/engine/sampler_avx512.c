#define WIDE 16
#define HALF 8
#define VF __m512
#define VF_SET _mm512_set1_ps
#define VF_LOAD _mm512_loadu_ps
#define VF_STORE _mm512_storeu_ps
#define VF_MAX _mm512_max_ps
#define VF_EQUAL(a, b) ((unsigned)_mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ))
#define VF_BETWEEN(v, low, high)                                                                   \
    ((unsigned)_mm512_mask_cmp_ps_mask(_mm512_cmp_ps_mask(v, low, _CMP_GE_OQ), v, high, _CMP_LE_OQ))
#define VH __m256
#define VH_LOAD _mm256_loadu_ps
#define VH_STORE _mm256_storeu_ps
#define VH_ZERO _mm256_setzero_ps()
#define VH_OF _mm512_cvtpd_ps
#define VH_DIFFER(a, b) ((unsigned)_mm256_cmp_ps_mask(a, b, _CMP_NEQ_OQ))
#define VD __m512d
#define VD_SET _mm512_set1_pd
#define VD_OF _mm512_cvtps_pd
#define VD_STORE _mm512_storeu_pd
#define VD_ADD _mm512_add_pd
#define VD_SUB _mm512_sub_pd
#define VD_MUL _mm512_mul_pd
#define VD_MAX _mm512_max_pd
#define VD_FMA _mm512_fmadd_pd
#define VD_FNMA _mm512_fnmadd_pd
#define VD_AT_LEAST(v, least) ((unsigned)_mm512_cmp_pd_mask(v, least, _CMP_GE_OQ))
#define VD_KEEP(e, v, least) _mm512_maskz_mov_pd(_mm512_cmp_pd_mask(v, least, _CMP_GE_OQ), e)
/* Times 2^k, where the low bits of `shifted` are k. */
#define VD_SCALE(p, shifted)                                                                       \
    _mm512_mul_pd(                                                                                 \
        p, _mm512_castsi512_pd(_mm512_slli_epi64(                                                  \
               _mm512_add_epi64(_mm512_castpd_si512(shifted), _mm512_set1_epi64(1023)), 52)))
#include "agent/engine/sampler_simd.inc"

static bool supported(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vnni");
}

const struct sampler_kernels sampler_avx512 = {"avx512", supported, greatest, find,
                                               weigh,    gather,    sum};
