/* Integer products with quantised weights against the plain loops, within the bound that blocks.h
 * states, on random inputs and on hostile ones. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "agent/backend/cpu/block_lanes.h"
#include "agent/backend/cpu/kernels.h"
#include "agent/backend/plain/loops.h"
#include "common/env.h"
#include "tests/test.h"
#include "tests/unit/agent/backend/cpu/amx_emulator.h"

static const char *const levels[] = {"avx2", "avx_vnni", "avx512", "amx"};
enum { LEVELS = sizeof levels / sizeof *levels, INPUTS_MOST = 1024 };

static const struct block_kernels *level(const char *name)
{
    const struct cpu_kernels *k = NULL;
    struct err e = {0};
    bool tiles = strcmp(name, "amx") == 0;
    if (kernels_choose(tiles ? "avx512_bf16" : name, &k, &e) == 0) {
        if (tiles)
            amx_emulate();
        return tiles ? &blocks_amx : k->blocks;
    }
    assert_int_equal(e.code, HP_EDEVICE);
    print_message("# not on this CPU: %s\n", e.text);
    return NULL;
}

static float random_float(uint64_t *state)
{
    return (float)(random_unit(state) * 2 - 1);
}

enum inputs { RANDOM, EQUAL, OUTLIERS, DENORMAL, ZERO, LARGE, MIXED_SIGNS, INPUT_KINDS };

static void inputs_fill(enum inputs kind, float *x, size_t n, uint64_t *seed)
{
    for (size_t i = 0; i < n; i++)
        switch (kind) {
        case EQUAL: x[i] = 0.37f; break;
        case OUTLIERS: x[i] = random_float(seed) * (i % 97 == 5 ? 1000 : 1); break;
        case DENORMAL: x[i] = random_float(seed) * 0x1p-127f; break;
        case ZERO: x[i] = i % 2 ? 0.0f : -0.0f; break;
        case LARGE: x[i] = random_float(seed) * 1e30f; break;
        case MIXED_SIGNS: x[i] = i % 2 ? 5 : -5; break;
        default: x[i] = random_float(seed);
        }
}

enum weights { WEIGHTS_RANDOM, WEIGHTS_LOW, WEIGHTS_HIGH, WEIGHT_KINDS };

/* Blocks of any bytes, of all zeros or of all ones, with scales that are sound. */
static void blocks_fill(enum weights kind, enum dtype t, uint8_t *out, size_t n, uint64_t *seed)
{
    const struct dtype_info *info = dtype_info(t);
    for (size_t b = 0; b < n; b++, out += info->block_bytes) {
        for (size_t i = 0; i < info->block_bytes; i++)
            out[i] = kind == WEIGHTS_RANDOM ? (uint8_t)(random_unit(seed) * 256)
                                            : (kind == WEIGHTS_LOW ? 0 : 0xff);
        if (t == DTYPE_Q8_0 && kind == WEIGHTS_LOW)
            memset(out, 0x80, info->block_bytes);
        for (int i = 0; i < info->n_scales; i++) {
            uint16_t half = dtype_f32_to_f16(0.01f * random_float(seed));
            memcpy(out + info->scales_at + 2 * i, &half, 2);
        }
        if (t == DTYPE_MXFP4)
            out[0] = (uint8_t)(118 + b % 5);
    }
}

/* Beyond what inputs stand out, and some more for float32's rounding of it. */
static double limit_of(const float *x, size_t n, int times)
{
    double squares = 0;
    for (size_t i = 0; i < n; i++)
        squares += (double)x[i] * (double)x[i];
    bool apart = squares / (double)n > 1.1e-30 && squares / (double)n < 1e37;
    return apart ? times * sqrt(squares / (double)n) * 1.0001 : INFINITY;
}

/* What blocks.h allows: half a step of every input, which is that of the largest in its run that
 * does not stand out (beyond so many root mean squares), or of what steps of those that do leave;
 * and float32's rounding of so many sums. */
