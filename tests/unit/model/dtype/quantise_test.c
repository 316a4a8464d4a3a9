/* Float32 to every format of weights. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model/dtype/dtype.h"
#include "tests/test.h"

enum { N = 2048, BYTES_MAX = 4 * N };

static uint64_t random_state;

static float random_float(void)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (float)(int32_t)(random_state >> 32) * 0x1p-31f;
}

/* About normal: the sum of four. */
static void fill_normal(float *x, float size)
{
    for (int i = 0; i < N; i++)
        x[i] = size * (random_float() + random_float() + random_float() + random_float());
}

static double squares_of(const float *x)
{
    double sum = 0;
    for (int i = 0; i < N; i++)
        sum += (double)x[i] * (double)x[i];
    return sum;
}

/* Squares of differences after packing, as a part of the squares of the values. */
static double loss_of(enum dtype t, const float *x)
{
    const struct dtype_info *info = dtype_info(t);
    static uint8_t packed[BYTES_MAX];
    static float back[N];
    double sum = 0;
    info->from_f32(x, N, packed);
    assert_int_equal(dtype_bad_block(t, packed, N), -1);
    info->to_f32(packed, N, back);
    for (int i = 0; i < N; i++)
        sum += ((double)back[i] - (double)x[i]) * ((double)back[i] - (double)x[i]);
    return sum / (squares_of(x) > 0 ? squares_of(x) : 1);
}

/* What a format loses of normal values: its bits decide. */
static const struct {
    enum dtype t;
    double most;
} losses[] = {{DTYPE_F32, 0},       {DTYPE_F16, 1e-7},     {DTYPE_BF16, 1e-5}, {DTYPE_Q8_0, 4e-5},
              {DTYPE_Q6_K, 5e-4},   {DTYPE_Q5_0, 2e-3},    {DTYPE_Q5_1, 2e-3}, {DTYPE_Q5_K, 2e-3},
              {DTYPE_Q4_0, 9e-3},   {DTYPE_Q4_1, 7e-3},    {DTYPE_Q4_K, 7e-3}, {DTYPE_IQ4_NL, 7e-3},
              {DTYPE_IQ4_XS, 7e-3}, {DTYPE_MXFP4, 1.7e-2}, {DTYPE_Q3_K, 3e-2}, {DTYPE_Q2_K, 9e-2}};

TEST(formats_lose_as_little_as_their_bits_allow_at_any_size)
{
    static float x[N];
    static const float sizes[] = {1, 1e-3f, 100};
    assert_int_equal(sizeof losses / sizeof *losses, DTYPE_WEIGHT_COUNT);
    for (size_t i = 0; i < sizeof losses / sizeof *losses; i++)
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            random_state = 7;
            fill_normal(x, sizes[s]);
            double loss = loss_of(losses[i].t, x);
            if (loss > losses[i].most)
                fail_msg("%s loses %.2e of values of size %g", dtype_info(losses[i].t)->name, loss,
                         (double)sizes[s]);
        }
}

TEST(zeros_stay_zeros_and_equal_values_stay_about_equal)
{
    static const float values[] = {0, 1, -1, 0.37f, -250};
    static float x[N];
    for (int t = 0; t < DTYPE_WEIGHT_COUNT; t++)
        for (size_t v = 0; v < sizeof values / sizeof *values; v++) {
            for (int i = 0; i < N; i++)
                x[i] = values[v];
            double loss = loss_of((enum dtype)t, x);
            double most = values[v] == 0 ? 0 : t == DTYPE_MXFP4 ? 0.02 : 1e-3;
            if (loss > most)
                fail_msg("%s loses %.2e of values that are all %g", dtype_info((enum dtype)t)->name,
                         loss, (double)values[v]);
        }
}

TEST(what_is_odd_is_packed_without_a_scale_that_is_no_number)
{
    static float x[N];
    for (int kind = 0; kind < 5; kind++) {
        random_state = 11;
        fill_normal(x, 1);
        for (int i = 0; i < N; i++) {
            if (kind == 0 && i % 97 == 0)
                x[i] *= 1000;
            else if (kind == 1)
                x[i] *= 1e-40f; /* denormals */
            else if (kind == 2)
                x[i] = fabsf(x[i]) + 5; /* far from zero */
            else if (kind == 3)
                x[i] = i % 256 == 255 ? -3 : 0;
            else if (kind == 4)
                x[i] *= 60000 / 4.f;
        }
        for (int t = 0; t < DTYPE_WEIGHT_COUNT; t++)
            assert_true(loss_of((enum dtype)t, x) <= (kind == 1 ? 1.0001 : 0.35));
    }
}

/* A file that is quantised again in its own format loses next to nothing. */
TEST(values_of_a_format_are_packed_into_nearly_themselves)
{
    static float x[N], exact[N];
    static uint8_t packed[BYTES_MAX];
    random_state = 3;
    fill_normal(x, 1);
    for (int t = 0; t < DTYPE_WEIGHT_COUNT; t++) {
        const struct dtype_info *info = dtype_info((enum dtype)t);
        info->from_f32(x, N, packed);
        info->to_f32(packed, N, exact);
        double loss = loss_of((enum dtype)t, exact), first = loss_of((enum dtype)t, x);
        if (loss > first * 0.2 + 1e-12)
            fail_msg("%s loses %.2e of its own values, %.2e of others", info->name, loss, first);
    }
    dtype_info(DTYPE_MXFP4)->from_f32(x, N, packed);
    dtype_info(DTYPE_MXFP4)->to_f32(packed, N, exact);
    assert_true(loss_of(DTYPE_MXFP4, exact) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(formats_lose_as_little_as_their_bits_allow_at_any_size),
        cmocka_unit_test(zeros_stay_zeros_and_equal_values_stay_about_equal),
        cmocka_unit_test(what_is_odd_is_packed_without_a_scale_that_is_no_number),
        cmocka_unit_test(values_of_a_format_are_packed_into_nearly_themselves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
