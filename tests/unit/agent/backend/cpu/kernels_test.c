/* Every kernel of every set of instructions that this CPU has against the plain loops, over odd
 * sizes. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/backend/cpu/block_lanes.h"
#include "agent/backend/cpu/kernels.h"
#include "agent/backend/plain/loops.h"
#include "common/env.h"
#include "tests/share.h"
#include "tests/test.h"

static const char *const levels[] = {"avx2", "avx512", "avx512_bf16"};
enum { LEVELS = sizeof levels / sizeof *levels };

static float random_float(uint64_t *state)
{
    return (float)(random_unit(state) * 2 - 1);
}

static float *random_floats(size_t n, uint64_t seed)
{
    float *out = calloc(n + 16, sizeof *out);
    assert_non_null(out);
    for (size_t i = 0; i < n; i++)
        out[i] = random_float(&seed);
    return out;
}

/* n random weights of a dtype, at an odd address, as files have them. */
static uint8_t *random_weights(enum dtype t, size_t n, uint64_t seed, uint8_t **to_free)
{
    size_t bytes = n / dtype_info(t)->block_elements * dtype_info(t)->block_bytes;
    *to_free = calloc(1, bytes + 1);
    assert_non_null(*to_free);
    uint8_t *out = *to_free + 1;
    for (size_t i = 0; i < n; i++) {
        float f = random_float(&seed);
        uint16_t half = t == DTYPE_F16 ? dtype_f32_to_f16(f) : dtype_f32_to_bf16(f);
        if (t == DTYPE_F32)
            memcpy(out + i * 4, &f, 4);
        else if (dtype_info(t)->block_elements == 1)
            memcpy(out + i * 2, &half, 2);
    }
    size_t block = dtype_info(t)->block_bytes, elements = dtype_info(t)->block_elements;
    for (size_t i = 0; elements > 1 && i < bytes; i++)
        out[i] = (uint8_t)(random_unit(&seed) * 256);
    for (size_t i = 0; elements > 1 && i < bytes; i += block) {
        for (int j = 0; j < dtype_info(t)->n_scales; j++) {
            uint16_t scale = dtype_f32_to_f16(0.01f * (1 + random_float(&seed) / 2));
            memcpy(out + i + dtype_info(t)->scales_at + 2 * j, &scale, 2);
        }
        if (t == DTYPE_MXFP4)
            out[i] = (uint8_t)(118 + out[i] % 4);
    }
    return out;
}

/* The kernels of a level, or a skip that says so. */
static const struct cpu_kernels *level(const char *name)
{
    const struct cpu_kernels *k = NULL;
    struct err e = {0};
    if (kernels_choose(name, &k, &e) == 0)
        return k;
    assert_int_equal(e.code, HP_EDEVICE);
    print_message("# not on this CPU: %s\n", e.text);
    return NULL;
}

static void close_to(const float *got, const float *want, size_t n, float tolerance,
                     const char *what)
{
    float greatest = 1e-6f;
    for (size_t i = 0; i < n; i++)
        greatest = fabsf(want[i]) > greatest ? fabsf(want[i]) : greatest;
    for (size_t i = 0; i < n; i++)
        if (!(fabsf(got[i] - want[i]) <= tolerance * greatest))
            fail_msg("%s: element %zu of %zu is %g, expected %g", what, i, n, (double)got[i],
                     (double)want[i]);
}

TEST(unpacking_is_exact_in_every_format)
{
    for (int l = 0; l < LEVELS; l++) {
        const struct cpu_kernels *k = level(levels[l]);
        for (int t = 0; k && t < DTYPE_WEIGHT_COUNT; t++)
            for (size_t block = dtype_info((enum dtype)t)->block_elements, n = block; n <= 512;
                 n += block > 1 ? block : 7) {
                uint8_t *memory, *w = random_weights((enum dtype)t, n, n, &memory);
                float got[512], want[512];
                kernels_unpack(k, (enum dtype)t, w, n, got);
                dtype_info((enum dtype)t)->to_f32(w, n, want);
                assert_memory_equal(got, want, n * sizeof *got);
                free(memory);
            }
    }
}

TEST(halves_round_to_nearest_even)
{
    float values[77];
    uint64_t seed = 5;
    for (size_t i = 0; i < 77; i++)
        values[i] = ldexpf(random_float(&seed), (int)(i % 40) - 26);
    for (int l = 0; l < LEVELS; l++) {
        const struct cpu_kernels *k = level(levels[l]);
        uint16_t got[77], want[77];
        if (!k)
            continue;
        k->f32_to_f16(values, 77, got);
        for (size_t i = 0; i < 77; i++)
            want[i] = dtype_f32_to_f16(values[i]);
        assert_memory_equal(got, want, sizeof got);
        for (size_t i = 0; k->f32_to_bf16 && i < 77; i++) {
            k->f32_to_bf16(values + i, 1, got);
            if (fabsf(values[i]) > 1e-30f)
                assert_int_equal(got[0], dtype_f32_to_bf16(values[i]));
        }
    }
}

