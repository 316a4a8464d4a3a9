#include "common/host_limits.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The groups of one controller: where its tree is mounted, and this process's place in it. */
struct group {
    char mount[64], path[HOST_GROUP];
};

/* A file below the group or one above it; false when it is not there. */
static bool line_read(const char *root, const struct group *g, const char *name, char *line,
                      size_t size, char *file)
{
    int n = snprintf(file, HOST_GROUP, "%s%s%s/%s", root, g->mount,
                     strcmp(g->path, "/") == 0 ? "" : g->path, name);
    FILE *f = n > 0 && n < HOST_GROUP ? fopen(file, "re") : NULL;
    bool got = f && fgets(line, (int)size, f);
    if (f)
        fclose(f);
    return got;
}

static bool number_read(const char *root, const struct group *g, const char *name, uint64_t *out,
                        char *file)
{
    char line[128], *end;
    if (!line_read(root, g, name, line, sizeof line, file))
        return false;
    unsigned long long v = strtoull(line, &end, 10);
    *out = v;
    return end != line;
}

/* The group above; false at the root. */
static bool group_up(struct group *g)
{
    char *slash = strrchr(g->path, '/');
    if (!slash || strcmp(g->path, "/") == 0)
        return false;
    slash[slash == g->path] = '\0';
    return true;
}

/* Whether "memory" stands in "cpu,memory"; the empty list is version 2's. */
static bool controllers_have(const char *list, size_t n, const char *controller)
{
    size_t want = strlen(controller);
    if (!want)
        return n == 0;
    for (const char *p = list, *end = list + n; p < end;) {
        const char *comma = memchr(p, ',', (size_t)(end - p));
        size_t word = (size_t)((comma ? comma : end) - p);
        if (word == want && memcmp(p, controller, want) == 0)
            return true;
        p += word + 1;
    }
    return false;
}

/* Lines are ID:CONTROLLERS:PATH. A place outside of what this process sees ("/../x") is taken for
 * the root of what it sees. */
static bool group_find(const char *root, const char *controller, struct group *g)
{
    char file[HOST_GROUP], line[HOST_GROUP];
    bool found = false;
    snprintf(file, sizeof file, "%s/proc/self/cgroup", root);
    FILE *f = fopen(file, "re");
    while (f && !found && fgets(line, sizeof line, f)) {
        char *first = strchr(line, ':'), *second = first ? strchr(first + 1, ':') : NULL;
        if (!second || !controllers_have(first + 1, (size_t)(second - first - 1), controller))
            continue;
        second[1 + strcspn(second + 1, "\n")] = '\0';
        snprintf(g->path, sizeof g->path, "%s",
                 strncmp(second + 1, "/..", 3) == 0 ? "/" : second + 1);
        found = true;
    }
    if (f)
        fclose(f);
    return found;
}

struct walk {
    const char *root, *controller; /* "" for version 2 */
    const char *const *mounts;     /* ended by NULL */
    void (*see)(const char *root, const struct group *g, void *ctx);
    void *ctx;
};

/* From the process's own group up to the root, in each place where the tree may be mounted. */
static void groups_walk(const struct walk *w)
{
    struct group own = {.path = ""};
    if (!group_find(w->root, w->controller, &own))
        return;
    for (const char *const *mount = w->mounts; *mount; mount++) {
        struct group g = own;
        snprintf(g.mount, sizeof g.mount, "%s", *mount);
        do
            w->see(w->root, &g, w->ctx);
        while (group_up(&g));
    }
}

static const char *const mounts_v2[] = {"/sys/fs/cgroup", "/sys/fs/cgroup/unified", NULL};
static const char *const mounts_memory[] = {"/sys/fs/cgroup/memory", NULL};
static const char *const mounts_cpu[] = {"/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct",
                                         "/sys/fs/cgroup/cpuacct,cpu", NULL};

/* ---- limits ---- */

static void memory_see(const char *root, const struct group *g, void *ctx)
{
    static const char *const names[] = {"memory.max", "memory.high",
                                        "memory.limit_in_bytes"}; /* "max" is no number */
    struct host_limits *out = ctx;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char file[HOST_GROUP];
        uint64_t bytes;
        if (!number_read(root, g, names[i], &bytes, file) || bytes >= out->memory_bytes)
            continue;
        out->memory_bytes = bytes;
        snprintf(out->memory_group, sizeof out->memory_group, "%s", file + strlen(root));
    }
}

static void cpus_take(struct host_limits *out, double quota, double period)
{
    if (quota > 0 && period > 0 && (out->cpus <= 0 || quota / period < out->cpus))
        out->cpus = quota / period;
}

