/* As much of cmocka as the tests of the cuda backend use, for boxes where nothing is installed but
 * a C compiler and CUDA (bench/gpu.sh). The first test that fails ends the program. */
#ifndef HP_BENCH_GPU_CMOCKA_H
#define HP_BENCH_GPU_CMOCKA_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct CMUnitTest {
    const char *name;
    void (*run)(void **state);
};
#define cmocka_unit_test(f)                                                                        \
    {                                                                                              \
#f, f                                                                                      \
    }

#define fail_msg(...) (printf(__VA_ARGS__), printf(": failed\n"), exit(1))
#define assert_true(c) ((c) ? (void)0 : fail_msg("%s:%d: %s", __FILE__, __LINE__, #c))
#define assert_non_null(p) assert_true((p) != NULL)
#define assert_null(p) assert_true((p) == NULL)
#define assert_int_equal(a, b) assert_true((long long)(a) == (long long)(b))
#define assert_int_not_equal(a, b) assert_true((long long)(a) != (long long)(b))
#define assert_memory_equal(a, b, n) assert_true(memcmp(a, b, n) == 0)

static inline int cmocka_run_group_tests_name(const char *group, const struct CMUnitTest *tests,
                                              size_t n)
{
    for (size_t i = 0; i < n; i++) {
        tests[i].run(NULL);
        printf("ok %s: %s\n", group, tests[i].name);
        fflush(stdout);
    }
    return 0;
}
#define cmocka_run_group_tests_name(group, tests, setup, teardown)                                 \
    cmocka_run_group_tests_name(group, tests, sizeof(tests) / sizeof *(tests))

#endif
