/* Float32 to the formats with blocks of 256 (superblocks.c says how they lie). A block's runs get
 * scales of their own first; these are rounded to a few bits under a scale for all; the whole
 * numbers next to each are tried; and the scale for all follows by least squares, by turns. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "model/dtype/dtype_int.h"
#include "model/dtype/quantise.h"

enum { RUNS_MAX = 16, TURNS = 2, NEIGHBOURS = 1 };

static float half_near(float f)
{
    return dtype_f16_to_f32(dtype_f32_to_f16(f));
}

static void half_put(uint8_t *at, float f)
{
    uint16_t h = dtype_f32_to_f16(f);
    memcpy(at, &h, sizeof h);
}

static int whole_within(float v, int low, int high)
{
    return v <= (float)low ? low : v >= (float)high ? high : (int)lrintf(v);
}

/* ---- runs with a scale each ---- */

/* `scales` are within [scale_low, scale_high]. */
struct scaled_kind {
    struct quantise_grid grid;
    int runs, scale_low, scale_high;
};
struct scaled_block {
    float all; /* a half */
    int scales[RUNS_MAX];
};

static void scales_choose(const struct scaled_kind *k, const float *x, struct scaled_block *b)
{
    size_t n = SUPERBLOCK_ELEMENTS / (size_t)k->runs;
    for (int r = 0; r < k->runs; r++) {
        const float *run = x + (size_t)r * n;
        int from = b->scales[r];
        float best = INFINITY;
        for (int s = from - NEIGHBOURS; s <= from + NEIGHBOURS; s++) {
            float error = s < k->scale_low || s > k->scale_high
                              ? INFINITY
                              : quantise_error(&k->grid, run, n, b->all * (float)s);
            if (error < best) {
                best = error;
                b->scales[r] = s;
            }
        }
    }
}

/* The scale for all that fits the scales and entries best. */
static float all_fit(const struct scaled_kind *k, const float *x, const struct scaled_block *b)
{
    size_t n = SUPERBLOCK_ELEMENTS / (size_t)k->runs;
    double both = 0, squares = 0;
    for (int r = 0; r < k->runs; r++) {
        float entries[QUANTISE_RUN_MAX], scale = (float)b->scales[r];
        const float *run = x + (size_t)r * n;
        quantise_round(&k->grid, run, n, quantise_inverse(b->all * scale), entries);
        for (size_t i = 0; i < n; i++) {
            double v = (double)(entries[i] * scale);
            both += v * (double)run[i];
            squares += v * v;
        }
    }
    return squares > 0 ? (float)(both / squares) : b->all;
}

static double scaled_error(const struct scaled_kind *k, const float *x,
                           const struct scaled_block *b)
{
    size_t n = SUPERBLOCK_ELEMENTS / (size_t)k->runs;
    double error = 0;
    for (int r = 0; r < k->runs; r++)
        error +=
            (double)quantise_error(&k->grid, x + (size_t)r * n, n, b->all * (float)b->scales[r]);
    return error;
}

static void scaled_from(const struct scaled_kind *k, const float *x, const float *wanted, float all,
                        struct scaled_block *b)
{
    b->all = half_near(all);
    for (int r = 0; r < k->runs; r++)
        b->scales[r] =
            whole_within(wanted[r] * quantise_inverse(b->all), k->scale_low, k->scale_high);
    scales_choose(k, x, b);
}

static struct scaled_block scaled_make(const struct scaled_kind *k, const float *x)
{
    size_t n = SUPERBLOCK_ELEMENTS / (size_t)k->runs;
    float wanted[RUNS_MAX], most = 0;
    for (int r = 0; r < k->runs; r++) {
        wanted[r] = quantise_scale(&k->grid, x + (size_t)r * n, n);
        most = fabsf(wanted[r]) > fabsf(most) ? wanted[r] : most;
    }
    struct scaled_block best, next;
    scaled_from(k, x, wanted, most / (float)k->scale_low, &best);
    double best_error = scaled_error(k, x, &best);
    for (int t = 0; t < TURNS; t++) {
        scaled_from(k, x, wanted, all_fit(k, x, &best), &next);
        double error = scaled_error(k, x, &next);
        if (!(error < best_error))
            break;
        best = next;
        best_error = error;
    }
    return best;
}

