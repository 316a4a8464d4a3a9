/* Shares of GPUs, as an agent's devices ask for them. */
#include <string.h>

#include "agent/gpu_spec.h"
#include "tests/test.h"

enum { MOST = 5 };

static int divide(const char *const *texts, int n, struct discover_device *devices, struct err *e)
{
    struct gpu_spec specs[MOST];
    const char *after;
    for (int i = 0; i < n; i++)
        if (gpu_spec_read(texts[i], &specs[i], &after, e) < 0)
            return -1;
    return gpu_specs_divide(specs, texts, n, devices, e);
}

TEST(shares_of_a_gpu_are_parts_that_nobody_else_has)
{
    static const struct {
        const char *texts[MOST];
        struct device_part parts[MOST];
        const char *names[MOST];
    } cases[] = {
        {{"cuda:0"}, {{0}}, {"cuda0"}},
        {{"cuda:3/share=1/4"}, {{4, 0, 1}}, {"cuda3"}},
        {{"cuda:0/share=1/4", "cpu", "cuda:1", "cuda:0/share=1/4"},
         {{4, 0, 1}, {0}, {0}, {4, 1, 1}},
         {"cuda0-0", "", "cuda1", "cuda0-1"}},
        {{"cuda:0/share=1/2", "cuda:0/share=1/4", "cuda:0/share=1/4"},
         {{4, 0, 2}, {4, 2, 1}, {4, 3, 1}},
         {"cuda0-0", "cuda0-1", "cuda0-2"}},
        {{"cuda:0/share=1/2", "cuda:0/share=1/3"}, {{6, 0, 3}, {6, 3, 2}}, {"cuda0-0", "cuda0-1"}},
        {{"cuda:0/share=1/3", "cuda:0/share=1/4", "cuda:12/share=1/3,mem=1G", "cuda:0/share=1/3"},
         {{12, 0, 4}, {12, 4, 3}, {3, 0, 1}, {12, 7, 4}},
         {"cuda0-0", "cuda0-1", "cuda12", "cuda0-2"}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct discover_device devices[MOST] = {0};
        int n = 0;
        while (n < MOST && cases[i].texts[n])
            n++;
        assert_int_equal(divide(cases[i].texts, n, devices, NULL), 0);
        for (int d = 0; d < n; d++) {
            const struct device_part *p = &cases[i].parts[d];
            assert_string_equal(devices[d].name, cases[i].names[d] ? cases[i].names[d] : "");
            assert_int_equal(devices[d].part.cut, p->cut);
            assert_int_equal(devices[d].part.first, p->first);
            assert_int_equal(devices[d].part.count, p->count);
        }
    }
}

TEST(a_gpu_has_no_more_than_all_of_itself)
{
    static const char *const cases[][MOST] = {
        {"cuda:0/share=1/2", "cuda:0/share=1/3", "cuda:0/share=1/4"},
        {"cuda:0/share=1/4", "cuda:0/share=1/4", "cuda:0/share=1/4", "cuda:0/share=1/4",
         "cuda:0/share=1/4"},
        {"cuda:0/share=1/2", "cuda:0/share=1/2", "cuda:0/share=1/4"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct discover_device devices[MOST] = {0};
        struct err e = {0};
        int n = 0;
        while (n < MOST && cases[i][n])
            n++;
        assert_int_equal(divide(cases[i], n, devices, &e), HP_EUSAGE);
        assert_non_null(strstr(e.text, "/share=1/4: the devices before it leave no such share of"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shares_of_a_gpu_are_parts_that_nobody_else_has),
        cmocka_unit_test(a_gpu_has_no_more_than_all_of_itself),
    };
    return cmocka_run_group_tests_name("shares of gpus", tests, NULL, NULL);
}
