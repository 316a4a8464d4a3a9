/* Lines of reservations against an array with one cell a nanosecond. */
#include <stddef.h>
#include <string.h>

#include "common/env.h"
#include "planners/dispatch/reservations.h"
#include "tests/test.h"

enum { SPAN = 4000 };

static int64_t brute_earliest(const char *a, const char *b, int64_t from, int64_t length)
{
    for (int64_t t = from;; t++) {
        int64_t i = 0;
        while (i < length && !a[t + i] && !(b && b[t + i]))
            i++;
        if (i == length)
            return t;
    }
}

TEST(the_earliest_slot_is_that_of_exhaustive_search)
{
    for (uint64_t seed = 1; seed <= 50; seed++) {
        uint64_t random = seed;
        struct reservation_line a = {0}, b = {0};
        static char busy_a[4 * SPAN], busy_b[4 * SPAN];
        memset(busy_a, 0, sizeof busy_a);
        memset(busy_b, 0, sizeof busy_b);
        for (int i = 0; i < 60; i++) {
            int64_t from = (int64_t)(random_unit(&random) * SPAN),
                    length = 1 + (int64_t)(random_unit(&random) * 60);
            struct reservation_line *l = i % 2 ? &a : &b;
            char *busy = i % 2 ? busy_a : busy_b;
            int64_t t = line_earliest(l, from, length);
            assert_int_equal(t, brute_earliest(busy, NULL, from, length));
            assert_true(line_reserve(l, 0, t, t + length, (uint32_t)i));
            memset(busy + t, 1, (size_t)length);
            assert_int_equal(line_earliest_both(&a, &b, from, length),
                             brute_earliest(busy_a, busy_b, from, length));
        }
        line_free(&a);
        line_free(&b);
    }
}

TEST(the_past_is_forgotten_and_memory_stays_bounded)
{
    struct reservation_line l = {0};
    for (int64_t t = 0; t < 100000; t += 10)
        assert_true(line_reserve(&l, t, t + 5, t + 12, 1));
    assert_true(l.n < 4);
    assert_true(l.room <= 64);
    line_free(&l);
    /* Nothing passes: the oldest grow together, and what is reserved stays reserved. */
    for (int64_t t = 0; t < 10 * (LINE_MAX_INTERVALS + 200); t += 10)
        assert_true(line_reserve(&l, 0, t, t + 5, 1));
    assert_true(l.room <= 2 * (LINE_MAX_INTERVALS + 2) * 2);
    assert_true(line_earliest(&l, 0, 5) > 10);
    assert_int_equal(line_end(&l), 10 * (LINE_MAX_INTERVALS + 199) + 5);
    line_free(&l);
}

TEST(a_late_end_moves_what_follows)
{
    struct reservation_line l = {0};
    assert_true(line_reserve(&l, 0, 10, 20, 1));
    assert_true(line_reserve(&l, 0, 20, 30, 2));
    assert_true(line_reserve(&l, 0, 50, 60, 3));
    assert_true(line_correct(&l, 1, 10, 10, 27));
    assert_int_equal(line_earliest(&l, 0, 10), 0);
    assert_int_equal(line_earliest(&l, 0, 14), 60);
    assert_int_equal(line_earliest(&l, 27, 10),
                     37); /* the second went on at 27, and the third stayed */
    assert_true(line_correct(&l, 3, 50, 50, 52));
    assert_int_equal(line_end(&l), 52);
    assert_false(line_correct(&l, 9, 0, 0, 1));
    line_free(&l);
}

/* Four of 10 ms each; the share stood still for 100 ms, and the first is told of when the plan has
 * all behind it. */
TEST(what_has_not_happened_yet_moves_too_where_intervals_stay)
{
    struct reservation_line l = {.stay = true};
    for (int i = 0; i < 4; i++)
        assert_true(line_reserve(&l, 10 * i, 10 * i, 10 * i + 10, (uint32_t)i));
    assert_true(line_reserve(&l, 105, 105, 115, 4));
    assert_int_equal(l.n, 5);
    assert_true(line_correct(&l, 0, 0, 100, 110));
    assert_int_equal(line_earliest(&l, 105, 10), 150); /* three and the last one wait behind it */
    assert_true(line_reserve(&l, 112, 150, 160, 5));
    assert_int_equal(l.n, 5); /* the first is done with */
    /* Nothing was heard of the second: the third began, so that it is over. */
    assert_true(line_correct(&l, 2, 20, 120, 130));
    assert_int_equal(l.n, 4);
    assert_int_equal(line_end(&l), 160);
    for (int i = 6; i < 3 * LINE_MAX_INTERVALS; i++)
        assert_true(line_reserve(&l, 10 * i + 100, 10 * i + 100, 10 * i + 110, (uint32_t)i));
    assert_in_range(l.n, 1, LINE_MAX_INTERVALS); /* nobody tells of them any more */
    line_free(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_earliest_slot_is_that_of_exhaustive_search),
        cmocka_unit_test(the_past_is_forgotten_and_memory_stays_bounded),
        cmocka_unit_test(a_late_end_moves_what_follows),
        cmocka_unit_test(what_has_not_happened_yet_moves_too_where_intervals_stay),
    };
    return cmocka_run_group_tests_name("reservations", tests, NULL, NULL);
}
