/* Layers over a given order of devices, for one slicing: a balanced start, then moves of single
 * boundaries. */
#include "planners/pipeline/cuts.h"

#include <math.h>

/* ---- balanced ---- */

/* Seconds of layers [a, b) over all slices of the prompt. */
static inline double total_of(const struct exact *x, int device, int a, int b)
{
    const double *total = x->pieces.total + x->c->devices[device].kind * (x->c->n_layers + 1);
    return total[b] - total[a];
}

/* The last end in [least, most] with no more than `limit` seconds; `least` when even that has more.
 */
static int device_fill(const struct exact *x, int device, int first, int least, int most,
                       double limit)
{
    int lo = least, hi = most;
    while (lo < hi) {
        int mid = (lo + hi + 1) / 2;
        if (total_of(x, device, first, mid) <= limit)
            lo = mid;
        else
            hi = mid - 1;
    }
    return lo;
}

/* Gives each device in turn as many layers as take `limit` seconds. True when that covers the
 * model. */
static bool fill_all(const struct exact *x, const int *order, int n, int must_count, double limit,
                     struct trial *t)
{
    int first = 0, n_layers = x->c->n_layers;
    t->n_stages = 0;
    for (int i = 0; i < n && first < n_layers; i++) {
        bool must = x->must[order[i]];
        must_count -= must;
        int fits = x->furthest[order[i] * (n_layers + 1) + first],
            most = n_layers - must_count < fits ? n_layers - must_count : fits;
        int least = must ? first + 1 : first;
        if (most < least)
            return false;
        int end = device_fill(x, order[i], first, least, most, limit);
        if (end == first)
            continue;
        t->device[t->n_stages] = order[i];
        t->end[t->n_stages++] = first = end;
    }
    return first == n_layers && must_count == 0;
}

bool cuts_balance(struct exact *x, const int *order, int n, struct trial *t)
{
    enum { STEPS = 26 };
    double low = 0, high = 0;
    int must_count = 0;
    for (int i = 0; i < n; i++) {
        double all = total_of(x, order[i], 0, x->c->n_layers);
        high = all > high ? all : high;
        must_count += x->must[order[i]];
    }
    high *= 1 + 1e-12;
    if (!fill_all(x, order, n, must_count, high, t))
        return false;
    for (int step = 0; step < STEPS; step++) {
        double middle = (low + high) / 2;
        if (fill_all(x, order, n, must_count, middle, t))
            high = middle;
        else
            low = middle;
    }
    return fill_all(x, order, n, must_count, high, t);
}

/* ---- moves ---- */

/* Moves the ends of stages [j, j + width) by `delta` layers. */
static bool try_move(struct exact *x, struct trial *t, int j, int width, int delta)
{
    int before = trial_first(t, j), after = t->end[j + width];
    if (t->end[j] + delta <= before || t->end[j + width - 1] + delta >= after)
        return false;
    for (int i = j; i < j + width; i++)
        t->end[i] += delta;
    double value = exact_evaluate(x, t, j, t->value);
    if (value < t->value) {
        t->value = value;
        x->valid = t->n_stages;
        return true;
    }
    for (int i = j; i < j + width; i++)
        t->end[i] -= delta;
    return false;
}

void cuts_polish(struct exact *x, struct trial *t)
{
    static const int deltas[] = {8, -8, 4, -4, 2, -2, 1, -1};
    x->valid = 0;
    for (bool better = true; better && x->work < x->work_limit;) {
        better = false;
        for (int width = 1; width < 4; width++)
            for (int j = t->n_stages - 1 - width; j >= 0; j--)
                for (size_t d = 0; d < sizeof deltas / sizeof *deltas; d++)
                    while (try_move(x, t, j, width, deltas[d]))
                        better = true;
    }
}
