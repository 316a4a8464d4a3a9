#include "planners/coldstart/coldstart.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/plan.h"
#include "planners/coldstart/bounds.h"
#include "planners/coldstart/layers.h"
#include "planners/coldstart/list.h"
#include "planners/coldstart/milp.h"
#include "planners/coldstart/picture.h"
#include "planners/coldstart/plan_file.h"
#include "planners/coldstart/polish.h"
#include "planners/coldstart/published.h"
#include "planners/coldstart/search.h"

const char *coldstart_method_word(enum coldstart_method m)
{
    static const char *const words[COLDSTART_METHODS] = {
        "best", "serial", "pipeline", "dha", "pt", "pt-dha", "milp", "interleaved", "list"};
    return words[m];
}

/* One plan that was weighed. */
struct candidate {
    char name[32];
    double latency_s;
    char reason[200]; /* why it cannot be carried out; else where its time goes */
};

enum {
    MAX_CANDIDATES = 24,
    MAX_PRIMARIES = 8,
    DEFAULT_SECONDS = 10,
    DEFAULT_EVALUATIONS = 2000000
};

struct making {
    const struct coldstart_options *options;
    struct coldstart_problem problem;
    struct search_budget budget;
    struct search search;
    struct arena arena;
    struct coldstart_plan plan; /* the candidate at hand */
    struct coldstart_plan start;
    struct candidate candidates[MAX_CANDIDATES];
    int n_candidates;
    struct coldstart_bounds bounds;
    double bound_s;
    char winner[32];
};

/* ---- weighing
 * -------------------------------------------------------------------------------------------------
 */

/* Says where a plan's time goes: whether its buses or its devices end it. */
static void describe(const struct making *m, struct candidate *c)
{
    const struct timing *t = &m->search.timing;
    struct err e = {0};
    if (t->fault != TIMING_OK) {
        timing_explain(t, &e);
        snprintf(c->reason, sizeof c->reason, "cannot be carried out: %.170s", e.text);
        return;
    }
    double loaded = 0;
    for (int i = 0; i < m->plan.n_copies; i++)
        loaded = fmax(loaded, t->copy_end_s[i]);
    snprintf(c->reason, sizeof c->reason,
             "its buses are busy until %.6g s, its operators until %.6g s", loaded, c->latency_s);
}

/* Weighs m->plan under a name; of several plans of one name (one for each primary device) the best
 * counts. */
static void weigh(struct making *m, const char *name)
{
    double before = m->search.best_s, latency = search_offer(&m->search, &m->plan);
    struct candidate *c = NULL;
    for (int i = 0; i < m->n_candidates; i++)
        if (strcmp(m->candidates[i].name, name) == 0)
            c = &m->candidates[i];
    bool better = !c || latency < c->latency_s;
    if (!c && m->n_candidates < MAX_CANDIDATES) {
        c = &m->candidates[m->n_candidates++];
        snprintf(c->name, sizeof c->name, "%s", name);
    }
    if (c && better) {
        c->latency_s = latency;
        describe(m, c);
    }
    if (latency < before)
        snprintf(m->winner, sizeof m->winner, "%s", name);
}

/* ---- candidates
 * ------------------------------------------------------------------------------------------------
 */

/* What DeepPlan's choice and the exact one say for every operator, on one primary device. */
static int choose_host(struct making *m, int primary, bool exact, bool contention, bool *host,
                       bool *proven)
{
    const struct coldstart_problem *p = &m->problem;
    struct arena scratch = {0};
    struct layers l = {0};
    double finish;
    int rc = layers_init(p, primary, &scratch, &l);
    bool *by_layer = rc == 0 ? arena_alloc(&scratch, (size_t)l.n, sizeof *by_layer) : NULL;
    *proven = false;
    if (!by_layer)
        rc = HP_ENOMEM;
    else if (exact)
        rc = layers_optimal(&l, contention, by_layer, &finish, proven);
    else
        rc = layers_greedy(&l, &scratch, by_layer);
    for (int i = 0; rc == 0 && i < l.n; i++)
        host[l.layer[i].node] = by_layer[i] && l.layer[i].has_params;
    *proven = *proven && l.chain && contention == p->contention;
    arena_free(&scratch);
    return rc;
}

/* The exact choice in the paper's model and with contention, in order of use and interleaved, and
 * the greedy's interleaved. */
