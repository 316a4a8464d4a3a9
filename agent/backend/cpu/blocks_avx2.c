/* Products with weights in blocks for AVX2. */
#include <immintrin.h>

#include "agent/backend/cpu/blocks.h"

#define BLOCKS blocks_avx2
#define SIGNED_AS_IS 1

#include "agent/backend/cpu/blocks_simd.inc"

#define FEW_REGISTERS 1
#include "agent/backend/cpu/blocks_256.inc"
/* Sums of products of n quads, and of four inputs for each that all lanes share. */
INLINE __m256i quads_dot(enum dtype t, const __m256i *w, int n, const int8_t *x)
{
    __m256i sum = _mm256_setzero_si256(), pairs = sum;
    UNROLLED for (int j = 0; j < n; j++)
    {
        int four;
        memcpy(&four, x + 4 * j, sizeof four);
        __m256i in = _mm256_set1_epi32(four),
                two = is_signed(t) ? _mm256_maddubs_epi16(_mm256_sign_epi8(w[j], w[j]),
                                                          _mm256_sign_epi8(in, w[j]))
                                   : _mm256_maddubs_epi16(w[j], in);
        pairs = j % pairs_together(t) ? _mm256_add_epi16(pairs, two) : two;
        if ((j + 1) % pairs_together(t) == 0 || j + 1 == n) {
            __m256i four_wide = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
            sum = j < pairs_together(t) ? four_wide : _mm256_add_epi32(sum, four_wide);
        }
    }
    return sum;
}

#include "agent/backend/cpu/blocks_lanes.inc"
#include "agent/backend/cpu/blocks_scaled.inc"

#define superblock_dot scaled_superblock
#include "agent/backend/cpu/blocks_dots.inc"

#define PANEL_SIDES 2
#define PANEL_ROWS 3

/* MXFP4's bytes go from -12 to 12. What fills a byte stays signed. */
INLINE int panel_bias(enum dtype t)
{
    return t == DTYPE_MXFP4 ? 12 : 0;
}

/* Pairs of products of a quad; `together` is 0 where weights are signed: they give their signs to
 * the inputs. */
INLINE __m256i panel_pairs(int together, __m256i w, __m256i magnitudes, __m256i in)
{
    return together ? _mm256_maddubs_epi16(w, in)
                    : _mm256_maddubs_epi16(magnitudes, _mm256_sign_epi8(in, w));
}

/* Sums of products of n quads from `quad` on, beginning with what the tile begins `part` with. So
 * many sums of two products as `together` says fit into 16 bits. */
INLINE void panel_products(int together, bool least, const struct block_tile_run *x, int first,
                           int R, const uint8_t *panel, size_t side, int quad, int n, int part,
                           __m256i sums[BLOCK_TILE][PANEL_SIDES])
{
    int most = together ? together : 1;
    (void)least;
    const int8_t *inputs = x->values[quad][first];
    __m256i pairs[PANEL_ROWS][PANEL_SIDES];
    UNROLLED for (int r = 0; r < R; r++) UNROLLED for (int s = 0; s < PANEL_SIDES; s++) sums[r][s] =
        _mm256_set1_epi32(x->starts[part][first + r]);
    UNROLLED for (int j = 0; j < n; j++)
    {
        __m256i w[PANEL_SIDES], magnitudes[PANEL_SIDES];
        UNROLLED for (size_t s = 0; s < PANEL_SIDES; s++)
        {
            w[s] = load32(panel + s * side + (size_t)(quad + j) * QUAD_BYTES);
            magnitudes[s] = _mm256_abs_epi8(w[s]);
        }
        UNROLLED for (int r = 0; r < R; r++)
        {
            int four;
            memcpy(&four, inputs + (j * BLOCK_TILE + r) * 4, sizeof four);
            __m256i in = _mm256_set1_epi32(four);
            UNROLLED for (int s = 0; s < PANEL_SIDES; s++)
            {
                __m256i two = panel_pairs(together, w[s], magnitudes[s], in);
                pairs[r][s] = j % most ? _mm256_add_epi16(pairs[r][s], two) : two;
                SUMMED(pairs[r][s]);
                if (j % most == most - 1 || j == n - 1) {
                    sums[r][s] = _mm256_add_epi32(
                        sums[r][s], _mm256_madd_epi16(pairs[r][s], _mm256_set1_epi16(1)));
                    SUMMED(sums[r][s]);
                }
            }
        }
    }
}

INLINE __m256i panel_bytes_unsigned(int together, bool least, __m256i quads)
{
    (void)least;
    __m256i bytes = _mm256_and_si256(quads, _mm256_set1_epi32(0xff));
    return together ? bytes : _mm256_xor_si256(bytes, _mm256_set1_epi32(0x80));
}

#include "agent/backend/cpu/blocks_scaled_panels.inc"

#define PANEL_MAKERS
#define PANEL_BEGINNERS /* a tile is more rows than products have at once */
#define PANEL_BEGIN_TABLE                                                                          \
    {                                                                                              \
        NULL                                                                                       \
    }
#define panel_starts_put scaled_starts_put
#define panel_bytes_of(t)                                                                          \
    (is_superblock(t) ? scaled_panel_bytes(has_halves(t), has_least(t)) / RUNS                     \
                      : panel_run_bytes(false, has_least(t)))
#define PANEL_DOTS                                                                                 \
    PANEL_DOT(whole, false, false, 8)                                                              \
    PANEL_DOT(whole_5, false, false, 4)                                                            \
    PANEL_DOT(whole_8, false, false, 0)                                                            \
    PANEL_DOT(whole_least, false, true, 8)                                                         \
    PANEL_DOT(whole_least_5, false, true, 4)
#define PANEL_TABLE                                                                                \
    {                                                                                              \
        [DTYPE_Q8_0] = panel_dot_whole_8, [DTYPE_Q4_0] = panel_dot_whole,                          \
        [DTYPE_Q4_1] = panel_dot_whole_least, [DTYPE_Q5_0] = panel_dot_whole_5,                    \
        [DTYPE_Q5_1] = panel_dot_whole_least_5, [DTYPE_IQ4_NL] = panel_dot_whole_8,                \
        [DTYPE_MXFP4] = panel_dot_whole_5, [DTYPE_Q2_K] = panel_dot_q2_k,                          \
        [DTYPE_Q3_K] = panel_dot_q3_k, [DTYPE_Q4_K] = panel_dot_q4_k,                              \
        [DTYPE_Q5_K] = panel_dot_q5_k, [DTYPE_Q6_K] = panel_dot_q6_k,                              \
        [DTYPE_IQ4_XS] = panel_dot_iq4_xs                                                          \
    }

#define PANEL_PRODUCTS "agent/backend/cpu/blocks_products.inc"

#include "agent/backend/cpu/blocks_panels.inc"
