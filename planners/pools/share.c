#include "planners/pools/share.h"

#include <math.h>
#include <stdlib.h>

#include "planners/pools/relax.h"

/* A rate at which some stage just fills a share, and the devices that every stage then takes: whole
 * ones, and a part of one more.
 */
struct share_level {
    double rate;
    int whole[POOLS_MAX_STAGES];
    double part[POOLS_MAX_STAGES];
};

struct levels {
    struct share_level *items;
    int n;
};

static int level_order(const void *a, const void *b)
{
    double x = ((const struct share_level *)a)->rate, y = ((const struct share_level *)b)->rate;
    return (x > y) - (x < y);
}

/* Devices of a stage alone. */
static int rate_alone(const struct share_level *l, int d)
{
    return l->whole[d] + (l->part[d] > 0);
}

static bool shares_fit(const struct pools_problem *p, const struct pools_structure *s,
                       const struct share_level *l, const int *available)
{
    int need[POOLS_MAX_KINDS] = {0};
    for (int d = 0; d < s->n_stages; d++)
        need[s->stages[d].kind] += rate_alone(l, d);
    for (int k = 0; k < p->n_kinds; k++)
        if (need[k] > available[k])
            return false;
    return true;
}

/* Whether a stage at which the two meet leaves a part of a device over. */
static bool leaves_part(const struct share_level *l, unsigned meeting)
{
    for (int d = 0; d < POOLS_MAX_STAGES; d++)
        if ((meeting >> d & 1) && l->part[d] > 0)
            return true;
    return false;
}

static void level_fill(const struct pools_problem *p, const struct pools_structure *s,
                       struct share_level *l)
{
    for (int d = 0; d < s->n_stages; d++) {
        int count = (int)ceil(l->rate / s->stages[d].share_rate - 1e-9),
            v = p->kinds[s->stages[d].kind].shares[s->stages[d].share];
        l->whole[d] = count / v;
        l->part[d] = (double)(count % v) / v;
    }
}

/* Levels that fit, rising; only those that leave parts over where the two meet. */
static int levels_make(const struct pools_problem *p, const struct pools_structure *s,
                       const int *available, unsigned meeting, struct levels *out, struct err *e)
{
    int room = 0, n = 0;
    for (int d = 0; d < s->n_stages; d++)
        room +=
            available[s->stages[d].kind] * p->kinds[s->stages[d].kind].shares[s->stages[d].share];
    out->items = calloc((size_t)room + 1, sizeof *out->items);
    out->n = 0;
    if (!out->items)
        return err_set(e, HP_ENOMEM, "out of memory while pairing pipelines");
    for (int d = 0; d < s->n_stages; d++) {
        int most =
            available[s->stages[d].kind] * p->kinds[s->stages[d].kind].shares[s->stages[d].share];
        for (int i = 1; i <= most; i++)
            out->items[n++].rate = i * s->stages[d].share_rate;
    }
    qsort(out->items, (size_t)n, sizeof *out->items, level_order);
    double last = 0;
    for (int i = 0; i < n; i++) {
        struct share_level l = out->items[i];
        if (l.rate <= last * (1 + 1e-12))
            continue;
        last = l.rate;
        level_fill(p, s, &l);
        if (!shares_fit(p, s, &l, available))
            break; /* higher rates take no less */
        if (leaves_part(&l, meeting))
            out->items[out->n++] = l;
    }
    return 0;
}

/* Positions at which both have a stage on the same kind, as bits; 0 when no device would be cut
 * anyway. */
static unsigned meeting_of(const struct pools_problem *p, const struct pools_structure *a,
                           const struct pools_structure *b)
{
    unsigned meeting = 0;
    for (int d = 0; d < a->n_stages && d < b->n_stages; d++) {
        const struct pools_stage *x = &a->stages[d], *y = &b->stages[d];
        if (x->kind == y->kind && p->kinds[x->kind].shares[x->share] > 1 &&
            p->kinds[y->kind].shares[y->share] > 1)
            meeting |= 1u << d;
    }
    return meeting;
}

/* Takes from `devices`, which counts both alone, what they share. */
static bool save_shared(const struct pools_structure *a, const struct share_level *la,
                        const struct share_level *lb, unsigned meeting, int *devices)
{
    bool saves = false;
    for (int d = 0; d < a->n_stages; d++)
        if ((meeting >> d & 1) && la->part[d] > 0 && lb->part[d] > 0 &&
            la->part[d] + lb->part[d] <= 1 + 1e-9) {
            devices[a->stages[d].kind]--;
            saves = true;
        }
    return saves;
}

static void pair_levels(const struct pools_problem *p, const struct pools_structure *a,
                        const struct share_level *la, const struct pools_structure *b,
                        const struct levels *lb, unsigned meeting, const int *available,
                        pools_pair_fn found, void *ctx)
{
    int mine[POOLS_MAX_KINDS] = {0}, devices[POOLS_MAX_KINDS];
    for (int d = 0; d < a->n_stages; d++)
        mine[a->stages[d].kind] += rate_alone(la, d);
    for (int j = 0; j < lb->n; j++) {
        const struct share_level *l = &lb->items[j];
        bool over = false, far_over = false;
        for (int k = 0; k < p->n_kinds; k++)
            devices[k] = mine[k];
        for (int d = 0; d < b->n_stages; d++)
            devices[b->stages[d].kind] += rate_alone(l, d);
        bool saves = save_shared(a, la, l, meeting, devices);
        for (int k = 0; k < p->n_kinds; k++) {
            over = over || devices[k] > available[k];
            far_over = far_over || devices[k] > available[k] + POOLS_MAX_STAGES;
        }
        if (far_over)
            break; /* higher rates take no less, and sharing saves at most one device a stage */
        if (saves && !over)
            found(ctx, devices, la->rate, l->rate);
    }
}

int pools_pair_each(const struct pools_problem *p, const struct pools_structure *a,
                    const struct pools_structure *b, const int *available, pools_pair_fn found,
                    void *ctx, struct err *e)
{
    struct levels la = {0}, lb = {0};
    unsigned meeting = meeting_of(p, a, b);
    if (meeting == 0)
        return 0;
    int rc = levels_make(p, a, available, meeting, &la, e);
    if (rc == 0)
        rc = levels_make(p, b, available, meeting, &lb, e);
    for (int i = 0; rc == 0 && i < la.n; i++)
        pair_levels(p, a, &la.items[i], b, &lb, meeting, available, found, ctx);
    free(la.items);
    free(lb.items);
    return rc;
}

int pools_promising(const struct pools_problem *p, int model, const struct pools_structures *all,
                    const struct pools_relaxation *r, double slack, int *chosen, int most)
{
    int n = 0;
    for (int i = 0; i < all->count; i++) {
        double c = pools_reduced_cost(p, r, model, &all->items[i]);
        if (c > slack)
            continue;
        int at = n < most ? n : most;
        while (at > 0 && pools_reduced_cost(p, r, model, &all->items[chosen[at - 1]]) > c)
            at--;
        if (at == most)
            continue;
        for (int k = n < most ? n : most - 1; k > at; k--)
            chosen[k] = chosen[k - 1];
        chosen[at] = i;
        n += n < most;
    }
    return n;
}