static void scaled_codes(const struct scaled_kind *k, const float *x, const struct scaled_block *b,
                         uint8_t codes[SUPERBLOCK_ELEMENTS])
{
    size_t n = SUPERBLOCK_ELEMENTS / (size_t)k->runs;
    for (size_t i = 0; i < SUPERBLOCK_ELEMENTS; i += n) {
        size_t run = i / n;
        float entries[QUANTISE_RUN_MAX];
        quantise_round(&k->grid, x + i, n, quantise_inverse(b->all * (float)b->scales[run]),
                       entries);
        for (size_t j = 0; j < n; j++)
            codes[i + j] = (uint8_t)quantise_code(&k->grid, entries[j]);
    }
}

/* ---- runs with a scale and an offset each ---- */

struct line_kind {
    int high, runs, scale_high; /* of a value; of a scale or an offset */
};
struct line_block {
    float scale, less; /* halves */
    int scales[RUNS_MAX], lesses[RUNS_MAX];
};

static struct quantise_line line_of(const struct line_block *b, int scale, int less)
{
    return (struct quantise_line){b->scale * (float)scale, b->less * (float)less};
}

static void lines_choose(const struct line_kind *k, const float *x, struct line_block *b)
{
    size_t n = SUPERBLOCK_ELEMENTS / (size_t)k->runs;
    for (int r = 0; r < k->runs; r++) {
        int scale = b->scales[r], less = b->lesses[r];
        float best = INFINITY;
        for (int i = 0; i < (2 * NEIGHBOURS + 1) * (2 * NEIGHBOURS + 1); i++) {
            int s = scale + i / (2 * NEIGHBOURS + 1) - NEIGHBOURS,
                l = less + i % (2 * NEIGHBOURS + 1) - NEIGHBOURS;
            if (s < 0 || s > k->scale_high || l < 0 || l > k->scale_high)
                continue;
            float error = quantise_line_error(k->high, x + (size_t)r * n, n, line_of(b, s, l));
            if (error < best) {
                best = error;
                b->scales[r] = s;
                b->lesses[r] = l;
            }
        }
    }
}

static double lines_error(const struct line_kind *k, const float *x, const struct line_block *b)
{
    size_t n = SUPERBLOCK_ELEMENTS / (size_t)k->runs;
    double error = 0;
    for (int r = 0; r < k->runs; r++)
        error += (double)quantise_line_error(k->high, x + (size_t)r * n, n,
                                             line_of(b, b->scales[r], b->lesses[r]));
    return error;
}

/* Both scales for all by least squares, for the numbers that there are. */
static struct quantise_line lines_fit(const struct line_kind *k, const float *x,
                                      const struct line_block *b)
{
    size_t n = SUPERBLOCK_ELEMENTS / (size_t)k->runs;
    double vv = 0, vl = 0, ll = 0, xv = 0, xl = 0;
    for (int r = 0; r < k->runs; r++) {
        float q[QUANTISE_RUN_MAX];
        const float *run = x + (size_t)r * n;
        quantise_line_round(k->high, run, n, line_of(b, b->scales[r], b->lesses[r]), q);
        for (size_t i = 0; i < n; i++) {
            double v = (double)(q[i] * (float)b->scales[r]), l = -(double)b->lesses[r];
            vv += v * v;
            vl += v * l;
            ll += l * l;
            xv += v * (double)run[i];
            xl += l * (double)run[i];
        }
    }
    double spread = vv * ll - vl * vl;
    if (!(spread > 1e-9 * vv * ll))
        return (struct quantise_line){b->scale, b->less};
    struct quantise_line fit = {(float)((xv * ll - xl * vl) / spread),
                                (float)((xl * vv - xv * vl) / spread)};
    return fit.scale > 0 && fit.less >= 0 ? fit : (struct quantise_line){b->scale, b->less};
}

static void lines_from(const struct line_kind *k, const float *x,
                       const struct quantise_line *wanted, struct quantise_line all,
                       struct line_block *b)
{
    b->scale = half_near(all.scale);
    b->less = half_near(all.less);
    for (int r = 0; r < k->runs; r++) {
        b->scales[r] = whole_within(wanted[r].scale * quantise_inverse(b->scale), 0, k->scale_high);
        b->lesses[r] = whole_within(wanted[r].less * quantise_inverse(b->less), 0, k->scale_high);
    }
    lines_choose(k, x, b);
}