TEST(rows_are_narrowed_to_nearest_even_and_saturate)
{
    enum { N = 4099, HAND = 20 };
    static const uint32_t bits[HAND] = {
        0x00000000, 0x80000000, 0x3f800000, 0x3f801000, /* 1 + half an f16 step: to even, down */
        0x3f803000,                                     /* the next half step: to even, up */
        0x3f808000, 0x3f818000,                         /* the same for bf16 */
        0x477fe000, 0x477ff000, 0xc77fffff, 0x47800000, /* 65504 and more */
        0x7f7fffff, 0xff7fffff, 0x7f800000, 0xff800000, /* the largest, and infinity */
        0x7fc00001, 0xffa00000,                         /* NaN, quiet and not */
        0x33000000, 0x33000001, 0x00000001};            /* below the least f16 */
    static float values[N];
    static uint16_t got[N], want[N];
    uint64_t seed = 11;
    for (size_t i = 0; i < N; i++)
        values[i] = ldexpf(random_float(&seed), (int)(i % 60) - 40);
    memcpy(values, bits, sizeof bits);
    memcpy(values + N - HAND, bits, sizeof bits);
    narrow_plain.f16(values, N, want);
    static const uint16_t f16[] = {0, 0x8000, 0x3c00, 0x3c00, 0x3c02};
    assert_memory_equal(want, f16, sizeof f16);
    for (int i = 7; i < 15; i++)
        assert_int_equal(want[i], i == 9 || i == 12 || i == 14 ? 0xfbff : 0x7bff);
    assert_true((want[15] & 0x7fff) > 0x7c00 && (want[16] & 0x7fff) > 0x7c00);
    narrow_plain.bf16(values, N, want);
    assert_int_equal(want[5], 0x3f80);
    assert_int_equal(want[6], 0x3f82);
    assert_int_equal(want[11], 0x7f80);
    assert_true((want[15] & 0x7fff) > 0x7f80 && (want[16] & 0x7fff) > 0x7f80);
    for (size_t i = HAND; i < N - HAND; i++)
        assert_int_equal(want[i], dtype_f32_to_bf16(values[i]));
    for (int l = 0; l < LEVELS; l++) {
        const struct cpu_kernels *k = level(levels[l]);
        for (size_t n = N; k && n > N - 40; n--) { /* every remainder */
            memset(got, 0xee, sizeof got);
            narrow_plain.f16(values, n, want);
            k->narrow->f16(values, n, got);
            assert_memory_equal(got, want, n * sizeof *got);
            narrow_plain.bf16(values, n, want);
            k->narrow->bf16(values, n, got);
            assert_memory_equal(got, want, n * sizeof *got);
        }
    }
}

/* Values of a block by hand: all alike, a pair of the largest, numbers that are none, tiny ones. */
static void q8_by_hand(float values[8 * Q8_WIRE_ELEMENTS])
{
    uint32_t quiet = 0x7fc00001, loud = 0xffa00000;
    for (size_t i = 0; i < 8 * Q8_WIRE_ELEMENTS; i++)
        values[i] = i < Q8_WIRE_ELEMENTS ? -3.0f : sinf((float)i);
    values[64 + 9] = -500, values[64 + 10] = 500;
    memcpy(&values[128 + 5], &quiet, sizeof quiet);
    memcpy(&values[128 + 40], &loud, sizeof loud);
    values[192 + 63] = INFINITY, values[192 + 1] = -INFINITY;
    for (size_t i = 256; i < 320; i++)
        values[i] *= 1e-32f;
    memset(values + 320, 0, 64 * sizeof *values);
    for (size_t i = 384; i < 448; i++)
        values[i] *= 3e38f;
}

