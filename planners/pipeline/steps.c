/* Random changes of a plan: its order of devices, its stages, its slices. */
#include "planners/pipeline/steps.h"

#include <math.h>
#include <string.h>

#include "planners/pipeline/cuts.h"
#include "planners/pipeline/slices.h"
#include "planners/pipeline/starts.h"

/* A changed order or stage is only looked at further when it is not worse by more than this factor
 * before local search. */
#define FAR_WORSE 1.15

static int unused_device(struct pipeline_search *s, int n)
{
    const struct pipeline_cost *c = s->x->c;
    bool used[PIPELINE_MAX_DEVICES] = {false};
    for (int i = 0; i < n; i++)
        used[s->order[i]] = true;
    if (n >= c->n_devices)
        return -1;
    int skip = step_pick(s->x, c->n_devices - n), d = 0;
    for (;; d++)
        if (!used[d] && skip-- == 0)
            return d;
}

static void move_device(int *order, int from, int to)
{
    int device = order[from];
    memmove(order + from, order + from + 1, (size_t)(to > from ? to - from : 0) * sizeof *order);
    if (to < from)
        memmove(order + to + 1, order + to, (size_t)(from - to) * sizeof *order);
    order[to] = device;
}

static void swap_places(int *order, int a, int b)
{
    int t = order[a];
    order[a] = order[b];
    order[b] = t;
}

/* How many devices from place a on are on one node. */
static int run_of_node(const struct exact *x, const int *order, int n, int a)
{
    const struct pipeline_cost *c = x->c;
    int run = 1, node = c->cluster->devices[c->devices[order[a]].cluster_index].node;
    while (a + run < n &&
           c->cluster->devices[c->devices[order[a + run]].cluster_index].node == node)
        run++;
    return run;
}

/* Changes the order of devices in s->order; gives its new length. */
static int change_order(struct pipeline_search *s, int n)
{
    struct exact *x = s->x;
    int a = step_pick(x, n), b = step_pick(x, n), d = unused_device(s, n), n_run;
    switch (step_pick(x, 7)) {
    case 0: swap_places(s->order, a, b); break;
    case 1: move_device(s->order, a, b); break;
    case 2: /* another in its place */
        if (d >= 0 && !x->must[s->order[a]])
            s->order[a] = d;
        break;
    case 3: /* one more */
        if (d >= 0 && n < x->c->n_layers) {
            s->order[n] = d;
            move_device(s->order, n, step_pick(x, n + 1));
            n++;
        }
        break;
    case 4: /* one less */
        if (n > 1 && !x->must[s->order[a]])
            move_device(s->order, a, --n);
        break;
    case 5: /* all neighbours on one node elsewhere, together */
        n_run = run_of_node(x, s->order, n, a);
        for (int i = 0, to = b < n - n_run ? b : n - n_run; i < n_run; i++)
            move_device(s->order, to > a ? a : a + i, to > a ? to + n_run - 1 : to + i);
        break;
    default: /* a stretch the other way round */
        for (int lo = a < b ? a : b, hi = a < b ? b : a; lo < hi; lo++, hi--)
            swap_places(s->order, lo, hi);
    }
    return n;
}

/* Another order of devices with balanced layers, in s->step. False: impossible, or nothing changed.
 */
bool step_order(struct pipeline_search *s)
{
    struct exact *x = s->x;
    int n = s->now.n_stages;
    memcpy(s->order, s->now.device, (size_t)n * sizeof(int));
    for (int times = 1 + step_pick(x, 2); times > 0; times--)
        n = change_order(s, n);
    pieces_set(x, s->now.cut, s->now.n_slices);
    s->step.n_slices = s->now.n_slices;
    memcpy(s->step.cut, s->now.cut, ((size_t)s->now.n_slices + 1) * sizeof(int));
    if (!cuts_balance(x, s->order, n, &s->step))
        return false;
    if (same_order(&s->step, &s->now))
        return false;
    s->step.value = exact_evaluate(x, &s->step, 0, s->now.value * FAR_WORSE);
    return isfinite(s->step.value);
}

/* One stage more, less or on another device, the ends of the others where they are. False: nothing
 * changed. */
static bool edit_stage(struct pipeline_search *s)
{
    struct exact *x = s->x;
    struct trial *t = &s->step;
    int n = t->n_stages, j = step_pick(x, n), first = trial_first(t, j), other = step_pick(x, n),
        unused;
    memcpy(s->order, t->device, (size_t)n * sizeof(int));
    unused = unused_device(s, n);
    switch (step_pick(x, 4)) {
    case 0: /* its layers go to a neighbour */
        if (n == 1 || x->must[t->device[j]])
            return false;
        if (j == n - 1 || (j > 0 && step_pick(x, 2)))
            t->end[j - 1] = t->end[j];
        memmove(&t->device[j], &t->device[j + 1], (size_t)(n - 1 - j) * sizeof(int));
        memmove(&t->end[j], &t->end[j + 1], (size_t)(n - 1 - j) * sizeof(int));
        t->n_stages--;
        return true;
    case 1: /* another device takes some of its first layers */
        if (unused < 0 || t->end[j] - first < 2)
            return false;
        memmove(&t->device[j + 1], &t->device[j], (size_t)(n - j) * sizeof(int));
        memmove(&t->end[j + 1], &t->end[j], (size_t)(n - j) * sizeof(int));
        t->device[j] = unused;
        t->end[j] = first + 1 + step_pick(x, t->end[j] - first - 1);
        t->n_stages++;
        return true;
    case 2: /* another device in its place */
        if (unused < 0 || x->must[t->device[j]])
            return false;
        t->device[j] = unused;
        return true;
    default: swap_places(t->device, j, other); return j != other;
    }
}

bool step_stage(struct pipeline_search *s)
{
    struct exact *x = s->x;
    s->step = s->now;
    if (!edit_stage(s))
        return false;
    pieces_set(x, s->step.cut, s->step.n_slices);
    s->step.value = exact_evaluate(x, &s->step, 0, s->now.value * FAR_WORSE);
    return isfinite(s->step.value);
}

/* Another number of slices for the same stages. */
void step_slices(struct pipeline_search *s)
{
    struct exact *x = s->x;
    s->step = s->now;
    int least = s->now.n_slices / 2 > 1 ? s->now.n_slices / 2 : 1,
        count = least + step_pick(x, 2 * s->now.n_slices - least + 2);
    slices_shaped(x, &s->step, count < x->c->n_units ? count : x->c->n_units,
                  starts_growths[step_pick(x, GROWTHS)]);
}

/* Some ends and cuts of the same plan a little elsewhere. */
void step_nearby(struct pipeline_search *s)
{
    struct exact *x = s->x;
    struct trial *t = &s->step;
    *t = s->now;
    for (int times = step_pick(x, 3); times > 0 && t->n_stages > 1; times--) {
        int j = step_pick(x, t->n_stages - 1), end = t->end[j] + (step_pick(x, 2) ? 1 : -1);
        if (end > trial_first(t, j) && end < t->end[j + 1] &&
            end <= x->furthest[t->device[j] * (x->c->n_layers + 1) + trial_first(t, j)] &&
            t->end[j + 1] <= x->furthest[t->device[j + 1] * (x->c->n_layers + 1) + end])
            t->end[j] = end;
    }
    for (int times = 1 + step_pick(x, 4); times > 0 && t->n_slices > 1; times--) {
        int k = 1 + step_pick(x, t->n_slices - 1), cut = t->cut[k] + step_pick(x, 7) - 3;
        if (cut > t->cut[k - 1] && cut < t->cut[k + 1])
            t->cut[k] = cut;
    }
}
