#include "planners/coldstart/candidates.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "planners/coldstart/layers.h"
#include "planners/coldstart/list.h"
#include "planners/coldstart/milp.h"
#include "planners/coldstart/published.h"
#include "planners/coldstart/search.h"

/* Says where a plan's time goes: whether its buses or its devices end it. */
static void candidate_describe(const struct coldstart_making *m, struct coldstart_candidate *c)
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

void candidate_weigh(struct coldstart_making *m, const char *name)
{
    double before = m->search.best_s, latency = search_offer(&m->search, &m->plan);
    struct coldstart_candidate *c = NULL;
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
        candidate_describe(m, c);
    }
    if (latency < before)
        snprintf(m->winner, sizeof m->winner, "%s", name);
}

/* ---- candidates ---- */

/* What DeepPlan's choice and the exact one say for every operator, on one primary device. */
static int choose_host(struct coldstart_making *m, int primary, bool exact, bool contention,
                       bool *host, bool *proven)
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
static int weigh_chosen(struct coldstart_making *m, int primary, bool with_exact)
{
    const struct coldstart_problem *p = &m->problem;
    bool *host = arena_alloc(&m->arena, (size_t)p->n_nodes, sizeof *host), proven;
    int rc = host ? 0 : HP_ENOMEM;
    if (rc == 0 && (rc = published_interleaved(p, primary, NULL, &m->plan)) == 0)
        candidate_weigh(m, "interleaved");
    if (rc == 0 && (rc = choose_host(m, primary, false, false, host, &proven)) == 0 &&
        (rc = published_interleaved(p, primary, host, &m->plan)) == 0)
        candidate_weigh(m, "interleaved");
    for (int contention = 0; with_exact && rc == 0 && contention <= p->contention; contention++) {
        if ((rc = choose_host(m, primary, true, contention, host, &proven)) < 0)
            break;
        if ((rc = published_in_order(p, primary, host, &m->plan)) == 0) {
            double before = m->search.best_s;
            candidate_weigh(m, contention ? "exact with contention" : "exact");
            /* One device takes a chain in one order, so nothing beats the exact choice that was
             * carried out. */
            if (proven && p->n_devices == 1 && m->search.timing.fault == TIMING_OK)
                m->bound_s = fmin(before, m->search.timing.latency_s);
        }
        if (rc == 0 && (rc = published_interleaved(p, primary, host, &m->plan)) == 0)
            candidate_weigh(m, "interleaved");
    }
    return rc;
}

/* Every operator from host memory: needs no memory at all. */
static int weigh_all_host(struct coldstart_making *m, int primary)
{
    const struct coldstart_problem *p = &m->problem;
    bool *host = arena_alloc(&m->arena, (size_t)p->n_nodes, sizeof *host);
    if (!host)
        return HP_ENOMEM;
    for (int v = 0; v < p->n_nodes; v++)
        host[v] = p->is_op[v] && coldstart_has_params(p, v);
    int rc = published_in_order(p, primary, host, &m->plan);
    if (rc == 0)
        candidate_weigh(m, "all from host memory");
    return rc;
}

static int weigh_list(struct coldstart_making *m)
{
    int rc = list_schedule(&m->problem, &m->plan);
    if (rc == 0)
        candidate_weigh(m, "list");
    return rc == HP_EINFEASIBLE ? 0 : rc;
}

int candidate_weigh_method(struct coldstart_making *m, enum coldstart_method method, int primary)
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
        candidate_weigh(m, coldstart_method_word(method));
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

int candidates_list_primaries(const struct coldstart_problem *p, int *primaries)
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

int candidates_weigh_all(struct coldstart_making *m)
{
    static const enum coldstart_method methods[] = {COLDSTART_SERIAL, COLDSTART_PIPELINE,
                                                    COLDSTART_DHA, COLDSTART_PT, COLDSTART_PT_DHA};
    int primaries[MAX_PRIMARIES], n = candidates_list_primaries(&m->problem, primaries), rc = 0;
    /* Large graphs on devices that all differ would spend the search's time here. */
    for (int i = 0; i < n && rc == 0 &&
                    (i == 0 || m->budget.seconds <= 0 || search_budget_look(&m->budget) < 0.3);
         i++) {
        for (size_t k = 0; k < sizeof methods / sizeof *methods && rc == 0; k++)
            rc = candidate_weigh_method(m, methods[k], primaries[i]);
        if (rc == 0)
            rc = weigh_chosen(m, primaries[i], true);
        if (rc == 0)
            rc = weigh_all_host(m, primaries[i]);
    }
    return rc < 0 ? rc : weigh_list(m);
}