static double bound_of(const float *x, const float *w, size_t n, int times)
{
    double bound = 0, magnitudes = 0, limit = limit_of(x, n, times);
    for (size_t run = 0; run < n; run += BLOCK_RUN) {
        double greatest = 0, beyond = 0, weights = 0;
        for (size_t i = run; i < run + BLOCK_RUN; i++) {
            double size = fabs((double)x[i]);
            if (size <= limit)
                greatest = fmax(greatest, size);
            else
                beyond = fmax(beyond, size);
            weights += fabs((double)w[i]);
        }
        greatest = fmax(greatest, times == BLOCK_FEW_APART ? beyond / 254 : 0);
        bound += weights * (greatest / 127 / 2 * 1.0001 + (greatest < 0x1p-119 ? greatest : 0));
        /* of bytes that are 128 too great, and of least values */
        magnitudes += fmax(greatest, beyond) * (weights + BLOCK_RUN * 128 * 0.7);
    }
    return bound + magnitudes * 0x1p-20;
}

struct case_of {
    const struct block_kernels *kernels;
    enum dtype t;
    size_t n;
    int rows;
    enum inputs inputs;
    enum weights weights;
    int times; /* root mean squares beyond which inputs stand out */
};

/* Outputs [0, cols) of a product against double precision; `turn` + 1 of them were added up. */
static void check_outputs(const struct case_of *c, const float x[][INPUTS_MOST],
                          const uint8_t *blocks, const float *got, size_t cols, int turn)
{
    const struct dtype_info *info = dtype_info(c->t);
    float w[INPUTS_MOST];
    for (size_t o = 0; o < cols; o++) {
        info->to_f32(blocks + o * (c->n / info->block_elements * info->block_bytes), c->n, w);
        for (int r = 0; r < c->rows; r++) {
            double want = 0, is = (double)got[(size_t)r * cols + o] / (turn + 1);
            for (size_t i = 0; i < c->n; i++)
                want += (double)x[r][i] * (double)w[i];
            double bound = bound_of(x[r], w, c->n, c->times);
            if (!(fabs(is - want) <= bound))
                fail_msg("%s, inputs %d, weights %d, %zu by %d, output %zu of %zu: %g where %g is "
                         "right, off by %g, bound %g",
                         info->name, (int)c->inputs, (int)c->weights, c->n, c->rows, o, cols, is,
                         want, fabs(is - want), bound);
        }
    }
}

/* Rows of inputs, quantised together, in memory that is to be freed. */
static struct block_rows rows_quantised(const struct block_kernels *k, const float *x, int rows,
                                        size_t n, uint8_t **memory)
{
    *memory = malloc(block_rows_bytes((size_t)rows, n));
    assert_non_null(*memory);
    struct block_rows out = block_rows_at(*memory, rows, n);
    k->quantise(x, INPUTS_MOST, n, &out);
    return out;
}

/* Rows side by side; twice, the second time adding to what is there. */
static void check_rows(const struct case_of *c, uint64_t seed)
{
    const struct dtype_info *info = dtype_info(c->t);
    const struct block_kernels *k = c->kernels;
    size_t n_blocks = c->n / info->block_elements, row_bytes = n_blocks * info->block_bytes,
           lanes = k->lanes;
    static float x[BLOCK_MAX_ROWS][INPUTS_MOST];
    float got[BLOCK_MAX_ROWS * BLOCK_LANES_MAX];
    uint8_t *blocks = malloc(2 * (row_bytes * lanes + 1)), *side, *memory;
    assert_non_null(blocks);
    side = blocks + row_bytes * lanes + 2;
    blocks_fill(c->weights, c->t, blocks + 1, n_blocks * lanes, &seed);
    block_lanes_put(c->t, lanes, blocks + 1, lanes, row_bytes, n_blocks, side);
    for (int r = 0; r < c->rows; r++)
        inputs_fill(c->inputs, x[r], c->n, &seed);
    struct block_rows quantised = rows_quantised(k, x[0], c->rows, c->n, &memory);
    for (int turn = 0; turn < 2; turn++) {
        k->dot[c->t](&quantised, side, row_bytes, lanes, c->n, turn == 1, got, lanes);
        check_outputs(c, (const float(*)[INPUTS_MOST])x, blocks + 1, got, lanes, turn);
    }
    free(memory);
    free(blocks);
}

enum { ROWS_MOST = BLOCK_JOIN_MOST * BLOCK_TILE };

static struct block_tile tile_alloc(const struct case_of *c, int rows)
{
    struct block_tile tile = {
        .runs = malloc(c->n / BLOCK_RUN * sizeof *tile.runs),
        .apart =
            malloc((block_most_apart_of(BLOCK_TILE, c->n, BLOCK_APART) + 1) * sizeof *tile.apart),
        .n_runs = c->n / BLOCK_RUN,
        .rows = rows < BLOCK_TILE ? rows : BLOCK_TILE};
    assert_true(tile.runs && tile.apart);
    return tile;
}

