/* Where the search starts from: orders of devices with balanced layers and slices of a simple
 * shape. */
#include "planners/pipeline/starts.h"

#include <math.h>

#include "planners/pipeline/cuts.h"
#include "planners/pipeline/slices.h"

/* With the first few slicings all orders of devices are tried, with the others the best of these.
 * Balancing layers counts as so much work for each device. */
enum { FIRST_COUNTS = 4, ORDERS_KEPT = 96, SLICINGS_PER_ORDER = 3, BALANCE_WORK = 40 };

const int starts_slice_counts[SLICE_COUNTS] = {8, 64, 24, 1, 16, 4, 32, 12, 48, 2, 6, 96, 3};
const double starts_growths[GROWTHS] = {1, 1.1, 1.3, 0.9};

/* Keeps a start if it is among the best, and among the best few of its order of devices. */
static void start_offer(struct pipeline_search *s, const struct trial *t, int order)
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

/* Tries the orders listed, with one slicing; best_of[order] becomes the least value that each had.
 */
static void try_orders(struct pipeline_search *s, const struct orders *orders, const int *list,
                       int n, double *best_of)
{
    struct exact *x = s->x;
    struct trial *t = &s->now;
    for (int i = 0; i < n && x->work < x->work_limit; i++) {
        int o = list[i];
        x->work += BALANCE_WORK * orders->length[o];
        if (!cuts_balance(x, orders->devices + (size_t)o * (size_t)orders->stride,
                          orders->length[o], t))
            continue;
        t->value = exact_evaluate(x, t, 0, INFINITY);
        best_of[o] = t->value < best_of[o] ? t->value : best_of[o];
        if (isfinite(t->value))
            start_offer(s, t, o);
    }
}

static void set_slicing(struct pipeline_search *s, int count, double growth)
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
int starts_find(struct pipeline_search *s, const struct orders *orders, struct err *e)
{
    const struct pipeline_cost *c = s->x->c;
    int *list = arena_alloc(c->arena, (size_t)orders->n + 1, sizeof *list), n = orders->n;
    double *best_of = arena_alloc(c->arena, (size_t)orders->n + 1, sizeof *best_of);
    if (!list || !best_of)
        return err_set(e, HP_ENOMEM, "out of memory while planning a pipeline");
    for (int o = 0; o < n; o++) {
        list[o] = o;
        best_of[o] = INFINITY;
    }
    for (int i = 0; i < FIRST_COUNTS; i++) {
        set_slicing(s, starts_slice_counts[i], 1);
        try_orders(s, orders, list, n, best_of);
    }
    sort_orders(list, n, best_of);
    n = n < ORDERS_KEPT ? n : ORDERS_KEPT;
    for (int i = 0; i < SLICE_COUNTS; i++)
        for (int g = i < FIRST_COUNTS; g < GROWTHS && starts_slice_counts[i] <= c->n_units &&
                                       (g == 0 || starts_slice_counts[i] > 3);
             g++) {
            set_slicing(s, starts_slice_counts[i], starts_growths[g]);
            try_orders(s, orders, list, n, best_of);
        }
    return 0;
}
