#include "planners/coldstart/coldstart.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/plan.h"
#include "planners/coldstart/bounds.h"
#include "planners/coldstart/candidates.h"
#include "planners/coldstart/list.h"
#include "planners/coldstart/milp.h"
#include "planners/coldstart/picture.h"
#include "planners/coldstart/plan_file.h"
#include "planners/coldstart/polish.h"
#include "planners/coldstart/search.h"

enum { DEFAULT_SECONDS = 10, DEFAULT_EVALUATIONS = 2000000 };

/* ---- the search ---- */

/* How a search is laid out. Small graphs are searched many times from the start, large ones once:
 * there the first descent is not over before the time is. Chosen by trying on random graphs and on
 * the models of the SortingHat paper. */
struct search_shape {
    int most_ops, restarts;
    double coarse, rolling; /* shares of each restart; the rest is fine */
    double coarse_heat, fine_heat;
    double polish; /* share of the whole search */
};

static const struct search_shape search_shapes[] = {
    {64, 8, 0.8, 0, 5, 0.3, 0.03},
    {250, 2, 0.5, 0, 3, 0.1, 0.05},
    {OPGRAPH_MAX_NODES, 1, 0.5, 0.2, 1, 0.01, 0.05},
};

/* The last restart ends with the best of all. */
static void run_restart(struct coldstart_making *m, const struct search_shape *shape,
                        const struct coldstart_plan *start, double begin, double end, bool last)
{
    struct coldstart_search *s = &m->search;
    double coarse_end = begin + shape->coarse * (end - begin),
           rolling_end = coarse_end + shape->rolling * (end - begin);
    search_coarse(s, start, coarse_end, shape->coarse_heat);
    if (shape->rolling > 0)
        search_rolling(s, rolling_end, shape->fine_heat);
    search_fine(s, last ? &s->best : &s->round, end, shape->fine_heat);
}

/* Restarts begin at the best candidate, one of them at the list schedule. */
static void run_search(struct coldstart_making *m)
{
    struct coldstart_search *s = &m->search;
    const struct search_shape *shape = search_shapes;
    double from = search_budget_look(&m->budget), before = s->best_s;
    while (m->problem.n_ops > shape->most_ops)
        shape++;
    s->bound_s = m->bound_s * (1 + 1e-9);
    coldstart_plan_copy(&m->problem, &m->start, &s->best);
    for (int r = 0; r < shape->restarts && s->best_s > s->bound_s; r++) {
        const struct coldstart_plan *start = &m->start;
        if (r == 1 && list_schedule(&m->problem, &m->plan) == 0 &&
            search_offer(s, &m->plan) < (double)INFINITY)
            start = &m->plan;
        double span = (1 - from) * (1 - shape->polish) / shape->restarts;
        run_restart(m, shape, start, from + span * r, from + span * (r + 1),
                    r == shape->restarts - 1);
    }
    search_polish(s, 1);
    if (s->best_s < before)
        snprintf(m->winner, sizeof m->winner, "search");
    if (m->n_candidates < MAX_CANDIDATES) {
        struct coldstart_candidate *c = &m->candidates[m->n_candidates++];
        snprintf(c->name, sizeof c->name, "search");
        c->latency_s = s->best_s;
        snprintf(c->reason, sizeof c->reason, "%llu plans timed",
                 (unsigned long long)m->budget.used);
    }
}

static int find_bound(struct coldstart_making *m)
{
    int rc = coldstart_bounds_find(&m->problem, m->search.best_s, &m->bounds);
    if (rc == 0)
        m->bound_s = fmin(fmax(m->bound_s, m->bounds.best_s), m->search.best_s);
    return rc;
}

static int make_best(struct coldstart_making *m)
{
    int rc = candidates_weigh_all(m);
    if (rc < 0 || m->search.best_s == (double)INFINITY || (rc = find_bound(m)) < 0)
        return rc;
    if (m->search.best_s > m->bound_s * (1 + 1e-9)) {
        run_search(m);
        rc = find_bound(m); /* a better plan rules out more, and so may raise the bound */
    }
    return rc;
}

