/* Every plan there is, where there are few: all slicings, for each of them a depth-first walk over
 * stages (device and last layer), cut off where the rest cannot become better than the best found.
 * Devices that are alike are tried in one order only. */
#include "planners/pipeline/enumerate.h"

#include <math.h>
#include <string.h>

/* Plans (before any is cut off) up to which all are weighed, and units up to which slicings are
 * counted out. */
#define MAX_PLANS 4e6
enum { MAX_UNITS = 20 };

/* Number of sequences of k devices, twins not told apart, for k = 0 .. limit, added up with the
 * ways to cut layers between them.
 */
static double count_partitions(const struct exact *x)
{
    const struct pipeline_cost *c = x->c;
    int limit = c->n_devices < c->n_layers ? c->n_devices : c->n_layers;
    double ways[PIPELINE_MAX_DEVICES + 1] = {1}, plans = 0; /* ways[k] / k! during the loop */
    if (x->options->order_fixed)
        limit = c->n_devices;
    for (int set = 0, reached = 0; set < c->n_devices && !x->options->order_fixed; set++) {
        int size = 0;
        for (int d = 0; d < c->n_devices; d++)
            size += x->twin_of[d] == set;
        reached += size;
        for (int k = reached; k > 0; k--) {
            double factorial = 1;
            for (int i = 1; i <= size && i <= k; i++)
                ways[k] += ways[k - i] / (factorial *= i);
        }
    }
    double factorial = 1, choose = 1; /* C(n_layers - 1, k - 1) */
    for (int k = 1; k <= limit; k++) {
        factorial *= k;
        double sequences = x->options->order_fixed ? k == limit : ways[k] * factorial;
        plans += sequences * (x->options->ends ? 1 : choose);
        choose *= (double)(c->n_layers - k) / k;
        if (plans > MAX_PLANS)
            break;
    }
    return plans;
}

struct enumeration {
    struct exact *x;
    struct trial now, *best;
    bool used[PIPELINE_MAX_DEVICES];
    int must_left; /* devices that have to be used and are not yet */
};

static bool device_allowed(const struct enumeration *w, int depth, int d)
{
    const struct exact *x = w->x;
    if (x->options->order_fixed)
        return d == depth;
    if (w->used[d])
        return false;
    for (int k = 0; k < d; k++)
        if (x->twin_of[k] == x->twin_of[d] && !w->used[k])
            return false; /* its twin stands for it */
    return true;
}

static void enumeration_walk(struct enumeration *w, int depth, int device);

/* Stage `depth` runs [first, end) on its device; the next one runs on `next`. */
static void try_next(struct enumeration *w, int depth, int next)
{
    double end_s;
    struct exact *x = w->x;
    w->now.device[depth + 1] = next;
    if (!exact_stage(x, &w->now, depth, &end_s))
        return;
    int m = x->pieces.m, end = w->now.end[depth];
    const double *arrivals = x->arrivals + (size_t)(depth + 1) * (size_t)x->c->n_units;
    double earliest = arrivals[m - 1] + x->pieces.rest[end];
    /* Sums in another order differ in the last bits: cut off only what is worse by more than that.
     */
    if (exact_value(x, &w->now, depth + 1, earliest) > w->best->value * (1 + 1e-12))
        return;
    enumeration_walk(w, depth + 1, next);
}

static void enumeration_finish(struct enumeration *w, int depth)
{
    double end_s;
    struct exact *x = w->x;
    if (w->must_left > 0 || !exact_stage(x, &w->now, depth, &end_s))
        return;
    double value = exact_value(x, &w->now, depth + 1, end_s);
    if (value < w->best->value) {
        *w->best = w->now;
        w->best->value = value;
        w->best->n_stages = depth + 1;
    }
}

static void enumeration_walk(struct enumeration *w, int depth, int device)
{
    struct exact *x = w->x;
    const int *ends = x->options->ends;
    bool must = x->must[device];
    int first = trial_first(&w->now, depth), n_layers = x->c->n_layers;
    w->used[device] = true;
    w->must_left -= must;
    w->now.device[depth] = device;
    for (int end = ends ? ends[depth] : first + 1; end <= (ends ? ends[depth] : n_layers); end++) {
        if (end > x->furthest[device * (n_layers + 1) + first])
            break;
        w->now.end[depth] = end;
        if (end == n_layers) {
            enumeration_finish(w, depth);
            break;
        }
        for (int next = 0; next < x->c->n_devices; next++)
            if (device_allowed(w, depth + 1, next))
                try_next(w, depth, next);
    }
    w->used[device] = false;
    w->must_left += must;
}

bool enumerate_all(struct exact *x, struct trial *best)
{
    struct pipeline_cost *c = x->c;
    if (c->n_units > MAX_UNITS || count_partitions(x) * exp2(c->n_units - 1) > MAX_PLANS)
        return false;
    struct enumeration w = {.x = x, .best = best};
    for (int d = 0; d < c->n_devices; d++)
        w.must_left += x->must[d];
    for (unsigned long bits = 0; bits < 1ul << (c->n_units - 1); bits++) {
        int n = 0;
        for (int i = 1; i < c->n_units; i++)
            if (bits >> (i - 1) & 1)
                w.now.cut[++n] = i;
        w.now.cut[++n] = c->n_units;
        w.now.n_slices = n;
        pieces_set(x, w.now.cut, n);
        for (int d = 0; d < c->n_devices; d++)
            if (device_allowed(&w, 0, d))
                enumeration_walk(&w, 0, d);
    }
    return true;
}
