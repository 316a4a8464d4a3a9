#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

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

/* The pool's second thread, as the system sees it. */
struct second_thread {
    struct meeting meeting;
    pid_t id;
    clockid_t clock; /* of its processor time */
};

static void note_second(void *ctx, int thread, uint32_t part)
{
    struct second_thread *s = ctx;
    if (thread == 1) {
        s->id = gettid();
        assert_int_equal(pthread_getcpuclockid(pthread_self(), &s->clock), 0);
    }
    meet(&s->meeting, thread, part);
}

static void no_work(void *ctx, int thread, uint32_t part)
{
    (void)ctx, (void)thread, (void)part;
}

static uint64_t clock_ns(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* How often it has parked. */
static long times_parked(const struct second_thread *s)
{
    char path[64], line[128];
    long times = -1;
    snprintf(path, sizeof path, "/proc/self/task/%d/status", (int)s->id);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    while (times < 0 && fgets(line, sizeof line, f))
        sscanf(line, "voluntary_ctxt_switches: %ld", &times);
    fclose(f);
    assert_true(times >= 0);
    return times;
}

/* The caller on the first core that there is, the other thread on the first or the second; NULL:
 * there is no second. */
static struct threads *pair_create(bool apart, struct second_thread *s, cpu_set_t *allowed)
{
    struct threads *t;
    struct err e = {0};
    cpu_set_t first;
    int cores[2], n = 0;
    *s = (struct second_thread){0};
    assert_int_equal(sched_getaffinity(0, sizeof *allowed, allowed), 0);
    for (int i = 0; i < CPU_SETSIZE && n < 2; i++)
        if (CPU_ISSET((size_t)i, allowed))
            cores[n++] = i;
    if (apart && n < 2) {
        print_message("# not with one core\n");
        return NULL;
    }
    CPU_ZERO(&first);
    CPU_SET((size_t)cores[0], &first);
    assert_int_equal(sched_setaffinity(0, sizeof first, &first), 0);
    assert_int_equal(threads_create(2, &cores[apart], 1, &t, &e), 0);
    threads_run(t, 2, note_second, s);
    return t;
}

static void pair_destroy(struct threads *t, const cpu_set_t *allowed)
{
    threads_destroy(&t);
    assert_int_equal(sched_setaffinity(0, sizeof *allowed, allowed), 0);
}

TEST(threads_stay_awake_between_the_operators_of_a_step)
{
    enum { OPERATORS = 400, GAP_NS = 50000 };
    cpu_set_t allowed;
    struct second_thread s;
    struct threads *t = pair_create(true, &s, &allowed);
    long before = t ? times_parked(&s) : 0;
    for (int i = 0; t && i < OPERATORS; i++) {
        threads_run(t, 2, no_work, NULL);
        for (uint64_t end = clock_ns(CLOCK_MONOTONIC) + GAP_NS; clock_ns(CLOCK_MONOTONIC) < end;)
            ;
    }
    /* not never: where others take the caller's core for longer than a thread waits */
    if (t)
        assert_in_range(times_parked(&s) - before, 0, OPERATORS / 4);
    pair_destroy(t, &allowed);
}

/* Processor time of the second thread while the caller sleeps behind every step: not that within
 * steps, where either waits for the other and whoever else has its core. */
static uint64_t behind_steps_ns(bool apart, bool rest, int steps)
{
    cpu_set_t allowed;
    struct second_thread s;
    struct threads *t = pair_create(apart, &s, &allowed);
    uint64_t ns = 0;
    for (int i = 0; t && i < steps; i++) {
        threads_run(t, 2, meet, &s.meeting);
        if (rest)
            threads_rest(t);
        uint64_t before = clock_ns(s.clock);
        nanosleep(&(struct timespec){0, 1000000}, NULL);
        ns += clock_ns(s.clock) - before;
    }
    pair_destroy(t, &allowed);
    return ns;
}

TEST(threads_park_as_soon_as_a_step_is_over_or_they_are_on_the_core_of_who_is_waited_for)
{
    enum { STEPS = 20, LESS_NS = 20000, TRIES = 20 };
    /* A thread that others keep from its core does not wait there either: then once more. */
    for (int i = 0; i < TRIES; i++) {
        uint64_t stays = behind_steps_ns(true, false, STEPS),
                 rests = behind_steps_ns(true, true, STEPS),
                 beside = behind_steps_ns(false, false, STEPS), less = (uint64_t)STEPS * LESS_NS;
        if (stays == 0 || (rests + less < stays && beside + less < stays))
            return;
    }
    fail_msg("threads wait as long behind a step, or beside whom they wait for, as within it");
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
        cmocka_unit_test(threads_stay_awake_between_the_operators_of_a_step),
        cmocka_unit_test(
            threads_park_as_soon_as_a_step_is_over_or_they_are_on_the_core_of_who_is_waited_for),
        cmocka_unit_test(threads_stay_on_the_cores_given),
        cmocka_unit_test(parts_cover_everything_once_in_whole_grains),
        cmocka_unit_test(guest_works_beside_the_caller_and_never_as_the_same_thread),
    };
    return cmocka_run_group_tests_name("threads", tests, NULL, NULL);
}
