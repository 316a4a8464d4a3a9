#include <cmocka.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include "common/bytes.h"
#include "planners/lp.h"

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

static void a_linear_programme_has_its_optimum_and_duals(void **state)
{
    (void)state;
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

static void whole_numbers_are_whole_and_bounded_by_the_relaxation(void **state)
{
    (void)state;
    struct lp_program *p = small_program(2.5, true);
    struct lp_result r;
    struct err e = {0};
    assert_int_equal(lp_program_solve(p, &(struct lp_limits){.seconds = 5}, &env_real, &r, &e), 0);
    assert_int_equal(r.outcome, LP_OPTIMAL);
    assert_true(fabs(r.values[0] - 2) < 1e-9 && fabs(r.values[1] - 1) < 1e-9);
    assert_true(fabs(r.objective - 8) < 1e-9);
    lp_program_destroy(&p);
}

static void a_contradiction_is_infeasible_and_no_error(void **state)
{
    (void)state;
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

static void the_text_names_rows_and_columns(void **state)
{
    (void)state;
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

/* A knapsack that lp_solve cannot finish at once: it must stop when its time is up. */
static void a_hard_programme_stops_in_time(void **state)
{
    (void)state;
    struct err e = {0};
    struct lp_program *p;
    uint64_t seed = 7;
    assert_int_equal(lp_program_create("knapsacks", true, &p, &e), 0);
    int rows[6];
    for (int r = 0; r < 6; r++)
        rows[r] = lp_row_add(p, NULL, LP_AT_MOST, 2500, &e);
    for (int c = 0; c < 60; c++) {
        int column = lp_column_add(p, NULL, 50 + 100 * random_unit(&seed), 0, 1, true, &e);
        for (int r = 0; r < 6; r++)
            assert_int_equal(lp_term_add(p, rows[r], column, 50 + 100 * random_unit(&seed), &e), 0);
    }
    struct lp_result r;
    assert_int_equal(lp_program_solve(p, &(struct lp_limits){.seconds = 0.2}, &env_real, &r, &e),
                     0);
    assert_true(r.outcome == LP_FEASIBLE || r.outcome == LP_NOTHING || r.outcome == LP_OPTIMAL);
    assert_true(r.seconds < 0.5 * env_time_scale());
    if (r.values)
        assert_true(r.objective <= r.bound + 1e-6);
    lp_program_destroy(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_linear_programme_has_its_optimum_and_duals),
        cmocka_unit_test(whole_numbers_are_whole_and_bounded_by_the_relaxation),
        cmocka_unit_test(a_contradiction_is_infeasible_and_no_error),
        cmocka_unit_test(the_text_names_rows_and_columns),
        cmocka_unit_test(a_hard_programme_stops_in_time),
    };
    return cmocka_run_group_tests_name("lp", tests, NULL, NULL);
}