static struct line_block lines_make(const struct line_kind *k, const float *x)
{
    size_t n = SUPERBLOCK_ELEMENTS / (size_t)k->runs;
    struct quantise_line wanted[RUNS_MAX], all = {0};
    for (int r = 0; r < k->runs; r++) {
        wanted[r] = quantise_line(k->high, x + (size_t)r * n, n, true);
        all.scale = fmaxf(all.scale, wanted[r].scale / (float)k->scale_high);
        all.less = fmaxf(all.less, wanted[r].less / (float)k->scale_high);
    }
    struct line_block best, next;
    lines_from(k, x, wanted, all, &best);
    double best_error = lines_error(k, x, &best);
    for (int t = 0; t < TURNS; t++) {
        lines_from(k, x, wanted, lines_fit(k, x, &best), &next);
        double error = lines_error(k, x, &next);
        if (!(error < best_error))
            break;
        best = next;
        best_error = error;
    }
    return best;
}

static void line_codes(const struct line_kind *k, const float *x, const struct line_block *b,
                       uint8_t codes[SUPERBLOCK_ELEMENTS])
{
    size_t n = SUPERBLOCK_ELEMENTS / (size_t)k->runs;
    for (size_t i = 0; i < SUPERBLOCK_ELEMENTS; i += n) {
        float q[QUANTISE_RUN_MAX];
        quantise_line_round(k->high, x + i, n, line_of(b, b->scales[i / n], b->lesses[i / n]), q);
        for (size_t j = 0; j < n; j++)
            codes[i + j] = (uint8_t)q[j];
    }
}

/* ---- how they lie ---- */

/* As two_bits() and four_bits() of superblocks.c read them. */
static void two_bits_put(const uint8_t *codes, uint8_t *bytes)
{
    memset(bytes, 0, 64);
    for (size_t i = 0; i < SUPERBLOCK_ELEMENTS; i++)
        bytes[i / 128 * 32 + i % 32] |= (uint8_t)((codes[i] & 3) << i % 128 / 32 * 2);
}

static void four_bits_put(const uint8_t *codes, uint8_t *bytes)
{
    memset(bytes, 0, 128);
    for (size_t i = 0; i < SUPERBLOCK_ELEMENTS; i++)
        bytes[i / 64 * 32 + i % 32] |= (uint8_t)((codes[i] & 0xf) << i % 64 / 32 * 4);
}

/* One bit of each code into bit i / 32 of byte i % 32. */
static void bits_put(const uint8_t *codes, int bit, uint8_t *bytes)
{
    memset(bytes, 0, 32);
    for (size_t i = 0; i < SUPERBLOCK_ELEMENTS; i++)
        bytes[i % 32] |= (uint8_t)((codes[i] >> bit & 1) << i / 32);
}

void q2_k_from_f32(const float *in, size_t n, void *dst)
{
    static const struct line_kind kind = {.high = 3, .runs = 16, .scale_high = 15};
    uint8_t *block = dst, codes[SUPERBLOCK_ELEMENTS];
    assert(n % SUPERBLOCK_ELEMENTS == 0);
    for (size_t at = 0; at < n; at += SUPERBLOCK_ELEMENTS, block += Q2_K_BYTES) {
        struct line_block b = lines_make(&kind, in + at);
        line_codes(&kind, in + at, &b, codes);
        for (int r = 0; r < 16; r++)
            block[r] = (uint8_t)(b.scales[r] | b.lesses[r] << 4);
        two_bits_put(codes, block + 16);
        half_put(block + 80, b.scale);
        half_put(block + 82, b.less);
    }
}

static void q3_k_scales_put(const int *scales, uint8_t *bytes)
{
    memset(bytes, 0, 12);
    for (int r = 0; r < 16; r++) {
        int s = scales[r] + 32;
        bytes[r % 8] |= (uint8_t)((s & 0xf) << r / 8 * 4);
        bytes[8 + r % 4] |= (uint8_t)((s >> 4) << r / 4 * 2);
    }
}

void q3_k_from_f32(const float *in, size_t n, void *dst)
{
    static const struct scaled_kind kind = {
        .grid = {.low = -4, .high = 3}, .runs = 16, .scale_low = -32, .scale_high = 31};
    uint8_t *block = dst, codes[SUPERBLOCK_ELEMENTS];
    assert(n % SUPERBLOCK_ELEMENTS == 0);
    for (size_t at = 0; at < n; at += SUPERBLOCK_ELEMENTS, block += Q3_K_BYTES) {
        struct scaled_block b = scaled_make(&kind, in + at);
        scaled_codes(&kind, in + at, &b, codes);
        bits_put(codes, 2, block);
        two_bits_put(codes, block + 32);
        q3_k_scales_put(b.scales, block + 96);
        half_put(block + 108, b.all);
    }
}

