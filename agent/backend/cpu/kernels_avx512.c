/* The kernels for AVX-512: 16 floats to a vector, 32 vector registers; and where the CPU has it,
 * bfloat16 arithmetic. */
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
#define v_greatest _mm512_reduce_max_ps

static inline __m256 v_fold(__m512 v)
{
    return _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
}

/* Sums of four vectors at once; each adds its own lanes in the same order as v_sum. */
static inline __m128 v_sum4(__m512 a, __m512 b, __m512 c, __m512 d)
{
    __m256 s =
        _mm256_hadd_ps(_mm256_hadd_ps(v_fold(a), v_fold(b)), _mm256_hadd_ps(v_fold(c), v_fold(d)));
    return _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1));
}

static inline float v_sum(__m512 v)
{
    return _mm_cvtss_f32(v_sum4(v, v, v, v));
}

static inline __m512 v_exp2n(__m512 n)
{
    return _mm512_castsi512_ps(
        _mm512_slli_epi32(_mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127)), 23));
}

static inline __m512 v_load_f16(const uint8_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
}

static inline __m512 v_load_bf16(const uint8_t *p)
{
    __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}

static inline __m512 v_load_i8(const uint8_t *p)
{
    return _mm512_cvtepi32_ps(
        _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p)));
}

static inline __m512 v_load_u4(const uint8_t *p, bool high)
{
    __m512i wide = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
    wide = high ? _mm512_srli_epi32(wide, 4) : _mm512_and_si512(wide, _mm512_set1_epi32(0xf));
    return _mm512_cvtepi32_ps(_mm512_sub_epi32(wide, _mm512_set1_epi32(8)));
}

static inline void v_store_f16(uint16_t *p, __m512 v)
{
    _mm256_storeu_si256((__m256i *)(void *)p,
                        _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

#define v_swap(x) _mm512_permute_ps(x, 0xb1)
#define v_evens_twice _mm512_moveldup_ps
#define v_odds_twice _mm512_movehdup_ps

static inline __m512 v_sub_add(__m512 a, __m512 b)
{
    return _mm512_mask_sub_ps(_mm512_add_ps(a, b), 0x5555, a, b);
}

static inline __m512 v_evens(__m512 a, __m512 b)
{
    const __m512i of = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    return _mm512_permutex2var_ps(a, of, b);
}

static inline __m512 v_odds(__m512 a, __m512 b)
{
    const __m512i of = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
    return _mm512_permutex2var_ps(a, of, b);
}

/* ---- integers ---- */

#define IVEC __m512i
#define i_zero _mm512_setzero_si512
#define i_set1 _mm512_set1_epi32
#define i_dot _mm512_dpwssd_epi32
#define i_float _mm512_cvtepi32_ps

static inline __m512i i_load_pairs(const uint8_t *p)
{
    return _mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i *)(const void *)p));
}

static inline __m512 i_low(__m512i pairs)
{
    return _mm512_cvtepi32_ps(_mm512_srai_epi32(_mm512_slli_epi32(pairs, 16), 16));
}

static inline __m512 i_high(__m512i pairs)
{
    return _mm512_cvtepi32_ps(_mm512_srai_epi32(pairs, 16));
}

static inline void i_store_i16(int16_t *p, __m512 v)
{
    _mm256_storeu_si256((__m256i *)(void *)p, _mm512_cvtsepi32_epi16(_mm512_cvtps_epi32(v)));
}

#define NARROW_KERNELS &narrow_avx512
#define BLOCK_TABLE &blocks_avx512
#include "agent/backend/cpu/kernels_simd.inc"

/* ---- bfloat16 ---- */

static void f32_to_bf16(const float *src, size_t n, uint16_t *out)
{
    for (size_t i = 0; i < n; i += LANES) {
        __mmask16 some = (__mmask16)(n - i < LANES ? (1u << (n - i)) - 1 : 0xffffu);
        __m256bh halves = _mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(some, src + i));
        _mm256_mask_storeu_epi16(out + i, some, (__m256i)halves);
    }
}

enum { PANEL_VECTORS = PANEL_OUTPUTS / LANES };

