/* Control groups of made-up systems. */
#include <string.h>

#include "common/host_limits.h"
#include "tests/test.h"
#include "tests/unit/folder.h"

struct tree_file {
    const char *path, *text;
};

static void tree_make(const char *root, const struct tree_file *files)
{
    for (; files->path; files++) {
        char path[1200];
        snprintf(path, sizeof path, "%s%s", root, files->path);
        for (char *p = path + strlen(root) + 1; (p = strchr(p, '/')) != NULL; p++) {
            *p = '\0';
            mkdir(path, 0755);
            *p = '/';
        }
        FILE *f = fopen(path, "w");
        assert_non_null(f);
        fputs(files->text, f);
        fclose(f);
    }
}

#define V2 "/sys/fs/cgroup"
#define V1 "/sys/fs/cgroup/memory"

TEST(the_tightest_group_from_its_own_to_the_root_counts)
{
    static const struct {
        const char *name;
        struct tree_file files[10];
        uint64_t bytes;
        double cpus;
        const char *group;
    } cases[] = {
        {"no groups at all", {{"/proc/self/cgroup", ""}}, UINT64_MAX, 0, ""},
        {"no /proc", {{"/etc/nothing", ""}}, UINT64_MAX, 0, ""},
        {"a service of systemd",
         {{"/proc/self/cgroup", "0::/system.slice/hp-agent.service\n"},
          {V2 "/system.slice/hp-agent.service/memory.max", "2000000000\n"},
          {V2 "/system.slice/hp-agent.service/cpu.max", "150000 100000\n"},
          {V2 "/system.slice/memory.max", "max\n"}},
         2000000000,
         1.5,
         V2 "/system.slice/hp-agent.service/memory.max"},
        {"a group above is tighter, and throttles",
         {{"/proc/self/cgroup", "0::/a/b\n"},
          {V2 "/a/b/memory.max", "9000\n"},
          {V2 "/a/memory.max", "max\n"},
          {V2 "/a/memory.high", "5000\n"},
          {V2 "/a/cpu.max", "max 100000\n"},
          {V2 "/a/b/cpu.max", "400000 100000\n"}},
         5000,
         4,
         V2 "/a/memory.high"},
        {"a container that sees its group as the root",
         {{"/proc/self/cgroup", "0::/\n"},
          {V2 "/memory.max", "4096\n"},
          {V2 "/cpu.max", "50000 100000\n"}},
         4096,
         0.5,
         V2 "/memory.max"},
        {"a place outside of what is seen",
         {{"/proc/self/cgroup", "0::/../../x\n"}, {V2 "/memory.max", "77\n"}},
         77,
         0,
         V2 "/memory.max"},
        {"version 1",
         {{"/proc/self/cgroup", "4:memory:/u/v\n3:cpu,cpuacct:/q\n0::/\n"},
          {V1 "/u/v/memory.limit_in_bytes", "9223372036854771712\n"},
          {V1 "/u/memory.limit_in_bytes", "1000000000\n"},
          {V1 "/memory.limit_in_bytes", "9223372036854771712\n"},
          {V2 "/cpu,cpuacct/q/cpu.cfs_quota_us", "250000\n"},
          {V2 "/cpu,cpuacct/q/cpu.cfs_period_us", "100000\n"}},
         1000000000,
         2.5,
         V1 "/u/memory.limit_in_bytes"},
        {"version 1 without limits",
         {{"/proc/self/cgroup", "4:memory:/\n3:cpu:/\n"},
          {V1 "/memory.limit_in_bytes", "9223372036854771712\n"},
          {V2 "/cpu/cpu.cfs_quota_us", "-1\n"},
          {V2 "/cpu/cpu.cfs_period_us", "100000\n"}},
         UINT64_MAX,
         0,
         ""},
        {"a container of version 1, whose place is not mounted",
         {{"/proc/self/cgroup", "4:memory:/docker/abc\n"},
          {V1 "/memory.limit_in_bytes", "123456\n"}},
         123456,
         0,
         V1 "/memory.limit_in_bytes"},
        {"another controller of a like name",
         {{"/proc/self/cgroup", "4:memory2,notmemory:/x\n"}, {V1 "/memory.limit_in_bytes", "5\n"}},
         UINT64_MAX,
         0,
         ""},
        {"a group that is larger than the box",
         {{"/proc/meminfo", "MemTotal:       1000 kB\nMemFree: 5 kB\n"},
          {"/proc/self/cgroup", "0::/\n"},
          {V2 "/memory.max", "1024001\n"}},
         1024000,
         0,
         ""},
        {"a group that is smaller than the box",
         {{"/proc/meminfo", "MemTotal: 1000 kB\n"},
          {"/proc/self/cgroup", "0::/\n"},
          {V2 "/memory.max", "1023999\n"}},
         1023999,
         0,
         V2 "/memory.max"},
        {"both at once",
         {{"/proc/self/cgroup", "4:memory:/m\n0::/n\n"},
          {V1 "/m/memory.limit_in_bytes", "300\n"},
          {V2 "/unified/n/memory.max", "200\n"}},
         200,
         0,
         V2 "/unified/n/memory.max"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char root[256];
        struct host_limits l;
        test_folder_make(root);
        tree_make(root, cases[i].files);
        host_limits_read(root, &l);
        test_folder_remove(root);
        if (l.memory_bytes != cases[i].bytes || l.cpus < cases[i].cpus - 1e-9 ||
            l.cpus > cases[i].cpus + 1e-9 || strcmp(l.memory_group, cases[i].group) != 0)
            fail_msg("%s: %llu bytes, %g cpus, \"%s\"", cases[i].name,
                     (unsigned long long)l.memory_bytes, l.cpus, l.memory_group);
    }
}

TEST(what_is_free_is_the_least_of_box_and_groups_and_is_never_made_up)
{
    static const struct {
        const char *name;
        struct tree_file files[8];
        bool known;
        uint64_t bytes;
    } cases[] = {
        {"nothing can be read", {{"/etc/nothing", ""}}, false, 42},
        {"the box alone",
         {{"/proc/meminfo", "MemTotal: 100 kB\nMemAvailable:   50 kB\n"}},
         true,
         51200},
        {"a kernel that does not say", {{"/proc/meminfo", "MemTotal: 100 kB\n"}}, false, 42},
        {"a group leaves less; its cache can be had",
         {{"/proc/meminfo", "MemAvailable: 1000000 kB\n"},
          {"/proc/self/cgroup", "0::/g\n"},
          {V2 "/g/memory.max", "1000000\n"},
          {V2 "/g/memory.current", "900000\n"},
          {V2 "/g/memory.stat", "anon 500000\nactive_file 100000\ninactive_file 200000\n"}},
         true,
         400000},
        {"a group that is full",
         {{"/proc/meminfo", "MemAvailable: 1000000 kB\n"},
          {"/proc/self/cgroup", "7:memory:/g\n"},
          {V1 "/g/memory.limit_in_bytes", "1000\n"},
          {V1 "/g/memory.usage_in_bytes", "2000\n"}},
         true,
         0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char root[256];
        uint64_t bytes = 42;
        test_folder_make(root);
        tree_make(root, cases[i].files);
        bool known = host_memory_free(root, &bytes);
        test_folder_remove(root);
        if (known != cases[i].known || bytes != cases[i].bytes)
            fail_msg("%s: %d, %llu bytes", cases[i].name, known, (unsigned long long)bytes);
    }
}

TEST(this_box_has_the_memory_that_the_system_counts)
{
    struct host_limits l;
    uint64_t free_now = 0;
    host_limits_read("", &l);
    assert_true(l.box_bytes == (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE));
    assert_true(l.memory_bytes <= l.box_bytes && host_memory_default() < l.memory_bytes);
    assert_true(host_memory_free("", &free_now) && free_now > 0 && free_now <= l.box_bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_tightest_group_from_its_own_to_the_root_counts),
        cmocka_unit_test(what_is_free_is_the_least_of_box_and_groups_and_is_never_made_up),
        cmocka_unit_test(this_box_has_the_memory_that_the_system_counts),
    };
    return cmocka_run_group_tests_name("host_limits", tests, NULL, NULL);
}
