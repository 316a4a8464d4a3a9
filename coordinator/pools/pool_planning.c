#include "coordinator/pools/pool_planning.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "coordinator/member.h"
#include "coordinator/planner_cluster.h"
#include "coordinator/pools/pool_memory.h"
#include "coordinator/works.h"
#include "planners/pools/pools.h"

struct pool_planning {
    struct coord_work work; /* first */
    struct coord *coord;
    struct pool_spec *spec;
    struct cluster cluster;
    struct workload workload; /* the spec's */
    const struct env *env;
    pool_planned_fn planned; /* NULL: nobody wants it */
    uint64_t peer, ask;
    struct pool_planning **held; /* who knows of it */
    struct pool_plan *plan;
    struct err why;
};

/* ---- with whom ---- */

bool pool_member_is_wanted(const struct pool_spec *s, const struct member *m)
{
    bool named = s->n_agents == 0;
    for (int i = 0; i < s->n_agents; i++)
        named = named || strcmp(s->agents[i], m->name) == 0;
    return named && m->node && member_available(m);
}

static bool member_takes_part(const void *ctx, const struct member *m)
{
    return pool_member_is_wanted(ctx, m);
}

uint64_t pool_members_hash(const struct coord *c, const struct pool_spec *s)
{
    uint64_t hash = 0;
    for (size_t i = 0; i < c->n_members; i++) {
        const struct member *m = c->members[i];
        if (!pool_member_is_wanted(s, m))
            continue;
        hash = XXH64(m->name, strlen(m->name), hash + m->process + 1);
        for (int d = 0; d < member_device_count(m); d++) {
            const char *kind = member_kind(m, d);
            hash = XXH64(kind, strlen(kind), hash + (member_device_lost(m, d) ? 3 : 1));
        }
    }
    return hash;
}

/* ---- on the worker ---- */

static int shares_fill(struct pool_plan *p, struct err *e)
{
    const struct dispatch_topology *t = &p->topology;
    p->shares = calloc((size_t)t->n_shares + 1, sizeof *p->shares);
    p->wake_ns = calloc((size_t)t->n_models + 1, sizeof *p->wake_ns);
    p->overheads = calloc((size_t)t->n_models + 1, sizeof *p->overheads);
    p->under_way = calloc((size_t)t->n_models + 1, sizeof *p->under_way);
    if (!p->shares || !p->wake_ns || !p->overheads || !p->under_way)
        return err_no_memory(e, "a plan of pools");
    for (int m = 0; m < t->n_models; m++) {
        p->wake_ns[m] = INT64_MAX;
        p->overheads[m].ns = POOL_OVERHEAD_NS;
    }
    int rc = dispatch_create(t, 0, &p->dispatch, e);
    if (rc == 0) {
        dispatch_eager(p->dispatch);
        dispatch_reported(p->dispatch);
    }
    return rc;
}

/* The shares of each stage know what they run; the parts of a device follow each other. */
static int shares_describe(struct pool_plan *p, const struct plan_pools *plan,
                           const struct workload *w, const struct cluster *c, struct err *e)
{
    const struct dispatch_topology *t = &p->topology;
    double *taken = calloc((size_t)c->n_devices + 1, sizeof *taken);
    if (!taken)
        return err_no_memory(e, "a plan of pools");
    for (int i = 0; i < t->n_pipelines && !t->pipelines[i].beside; i++) {
        const struct dispatch_pipeline *pl = &t->pipelines[i];
        const struct dispatch_model *model = &t->models[pl->model];
        const struct plan_pools_pipeline *from = NULL;
        for (int m = 0; m < plan->n_models; m++)
            if (strcmp(plan->models[m].name, model->name) == 0)
                from = &plan->models[m].pipelines[i - model->first_pipeline];
        for (int stage = 0; from && stage < pl->n_stages; stage++)
            for (int k = 0; k < pl->stages[stage].n_shares; k++) {
                int n = pl->stages[stage].first_share + k;
                const struct dispatch_share *at = &t->shares[n];
                struct pool_share *s = &p->shares[n];
                unsigned parts = (unsigned)from->stages[stage].share;
                s->model = pl->model;
                s->pipeline = i;
                s->stage = stage;
                s->parts = parts;
                s->part = (unsigned)(taken[at->cluster_device] * parts + 0.5) % parts;
                taken[at->cluster_device] += at->part;
                s->first_block = from->stages[stage].first_layer;
                s->end_block = from->stages[stage].end_layer;
                s->memory_bytes = pools_resident_bytes(&w->models[pl->model].profile,
                                                       s->first_block, s->end_block, pl->batch);
                s->device = at->cluster_device - c->nodes[at->node].first_device;
            }
    }
    free(taken);
    return 0;
}

