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

static const char *const levels[] = {"avx2", "avx512"};
enum { LEVELS = sizeof levels / sizeof *levels, COLS = 5, INPUTS_MOST = 1024 };

static const struct block_kernels *level(const char *name)
{
    const struct cpu_kernels *k = NULL;
    struct err e = {0};
    if (kernels_choose(name, &k, &e) == 0)
        return k->blocks;
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

/* What blocks.h allows: half a step of every input, and float32's rounding of so many sums. */
static double bound_of(const float *x, const float *w, size_t n)
{
    double bound = 0, magnitudes = 0;
    for (size_t run = 0; run < n; run += BLOCK_RUN) {
        double greatest = 0, weights = 0;
        for (size_t i = run; i < run + BLOCK_RUN; i++) {
            greatest = fmax(greatest, fabs((double)x[i]));
            weights += fabs((double)w[i]);
        }
        bound += weights * (greatest / 127 / 2 * 1.0001 + (greatest < 0x1p-119 ? greatest : 0));
        /* of bytes that are 128 too great, and of least values */
        magnitudes += greatest * (weights + BLOCK_RUN * 128 * 0.7);
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
            double bound = bound_of(x[r], w, c->n);
            if (!(fabs(is - want) <= bound))
                fail_msg("%s, inputs %d, weights %d, %zu by %d, output %zu of %zu: %g where %g is "
                         "right, off by %g, bound %g",
                         info->name, (int)c->inputs, (int)c->weights, c->n, c->rows, o, cols, is,
                         want, fabs(is - want), bound);
        }
    }
}

/* Rows as in the file, and the same side by side; each twice, the second time adding to what is
 * there. */
static void check_rows(const struct case_of *c, uint64_t seed)
{
    const struct dtype_info *info = dtype_info(c->t);
    const struct block_kernels *k = c->kernels;
    size_t n_blocks = c->n / info->block_elements, row_bytes = n_blocks * info->block_bytes,
           lanes = k->lanes;
    float x[BLOCK_MAX_ROWS][INPUTS_MOST], got[BLOCK_MAX_ROWS * BLOCK_LANES_MAX];
    uint8_t *blocks = malloc(2 * (row_bytes * lanes + 1)), *side, *memory[BLOCK_MAX_ROWS];
    struct block_row quantised[BLOCK_MAX_ROWS];
    assert_non_null(blocks);
    side = blocks + row_bytes * lanes + 2;
    blocks_fill(c->weights, c->t, blocks + 1, n_blocks * lanes, &seed);
    block_lanes_put(c->t, lanes, blocks + 1, row_bytes, n_blocks, side);
    for (int r = 0; r < c->rows; r++) {
        inputs_fill(c->inputs, x[r], c->n, &seed);
        memory[r] = malloc(block_row_bytes(c->n));
        assert_non_null(memory[r]);
        k->quantise(x[r], c->n, memory[r]);
        quantised[r] = block_row_at(memory[r], c->n);
    }
    for (int turn = 0; turn < 2; turn++) {
        k->dot[c->t](quantised, c->rows, blocks + 1, row_bytes, COLS, c->n, turn == 1, got, COLS);
        check_outputs(c, (const float(*)[INPUTS_MOST])x, blocks + 1, got, COLS, turn);
    }
    for (int turn = 0; turn < 2; turn++) {
        k->lanes_dot[c->t](quantised, c->rows, side, row_bytes, lanes, c->n, turn == 1, got, lanes);
        check_outputs(c, (const float(*)[INPUTS_MOST])x, blocks + 1, got, lanes, turn);
    }
    for (int r = 0; r < c->rows; r++)
        free(memory[r]);
    free(blocks);
}

