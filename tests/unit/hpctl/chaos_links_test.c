/* Whom chaos tells that its links are to be slow: only who takes it. */
#include <math.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/link_fault.h"
#include "hpctl/chaos_links.h"
#include "tests/test.h"

/* A process that takes `n` orders as an agent does and writes them to `out`, or one that sleeps. It
 * ends with this one. */
static pid_t process_start(int out, int n)
{
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    sigset_t set;
    struct signalfd_siginfo info;
    sigemptyset(&set);
    sigaddset(&set, LINK_FAULT_SIGNAL);
    if (n)
        sigprocmask(SIG_BLOCK, &set, NULL);
    int in = signalfd(-1, &set, 0);
    for (int i = 0; i < n && read(in, &info, sizeof info) == (ssize_t)sizeof info; i++) {
        struct link_fault f = link_fault_of(info.ssi_ptr);
        if (write(out, &f, sizeof f) != (ssize_t)sizeof f)
            _exit(1);
    }
    if (!n)
        pause();
    _exit(0);
}

TEST(who_takes_orders_gets_them_in_whole_milliseconds)
{
    static const struct {
        struct chaos_links how;
        struct link_fault f;
    } cases[] = {{{.late_s = 0.05, .for_s = 2}, {2000, 50, 0}},
                 {{.late_s = 0.0001, .lost = 0.00001, .for_s = 0.0001}, {1, 1, 1}},
                 {{.late_s = INFINITY, .for_s = 3.5}, {3500, LINK_FAULT_MOST_DELAY_MS, 0}},
                 {{.lost = 0.02, .for_s = 3.5}, {3500, 0, 20}},
                 {{.late_s = 0}, {0, 0, 0}},
                 {{.late_s = 1e9, .lost = 1, .for_s = 1e9},
                  {UINT32_MAX, LINK_FAULT_MOST_DELAY_MS, LINK_FAULT_MOST_LOST}}};
    enum { N = sizeof cases / sizeof *cases };
    int ends[2], status;
    struct link_fault f;
    assert_int_equal(pipe(ends), 0);
    pid_t pid = process_start(ends[1], N);
    for (int i = 0; i < N; i++)
        assert_int_equal(chaos_links_disturb(pid, &cases[i].how, NULL), 0);
    for (int i = 0; i < N; i++) {
        assert_int_equal(read(ends[0], &f, sizeof f), sizeof f);
        assert_true(f.delay_ms == cases[i].f.delay_ms && f.for_ms == cases[i].f.for_ms &&
                    f.lost == cases[i].f.lost);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    close(ends[0]);
    close(ends[1]);
}

TEST(who_takes_none_is_named_and_lives_on)
{
    const struct chaos_links how = {.late_s = 0.05, .for_s = 2};
    struct err e = {0};
    int status;
    pid_t pid = process_start(-1, 0);
    assert_int_equal(chaos_links_disturb(pid, &how, &e), HP_EUNSUPPORTED);
    assert_non_null(strstr(e.hint, "local up"));
    assert_int_equal(waitpid(pid, &status, WNOHANG), 0);
    kill(pid, SIGKILL);
    waitpid(pid, &status, 0);
    assert_int_equal(chaos_links_disturb(pid, &how, &e), HP_EUNSUPPORTED); /* who is gone, too */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_takes_orders_gets_them_in_whole_milliseconds),
        cmocka_unit_test(who_takes_none_is_named_and_lives_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
