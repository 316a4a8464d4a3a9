/* The search where plans are too many to weigh them all: good starts, local search from each, then
 * random steps from the best.
 *
 * A start is an order of devices (orders.h) with slices of a simple shape and balanced layers.
 * Local search alternates between the ends of stages for the slicing and the slicing for the
 * stages, both under the exact flow. A random step changes the order of devices, a stage or the
 * slicing and is followed by local search where it looks promising. All is counted in work, never
 * in time. */
#include "planners/pipeline/search.h"

#include <math.h>

#include "planners/pipeline/cuts.h"
#include "planners/pipeline/slices.h"
#include "planners/pipeline/starts.h"
#include "planners/pipeline/steps.h"

enum { PUBLISHED_STARTS = 6, POLISH_ROUNDS = 8, START_ROUNDS = 2 };
/* Plans of different orders of devices that are followed further, and steps in a row that may fail
 * for each, and for the best. */
enum { ISLANDS = 20, ISLAND_PATIENCE = 40, PATIENCE = 400 };
/* A start is only followed when it is not worse than the best by more than this factor. */
#define HOPELESS 1.08
/* Pairs of stage and slice that may be timed: in all, and the parts of it after which looking for
 * starts, local search from them and islands have had their share. */
#define WORK 3.5e8
#define FINDING_SHARE 0.1
#define STARTS_SHARE 0.4
#define ISLANDS_SHARE 0.6

/* ---- local search ---- */

static void best_note(struct pipeline_search *s, const struct trial *t)
{
    if (t->value < s->best->value)
        *s->best = *t;
}

/* Moves of cuts that are worth trying before the last ones. */
static int coarse_units(const struct exact *x)
{
    return x->c->n_units > 128 ? x->c->n_units / 128 : 1;
}

/* Until neither ends nor slices can be moved for the better. */
static void trial_polish(struct pipeline_search *s, struct trial *t, int rounds, int least)
{
    struct exact *x = s->x;
    for (int round = 0; round < rounds && x->work < x->work_limit; round++) {
        double before = t->value;
        if (!x->options->ends) {
            pieces_set(x, t->cut, t->n_slices);
            t->value = exact_evaluate(x, t, 0, INFINITY);
            cuts_polish(x, t);
        }
        slices_polish(x, t, least);
        best_note(s, t);
        if (round > 0 && t->value >= before * (1 - 1e-9))
            break;
    }
}

/* Local search from every start; afterwards s->top has the results, best first, one of each order
 * of devices. */
static int polish_starts(struct pipeline_search *s, struct err *e)
{
    struct exact *x = s->x;
    int rc = 0, n = s->n_top;
    for (int i = 0; i < n && rc == 0 && x->work < x->work_limit; i++) {
        trial_polish(s, &s->top[i], START_ROUNDS, coarse_units(x));
        if (i >= PUBLISHED_STARTS || x->options->objective != PIPELINE_LATENCY)
            continue;
        s->step = s->top[i];
        rc = slices_published(x, &s->step, e);
        s->step.value = INFINITY;
        if (rc == 0)
            trial_polish(s, &s->step, POLISH_ROUNDS, 1);
        if (s->step.value < s->top[i].value)
            s->top[i] = s->step;
    }
    s->n_top = 0;
    for (int i = 0; i < n; i++) {
        s->now = s->top[i];
        int same = 0;
        while (same < s->n_top && !same_order(&s->top[same], &s->now))
            same++;
        if (same < s->n_top && s->top[same].value <= s->now.value)
            continue;
        int at = same < s->n_top ? same : s->n_top++;
        for (; at > 0 && s->top[at - 1].value > s->now.value; at--)
            s->top[at] = s->top[at - 1];
        s->top[at] = s->now;
    }
    return rc;
}

/* ---- random steps ---- */

/* Random steps from s->now until many in a row did not help. With `order_stays` only slices and
 * ends change. */
