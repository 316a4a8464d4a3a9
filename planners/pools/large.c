#include "planners/pools/large.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { REST_CELLS = 12000, LOOK_BACK = 24 };

/* The largest rate up to x at which the structure wastes least: looks at the last rates where some
 * stage just fills a device, and takes the one whose devices, at the relaxation's prices, cost
 * least per request. 0 when not even one device a stage fits. */
static double thrifty_rate(const struct pools_structure *s, const double *price, double x)
{
    double best = 0, best_cost = INFINITY;
    for (int d = 0; d < s->n_stages; d++) {
        int devices = (int)floor(x / s->stages[d].device_rate + 1e-9);
        for (int back = 0; back < LOOK_BACK && devices - back > 0; back++) {
            double rate = (devices - back) * s->stages[d].device_rate, cost = 0;
            for (int i = 0; i < s->n_stages; i++)
                cost += (price[s->stages[i].kind] + 1e-12) *
                        ceil(rate / s->stages[i].device_rate - 1e-9);
            /* A little waste is better than leaving much to the second half. */
            cost = cost / rate * (1 + 0.02 * (1 - rate / x));
            if (cost < best_cost) {
                best_cost = cost;
                best = rate;
            }
        }
    }
    return best;
}

static int take_base(const struct pools_problem *p, const struct pools_structures *by_model,
                     const struct pools_relaxation *r, double part, struct pools_allocation *a,
                     struct err *e)
{
    for (int i = 0; i < r->n_columns; i++) {
        const struct pools_column *c = &r->columns[i];
        const struct pools_structure *s = &by_model[c->model].items[c->structure];
        double rate = thrifty_rate(s, r->price, c->rate * part);
        int devices[POOLS_MAX_STAGES];
        if (rate <= 0)
            continue;
        for (int d = 0; d < s->n_stages; d++)
            devices[d] = (int)ceil(rate / s->stages[d].device_rate - 1e-9);
        int rc = pools_allocation_add(p, a, c->model, s, devices, e);
        if (rc < 0)
            return rc;
    }
    pools_allocation_refresh(p, a);
    return 0;
}

/* What is left by kind, cut down so that the grid over it stays small: kinds are cut alike. */
static void rest_of(const struct pools_problem *p, const struct pools_allocation *a, int *rest)
{
    int used[POOLS_MAX_KINDS];
    pools_allocation_devices(p, a, used);
    for (int k = 0; k < p->n_kinds; k++)
        rest[k] = p->kinds[k].count > used[k] ? p->kinds[k].count - used[k] : 0;
    for (int most = 1 << 20; most > 1; most = most - most / 16 - 1) {
        double cells = 1;
        for (int k = 0; k < p->n_kinds; k++)
            cells *= (rest[k] < most ? rest[k] : most) + 1;
        if (cells > REST_CELLS)
            continue;
        for (int k = 0; k < p->n_kinds; k++)
            rest[k] = rest[k] < most ? rest[k] : most;
        return;
    }
}

/* The part of the relaxation's rates that leaves about `left` devices of the kind that it uses up.
 */
static double part_leaving(const struct pools_problem *p, double left)
{
    int most = 0;
    for (int k = 0; k < p->n_kinds; k++)
        most = p->kinds[k].count > most ? p->kinds[k].count : most;
    return fmax(0, 1 - left / most);
}

/* Shares out what `b` leaves and keeps the result in `a` if it is as good. `b` is freed. */
static int large_finish(const struct pools_problem *p, const struct pools_structures *by_model,
                        struct pools_allocation *b, struct pools_allocation *a, struct err *e)
{
    int rest[POOLS_MAX_KINDS];
    rest_of(p, b, rest);
    int rc = pools_allocate(p, by_model, POOLS_ANY, NULL, rest, b, e);
    /* An equal plan is taken too: it may be what the next step needs. */
    if (rc == 0 && b->objective >= a->objective) {
        struct pools_allocation old = *a;
        *a = *b;
        *b = old;
    }
    pools_allocation_free(b);
    return rc;
}

static int devices_divide(const struct pools_problem *p, const struct pools_structures *by_model,
                          const struct pools_relaxation *r, double part, struct pools_allocation *a,
                          struct err *e)
{
    struct pools_allocation b;
    int rc = pools_allocation_init(&b, p->n_models, e);
    if (rc < 0)
        return rc;
    if ((rc = take_base(p, by_model, r, part, &b, e)) < 0) {
        pools_allocation_free(&b);
        return rc;
    }
    return large_finish(p, by_model, &b, a, e);
}

/* Combinations of the devices that `b` leaves. */
static double rest_cells(const struct pools_problem *p, const struct pools_allocation *b)
{
    int used[POOLS_MAX_KINDS];
    double cells = 1;
    pools_allocation_devices(p, b, used);
    for (int k = 0; k < p->n_kinds; k++)
        cells *= p->kinds[k].count - used[k] + 1;
    return cells;
}

/* Takes a few devices of one stage from a pipeline, and from its other stages what they then have
 * too much of. */
