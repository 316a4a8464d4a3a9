#include "planners/pools/pools.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/plan.h"
#include "planners/pools/fastest.h"
#include "planners/pools/grid.h"
#include "planners/pools/large.h"
#include "planners/pools/milp.h"
#include "planners/pools/polish.h"
#include "planners/pools/relax.h"
#include "planners/pools/share.h"

const char *const pools_method_words[] = {"exact", "milp", "np", "dart", NULL};

/* Structures that cost more than the best by this part are not paired, nor given to lp_solve. */
#define PAIR_SLACK 0.1
#define POLISH_SLACK 0.02
/* A large cluster's plan within this part of the bound is good enough to stop. */
#define LARGE_GAP 0.002

enum { POLISH_STRUCTURES = 6 };

/* ---- structures of all models ---- */

static void structures_free(const struct pools_problem *p, struct pools_structures *by_model)
{
    for (int m = 0; by_model && m < p->n_models; m++)
        pools_structures_free(&by_model[m]);
    free(by_model);
}

/* Pipelines of a rule have at most so many stages. */
static int rule_stages(const struct pools_problem *p, enum pools_rule rule)
{
    int most = rule == POOLS_WHOLE ? 1 : rule == POOLS_CHAINS ? 2 : POOLS_MAX_STAGES;
    return most < p->max_stages ? most : p->max_stages;
}

static int cannot_meet(const struct pools_problem *p, int model, enum pools_rule rule,
                       struct err *e)
{
    enum { KIND_SHOWN = 40 };
    const struct pools_model *m = &p->models[model];
    struct pools_fastest f = pools_fastest_find(p, model, rule_stages(p, rule));
    char kinds[POOLS_MAX_STAGES * (KIND_SHOWN + sizeof ", then ")] = "";
    if (!isfinite(f.seconds))
        return err_set(e, HP_EINFEASIBLE,
                       "%s: nothing can run it: no kind of device has times for all of its layers "
                       "at one share and batch%s",
                       m->name, rule_stages(p, rule) > 1 ? ", and no pipeline of several has" : "");
    for (int i = 0, n = 0; i < f.n_stages; i++)
        n += snprintf(kinds + n, sizeof kinds - (size_t)n, "%s%.*s", i ? ", then " : "",
                      (int)KIND_SHOWN, p->kinds[f.kinds[i]].name);
    err_set(e, HP_EINFEASIBLE,
            "%s: no pipeline meets its deadline: %.4g ms less a margin of %.3g %% leaves %.4g ms, "
            "and one request takes at least %.4g ms (%s)",
            m->name, m->slo_s * 1e3, m->margin * 100, m->budget_s * 1e3, f.seconds * 1e3, kinds);
    return err_hint(e, "raise its slo_s, lower slo_margin, or add a faster kind of device");
}

static int structures_all(const struct pools_problem *p, enum pools_rule rule, bool keep_fine,
                          struct pools_structures **out, struct err *e)
{
    struct pools_structures *s = calloc((size_t)p->n_models, sizeof *s);
    int rc = s ? 0 : err_no_memory(e, "planning pools");
    for (int m = 0; rc == 0 && m < p->n_models; m++) {
        rc = pools_structures_make(p, m, rule, keep_fine, &s[m], e);
        if (rc == 0 && s[m].count == 0)
            rc = cannot_meet(p, m, rule, e);
    }
    if (rc < 0) {
        structures_free(p, s);
        return rc;
    }
    *out = s;
    return 0;
}

static void devices_of(const struct pools_problem *p, int *available)
{
    for (int k = 0; k < p->n_kinds; k++)
        available[k] = p->kinds[k].count;
}

/* ---- methods ---- */

/* A cluster that the tables hold: exact over whole devices, or with pairs and then lp_solve where
 * devices are shared. */
