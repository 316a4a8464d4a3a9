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

/* Sums of products of n quads, and of four inputs for each that all lanes share. */
INLINE __m512i quads_dot(enum dtype t, const __m512i *w, int n, const int8_t *x)
{
    __m512i sums[2] = {_mm512_setzero_si512(), _mm512_setzero_si512()};
    (void)t;
    UNROLLED for (int j = 0; j < n; j++)
    {
        int four;
        memcpy(&four, x + 4 * j, sizeof four);
        sums[j % 2] = _mm512_dpbusd_epi32(sums[j % 2], w[j], _mm512_set1_epi32(four));
    }
    return _mm512_add_epi32(sums[0], sums[1]);
}

#include "agent/backend/cpu/blocks_lanes.inc"
#define superblock_dot lanes_superblock
#include "agent/backend/cpu/blocks_dots.inc"

#define PANEL_SIDES 2
#define PANEL_ROWS 6
#define i_store(p, v) _mm512_storeu_si512(p, v)
#define i_add8 _mm512_add_epi8

INLINE int panel_bias(enum dtype t)
{
    return is_signed(t) ? 128 : 0;
}

/* Sums of products of n quads from `quad` on, beginning with what the tile begins `part` with. */
INLINE void panel_products(int together, const struct block_tile_run *x, int first, int R,
                           const uint8_t *panel, size_t side, int quad, int n, int part,
                           __m512i sums[BLOCK_TILE][PANEL_SIDES])
{
    (void)together;
    UNROLLED for (int r = 0; r < R; r++) UNROLLED for (int s = 0; s < PANEL_SIDES; s++) sums[r][s] =
        _mm512_set1_epi32(x->starts[part][first + r]);
    UNROLLED for (int j = quad; j < quad + n; j++)
    {
        __m512i w[PANEL_SIDES];
        UNROLLED for (size_t s = 0; s < PANEL_SIDES; s++) w[s] =
            i_load(panel + s * side + (size_t)j * QUAD_BYTES);
        UNROLLED for (int r = 0; r < R; r++)
        {
            int four;
            memcpy(&four, x->values[j][first + r], sizeof four);
            __m512i in = _mm512_set1_epi32(four);
            UNROLLED for (int s = 0; s < PANEL_SIDES; s++) sums[r][s] =
                _mm512_dpbusd_epi32(sums[r][s], w[s], in);
        }
    }
}

INLINE __m512i panel_bytes_unsigned(int together, __m512i quads)
{
    (void)together; /* they have no sign */
    return _mm512_and_si512(quads, _mm512_set1_epi32(0xff));
}

#define PANEL_MAKERS                                                                               \
    PANEL_MAKER(q2_k, DTYPE_Q2_K)                                                                  \
    PANEL_MAKER(q3_k, DTYPE_Q3_K)                                                                  \
    PANEL_MAKER(q4_k, DTYPE_Q4_K)                                                                  \
    PANEL_MAKER(q5_k, DTYPE_Q5_K)                                                                  \
    PANEL_MAKER(q6_k, DTYPE_Q6_K)                                                                  \
    PANEL_MAKER(iq4_xs, DTYPE_IQ4_XS)
#define panel_starts_put(t, bytes, r, out)
#define panel_bytes_of(t) panel_run_bytes(has_halves(t), has_least(t))
#define PANEL_DOTS                                                                                 \
    PANEL_DOT(whole, false, false, 0)                                                              \
    PANEL_DOT(whole_least, false, true, 0)                                                         \
    PANEL_DOT(halves, true, false, 0)                                                              \
    PANEL_DOT(halves_least, true, true, 0)
#define PANEL_TABLE                                                                                \
    {                                                                                              \
        [DTYPE_Q8_0] = panel_dot_whole, [DTYPE_Q4_0] = panel_dot_whole,                            \
        [DTYPE_Q4_1] = panel_dot_whole_least, [DTYPE_Q5_0] = panel_dot_whole,                      \
        [DTYPE_Q5_1] = panel_dot_whole_least, [DTYPE_IQ4_NL] = panel_dot_whole,                    \
        [DTYPE_MXFP4] = panel_dot_whole, [DTYPE_Q2_K] = panel_dot_halves_least,                    \
        [DTYPE_Q3_K] = panel_dot_halves, [DTYPE_Q4_K] = panel_dot_whole_least,                     \
        [DTYPE_Q5_K] = panel_dot_whole_least, [DTYPE_Q6_K] = panel_dot_halves,                     \
        [DTYPE_IQ4_XS] = panel_dot_whole                                                           \
    }

#include "agent/backend/cpu/blocks_panels.inc"
