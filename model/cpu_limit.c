#include "model/cpu_limit.h"

#include <time.h>

#include "common/env.h"

enum { LOOK_EVERY_NS = 20 * 1000 * 1000 };

static uint64_t clock_ns(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void cpu_limit_start(struct cpu_limit *c, uint64_t limit_ns)
{
    c->started_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    c->limit_ns = (uint64_t)((double)limit_ns * env_time_scale());
    c->look_ns = clock_ns(CLOCK_MONOTONIC_COARSE) + LOOK_EVERY_NS;
}

void cpu_limit_extend(struct cpu_limit *c, uint64_t more_ns)
{
    c->limit_ns += (uint64_t)((double)more_ns * env_time_scale());
}

uint64_t cpu_limit_used_ns(const struct cpu_limit *c)
{
    return clock_ns(CLOCK_THREAD_CPUTIME_ID) - c->started_ns;
}

bool cpu_limit_passed(struct cpu_limit *c)
{
    uint64_t now = clock_ns(CLOCK_MONOTONIC_COARSE);
    if (now < c->look_ns)
        return false;
    c->look_ns = now + LOOK_EVERY_NS;
    return cpu_limit_used_ns(c) > c->limit_ns;
}
