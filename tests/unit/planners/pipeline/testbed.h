/* The published testbed and profiles of examples/hpipe-testbed; tests run at the tree's root. */
#ifndef HP_TESTS_PIPELINE_TESTBED_H
#define HP_TESTS_PIPELINE_TESTBED_H

#include <stdio.h>

#include "common/cluster.h"
#include "common/profile.h"
#include "tests/test.h"

/* `model` is llama-7b or gpt3-2b. */
static inline void testbed_load(const char *model, struct cluster *c, struct profile *p)
{
    char path[128];
    struct err e = {0};
    snprintf(path, sizeof path, "examples/hpipe-testbed/%s.profile.json", model);
    if (cluster_load("examples/hpipe-testbed/testbed.cluster.json", c, &e) < 0 ||
        profile_load(path, p, &e) < 0)
        fail_msg("%s", e.text);
}

#endif