static int solve_small(const struct pools_problem *p, const struct pools_request *rq,
                       const struct pools_structures *by_model, const struct pools_relaxation *r,
                       struct pools_solution *s, struct err *e)
{
    int available[POOLS_MAX_KINDS];
    devices_of(p, available);
    if (!p->share_devices)
        return pools_allocate(p, by_model, POOLS_ANY, NULL, available, &s->allocation, e);
    struct pools_chosen *chosen = calloc((size_t)p->n_models, sizeof *chosen);
    struct pools_polish polish;
    if (!chosen)
        return err_no_memory(e, "planning pools");
    for (int m = 0; m < p->n_models; m++)
        chosen[m].n = pools_promising(p, m, &by_model[m], r, PAIR_SLACK, chosen[m].structures,
                                      POOLS_MAX_CHOSEN);
    int rc = pools_allocate(p, by_model, POOLS_ANY, chosen, available, &s->allocation, e);
    for (int m = 0; m < p->n_models; m++)
        chosen[m].n = pools_promising(p, m, &by_model[m], r, POLISH_SLACK, chosen[m].structures,
                                      POLISH_STRUCTURES);
    double limit_s = rq->time_limit_s > 0 ? rq->time_limit_s : 0.25;
    if (rc == 0 && p->pipelines_per_assignment == 0)
        if ((rc = pools_polish(p, by_model, chosen, r->bound, limit_s, rq->env, &s->allocation,
                               &polish, e)) == 0)
            s->lp_seconds += polish.seconds;
    free(chosen);
    return rc;
}

static int solve_exact(const struct pools_problem *p, const struct pools_request *rq,
                       struct pools_solution *s, struct err *e)
{
    struct pools_structures *by_model = NULL;
    struct pools_relaxation r = {0};
    int available[POOLS_MAX_KINDS];
    devices_of(p, available);
    bool small = pools_grid_cells(p, available) > 0;
    int rc = structures_all(p, POOLS_ANY, p->share_devices && small, &by_model, e);
    if (rc < 0)
        return rc;
    rc = pools_relax(p, by_model, available, rq->env, &r, e);
    s->lp_seconds += r.seconds;
    s->bound = r.bound;
    if (rc == 0 && !small && p->pipelines_per_assignment > 0 &&
        (rc = pools_limit_structures(p, &r, by_model, e)) == 0) {
        pools_relaxation_free(&r); /* of the structures that are left, by their new numbers */
        rc = pools_relax(p, by_model, available, rq->env, &r, e);
        s->lp_seconds += r.seconds;
    }
    if (rc == 0)
        rc = small ? solve_small(p, rq, by_model, &r, s, e)
                   : pools_allocate_large(p, by_model, &r, LARGE_GAP,
                                          rq->time_limit_s > 0 ? rq->time_limit_s : 1.2,
                                          rq->seed + 1, rq->env, &s->allocation, e);
    pools_relaxation_free(&r);
    structures_free(p, by_model);
    if (rc == 0)
        pools_spend_rest(p, &s->allocation);
    return rc;
}

static int solve_baseline(const struct pools_problem *p, const struct pools_request *rq,
                          enum pools_rule rule, struct pools_solution *s, struct err *e)
{
    struct pools_structures *by_model = NULL;
    struct pools_relaxation r = {0};
    int available[POOLS_MAX_KINDS];
    devices_of(p, available);
    int rc = structures_all(p, rule, false, &by_model, e);
    if (rc < 0)
        return rc;
    if (pools_grid_cells(p, available) > 0) {
        rc = pools_allocate(p, by_model, rule, NULL, available, &s->allocation, e);
    } else if (rule == POOLS_WHOLE) {
        rc = pools_relax(p, by_model, available, rq->env, &r, e);
        if (rc == 0)
            rc = pools_allocate_large(p, by_model, &r, LARGE_GAP, 0, rq->seed, rq->env,
                                      &s->allocation, e);
        pools_relaxation_free(&r);
    } else {
        err_set(e, HP_ELIMIT,
                "dart is planned for clusters of up to %d combinations of devices by kind",
                POOLS_MAX_CELLS);
        rc = err_hint(e, "--method exact and np plan clusters of any size");
    }
    structures_free(p, by_model);
    return rc;
}

int pools_solve(const struct pools_problem *p, const struct pools_request *rq,
                struct pools_solution *s, struct err *e)
{
    s->bound = NAN;
    s->complete = true;
    int rc = pools_allocation_init(&s->allocation, p->n_models, e);
    if (rc < 0)
        return rc;
    switch (rq->method) {
    case POOLS_METHOD_EXACT: rc = solve_exact(p, rq, s, e); break;
    case POOLS_METHOD_NP: rc = solve_baseline(p, rq, POOLS_WHOLE, s, e); break;
    case POOLS_METHOD_DART: rc = solve_baseline(p, rq, POOLS_CHAINS, s, e); break;
    case POOLS_METHOD_MILP: rc = pools_milp(p, rq, s, e); break;
    }
    if (rc == 0 && !(s->allocation.objective > 0)) {
        err_set(e, HP_EINFEASIBLE,
                "the cluster has too few devices to give every model a pipeline that meets its "
                "deadline");
        rc = err_hint(e, "add devices, or leave a model out of the workload");
    }
    return rc;
}