TEST(rows_cross_in_bytes_with_the_largest_of_each_block_kept)
{
    enum { HAND = 8, BLOCKS = 40, N = BLOCKS * Q8_WIRE_ELEMENTS };
    static float values[N], back[N], same[N];
    static uint8_t want[BLOCKS * Q8_WIRE_BYTES], got[BLOCKS * Q8_WIRE_BYTES];
    uint64_t seed = 5;
    for (size_t i = 0; i < N; i++)
        values[i] =
            ldexpf(random_float(&seed), i % Q8_WIRE_ELEMENTS == 17 ? 12 : 0); /* one apart */
    q8_by_hand(values);
    narrow_plain.q8(values, N, want);
    narrow_plain.q8_back(want, N, back);
    assert_int_equal(dtype_bad_block(DTYPE_Q8_WIRE, want, N), -1);
    assert_true(back[64 + 9] == -500 && fabsf(back[64 + 10] - 500) < 1e-3f);
    assert_true(isnan(back[128 + 5]) && isfinite(back[128 + 40]));
    assert_true(back[192 + 1] == -INFINITY && back[192 + 63] > 2.9e38f);
    for (size_t b = HAND; b < BLOCKS; b++) {
        float scale;
        memcpy(&scale, want + b * Q8_WIRE_BYTES, sizeof scale);
        assert_true(scale < 0.01f); /* of the others alone, which are below 1 */
        for (size_t i = b * Q8_WIRE_ELEMENTS; i < (b + 1) * Q8_WIRE_ELEMENTS; i++)
            assert_true(fabsf(back[i] - values[i]) <= 0.501f * scale);
    }
    for (int l = 0; l < LEVELS; l++) {
        const struct cpu_kernels *k = level(levels[l]);
        if (!k)
            continue;
        k->narrow->q8(values, N, got);
        assert_memory_equal(got, want, sizeof got);
        k->narrow->q8_back(got, N, same);
        assert_memory_equal(same, back, sizeof same);
        for (size_t i = 0; i < sizeof got; i++) /* whatever bytes come */
            got[i] = (uint8_t)((seed = seed * 6364136223846793005u + 1442695040888963407u) >> 56);
        for (size_t b = 0; b < BLOCKS; b++)
            got[b * Q8_WIRE_BYTES + 3] &= 0x3f, got[b * Q8_WIRE_BYTES + 8 + b] = 0x80;
        k->narrow->q8_back(got, N, same);
        float *plain = calloc(N, sizeof *plain);
        narrow_plain.q8_back(got, N, plain);
        assert_memory_equal(same, plain, sizeof same);
        free(plain);
    }
}

/* One shape of `dot` against the plain loops, and bit for bit against itself one row at a time. */
static void check_dot(const struct cpu_kernels *k, enum dtype t, int rows, size_t cols, size_t n)
{
    size_t row_bytes = n / dtype_info(t)->block_elements * dtype_info(t)->block_bytes;
    uint8_t *memory, *w = random_weights(t, n * cols, n + cols, &memory);
    float *x = random_floats(n * (size_t)rows, 3), *got = random_floats((size_t)rows * cols, 4),
          *want = random_floats((size_t)rows * cols, 4);
    float *alone = random_floats((size_t)rows * cols, 4);
    k->dot[t](x, n, rows, w, row_bytes, cols, n, w, got, cols);
    for (size_t i = 0; i < (size_t)rows * cols; i++)
        loop_dot(t, x + i / cols * n, w + i % cols * row_bytes, n, &want[i]);
    close_to(got, want, (size_t)rows * cols, 1e-5f, k->name);
    for (int r = 0; r < rows; r++)
        for (size_t c = 0; c < cols; c++)
            k->dot[t](x + (size_t)r * n, n, 1, w + c * row_bytes, row_bytes, 1, n, NULL,
                      alone + (size_t)r * cols + c, cols);
    assert_memory_equal(got, alone, (size_t)rows * cols * sizeof *got);
    free(memory);
    free(x);
    free(got);
    free(want);
    free(alone);
}

TEST(inner_products_match_and_do_not_depend_on_the_batch)
{
    static const size_t lengths[] = {1, 15, 16, 17, 32, 96, 100, 511, 512};
    for (int l = 0; l < LEVELS; l++) {
        const struct cpu_kernels *k = level(levels[l]);
        for (int t = 0; k && t < DTYPE_WEIGHT_COUNT; t++)
            for (int rows = 1; k->dot[t] && rows <= DOT_MAX_ROWS; rows++)
                for (size_t cols = 1; cols <= 9; cols += 4)
                    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
                        if (lengths[i] % dtype_info((enum dtype)t)->block_elements == 0)
                            check_dot(k, (enum dtype)t, rows, cols, lengths[i]);
    }
}