static int weigh_chosen(struct making *m, int primary, bool with_exact)
{
    const struct coldstart_problem *p = &m->problem;
    bool *host = arena_alloc(&m->arena, (size_t)p->n_nodes, sizeof *host), proven;
    int rc = host ? 0 : HP_ENOMEM;
    if (rc == 0 && (rc = published_interleaved(p, primary, NULL, &m->plan)) == 0)
        weigh(m, "interleaved");
    if (rc == 0 && (rc = choose_host(m, primary, false, false, host, &proven)) == 0 &&
        (rc = published_interleaved(p, primary, host, &m->plan)) == 0)
        weigh(m, "interleaved");
    for (int contention = 0; with_exact && rc == 0 && contention <= p->contention; contention++) {
        if ((rc = choose_host(m, primary, true, contention, host, &proven)) < 0)
            break;
        if ((rc = published_in_order(p, primary, host, &m->plan)) == 0) {
            double before = m->search.best_s;
            weigh(m, contention ? "exact with contention" : "exact");
            /* One device takes a chain in one order, so nothing beats the exact choice that was
             * carried out. */
            if (proven && p->n_devices == 1 && m->search.timing.fault == TIMING_OK)
                m->bound_s = fmin(before, m->search.timing.latency_s);
        }
        if (rc == 0 && (rc = published_interleaved(p, primary, host, &m->plan)) == 0)
            weigh(m, "interleaved");
    }
    return rc;
}

/* Every operator from host memory: needs no memory at all. */
static int weigh_all_host(struct making *m, int primary)
{
    const struct coldstart_problem *p = &m->problem;
    bool *host = arena_alloc(&m->arena, (size_t)p->n_nodes, sizeof *host);
    if (!host)
        return HP_ENOMEM;
    for (int v = 0; v < p->n_nodes; v++)
        host[v] = p->is_op[v] && coldstart_has_params(p, v);
    int rc = published_in_order(p, primary, host, &m->plan);
    if (rc == 0)
        weigh(m, "all from host memory");
    return rc;
}

static int weigh_list(struct making *m)
{
    int rc = list_schedule(&m->problem, &m->plan);
    if (rc == 0)
        weigh(m, "list");
    return rc == HP_EINFEASIBLE ? 0 : rc;
}

/* Builds and weighs one method with one device as the primary. */
static int weigh_method(struct making *m, enum coldstart_method method, int primary)
{
    const struct coldstart_problem *p = &m->problem;
    int rc = 0;
    switch (method) {
    case COLDSTART_SERIAL: rc = published_serial(p, primary, &m->plan); break;
    case COLDSTART_PIPELINE: rc = published_pipeline(p, primary, &m->plan); break;
    case COLDSTART_DHA: rc = published_dha(p, primary, &m->plan); break;
    case COLDSTART_PT: rc = published_parallel(p, primary, false, &m->plan); break;
    case COLDSTART_PT_DHA: rc = published_parallel(p, primary, true, &m->plan); break;
    case COLDSTART_INTERLEAVED: return weigh_chosen(m, primary, false);
    case COLDSTART_LIST: return primary == 0 ? weigh_list(m) : 0;
    case COLDSTART_BEST:
    case COLDSTART_MILP:
    case COLDSTART_METHODS: return HP_EBUG;
    }
    if (rc == 0)
        weigh(m, coldstart_method_word(method));
    return rc;
}

/* Whether two devices cannot be told apart by their times, bus and memory: then one of them will do
 * as the primary. */
static bool same_primary(const struct coldstart_problem *p, int a, int b)
{
    const struct opgraph *g = p->graph;
    if (p->memory_bytes[a] != p->memory_bytes[b] ||
        g->bus_bytes_per_s[p->bus_of[a]] != g->bus_bytes_per_s[p->bus_of[b]])
        return false;
    for (int d = 0; d < p->n_devices; d++)
        if (p->n_devices > 2 && d != a && d != b && opgraph_peer(g, d, a) != opgraph_peer(g, d, b))
            return false;
    for (int v = 0; v < p->n_nodes; v++)
        if (p->is_op[v] && (g->nodes[v].exec_s[a] != g->nodes[v].exec_s[b] ||
                            g->nodes[v].host_exec_s[a] != g->nodes[v].host_exec_s[b]))
            return false;
    return true;
}

static int list_primaries(const struct coldstart_problem *p, int *primaries)
{
    int n = 0;
    for (int d = 0; d < p->n_devices && n < MAX_PRIMARIES; d++) {
        bool known = false;
        for (int i = 0; i < n; i++)
            known = known || same_primary(p, primaries[i], d);
        if (!known)
            primaries[n++] = d;
    }
    return n;
}

