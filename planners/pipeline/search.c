/* The search where plans are too many to weigh them all: good starts, local search from each, then random steps from the best.
 *
 * A start is an order of devices (orders.h) with a number of equal slices and balanced layers. Local search alternates between the ends of
 * stages for the slicing and the slicing for the stages, both under the exact flow. A random step changes the order of devices or the
 * slicing and is followed by local search where it looks promising. All is counted in work, never in time. */
#include "planners/pipeline/exact_int.h"

#include <math.h>
#include <string.h>

#include "planners/pipeline/orders.h"

enum { STARTS_KEPT = 128, SLICINGS_PER_ORDER = 3, PUBLISHED_STARTS = 6, POLISH_ROUNDS = 8, START_ROUNDS = 2 };
/* Plans of different orders of devices that are followed further, and steps in a row that may fail for each, and for the best. */
enum { ISLANDS = 24, ISLAND_PATIENCE = 40, PATIENCE = 500 };
/* A start is only followed when it is not worse than the best by more than this factor. */
#define HOPELESS 1.08
/* Pairs of stage and slice that may be timed: in all, and the parts of it after which looking for starts, local search from
 * them and islands have had their share. Balancing layers counts as so many pairs for each device. */
#define WORK 3.5e8
#define FINDING_SHARE 0.1
#define STARTS_SHARE 0.4
#define ISLANDS_SHARE 0.6
enum { BALANCE_WORK = 40 };

/* With the first few all orders of devices are tried. */
static const int slice_counts[] = {8, 64, 24, 1, 16, 4, 32, 12, 48, 2, 6, 96, 3};
static const double growths[] = {1, 1.1, 1.3, 0.9};
enum { FIRST_COUNTS = 4, ORDERS_KEPT = 96, SLICE_COUNTS = sizeof slice_counts / sizeof *slice_counts, GROWTHS = sizeof growths / sizeof *growths };

struct search {
    struct exact *x;
    struct trial top[STARTS_KEPT]; /* the best starts, of different orders, best first */
    int top_order[STARTS_KEPT];
    int n_top;
    struct trial now, step, home, *best;
    int order[PIPELINE_MAX_DEVICES];
};

/* ---- starts --------------------------------------------------------------------------------------------------------------------- */

/* Keeps a start if it is among the best, and among the best few of its order of devices. */
static void offer(struct search *s, const struct trial *t, int order)
{
    int same = 0, at = s->n_top;
    for (int i = 0; i < s->n_top; i++)
        if (s->top_order[i] == order && ++same == SLICINGS_PER_ORDER)
            at = i; /* the worst of this order gives way */
    if (same < SLICINGS_PER_ORDER && at == STARTS_KEPT)
        at--;
    if (at < s->n_top && s->top[at].value <= t->value)
        return;
    if (at == s->n_top)
        s->n_top++;
    for (; at > 0 && s->top[at - 1].value > t->value; at--) {
        s->top[at] = s->top[at - 1];
        s->top_order[at] = s->top_order[at - 1];
    }
    s->top[at] = *t;
    s->top_order[at] = order;
}

/* Tries the orders listed, with one slicing; best_of[order] becomes the least value that each had. */
static void try_orders(struct search *s, const struct orders *orders, const int *list, int n, double *best_of)
{
    struct exact *x = s->x;
    struct trial *t = &s->now;
    for (int i = 0; i < n && x->work < x->work_limit; i++) {
        int o = list[i];
        x->work += BALANCE_WORK * orders->length[o];
        if (!cuts_balance(x, orders->devices + (size_t)o * (size_t)orders->stride, orders->length[o], t))
            continue;
        t->value = exact_evaluate(x, t, 0, INFINITY);
        best_of[o] = t->value < best_of[o] ? t->value : best_of[o];
        if (isfinite(t->value))
            offer(s, t, o);
    }
}

static void set_slicing(struct search *s, int count, double growth)
{
    s->now.n_stages = 0;
    slices_shaped(s->x, &s->now, count < s->x->c->n_units ? count : s->x->c->n_units, growth);
    pieces_set(s->x, s->now.cut, s->now.n_slices);
}

