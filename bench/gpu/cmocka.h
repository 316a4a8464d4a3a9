/* As much of cmocka as the tests of the cuda backend use, for boxes where nothing is installed but
 * a C compiler and CUDA (bench/gpu.sh). Each test is a process of its own: one that fails, hangs or
 * breaks the GPU's context ends alone, and the rest is still told. HP_TESTS_TOGETHER=1 runs all in
 * one process, which ends at the first failure (for tools that are slow to start). */
#ifndef HP_BENCH_GPU_CMOCKA_H
#define HP_BENCH_GPU_CMOCKA_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TEST_SECONDS_MAX = 30 };

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
#define assert_false(c) assert_true(!(c))
#define assert_non_null(p) assert_true((p) != NULL)
#define assert_null(p) assert_true((p) == NULL)
#define assert_int_equal(a, b) assert_true((long long)(a) == (long long)(b))
#define assert_int_not_equal(a, b) assert_true((long long)(a) != (long long)(b))
#define assert_memory_equal(a, b, n) assert_true(memcmp(a, b, n) == 0)

/* HP_TEST_SECONDS says otherwise: a stand-in takes its time. */
static inline unsigned test_seconds_max(void)
{
    const char *said = getenv("HP_TEST_SECONDS");
    int seconds = said ? atoi(said) : 0;
    return seconds > 0 ? (unsigned)seconds : TEST_SECONDS_MAX;
}

static inline bool test_run_apart(const struct CMUnitTest *t)
{
    pid_t child = fork();
    int status = 1;
    if (child == 0) {
        alarm(test_seconds_max());
        t->run(NULL);
        exit(0);
    }
    return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

static inline int cmocka_run_group_tests_name(const char *group, const struct CMUnitTest *tests,
                                              size_t n)
{
    const char *together = getenv("HP_TESTS_TOGETHER");
    int failed = 0;
    for (size_t i = 0; i < n; i++) {
        bool passes = true;
        if (together && strcmp(together, "1") == 0)
            tests[i].run(NULL);
        else
            passes = test_run_apart(&tests[i]);
        printf("%s %s: %s\n", passes ? "ok" : "not ok", group, tests[i].name);
        fflush(stdout);
        failed += !passes;
    }
    return failed;
}
#define cmocka_run_group_tests_name(group, tests, setup, teardown)                                 \
    cmocka_run_group_tests_name(group, tests, sizeof(tests) / sizeof *(tests))

#endif