static int weigh_all(struct making *m)
{
    static const enum coldstart_method methods[] = {COLDSTART_SERIAL, COLDSTART_PIPELINE,
                                                    COLDSTART_DHA, COLDSTART_PT, COLDSTART_PT_DHA};
    int primaries[MAX_PRIMARIES], n = list_primaries(&m->problem, primaries), rc = 0;
    /* Large graphs on devices that all differ would spend the search's time here. */
    for (int i = 0; i < n && rc == 0 &&
                    (i == 0 || m->budget.seconds <= 0 || search_budget_look(&m->budget) < 0.3);
         i++) {
        for (size_t k = 0; k < sizeof methods / sizeof *methods && rc == 0; k++)
            rc = weigh_method(m, methods[k], primaries[i]);
        if (rc == 0)
            rc = weigh_chosen(m, primaries[i], true);
        if (rc == 0)
            rc = weigh_all_host(m, primaries[i]);
    }
    return rc < 0 ? rc : weigh_list(m);
}

/* ---- the search
 * ------------------------------------------------------------------------------------------------
 */

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
static void run_restart(struct making *m, const struct search_shape *shape,
                        const struct coldstart_plan *start, double begin, double end, bool last)
{
    struct search *s = &m->search;
    double coarse_end = begin + shape->coarse * (end - begin),
           rolling_end = coarse_end + shape->rolling * (end - begin);
    search_coarse(s, start, coarse_end, shape->coarse_heat);
    if (shape->rolling > 0)
        search_rolling(s, rolling_end, shape->fine_heat);
    search_fine(s, last ? &s->best : &s->round, end, shape->fine_heat);
}

/* Restarts begin at the best candidate, one of them at the list schedule. */
static void run_search(struct making *m)
{
    struct search *s = &m->search;
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
        struct candidate *c = &m->candidates[m->n_candidates++];
        snprintf(c->name, sizeof c->name, "search");
        c->latency_s = s->best_s;
        snprintf(c->reason, sizeof c->reason, "%llu plans timed",
                 (unsigned long long)m->budget.used);
    }
}

static int find_bound(struct making *m)
{
    int rc = coldstart_bounds_find(&m->problem, m->search.best_s, &m->bounds);
    if (rc == 0)
        m->bound_s = fmin(fmax(m->bound_s, m->bounds.best_s), m->search.best_s);
    return rc;
}

static int make_best(struct making *m)
{
    int rc = weigh_all(m);
    if (rc < 0 || m->search.best_s == (double)INFINITY || (rc = find_bound(m)) < 0)
        return rc;
    if (m->search.best_s > m->bound_s * (1 + 1e-9)) {
        run_search(m);
        rc = find_bound(m); /* a better plan rules out more, and so may raise the bound */
    }
    return rc;
}

static int make_published(struct making *m)
{
    int primaries[MAX_PRIMARIES], n = list_primaries(&m->problem, primaries), rc = 0;
    for (int i = 0; i < n && rc == 0; i++)
        rc = weigh_method(m, m->options->method, primaries[i]);
    return rc < 0 || m->search.best_s == (double)INFINITY ? rc : find_bound(m);
}

static int make_milp(struct making *m, struct err *e)
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
    weigh(m, "milp");
    struct candidate *c = &m->candidates[m->n_candidates - 1];
    if (m->search.timing.fault == TIMING_OK)
        snprintf(c->reason, sizeof c->reason,
                 "%d sub-models, %d solved to the end, %d without a solution in time; %.6g s by "
                 "the programme itself",
                 outcome.sub_models, outcome.proven, outcome.without, outcome.latency_s);
    return m->search.best_s == (double)INFINITY ? 0 : find_bound(m);
}

/* ---- the result
 * ------------------------------------------------------------------------------------------------
 */

static int nothing_fits(const struct making *m, struct err *e)
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

static void write_why(const struct making *m, json_t *plan)
{
    char reason[320];
    for (int i = 0; i < m->n_candidates; i++) {
        const struct candidate *c = &m->candidates[i];
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
static void drop_needless_copies(struct making *m)
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

static int finish(struct making *m, double seconds, struct coldstart_result *out, struct err *e)
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

static int prepare(struct making *m, const struct opgraph *g, struct err *e)
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
    struct making *m = calloc(1, sizeof *m);
    if (!m)
        return err_set(e, HP_ENOMEM, "out of memory");
    m->options = options;
    uint64_t started = options->env ? env_now_ns(options->env) : 0;
    int rc = prepare(m, g, e);
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
        rc = finish(m, options->env ? (double)(env_now_ns(options->env) - started) * 1e-9 : 0, out,
                    e);
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