/* ---- lengths ---- */

/* The plan's shares with what the models' shorter lengths cost there. */
static int length_add(const struct pool_planning *g, const struct plan_pools *plan, int size,
                      struct pool_plan *p, struct err *e)
{
    const struct pool_spec *spec = g->spec;
    int n = spec->workload.n_models, rc;
    struct workload_model *models = calloc((size_t)n + 1, sizeof *models);
    bool *also = calloc((size_t)n + 1, sizeof *also);
    struct dispatch_topology other = {0};
    struct workload shorter = g->workload;
    rc = models && also ? 0 : err_no_memory(e, "a plan of pools");
    for (int m = 0; rc == 0 && m < n; m++) {
        models[m] = g->workload.models[m];
        also[m] = spec->models[m].n_lengths > size;
        if (also[m])
            models[m].profile = spec->models[m].profiles[size];
    }
    shorter.models = models;
    rc = rc < 0 ? rc : dispatch_topology_make(plan, &g->cluster, &shorter, -1, &other, e);
    rc = rc < 0 ? rc : dispatch_topology_add(&p->topology, &other, also, e);
    for (int m = 0, at = p->topology.n_models - 1; rc == 0 && m < n; m++)
        if (also[n - 1 - m])
            p->lines[at--] = (struct pool_line){n - 1 - m, size};
    dispatch_topology_free(&other);
    free(models);
    free(also);
    return rc;
}

static int lengths_add(const struct pool_planning *g, const struct plan_pools *plan,
                       struct pool_plan *p, struct err *e)
{
    const struct pool_spec *spec = g->spec;
    int n = spec->workload.n_models, sizes = 1, rc = 0;
    for (int m = 0; m < n; m++)
        sizes = spec->models[m].n_lengths > sizes ? spec->models[m].n_lengths : sizes;
    p->lines = calloc((size_t)(n * sizes) + 1, sizeof *p->lines);
    if (!p->lines)
        return err_no_memory(e, "a plan of pools");
    for (int m = 0; m < n; m++)
        p->lines[m] = (struct pool_line){m, 0};
    for (int size = 1; rc == 0 && size < sizes; size++)
        rc = length_add(g, plan, size, p, e);
    return rc;
}

/* A plan, laid out; whether its devices have the memory is not looked at. */
static int plan_lay(struct pool_planning *g, struct pools_answer *a, struct err *e)
{
    struct pools_request rq = {.cluster = &g->cluster,
                               .workload = &g->workload,
                               .method = g->spec->method,
                               .share_devices = -1,
                               .slo_margin = -1,
                               .env = g->env};
    int rc = pools_plan(&rq, a, e);
    if (rc < 0)
        return rc;
    struct pool_plan *p = g->plan = calloc(1, sizeof *g->plan);
    if (!p)
        return err_no_memory(e, "a plan of pools");
    rc = dispatch_topology_make(&a->plan, &g->cluster, &g->workload, -1, &p->topology, e);
    if (rc == 0 && p->topology.n_shares > POOL_MAX_SHARES)
        rc = err_set(e, HP_ELIMIT, "the plan has %d shares of devices; at most %d are served",
                     p->topology.n_shares, POOL_MAX_SHARES);
    rc = rc < 0 ? rc : lengths_add(g, &a->plan, p, e);
    rc = rc < 0 ? rc : shares_fill(p, e);
    return rc < 0 ? rc : shares_describe(p, &a->plan, &g->workload, &g->cluster, e);
}

static int plan_lay_anew(struct pool_planning *g, struct pools_answer *a, struct err *e)
{
    pool_plan_free(&g->plan);
    pools_answer_free(a);
    return plan_lay(g, a, e);
}

