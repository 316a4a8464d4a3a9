/* What requests took, and what is guessed of it. */
#include "hpctl/run_times.h"
#include "tests/test.h"

static const uint64_t ms = 1000000;

TEST(of_nothing_nothing_is_known)
{
    struct run_times t = {0};
    struct run_guess g = run_times_guess(&t, 1000, 5);
    assert_int_equal(g.ns, 0);
    assert_false(g.is_sure);
}

TEST(the_first_of_a_size_counts_until_the_second)
{
    struct run_times t = {0};
    run_times_note(&t, 1000, 90 * ms, 0);
    assert_int_equal(run_times_guess(&t, 1000, 1).ns, 90 * ms);
    for (int i = 0; i < 3; i++)
        run_times_note(&t, 1010 - (uint64_t)i, 10 * ms, 0);
    assert_int_equal(t.n, 1);
    assert_int_equal(run_times_guess(&t, 1000, 1).ns, 10 * ms);
    assert_true(run_times_guess(&t, 1000, 1).is_sure);
    assert_false(run_times_guess(&t, 1000, 1001 * ms).is_sure);
}

TEST(times_that_vary_are_guessed_above_their_mean)
{
    struct run_times t = {0};
    for (uint64_t i = 0; i < 200; i++)
        run_times_note(&t, 1000, (8 + 4 * (i % 2)) * ms, i);
    assert_in_range(run_times_guess(&t, 1000, 200).ns, 12 * ms, 16 * ms);
}

TEST(of_other_sizes_the_nearest_is_taken_and_larger_ones_take_longer)
{
    struct run_times t = {0};
    run_times_note(&t, 1000, 10 * ms, 0);
    run_times_note(&t, 100000, 500 * ms, 0);
    assert_in_range(run_times_guess(&t, 2000, 1).ns, 20 * ms - 9, 20 * ms + 9);
    assert_int_equal(run_times_guess(&t, 500, 1).ns, 10 * ms);
    assert_int_equal(run_times_guess(&t, 90000, 1).ns, 500 * ms);
    assert_false(run_times_guess(&t, 2000, 1).is_sure);
    assert_true(run_times_guess(&t, UINT64_MAX, 1).ns <= UINT64_MAX / 2);
    assert_int_equal(run_times_guess(&t, 0, 1).ns, 10 * ms);
}

TEST(the_size_that_was_not_seen_for_longest_makes_room)
{
    struct run_times t = {0};
    for (uint64_t i = 0; i < RUN_TIMES_SIZES + 4; i++)
        run_times_note(&t, 1000ull << i, ms, i);
    assert_int_equal(t.n, RUN_TIMES_SIZES);
    for (int i = 0; i < t.n; i++)
        assert_true(t.sizes[i].bytes >= 1000u << 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(of_nothing_nothing_is_known),
        cmocka_unit_test(the_first_of_a_size_counts_until_the_second),
        cmocka_unit_test(times_that_vary_are_guessed_above_their_mean),
        cmocka_unit_test(of_other_sizes_the_nearest_is_taken_and_larger_ones_take_longer),
        cmocka_unit_test(the_size_that_was_not_seen_for_longest_makes_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
