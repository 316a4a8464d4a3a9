#include "hpctl/run_times.h"

#include <math.h>
#include <stddef.h>

#define ALIKE 0.03
#define NEW_WEIGHT 0.25 /* of a time beside those before it */

enum { SURE_REQUESTS = 3, SURE_NS = 1000000000 };

static double size_distance(const struct run_time *s, uint64_t bytes)
{
    return fabs(log((double)s->bytes / (double)bytes));
}

/* The size nearest to `bytes`; -1: there is none. */
static int size_nearest(const struct run_times *t, uint64_t bytes)
{
    int best = -1;
    for (int i = 0; i < t->n; i++)
        if (best < 0 || size_distance(&t->sizes[i], bytes) < size_distance(&t->sizes[best], bytes))
            best = i;
    return best;
}

static struct run_time *size_make(struct run_times *t, uint64_t bytes)
{
    int oldest = 0;
    for (int i = 1; i < t->n; i++)
        if (t->sizes[i].at_ns < t->sizes[oldest].at_ns)
            oldest = i;
    struct run_time *s = &t->sizes[t->n < RUN_TIMES_SIZES ? t->n++ : oldest];
    *s = (struct run_time){.bytes = bytes};
    return s;
}

void run_times_note(struct run_times *t, uint64_t bytes, uint64_t took_ns, uint64_t now_ns)
{
    bytes = bytes ? bytes : 1;
    int at = size_nearest(t, bytes);
    struct run_time *s =
        at >= 0 && size_distance(&t->sizes[at], bytes) < ALIKE ? &t->sizes[at] : NULL;
    s = s ? s : size_make(t, bytes);
    double took = (double)took_ns;
    if (s->n < 2) {
        s->mean_ns = took;
        s->off_ns = 0;
    } else {
        s->off_ns += NEW_WEIGHT * (fabs(took - s->mean_ns) - s->off_ns);
        s->mean_ns += NEW_WEIGHT * (took - s->mean_ns);
    }
    s->n += s->n < UINT32_MAX;
    s->at_ns = now_ns;
}

struct run_guess run_times_guess(const struct run_times *t, uint64_t bytes, uint64_t now_ns)
{
    bytes = bytes ? bytes : 1;
    int at = size_nearest(t, bytes);
    if (at < 0)
        return (struct run_guess){0};
    const struct run_time *s = &t->sizes[at];
    double ns = s->mean_ns + 2 * s->off_ns;
    bool alike = size_distance(s, bytes) < ALIKE;
    if (!alike && bytes > s->bytes)
        ns *= (double)bytes / (double)s->bytes;
    return (struct run_guess){ns < 9e18 ? (uint64_t)ns : UINT64_MAX / 2,
                              alike && s->n >= SURE_REQUESTS && now_ns - s->at_ns < SURE_NS};
}