static void check_side(const struct cpu_kernels *k, enum dtype t, int rows, size_t n)
{
    size_t row_bytes = n * dtype_info(t)->block_bytes, outputs = (size_t)rows * SIDE_ROWS;
    uint8_t *memory, *w = random_weights(t, n * SIDE_ROWS, n, &memory),
                     *side = calloc(SIDE_ROWS, row_bytes);
    float *x = random_floats(n * (size_t)rows, 3), *got = random_floats(outputs, 4),
          *want = random_floats(outputs, 4), *row = random_floats(n, 5),
          *unpacked = random_floats(SIDE_ROWS * (n + 1), 6);
    assert_non_null(side);
    plain_side_put(k->side_values * dtype_info(t)->block_bytes, SIDE_ROWS, w, SIDE_ROWS, row_bytes,
                   side);
    k->dot_side[t](x, n, rows, side, n, got, SIDE_ROWS);
    k->dot[t](x, n, rows, w, row_bytes, SIDE_ROWS, n, NULL, want, SIDE_ROWS);
    assert_memory_equal(got, want, outputs * sizeof *got);
    k->unpack_side[t](side, n, unpacked, n + 1);
    for (size_t c = 0; c < SIDE_ROWS; c++) {
        kernels_unpack(k, t, w + c * row_bytes, n, row);
        assert_memory_equal(unpacked + c * (n + 1), row, n * sizeof *row);
    }
    free(memory);
    free(side);
    free(x);
    free(got);
    free(want);
    free(row);
    free(unpacked);
}

TEST(rows_side_by_side_give_the_bits_of_rows_each_for_itself)
{
    for (int l = 0; l < LEVELS; l++) {
        const struct cpu_kernels *k = level(levels[l]);
        for (int t = 0; k && t < DTYPE_WEIGHT_COUNT; t++)
            for (int rows = 1; k->dot_side[t] && rows <= DOT_MAX_ROWS; rows++)
                for (size_t n = k->side_values; n <= DOT_CHUNK; n *= 2)
                    check_side(k, (enum dtype)t, rows, n);
        if (k)
            assert_true(k->dot_side[DTYPE_F32] && k->dot_side[DTYPE_F16] &&
                        k->dot_side[DTYPE_BF16]);
    }
}

TEST(norms_and_activations_match_at_any_width)
{
    for (int l = 0; l < LEVELS; l++) {
        const struct cpu_kernels *k = level(levels[l]);
        for (size_t n = 1; k && n <= 200; n += 13) {
            float *a = random_floats(n, 1), *b = random_floats(n, 2), got[200], want[200];
            for (size_t i = 0; i < n; i++)
                a[i] *= 20;
            k->rms_norm(a, b, 1e-5f, n, got);
            loop_rms_norm(a, b, 1e-5f, n, want);
            close_to(got, want, n, 1e-6f, "rms_norm");
            k->layer_norm(a, b, a, 1e-5f, n, got);
            loop_layer_norm(a, b, a, 1e-5f, n, want);
            close_to(got, want, n, 1e-6f, "layer_norm");
            k->gelu(a, n, got);
            loop_gelu(a, n, want);
            close_to(got, want, n, 1e-6f, "gelu");
            k->gelu_exact(a, n, got);
            loop_gelu_exact(a, n, want);
            close_to(got, want, n, 1e-6f, "gelu_exact");
            k->silu_mul(a, b, n, got);
            loop_silu_mul(a, b, n, want);
            close_to(got, want, n, 1e-6f, "silu_mul");
            for (size_t i = 0; i < n; i++) {
                k->silu_mul(a + i, b + i, 1, want);
                assert_memory_equal(&got[i], want, sizeof *want);
            }
            free(a);
            free(b);
        }
    }
}

TEST(activations_of_extreme_values_stay_finite)
{
    const float gate[] = {-1e4f, -100, -88, 0, 88, 100, 1e4f}, up[] = {1, 1, 1, 1, 1, 1, 1};
    for (int l = 0; l < LEVELS; l++) {
        const struct cpu_kernels *k = level(levels[l]);
        float out[7];
        if (!k)
            continue;
        k->gelu(gate, 7, out);
        for (int i = 0; i < 7; i++)
            assert_true(out[i] == (gate[i] > 0 ? gate[i] : 0) || fabsf(out[i]) < 1e-30f);
        k->silu_mul(gate, up, 7, out);
        for (int i = 0; i < 7; i++) {
            float want = gate[i] > 0 ? gate[i] : 0;
            assert_true(fabsf(out[i] - want) <= 1e-5f * (1 + fabsf(want)));
        }
    }
}

/* Attention of `tokens` new tokens after `prefix` over random pages, for one kv head. */
struct attend_case {
    int group, head_dim;
    uint32_t prefix, tokens;
    enum kv_format format;
    uint32_t window;
    int latent; /* of its keys, which lie by rows, so many elements are values; 0: none */
};

static size_t case_values(const struct attend_case *c)
{
    return (size_t)(c->latent ? c->latent : c->head_dim);
}

static size_t case_page(const struct attend_case *c)
{
    return (c->latent ? 1 : 2) * (size_t)c->head_dim * KV_PAGE_TOKENS;
}

static size_t case_page_bytes(const struct attend_case *c)
{
    return (size_t)kv_format_bytes(c->format, case_page(c));
}