/* Sixteen vectors of sixteen pairs, rows and columns exchanged. */
INLINE void pairs_turn(__m512i v[LANES])
{
    __m512i w[LANES];
    UNROLLED for (int i = 0; i < LANES; i += 2)
    {
        w[i] = _mm512_unpacklo_epi32(v[i], v[i + 1]);
        w[i + 1] = _mm512_unpackhi_epi32(v[i], v[i + 1]);
    }
    UNROLLED for (int i = 0; i < LANES; i += 4) UNROLLED for (int j = 0; j < 2; j++)
    {
        v[i + 2 * j] = _mm512_unpacklo_epi64(w[i + j], w[i + j + 2]);
        v[i + 2 * j + 1] = _mm512_unpackhi_epi64(w[i + j], w[i + j + 2]);
    }
    UNROLLED for (int i = 0; i < 4; i++) UNROLLED for (int j = 0; j < 2; j++)
    {
        w[i + 8 * j] = _mm512_shuffle_i32x4(v[i + 8 * j], v[i + 8 * j + 4], 0x88);
        w[i + 8 * j + 4] = _mm512_shuffle_i32x4(v[i + 8 * j], v[i + 8 * j + 4], 0xdd);
    }
    UNROLLED for (int i = 0; i < 8; i++)
    {
        v[i] = _mm512_shuffle_i32x4(w[i], w[i + 8], 0x88);
        v[i + 8] = _mm512_shuffle_i32x4(w[i], w[i + 8], 0xdd);
    }
}

static void panel_turn(const uint16_t *rows, size_t stride, size_t k, uint16_t *panel)
{
    for (size_t i = 0; i < k; i += 2 * LANES) {
        __m512i v[LANES];
        UNROLLED for (size_t r = 0; r < LANES; r++) v[r] =
            _mm512_loadu_si512(rows + r * stride + i);
        pairs_turn(v);
        UNROLLED for (size_t r = 0; r < LANES; r++)
            _mm512_storeu_si512(panel + (i + 2 * r) * PANEL_OUTPUTS, v[r]);
    }
}

/* out[R][PANEL_OUTPUTS] (+)= x[R][k] * one panel: each load of weights serves all rows, and the
 * panel is read once from end to end. */
INLINE void panel_rows(const uint16_t *x, size_t x_stride, int R, const uint16_t *panel, size_t k,
                       bool add, float *out, size_t out_stride)
{
    __m512 sums[TILE_ROWS][PANEL_VECTORS];
    UNROLLED for (int r = 0; r < R; r++) UNROLLED for (size_t v = 0; v < PANEL_VECTORS; v++)
        sums[r][v] = add ? v_load(out + (size_t)r * out_stride + v * LANES) : v_zero();
    for (size_t i = 0; i < k; i += 2) {
        __m512bh weights[PANEL_VECTORS];
        UNROLLED for (size_t v = 0; v < PANEL_VECTORS; v++) weights[v] =
            (__m512bh)_mm512_loadu_si512(panel + i * PANEL_OUTPUTS + v * 2 * LANES);
        UNROLLED for (int r = 0; r < R; r++)
        {
            int pair;
            memcpy(&pair, x + (size_t)r * x_stride + i, sizeof pair);
            __m512bh xs = (__m512bh)_mm512_set1_epi32(pair);
            UNROLLED for (size_t v = 0; v < PANEL_VECTORS; v++) sums[r][v] =
                _mm512_dpbf16_ps(sums[r][v], weights[v], xs);
        }
    }
    UNROLLED for (int r = 0; r < R; r++) UNROLLED for (size_t v = 0; v < PANEL_VECTORS; v++)
        v_store(out + (size_t)r * out_stride + v * LANES, sums[r][v]);
}

static void panel_tile(const uint16_t *x, size_t x_stride, int rows, const uint16_t *panel,
                       size_t k, bool add, float *out, size_t out_stride)
{
    switch (rows) {
    case 1: panel_rows(x, x_stride, 1, panel, k, add, out, out_stride); break;
    case 2: panel_rows(x, x_stride, 2, panel, k, add, out, out_stride); break;
    case 3: panel_rows(x, x_stride, 3, panel, k, add, out, out_stride); break;
    case 4: panel_rows(x, x_stride, 4, panel, k, add, out, out_stride); break;
    case 5: panel_rows(x, x_stride, 5, panel, k, add, out, out_stride); break;
    default: panel_rows(x, x_stride, TILE_ROWS, panel, k, add, out, out_stride); break;
    }
}

static void panel_dot(const uint16_t *x, size_t x_stride, int rows, const uint16_t *panel, size_t k,
                      size_t cols, bool accumulate, float *out, size_t out_stride)
{
    float sums[TILE_ROWS * PANEL_OUTPUTS];
    for (int first = 0; first < rows; first += TILE_ROWS) {
        int n = rows - first < TILE_ROWS ? rows - first : TILE_ROWS;
        panel_tile(x + (size_t)first * x_stride, x_stride, n, panel, k, false, sums, PANEL_OUTPUTS);
        for (size_t r = 0; r < (size_t)n; r++) {
            float *row = out + ((size_t)first + r) * out_stride;
            for (size_t c = 0; c < cols; c++)
                row[c] = sums[r * PANEL_OUTPUTS + c] + (accumulate ? row[c] : 0);
        }
    }
}