/* The most promising orders to the front of the list. */
static void sort_orders(int *list, int n, const double *best_of)
{
    for (int i = 1; i < n; i++) {
        int o = list[i], at = i;
        for (; at > 0 && best_of[list[at - 1]] > best_of[o]; at--)
            list[at] = list[at - 1];
        list[at] = o;
    }
}

/* All orders with a few slicings, then the promising ones with all slicings. */
static int find_starts(struct search *s, const struct orders *orders, struct err *e)
{
    const struct cost *c = s->x->c;
    int *list = arena_alloc(c->arena, (size_t)orders->n + 1, sizeof *list), n = orders->n;
    double *best_of = arena_alloc(c->arena, (size_t)orders->n + 1, sizeof *best_of);
    if (!list || !best_of)
        return err_set(e, HP_ENOMEM, "out of memory while planning a pipeline");
    for (int o = 0; o < n; o++) {
        list[o] = o;
        best_of[o] = INFINITY;
    }
    for (int i = 0; i < FIRST_COUNTS; i++) {
        set_slicing(s, slice_counts[i], 1);
        try_orders(s, orders, list, n, best_of);
    }
    sort_orders(list, n, best_of);
    n = n < ORDERS_KEPT ? n : ORDERS_KEPT;
    for (int i = 0; i < SLICE_COUNTS; i++)
        for (int g = i < FIRST_COUNTS; g < GROWTHS && slice_counts[i] <= c->n_units && (g == 0 || slice_counts[i] > 3); g++) {
            set_slicing(s, slice_counts[i], growths[g]);
            try_orders(s, orders, list, n, best_of);
        }
    return 0;
}

/* ---- local search ----------------------------------------------------------------------------------------------------------------- */

static void note(struct search *s, const struct trial *t)
{
    if (t->value < s->best->value)
        *s->best = *t;
}

static bool same_order(const struct trial *a, const struct trial *b)
{
    return a->n_stages == b->n_stages && memcmp(a->device, b->device, (size_t)a->n_stages * sizeof *a->device) == 0;
}

/* Moves of cuts that are worth trying before the last ones. */
static int coarse(const struct exact *x) { return x->c->n_units > 128 ? x->c->n_units / 128 : 1; }

/* Until neither ends nor slices can be moved for the better. */
static void polish(struct search *s, struct trial *t, int rounds, int least)
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
        note(s, t);
        if (round > 0 && t->value >= before * (1 - 1e-9))
            break;
    }
}

/* Local search from every start; afterwards s->top has the results, best first, one of each order of devices. */
static int polish_starts(struct search *s, struct err *e)
{
    struct exact *x = s->x;
    int rc = 0, n = s->n_top;
    for (int i = 0; i < n && rc == 0 && x->work < x->work_limit; i++) {
        polish(s, &s->top[i], START_ROUNDS, coarse(x));
        if (i >= PUBLISHED_STARTS || x->options->objective != PIPELINE_LATENCY)
            continue;
        s->step = s->top[i];
        rc = slices_published(x, &s->step, e);
        s->step.value = INFINITY;
        if (rc == 0)
            polish(s, &s->step, POLISH_ROUNDS, 1);
        if (s->step.value < s->top[i].value)
            s->top[i] = s->step;
    }
    s->n_top = 0;
    for (int i = 0; i < n; i++) {
        s->now = s->top[i];
        int same = 0, at = s->n_top;
        while (same < s->n_top && !same_order(&s->top[same], &s->now))
            same++;
        if (same < s->n_top && s->top[same].value <= s->now.value)
            continue;
        at = same < s->n_top ? same : s->n_top++;
        for (; at > 0 && s->top[at - 1].value > s->now.value; at--)
            s->top[at] = s->top[at - 1];
        s->top[at] = s->now;
    }
    return rc;
}

/* ---- random steps ------------------------------------------------------------------------------------------------------------------- */

