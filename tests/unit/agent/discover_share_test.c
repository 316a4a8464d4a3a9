/* What an agent takes of its box's memory: within a real control group where the test may make one,
 * and how it is divided. */
#include <sys/wait.h>

#include "agent/discover.h"
#include "common/host_limits.h"
#include "tests/test.h"
#include "tests/unit/agent/store_fixture.h"

/* Writes a number to a file of a group; false when that is not allowed here. */
static bool group_say(const char *group, const char *file, const char *text)
{
    char path[400];
    snprintf(path, sizeof path, "%s/%s", group, file);
    FILE *f =
        fopen(path, "r+"); /* only the system makes them: a folder that is no group has none */
    bool good = f && fputs(text, f) >= 0;
    if (f)
        good = fclose(f) == 0 && good;
    return good;
}

/* In the child: joins the group and looks at what it may have; the exit status is the answer. */
static void child_look(const char *group, uint64_t limit)
{
    struct discover_share share;
    char pid[32];
    snprintf(pid, sizeof pid, "%ld", (long)getpid());
    if (!group_say(group, "cgroup.procs", pid))
        _exit(77);
    bool good =
        discover_share(NULL, 0, 0, &share, NULL) == 0 && share.memory_bytes == limit / 10 * 9;
    good = good && discover_share(NULL, 0, 4 * limit, &share, NULL) == 0 &&
           share.memory_bytes == limit; /* --memory says more than there is */
    _exit(good ? 0 : 1);
}

TEST(a_real_memory_group_is_kept_to)
{
    static const char *const mounts[][2] = {{"/sys/fs/cgroup", "memory.max"},
                                            {"/sys/fs/cgroup/memory", "memory.limit_in_bytes"}};
    for (size_t i = 0; i < 2; i++) {
        char group[256];
        int status = 0;
        snprintf(group, sizeof group, "%s/hp-test-%ld", mounts[i][0], (long)getpid());
        if (mkdir(group, 0755) != 0)
            continue;
        if (group_say(group, mounts[i][1], "536870912")) {
            pid_t child = fork();
            if (child == 0)
                child_look(group, 536870912);
            waitpid(child, &status, 0);
            rmdir(group);
            if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
                continue;
            assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
            return;
        }
        rmdir(group);
    }
    print_message("no control group can be made here\n");
    skip();
}

TEST(memory_is_divided_without_a_rest)
{
    static const uint64_t sizes[] = {
        1, 1000, 3000000, 1 << 30, (uint64_t)16 << 30, (uint64_t)512 << 30};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct discover_share s = {.memory_bytes = sizes[i]};
        uint64_t pool = discover_pool_bytes(&s), stages = discover_stage_bytes(&s);
        assert_true(stages + pool / 4 * 5 <= s.memory_bytes);
        assert_true(stages >= s.memory_bytes / 100 * 80);
        assert_true(pool <= DISCOVER_MAX_POOL);
    }
}

TEST(an_agent_takes_nine_tenths_of_what_everybody_calls_the_box)
{
    struct discover_share s;
    assert_int_equal(discover_share(NULL, 0, 0, &s, NULL), 0);
    assert_true(s.memory_bytes == host_memory_default());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_real_memory_group_is_kept_to),
        cmocka_unit_test(memory_is_divided_without_a_rest),
        cmocka_unit_test(an_agent_takes_nine_tenths_of_what_everybody_calls_the_box),
    };
    return cmocka_run_group_tests_name("discover_share", tests, NULL, NULL);
}
