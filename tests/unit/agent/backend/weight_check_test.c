#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "agent/backend/backend.h"
#include "tests/test.h"

enum { ROWS = 4099, COLUMNS = 2048 };

static int64_t row_told(const struct weight *w)
{
    struct err e = {0};
    unsigned long long value, row;
    if (backend_weight_check(w, WEIGHT_MATMUL, &e) == 0)
        return -1;
    assert_int_equal(sscanf(e.text, "tensor big: value %llu (row %llu)", &value, &row), 2);
    assert_int_equal(value / COLUMNS, row);
    return (int64_t)row;
}

/* Several threads look at them. */
TEST(first_number_of_a_large_weight_that_is_none_is_told_by_its_row)
{
    static const int64_t rows[] = {0, 1, 682, 683, 684, 1366, 2049, 2050, 3415, 3416, ROWS - 1};
    float *values = calloc((size_t)ROWS * COLUMNS, sizeof *values);
    const struct weight w = {.name = "big",
                             .dtype = DTYPE_F32,
                             .format = "F32",
                             .n_dims = 2,
                             .shape = {ROWS, COLUMNS},
                             .data = (const uint8_t *)values,
                             .bytes = (uint64_t)ROWS * COLUMNS * sizeof *values};
    assert_non_null(values);
    assert_int_equal(row_told(&w), -1);
    values[(size_t)ROWS * COLUMNS - 1] = INFINITY; /* never the first, but in the last round */
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        float *bad = values + (size_t)rows[i] * COLUMNS + (rows[i] % COLUMNS);
        *bad = NAN;
        assert_int_equal(row_told(&w), rows[i]);
        *bad = 0;
    }
    free(values);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_number_of_a_large_weight_that_is_none_is_told_by_its_row),
    };
    return cmocka_run_group_tests_name("weight_check", tests, NULL, NULL);
}
