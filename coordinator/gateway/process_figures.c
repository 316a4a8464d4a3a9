#include "coordinator/gateway/process_figures.h"

#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { FIELDS_BEFORE_START = 19 }; /* of /proc/self/stat, behind the program's name */

static double seconds_of_timeval(struct timeval t)
{
    return (double)t.tv_sec + (double)t.tv_usec * 1e-6;
}

static double clock_s(clockid_t clock)
{
    struct timespec t = {0};
    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* The first line of a file of /proc; false: there is none. */
static bool line_read(const char *path, char *line, int size)
{
    FILE *f = fopen(path, "re");
    bool there = f && fgets(line, size, f);
    if (f)
        fclose(f);
    return there;
}

/* Since the machine was started; 0: not known. */
static double start_after_boot_s(void)
{
    char line[1024], *at;
    unsigned long long ticks = 0;
    if (!line_read("/proc/self/stat", line, sizeof line) || !(at = strrchr(line, ')')))
        return 0;
    for (int i = 0; at && i <= FIELDS_BEFORE_START; i++)
        at = strchr(at + 1, ' ');
    return at && sscanf(at, "%llu", &ticks) == 1 ? (double)ticks / (double)sysconf(_SC_CLK_TCK) : 0;
}

static void memory_read(struct process_figures *out)
{
    char line[256];
    unsigned long long all = 0, resident = 0;
    double page = (double)sysconf(_SC_PAGESIZE);
    if (line_read("/proc/self/statm", line, sizeof line) &&
        sscanf(line, "%llu %llu", &all, &resident) == 2) {
        out->virtual_bytes = (double)all * page;
        out->resident_bytes = (double)resident * page;
    }
}

/* Kernels from 6.2 on say how many there are; else they are counted. */
static double descriptors_count(void)
{
    struct stat s;
    double n = 0;
    if (stat("/proc/self/fd", &s) == 0 && s.st_size > 0)
        return (double)s.st_size;
    DIR *d = opendir("/proc/self/fd");
    for (struct dirent *e; d && (e = readdir(d)) != NULL;)
        n += e->d_name[0] != '.';
    if (d)
        closedir(d);
    return n > 1 ? n - 1 : n; /* without the folder's own */
}

void process_figures_read(struct process_figures *out)
{
    struct rusage used = {0};
    struct rlimit limit = {0};
    double start_s = start_after_boot_s();
    *out = (struct process_figures){.descriptors = descriptors_count()};
    memory_read(out);
    if (getrusage(RUSAGE_SELF, &used) == 0)
        out->cpu_s = seconds_of_timeval(used.ru_utime) + seconds_of_timeval(used.ru_stime);
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0)
        out->descriptors_limit = (double)limit.rlim_cur;
    if (start_s > 0)
        out->start_s = clock_s(CLOCK_REALTIME) - clock_s(CLOCK_BOOTTIME) + start_s;
}
