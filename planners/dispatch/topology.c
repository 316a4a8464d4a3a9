#include "planners/dispatch/topology.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "planners/pools/check.h"

/* Devices of one kind, handed out from the front. */
struct stock {
    int used, count;
    double
        *left; /* of devices [0, used): part that no pool has; whole devices are entered with 0 */
};

struct topology_layout {
    struct dispatch_topology *t;
    const struct pools_problem *p;
    const struct cluster *c;
    int *device_nodes[POOLS_MAX_KINDS]; /* node of each device of a kind */
    int *device_ids[POOLS_MAX_KINDS]; /* its index in the cluster; -1 where that is hypothetical */
    struct stock stock[POOLS_MAX_KINDS];
    bool share;
};

/* Rounded up, and at most some thirty years. */
static int64_t to_ns(double seconds)
{
    return seconds < 1e9 ? (int64_t)ceil(seconds * 1e9 - 1e-3) : INT64_C(1000000000000000000);
}

/* ---- nodes ---- */

static int prepare_nodes(struct topology_layout *l, struct err *e)
{
    struct dispatch_topology *t = l->t;
    for (int k = 0; k < l->p->n_kinds; k++) {
        const struct pools_kind *kind = &l->p->kinds[k];
        l->stock[k].count = kind->count;
        l->stock[k].left = calloc((size_t)kind->count + 1, sizeof *l->stock[k].left);
        l->device_nodes[k] = malloc(((size_t)kind->count + 1) * sizeof *l->device_nodes[k]);
        l->device_ids[k] = malloc(((size_t)kind->count + 1) * sizeof *l->device_ids[k]);
        if (!l->stock[k].left || !l->device_nodes[k] || !l->device_ids[k])
            return err_no_memory(e, "laying the plan out on the cluster");
        if (l->c->hypothetical) {
            for (int i = 0; i < kind->count; i++)
                l->device_nodes[k][i] = t->n_nodes + i / kind->per_node;
            for (int i = 0; i < kind->count; i++)
                l->device_ids[k][i] = -1;
            t->n_nodes += (kind->count + kind->per_node - 1) / kind->per_node;
            continue;
        }
        for (int i = 0, n = 0; i < l->c->n_devices && n < kind->count; i++)
            if (strcmp(l->c->devices[i].kind, kind->name) == 0) {
                l->device_ids[k][n] = i;
                l->device_nodes[k][n++] = l->c->devices[i].node;
            }
        t->n_nodes = l->c->n_nodes;
    }
    return 0;
}

/* The device that takes 1/v: one from `from` on that has so much left, else a fresh one. Where
 * devices are shared, a plan counts fractions by their sum, which unequal parts may not fill: the
 * last few then go where most is left. -1: none. */
static int take_part(struct stock *s, int from, double part, bool share)
{
    int most = -1;
    for (int i = from; i < s->used; i++)
        if (s->left[i] >= part - 1e-9) {
            s->left[i] -= part;
            return i;
        }
    if (s->used < s->count) {
        s->left[s->used] = 1 - part;
        return s->used++;
    }
    for (int i = 0; share && i < s->used; i++)
        if (s->left[i] > 1e-9 && (most < 0 || s->left[i] > s->left[most]))
            most = i;
    if (most >= 0)
        s->left[most] -= part;
    return most;
}

static int place_shares(struct topology_layout *l, struct dispatch_stage *st,
                        const struct plan_pools_stage *from, int first_device, struct err *e)
{
    struct dispatch_topology *t = l->t;
    st->first_share = t->n_shares;
    st->n_shares = from->count;
    for (int i = 0; i < from->count; i++) {
        int device = take_part(&l->stock[st->kind], first_device, 1.0 / from->share, l->share);
        if (device < 0)
            return err_set(e, HP_EINFEASIBLE,
                           "the plan takes more than the cluster's %d devices of kind %s",
                           l->stock[st->kind].count, from->kind);
        t->shares[t->n_shares++] =
            (struct dispatch_share){.node = l->device_nodes[st->kind][device],
                                    .kind = st->kind,
                                    .device = device,
                                    .cluster_device = l->device_ids[st->kind][device],
                                    .part = 1.0 / from->share};
    }
    return 0;
}

/* ---- costs ---- */

