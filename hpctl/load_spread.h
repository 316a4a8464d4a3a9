/* Percentiles of what was measured of a load's requests. */
#ifndef HP_HPCTL_LOAD_SPREAD_H
#define HP_HPCTL_LOAD_SPREAD_H

#include <jansson.h>
#include <stddef.h>

struct load_spread {
    double mean, p50, p90, p99, most;
    size_t n;
};

/* Of n values, which are sorted in place; all 0 where there are none. A percentile is the least
 * value that at least that part of them does not exceed. */
struct load_spread load_spread_of(double *values, size_t n);
json_t *load_spread_json(const struct load_spread *s);

#endif
