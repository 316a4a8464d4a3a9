#include "planners/pools/share.h"

#include <math.h>
#include <stdlib.h>

#include "planners/pools/relax.h"

/* Rates at which some stage just fills a share, rising, with the devices (fractions) that every stage then takes. */
struct level {
    double rate;
    double taken[POOLS_MAX_STAGES];
};

struct levels {
    struct level *items;
    int n;
};

static int level_order(const void *a, const void *b)
{
    double x = ((const struct level *)a)->rate, y = ((const struct level *)b)->rate;
    return (x > y) - (x < y);
}

static bool fits(const struct pools_problem *p, const struct pools_structure *s, const struct level *l, const int *available)
{
    int need[POOLS_MAX_KINDS] = {0};
    for (int d = 0; d < s->n_stages; d++)
        need[s->stages[d].kind] += (int)ceil(l->taken[d] - 1e-9);
    for (int k = 0; k < p->n_kinds; k++)
        if (need[k] > available[k])
            return false;
    return true;
}

static int levels_make(const struct pools_problem *p, const struct pools_structure *s, const int *available, struct levels *out,
                       struct err *e)
{
    int room = 0, n = 0;
    for (int d = 0; d < s->n_stages; d++)
        room += available[s->stages[d].kind] * p->kinds[s->stages[d].kind].shares[s->stages[d].share];
    out->items = malloc((size_t)(room + 1) * sizeof *out->items);
    out->n = 0;
    if (!out->items)
        return err_set(e, HP_ENOMEM, "out of memory while pairing pipelines");
    for (int d = 0; d < s->n_stages; d++) {
        int most = available[s->stages[d].kind] * p->kinds[s->stages[d].kind].shares[s->stages[d].share];
        for (int i = 1; i <= most; i++)
            out->items[n++].rate = i * s->stages[d].share_rate;
    }
    qsort(out->items, (size_t)n, sizeof *out->items, level_order);
    for (int i = 0; i < n; i++) {
        struct level l = out->items[i];
        if (out->n > 0 && l.rate <= out->items[out->n - 1].rate * (1 + 1e-12))
            continue;
        for (int d = 0; d < s->n_stages; d++)
            l.taken[d] = ceil(l.rate / s->stages[d].share_rate - 1e-9) / p->kinds[s->stages[d].kind].shares[s->stages[d].share];
        if (!fits(p, s, &l, available))
            break; /* higher rates take no less */
        out->items[out->n++] = l;
    }
    return 0;
}

/* Devices by kind of both together, and whether that is fewer than of each alone. False when they do not fit. */
static bool together(const struct pools_problem *p, const struct pools_structure *a, const struct level *la,
                     const struct pools_structure *b, const struct level *lb, const int *available, int *devices, bool *saves)
{
    for (int k = 0; k < p->n_kinds; k++)
        devices[k] = 0;
    int stages = a->n_stages > b->n_stages ? a->n_stages : b->n_stages;
    *saves = false;
    for (int d = 0; d < stages; d++) {
        double x = d < a->n_stages ? la->taken[d] : 0, y = d < b->n_stages ? lb->taken[d] : 0;
        int cx = (int)ceil(x - 1e-9), cy = (int)ceil(y - 1e-9);
        if (cx > 0 && cy > 0 && a->stages[d].kind == b->stages[d].kind) {
            int both = (int)ceil(x + y - 1e-9);
            devices[a->stages[d].kind] += both;
            *saves = *saves || both < cx + cy;
            continue;
        }
        if (cx > 0)
            devices[a->stages[d].kind] += cx;
        if (cy > 0)
            devices[b->stages[d].kind] += cy;
    }
    for (int k = 0; k < p->n_kinds; k++)
        if (devices[k] > available[k])
            return false;
    return true;
}

static bool meet(const struct pools_problem *p, const struct pools_structure *a, const struct pools_structure *b)
{
    for (int d = 0; d < a->n_stages && d < b->n_stages; d++) {
        const struct pools_stage *x = &a->stages[d], *y = &b->stages[d];
        if (x->kind == y->kind && (p->kinds[x->kind].shares[x->share] > 1 || p->kinds[y->kind].shares[y->share] > 1))
            return true;
    }
    return false;
}

int pools_pair_each(const struct pools_problem *p, const struct pools_structure *a, const struct pools_structure *b,
                    const int *available, pools_pair_fn found, void *ctx, struct err *e)
{
    struct levels la = {0}, lb = {0};
    if (!meet(p, a, b))
        return 0;
    int rc = levels_make(p, a, available, &la, e);
    if (rc == 0)
        rc = levels_make(p, b, available, &lb, e);
    for (int i = 0; rc == 0 && i < la.n; i++)
        for (int j = 0; j < lb.n; j++) {
            int devices[POOLS_MAX_KINDS];
            bool saves;
            if (!together(p, a, &la.items[i], b, &lb.items[j], available, devices, &saves))
                break;
            if (saves)
                found(ctx, devices, la.items[i].rate, lb.items[j].rate);
        }
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
