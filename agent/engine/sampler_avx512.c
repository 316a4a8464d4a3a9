#define WIDE 16
#define HALF 8
#define VF __m512
#define VF_SET _mm512_set1_ps
#define VF_LOAD _mm512_loadu_ps
#define VF_STORE _mm512_storeu_ps
#define VF_MAX _mm512_max_ps
#define VF_ADD _mm512_add_ps
#define VF_SUB _mm512_sub_ps
#define VF_MUL _mm512_mul_ps
#define VF_FMA _mm512_fmadd_ps
#define VF_FMS _mm512_fmsub_ps
#define VF_AT_LEAST(v, least) ((unsigned)_mm512_cmp_ps_mask(v, least, _CMP_GE_OQ))
#define VF_KEEP(w, v, least) _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(v, least, _CMP_GE_OQ), w)
#define VF_DIFFER(a, b) ((unsigned)_mm512_cmp_ps_mask(a, b, _CMP_NEQ_OQ))
/* By the low three bits of `shifted`; the others, above them, are k of a factor 2^k. */
#define VF_TABLE(t) _mm512_castpd_ps(_mm512_broadcast_f64x4(_mm256_castps_pd(_mm256_loadu_ps(t))))
#define VF_LOOK_UP(table, shifted) _mm512_permutexvar_ps(_mm512_castps_si512(shifted), table)
#define VF_SCALE(w, shifted)                                                                       \
    _mm512_castsi512_ps(_mm512_add_epi32(                                                          \
        _mm512_castps_si512(w),                                                                    \
        _mm512_slli_epi32(_mm512_srli_epi32(_mm512_castps_si512(shifted), 3), 23)))
#define VF_EQUAL(a, b) ((unsigned)_mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ))
#define VF_BETWEEN(v, low, high)                                                                   \
    ((unsigned)_mm512_mask_cmp_ps_mask(_mm512_cmp_ps_mask(v, low, _CMP_GE_OQ), v, high, _CMP_LE_OQ))
/* Lanes whose bit is set from the first, the others from the second. */
#define VF_PICK(bits, set, others) _mm512_mask_mov_ps(others, (__mmask16)(bits), set)
#define VH __m256
#define VH_LOAD _mm256_loadu_ps
#define VH_STORE _mm256_storeu_ps
#define VH_ZERO _mm256_setzero_ps()
#define VH_OF _mm512_cvtpd_ps
#define VH_DIFFER(a, b) ((unsigned)_mm256_cmp_ps_mask(a, b, _CMP_NEQ_OQ))
#define VH_SET _mm256_set1_ps
#define VH_BETWEEN(v, low, high)                                                                   \
    ((unsigned)_mm256_mask_cmp_ps_mask(_mm256_cmp_ps_mask(v, low, _CMP_GE_OQ), v, high, _CMP_LE_OQ))
#define VC __m512i
#define VC_LOAD(p) _mm512_loadu_si512(p)
#define VC_SET(c) _mm512_set1_epi64((long long)(c))
#define VC_TOKENS                                                                                  \
    _mm512_set_epi64(0xfffffff8, 0xfffffff9, 0xfffffffa, 0xfffffffb, 0xfffffffc, 0xfffffffd,       \
                     0xfffffffe, 0xffffffff)
#define VC_SUB _mm512_sub_epi64
#define VC_OF(weights, tokens)                                                                     \
    _mm512_or_si512(_mm512_slli_epi64(_mm512_cvtepu32_epi64(_mm256_castps_si256(weights)), 32),    \
                    tokens)
#define VC_BEFORE(c, pivot) ((unsigned)_mm512_cmpgt_epu64_mask(c, pivot))
/* Stores those of eight whose bit is set side by side; what follows them is undefined. */
#define VC_PACK_STORE(out, mask, c)                                                                \
    _mm512_storeu_si512(out, _mm512_maskz_compress_epi64((__mmask8)(mask), c))
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

static bool cpu_runs_it(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vnni");
}

const struct sampler_kernels sampler_avx512 = {"avx512",    cpu_runs_it, row_greatest,
                                               row_find,    row_weigh,   row_gather,
                                               keep_before, row_sum,     row_rule_out};