/* Seconds of a batch of n: that of the smallest profiled batch of at least n. NaN: none. */
static double batch_seconds(const struct pools_model *m, const struct pools_placed *at,
                            const struct plan_pools_stage *s, int n)
{
    double best = NAN;
    for (int b = at->batch; b >= 0 && m->batches[b] >= n; b--) {
        double v = pools_compute_s(m, at->kind, at->share, b, s->first_layer, s->end_layer);
        if (!isnan(v))
            best = v;
    }
    return best;
}

static int fill_costs(struct topology_layout *l, int model, const struct plan_pools_pipeline *from,
                      int d, const struct pools_placed *at, const struct pools_placed *next,
                      struct dispatch_stage *st, struct err *e)
{
    const struct pools_model *m = &l->p->models[model];
    const struct plan_pools_stage *s = &from->stages[d];
    st->compute_ns = arena_alloc(&l->t->arena, (size_t)from->batch + 1, sizeof *st->compute_ns);
    st->transfer_ns = arena_alloc(&l->t->arena, (size_t)from->batch + 1, sizeof *st->transfer_ns);
    if (!st->compute_ns || !st->transfer_ns)
        return err_no_memory(e, "laying the plan out on the cluster");
    double sample_s = next ? pools_transfer_s(l->p, m, s->end_layer, at->kind, next->kind) : 0;
    for (int n = 1; n <= from->batch; n++) {
        st->compute_ns[n] = to_ns(batch_seconds(m, at, s, n));
        st->transfer_ns[n] = to_ns(n * sample_s);
    }
    if (next)
        st->hop_latency_ns =
            to_ns(l->p->kinds[at->kind].latency_s + l->p->kinds[next->kind].latency_s);
    return 0;
}

static int lay_pipeline(struct topology_layout *l, int model,
                        const struct plan_pools_pipeline *from, const int *first_device,
                        struct err *e)
{
    struct dispatch_pipeline *pl = &l->t->pipelines[l->t->n_pipelines];
    struct pools_placed at[PLAN_POOLS_MAX_STAGES];
    *pl = (struct dispatch_pipeline){
        .model = model, .batch = from->batch, .n_stages = from->n_stages, .rate = INFINITY};
    for (int d = 0; d < from->n_stages; d++) {
        int rc = pools_place(l->p, model, from, d, &at[d], e);
        if (rc < 0)
            return err_at(e, "%s, pipeline %d, stage %d", l->p->models[model].name,
                          l->t->n_pipelines - l->t->models[model].first_pipeline, d);
        pl->stages[d].kind = at[d].kind;
        pl->rate = fmin(pl->rate, from->stages[d].count * at[d].share_rate);
    }
    if (from->stages[from->n_stages - 1].end_layer != l->p->models[model].n_layers)
        return err_set(e, HP_EINVAL, "%s, pipeline %d: ends at layer %d; the model has %d",
                       l->p->models[model].name,
                       l->t->n_pipelines - l->t->models[model].first_pipeline,
                       from->stages[from->n_stages - 1].end_layer, l->p->models[model].n_layers);
    for (int d = 0; d < from->n_stages; d++) {
        const struct pools_placed *next = d + 1 < from->n_stages ? &at[d + 1] : NULL;
        int from_device = first_device[at[d].kind * PLAN_POOLS_MAX_STAGES + d], rc;
        if (from_device < 0)
            from_device = l->stock[at[d].kind].used;
        if ((rc = fill_costs(l, model, from, d, &at[d], next, &pl->stages[d], e)) < 0 ||
            (rc = place_shares(l, &pl->stages[d], &from->stages[d], from_device, e)) < 0)
            return rc;
    }
    l->t->n_pipelines++;
    l->t->models[model].n_pipelines++;
    l->t->models[model].rate += pl->rate;
    return 0;
}

/* Where devices are shared, a stage may also use what earlier pipelines of the model left over at
 * its position: those from first_device on. Shares of a kind and position are then laid out
 * pipeline by pipeline, so that position by position the devices follow each other. */