/* Of a panel or of groups as they lie; all tiles at once, where that is done. */
static void tiles_multiply(const struct case_of *c, const struct block_tile *tiles, int n,
                           const uint8_t *groups, size_t group_step, const uint8_t *panel,
                           bool accumulate, float *out)
{
    const struct block_kernels *k = c->kernels;
    size_t stride = k->panel_outputs;
    if (!k->joined_dot[c->t]) {
        for (int i = 0; i < n; i++)
            k->panel_dot[c->t](&tiles[i], panel, accumulate, out + (size_t)i * BLOCK_TILE * stride,
                               stride);
        return;
    }
    struct block_joined x = {
        .tiles = tiles,
        .n = n,
        .runs = aligned_alloc(BLOCK_LINE, tiles->n_runs * k->joined_bytes),
        .apart = malloc((block_joined_most_apart(c->n, c->n) + 1) * sizeof *x.apart)};
    assert_true(x.runs && x.apart);
    k->join(&x);
    if (k->joined_lie[c->t])
        k->joined_dot[c->t](&x, groups, group_step, accumulate, out, stride);
    else
        k->joined_dot[c->t](&x, panel, tiles->n_runs * k->panel_bytes(c->t), accumulate, out,
                            stride);
    free(x.runs);
    free(x.apart);
}

/* Outputs of a panel for up to ROWS_MOST rows, from blocks that lie as in the file. */
static void panel_products(const struct case_of *c, const float *x, const uint8_t *blocks,
                           bool accumulate, float *out)
{
    const struct dtype_info *info = dtype_info(c->t);
    const struct block_kernels *k = c->kernels;
    size_t n_blocks = c->n / info->block_elements, row_bytes = n_blocks * info->block_bytes,
           group_bytes = c->n / BLOCK_RUN * k->panel_bytes(c->t),
           n_groups = k->panel_outputs / k->lanes;
    struct block_tile tiles[BLOCK_JOIN_MOST];
    uint8_t *groups = malloc(n_groups * row_bytes * k->lanes),
            *panel = malloc(n_groups * group_bytes);
    int n = 0;
    assert_true(groups && panel);
    for (size_t g = 0; g < n_groups; g++) {
        uint8_t *group = groups + g * k->lanes * row_bytes;
        block_lanes_put(c->t, k->lanes, blocks + g * k->lanes * row_bytes, k->lanes, row_bytes,
                        n_blocks, group);
        k->panel_make[c->t](group, c->n, panel + g * group_bytes);
    }
    for (int r = 0; r < c->rows; r += BLOCK_TILE, n++) {
        tiles[n] = tile_alloc(c, c->rows - r);
        k->tile_make(c->t, x + r * INPUTS_MOST, INPUTS_MOST, &tiles[n]);
        assert_true(tiles[n].n_apart <= block_most_apart_of(BLOCK_TILE, c->n, BLOCK_APART));
    }
    tiles_multiply(c, tiles, n, groups, k->lanes * row_bytes, panel, accumulate, out);
    for (int i = 0; i < n; i++) {
        free(tiles[i].runs);
        free(tiles[i].apart);
    }
    free(groups);
    free(panel);
}

static void check_panel(const struct case_of *c, uint64_t seed)
{
    enum { OUTPUTS_MOST = 2 * BLOCK_LANES_MAX };
    const struct dtype_info *info = dtype_info(c->t);
    size_t cols = c->kernels->panel_outputs, n_blocks = c->n / info->block_elements;
    static float x[BLOCK_TILE][INPUTS_MOST];
    float got[(BLOCK_TILE + 1) * OUTPUTS_MOST];
    uint8_t *blocks = malloc(n_blocks * info->block_bytes * cols);
    assert_non_null(blocks);
    assert_in_range(cols, c->kernels->lanes, OUTPUTS_MOST);
    blocks_fill(c->weights, c->t, blocks, n_blocks * cols, &seed);
    for (int r = 0; r < c->rows; r++)
        inputs_fill(c->inputs, x[r], c->n, &seed);
    for (int turn = 0; turn < 2; turn++) {
        got[(size_t)c->rows * cols] = 42;
        panel_products(c, x[0], blocks, turn == 1, got);
        check_outputs(c, (const float(*)[INPUTS_MOST])x, blocks, got, cols, turn);
        assert_true(got[(size_t)c->rows * cols] == 42); /* no row beyond those asked for */
    }
    free(blocks);
}