static void q45_k_scales_put(const struct line_block *b, uint8_t *bytes)
{
    for (int r = 0; r < 4; r++) {
        bytes[r] = (uint8_t)(b->scales[r] | b->scales[r + 4] >> 4 << 6);
        bytes[r + 4] = (uint8_t)(b->lesses[r] | b->lesses[r + 4] >> 4 << 6);
        bytes[r + 8] = (uint8_t)((b->scales[r + 4] & 0xf) | (b->lesses[r + 4] & 0xf) << 4);
    }
}

void q4_k_from_f32(const float *in, size_t n, void *dst)
{
    static const struct line_kind kind = {.high = 15, .runs = 8, .scale_high = 63};
    uint8_t *block = dst, codes[SUPERBLOCK_ELEMENTS];
    assert(n % SUPERBLOCK_ELEMENTS == 0);
    for (size_t at = 0; at < n; at += SUPERBLOCK_ELEMENTS, block += Q4_K_BYTES) {
        struct line_block b = lines_make(&kind, in + at);
        line_codes(&kind, in + at, &b, codes);
        half_put(block, b.scale);
        half_put(block + 2, b.less);
        q45_k_scales_put(&b, block + 4);
        four_bits_put(codes, block + 16);
    }
}

void q5_k_from_f32(const float *in, size_t n, void *dst)
{
    static const struct line_kind kind = {.high = 31, .runs = 8, .scale_high = 63};
    uint8_t *block = dst, codes[SUPERBLOCK_ELEMENTS];
    assert(n % SUPERBLOCK_ELEMENTS == 0);
    for (size_t at = 0; at < n; at += SUPERBLOCK_ELEMENTS, block += Q5_K_BYTES) {
        struct line_block b = lines_make(&kind, in + at);
        line_codes(&kind, in + at, &b, codes);
        half_put(block, b.scale);
        half_put(block + 2, b.less);
        q45_k_scales_put(&b, block + 4);
        bits_put(codes, 4, block + 16);
        four_bits_put(codes, block + 48);
    }
}

/* 128 codes, as q6_k_half() of superblocks.c reads them. */
static void q6_k_half_put(const uint8_t *codes, uint8_t *low, uint8_t *high)
{
    memset(low, 0, 64);
    memset(high, 0, 32);
    for (size_t i = 0; i < 128; i++) {
        size_t l = i % 32, quarter = i / 32;
        low[l + quarter % 2 * 32] |= (uint8_t)((codes[i] & 0xf) << quarter / 2 * 4);
        high[l] |= (uint8_t)(codes[i] >> 4 << quarter * 2);
    }
}

void q6_k_from_f32(const float *in, size_t n, void *dst)
{
    static const struct scaled_kind kind = {
        .grid = {.low = -32, .high = 31}, .runs = 16, .scale_low = -128, .scale_high = 127};
    uint8_t *block = dst, codes[SUPERBLOCK_ELEMENTS];
    assert(n % SUPERBLOCK_ELEMENTS == 0);
    for (size_t at = 0; at < n; at += SUPERBLOCK_ELEMENTS, block += Q6_K_BYTES) {
        struct scaled_block b = scaled_make(&kind, in + at);
        scaled_codes(&kind, in + at, &b, codes);
        q6_k_half_put(codes, block, block + 128);
        q6_k_half_put(codes + 128, block + 64, block + 160);
        for (int r = 0; r < 16; r++)
            block[192 + r] = (uint8_t)b.scales[r];
        half_put(block + 208, b.all);
    }
}

void iq4_xs_from_f32(const float *in, size_t n, void *dst)
{
    const struct scaled_kind kind = {
        .grid = {-127, 113, dtype_iq4_values, 16}, .runs = 8, .scale_low = -32, .scale_high = 31};
    uint8_t *block = dst, codes[SUPERBLOCK_ELEMENTS];
    assert(n % SUPERBLOCK_ELEMENTS == 0);
    for (size_t at = 0; at < n; at += SUPERBLOCK_ELEMENTS, block += IQ4_XS_BYTES) {
        struct scaled_block b = scaled_make(&kind, in + at);
        scaled_codes(&kind, in + at, &b, codes);
        half_put(block, b.all);
        memset(block + 2, 0, 6);
        for (int r = 0; r < 8; r++) {
            int s = b.scales[r] + 32;
            block[2 + r / 4] |= (uint8_t)(s >> 4 << r % 4 * 2);
            block[4 + r / 2] |= (uint8_t)((s & 0xf) << r % 2 * 4);
            for (size_t i = 0; i < 16; i++)
                block[8 + r * 16 + (int)i] =
                    (uint8_t)(codes[r * 32 + (int)i] | codes[r * 32 + 16 + (int)i] << 4);
        }
    }
}
