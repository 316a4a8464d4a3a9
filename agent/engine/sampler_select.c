#include "agent/engine/sampler_select.h"

#include <string.h>

enum { SELECT_SMALL = 64 };

static void keys_swap(uint64_t *a, uint64_t *b)
{
    uint64_t c = *a;
    *a = *b;
    *b = c;
}

void sampler_select_first(uint64_t *c, size_t n, size_t k)
{
    size_t low = 0, high = n;
    while (high - low > 1) {
        keys_swap(&c[low + (high - low) / 2], &c[high - 1]);
        size_t at = low;
        for (size_t i = low; i + 1 < high; i++)
            if (c[i] > c[high - 1])
                keys_swap(&c[i], &c[at++]);
        keys_swap(&c[at], &c[high - 1]);
        if (at == k || at + 1 == k)
            return;
        if (at < k)
            low = at + 1;
        else
            high = at;
    }
}

/* As long as at least k come before the pivot, those are all that is left, in the order in which
 * they stood. */
void sampler_select_few(const struct sampler_kernels *kernels, uint64_t *c, size_t n, size_t k)
{
    uint64_t saved[SAMPLER_SELECT_FEW + SAMPLER_SLACK];
    while (n > SELECT_SMALL && k <= SAMPLER_SELECT_FEW) {
        size_t n_saved = k + SAMPLER_SLACK < n ? k + SAMPLER_SLACK : n;
        keys_swap(&c[n / 2], &c[n - 1]);
        memcpy(saved, c, n_saved * sizeof *c);
        size_t at = kernels->keep_before(c, n - 1, c[n - 1]);
        if (at < k) { /* no more than was saved has been written */
            memcpy(c, saved, n_saved * sizeof *c);
            keys_swap(&c[n / 2], &c[n - 1]);
            break;
        }
        if (at == k)
            return;
        n = at;
    }
    sampler_select_first(c, n, k);
}
