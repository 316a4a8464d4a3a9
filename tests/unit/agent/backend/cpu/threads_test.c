#include "agent/backend/cpu/threads.h"

#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <time.h>

#include <cmocka.h>

enum { MOST = 6, ROUNDS = 2000 };

struct tally {
    atomic_int calls[MOST];
    int total_threads;
};

static void count_call(void *ctx, int thread)
{
    struct tally *t = ctx;
    assert_in_range(thread, 0, t->total_threads - 1);
    atomic_fetch_add(&t->calls[thread], 1);
}

static void every_thread_runs_once_a_round(void **state)
{
    (void)state;
    for (int n = 1; n <= MOST; n++) {
        struct threads *t;
        struct err e = {0};
        struct tally tally = {.total_threads = n};
        assert_int_equal(threads_create(n, NULL, 0, &t, &e), 0);
        for (int i = 0; i < ROUNDS; i++)
            threads_run(t, count_call, &tally);
        for (int i = 0; i < n; i++)
            assert_int_equal(atomic_load(&tally.calls[i]), ROUNDS);
        threads_destroy(&t);
        assert_null(t);
    }
}

/* Threads that parked in between wake up for the next round. */
static void parked_threads_wake(void **state)
{
    (void)state;
    struct threads *t;
    struct err e = {0};
    struct tally tally = {.total_threads = 3};
    assert_int_equal(threads_create(3, NULL, 0, &t, &e), 0);
    for (int i = 0; i < 20; i++) {
        threads_run(t, count_call, &tally);
        nanosleep(&(struct timespec){0, 2000000}, NULL);
    }
    assert_int_equal(atomic_load(&tally.calls[2]), 20);
    threads_destroy(&t);
}

static void note_core(void *ctx, int thread)
{
    int *cores = ctx;
    cores[thread] = sched_getcpu();
}

static void threads_stay_on_the_cores_given(void **state)
{
    (void)state;
    struct threads *t;
    struct err e = {0};
    cpu_set_t allowed;
    int core = 0, seen[3];
    assert_int_equal(sched_getaffinity(0, sizeof allowed, &allowed), 0);
    while (!CPU_ISSET((size_t)core, &allowed))
        core++;
    assert_int_equal(threads_create(3, &core, 1, &t, &e), 0);
    threads_run(t, note_core, seen);
    assert_int_equal(seen[1], core);
    assert_int_equal(seen[2], core);
    threads_destroy(&t);
    int nowhere = -3;
    assert_int_equal(threads_create(2, &nowhere, 1, &t, &e), HP_EINVAL);
}

static void parts_cover_everything_once_in_whole_grains(void **state)
{
    (void)state;
    for (size_t n = 0; n < 200; n += 7)
        for (size_t grain = 1; grain <= 64; grain *= 4)
            for (int count = 1; count <= 5; count++) {
                size_t next = 0;
                for (int i = 0; i < count; i++) {
                    size_t begin, end;
                    threads_part(n, grain, i, count, &begin, &end);
                    assert_int_equal(begin, next);
                    assert_true(end >= begin && (begin % grain == 0 || begin == n));
                    next = end;
                }
                assert_int_equal(next, n);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_thread_runs_once_a_round),
        cmocka_unit_test(parked_threads_wake),
        cmocka_unit_test(threads_stay_on_the_cores_given),
        cmocka_unit_test(parts_cover_everything_once_in_whole_grains),
    };
    return cmocka_run_group_tests_name("threads", tests, NULL, NULL);
}
