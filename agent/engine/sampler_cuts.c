#include "agent/engine/sampler_cuts.h"

#include <stdlib.h>

#include "agent/engine/sampler_select.h"

double sampler_mass(const uint64_t *c, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += (double)sampler_candidate_weight(c[i]);
    return sum;
}

static int keys_compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x > y ? -1 : 1;
}

void sampler_sort(uint64_t *c, size_t n)
{
    qsort(c, n, sizeof *c, keys_compare);
}

/* Only those are sorted that can be among the heaviest. */
size_t sampler_cut_top_p(uint64_t *c, size_t n, double top_p)
{
    double wanted = top_p * sampler_mass(c, n), sum = 0;
    size_t front = n < 64 ? n : 64;
    for (;; front = front * 8 < n ? front * 8 : n) {
        sampler_select_first(c, n, front);
        if (front == n || sampler_mass(c, front) >= wanted)
            break;
    }
    sampler_sort(c, front);
    for (size_t i = 0; i < front; i++) {
        sum += (double)sampler_candidate_weight(c[i]);
        if (sum >= wanted)
            return i + 1;
    }
    return front;
}

size_t sampler_cut_light(uint64_t *c, size_t n, float least)
{
    size_t kept = 0;
    for (size_t i = 0; i < n; i++)
        if (sampler_candidate_weight(c[i]) >= least)
            c[kept++] = c[i];
    return kept;
}

uint32_t sampler_draw(const uint64_t *c, size_t n, double chance)
{
    double at = chance * sampler_mass(c, n);
    for (size_t i = 0; i < n; i++) {
        at -= (double)sampler_candidate_weight(c[i]);
        if (at < 0)
            return sampler_candidate_token(c[i]);
    }
    return sampler_candidate_token(c[n - 1]);
}
