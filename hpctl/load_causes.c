#include "hpctl/load_causes.h"

#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

enum { SPARE_FILES = 64 };

int load_cause_of(struct load_cause *causes, int *n, const char *kind, const char *text)
{
    for (int i = 0; i < *n; i++)
        if (strcmp(causes[i].kind, kind) == 0)
            return i;
    if (*n == LOAD_MAX_CAUSES)
        return LOAD_MAX_CAUSES - 1;
    struct load_cause *c = &causes[*n];
    snprintf(c->kind, sizeof c->kind, "%s", *n + 1 < LOAD_MAX_CAUSES ? kind : "others");
    snprintf(c->text, sizeof c->text, "%s", text);
    return (*n)++;
}

size_t load_connections_most(void)
{
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) < 0)
        return 256;
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    if (getrlimit(RLIMIT_NOFILE, &files) < 0 || files.rlim_cur <= 2 * SPARE_FILES)
        return SPARE_FILES;
    return (size_t)files.rlim_cur - SPARE_FILES;
}
