#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/thread_turns.h"
#include "tests/test.h"

struct turns_attributes {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime_ns, deadline_ns, period_ns;
};

struct turns_told {
    struct turns_attributes before, after;
    int rc;
};

static void *short_thread(void *ctx)
{
    struct turns_told *t = ctx;
    setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), 3);
    t->rc = (int)syscall(SYS_sched_getattr, 0, &t->before, sizeof t->before, 0);
    thread_turns_short();
    syscall(SYS_sched_getattr, 0, &t->after, sizeof t->after, 0);
    return NULL;
}

/* Whatever the kernel makes of it: the thread has no longer turns than before, the same policy and
 * the same share, and others are as they were. */
TEST(a_thread_that_asks_for_short_turns_keeps_its_share)
{
    struct turns_told t = {0};
    struct turns_attributes own = {0}, then = {0};
    pthread_t thread;
    int rc = (int)syscall(SYS_sched_getattr, 0, &own, sizeof own, 0);
    assert_int_equal(pthread_create(&thread, NULL, short_thread, &t), 0);
    pthread_join(thread, NULL);
    if (rc < 0 || t.rc < 0)
        return; /* not to be had here */
    assert_int_equal(t.after.policy, t.before.policy);
    assert_int_equal(t.after.nice, t.before.nice);
    assert_true(t.after.runtime_ns <= t.before.runtime_ns);
    if (t.before.runtime_ns && t.before.policy == SCHED_OTHER) /* Linux 6.12: it has a length */
        assert_int_equal(t.after.runtime_ns, 100000);
    assert_int_equal(syscall(SYS_sched_getattr, 0, &then, sizeof then, 0), 0);
    assert_int_equal(then.runtime_ns, own.runtime_ns);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_thread_that_asks_for_short_turns_keeps_its_share),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