static int lay_model(struct topology_layout *l, int model, const struct plan_pools_model *from,
                     struct err *e)
{
    int first_device[POOLS_MAX_KINDS * PLAN_POOLS_MAX_STAGES];
    struct dispatch_model *m = &l->t->models[model];
    m->first_pipeline = l->t->n_pipelines;
    for (int i = 0; i < POOLS_MAX_KINDS * PLAN_POOLS_MAX_STAGES; i++)
        first_device[i] = -1;
    for (int i = 0; from && i < from->n_pipelines; i++) {
        int before[POOLS_MAX_KINDS];
        for (int k = 0; k < l->p->n_kinds; k++)
            before[k] = l->stock[k].used;
        int rc = lay_pipeline(l, model, &from->pipelines[i], first_device, e);
        if (rc < 0)
            return rc;
        for (int k = 0; k < l->p->n_kinds; k++) {
            for (int d = 0; l->share && d < PLAN_POOLS_MAX_STAGES; d++)
                if (first_device[k * PLAN_POOLS_MAX_STAGES + d] < 0)
                    first_device[k * PLAN_POOLS_MAX_STAGES + d] = before[k];
            for (int dev = before[k]; !l->share && dev < l->stock[k].used; dev++)
                l->stock[k].left[dev] = 0;
        }
    }
    m->planned_rate = from && from->throughput_per_s > 0 ? from->throughput_per_s : m->rate;
    return 0;
}

static const struct plan_pools_model *model_of(const struct plan_pools *plan, const char *name)
{
    for (int i = 0; i < plan->n_models; i++)
        if (strcmp(plan->models[i].name, name) == 0)
            return &plan->models[i];
    return NULL;
}

static int topology_allocate(struct dispatch_topology *t, const struct plan_pools *plan,
                             int n_models, struct err *e)
{
    size_t pipelines = 1, shares = 1;
    for (int m = 0; m < plan->n_models; m++)
        for (int i = 0; i < plan->models[m].n_pipelines; i++, pipelines++) {
            const struct plan_pools_pipeline *p = &plan->models[m].pipelines[i];
            if (p->batch > 65536)
                return err_set(e, HP_EINVAL, "%s, pipeline %d: a batch of %d was not profiled",
                               plan->models[m].name, i, p->batch);
            for (int d = 0; d < p->n_stages; d++)
                shares += (size_t)p->stages[d].count;
        }
    if (shares > 10000000)
        return err_set(e, HP_ELIMIT,
                       "the plan has %zu shares of devices; at most 10000000 can be scheduled",
                       shares);
    t->models = arena_alloc(&t->arena, (size_t)n_models, sizeof *t->models);
    t->pipelines = arena_alloc(&t->arena, pipelines, sizeof *t->pipelines);
    t->shares = arena_alloc(&t->arena, shares, sizeof *t->shares);
    return t->models && t->pipelines && t->shares
               ? 0
               : err_no_memory(e, "laying the plan out on the cluster");
}

static int lay_out(struct topology_layout *l, const struct plan_pools *plan, struct err *e)
{
    struct dispatch_topology *t = l->t;
    int rc = topology_allocate(t, plan, l->p->n_models, e);
    if (rc < 0 || (rc = prepare_nodes(l, e)) < 0)
        return rc;
    for (int i = 0; i < plan->n_models; i++) {
        bool known = false;
        for (int m = 0; m < l->p->n_models && !known; m++)
            known = strcmp(l->p->models[m].name, plan->models[i].name) == 0;
        if (!known)
            return err_set(e, HP_EINVAL, "the plan serves %s, which the workload does not have",
                           plan->models[i].name);
    }
    for (t->n_models = 0; t->n_models < l->p->n_models; t->n_models++) {
        const struct pools_model *m = &l->p->models[t->n_models];
        t->models[t->n_models] = (struct dispatch_model){.name = arena_strdup(&t->arena, m->name),
                                                         .weight = m->weight,
                                                         .slo_ns = to_ns(m->slo_s)};
        if ((rc = lay_model(l, t->n_models, model_of(plan, m->name), e)) < 0)
            return rc;
    }
    t->n_kinds = l->p->n_kinds;
    for (int k = 0; k < t->n_kinds; k++) {
        t->kinds[k] = arena_strdup(&t->arena, l->p->kinds[k].name);
        t->devices[k] = l->stock[k].used;
    }
    return 0;
}

static int lay_out_once(const struct pools_problem *p, const struct plan_pools *plan,
                        const struct cluster *c, bool share, struct dispatch_topology *out,
                        struct err *e)
{
    struct dispatch_topology t = {0};
    struct topology_layout l = {.t = &t, .p = p, .c = c, .share = share};
    int rc = lay_out(&l, plan, e);
    for (int k = 0; k < POOLS_MAX_KINDS; k++) {
        free(l.stock[k].left);
        free(l.device_nodes[k]);
        free(l.device_ids[k]);
    }
    if (rc < 0)
        arena_free(&t.arena);
    else
        *out = t;
    return rc;
}