/* ---- attention with bf16 products ---- */

/* Two rows of n halves (the second may be NULL: zeros) side by side as pairs of bf16: a row of a
 * panel. */
static void interleave_rows(const uint8_t *first, const uint8_t *second, size_t n, uint16_t *out)
{
    for (size_t i = 0; i < n; i += LANES) {
        __mmask16 some = (__mmask16)(n - i < LANES ? (1u << (n - i)) - 1 : 0xffffu);
        __m512 a = _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(some, first + i * 2));
        __m512 b =
            second ? _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(some, second + i * 2)) : v_zero();
        __m512i low = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(a)),
                high = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(b));
        _mm512_storeu_si512(out + i * 2, _mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
    }
}

/* Keys that lie by rows as a panel over head_dim; `rows` is scratch for PANEL_TURN_ROWS of them. */
static void attend_turn_keys(const struct attend_task *t, const uint8_t *from, size_t valid,
                             uint16_t *keys, uint16_t *rows)
{
    size_t hd = (size_t)t->head_dim, padded = (hd + PANEL_INPUTS - 1) / PANEL_INPUTS * PANEL_INPUTS;
    for (size_t j = 0; j < KV_PAGE_TOKENS; j++) {
        uint16_t *row = rows + j % PANEL_TURN_ROWS * padded;
        memset(row, 0, padded * sizeof *row);
        for (size_t i = 0; j < valid && i < hd; i += LANES) {
            __mmask16 some = (__mmask16)(hd - i < LANES ? (1u << (hd - i)) - 1 : 0xffffu);
            __m512 key = _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(some, from + (j * hd + i) * 2));
            _mm256_mask_storeu_epi16(row + i, some, (__m256i)_mm512_cvtneps_pbh(key));
        }
        if (j % PANEL_TURN_ROWS == PANEL_TURN_ROWS - 1)
            panel_turn(rows, padded, padded, keys + (j + 1 - PANEL_TURN_ROWS) * 2);
    }
}

/* Keys of a page in 8 bits (by rows: none) and values of its first `valid` tokens, as a page of
 * f16 has them. */
static const uint8_t *attend_widen_page(const struct attend_task *t, const struct attend_state *s,
                                        uint32_t page, size_t valid)
{
    size_t hd = (size_t)t->head_dim;
    struct attend_page p = attend_page_of(t, page);
    uint16_t *keys = s->halves, *values = keys + (t->by_rows ? 0 : hd * KV_PAGE_TOKENS);
    for (size_t b = 0; b < hd / KV_Q8_ELEMENTS; b++) {
        size_t skip = b * KV_PAGE_TOKENS * sizeof(uint16_t), first = b * KV_Q8_ELEMENTS,
               end = first + KV_Q8_ELEMENTS;
        for (size_t j = 0; !t->by_rows && j < KV_PAGE_TOKENS; j += LANES) {
            __m512 scale = v_load_f16(p.key_scales + skip + j * sizeof(uint16_t));
            for (size_t i = first; i < end; i += 2) {
                __m512i pairs = i_load_pairs(p.keys + i * KV_PAGE_TOKENS + 2 * j);
                v_store_f16(keys + i * KV_PAGE_TOKENS + j, v_mul(i_low(pairs), scale));
                v_store_f16(keys + (i + 1) * KV_PAGE_TOKENS + j, v_mul(i_high(pairs), scale));
            }
        }
        for (size_t j = 0; j < valid; j++) {
            __m512 scale = v_set1(block_scale(p.value_scales + skip + j * sizeof(uint16_t)));
            for (size_t i = first; i < end; i += LANES) {
                __m512i pairs = i_load_pairs(p.values + (j / 2 * hd + i) * 2);
                v_store_f16(values + j * hd + i,
                            v_mul(j % 2 ? i_high(pairs) : i_low(pairs), scale));
            }
        }
    }
    return (const uint8_t *)s->halves;
}

/* Keys of a page as a panel over head_dim; values of its first `valid` tokens as panels over
 * tokens, one for every 64 of head_dim. */