static int pick(struct exact *x, int n) { return (int)(random_next(&x->random) % (uint64_t)n); }

static int unused_device(struct search *s, int n)
{
    const struct cost *c = s->x->c;
    bool used[PIPELINE_MAX_DEVICES] = {false};
    for (int i = 0; i < n; i++)
        used[s->order[i]] = true;
    if (n >= c->n_devices)
        return -1;
    int skip = pick(s->x, c->n_devices - n), d = 0;
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
    const struct cost *c = x->c;
    int run = 1, node = c->cluster->devices[c->devices[order[a]].cluster_index].node;
    while (a + run < n && c->cluster->devices[c->devices[order[a + run]].cluster_index].node == node)
        run++;
    return run;
}

/* Changes the order of devices in s->order; gives its new length. */
static int change_order(struct search *s, int n)
{
    struct exact *x = s->x;
    int a = pick(x, n), b = pick(x, n), d = unused_device(s, n), n_run;
    switch (pick(x, 7)) {
    case 0: swap_places(s->order, a, b); break;
    case 1: move_device(s->order, a, b); break;
    case 2: /* another in its place */
        if (d >= 0 && !x->must[s->order[a]])
            s->order[a] = d;
        break;
    case 3: /* one more */
        if (d >= 0 && n < x->c->n_layers) {
            s->order[n] = d;
            move_device(s->order, n, pick(x, n + 1));
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

/* Another order of devices with balanced layers, in s->step. False: impossible, or nothing changed. */
static bool step_order(struct search *s)
{
    struct exact *x = s->x;
    int n = s->now.n_stages;
    memcpy(s->order, s->now.device, (size_t)n * sizeof(int));
    for (int times = 1 + pick(x, 2); times > 0; times--)
        n = change_order(s, n);
    pieces_set(x, s->now.cut, s->now.n_slices);
    s->step.n_slices = s->now.n_slices;
    memcpy(s->step.cut, s->now.cut, ((size_t)s->now.n_slices + 1) * sizeof(int));
    if (!cuts_balance(x, s->order, n, &s->step))
        return false;
    if (same_order(&s->step, &s->now))
        return false;
    s->step.value = exact_evaluate(x, &s->step, 0, s->now.value * 1.15);
    return isfinite(s->step.value);
}

/* One stage more, less or on another device, the ends of the others where they are. False: nothing changed. */
static bool edit_stage(struct search *s)
{
    struct exact *x = s->x;
    struct trial *t = &s->step;
    int n = t->n_stages, j = pick(x, n), first = trial_first(t, j), other = pick(x, n), unused;
    memcpy(s->order, t->device, (size_t)n * sizeof(int));
    unused = unused_device(s, n);
    switch (pick(x, 4)) {
    case 0: /* its layers go to a neighbour */
        if (n == 1 || x->must[t->device[j]])
            return false;
        if (j == n - 1 || (j > 0 && pick(x, 2)))
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
        t->end[j] = first + 1 + pick(x, t->end[j] - first - 1);
        t->n_stages++;
        return true;
    case 2: /* another device in its place */
        if (unused < 0 || x->must[t->device[j]])
            return false;
        t->device[j] = unused;
        return true;
    default:
        swap_places(t->device, j, other);
        return j != other;
    }
}

static bool step_stage(struct search *s)
{
    struct exact *x = s->x;
    s->step = s->now;
    if (!edit_stage(s))
        return false;
    pieces_set(x, s->step.cut, s->step.n_slices);
    s->step.value = exact_evaluate(x, &s->step, 0, s->now.value * 1.15);
    return isfinite(s->step.value);
}

/* Another number of slices for the same stages. */
static void step_slices(struct search *s)
{
    struct exact *x = s->x;
    s->step = s->now;
    int least = s->now.n_slices / 2 > 1 ? s->now.n_slices / 2 : 1, count = least + pick(x, 2 * s->now.n_slices - least + 2);
    slices_shaped(x, &s->step, count < x->c->n_units ? count : x->c->n_units, growths[pick(x, GROWTHS)]);
}

/* Some ends and cuts of the same plan a little elsewhere. */
static void step_nearby(struct search *s)
{
    struct exact *x = s->x;
    struct trial *t = &s->step;
    *t = s->now;
    for (int times = pick(x, 3); times > 0 && t->n_stages > 1; times--) {
        int j = pick(x, t->n_stages - 1), end = t->end[j] + (pick(x, 2) ? 1 : -1);
        if (end > trial_first(t, j) && end < t->end[j + 1] && end <= x->furthest[t->device[j] * (x->c->n_layers + 1) + trial_first(t, j)] &&
            t->end[j + 1] <= x->furthest[t->device[j + 1] * (x->c->n_layers + 1) + end])
            t->end[j] = end;
    }
    for (int times = 1 + pick(x, 4); times > 0 && t->n_slices > 1; times--) {
        int k = 1 + pick(x, t->n_slices - 1), cut = t->cut[k] + pick(x, 7) - 3;
        if (cut > t->cut[k - 1] && cut < t->cut[k + 1])
            t->cut[k] = cut;
    }
}

/* Random steps from s->now until many in a row did not help. With `order_stays` only slices and ends change. */
static void wander(struct search *s, int patience, bool order_stays)
{
    struct exact *x = s->x;
    struct trial *from = &s->home;
    *from = s->now;
    for (int idle = 0; idle < patience && x->work < x->work_limit; idle++) {
        if (order_stays || pick(x, 4) == 0) {
            if (pick(x, 4) == 0)
                step_slices(s);
            else
                step_nearby(s);
            slices_polish(x, &s->step, coarse(x));
        } else {
            if (!(pick(x, 2) ? step_order(s) : step_stage(s)))
                continue;
            cuts_polish(x, &s->step);
        }
        if (s->step.value < s->now.value * 1.03)
            polish(s, &s->step, POLISH_ROUNDS, 1);
        if (s->step.value < from->value * (1 - 1e-9)) {
            idle = 0;
            *from = s->step;
        }
        /* Now and then a slightly worse plan is followed, so that the search leaves a hollow. */
        if (s->step.value < s->now.value * (pick(x, 4) == 0 ? 1.005 : 1))
            s->now = s->step;
        if (idle % 64 == 63)
            s->now = *from;
    }
}

/* With stages given, only slices are looked for. */
static void search_slices(struct search *s)
{
    struct exact *x = s->x;
    struct trial *t = &s->now;
    t->n_stages = x->c->n_devices;
    for (int j = 0; j < t->n_stages; j++) {
        t->device[j] = j;
        t->end[j] = x->options->ends[j];
        bool connected = j + 1 == t->n_stages || x->c->hops[j * x->c->n_devices + j + 1].bandwidth_bytes_per_s > 0;
        if (!connected || !cost_fits(x->c, j, trial_first(t, j), t->end[j]))
            return;
    }
    for (int i = 0; i < SLICE_COUNTS; i++) {
        if (slice_counts[i] > x->c->n_units)
            continue;
        slices_shaped(x, t, slice_counts[i], 1);
        slices_polish(x, t, 1);
        note(s, t);
    }
}

int search_best(struct exact *x, struct trial *best, struct err *e)
{
    struct orders orders;
    struct search *s = arena_alloc(x->c->arena, 1, sizeof *s);
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
    if ((rc = find_starts(s, &orders, e)) < 0)
        return rc;
    x->work_limit = (long)(work * STARTS_SHARE);
    if ((rc = polish_starts(s, e)) < 0)
        return rc;
    x->work_limit = (long)(work * ISLANDS_SHARE);
    for (int i = 0; i < s->n_top && i < ISLANDS && s->top[i].value < best->value * HOPELESS; i++) {
        s->now = s->top[i];
        polish(s, &s->now, POLISH_ROUNDS, 1);
        wander(s, ISLAND_PATIENCE, true);
    }
    x->work_limit = (long)work;
    s->now = *best;
    if (isfinite(best->value) && !x->options->order_fixed)
        wander(s, PATIENCE, false);
    return 0;
}
