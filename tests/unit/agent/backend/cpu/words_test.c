/* Products by 16-bit integers against double precision, within the bound that words.h states, on
 * random inputs and on hostile ones. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "agent/backend/cpu/kernels.h"
#include "common/env.h"
#include "tests/test.h"

enum { INPUTS = 512, OUTPUTS_MOST = 32 };

static const char *const levels[] = {"avx2", "avx_vnni", "avx512"};

static const struct word_kernels *level(const char *name)
{
    const struct cpu_kernels *k = NULL;
    struct err e = {0};
    if (kernels_choose(name, &k, &e) == 0)
        return k->words;
    assert_int_equal(e.code, HP_EDEVICE);
    print_message("# not on this CPU: %s\n", e.text);
    return NULL;
}

enum filled_with { RANDOM, EQUAL, OUTLIERS, DENORMAL, ZERO, LARGE, MIXED_SIGNS, FILLS };

static void values_fill(enum filled_with kind, float *x, size_t n, uint64_t *seed)
{
    for (size_t i = 0; i < n; i++) {
        float random = (float)(random_unit(seed) * 2 - 1);
        switch (kind) {
        case EQUAL: x[i] = 0.37f; break;
        case OUTLIERS: x[i] = random * (i % 97 == 5 ? 1000 : 1); break;
        case DENORMAL: x[i] = random * 0x1p-127f; break;
        case ZERO: x[i] = i % 2 ? 0.0f : -0.0f; break;
        case LARGE: x[i] = random * 1e18f; break;
        case MIXED_SIGNS: x[i] = i % 2 ? 5 : -5; break;
        default: x[i] = random;
        }
    }
}

/* Half a step of the 32 values from x on; all of them where the step is no normal number. */
static double half_step(const float *x)
{
    double greatest = 0;
    for (size_t i = 0; i < WORD_RUN; i++)
        greatest = fmax(greatest, fabs((double)x[i]));
    return greatest / WORD_MOST < 0x1p-125 ? greatest : greatest / WORD_MOST / 2 * 1.001;
}

static void check_output(const float *x, const float *w, size_t n, double got)
{
    double want = 0, bound = 0;
    for (size_t k = 0; k < n; k++) {
        double dx = half_step(x + k / WORD_RUN * WORD_RUN),
               dw = half_step(w + k / WORD_RUN * WORD_RUN), xk = (double)x[k], wk = (double)w[k];
        want += xk * wk;
        bound += fabs(wk) * dx + fabs(xk) * dw + dx * dw + fabs(xk * wk) * 0x1p-19;
    }
    if (!(fabs(got - want) <= bound))
        fail_msg("%g where %g is right, off by %g, bound %g", got, want, fabs(got - want), bound);
}

/* A product of so many rows and inputs; the second time it is added to what is there. */
static void check_product(const struct word_kernels *k, enum filled_with inputs,
                          enum filled_with weights, int rows, size_t n)
{
    uint64_t seed = (uint64_t)rows * 31 + n;
    float *x = calloc(WORD_TILE * INPUTS, sizeof *x), *w = calloc(OUTPUTS_MOST * INPUTS, sizeof *w),
          *out = calloc((WORD_TILE + 1) * OUTPUTS_MOST, sizeof *out);
    struct word_run *tile = malloc(word_tiles_bytes(1, n));
    uint8_t *panel = malloc(word_panel_bytes(k->outputs, n));
    assert_true(x && w && out && tile && panel && k->outputs <= OUTPUTS_MOST);
    values_fill(inputs, x, WORD_TILE * INPUTS, &seed);
    values_fill(weights, w, OUTPUTS_MOST * INPUTS, &seed);
    out[(size_t)rows * OUTPUTS_MOST] = 42;
    k->tile_make(x, INPUTS, rows, n, tile);
    k->panel_make(w, INPUTS, n, panel);
    for (int turn = 0; turn < 2; turn++) {
        k->panel_dot(tile, rows, n, panel, turn > 0, out, OUTPUTS_MOST);
        for (size_t i = 0; i < (size_t)rows * k->outputs; i++)
            check_output(x + i / k->outputs * INPUTS, w + i % k->outputs * INPUTS, n,
                         (double)out[i / k->outputs * OUTPUTS_MOST + i % k->outputs] / (turn + 1));
    }
    assert_true(out[(size_t)rows * OUTPUTS_MOST] == 42); /* no row beyond is written to */
    free(x), free(w), free(out), free(tile), free(panel);
}

TEST(word_products_stay_within_their_bound)
{
    for (size_t l = 0; l < sizeof levels / sizeof *levels; l++) {
        const struct word_kernels *k = level(levels[l]);
        for (int fill = 0; k && fill < FILLS * FILLS; fill++)
            check_product(k, (enum filled_with)(fill % FILLS), (enum filled_with)(fill / FILLS),
                          1 + fill % WORD_TILE, fill % 3 ? INPUTS : WORD_RUN);
        for (int rows = 1; k && rows <= WORD_TILE; rows++)
            check_product(k, RANDOM, RANDOM, rows, INPUTS);
    }
}

TEST(what_is_no_number_makes_no_numbers_of_its_row_alone)
{
    static const float odd[] = {NAN, INFINITY, -INFINITY};
    for (size_t l = 0; l < sizeof levels / sizeof *levels; l++) {
        const struct word_kernels *k = level(levels[l]);
        for (size_t i = 0; k && i < sizeof odd / sizeof *odd; i++) {
            float x[2][WORD_RUN] = {{0}}, w[OUTPUTS_MOST][WORD_RUN], out[2][OUTPUTS_MOST];
            struct word_run tile;
            uint8_t *panel = malloc(word_panel_bytes(k->outputs, WORD_RUN));
            assert_non_null(panel);
            for (size_t j = 0; j < OUTPUTS_MOST * WORD_RUN; j++)
                w[j / WORD_RUN][j % WORD_RUN] = 1;
            x[0][7] = odd[i];
            x[1][7] = 2;
            k->tile_make(x[0], WORD_RUN, 2, WORD_RUN, &tile);
            k->panel_make(w[0], WORD_RUN, WORD_RUN, panel);
            k->panel_dot(&tile, 2, WORD_RUN, panel, false, out[0], OUTPUTS_MOST);
            for (size_t c = 0; c < k->outputs; c++) {
                assert_true(isnan(out[0][c]));
                assert_float_equal(out[1][c], 2, 1e-3);
            }
            free(panel);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(word_products_stay_within_their_bound),
        cmocka_unit_test(what_is_no_number_makes_no_numbers_of_its_row_alone),
    };
    return cmocka_run_group_tests_name("words", tests, NULL, NULL);
}
