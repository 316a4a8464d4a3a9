#include <math.h>

#include "common/doubles.h"
#include "tests/test.h"

TEST(doubles_are_sorted_up)
{
    double x[] = {3, -INFINITY, 1e300, 0.5, 3, INFINITY, -1e-300};
    static const double sorted[] = {-INFINITY, -1e-300, 0.5, 3, 3, 1e300, INFINITY};
    doubles_sort(x, 7);
    assert_memory_equal(x, sorted, sizeof sorted);
    doubles_sort(NULL, 0);
}

TEST(a_median_is_in_the_middle)
{
    static const double x[] = {1, 2, 4, 8, 1e308, 1.5e308};
    assert_true(doubles_median(x, 1) == 1);
    assert_true(doubles_median(x, 2) == 1.5);
    assert_true(doubles_median(x, 3) == 2);
    assert_true(doubles_median(x, 4) == 3);
    assert_true(doubles_median(x + 4, 2) == 1.25e308);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(doubles_are_sorted_up),
                                       cmocka_unit_test(a_median_is_in_the_middle)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