TEST(panels_stay_within_the_bound_for_every_number_of_rows)
{
    static const size_t lengths[] = {32, 96, 256, 512, 1024};
    for (int l = 0; l < LEVELS; l++) {
        const struct block_kernels *k = level(levels[l]);
        for (int t = 0; k && t < DTYPE_WEIGHT_COUNT; t++)
            for (size_t i = 0; k->dot[t] && i < sizeof lengths / sizeof *lengths; i++)
                for (int kind = 0; kind < INPUT_KINDS * WEIGHT_KINDS; kind++)
                    if (lengths[i] % dtype_info((enum dtype)t)->block_elements == 0)
                        check_panel(&(struct case_of){k, (enum dtype)t, lengths[i],
                                                      1 + (kind + (int)i) % BLOCK_TILE,
                                                      (enum inputs)(kind % INPUT_KINDS),
                                                      (enum weights)(kind / INPUT_KINDS),
                                                      BLOCK_APART},
                                    lengths[i]);
    }
}

/* What products of a tile are made of: panels that are made before, panels that the tile makes, or
 * weights as they lie. */
enum by { BY_PANEL, BY_BEGIN, BY_DIRECT, BYS };

static bool by_is_there(const struct block_kernels *k, enum dtype t, enum by by)
{
    return by == BY_PANEL ||
           (by == BY_BEGIN ? k->panel_begin[t] != NULL : k->direct_dot[t] != NULL);
}

static void tile_products(const struct case_of *c, const struct block_tile *tile,
                          const uint8_t *groups, enum by by, uint8_t *panel, float *out)
{
    const struct dtype_info *info = dtype_info(c->t);
    const struct block_kernels *k = c->kernels;
    size_t group_step = c->n / info->block_elements * info->block_bytes * k->lanes,
           side = c->n / BLOCK_RUN * k->panel_bytes(c->t);
    if (by == BY_BEGIN) {
        k->panel_begin[c->t](tile, groups, group_step, panel, true, out, k->panel_outputs);
        return;
    }
    if (by == BY_DIRECT) {
        size_t scales = c->n / BLOCK_RUN * k->direct_bytes;
        for (size_t g = 0; k->direct_make[c->t] && g < k->panel_outputs / k->lanes; g++)
            k->direct_make[c->t](groups + g * group_step, c->n, panel + g * scales);
        k->direct_dot[c->t](tile, groups, group_step, panel, true, out, k->panel_outputs);
        return;
    }
    for (size_t g = 0; g < k->panel_outputs / k->lanes; g++)
        k->panel_make[c->t](groups + g * group_step, c->n, panel + g * side);
    k->panel_dot[c->t](tile, panel, true, out, k->panel_outputs);
}

/* c->rows rows, in all ways that there are. */
static void check_bits(const struct case_of *c, uint64_t seed)
{
    enum { OUTPUTS_MOST = 2 * BLOCK_LANES_MAX };
    const struct dtype_info *info = dtype_info(c->t);
    const struct block_kernels *k = c->kernels;
    size_t row_bytes = c->n / info->block_elements * info->block_bytes,
           n_blocks = c->n / info->block_elements * k->panel_outputs, runs = c->n / BLOCK_RUN,
           panel_bytes = k->panel_outputs / k->lanes * runs * k->panel_bytes(c->t);
    static float x[BLOCK_TILE][INPUTS_MOST];
    float out[BYS][BLOCK_TILE * OUTPUTS_MOST];
    struct block_tile tile = tile_alloc(c, c->rows);
    uint8_t *blocks = malloc(n_blocks * info->block_bytes),
            *groups = malloc(n_blocks * info->block_bytes), *panels = calloc(2, panel_bytes);
    assert_true(blocks && groups && panels);
    blocks_fill(WEIGHTS_RANDOM, c->t, blocks, n_blocks, &seed);
    for (size_t g = 0; g < n_blocks * info->block_bytes; g += k->lanes * row_bytes)
        block_lanes_put(c->t, k->lanes, blocks + g, k->lanes, row_bytes,
                        c->n / info->block_elements, groups + g);
    for (int r = 0; r < c->rows; r++)
        inputs_fill(c->inputs, x[r], c->n, &seed);
    k->tile_make(c->t, x[0], INPUTS_MOST, &tile);
    for (enum by by = BY_PANEL; by < BYS; by++) {
        for (size_t i = 0; i < BLOCK_TILE * k->panel_outputs; i++)
            out[by][i] = (float)i;
        if (!by_is_there(k, c->t, by) || (by == BY_BEGIN && c->rows < BLOCK_TILE))
            continue;
        tile_products(c, &tile, groups, by, panels + (by == BY_BEGIN ? panel_bytes : 0), out[by]);
        assert_memory_equal(out[BY_PANEL], out[by], BLOCK_TILE * k->panel_outputs * sizeof **out);
        if (by == BY_BEGIN)
            assert_memory_equal(panels, panels + panel_bytes, panel_bytes);
    }
    free(tile.runs);
    free(tile.apart);
    free(blocks);
    free(groups);
    free(panels);
}