static void devices_shrink(const struct pools_problem *p, struct pools_use *u, uint64_t *seed)
{
    const struct pools_stage *stage = &u->s.stages[(int)(random_unit(seed) * u->s.n_stages)];
    double few = 1 + floor(8 * random_unit(seed) * random_unit(seed));
    double rate = floor(u->rate / stage->device_rate - few + 1e-9) * stage->device_rate;
    for (int d = 0; d < u->s.n_stages; d++) {
        int v = p->kinds[u->s.stages[d].kind].shares[u->s.stages[d].share];
        int devices = rate > 0 ? (int)ceil(rate / u->s.stages[d].device_rate - 1e-9) : 0;
        u->count[d] = devices * v < u->count[d] ? devices * v : u->count[d];
    }
}

static void drop_empty(struct pools_model_plan *plan)
{
    int kept = 0;
    for (int i = 0; i < plan->n_uses; i++) {
        bool empty = false;
        for (int d = 0; d < plan->uses[i].s.n_stages; d++)
            empty = empty || plan->uses[i].count[d] <= 0;
        if (!empty)
            plan->uses[kept++] = plan->uses[i];
    }
    plan->n_uses = kept;
}

/* Takes pipelines apart, by chance, as far as the exact programme can hold what becomes free. */
static void take_apart(const struct pools_problem *p, struct pools_allocation *b, double most_cells,
                       uint64_t *seed)
{
    for (int tries = 0; tries < 60 && rest_cells(p, b) < most_cells / 2; tries++) {
        struct pools_model_plan *plan = &b->models[(int)(random_unit(seed) * b->n_models)];
        if (plan->n_uses == 0)
            continue;
        struct pools_use *u = &plan->uses[(int)(random_unit(seed) * plan->n_uses)], before = *u;
        devices_shrink(p, u, seed);
        pools_allocation_refresh(p, b);
        if (rest_cells(p, b) > most_cells)
            *u = before;
        drop_empty(plan);
        pools_allocation_refresh(p, b);
    }
}

static int large_search(const struct pools_problem *p, const struct pools_structures *by_model,
                        double enough, double seconds, uint64_t seed, const struct env *env,
                        struct pools_allocation *a, struct err *e)
{
    uint64_t end_ns = env_now_ns(env) + (uint64_t)(seconds * 1e9);
    while (a->objective < enough && env_now_ns(env) < end_ns) {
        struct pools_allocation b;
        int rc = pools_allocation_copy(a, &b, e);
        if (rc < 0)
            return rc;
        /* Many small neighbourhoods and a few large ones: a large one takes as long as dozens of
         * small ones. */
        take_apart(p, &b, REST_CELLS * pow(random_unit(&seed), 3) + 200, &seed);
        if ((rc = large_finish(p, by_model, &b, a, e)) < 0)
            return rc;
    }
    return 0;
}

int pools_allocate_large(const struct pools_problem *p, const struct pools_structures *by_model,
                         const struct pools_relaxation *r, double gap, double seconds,
                         uint64_t seed, const struct env *env, struct pools_allocation *a,
                         struct err *e)
{
    static const double lefts[] = {0, 2, 5, 10, 20, 40};
    double enough = r->bound * (1 - gap);
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < sizeof lefts / sizeof *lefts; i++) {
        double part = part_leaving(p, lefts[i]);
        rc = devices_divide(p, by_model, r, part, a, e);
        if (part <= 0 || a->objective >= enough)
            break;
    }
    return rc < 0 ? rc : large_search(p, by_model, enough, seconds, seed, env, a, e);
}

/* ---- limited assignments ---- */

static bool same_kinds(const struct pools_structure *a, const struct pools_structure *b)
{
    bool same = a->n_stages == b->n_stages;
    for (int d = 0; same && d < a->n_stages; d++)
        same = a->stages[d].kind == b->stages[d].kind;
    return same;
}

struct ranked {
    struct pools_structure s;
    double cost;
};

static int by_cost(const void *a, const void *b)
{
    double x = ((const struct ranked *)a)->cost, y = ((const struct ranked *)b)->cost;
    return (x > y) - (x < y);
}

static int limit_model(const struct pools_problem *p, const struct pools_relaxation *r, int m,
                       struct pools_structures *all, struct err *e)
{
    int n = 0;
    struct ranked *list = malloc((size_t)(all->count + 1) * sizeof *list);
    if (!list)
        return err_set(e, HP_ENOMEM, "out of memory while limiting pipelines");
    for (int i = 0; i < all->count; i++)
        list[i] = (struct ranked){all->items[i], pools_reduced_cost(p, r, m, &all->items[i])};
    qsort(list, (size_t)all->count, sizeof *list, by_cost);
    for (int i = 0; i < all->count; i++) {
        int same = 0;
        for (int k = 0; k < n; k++)
            same += same_kinds(&all->items[k], &list[i].s);
        if (same < p->pipelines_per_assignment)
            all->items[n++] = list[i].s;
    }
    all->count = n;
    free(list);
    return 0;
}

int pools_limit_structures(const struct pools_problem *p, const struct pools_relaxation *r,
                           struct pools_structures *by_model, struct err *e)
{
    int rc = 0;
    for (int m = 0; rc == 0 && m < p->n_models; m++)
        rc = limit_model(p, r, m, &by_model[m], e);
    return rc;
}
