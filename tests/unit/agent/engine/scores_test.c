#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#include "agent/engine/scores.h"
#include "common/env.h"
#include "tests/test.h"

enum { MOST = 5000, WIDTH = 1 + SCORE_MAX_TOP };

/* The plain way: in long double, by looking at all pairs. */
static double share_of(const float *x, size_t n, uint32_t token)
{
    long double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += expl((long double)x[i] - (long double)x[token]);
    return (double)-logl(sum);
}

static bool comes_before(const float *x, uint32_t a, uint32_t b)
{
    return x[a] > x[b] || (x[a] >= x[b] && a < b);
}

static uint32_t place_of(const float *x, size_t n, uint32_t token)
{
    uint32_t before = 0;
    for (uint32_t i = 0; i < n; i++)
        before += comes_before(x, i, token) ? 1 : 0;
    return before;
}

TEST(scores_are_those_of_a_softmax_in_full)
{
    static const size_t sizes[] = {1, 2, 7, 1023, 1024, 1025, MOST};
    float *x = malloc(MOST * sizeof *x);
    struct score got[WIDTH];
    uint64_t random = 11;
    for (int round = 0; round < 28; round++) {
        size_t n = sizes[round % 7];
        double wide = round % 4 * 15 + 0.1;
        for (size_t i = 0; i < n; i++) /* many are equal */
            x[i] = (float)(wide * floor(30 * random_unit(&random)) / 30 - wide);
        uint32_t token = (uint32_t)(random_next(&random) % n);
        scores_write(x, n, token, WIDTH, got);
        uint32_t likelier = 0;
        for (size_t i = 0; i < n; i++)
            likelier += x[i] > x[token] ? 1 : 0;
        assert_int_equal(got[0].id, likelier + 1);
        assert_true(fabs((double)got[0].logprob - share_of(x, n, token)) < 1e-5);
        for (uint32_t i = 1; i < WIDTH; i++) {
            if (i > n) {
                assert_int_equal(got[i].id, SCORE_NONE);
                continue;
            }
            assert_int_equal(place_of(x, n, got[i].id), i - 1);
            assert_true(fabs((double)got[i].logprob - share_of(x, n, got[i].id)) < 1e-5);
        }
    }
    free(x);
}

TEST(what_is_no_number_is_behind_all_others)
{
    const float x[] = {NAN, 1, -INFINITY, 1};
    struct score got[4];
    scores_write(x, 4, 1, 4, got);
    assert_int_equal(got[0].id, 1);
    assert_true(fabs((double)got[0].logprob + log(2)) < 1e-6);
    assert_int_equal(got[1].id, 1);
    assert_int_equal(got[2].id, 3);
    assert_int_equal(got[3].id, 2);
    assert_true(isinf(got[3].logprob));
    scores_write(x, 4, 0, 1, got);
    assert_true(got[0].id == 4 && isinf(got[0].logprob));
    scores_write(x, 4, 9, 1, got); /* beyond the vocabulary */
    assert_true(got[0].id == 4 && isinf(got[0].logprob));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scores_are_those_of_a_softmax_in_full),
        cmocka_unit_test(what_is_no_number_is_behind_all_others),
    };
    return cmocka_run_group_tests_name("scores", tests, NULL, NULL);
}