static int make_published(struct coldstart_making *m)
{
    int primaries[MAX_PRIMARIES], n = candidates_list_primaries(&m->problem, primaries), rc = 0;
    for (int i = 0; i < n && rc == 0; i++)
        rc = candidate_weigh_method(m, m->options->method, primaries[i]);
    return rc < 0 || m->search.best_s == (double)INFINITY ? rc : find_bound(m);
}

static int make_milp(struct coldstart_making *m, struct err *e)
{
    struct milp_options o = {.time_limit_s =
                                 m->options->time_limit_s > 0 ? m->options->time_limit_s : 30,
                             .dominators = m->options->dominators > 0 ? m->options->dominators : 1,
                             .slots = m->options->slots > 0 ? m->options->slots : 2,
                             .env = m->options->env,
                             .program = m->options->program,
                             .program_ctx = m->options->program_ctx,
                             .tell = m->options->tell,
                             .tell_ctx = m->options->tell_ctx};
    struct milp_outcome outcome;
    int rc = milp_schedule(&m->problem, &o, &m->plan, &outcome, e);
    if (rc < 0)
        return rc;
    candidate_weigh(m, "milp");
    struct coldstart_candidate *c = &m->candidates[m->n_candidates - 1];
    if (m->search.timing.fault == TIMING_OK)
        snprintf(c->reason, sizeof c->reason,
                 "%d sub-models, %d solved to the end, %d without a solution in time; %.6g s by "
                 "the programme itself",
                 outcome.sub_models, outcome.proven, outcome.without, outcome.latency_s);
    return m->search.best_s == (double)INFINITY ? 0 : find_bound(m);
}

/* ---- the result ---- */

static int nothing_fits(const struct coldstart_making *m, struct err *e)
{
    err_set(e, HP_EINFEASIBLE, "no plan of method %s can be carried out",
            coldstart_method_word(m->options->method));
    if (m->n_candidates > 0)
        err_set(e, HP_EINFEASIBLE, "method %s: %s", coldstart_method_word(m->options->method),
                m->candidates[0].reason);
    if (m->options->method == COLDSTART_BEST)
        return err_hint(e, "give the devices more memory_bytes"), HP_EINFEASIBLE;
    return err_hint(e, "--method best looks for one over all devices and from host memory"),
           HP_EINFEASIBLE;
}

static void write_why(const struct coldstart_making *m, json_t *plan)
{
    char reason[320];
    for (int i = 0; i < m->n_candidates; i++) {
        const struct coldstart_candidate *c = &m->candidates[i];
        double slower = 100 * (c->latency_s / m->search.best_s - 1);
        if (!isfinite(c->latency_s))
            snprintf(reason, sizeof reason, "%s", c->reason);
        else if (strcmp(c->name, m->winner) == 0)
            snprintf(reason, sizeof reason, "chosen: %s", c->reason);
        else
            snprintf(reason, sizeof reason, "%.3g %% slower: %s", slower, c->reason);
        plan_add_why(plan, c->name, c->latency_s, reason);
    }
}

/* Drops copies that a search left behind and that make no difference: one of two of a parameter. */
static void drop_needless_copies(struct coldstart_making *m)
{
    struct coldstart_plan *plan = &m->plan;
    bool *several = arena_alloc(&m->arena, (size_t)m->problem.n_nodes, sizeof *several), *seen;
    if (!several || !(seen = arena_alloc(&m->arena, (size_t)m->problem.n_nodes, sizeof *seen)))
        return;
    for (int c = 0; c < m->search.best.n_copies; c++) {
        const struct coldstart_copy *copy = &m->search.best.copies[c];
        several[copy->node] = seen[copy->node] && !copy->read;
        seen[copy->node] = true;
    }
    for (int c = 0; c < m->search.best.n_copies; c++) {
        if (!several[m->search.best.copies[c].node])
            continue;
        coldstart_plan_copy(&m->problem, plan, &m->search.best);
        plan->n_copies--;
        memmove(plan->copies + c, plan->copies + c + 1,
                (size_t)(plan->n_copies - c) * sizeof *plan->copies);
        double latency = timing_run(&m->search.timing, plan);
        if (latency <= m->search.best_s) {
            m->search.best_s = latency;
            coldstart_plan_copy(&m->problem, &m->search.best, plan);
            c--;
        }
    }
}

