#include "planners/dispatch/simulation.h"

#include <math.h>
#include <stdlib.h>

#include "planners/dispatch/dispatch.h"

const char *const simulate_scheduler_words[] = {"reserving", "reactive", NULL};

/* 64 buckets an octave of nanoseconds, by the bits of the number: exponent and the top of the
 * mantissa. */
static int latency_bucket(int64_t ns)
{
    if (ns < 64)
        return 0;
    int exponent = 63 - __builtin_clzll((uint64_t)ns);
    int part = (int)((ns >> (exponent - 6)) & 63);
    int b = (exponent - 6) * 64 + part + 1;
    return b < SIMULATE_BUCKETS ? b : SIMULATE_BUCKETS - 1;
}

static double latency_bucket_end_s(int b)
{
    if (b == 0)
        return 64e-9;
    int exponent = (b - 1) / 64 + 6, part = (b - 1) % 64;
    return ldexp(64 + part + 1, exponent - 6) * 1e-9;
}

void simulate_count(struct simulate_model *m, int64_t latency_ns, bool in_time)
{
    if (in_time)
        m->in_time++;
    else
        m->late++;
    m->latency_sum_s += (double)latency_ns * 1e-9;
    m->latency[latency_bucket(latency_ns)]++;
    if (latency_ns > m->latency_max_ns)
        m->latency_max_ns = latency_ns;
}

double simulate_attainment(const struct simulate_model *m)
{
    return m->arrived ? (double)m->in_time / (double)m->arrived : 1;
}

double simulate_percentile_s(const struct simulate_model *m, double q)
{
    uint64_t served = m->in_time + m->late, so_far = 0;
    for (int b = 0; b < SIMULATE_BUCKETS && served > 0; b++) {
        so_far += m->latency[b];
        if ((double)so_far >= q * (double)served)
            return fmin(latency_bucket_end_s(b), (double)m->latency_max_ns * 1e-9);
    }
    return 0;
}

void simulate_result_free(struct simulate_result *r)
{
    free(r->models);
    *r = (struct simulate_result){0};
}