static void attend_in_tiles(void (*attend)(const struct attend_task *t),
                            const struct attend_case *c, const float *q, const uint8_t *pool,
                            const uint32_t *pages, uint32_t tile, float *out)
{
    size_t group = (size_t)c->group;
    float *scratch = calloc(attend_scratch_floats(c->head_dim), sizeof *scratch);
    uint32_t rows = c->tokens * (uint32_t)c->group;
    for (uint32_t r = 0; r < rows; r += tile) {
        struct attend_task t = {.q = q,
                                .out = out,
                                .q_stride = group * (size_t)c->head_dim,
                                .out_stride = group * case_values(c),
                                .group = c->group,
                                .head_dim = c->head_dim,
                                .value_dim = (int)case_values(c),
                                .by_rows = c->latent > 0,
                                .first_position = c->prefix};
        t.row_begin = r;
        t.row_end = r + tile < rows ? r + tile : rows;
        t.head = pool;
        t.page_stride = case_page_bytes(c);
        t.pages = pages;
        t.window = c->window;
        t.format = c->format;
        t.scale = 0.3f;
        t.scratch = scratch;
        attend(&t);
    }
    free(scratch);
}

/* Of KV_Q8_0, where two of what is summed lie side by side. */
static size_t pair_at(const struct attend_task *t, bool key, size_t token, size_t i)
{
    return key ? (i / 2 * KV_PAGE_TOKENS + token) * 2 + i % 2
               : (token / 2 * (size_t)t->head_dim + i) * 2 + token % 2;
}

static float page_value(const struct attend_task *t, uint32_t position, bool value, size_t at)
{
    size_t size = t->format == KV_F32 ? 4 : 2, hd = (size_t)t->head_dim, parts = t->by_rows ? 1 : 2;
    const uint8_t *page = t->head + t->pages[position / KV_PAGE_TOKENS] * t->page_stride;
    float out;
    if (t->format == KV_Q8_0) {
        size_t element = value || t->by_rows ? at % hd : at / KV_PAGE_TOKENS,
               block = (value && !t->by_rows ? hd / KV_Q8_ELEMENTS : 0) + element / KV_Q8_ELEMENTS;
        at = pair_at(t, !value && !t->by_rows, position % KV_PAGE_TOKENS, element);
        uint16_t scale;
        at += value && !t->by_rows ? hd * KV_PAGE_TOKENS : 0;
        memcpy(&scale,
               page + parts * hd * KV_PAGE_TOKENS +
                   (block * KV_PAGE_TOKENS + position % KV_PAGE_TOKENS) * sizeof scale,
               sizeof scale);
        return (float)(int8_t)page[at] * dtype_f16_to_f32(scale);
    }
    at += value && !t->by_rows ? (size_t)t->head_dim * KV_PAGE_TOKENS : 0;
    dtype_info(t->format == KV_F32 ? DTYPE_F32 : DTYPE_F16)->to_f32(page + at * size, 1, &out);
    return out;
}

static float page_key_at(const void *ctx, uint32_t position, size_t i)
{
    const struct attend_task *t = ctx;
    size_t token = position % KV_PAGE_TOKENS;
    return page_value(t, position, false,
                      t->by_rows ? token * (size_t)t->head_dim + i : i * KV_PAGE_TOKENS + token);
}

static float page_value_at(const void *ctx, uint32_t position, size_t i)
{
    const struct attend_task *t = ctx;
    return page_value(t, position, true, position % KV_PAGE_TOKENS * (size_t)t->head_dim + i);
}

static void attend_plain(const struct attend_task *t)
{
    struct loop_cache cache = {.key = page_key_at, .value = page_value_at, .ctx = t};
    for (uint32_t r = t->row_begin; r < t->row_end; r++) {
        uint32_t token = r / (uint32_t)t->group;
        size_t head = r % (uint32_t)t->group, hd = (size_t)t->head_dim, vd = (size_t)t->value_dim;
        uint32_t position = t->first_position + token;
        loop_attend(&cache, t->q + token * t->q_stride + head * hd,
                    kv_first_seen(t->window, position), position, hd, vd, t->scale,
                    t->out + token * t->out_stride + head * vd);
    }
}

/* Random pages of a case; free(*memory). */
static uint8_t *case_pool(const struct attend_case *c, size_t n_pages, uint8_t **memory)
{
    size_t elements = case_page(c);
    if (c->format != KV_Q8_0)
        return random_weights(c->format == KV_F32 ? DTYPE_F32 : DTYPE_F16, elements * n_pages, 9,
                              memory);
    uint64_t seed = 9;
    *memory = calloc(n_pages, case_page_bytes(c));
    for (size_t p = 0; p < n_pages; p++) {
        uint8_t *page = *memory + p * case_page_bytes(c);
        for (size_t i = 0; i < elements; i++)
            page[i] = (uint8_t)random_next(&seed);
        for (size_t i = 0; i < elements / KV_Q8_ELEMENTS; i++) {
            uint16_t scale = dtype_f32_to_f16(0.01f * (1 + random_float(&seed) / 2));
            memcpy(page + elements + i * sizeof scale, &scale, sizeof scale);
        }
    }
    return *memory;
}