static void check_bits_of_lengths(const struct block_kernels *k, enum dtype t, int rows)
{
    static const size_t lengths[] = {32, 96, 256, 1024};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        for (int kind = 0; kind < INPUT_KINDS; kind++)
            if (lengths[i] % dtype_info(t)->block_elements == 0)
                check_bits(&(struct case_of){.kernels = k,
                                             .t = t,
                                             .n = lengths[i],
                                             .rows = rows,
                                             .inputs = (enum inputs)kind},
                           lengths[i]);
}

TEST(a_panel_that_its_first_tile_makes_gives_the_same_bits)
{
    for (int l = 0; l < LEVELS; l++) {
        const struct block_kernels *k = level(levels[l]);
        for (int t = 0; k && t < DTYPE_WEIGHT_COUNT; t++)
            if (k->panel_begin[t])
                check_bits_of_lengths(k, (enum dtype)t, BLOCK_TILE);
    }
}

TEST(weights_as_they_lie_give_the_bits_of_panels_for_every_number_of_rows)
{
    for (int l = 0; l < LEVELS; l++) {
        const struct block_kernels *k = level(levels[l]);
        for (int t = 0; k && t < DTYPE_WEIGHT_COUNT; t++)
            for (int rows = 1; k->direct_dot[t] && rows <= BLOCK_TILE; rows++)
                check_bits_of_lengths(k, (enum dtype)t, rows);
    }
}

/* One that was made for weights of a format becomes what is made for those of another. */
static void check_turn(const struct block_kernels *k, enum dtype from, enum dtype to,
                       enum inputs inputs, int rows)
{
    enum { N = 256, RUNS_MOST = N / BLOCK_RUN };
    static float x[BLOCK_TILE][INPUTS_MOST];
    static struct block_tile_run runs[2][RUNS_MOST];
    static struct block_apart apart[2][N];
    struct block_tile tiles[2];
    uint64_t seed = 5;
    for (int r = 0; r < rows; r++)
        inputs_fill(inputs, x[r], N, &seed);
    for (int i = 0; i < 2; i++) {
        tiles[i] = (struct block_tile){
            .runs = runs[i], .apart = apart[i], .n_runs = RUNS_MOST, .rows = rows};
        k->tile_make(i ? from : to, x[0], INPUTS_MOST, &tiles[i]);
    }
    k->tile_turn(to, &tiles[1]);
    assert_memory_equal(runs[0], runs[1], sizeof runs[0]);
    assert_int_equal(tiles[0].n_apart, tiles[1].n_apart);
    assert_memory_equal(apart[0], apart[1], tiles[0].n_apart * sizeof **apart);
}

TEST(tiles_turn_from_any_format_to_any_other)
{
    for (int l = 0; l < LEVELS; l++) {
        const struct block_kernels *k = level(levels[l]);
        for (int i = 0; k && i < DTYPE_WEIGHT_COUNT * DTYPE_WEIGHT_COUNT; i++) {
            enum dtype from = (enum dtype)(i / DTYPE_WEIGHT_COUNT),
                       to = (enum dtype)(i % DTYPE_WEIGHT_COUNT);
            for (int kind = 0; k->dot[from] && k->dot[to] && kind < INPUT_KINDS; kind++)
                check_turn(k, from, to, (enum inputs)kind, 1 + (i + kind) % BLOCK_TILE);
        }
    }
}

