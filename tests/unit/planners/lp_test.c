#include <math.h>
#include <stdint.h>
#include <string.h>

#include "common/bytes.h"
#include "planners/lp.h"
#include "tests/test.h"

/* maximise 3x + 2y, x + y <= 4, x + 3y <= 6, x <= upper */
static struct lp_program *small_program(double upper, bool integer)
{
    struct err e = {0};
    struct lp_program *p;
    assert_int_equal(lp_program_create("small", true, &p, &e), 0);
    int x = lp_column_add(p, "x", 3, 0, upper, integer, &e),
        y = lp_column_add(p, "y", 2, 0, INFINITY, integer, &e);
    int sum = lp_row_add(p, "sum", LP_AT_MOST, 4, &e),
        other = lp_row_add(p, NULL, LP_AT_MOST, 6, &e);
    assert_int_equal(lp_term_add(p, sum, x, 1, &e), 0);
    assert_int_equal(lp_term_add(p, sum, y, 1, &e), 0);
    assert_int_equal(lp_term_add(p, other, x, 1, &e), 0);
    assert_int_equal(lp_term_add(p, other, y, 2, &e), 0);
    assert_int_equal(lp_term_add(p, other, y, 1, &e), 0);
    return p;
}

TEST(a_linear_programme_has_its_optimum_and_duals)
{
    struct lp_program *p = small_program(2.5, false);
    struct lp_result r;
    struct err e = {0};
    assert_int_equal(lp_program_solve(p, &(struct lp_limits){.seconds = 5}, &env_real, &r, &e), 0);
    assert_int_equal(r.outcome, LP_OPTIMAL);
    assert_true(fabs(r.objective - (7.5 + 2 * (3.5 / 3))) < 1e-9);
    assert_true(fabs(r.duals[0]) < 1e-9);
    assert_true(fabs(r.duals[1] - 2.0 / 3) < 1e-9);
    lp_program_destroy(&p);
}

TEST(whole_numbers_are_whole_and_bounded_by_the_relaxation)
{
    struct lp_program *p = small_program(2.5, true);
    struct lp_result r;
    struct err e = {0};
    assert_int_equal(lp_program_solve(p, &(struct lp_limits){.seconds = 5}, &env_real, &r, &e), 0);
    assert_int_equal(r.outcome, LP_OPTIMAL);
    assert_true(fabs(r.values[0] - 2) < 1e-9 && fabs(r.values[1] - 1) < 1e-9);
    assert_true(fabs(r.objective - 8) < 1e-9);
    lp_program_destroy(&p);
}

TEST(a_contradiction_is_infeasible_and_no_error)
{
    struct err e = {0};
    struct lp_program *p = small_program(2.5, false);
    struct lp_result r;
    int row = lp_row_add(p, "no", LP_AT_LEAST, 3, &e);
    assert_int_equal(lp_term_add(p, row, 0, 1, &e), 0);
    assert_int_equal(lp_program_solve(p, &(struct lp_limits){0}, &env_real, &r, &e), 0);
    assert_int_equal(r.outcome, LP_INFEASIBLE);
    assert_null(r.values);
    lp_program_destroy(&p);
}

static bool into_buffer(void *ctx, const char *text, size_t size)
{
    buffer_append(ctx, text, size);
    return true;
}

TEST(the_text_names_rows_and_columns)
{
    struct err e = {0};
    struct lp_program *p = small_program(2.5, true);
    struct buffer b = {0};
    assert_int_equal(lp_program_write(p, into_buffer, &b, &e), 0);
    const char *text = buffer_cstr(&b);
    assert_non_null(strstr(text, "max:"));
    assert_non_null(strstr(text, "sum:"));
    assert_non_null(strstr(text, "+3 y"));
    assert_non_null(strstr(text, "int x,y"));
    buffer_free(&b);
    lp_program_destroy(&p);
}

/* A clock that a look moves on by a millisecond, so that a limit on time is one on work. */
struct looks {
    uint64_t n;
};

static uint64_t looks_now_ns(void *ctx)
{
    struct looks *l = ctx;
    return ++l->n * 1000000;
}

/* A knapsack that lp_solve cannot finish at once: it must stop when its time is up. */
TEST(a_hard_programme_stops_in_time_with_the_best_it_found)
{
    struct err e = {0};
    struct lp_program *p;
    uint64_t seed = 7;
    assert_int_equal(lp_program_create("knapsacks", true, &p, &e), 0);
    int rows[6];
    for (int r = 0; r < 6; r++)
        rows[r] = lp_row_add(p, NULL, LP_AT_MOST, 2500, &e);
    double worth[60], weight[6][60];
    for (int c = 0; c < 60; c++) {
        worth[c] = 50 + 100 * random_unit(&seed);
        int column = lp_column_add(p, NULL, worth[c], 0, 1, true, &e);
        for (int k = 0; k < 6; k++) {
            weight[k][c] = 50 + 100 * random_unit(&seed);
            assert_int_equal(lp_term_add(p, rows[k], column, weight[k][c], &e), 0);
        }
    }
    struct looks looks = {0};
    struct env counted = {&looks, looks_now_ns, NULL};
    struct lp_result r;
    assert_int_equal(lp_program_solve(p, &(struct lp_limits){.seconds = 10}, &counted, &r, &e), 0);
    assert_int_equal(r.outcome, LP_FEASIBLE);
    assert_in_range(looks.n, 10000, 10100);
    assert_true(r.objective <= r.bound + 1e-6);
    double objective = 0, used[6] = {0};
    for (int c = 0; c < 60; c++) {
        assert_true(r.values[c] == 0 || r.values[c] == 1);
        objective += r.values[c] * worth[c];
        for (int k = 0; k < 6; k++)
            used[k] += r.values[c] * weight[k][c];
    }
    assert_true(fabs(objective - r.objective) < 1e-6);
    for (int k = 0; k < 6; k++)
        assert_true(used[k] <= 2500 + 1e-6);
    lp_program_destroy(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_linear_programme_has_its_optimum_and_duals),
        cmocka_unit_test(whole_numbers_are_whole_and_bounded_by_the_relaxation),
        cmocka_unit_test(a_contradiction_is_infeasible_and_no_error),
        cmocka_unit_test(the_text_names_rows_and_columns),
        cmocka_unit_test(a_hard_programme_stops_in_time_with_the_best_it_found),
    };
    return cmocka_run_group_tests_name("lp", tests, NULL, NULL);
}