int dispatch_topology_make(const struct plan_pools *plan, const struct cluster *c,
                           const struct workload *w, int share_devices,
                           struct dispatch_topology *out, struct err *e)
{
    struct pools_problem p = {0};
    int rc = pools_problem_make(c, w, &p, e);
    if (rc < 0)
        return rc;
    bool share = share_devices < 0 ? p.share_devices : share_devices != 0;
    rc = lay_out_once(&p, plan, c, share, out, e);
    /* A plan that was made for shared devices says so by not fitting otherwise. */
    if (rc == HP_EINFEASIBLE && share_devices < 0 && !share)
        rc = lay_out_once(&p, plan, c, true, out, e);
    pools_problem_free(&p);
    return rc;
}

/* ---- the same shares, other costs ---- */

static int64_t *costs_copy(struct arena *a, const int64_t *from, int batch)
{
    return arena_memdup(a, from, ((size_t)batch + 1) * sizeof *from);
}

/* The pipeline `from` of another topology, on the shares that the pipeline `base` has. */
static int pipeline_add(struct dispatch_topology *t, int base, const struct dispatch_pipeline *from,
                        struct dispatch_pipeline *out, struct err *e)
{
    const struct dispatch_pipeline *own = &t->pipelines[base];
    *out = *from;
    out->beside = base + 1;
    if (from->n_stages != own->n_stages || from->batch != own->batch)
        return err_set(e, HP_EINVAL, "pipelines of two plans");
    for (int s = 0; s < from->n_stages; s++) {
        struct dispatch_stage *st = &out->stages[s];
        if (st->first_share != own->stages[s].first_share ||
            st->n_shares != own->stages[s].n_shares)
            return err_set(e, HP_EINVAL, "pipelines of two plans");
        st->compute_ns = costs_copy(&t->arena, st->compute_ns, from->batch);
        st->transfer_ns = costs_copy(&t->arena, st->transfer_ns, from->batch);
        if (!st->compute_ns || !st->transfer_ns)
            return err_no_memory(e, "laying the plan out on the cluster");
    }
    return 0;
}

int dispatch_topology_add(struct dispatch_topology *t, const struct dispatch_topology *other,
                          const bool *also, struct err *e)
{
    int n_models = t->n_models, n_pipelines = t->n_pipelines;
    struct dispatch_model *models =
        arena_alloc(&t->arena, (size_t)(n_models + other->n_models) + 1, sizeof *models);
    struct dispatch_pipeline *pipelines =
        arena_alloc(&t->arena, (size_t)(n_pipelines + other->n_pipelines) + 1, sizeof *pipelines);
    if (!models || !pipelines)
        return err_no_memory(e, "laying the plan out on the cluster");
    if (other->n_models > n_models || other->n_shares != t->n_shares)
        return err_set(e, HP_EINVAL, "topologies of two plans");
    memcpy(models, t->models, (size_t)n_models * sizeof *models);
    memcpy(pipelines, t->pipelines, (size_t)n_pipelines * sizeof *pipelines);
    for (int m = 0; m < other->n_models; m++) {
        const struct dispatch_model *from = &other->models[m], *base = &t->models[m];
        if (!also[m])
            continue;
        if (from->n_pipelines != base->n_pipelines)
            return err_set(e, HP_EINVAL, "topologies of two plans");
        models[n_models] = *from;
        models[n_models].name = base->name;
        models[n_models].first_pipeline = n_pipelines;
        for (int i = 0; i < from->n_pipelines; i++) {
            struct dispatch_pipeline *out = &pipelines[n_pipelines];
            int rc = pipeline_add(t, base->first_pipeline + i,
                                  &other->pipelines[from->first_pipeline + i], out, e);
            if (rc < 0)
                return rc;
            out->model = n_models;
            n_pipelines++;
        }
        n_models++;
    }
    t->models = models;
    t->pipelines = pipelines;
    t->n_models = n_models;
    t->n_pipelines = n_pipelines;
    return 0;
}

void dispatch_topology_free(struct dispatch_topology *t)
{
    arena_free(&t->arena);
    *t = (struct dispatch_topology){0};
}