/* So that which of the two computes may be left to a stopwatch. */
TEST(tiles_of_amx_give_the_bits_of_avx512_for_every_number_of_rows)
{
    enum { OUTPUTS_MOST = 2 * BLOCK_LANES_MAX, N = 512, KINDS = INPUT_KINDS * WEIGHT_KINDS };
    static float x[ROWS_MOST][INPUTS_MOST];
    static float out[2][ROWS_MOST * OUTPUTS_MOST];
    const struct block_kernels *k[2] = {level("avx512"), level("amx")};
    uint64_t seed = 3;
    size_t before = amx.dots;
    for (int t = 0; k[0] && k[1] && t < DTYPE_WEIGHT_COUNT; t++)
        for (int turn = 0; k[0]->dot[t] && turn < ROWS_MOST + KINDS; turn++) {
            uint8_t blocks[OUTPUTS_MOST * N * 2];
            int kind = turn % KINDS;
            struct case_of c = {.t = (enum dtype)t, .n = N, .rows = 1 + turn % ROWS_MOST};
            blocks_fill((enum weights)(kind / INPUT_KINDS), c.t, blocks,
                        k[0]->panel_outputs * N / dtype_info(c.t)->block_elements, &seed);
            for (int r = 0; r < c.rows; r++)
                inputs_fill((enum inputs)(kind % INPUT_KINDS), x[r], N, &seed);
            for (int i = 0; i < 2; i++) {
                for (size_t at = 0; at < ROWS_MOST * OUTPUTS_MOST; at++)
                    out[i][at] = (float)at;
                c.kernels = k[i];
                panel_products(&c, x[0], blocks, turn % 2, out[i]);
            }
            assert_memory_equal(out[0], out[1], sizeof *out);
        }
    if (k[0] && k[1] && !amx_is_usable())
        assert_true(amx.dots > before);
}

/* A CPU with VNNI is faster with it than without, by the measurement that AMX is chosen by. */
TEST(what_is_measured_says_which_kernels_are_faster)
{
    const struct block_kernels *fast = level("avx512"), *slow = level("avx2");
    if (!fast || !slow)
        return;
    double gain = amx_blocks_gain(fast, slow), loss = amx_blocks_gain(slow, fast);
    print_message("# VNNI is %.2f times as fast as AVX2\n", gain);
    assert_true(gain > AMX_LEAST_GAIN && loss < 1 / AMX_LEAST_GAIN);
}

/* A row's result depends on its own inputs alone: not on how many rows a tile has, nor on what is
 * no number in others. */
TEST(rows_of_a_tile_do_not_depend_on_each_other)
{
    enum { N = 256, OUTPUTS_MOST = 2 * BLOCK_LANES_MAX };
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    static float x[BLOCK_TILE][INPUTS_MOST];
    for (int l = 0; l < LEVELS; l++) {
        const struct block_kernels *k = level(levels[l]);
        for (int t = 0; k && t < DTYPE_WEIGHT_COUNT; t++) {
            if (!k->dot[t])
                continue;
            struct case_of c = {.kernels = k, .t = (enum dtype)t, .n = N};
            uint8_t blocks[OUTPUTS_MOST * N * 2];
            float together[BLOCK_TILE * OUTPUTS_MOST], alone[OUTPUTS_MOST];
            size_t cols = k->panel_outputs;
            uint64_t seed = 7;
            blocks_fill(WEIGHTS_RANDOM, c.t, blocks, cols * N / dtype_info(c.t)->block_elements,
                        &seed);
            for (int r = 0; r < BLOCK_TILE; r++)
                inputs_fill(RANDOM, x[r], N, &seed);
            x[2][100] = bad[t % 3];
            for (int rows = 1; rows <= BLOCK_TILE; rows++) {
                c.rows = rows;
                panel_products(&c, x[0], blocks, false, together);
                c.rows = 1;
                for (int r = 0; r < rows; r++) {
                    panel_products(&c, x[r], blocks, false, alone);
                    if (r != 2)
                        assert_memory_equal(together + (size_t)r * cols, alone,
                                            cols * sizeof *alone);
                    for (size_t i = 0; i < cols; i++)
                        assert_int_equal(isnan(together[(size_t)r * cols + i]) != 0, r == 2);
                }
            }
        }
    }
}

