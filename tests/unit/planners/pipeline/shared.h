/* The published testbed and profiles, where the machine has them. */
#ifndef HP_TESTS_PIPELINE_SHARED_H
#define HP_TESTS_PIPELINE_SHARED_H

#include <cmocka.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/cluster.h"
#include "common/profile.h"

static inline const char *shared_file(const char *name, char *out, size_t size)
{
    const char *shared = getenv("HP_SHARED");
    snprintf(out, size, "%s/data/%s", shared ? shared : "../shared", name);
    return out;
}

/* False, with a printed reason, where the data is not there: the test then calls skip(). */
static inline bool shared_load(const char *cluster, const char *profile, struct cluster *c,
                               struct profile *p)
{
    char file[512];
    struct err e = {0};
    if (access(shared_file(cluster, file, sizeof file), R_OK) != 0) {
        print_message("# skipped: %s is not there; HP_SHARED names the folder that has data/\n",
                      file);
        return false;
    }
    if (cluster_load(file, c, &e) < 0 ||
        profile_load(shared_file(profile, file, sizeof file), p, &e) < 0)
        fail_msg("%s", e.text);
    return true;
}

#endif
