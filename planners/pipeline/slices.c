/* Slicings for given stages: equal times as a start, Algorithm 2 as another. */
#include "planners/pipeline/slices.h"

#include <math.h>

#include "planners/pipeline/hpipe.h"

/* ---- equal times ---- */

/* The stage with the most to do for the whole prompt; layers and kind of it. */
static void busiest_stage(const struct exact *x, const struct trial *t, int *kind, int *first,
                          int *end)
{
    const struct pipeline_cost *c = x->c;
    double most = -1;
    *kind = c->devices[0].kind;
    *first = 0;
    *end = c->n_layers;
    for (int j = 0; j < t->n_stages; j++) {
        int q = c->devices[t->device[j]].kind;
        double s = cost_units_seconds(c, q, trial_first(t, j), t->end[j], 0, c->n_units);
        if (s > most) {
            most = s;
            *kind = q;
            *first = trial_first(t, j);
            *end = t->end[j];
        }
    }
}

/* The last cut in (at, n_units] whose slice takes no more than `limit`; at + 1 when even that takes
 * more. */
static int longest_slice(const struct pipeline_cost *c, int kind, int first, int end, int at,
                         double limit)
{
    int lo = at + 1, hi = c->n_units;
    while (lo < hi) {
        int mid = (lo + hi + 1) / 2;
        if (cost_units_seconds(c, kind, first, end, at, mid) <= limit)
            lo = mid;
        else
            hi = mid - 1;
    }
    return lo;
}

void slices_shaped(const struct exact *x, struct trial *t, int m, double growth)
{
    enum { STEPS = 24 };
    const struct pipeline_cost *c = x->c;
    int kind, first, end, n_units = c->n_units;
    busiest_stage(x, t, &kind, &first, &end);
    /* The limit is that of the longest slice: the last one where they grow, the first one where
     * they shrink. */
    double low = 0, high = cost_units_seconds(c, kind, first, end, 0, n_units),
           start = growth > 1 ? pow(growth, 1 - m) : 1;
    for (int step = 0; step <= STEPS; step++) {
        bool final = step == STEPS;
        double limit = final ? high : (low + high) / 2, shape = start;
        int n = 0, at = 0;
        for (; at < n_units && (final || n <= m); shape = shape * growth < 1 ? shape * growth : 1)
            t->cut[++n] = at = longest_slice(c, kind, first, end, at, limit * shape);
        t->n_slices = n;
        if (at == n_units && n <= m)
            high = limit;
        else
            low = limit;
    }
    t->cut[0] = 0;
}

int slices_published(struct exact *x, struct trial *t, struct err *e)
{
    struct pipeline_cost scratch = *x->c;
    struct arena arena = {0};
    scratch.arena = &arena;
    double *seconds = hpipe_slice_seconds(&scratch, t->device, t->end, t->n_stages, true, e);
    int rc = seconds ? hpipe_slices(x->c->n_units, x->c->row, seconds, t->n_stages, &arena, t->cut,
                                    &t->n_slices, e)
                     : HP_ENOMEM;
    arena_free(&arena);
    return rc;
}
