/* Integer products with quantised weights against the plain loops, within the bound that blocks.h
 * states, on random inputs and on hostile ones. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

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

static void check_rows(const struct block_kernels *k, enum dtype t, size_t n, int rows,
                       enum inputs inputs, enum weights weights, uint64_t seed)
{
    const struct dtype_info *info = dtype_info(t);
    size_t row_bytes = n / info->block_elements * info->block_bytes;
    float x[BLOCK_MAX_ROWS][INPUTS_MOST], w[INPUTS_MOST], got[BLOCK_MAX_ROWS * COLS];
    uint8_t *blocks = malloc(row_bytes * COLS + 1), *memory[BLOCK_MAX_ROWS];
    struct block_row quantised[BLOCK_MAX_ROWS];
    assert_non_null(blocks);
    blocks_fill(weights, t, blocks + 1, n / info->block_elements * COLS, &seed);
    for (int r = 0; r < rows; r++) {
        inputs_fill(inputs, x[r], n, &seed);
        memory[r] = malloc(block_row_bytes(n));
        assert_non_null(memory[r]);
        k->quantise(x[r], n, memory[r]);
        quantised[r] = block_row_at(memory[r], n);
    }
    for (int turn = 0; turn < 2; turn++) { /* the second adds to what is there */
        k->dot[t](quantised, rows, blocks + 1, row_bytes, COLS, n, turn == 1, got, COLS);
        for (size_t c = 0; c < COLS; c++) {
            info->to_f32(blocks + 1 + c * row_bytes, n, w);
            for (int r = 0; r < rows; r++) {
                double want = 0, is = (double)got[(size_t)r * COLS + c] / (turn + 1);
                for (size_t i = 0; i < n; i++)
                    want += (double)x[r][i] * (double)w[i];
                double bound = bound_of(x[r], w, n);
                if (!(fabs(is - want) <= bound))
                    fail_msg("%s, inputs %d, weights %d, %zu by %d: %g where %g is right, off by "
                             "%g, bound %g",
                             info->name, inputs, weights, n, rows, is, want, fabs(is - want),
                             bound);
            }
        }
    }
    for (int r = 0; r < rows; r++)
        free(memory[r]);
    free(blocks);
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
                        check_rows(k, (enum dtype)t, lengths[i], 1 + kind % BLOCK_MAX_ROWS,
                                   (enum inputs)(kind % INPUT_KINDS),
                                   (enum weights)(kind / INPUT_KINDS), lengths[i]);
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
            uint8_t blocks[N * 2], rows[BLOCK_MAX_ROWS][N * 2 + 64] __attribute__((aligned(16)));
            struct block_row x[BLOCK_MAX_ROWS];
            uint64_t seed = 4;
            blocks_fill(WEIGHTS_RANDOM, (enum dtype)t, blocks, N / info->block_elements, &seed);
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
        cmocka_unit_test(all_formats_in_blocks_have_integer_kernels),
        cmocka_unit_test(rows_together_are_rows_alone),
        cmocka_unit_test(inputs_that_are_no_numbers_give_no_numbers),
    };
    return cmocka_run_group_tests_name("blocks", tests, NULL, NULL);
}