/* Devices that cannot hold what they would get are left out, one after the other. Where nothing is
 * left, what is missing is that of the first; where nothing fits at all, that of a plan that does
 * not mind. */
static int plan_fit(struct pool_planning *g, struct pools_answer *a, struct err *e)
{
    struct err lack = {0}, *told = &lack, other = {0};
    int device = -1, rc = plan_lay(g, a, e);
    while (rc == 0 &&
           (device = pool_memory_lacking(g->plan, &g->workload, &g->cluster, told)) >= 0) {
        pool_memory_leave_out(&g->cluster, device);
        rc = plan_lay_anew(g, a, e);
        told = &other;
    }
    if (rc == HP_EINFEASIBLE && !lack.code) {
        g->workload.memory_counts = false;
        if (plan_lay_anew(g, a, &other) == 0)
            pool_memory_lacking(g->plan, &g->workload, &g->cluster, &lack);
    }
    if (rc == HP_EINFEASIBLE && lack.code)
        *e = lack;
    return rc;
}

static int plan_make(struct pool_planning *g, struct pools_answer *a, struct err *e)
{
    g->workload = g->spec->workload;
    g->workload.memory_counts = true;
    int rc = plan_fit(g, a, e);
    if (rc < 0)
        return rc;
    g->plan->report = pools_answer_json(a);
    return g->plan->report ? 0 : err_no_memory(e, "a plan of pools");
}

static void planning_run(struct coord_work *w)
{
    struct pool_planning *g = (struct pool_planning *)w;
    struct pools_answer answer = {0};
    if (plan_make(g, &answer, &g->why) < 0)
        pool_plan_free(&g->plan);
    pools_answer_free(&answer);
}

/* ---- on the loop ---- */

/* Nodes of the cluster are agents by name, which may have gone since. */
static void agents_find(struct pool_planning *g)
{
    for (int i = 0; i < g->plan->topology.n_shares; i++) {
        const struct dispatch_share *at = &g->plan->topology.shares[i];
        g->plan->shares[i].agent = member_find(g->coord, g->cluster.nodes[at->node].name);
    }
}

static void planning_free(struct pool_planning *g)
{
    if (g->held)
        *g->held = NULL;
    pool_plan_free(&g->plan);
    cluster_free(&g->cluster);
    pool_spec_release(&g->spec);
    free(g);
}

static void planning_done(struct coord_work *w, bool dropped)
{
    struct pool_planning *g = (struct pool_planning *)w;
    if (g->held)
        *g->held = NULL;
    g->held = NULL;
    if (!dropped && g->planned) {
        struct pool_plan *plan = g->plan;
        if (plan) {
            plan->spec = pool_spec_use(g->spec);
            agents_find(g);
        }
        g->plan = NULL;
        g->planned(g->coord, plan, g->peer, g->ask, &g->why);
    }
    planning_free(g);
}

int pool_planning_begin(struct coord *c, struct pool_spec *s, uint64_t peer, uint64_t ask,
                        pool_planned_fn done, struct pool_planning **out, struct err *e)
{
    struct pool_planning *g = calloc(1, sizeof *g);
    if (!g)
        return err_no_memory(e, "a plan of pools");
    g->work = (struct coord_work){.run = planning_run, .done = planning_done};
    g->coord = c;
    g->env = c->env;
    g->planned = done;
    g->peer = peer;
    g->ask = ask;
    g->spec = pool_spec_use(s);
    struct planner_wish wish = {member_takes_part, s};
    int rc = planner_cluster_of(c, &wish, &g->cluster, e);
    if (rc == 0 && g->cluster.n_devices == 0)
        rc = err_set(e, HP_EINFEASIBLE, "no agent is there that may be planned with");
    rc = rc < 0 ? rc : works_add(c, &g->work, NULL, e);
    if (rc < 0) {
        planning_free(g);
        return rc;
    }
    g->held = out;
    if (out)
        *out = g;
    return 0;
}

void pool_planning_drop(struct pool_planning **held)
{
    struct pool_planning *g = *held;
    *held = NULL;
    if (!g)
        return;
    g->held = NULL;
    g->planned = NULL;
    atomic_store(&g->work.canceled, true);
}