/* Outputs of a panel for the rows of a tile, from blocks that lie as in the file. */
static void panel_products(const struct case_of *c, const float *x, const uint8_t *blocks,
                           bool accumulate, float *out)
{
    const struct dtype_info *info = dtype_info(c->t);
    const struct block_kernels *k = c->kernels;
    size_t n_blocks = c->n / info->block_elements, row_bytes = n_blocks * info->block_bytes,
           runs = c->n / BLOCK_RUN, group_bytes = runs * k->panel_bytes(c->t),
           groups = k->panel_outputs / k->lanes;
    struct block_tile_run *tile = malloc(runs * sizeof *tile);
    uint8_t *side = malloc(row_bytes * k->lanes), *panel = malloc(groups * group_bytes);
    assert_true(tile && side && panel);
    for (size_t g = 0; g < groups; g++) {
        block_lanes_put(c->t, k->lanes, blocks + g * k->lanes * row_bytes, row_bytes, n_blocks,
                        side);
        k->panel_make[c->t](side, c->n, panel + g * group_bytes);
    }
    k->tile_make(c->t, x, INPUTS_MOST, c->rows, c->n, tile);
    k->panel_dot[c->t](tile, c->rows, panel, runs, accumulate, out, k->panel_outputs);
    free(tile);
    free(side);
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
                                                      (enum weights)(kind / INPUT_KINDS)},
                                    lengths[i]);
    }
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
                                                     (enum weights)(kind / INPUT_KINDS)},
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
            assert_int_equal(k->lanes_dot[t] != NULL, blocks);
            assert_int_equal(k->unpack[t] != NULL, blocks);
            assert_int_equal(k->panel_make[t] != NULL, blocks);
            assert_int_equal(k->panel_dot[t] != NULL, blocks);
        }
    }
}

/* A row's result does not depend on the rows beside it. */
TEST(rows_together_are_rows_alone)
{
    enum { N = 512 };
    for (int l = 0; l < LEVELS; l++) {
        const struct block_kernels *k = level(levels[l]);
        for (int t = 0; k && t < DTYPE_WEIGHT_COUNT; t++) {
            const struct dtype_info *info = dtype_info((enum dtype)t);
            if (!k->dot[t])
                continue;
            uint8_t blocks[BLOCK_LANES_MAX * N * 2],
                rows[BLOCK_MAX_ROWS][N * 2 + 64] __attribute__((aligned(16)));
            struct block_row x[BLOCK_MAX_ROWS];
            uint64_t seed = 4;
            blocks_fill(WEIGHTS_RANDOM, (enum dtype)t, blocks, k->lanes * N / info->block_elements,
                        &seed);
            for (int r = 0; r < BLOCK_MAX_ROWS; r++) {
                float in[N];
                inputs_fill(RANDOM, in, N, &seed);
                k->quantise(in, N, rows[r]);
                x[r] = block_row_at(rows[r], N);
            }
            for (int n = 2; n <= BLOCK_MAX_ROWS; n++) {
                float together[BLOCK_MAX_ROWS], alone[BLOCK_MAX_ROWS];
                k->dot[t](x, n, blocks, 0, 1, N, false, together, 1);
                for (int r = 0; r < n; r++)
                    k->dot[t](x + r, 1, blocks, 0, 1, N, false, alone + r, 1);
                assert_memory_equal(together, alone, (size_t)n * sizeof *alone);
                float side[BLOCK_MAX_ROWS * BLOCK_LANES_MAX], one[BLOCK_LANES_MAX];
                size_t row_bytes = N / info->block_elements * info->block_bytes;
                k->lanes_dot[t](x, n, blocks, row_bytes, k->lanes, N, false, side, k->lanes);
                for (int r = 0; r < n; r++) {
                    k->lanes_dot[t](x + r, 1, blocks, row_bytes, k->lanes, N, false, one, 0);
                    assert_memory_equal(side + (size_t)r * k->lanes, one, k->lanes * sizeof *one);
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
        for (int i = 0; k && i < 3 * 32; i++) {
            float in[64] = {0}, out;
            uint8_t row[256] __attribute__((aligned(16))), blocks[2 * Q8_0_BYTES] = {0, 0x3c, 1};
            blocks[Q8_0_BYTES + 1] = 0x3c;
            in[40] = 1;
            in[i % 32] = bad[i / 32];
            k->quantise(in, 64, row);
            struct block_row x = block_row_at(row, 64);
            k->dot[DTYPE_Q8_0](&x, 1, blocks, 0, 1, 64, false, &out, 1);
            assert_true(isnan(out));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(integer_products_stay_within_their_bound),
        cmocka_unit_test(panels_stay_within_the_bound_for_every_number_of_rows),
        cmocka_unit_test(rows_of_a_tile_do_not_depend_on_each_other),
        cmocka_unit_test(all_formats_in_blocks_have_integer_kernels),
        cmocka_unit_test(rows_together_are_rows_alone),
        cmocka_unit_test(inputs_that_are_no_numbers_give_no_numbers),
    };
    return cmocka_run_group_tests_name("blocks", tests, NULL, NULL);
}