static void check_attend(const struct cpu_kernels *k, const struct attend_case *c)
{
    enum { PAGES = 10 };
    static const uint32_t pages[PAGES] = {2, 0, 3, 1, 9, 5, 8, 6, 7, 4};
    size_t heads = (size_t)c->group * c->tokens, n = heads * case_values(c);
    assert_true(c->prefix + c->tokens <= PAGES * KV_PAGE_TOKENS);
    uint8_t *memory, *pool = case_pool(c, PAGES, &memory);
    float *q = random_floats(heads * (size_t)c->head_dim, 8), *got = random_floats(n, 0),
          *want = random_floats(n, 0), *alone = random_floats(n, 0);
    attend_in_tiles(k->attend, c, q, pool, pages, ATTEND_MAX_ROWS, got);
    attend_in_tiles(attend_plain, c, q, pool, pages, ATTEND_MAX_ROWS, want);
    bool bf16 = k->panel_dot && c->format != KV_F32 && c->prefix + c->tokens > 512;
    float near = c->format == KV_Q8_0 ? 1e-3f : 2e-6f;
    close_to(got, want, n, bf16 ? 1e-2f : near, k->name);
    attend_in_tiles(k->attend, c, q, pool, pages, 1, alone);
    if (c->format == KV_Q8_0) /* few rows are multiplied as integers */
        close_to(got, alone, n, bf16 ? 1e-2f : 1e-3f, k->name);
    else if (!bf16)
        assert_memory_equal(got, alone, n * sizeof *got);
    free(memory);
    free(q);
    free(got);
    free(want);
    free(alone);
}

TEST(attention_matches_and_does_not_depend_on_the_tile)
{
    static const struct attend_case cases[] = {
        {1, 64, 0, 1, KV_F16, 0, 0},
        {8, 64, 0, 1, KV_F32, 0, 0},
        {8, 64, 63, 1, KV_F16, 0, 0},
        {8, 64, 64, 1, KV_F16, 0, 0},
        {4, 64, 127, 5, KV_F32, 0, 0},
        {1, 128, 0, 70, KV_F32, 0, 0},
        {2, 128, 30, 70, KV_F32, 0, 0},
        {3, 80, 100, 33, KV_F16, 0, 0},
        {1, 6, 5, 60, KV_F32, 0, 0},
        {7, 10, 190, 66, KV_F16, 0, 0},
        {2, 7, 60, 9, KV_F16, 0, 0},
        {1, 64, 500, 30, KV_F16, 0, 0},
        {7, 10, 560, 63, KV_F16, 0, 0},
        {2, 7, 530, 9, KV_F16, 0, 0},
        {2, 128, 570, 70, KV_F32, 0, 0},
        {3, 80, 512, 65, KV_F16, 0, 0},
        {8, 64, 70, 1, KV_F32, 1, 0},
        {2, 64, 0, 200, KV_F32, 33, 0},
        {4, 64, 100, 90, KV_F16, 64, 0},
        {1, 80, 130, 70, KV_F32, 65, 0},
        {2, 64, 540, 60, KV_F16, 100, 0},
        {1, 64, 500, 90, KV_F16, 513, 0},
        /* values in keys */
        {16, 72, 63, 1, KV_F16, 0, 64},
        {4, 40, 0, 130, KV_F32, 0, 32},
        {2, 24, 100, 9, KV_F16, 0, 24},
        {3, 7, 60, 9, KV_F32, 0, 5},
        {16, 576, 600, 3, KV_F16, 0, 512},
        {7, 90, 560, 63, KV_F16, 0, 70},
        {2, 576, 30, 40, KV_F32, 0, 512},
        {1, 32, 0, 1, KV_Q8_0, 0, 0},
        {8, 64, 127, 5, KV_Q8_0, 0, 0},
        {7, 96, 190, 66, KV_Q8_0, 33, 0},
        {3, 128, 560, 70, KV_Q8_0, 0, 0},
        {4, 64, 540, 60, KV_Q8_0, 100, 0},
        {16, 576, 540, 9, KV_Q8_0, 0, 512},
    };
    for (int l = 0; l < LEVELS; l++) {
        const struct cpu_kernels *k = level(levels[l]);
        size_t first = (size_t)(l % test_stride()); /* every level others */
        for (size_t i = first; k && i < sizeof cases / sizeof *cases; i += (size_t)test_stride())
            check_attend(k, &cases[i]);
    }
}

