/* The kernels for AVX-512: 16 floats to a vector, 32 vector registers; and where the CPU has it, bfloat16 arithmetic. */
#include <immintrin.h>

#include "agent/backend/cpu/kernels.h"

#define VEC __m512
#define LANES 16
#define TILE_VECTORS 4
#define DOT_COLUMNS 4

#define v_zero _mm512_setzero_ps
#define v_set1 _mm512_set1_ps
#define v_load _mm512_loadu_ps
#define v_store _mm512_storeu_ps
#define v_add _mm512_add_ps
#define v_sub _mm512_sub_ps
#define v_mul _mm512_mul_ps
#define v_div _mm512_div_ps
#define v_max _mm512_max_ps
#define v_min _mm512_min_ps
#define v_fma _mm512_fmadd_ps
#define v_round(x) _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)
#define v_sum _mm512_reduce_add_ps
#define v_greatest _mm512_reduce_max_ps

static inline __m512 v_exp2n(__m512 n)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127)), 23));
}

static inline __m512 v_load_f16(const uint8_t *p) { return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p)); }

static inline __m512 v_load_bf16(const uint8_t *p)
{
    __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}

static inline __m512 v_load_i8(const uint8_t *p)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p)));
}

static inline void v_store_f16(uint16_t *p, __m512 v)
{
    _mm256_storeu_si256((__m256i *)(void *)p, _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

#include "agent/backend/cpu/kernels_simd.inc"

/* ---- bfloat16 --------------------------------------------------------------------------------------------------- */

static void f32_to_bf16(const float *src, size_t n, uint16_t *out)
{
    for (size_t i = 0; i < n; i += LANES) {
        __mmask16 some = (__mmask16)(n - i < LANES ? (1u << (n - i)) - 1 : 0xffffu);
        __m256bh halves = _mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(some, src + i));
        _mm256_mask_storeu_epi16(out + i, some, (__m256i)halves);
    }
}

enum { PANEL_VECTORS = PANEL_OUTPUTS / LANES };

/* R rows with one panel: each load of weights serves all rows, and the panel is read once from end to end. */
INLINE void panel_rows(const uint16_t *x, size_t x_stride, int R, const uint16_t *panel, size_t k, float *out)
{
    __m512 sums[DOT_MAX_ROWS][PANEL_VECTORS];
    UNROLLED for (int r = 0; r < R; r++)
        UNROLLED for (size_t v = 0; v < PANEL_VECTORS; v++)
            sums[r][v] = _mm512_setzero_ps();
    for (size_t i = 0; i < k; i += 2) {
        __m512bh weights[PANEL_VECTORS];
        UNROLLED for (size_t v = 0; v < PANEL_VECTORS; v++)
            weights[v] = (__m512bh)_mm512_loadu_si512(panel + i * PANEL_OUTPUTS + v * 2 * LANES);
        UNROLLED for (int r = 0; r < R; r++) {
            int pair;
            memcpy(&pair, x + (size_t)r * x_stride + i, sizeof pair);
            __m512bh xs = (__m512bh)_mm512_set1_epi32(pair);
            UNROLLED for (size_t v = 0; v < PANEL_VECTORS; v++)
                sums[r][v] = _mm512_dpbf16_ps(sums[r][v], weights[v], xs);
        }
    }
    UNROLLED for (int r = 0; r < R; r++)
        UNROLLED for (size_t v = 0; v < PANEL_VECTORS; v++)
            _mm512_storeu_ps(out + (size_t)r * PANEL_OUTPUTS + v * LANES, sums[r][v]);
}

static void panel_dot(const uint16_t *x, size_t x_stride, int rows, const uint16_t *panel, size_t k, size_t cols, bool accumulate, float *out,
                      size_t out_stride)
{
    float sums[DOT_MAX_ROWS * PANEL_OUTPUTS];
    switch (rows) {
    case 1: panel_rows(x, x_stride, 1, panel, k, sums); break;
    case 2: panel_rows(x, x_stride, 2, panel, k, sums); break;
    case 3: panel_rows(x, x_stride, 3, panel, k, sums); break;
    default: panel_rows(x, x_stride, 4, panel, k, sums); break;
    }
    for (size_t r = 0; r < (size_t)rows; r++)
        for (size_t c = 0; c < cols; c++)
            out[r * out_stride + c] = sums[r * PANEL_OUTPUTS + c] + (accumulate ? out[r * out_stride + c] : 0);
}

const struct cpu_kernels kernels_avx512 = {.name = "avx512", COMMON_KERNELS};
const struct cpu_kernels kernels_avx512_bf16 = {.name = "avx512_bf16", COMMON_KERNELS, .f32_to_bf16 = f32_to_bf16, .panel_dot = panel_dot};
