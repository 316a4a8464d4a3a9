#include <sched.h>
#include <stdatomic.h>

#include "common/spread.h"
#include "tests/test.h"

enum { N = 100 };

static atomic_int done[N];

static void part_count(void *ctx, int i)
{
    atomic_fetch_add((atomic_int *)ctx, 1);
    atomic_fetch_add(&done[i], 1);
}

TEST(each_part_is_done_once_however_many_there_are)
{
    static const int many[] = {1, 2, 7, N};
    for (int k = 0; k < 4; k++) {
        atomic_int all = 0;
        for (int i = 0; i < N; i++)
            done[i] = 0;
        spread_run(many[k], part_count, &all);
        assert_int_equal(all, many[k]);
        for (int i = 0; i < N; i++)
            assert_int_equal(done[i], i < many[k]);
    }
}

TEST(threads_are_no_more_than_parts_cores_and_what_is_asked_for)
{
    cpu_set_t before, one;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    assert_int_equal(spread_threads(8, 0), 1);
    assert_int_equal(spread_threads(8, 1), 1);
    assert_int_equal(spread_threads(1, 100), 1);
    assert_true(spread_threads(64, 1000) <= CPU_COUNT(&before));
    CPU_ZERO(&one);
    for (size_t i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; i++)
        if (CPU_ISSET(i, &before))
            CPU_SET(i, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    assert_int_equal(spread_threads(8, 100), 1);
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_part_is_done_once_however_many_there_are),
        cmocka_unit_test(threads_are_no_more_than_parts_cores_and_what_is_asked_for),
    };
    return cmocka_run_group_tests_name("spread", tests, NULL, NULL);
}