/* A window that is larger than all there is changes no bit; pages behind one are not looked at. */
TEST(attention_within_a_window_sees_no_more_and_no_less)
{
    struct attend_case all = {2, 16, 150, 40, KV_F32, 0, 0},
                       wide = {2, 16, 150, 40, KV_F32, 190, 0},
                       narrow = {2, 16, 150, 40, KV_F32, 20, 0};
    uint32_t pages[3] = {1, 0, 2};
    size_t n = (size_t)all.group * (size_t)all.head_dim * all.tokens,
           floats = 2 * (size_t)all.head_dim * KV_PAGE_TOKENS;
    float *pool = random_floats(3 * floats, 3), *q = random_floats(n, 8),
          *got = random_floats(n, 0), *want = random_floats(n, 0);
    for (int l = 0; l < LEVELS; l++) {
        const struct cpu_kernels *k = level(levels[l]);
        if (!k)
            continue;
        const uint8_t *bytes = (const uint8_t *)pool;
        attend_in_tiles(k->attend, &all, q, bytes, pages, ATTEND_MAX_ROWS, want);
        attend_in_tiles(k->attend, &wide, q, bytes, pages, ATTEND_MAX_ROWS, got);
        assert_memory_equal(got, want, n * sizeof *got);
        attend_in_tiles(k->attend, &narrow, q, bytes, pages, ATTEND_MAX_ROWS, want);
        assert_memory_not_equal(got, want, n * sizeof *got);
        uint32_t given_back[3] = {KV_NO_PAGE, KV_NO_PAGE, pages[2]};
        narrow.prefix = 147, narrow.tokens = 40;
        attend_in_tiles(k->attend, &narrow, q, bytes, pages, ATTEND_MAX_ROWS, want);
        attend_in_tiles(k->attend, &narrow, q, bytes, given_back, ATTEND_MAX_ROWS, got);
        assert_memory_equal(got, want, n * sizeof *got);
        narrow.prefix = 150;
    }
    free(pool);
    free(q);
    free(got);
    free(want);
}

/* What is left in a page by an earlier sequence, not-a-number included, never shows. */
TEST(stale_entries_of_a_page_do_not_matter)
{
    struct attend_case c = {.group = 2, .head_dim = 16, .prefix = 0, .tokens = 3, .format = KV_F32};
    static const uint32_t pages[1] = {0};
    size_t n = (size_t)c.group * (size_t)c.head_dim * c.tokens,
           half = (size_t)c.head_dim * KV_PAGE_TOKENS;
    float *pool = random_floats(2 * half, 3), *q = random_floats(n, 8), *got = random_floats(n, 0),
          *want = random_floats(n, 0);
    for (int l = 0; l < LEVELS; l++) {
        const struct cpu_kernels *k = level(levels[l]);
        if (!k)
            continue;
        attend_in_tiles(k->attend, &c, q, (const uint8_t *)pool, pages, ATTEND_MAX_ROWS, want);
        for (size_t d = 0; d < (size_t)c.head_dim; d++)
            for (size_t j = 3; j < KV_PAGE_TOKENS; j++)
                pool[d * KV_PAGE_TOKENS + j] = pool[half + j * (size_t)c.head_dim + d] = NAN;
        attend_in_tiles(k->attend, &c, q, (const uint8_t *)pool, pages, ATTEND_MAX_ROWS, got);
        assert_memory_equal(got, want, n * sizeof *got);
        float *fresh = random_floats(2 * half, 3);
        memcpy(pool, fresh, 2 * half * sizeof *pool);
        free(fresh);
    }
    free(pool);
    free(q);
    free(got);
    free(want);
}

TEST(rotation_follows_both_styles)
{
    const float factors[] = {1, 2};
    const uint32_t positions[] = {0, 3};
    for (int style = 0; style < 2; style++) {
        struct rope_config c = {.style = (enum rope_style)style,
                                .dims = 4,
                                .base = 100,
                                .scale = 2,
                                .factors = factors};
        float angles[2 * 4], x[2 * 6] = {1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6};
        loop_rope_angles(&c, positions, 2, angles);
        for (int row = 0; row < 2; row++)
            loop_rope(&c, angles + row * 4, 1, 6, x + row * 6);
        for (int i = 0; i < 6; i++)
            assert_true(x[i] == (float)(i + 1)); /* position 0 stays */
        for (int pair = 0; pair < 2; pair++) {
            double angle = 3 / 2.0 * pow(100, -pair / 2.0) / (double)factors[pair];
            int a = style == ROPE_PAIRS ? 2 * pair : pair,
                b = style == ROPE_PAIRS ? a + 1 : pair + 2;
            assert_true(fabs(x[6 + a] - ((a + 1) * cos(angle) - (b + 1) * sin(angle))) < 1e-6);
            assert_true(fabs(x[6 + b] - ((a + 1) * sin(angle) + (b + 1) * cos(angle))) < 1e-6);
        }
        assert_true(x[10] == 5 && x[11] == 6); /* beyond the rotating dimensions */
    }
}