/* ---- the plan ---- */

static void fill_pipeline(const struct pools_problem *p, const struct pools_model *m,
                          const struct pools_use *u, struct plan_pools_pipeline *to)
{
    to->batch = m->batches[u->s.batch];
    to->throughput_per_s = u->rate;
    to->latency_s = u->s.latency_s;
    to->n_stages = u->s.n_stages;
    for (int d = 0; d < u->s.n_stages; d++) {
        const struct pools_stage *s = &u->s.stages[d];
        const struct pools_kind *k = &p->kinds[s->kind];
        bool last = d == u->s.n_stages - 1;
        to->stages[d] = (struct plan_pools_stage){
            .kind = k->name,
            .first_layer = s->first,
            .end_layer = s->end,
            .share = k->shares[s->share],
            .count = u->count[d],
            .devices = u->devices[d],
            .compute_s = s->compute_s,
            .transfer_s =
                last ? 0 : pools_transfer_s(p, m, s->end, s->kind, u->s.stages[d + 1].kind)};
    }
}

int pools_allocation_plan(const struct pools_problem *p, const struct pools_allocation *a,
                          struct arena *arena, struct plan_pools *out, struct err *e)
{
    struct plan_pools plan = {.n_models = p->n_models, .normalized_throughput_per_s = a->objective};
    plan.models = arena_alloc(arena, (size_t)p->n_models, sizeof *plan.models);
    if (!plan.models)
        return err_no_memory(e, "planning pools");
    for (int m = 0; m < p->n_models; m++) {
        const struct pools_model_plan *from = &a->models[m];
        struct plan_pools_model *to = &plan.models[m];
        to->name = arena_strdup(arena, p->models[m].name);
        to->throughput_per_s = from->rate;
        to->slo_margin =
            p->models[m].margin == p->models[m].workload_margin ? -1 : p->models[m].margin;
        to->n_pipelines = from->n_uses;
        to->pipelines = arena_alloc(arena, (size_t)from->n_uses + 1, sizeof *to->pipelines);
        if (!to->name || !to->pipelines)
            return err_no_memory(e, "planning pools");
        for (int i = 0; i < from->n_uses; i++) {
            to->pipelines[i].stages = arena_alloc(arena, (size_t)from->uses[i].s.n_stages,
                                                  sizeof *to->pipelines[i].stages);
            if (!to->pipelines[i].stages)
                return err_no_memory(e, "planning pools");
            fill_pipeline(p, &p->models[m], &from->uses[i], &to->pipelines[i]);
            for (int d = 0; d < to->pipelines[i].n_stages; d++)
                if (!(to->pipelines[i].stages[d].kind =
                          arena_strdup(arena, to->pipelines[i].stages[d].kind)))
                    return err_no_memory(e, "planning pools");
        }
    }
    *out = plan;
    return 0;
}

/* ---- why ---- */

void pools_answer_add_candidate(struct pools_answer *a, const char *name, double predicted,
                                const char *reason)
{
    if (a->n_candidates == POOLS_MAX_CANDIDATES || !name || !reason) /* no memory for the text */
        return;
    struct pools_candidate *c = &a->candidates[a->n_candidates];
    c->name = arena_strdup(&a->arena, name);
    c->reason = arena_strdup(&a->arena, reason);
    c->predicted = predicted;
    a->n_candidates += c->name && c->reason;
}

/* Weighs another method, or whole devices, against the plan: what it would serve, and why it lost.
 */
static void method_weigh(const struct pools_problem *p, const struct pools_request *rq,
                         enum pools_method method, const char *name, const char *why, double chosen,
                         struct pools_answer *out)
{
    struct pools_request other = *rq;
    struct pools_solution s = {0};
    struct err ignored;
    other.method = method;
    other.time_limit_s = 0;
    int rc = pools_solve(p, &other, &s, &ignored);
    double served = s.allocation.objective;
    if (rc < 0)
        pools_answer_add_candidate(out, name, NAN, ignored.text);
    else if (served > chosen * (1 + 1e-9))
        pools_answer_add_candidate(
            out, name, served,
            arena_printf(&out->arena, "serves %.2f %% more", 100 * (served / chosen - 1)));
    else if (served > chosen * (1 - 1e-6))
        pools_answer_add_candidate(out, name, served,
                                   "serves as much; the plan has no less headroom");
    else
        pools_answer_add_candidate(
            out, name, served,
            arena_printf(&out->arena, "serves %.2f %% less: %s", 100 * (1 - served / chosen), why));
    pools_allocation_free(&s.allocation);
}

