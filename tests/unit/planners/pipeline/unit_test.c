#include <stddef.h>
#include <stdint.h>

#include "common/profile.h"
#include "planners/pipeline/pipeline.h"
#include "tests/test.h"

TEST(slices_are_as_long_as_is_useful_where_nobody_says)
{
    static const struct {
        double useful;
        int asked, tokens, unit;
    } cases[] = {{0, 0, 2048, 16}, {64, 0, 2048, 64}, {64, 0, 256, 32}, {64, 8, 2048, 8},
                 {4, 0, 2048, 16}, {500, 0, 64, 16},  {0, 32, 10, 32}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct profile p = {.useful_slice_tokens = cases[i].useful};
        struct pipeline_request rq = {
            .profile = &p, .tokens = cases[i].tokens, .unit = cases[i].asked};
        assert_int_equal(pipeline_unit(&rq), cases[i].unit);
    }
}

TEST(slices_are_whole_steps_of_the_kernels_that_run_them)
{
    static const struct {
        double useful;
        int asked, step, unit;
    } cases[] = {{0, 0, 12, 12}, {0, 0, 6, 12}, {64, 0, 12, 60}, {0, 0, 16, 16},
                 {0, 0, 48, 48}, {0, 8, 12, 8}, {0, 0, 0, 16}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct profile_table tables[] = {{.step = 0}, {.step = cases[i].step}};
        struct profile p = {
            .useful_slice_tokens = cases[i].useful, .n_kinds = 1, .n_classes = 2, .tables = tables};
        struct pipeline_request rq = {.profile = &p, .tokens = 2048, .unit = cases[i].asked};
        assert_int_equal(pipeline_unit(&rq), cases[i].unit);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slices_are_as_long_as_is_useful_where_nobody_says),
        cmocka_unit_test(slices_are_whole_steps_of_the_kernels_that_run_them)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