/* Of every number of pairs, some elements behind them, in place and not. */
static void check_rotation(const struct cpu_kernels *k, enum rope_style style, size_t pairs)
{
    enum { HEADS = 3, REST = 3 };
    size_t head_dim = 2 * pairs + pairs % 2 * REST, n = HEADS * head_dim;
    struct rope_config c = {.style = style, .dims = (int)(2 * pairs), .base = 100, .scale = 1};
    const uint32_t position = 7;
    float *angles = random_floats(2 * pairs, 1), *x = random_floats(n, pairs),
          *want = random_floats(n, pairs), *out = random_floats(n + 1, 3);
    loop_rope_angles(&c, &position, 1, angles);
    loop_rope(&c, angles, HEADS, (int)head_dim, want);
    for (int in_place = 0; in_place < 2; in_place++) {
        memcpy(out, x, n * sizeof *out); /* with what does not rotate */
        out[n] = 42;
        k->rope[style](&(struct rope_task){.in = in_place ? out : x,
                                           .angles = angles,
                                           .out = out,
                                           .heads = HEADS,
                                           .head_dim = head_dim,
                                           .pairs = pairs});
        assert_memory_equal(out, want, n * sizeof *out);
        assert_true(out[n] == 42);
    }
    free(angles), free(x), free(want), free(out);
}

TEST(rotation_has_the_bits_of_the_plain_loops)
{
    for (int l = 0; l < LEVELS; l++) {
        const struct cpu_kernels *k = level(levels[l]);
        for (size_t pairs = 1; k && pairs <= 70; pairs++) {
            check_rotation(k, ROPE_HALVES, pairs);
            check_rotation(k, ROPE_PAIRS, pairs);
        }
    }
}

/* A block of zeros, one with a single large value, ordinary ones, and some too small for f16. */
TEST(blocks_of_8_bits_are_those_of_the_plain_loops)
{
    enum { N = 8 * KV_Q8_ELEMENTS };
    float *values = random_floats(N, 5);
    uint8_t want[N / KV_Q8_ELEMENTS * KV_Q8_BYTES], got[sizeof want];
    memset(values, 0, KV_Q8_ELEMENTS * sizeof *values);
    values[KV_Q8_ELEMENTS + 7] = -3e4f;
    for (int i = 2 * KV_Q8_ELEMENTS; i < 3 * KV_Q8_ELEMENTS; i++)
        values[i] *= 1e-5f;
    for (int i = 3 * KV_Q8_ELEMENTS; i < 4 * KV_Q8_ELEMENTS; i++)
        values[i] *= 1e-9f;
    loop_q8_0(values, N, want);
    for (int l = 0; l < LEVELS; l++) {
        const struct cpu_kernels *k = level(levels[l]);
        if (!k)
            continue;
        k->f32_to_q8_0(values, N, got);
        assert_memory_equal(got, want, sizeof want);
    }
    free(values);
}

TEST(unknown_kernels_are_refused)
{
    const struct cpu_kernels *k;
    struct err e = {0};
    assert_int_equal(kernels_choose("sse9", &k, &e), HP_EINVAL);
    assert_non_null(strstr(e.text, "sse9"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unpacking_is_exact_in_every_format),
        cmocka_unit_test(halves_round_to_nearest_even),
        cmocka_unit_test(rows_are_narrowed_to_nearest_even_and_saturate),
        cmocka_unit_test(rows_cross_in_bytes_with_the_largest_of_each_block_kept),
        cmocka_unit_test(inner_products_match_and_do_not_depend_on_the_batch),
        cmocka_unit_test(rows_side_by_side_give_the_bits_of_rows_each_for_itself),
        cmocka_unit_test(norms_and_activations_match_at_any_width),
        cmocka_unit_test(activations_of_extreme_values_stay_finite),
        cmocka_unit_test(attention_matches_and_does_not_depend_on_the_tile),
        cmocka_unit_test(attention_within_a_window_sees_no_more_and_no_less),
        cmocka_unit_test(stale_entries_of_a_page_do_not_matter),
        cmocka_unit_test(blocks_of_8_bits_are_those_of_the_plain_loops),
        cmocka_unit_test(rotation_follows_both_styles),
        cmocka_unit_test(rotation_has_the_bits_of_the_plain_loops),
        cmocka_unit_test(unknown_kernels_are_refused),
    };
    return cmocka_run_group_tests_name("kernels", tests, NULL, NULL);
}