static int making_finish(struct coldstart_making *m, double seconds, struct coldstart_result *out,
                         struct err *e)
{
    drop_needless_copies(m);
    struct coldstart_result r = {.latency_s = m->search.best_s,
                                 .bound_s = fmin(m->bound_s, m->search.best_s)};
    snprintf(r.winner, sizeof r.winner, "%s", m->winner);
    r.plan = plan_envelope("coldstart", coldstart_method_word(m->options->method), seconds);
    timing_run(&m->search.timing, &m->search.best);
    if (!r.plan ||
        coldstart_plan_to_json(&m->search.best, &m->search.timing, r.bound_s, r.plan) < 0 ||
        coldstart_picture(&m->search.timing, &m->search.best, &r.timeline) < 0) {
        coldstart_result_free(&r);
        return err_set(e, HP_ENOMEM, "out of memory while writing the plan");
    }
    plan_set_bound(r.plan, r.bound_s, r.latency_s, NAN);
    json_t *solver = json_object_get(r.plan, "solver");
    json_object_set_new(solver, "winner", json_string(m->winner));
    json_object_set_new(solver, "evaluations", json_integer((json_int_t)m->budget.used));
    json_object_set_new(solver, "seed", json_integer((json_int_t)m->options->seed));
    write_why(m, r.plan);
    *out = r;
    return 0;
}

static int making_prepare(struct coldstart_making *m, const struct opgraph *g, struct err *e)
{
    const struct coldstart_options *o = m->options;
    int rc = coldstart_problem_init(&m->problem, g, o->contention, e);
    if (rc < 0)
        return rc;
    m->budget = (struct search_budget){.env = o->env,
                                       .seconds = o->time_limit_s,
                                       .evaluations = o->evaluations,
                                       .tell = o->tell,
                                       .tell_ctx = o->tell_ctx};
    if (o->time_limit_s <= 0 && o->evaluations == 0) {
        m->budget.seconds = DEFAULT_SECONDS;
        m->budget.evaluations = DEFAULT_EVALUATIONS; /* small graphs need no more */
    }
    search_budget_start(&m->budget);
    rc = search_init(&m->search, &m->problem, &m->budget, o->seed * 0x9E3779B97F4A7C15u + 1, e);
    if (rc == 0 && (coldstart_plan_init(&m->problem, 0, &m->arena, &m->plan) < 0 ||
                    coldstart_plan_init(&m->problem, 0, &m->arena, &m->start) < 0))
        rc = err_set(e, HP_ENOMEM, "out of memory: the graph has %d nodes", g->n_nodes);
    return rc;
}

int coldstart_plan_make(const struct opgraph *g, const struct coldstart_options *options,
                        struct coldstart_result *out, struct err *e)
{
    struct coldstart_making *m = calloc(1, sizeof *m);
    if (!m)
        return err_set(e, HP_ENOMEM, "out of memory");
    m->options = options;
    uint64_t started = options->env ? env_now_ns(options->env) : 0;
    int rc = making_prepare(m, g, e);
    if (rc == 0) {
        rc = options->method == COLDSTART_BEST   ? make_best(m)
             : options->method == COLDSTART_MILP ? make_milp(m, e)
                                                 : make_published(m);
        if (rc == HP_ENOMEM)
            err_set(e, HP_ENOMEM, "out of memory: the graph has %d nodes", g->n_nodes);
        else if (rc == 0 && m->search.best_s == (double)INFINITY)
            rc = nothing_fits(m, e);
    }
    if (rc == 0)
        rc = making_finish(
            m, options->env ? (double)(env_now_ns(options->env) - started) * 1e-9 : 0, out, e);
    search_fini(&m->search);
    coldstart_problem_fini(&m->problem);
    arena_free(&m->arena);
    free(m);
    return rc;
}

void coldstart_result_free(struct coldstart_result *r)
{
    json_decref(r->plan);
    timeline_free(&r->timeline);
    *r = (struct coldstart_result){0};
}
