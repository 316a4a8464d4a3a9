#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/machine.h"
#include "tests/test.h"

enum { OPEN, SHUT, GONE };
static const struct machine_state door[] = {
    [OPEN] = {"open", MACHINE_TO(SHUT)},
    [SHUT] = {"shut", MACHINE_TO(OPEN) | MACHINE_TO(GONE)},
    [GONE] = {"gone", 0},
};

TEST(a_machine_moves_along_its_table)
{
    int now = OPEN;
    assert_true(machine_may(door, OPEN, SHUT));
    assert_false(machine_may(door, OPEN, GONE));
    assert_false(machine_may(door, OPEN, OPEN));
    machine_move(door, &now, SHUT);
    machine_move(door, &now, OPEN);
    machine_move(door, &now, SHUT);
    machine_move(door, &now, GONE);
    assert_int_equal(now, GONE);
    for (int to = OPEN; to <= GONE; to++)
        assert_false(machine_may(door, GONE, to));
}

TEST(a_move_outside_the_table_stops_the_program)
{
    int status;
    pid_t child = fork();
    if (child == 0) {
        int now = OPEN;
        close(STDERR_FILENO);
        machine_move(door, &now, GONE);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_machine_moves_along_its_table),
        cmocka_unit_test(a_move_outside_the_table_stops_the_program),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