static void attend_load_panels(const struct attend_task *t, const struct attend_state *s,
                               uint32_t page, size_t valid)
{
    size_t hd = (size_t)t->head_dim, vd = (size_t)t->value_dim,
           row = KV_PAGE_TOKENS * sizeof(uint16_t);
    uint16_t *keys = (uint16_t *)(void *)s->keys, *values = (uint16_t *)(void *)s->values;
    const uint8_t *from = t->format == KV_Q8_0 ? attend_widen_page(t, s, page, valid)
                                               : t->head + t->pages[page] * t->page_stride;
    if (t->by_rows) /* behind the panel the scratch of keys is free: floats have twice the room */
        attend_turn_keys(t, from, valid, keys, keys + (hd + 63) / 64 * 64 * KV_PAGE_TOKENS);
    for (size_t d = 0; !t->by_rows && d < hd; d += 2)
        interleave_rows(from + d * row, d + 1 < hd ? from + (d + 1) * row : NULL, KV_PAGE_TOKENS,
                        keys + d * PANEL_OUTPUTS);
    from += t->by_rows ? 0 : hd * row;
    for (size_t c = 0; c < vd; c += PANEL_OUTPUTS)
        for (size_t j = 0; j < valid; j += 2)
            interleave_rows(from + (j * hd + c) * 2,
                            j + 1 < valid ? from + ((j + 1) * hd + c) * 2 : NULL,
                            vd - c < PANEL_OUTPUTS ? vd - c : PANEL_OUTPUTS,
                            values + (c * KV_PAGE_TOKENS + j * PANEL_OUTPUTS));
}

static void attend_panel_rows(const struct attend_task *t, const struct attend_state *s,
                              const uint16_t *q, uint32_t page, size_t valid, size_t row, int n)
{
    size_t hd = ((size_t)t->head_dim + 1) / 2 * 2;
    uint16_t weights[TILE_ROWS * KV_PAGE_TOKENS];
    float *scores = s->scores + row * KV_PAGE_TOKENS;
    panel_tile(q + row * hd, hd, n, (const uint16_t *)(const void *)s->keys, hd, false, scores,
               KV_PAGE_TOKENS);
    attend_weigh(t, s, page, row, n);
    f32_to_bf16(scores, (size_t)n * KV_PAGE_TOKENS, weights);
    for (size_t c = 0; c < s->wide; c += PANEL_OUTPUTS)
        panel_tile(weights, KV_PAGE_TOKENS, n,
                   (const uint16_t *)(const void *)s->values + c * KV_PAGE_TOKENS,
                   (valid + 1) / 2 * 2, true, s->sums + row * s->padded + c, s->padded);
}

/* As `head_attend`, with queries, keys, weights and values rounded to bf16; scores and sums stay
 * float32. Not for a cache in f32, which asks for float32 throughout; nor for few rows or a short
 * prefix, where there is little to save and few weights to even out the rounding. */
static void attend_bf16(const struct attend_task *t)
{
    enum { LEAST_ROWS = 2 * TILE_ROWS, LEAST_POSITION = 512 };
    uint32_t last = attend_last_seen(t, t->row_end - 1);
    if (t->format == KV_F32 || t->row_end - t->row_begin < LEAST_ROWS || last < LEAST_POSITION) {
        head_attend(t);
        return;
    }
    struct attend_state s = attend_begin(t);
    size_t hd = (size_t)t->head_dim, even = (hd + 1) / 2 * 2, rows = t->row_end - t->row_begin;
    uint16_t *q = (uint16_t *)(void *)
                      s.q; /* in place: a row's halves end before the next row's floats begin */
    for (size_t r = 0; r < rows; r++) {
        f32_to_bf16(s.q + r * hd, hd, q + r * even);
        memset(q + r * even + hd, 0, (even - hd) * sizeof *q);
    }
    for (uint32_t page = attend_first_page(t); page <= last / KV_PAGE_TOKENS; page++) {
        uint32_t seen = last - page * KV_PAGE_TOKENS + 1,
                 valid = seen < KV_PAGE_TOKENS ? seen : KV_PAGE_TOKENS;
        attend_load_panels(t, &s, page, valid);
        for (size_t r = 0; r < rows; r += TILE_ROWS)
            attend_panel_rows(t, &s, q, page, valid, r,
                              rows - r < TILE_ROWS ? (int)(rows - r) : TILE_ROWS);
    }
    attend_end(t, &s);
}

const struct cpu_kernels kernels_avx512 = {
    .name = "avx512", COMMON_KERNELS, .attend = head_attend, .words = &words_avx512};
const struct cpu_kernels kernels_avx512_bf16 = {.name = "avx512_bf16",
                                                COMMON_KERNELS,
                                                .attend = attend_bf16,
                                                .f32_to_bf16 = f32_to_bf16,
                                                .panel_turn = panel_turn,
                                                .panel_dot = panel_dot};
#undef BLOCK_TABLE
#define BLOCK_TABLE &blocks_amx
const struct cpu_kernels kernels_amx = {.name = "amx",
                                        COMMON_KERNELS,
                                        .attend = attend_bf16,
                                        .f32_to_bf16 = f32_to_bf16,
                                        .panel_turn = panel_turn,
                                        .panel_dot = panel_dot};
