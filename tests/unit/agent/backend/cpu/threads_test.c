#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <time.h>

#include "agent/backend/cpu/threads.h"
#include "tests/test.h"

enum { MOST = 6, ROUNDS = 2000 };

struct tally {
    atomic_int parts[MOST * 3];
    atomic_int inside[MOST]; /* calls of a thread that are running */
    int total_threads;
};

static void count_part(void *ctx, int thread, uint32_t part)
{
    struct tally *t = ctx;
    assert_in_range(thread, 0, t->total_threads - 1);
    assert_int_equal(atomic_fetch_add(&t->inside[thread], 1), 0);
    atomic_fetch_add(&t->parts[part], 1);
    atomic_fetch_sub(&t->inside[thread], 1);
}

TEST(every_part_is_done_once_a_round)
{
    for (int n = 1; n <= MOST; n++) {
        struct threads *t;
        struct err e = {0};
        struct tally tally = {.total_threads = n};
        assert_int_equal(threads_create(n, NULL, 0, &t, &e), 0);
        for (int i = 0; i < ROUNDS; i++) {
            threads_run(t, (uint32_t)n * 3, count_part, &tally);
            assert_int_equal(atomic_load(&tally.parts[i % (n * 3)]), i + 1);
        }
        threads_run(t, 0, count_part, &tally);
        for (int i = 0; i < n * 3; i++)
            assert_int_equal(atomic_load(&tally.parts[i]), ROUNDS);
        threads_destroy(&t);
        assert_null(t);
    }
}

/* A part that waits for another one proves that two threads are at work, after the others were
 * parked. */
struct meeting {
    atomic_int here;
};

static void meet(void *ctx, int thread, uint32_t part)
{
    struct meeting *m = ctx;
    (void)thread, (void)part;
    atomic_fetch_add(&m->here, 1);
    while (atomic_load(&m->here) % 2 != 0)
        sched_yield();
}

TEST(parked_threads_wake)
{
    struct threads *t;
    struct err e = {0};
    struct meeting m = {0};
    assert_int_equal(threads_create(2, NULL, 0, &t, &e), 0);
    for (int i = 0; i < 20; i++) {
        threads_run(t, 2, meet, &m);
        nanosleep(&(struct timespec){0, 2000000}, NULL);
    }
    assert_int_equal(atomic_load(&m.here), 40);
    threads_destroy(&t);
}

static void note_core(void *ctx, int thread, uint32_t part)
{
    atomic_int *cores = ctx;
    (void)part;
    atomic_store(&cores[thread], sched_getcpu());
}

TEST(threads_stay_on_the_cores_given)
{
    struct threads *t;
    struct err e = {0};
    cpu_set_t allowed;
    int core = 0;
    assert_int_equal(sched_getaffinity(0, sizeof allowed, &allowed), 0);
    while (!CPU_ISSET((size_t)core, &allowed))
        core++;
    atomic_int seen[3] = {-1, core, core};
    assert_int_equal(threads_create(3, &core, 1, &t, &e), 0);
    for (int i = 0; i < 200; i++)
        threads_run(t, 30, note_core, seen);
    assert_int_equal(atomic_load(&seen[1]), core);
    assert_int_equal(atomic_load(&seen[2]), core);
    threads_destroy(&t);
    int nowhere = -3;
    assert_int_equal(threads_create(2, &nowhere, 1, &t, &e), HP_EINVAL);
}

TEST(parts_cover_everything_once_in_whole_grains)
{
    for (int n_threads = 1; n_threads <= 3; n_threads++) {
        struct threads *t;
        struct err e = {0};
        assert_int_equal(threads_create(n_threads, NULL, 0, &t, &e), 0);
        for (size_t n = 0; n < 2000; n += 97)
            for (size_t grain = 1; grain <= 64; grain *= 4)
                for (size_t most = 0; most <= 256; most += 64) {
                    struct parts p = threads_parts(t, n, grain, most);
                    size_t next = 0;
                    for (uint32_t i = 0; i < p.count; i++) {
                        assert_int_equal(parts_begin(&p, i), next);
                        next = parts_end(&p, i);
                        assert_true(next > parts_begin(&p, i) && (next % grain == 0 || next == n));
                        assert_true(most == 0 || next - parts_begin(&p, i) <= most);
                    }
                    assert_int_equal(next, n);
                }
        threads_destroy(&t);
    }
}

struct shared {
    struct threads *t;
    atomic_int busy[4]; /* by thread number: whoever is at work as it */
    atomic_int done[2], wrong;
    atomic_bool stop;
};

static void note_busy(struct shared *s, int thread, int who)
{
    atomic_fetch_add(&s->wrong, atomic_fetch_add(&s->busy[thread], 1) != 0);
    sched_yield();
    atomic_fetch_sub(&s->busy[thread], 1);
    atomic_fetch_add(&s->done[who], 1);
}

static void caller_part(void *ctx, int thread, uint32_t part)
{
    (void)part;
    note_busy(ctx, thread, 0);
}

static void guest_part(void *ctx, int thread, uint32_t part)
{
    (void)part;
    note_busy(ctx, thread, 1);
}

static void *guest_main(void *ctx)
{
    struct shared *s = ctx;
    threads_guest_enter(s->t);
    for (int i = 0; i < 100; i++)
        threads_run(s->t, 23, guest_part, s);
    return NULL;
}

TEST(guest_works_beside_the_caller_and_never_as_the_same_thread)
{
    for (int n = 1; n <= 3; n++) {
        struct shared s = {0};
        struct err e = {0};
        pthread_t guest;
        assert_int_equal(threads_create(n, NULL, 0, &s.t, &e), 0);
        assert_int_equal(pthread_create(&guest, NULL, guest_main, &s), 0);
        for (int i = 0; i < 100; i++)
            threads_run(s.t, 17, caller_part, &s);
        pthread_join(guest, NULL);
        assert_int_equal(atomic_load(&s.done[0]), 1700);
        assert_int_equal(atomic_load(&s.done[1]), 2300);
        assert_int_equal(atomic_load(&s.wrong), 0);
        threads_destroy(&s.t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_part_is_done_once_a_round),
        cmocka_unit_test(parked_threads_wake),
        cmocka_unit_test(threads_stay_on_the_cores_given),
        cmocka_unit_test(parts_cover_everything_once_in_whole_grains),
        cmocka_unit_test(guest_works_beside_the_caller_and_never_as_the_same_thread),
    };
    return cmocka_run_group_tests_name("threads", tests, NULL, NULL);
}
