#include <math.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/measure_grid.h"
#include "tests/test.h"

/* Devices as they are: launch cost, then products by tiles of 64 rows, then attention; one without
 * any bend; one that jumps. */
static double tiled(double s, double p)
{
    return 2e-4 + 1e-5 * 64 * ceil(s / 64) + 1e-8 * s * (p + s / 2);
}
static double straight(double s, double p)
{
    return 1e-4 + 1e-5 * s + 1e-7 * p;
}
static double knee(double s, double p)
{
    return fmax(1e-3, 1e-5 * s) * (1 + p / 4096);
}
static double curved(double s, double p)
{
    return 1e-5 + 4e-9 * (2 * p * s + s * s);
}

static const uint32_t slices[] = {1, 16, 64, 512}, prefixes[] = {0, 1024, 4096};

/* Measures until nothing is worth it or `most` points are there. */
static void measure(struct measure_grid *g, double (*cost)(double, double), int most,
                    double tolerance)
{
    struct grid_point p;
    grid_begin(g, slices, 4, prefixes, 3, tolerance);
    while (g->points < most && grid_next(g, &p)) {
        assert_true(p.slice >= 1 && p.slice <= 512 && p.prefix <= 4096);
        grid_tell(g, cost(p.slice, p.prefix));
    }
    assert_true(grid_is_whole(g));
    for (int axis = 0; axis < MEASURE_GRID_AXES; axis++)
        for (int i = 0; i + 1 < g->axes[axis].n; i++)
            assert_true(g->axes[axis].at[i] < g->axes[axis].at[i + 1]);
}

static double worst_error(const struct measure_grid *g, double (*cost)(double, double))
{
    double worst = 0;
    for (double s = 1; s <= 512; s += 7)
        for (double p = 0; p <= 4096; p += 256)
            worst = fmax(worst, fabs(grid_at(g, s, p) - cost(s, p)) / cost(s, p));
    return worst;
}

TEST(points_are_added_where_interpolation_errs)
{
    struct measure_grid coarse, fine;
    measure(&coarse, curved, 12, 0.03);
    measure(&fine, curved, 10000, 0.03);
    assert_true(worst_error(&coarse, curved) > 0.3);
    assert_true(worst_error(&fine, curved) < 0.08);
    measure(&fine, knee, 10000, 0.03);
    assert_true(worst_error(&fine, knee) < 0.08);
    /* The bend is at 100 tokens: most new slices stand around it. */
    int near = 0;
    for (int i = 0; i < fine.axes[0].n; i++)
        near += fine.axes[0].at[i] > 64 && fine.axes[0].at[i] < 200;
    assert_true(near >= 2 && fine.axes[1].n == 3);
}

TEST(what_is_straight_takes_one_look_an_interval)
{
    struct measure_grid g;
    measure(&g, straight, 10000, 0.03);
    assert_int_equal(g.axes[0].n, 4);
    assert_int_equal(g.axes[1].n, 3);
    assert_true(g.points <= 12 + 5);
    assert_true(worst_error(&g, straight) < 1e-9);
}

TEST(a_measurement_that_is_cut_short_leaves_a_whole_table)
{
    for (int most = 12; most < 60; most++) {
        struct measure_grid g;
        measure(&g, tiled, most, 0.01);
        assert_true(g.points <= most);
        for (int i = 0; i < g.axes[0].n; i++)
            for (int k = 0; k < g.axes[1].n; k++)
                assert_true(g.seconds[i][k] == tiled(g.axes[0].at[i], g.axes[1].at[k]));
    }
}

TEST(the_coarse_grid_alone_is_what_a_quick_look_gets)
{
    struct measure_grid g;
    measure(&g, curved, 10000, 1);
    assert_int_equal(g.points, 12);
    struct grid_point p;
    grid_begin(&g, slices, 1, prefixes, 1, 0.01);
    assert_true(grid_next(&g, &p) && p.slice == 1 && p.prefix == 0);
    grid_tell(&g, 2);
    assert_false(grid_next(&g, &p));
    assert_true(grid_at(&g, 100, 5) == 2);
}

TEST(a_slow_device_gets_a_whole_table_of_what_stood_in_time)
{
    for (int lines = 0; lines < 5; lines++) {
        struct measure_grid g;
        struct grid_point p;
        int asked = 0;
        grid_begin(&g, slices, 4, prefixes, 3, 1);
        while (grid_next(&g, &p)) {
            assert_false(g.points == 1 && grid_line_seconds(&g) > 0); /* two slices come first */
            grid_tell(&g, curved(p.slice, p.prefix));
            if (grid_line_seconds(&g) > 0 && asked++ == lines)
                grid_cut(&g);
        }
        static const int points[] = {2, 4, 6, 9, 12};
        assert_true(grid_is_whole(&g));
        assert_int_equal(g.points, points[lines]);
        assert_int_equal(g.axes[0].n * g.axes[1].n, points[lines]);
        for (int i = 0; i < g.axes[0].n; i++)
            for (int k = 0; k < g.axes[1].n; k++)
                assert_true(g.seconds[i][k] == curved(g.axes[0].at[i], g.axes[1].at[k]));
    }
}

/* The box was taken away for some milliseconds while one point was measured. */
TEST(what_was_disturbed_takes_no_longer_than_what_does_more)
{
    for (int disturbed = 0; disturbed < 12; disturbed++) {
        struct measure_grid g;
        measure(&g, curved, 10000, 1);
        int at = disturbed / 3, behind = disturbed % 3;
        bool last = at == 3 && behind == 2; /* nothing does more */
        double *point = &g.seconds[at][behind], truth = *point;
        *point = 1000 * truth;
        grid_settle(&g);
        double more = at < 3 ? g.seconds[at + 1][behind] : INFINITY;
        more = behind < 2 ? fmin(more, g.seconds[at][behind + 1]) : more;
        assert_true(*point == (last ? 1000 * truth : more));
        *point = truth;
        for (int i = 0; i < 4; i++)
            for (int k = 0; k < 3; k++)
                assert_true(g.seconds[i][k] == curved(g.axes[0].at[i], g.axes[1].at[k]));
    }
}

TEST(the_next_line_is_judged_by_the_last)
{
    struct measure_grid g;
    struct grid_point p;
    grid_begin(&g, slices, 4, prefixes, 1, 1);
    for (double line = 0; grid_next(&g, &p); line = grid_line_seconds(&g)) {
        double seconds = straight(p.slice, p.prefix);
        assert_true(line == 0 || (line > seconds && line < 9 * seconds));
        grid_tell(&g, seconds);
    }
    assert_true(grid_line_seconds(&g) == 0);
}

TEST(jumps_do_not_keep_it_busy_for_ever)
{
    struct measure_grid g;
    measure(&g, tiled, 1000000, 0.001);
    assert_true(g.axes[0].n <= MEASURE_GRID_MOST && g.axes[1].n <= MEASURE_GRID_MOST &&
                g.points < 2000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(points_are_added_where_interpolation_errs),
        cmocka_unit_test(what_is_straight_takes_one_look_an_interval),
        cmocka_unit_test(a_measurement_that_is_cut_short_leaves_a_whole_table),
        cmocka_unit_test(the_coarse_grid_alone_is_what_a_quick_look_gets),
        cmocka_unit_test(a_slow_device_gets_a_whole_table_of_what_stood_in_time),
        cmocka_unit_test(what_was_disturbed_takes_no_longer_than_what_does_more),
        cmocka_unit_test(the_next_line_is_judged_by_the_last),
        cmocka_unit_test(jumps_do_not_keep_it_busy_for_ever),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