TEST(integer_products_stay_within_their_bound)
{
    static const size_t lengths[] = {32, 64, 96, 256, 512, 544, 1024};
    for (int l = 0; l < LEVELS; l++) {
        const struct block_kernels *k = level(levels[l]);
        for (int t = 0; k && t < DTYPE_WEIGHT_COUNT; t++)
            for (size_t i = 0; k->dot[t] && i < sizeof lengths / sizeof *lengths; i++)
                for (int kind = 0; kind < INPUT_KINDS * WEIGHT_KINDS; kind++)
                    if (lengths[i] % dtype_info((enum dtype)t)->block_elements == 0)
                        check_rows(&(struct case_of){k, (enum dtype)t, lengths[i],
                                                     1 + kind % BLOCK_MAX_ROWS,
                                                     (enum inputs)(kind % INPUT_KINDS),
                                                     (enum weights)(kind / INPUT_KINDS),
                                                     BLOCK_FEW_APART},
                                   lengths[i]);
    }
}

TEST(all_formats_in_blocks_have_integer_kernels)
{
    for (int l = 0; l < LEVELS; l++) {
        const struct block_kernels *k = level(levels[l]);
        for (int t = 0; k && t < DTYPE_WEIGHT_COUNT; t++) {
            bool blocks = dtype_info((enum dtype)t)->block_elements > 1;
            assert_int_equal(k->dot[t] != NULL, blocks);
            assert_int_equal(k->unpack[t] != NULL, blocks);
            assert_int_equal(k->panel_make[t] != NULL, blocks);
            assert_int_equal(k->panel_dot[t] || k->joined_dot[t], blocks);
        }
    }
}

/* How many runs some row multiplies twice. */
static int runs_twice(const struct block_rows *x, size_t n)
{
    size_t bytes = block_run_bytes((size_t)x->rows);
    int sum = 0;
    for (size_t run = 1; run <= n / BLOCK_RUN; run++) {
        uint32_t twice;
        memcpy(&twice, x->runs + run * bytes - sizeof twice, sizeof twice);
        sum += twice != 0;
    }
    return sum;
}

/* A row's result does not depend on the rows beside it, nor on what of these stands out. */
TEST(rows_together_are_rows_alone)
{
    enum { N = 512 };
    static float in[BLOCK_MAX_ROWS][INPUTS_MOST];
    for (int l = 0; l < LEVELS; l++) {
        const struct block_kernels *k = level(levels[l]);
        for (int t = 0; k && t < DTYPE_WEIGHT_COUNT; t++) {
            const struct dtype_info *info = dtype_info((enum dtype)t);
            if (!k->dot[t])
                continue;
            uint8_t rows[BLOCK_LANES_MAX * N * 2], blocks[BLOCK_LANES_MAX * N * 2], *memory;
            size_t n_blocks = N / info->block_elements, row_bytes = n_blocks * info->block_bytes;
            uint64_t seed = 4;
            blocks_fill(WEIGHTS_RANDOM, (enum dtype)t, rows, k->lanes * n_blocks, &seed);
            block_lanes_put((enum dtype)t, k->lanes, rows, k->lanes, row_bytes, n_blocks, blocks);
            for (int r = 0; r < BLOCK_MAX_ROWS; r++) {
                inputs_fill(RANDOM, in[r], N, &seed);
                in[r][33 * (r + 1)] = 30;
            }
            for (int n = 2; n <= BLOCK_MAX_ROWS; n++) {
                float side[BLOCK_MAX_ROWS * BLOCK_LANES_MAX], one[BLOCK_LANES_MAX];
                struct block_rows x = rows_quantised(k, in[0], n, N, &memory);
                assert_int_equal(runs_twice(&x, N) + (int)*x.n_apart, n);
                k->dot[t](&x, blocks, row_bytes, k->lanes, N, false, side, k->lanes);
                free(memory);
                for (int r = 0; r < n; r++) {
                    x = rows_quantised(k, in[r], 1, N, &memory);
                    k->dot[t](&x, blocks, row_bytes, k->lanes, N, false, one, 0);
                    assert_memory_equal(side + (size_t)r * k->lanes, one, k->lanes * sizeof *one);
                    free(memory);
                }
            }
        }
    }
}