static void trial_wander(struct pipeline_search *s, int patience, bool order_stays)
{
    struct exact *x = s->x;
    struct trial *from = &s->home;
    *from = s->now;
    for (int idle = 0; idle < patience && x->work < x->work_limit; idle++) {
        if (order_stays || step_pick(x, 4) == 0) {
            if (step_pick(x, 4) == 0)
                step_slices(s);
            else
                step_nearby(s);
            slices_polish(x, &s->step, coarse_units(x));
        } else {
            if (!(step_pick(x, 2) ? step_order(s) : step_stage(s)))
                continue;
            cuts_polish(x, &s->step);
        }
        if (s->step.value < s->now.value * 1.03)
            trial_polish(s, &s->step, POLISH_ROUNDS, coarse_units(x));
        if (coarse_units(x) > 1 && s->step.value < from->value)
            trial_polish(s, &s->step, POLISH_ROUNDS, 1);
        if (s->step.value < from->value * (1 - 1e-9)) {
            idle = 0;
            *from = s->step;
        }
        /* Now and then a slightly worse plan is followed, so that the search leaves a hollow. */
        if (s->step.value < s->now.value * (step_pick(x, 4) == 0 ? 1.005 : 1))
            s->now = s->step;
        if (idle % 64 == 63)
            s->now = *from;
    }
}

/* The best plan the other way round: devices, layers and slices. What fills fast drains fast in the
 * mirror, so that a good plan often has a better twin there that single steps do not reach. */
static void try_mirror(struct pipeline_search *s)
{
    struct exact *x = s->x;
    const struct trial *b = s->best;
    struct trial *t = &s->now;
    int n = b->n_stages, m = b->n_slices;
    t->n_stages = n;
    t->n_slices = m;
    for (int j = 0; j < n; j++) {
        t->device[j] = b->device[n - 1 - j];
        t->end[j] = x->c->n_layers - (j + 1 < n ? b->end[n - 2 - j] : 0);
    }
    for (int k = 0; k <= m; k++)
        t->cut[k] = x->c->n_units - b->cut[m - k];
    pieces_set(x, t->cut, m);
    t->value = exact_evaluate(x, t, 0, INFINITY);
    if (!isfinite(t->value))
        return;
    trial_polish(s, t, POLISH_ROUNDS, 1);
    trial_wander(s, ISLAND_PATIENCE, true);
}

/* With stages given, only slices are looked for. */
static void search_slices(struct pipeline_search *s)
{
    struct exact *x = s->x;
    struct trial *t = &s->now;
    t->n_stages = x->c->n_devices;
    for (int j = 0; j < t->n_stages; j++) {
        t->device[j] = j;
        t->end[j] = x->options->ends[j];
        bool connected = j + 1 == t->n_stages ||
                         x->c->hops[j * x->c->n_devices + j + 1].bandwidth_bytes_per_s > 0;
        if (!connected || !cost_fits(x->c, j, trial_first(t, j), t->end[j]))
            return;
    }
    for (int i = 0; i < SLICE_COUNTS; i++) {
        if (starts_slice_counts[i] > x->c->n_units)
            continue;
        slices_shaped(x, t, starts_slice_counts[i], 1);
        slices_polish(x, t, 1);
        best_note(s, t);
    }
}

int search_best(struct exact *x, struct trial *best, struct err *e)
{
    struct orders orders;
    struct pipeline_search *s = arena_alloc(x->c->arena, 1, sizeof *s);
    if (!s)
        return err_set(e, HP_ENOMEM, "out of memory while planning a pipeline");
    s->x = x;
    s->best = best;
    const double work = WORK * x->options->effort;
    x->work_limit = (long)work;
    if (x->options->ends) {
        search_slices(s);
        return 0;
    }
    int rc = orders_make(x, &orders, e);
    if (rc < 0)
        return rc;
    x->work_limit = (long)(work * FINDING_SHARE);
    if ((rc = starts_find(s, &orders, e)) < 0)
        return rc;
    x->work_limit = (long)(work * STARTS_SHARE);
    if ((rc = polish_starts(s, e)) < 0)
        return rc;
    x->work_limit = (long)(work * ISLANDS_SHARE);
    for (int i = 0; i < s->n_top && i < ISLANDS && s->top[i].value < best->value * HOPELESS; i++) {
        s->now = s->top[i];
        trial_polish(s, &s->now, POLISH_ROUNDS, 1);
        trial_wander(s, ISLAND_PATIENCE, true);
    }
    x->work_limit = (long)work;
    if (isfinite(best->value) && !x->options->order_fixed)
        try_mirror(s);
    s->now = *best;
    if (isfinite(best->value) && !x->options->order_fixed)
        trial_wander(s, (int)(PATIENCE * (x->options->effort > 1 ? x->options->effort : 1)), false);
    return 0;
}