static void answer_explain(struct pools_problem *p, const struct pools_request *rq,
                           struct pools_answer *out)
{
    double chosen = out->plan.normalized_throughput_per_s;
    int available[POOLS_MAX_KINDS];
    devices_of(p, available);
    pools_answer_add_candidate(out, arena_printf(&out->arena, "the plan (%s)", out->method), chosen,
                               "chosen");
    bool small = pools_grid_cells(p, available) > 0;
    if (rq->method != POOLS_METHOD_EXACT)
        method_weigh(p, rq, POOLS_METHOD_EXACT, "the dynamic programme (exact)", "", chosen, out);
    if (p->share_devices && small && rq->method == POOLS_METHOD_EXACT) {
        p->share_devices = false;
        method_weigh(p, rq, POOLS_METHOD_EXACT, "whole devices only",
                     "fractions of devices stay unused", chosen, out);
        p->share_devices = true;
    }
    if (rq->method != POOLS_METHOD_NP)
        method_weigh(p, rq, POOLS_METHOD_NP, "whole models on single kinds (np)",
                     "slow kinds miss the deadline alone", chosen, out);
    if (rq->method != POOLS_METHOD_DART && p->max_stages > 1 && small)
        method_weigh(p, rq, POOLS_METHOD_DART, "chains of two devices (dart)",
                     "one device of each kind a chain leaves the rest idle", chosen, out);
}

int pools_plan(const struct pools_request *rq, struct pools_answer *out, struct err *e)
{
    struct pools_problem p = {0};
    struct pools_solution s = {0};
    uint64_t started = env_now_ns(rq->env);
    int rc = pools_problem_make(rq->cluster, rq->workload, &p, e);
    if (rc < 0)
        return rc;
    if (rq->share_devices >= 0)
        p.share_devices = rq->share_devices != 0;
    for (int m = 0; rq->slo_margin >= 0 && m < p.n_models; m++)
        pools_problem_set_margin(&p, m, rq->slo_margin);
    out->method = pools_method_words[rq->method];
    out->share_devices = p.share_devices;
    rc = pools_solve(&p, rq, &s, e);
    if (rc == 0)
        rc = pools_allocation_plan(&p, &s.allocation, &out->arena, &out->plan, e);
    out->bound = s.bound;
    out->lp_seconds = s.lp_seconds;
    out->complete = s.complete;
    out->served = NAN;
    out->seconds = (double)(env_now_ns(rq->env) - started) * 1e-9;
    if (rc == 0)
        answer_explain(&p, rq, out);
    pools_allocation_free(&s.allocation);
    pools_problem_free(&p);
    return rc;
}

void pools_answer_free(struct pools_answer *a)
{
    arena_free(&a->arena);
    *a = (struct pools_answer){0};
}

json_t *pools_answer_json(const struct pools_answer *a)
{
    json_t *plan = plan_envelope("pools", a->method, a->seconds);
    if (!plan)
        return NULL;
    json_t *solver = json_object_get(plan, "solver");
    if (isfinite(a->bound)) {
        double value = a->plan.normalized_throughput_per_s;
        plan_set_bound(plan, a->bound, value, a->bound > 0 ? (a->bound - value) / a->bound : 0);
    }
    json_object_set_new(solver, "lp_seconds", json_real(a->lp_seconds));
    if (!a->complete)
        json_object_set_new(solver, "complete", json_false());
    json_object_set_new(plan, "share_devices_across_pipelines", json_boolean(a->share_devices));
    for (int i = 0; i < a->n_candidates; i++)
        plan_add_why(plan, a->candidates[i].name, a->candidates[i].predicted,
                     a->candidates[i].reason);
    if (plan_pools_to_json(&a->plan, plan) < 0) {
        json_decref(plan);
        return NULL;
    }
    if (isfinite(a->served)) {
        json_t *predicted = json_object_get(plan, "predicted");
        json_object_set_new(predicted, "served_throughput_per_s", json_real(a->served));
        json_object_set_new(predicted, "attainment", json_real(a->target));
    }
    return plan;
}
