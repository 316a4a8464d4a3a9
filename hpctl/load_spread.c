#include "hpctl/load_spread.h"

#include <math.h>

#include "common/doubles.h"

static double spread_percentile(const double *sorted, size_t n, double q)
{
    size_t rank = (size_t)ceil(q * (double)n);
    return sorted[rank > 0 ? rank - 1 : 0];
}

struct load_spread load_spread_of(double *values, size_t n)
{
    struct load_spread s = {.n = n};
    double sum = 0;
    if (n == 0)
        return s;
    for (size_t i = 0; i < n; i++)
        sum += values[i];
    doubles_sort(values, n);
    s.mean = sum / (double)n;
    s.p50 = spread_percentile(values, n, 0.5);
    s.p90 = spread_percentile(values, n, 0.9);
    s.p99 = spread_percentile(values, n, 0.99);
    s.most = values[n - 1];
    return s;
}

json_t *load_spread_json(const struct load_spread *s)
{
    return json_pack("{s:f, s:f, s:f, s:f, s:f}", "mean", s->mean, "p50", s->p50, "p90", s->p90,
                     "p99", s->p99, "max", s->most);
}
