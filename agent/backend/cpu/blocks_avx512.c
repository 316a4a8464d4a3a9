/* Products with weights in blocks for AVX-512 with VNNI. */
#include <immintrin.h>

#include "agent/backend/cpu/blocks.h"

#define BLOCKS blocks_avx512
#define SIGNED_AS_IS 0

#include "agent/backend/cpu/blocks_simd.inc"

#define LANES 16
#define IVEC __m512i
#define FVEC __m512
#define i_load(p) _mm512_loadu_si512(p)
#define i_and _mm512_and_si512
#define i_or _mm512_or_si512
#define i_and_or(a, b, c) _mm512_ternarylogic_epi32(a, b, c, 0xea)
#define i_xor _mm512_xor_si512
#define i_shr(v, bits) _mm512_srli_epi32(v, (unsigned)(bits))
#define i_shl(v, bits) _mm512_slli_epi32(v, (unsigned)(bits))
#define i_set8(byte) _mm512_set1_epi8((char)(byte))
#define i_set32 _mm512_set1_epi32
#define f_load _mm512_loadu_ps
#define f_store _mm512_storeu_ps
#define f_zero _mm512_setzero_ps
#define f_set1 _mm512_set1_ps
#define f_add _mm512_add_ps
#define f_sub _mm512_sub_ps
#define f_mul _mm512_mul_ps
#define f_fma _mm512_fmadd_ps
#define f_fnma _mm512_fnmadd_ps
#define f_of_ints _mm512_cvtepi32_ps
#define FEW_REGISTERS 0

INLINE __m512i i_looked_up(const int8_t *values, __m512i indices)
{
    __m128i table = _mm_loadu_si128((const __m128i *)(const void *)values);
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(table), indices);
}

/* Four bits choose among sixteen lanes, which have them as 16 in their bytes. */
INLINE __m512i i_fifths(__m512i bits, int quad)
{
    const __m512i spread =
        _mm512_setr_epi32(0, 0x00000010, 0x00001000, 0x00001010, 0x00100000, 0x00100010, 0x00101000,
                          0x00101010, 0x10000000, 0x10000010, 0x10001000, 0x10001010, 0x10100000,
                          0x10100010, 0x10101000, 0x10101010);
    return _mm512_permutexvar_epi32(quad ? i_shr(bits, 4 * quad) : bits, spread);
}

INLINE __m512 f_halves(const uint8_t *p)
{
    return _mm512_cvtph_ps(load32(p));
}

INLINE __m512 f_low_halves(__m512i lanes)
{
    return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(lanes));
}

/* Halves of powers of two, of which the two least are subnormal. */
INLINE __m512 f_powers(const uint8_t *p)
{
    __m512i e = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p)),
            normal = _mm512_slli_epi32(_mm512_sub_epi32(e, _mm512_set1_epi32(1)), 23);
    __mmask16 is_least = _mm512_cmplt_epu32_mask(e, _mm512_set1_epi32(2));
    return _mm512_castsi512_ps(
        _mm512_mask_sllv_epi32(normal, is_least, _mm512_set1_epi32(0x00200000), e));
}

#define PANEL_SIDES 2
#define PANEL_ROWS 6
#define i_store(p, v) _mm512_storeu_si512(p, v)
#define i_add8 _mm512_add_epi8
#define i_zero _mm512_setzero_si512
#define i_add32 _mm512_add_epi32
#define i_dot _mm512_dpbusd_epi32

#define DIRECT_MAKERS DIRECT_MAKER(q4_k, DTYPE_Q4_K)
#define DIRECT_MAKE_TABLE                                                                          \
    {                                                                                              \
        [DTYPE_Q4_K] = direct_make_q4_k                                                            \
    }
#define DIRECT_DOTS                                                                                \
    DIRECT_DOT(q8_0, DTYPE_Q8_0)                                                                   \
    DIRECT_DOT(q4_k, DTYPE_Q4_K)
#define DIRECT_TABLE                                                                               \
    {                                                                                              \
        [DTYPE_Q8_0] = direct_dot_q8_0, [DTYPE_Q4_K] = direct_dot_q4_k                             \
    }

#include "agent/backend/cpu/blocks_vnni.inc"
