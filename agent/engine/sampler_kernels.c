#include "agent/engine/sampler_kernels.h"

#include <math.h>

static bool every_cpu(void)
{
    return true;
}

static float row_greatest(const float *x, size_t n)
{
    float most = -INFINITY;
    for (size_t i = 0; i < n; i++)
        most = x[i] > most ? x[i] : most;
    return most;
}

static size_t row_find(const float *x, size_t n, float value)
{
    size_t i = 0;
    while (i < n && !(x[i] <= value && x[i] >= value))
        i++;
    return i;
}

static void row_weigh(const float *x, size_t n, double most, double temperature, float *w)
{
    for (size_t i = 0; i < n; i++) {
        double e = exp(((double)x[i] - most) / temperature);
        w[i] = e > 0 ? (float)e : 0;
    }
}

static size_t row_gather(const float *by, const float *w, size_t n, float low, float high,
                         uint32_t first, uint64_t *out)
{
    size_t m = 0;
    for (size_t i = 0; i < n; i++)
        if (by[i] >= low && by[i] <= high)
            out[m++] = sampler_candidate(w[i], first + (uint32_t)i);
    return m;
}

static size_t keep_before(uint64_t *c, size_t n, uint64_t pivot)
{
    size_t m = 0;
    for (size_t i = 0; i < n; i++)
        if (c[i] > pivot)
            c[m++] = c[i];
    return m;
}

static double row_sum(const float *w, size_t n)
{
    double all = 0;
    for (size_t i = 0; i < n; i++)
        all += (double)w[i];
    return all;
}

static void row_rule_out(float *x, const uint64_t *allowed, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!(allowed[i / 64] >> i % 64 & 1))
            x[i] = -INFINITY;
}

const struct sampler_kernels sampler_plain = {"plain",     every_cpu, row_greatest,
                                              row_find,    row_weigh, row_gather,
                                              keep_before, row_sum,   row_rule_out};

const struct sampler_kernels *const sampler_kernels_all[] = {&sampler_avx512, &sampler_avx2,
                                                             &sampler_plain, NULL};

const struct sampler_kernels *sampler_kernels_best(void)
{
    int i = 0;
    while (!sampler_kernels_all[i]->supported())
        i++;
    return sampler_kernels_all[i];
}