static void cpu_see(const char *root, const struct group *g, void *ctx)
{
    char line[128], file[HOST_GROUP];
    double quota, period;
    if (line_read(root, g, "cpu.max", line, sizeof line, file) &&
        sscanf(line, "%lf %lf", &quota, &period) == 2)
        cpus_take(ctx, quota, period);
    uint64_t period_us;
    if (line_read(root, g, "cpu.cfs_quota_us", line, sizeof line, file) &&
        number_read(root, g, "cpu.cfs_period_us", &period_us, file))
        cpus_take(ctx, atof(line), (double)period_us); /* -1: none */
}

/* A line "NAME: N kB" of meminfo. */
static bool meminfo_read(const char *root, const char *name, uint64_t *bytes)
{
    char file[HOST_GROUP], line[128];
    unsigned long long kib;
    size_t n = strlen(name);
    bool found = false;
    snprintf(file, sizeof file, "%s/proc/meminfo", root);
    FILE *f = fopen(file, "re");
    while (f && !found && fgets(line, sizeof line, f))
        found = strncmp(line, name, n) == 0 && sscanf(line + n, ": %llu", &kib) == 1;
    if (f)
        fclose(f);
    if (found)
        *bytes = kib * 1024;
    return found;
}

static uint64_t box_bytes(const char *root)
{
    uint64_t bytes = UINT64_MAX;
    if (!meminfo_read(root, "MemTotal", &bytes) && !*root) {
        long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
        if (pages > 0 && page > 0)
            bytes = (uint64_t)pages * (uint64_t)page;
    }
    return bytes;
}

void host_limits_read(const char *root, struct host_limits *out)
{
    *out = (struct host_limits){.memory_bytes = UINT64_MAX};
    groups_walk(&(struct walk){root, "", mounts_v2, memory_see, out});
    groups_walk(&(struct walk){root, "memory", mounts_memory, memory_see, out});
    groups_walk(&(struct walk){root, "", mounts_v2, cpu_see, out});
    groups_walk(&(struct walk){root, "cpu", mounts_cpu, cpu_see, out});
    if (out->memory_bytes >= (uint64_t)1 << 60) { /* version 1 has no word for "none" */
        out->memory_bytes = UINT64_MAX;
        out->memory_group[0] = '\0';
    }
    out->box_bytes = box_bytes(root);
    if (out->box_bytes <= out->memory_bytes) {
        out->memory_bytes = out->box_bytes;
        out->memory_group[0] = '\0';
    }
}

uint64_t host_memory_default(void)
{
    struct host_limits limits;
    host_limits_read("", &limits);
    return limits.memory_bytes / 10 * 9;
}

/* ---- what is free ---- */

/* A group's page cache, of memory.stat; version 1 tells that of the groups below with "total_". */
static uint64_t group_cache(const char *root, const struct group *g)
{
    static const char *const names[] = {"active_file ", "inactive_file ", "total_active_file ",
                                        "total_inactive_file "};
    char file[HOST_GROUP], line[128];
    uint64_t bytes[4] = {0};
    if (!line_read(root, g, "memory.stat", line, sizeof line, file))
        return 0;
    FILE *f = fopen(file, "re");
    while (f && fgets(line, sizeof line, f))
        for (int i = 0; i < 4; i++)
            if (strncmp(line, names[i], strlen(names[i])) == 0)
                bytes[i] = strtoull(line + strlen(names[i]), NULL, 10);
    if (f)
        fclose(f);
    return bytes[2] || bytes[3] ? bytes[2] + bytes[3] : bytes[0] + bytes[1];
}

static void room_see(const char *root, const struct group *g, void *ctx)
{
    static const char *const limits[] = {"memory.max", "memory.high", "memory.limit_in_bytes"};
    uint64_t *room = ctx, used, limit;
    char file[HOST_GROUP];
    if (!number_read(root, g, "memory.current", &used, file) &&
        !number_read(root, g, "memory.usage_in_bytes", &used, file))
        return;
    uint64_t cache = group_cache(root, g);
    used = used > cache ? used - cache : 0;
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++)
        if (number_read(root, g, limits[i], &limit, file) && limit < *room + used)
            *room = limit > used ? limit - used : 0;
}

bool host_memory_free(const char *root, uint64_t *out)
{
    uint64_t room;
    if (!meminfo_read(root, "MemAvailable", &room))
        return false;
    groups_walk(&(struct walk){root, "", mounts_v2, room_see, &room});
    groups_walk(&(struct walk){root, "memory", mounts_memory, room_see, &room});
    *out = room;
    return true;
}