/* Inputs that are infinite or no number are not hidden. */
TEST(inputs_that_are_no_numbers_give_no_numbers)
{
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    for (int l = 0; l < LEVELS; l++) {
        const struct block_kernels *k = level(levels[l]);
        for (int i = 0; k && i < 2 * 3 * 32; i++) { /* one, then one in each half of a run */
            static float in[INPUTS_MOST];
            float out[BLOCK_LANES_MAX];
            uint8_t blocks[2 * Q8_0_BYTES * BLOCK_LANES_MAX], *memory;
            uint64_t seed = 1;
            blocks_fill(WEIGHTS_RANDOM, DTYPE_Q8_0, blocks, 2 * k->lanes, &seed);
            memset(in, 0, sizeof in);
            in[40] = 1;
            in[i % 32] = bad[i / 32 % 3];
            if (i >= 3 * 32)
                in[(i + 16) % 32] = bad[i / 32 % 3];
            struct block_rows x = rows_quantised(k, in, 1, 64, &memory);
            k->dot[DTYPE_Q8_0](&x, blocks, sizeof blocks / BLOCK_LANES_MAX, k->lanes, 64, false,
                               out, k->lanes);
            for (size_t o = 0; o < k->lanes; o++)
                assert_true(isnan(out[o]));
            free(memory);
        }
    }
}

/* The steps of a run are those of its ordinary inputs, whatever stands out beside them: a channel
 * that is fifty times as large as the others, and a whole number of its own steps, changes the
 * others' part of an output by nothing. */
TEST(channels_that_stand_out_do_not_coarsen_their_neighbours)
{
    enum { N = 512 };
    static float plain[INPUTS_MOST], with[INPUTS_MOST];
    for (int l = 0; l < LEVELS; l++) {
        const struct block_kernels *k = level(levels[l]);
        for (int t = 0; k && t < DTYPE_WEIGHT_COUNT; t++) {
            const struct dtype_info *info = dtype_info((enum dtype)t);
            if (!k->dot[t])
                continue;
            uint8_t rows[BLOCK_LANES_MAX * N * 2], blocks[BLOCK_LANES_MAX * N * 2], *memory;
            float without[BLOCK_LANES_MAX], all[BLOCK_LANES_MAX], w[N];
            size_t n_blocks = N / info->block_elements, row_bytes = n_blocks * info->block_bytes;
            uint64_t seed = 5;
            blocks_fill(WEIGHTS_RANDOM, (enum dtype)t, rows, k->lanes * n_blocks, &seed);
            block_lanes_put((enum dtype)t, k->lanes, rows, k->lanes, row_bytes, n_blocks, blocks);
            inputs_fill(RANDOM, plain, N, &seed);
            plain[77] = plain[311] = 0;
            memcpy(with, plain, sizeof with);
            with[77] = 50;
            with[311] = -50;
            struct block_rows x = rows_quantised(k, plain, 1, N, &memory);
            k->dot[t](&x, blocks, row_bytes, k->lanes, N, false, without, k->lanes);
            free(memory);
            x = rows_quantised(k, with, 1, N, &memory);
            k->dot[t](&x, blocks, row_bytes, k->lanes, N, false, all, k->lanes);
            free(memory);
            for (size_t o = 0; o < k->lanes; o++) {
                info->to_f32(rows + o * row_bytes, N, w);
                float more = 50 * w[77] - 50 * w[311], greatest = 0;
                for (size_t i = 0; i < N; i++)
                    greatest = fmaxf(greatest, fabsf(w[i]));
                assert_true(fabsf(all[o] - without[o] - more) <=
                            1e-5f * (fabsf(without[o]) + 100 * greatest));
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(integer_products_stay_within_their_bound),
        cmocka_unit_test(panels_stay_within_the_bound_for_every_number_of_rows),
        cmocka_unit_test(a_panel_that_its_first_tile_makes_gives_the_same_bits),
        cmocka_unit_test(weights_as_they_lie_give_the_bits_of_panels_for_every_number_of_rows),
        cmocka_unit_test(tiles_turn_from_any_format_to_any_other),
        cmocka_unit_test(tiles_of_amx_give_the_bits_of_avx512_for_every_number_of_rows),
        cmocka_unit_test(what_is_measured_says_which_kernels_are_faster),
        cmocka_unit_test(rows_of_a_tile_do_not_depend_on_each_other),
        cmocka_unit_test(all_formats_in_blocks_have_integer_kernels),
        cmocka_unit_test(rows_together_are_rows_alone),
        cmocka_unit_test(inputs_that_are_no_numbers_give_no_numbers),
        cmocka_unit_test(channels_that_stand_out_do_not_coarsen_their_neighbours),
    };
    return cmocka_run_group_tests_name("blocks", tests, NULL, NULL);
}
