#include "planners/coldstart/milp.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/bytes.h"
#include "planners/coldstart/dominators.h"
#include "planners/coldstart/milp_program.h"

enum { LOCAL_NONE = -1, SUB_MODEL_MAX_NODES = 400 };

struct rolling {
    const struct coldstart_problem *p;
    const struct milp_options *options;
    struct coldstart_plan *plan;
    struct arena arena;
    struct milp_state state;
    int *cuts, n_cuts; /* positions in the topological order after which a sub-model ends */
    int *local;        /* [node] its index in the sub-model at hand */
    bool *planned;     /* [node] operators of earlier sub-models; parameters that they had copied */
    int n_ops_planned; /* written to plan->order */
    struct milp_outcome *outcome;
    uint64_t started_ns;
};

/* ---- cutting ---- */

static int find_cuts(struct rolling *r)
{
    const struct coldstart_problem *p = r->p;
    int *positions = arena_alloc(&r->arena, (size_t)p->n_ops + 1, sizeof *positions);
    r->cuts = arena_alloc(&r->arena, (size_t)p->n_ops + 1, sizeof *r->cuts);
    int n = positions && r->cuts ? dominators_find(p, positions) : HP_ENOMEM;
    if (n < 0)
        return n;
    for (int i = r->options->dominators - 1; i < n; i += r->options->dominators)
        r->cuts[r->n_cuts++] = positions[i];
    if (r->n_cuts == 0 || r->cuts[r->n_cuts - 1] != p->n_ops - 1)
        r->cuts[r->n_cuts++] = p->n_ops - 1;
    return 0;
}

/* ---- one sub-model ---- */

static int add_node(struct rolling *r, struct milp_sub_model *m, int node, int fixed_device)
{
    if (r->local[node] == LOCAL_NONE) {
        r->local[node] = m->n_nodes;
        m->nodes[m->n_nodes++] = (struct milp_node){node, r->p->is_op[node], fixed_device, 0};
    }
    return r->local[node];
}

/* Where a planned parameter was copied. */
static int copied_to(const struct coldstart_plan *plan, int node)
{
    for (int c = 0; c < plan->n_copies; c++)
        if (!plan->copies[c].read && plan->copies[c].node == node)
            return plan->copies[c].device;
    return COLDSTART_NOWHERE;
}

/* Inputs first, then the operator, then its edges; what earlier sub-models planned becomes one node
 * that stands for it. */
static void add_operator(struct rolling *r, struct milp_sub_model *m, int v)
{
    const struct opgraph *g = r->p->graph;
    int self = add_node(r, m, v, COLDSTART_NOWHERE);
    for (int k = g->inputs_at[v]; k < g->inputs_at[v + 1]; k++) {
        int u = g->inputs[k], fixed = COLDSTART_NOWHERE;
        if (r->planned[u])
            fixed = r->p->is_op[u] ? r->plan->device[u] : copied_to(r->plan, u);
        int from = add_node(r, m, u, fixed);
        m->edges[m->n_edges][0] = from;
        m->edges[m->n_edges++][1] = self;
    }
}

static int take_sub_model(struct rolling *r, int first, int end, struct arena *scratch,
                          struct milp_sub_model *m, struct err *e)
{
    const struct opgraph *g = r->p->graph;
    size_t edges = 0;
    for (int i = first; i < end; i++)
        edges +=
            (size_t)(g->inputs_at[r->p->topological[i] + 1] - g->inputs_at[r->p->topological[i]]);
    *m = (struct milp_sub_model){.p = r->p, .slots = r->options->slots};
    m->nodes = arena_alloc(scratch, edges + (size_t)(end - first), sizeof *m->nodes);
    m->edges = arena_alloc(scratch, edges + 1, sizeof *m->edges);
    if (!m->nodes || !m->edges)
        return err_set(e, HP_ENOMEM, "out of memory");
    for (int v = 0; v < r->p->n_nodes; v++)
        r->local[v] = LOCAL_NONE;
    for (int i = first; i < end; i++)
        add_operator(r, m, r->p->topological[i]);
    if (m->n_nodes > SUB_MODEL_MAX_NODES) {
        err_set(e, HP_ELIMIT,
                "a sub-model between dominators has %d nodes; the published programme is written "
                "for at most %d",
                m->n_nodes, SUB_MODEL_MAX_NODES);
        return err_hint(
                   e,
                   "fewer --dominators make smaller sub-models; --method best has no such limit"),
               HP_ELIMIT;
    }
    return 0;
}

static bool put_text(void *ctx, const char *text, size_t size)
{
    buffer_append(ctx, text, size);
    return !((struct buffer *)ctx)->failed;
}

static int give_program(const struct rolling *r, const struct lp_program *lp, int sub_model,
                        struct err *e)
{
    struct buffer text = {0};
    if (!r->options->program)
        return 0;
    int rc = lp_program_write(lp, put_text, &text, e);
    if (rc == 0 && !r->options->program(r->options->program_ctx, sub_model, (const char *)text.data,
                                        text.size))
        rc = err_set(e, HP_EIO, "the programme of sub-model %d could not be written", sub_model);
    buffer_free(&text);
    return rc;
}

/* What time is left, shared equally among the sub-models to come. */
static double time_share(const struct rolling *r, int sub_models_left)
{
    double used = (double)(env_now_ns(r->options->env) - r->started_ns) * 1e-9;
    return fmax(0.02, (r->options->time_limit_s - used) / sub_models_left);
}

/* When lp_solve found nothing in its time: all on the device where the sub-model's input is,
 * resident. */
static void keep_together(const struct rolling *r, struct milp_sub_model *m,
                          struct milp_solution *s)
{
    const struct coldstart_problem *p = r->p;
    int device = 0, resident;
    for (int v = 0; v < m->n_nodes; v++)
        if (m->nodes[v].is_op && m->nodes[v].fixed_device != COLDSTART_NOWHERE)
            device = m->nodes[v].fixed_device;
    resident = device * m->slots + 2;
    s->state = r->state;
    double *bus = &s->state.bus_free_s[p->bus_of[device]], run = 0;
    for (int v = 0; v < m->n_nodes; v++) {
        struct milp_node *node = &m->nodes[v];
        if (node->fixed_device != COLDSTART_NOWHERE) {
            node->slot = node->fixed_device * m->slots + 1;
            continue;
        }
        node->slot = resident;
        if (node->is_op) {
            run += p->exec_s[node->node * p->n_devices + device];
        } else {
            *bus += p->load_s[node->node * p->n_buses + p->bus_of[device]];
            s->state.used_bytes[device] += p->bytes[node->node];
        }
    }
    s->state.device_free_s[device] = fmax(s->state.device_free_s[device], *bus) + run;
    for (int j = 0; j <= p->n_devices * m->slots; j++)
        s->rank[j] = j;
}

static int sub_model_solve(struct rolling *r, struct milp_sub_model *m, int sub_model,
                           struct milp_solution *s, struct err *e)
{
    struct lp_program *lp;
    struct lp_result result = {0};
    int rc = milp_program_build(m, &r->state, &lp, e);
    if (rc < 0)
        return rc;
    if ((rc = give_program(r, lp, sub_model, e)) == 0) {
        struct lp_limits limits = {.seconds = time_share(r, r->n_cuts - sub_model)};
        rc = lp_program_solve(lp, &limits, r->options->env, &result, e);
    }
    if (rc == 0) {
        s->outcome = result.outcome;
        if (result.values)
            milp_program_read(m, &r->state, result.values, s);
        else if (result.outcome == LP_INFEASIBLE)
            rc = err_set(e, HP_EINFEASIBLE,
                         "sub-model %d of %d has no plan that fits the devices' memory and paths",
                         sub_model + 1, r->n_cuts);
        else
            keep_together(r, m, s);
    }
    lp_program_destroy(&lp);
    return rc;
}

/* ---- adding it to the plan ---- */

struct milp_placed {
    int rank, slot, local;
};

static int compare_placed(const void *a, const void *b)
{
    const struct milp_placed *x = a, *y = b;
    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    if (x->slot != y->slot)
        return x->slot < y->slot ? -1 : 1;
    return (x->local > y->local) - (x->local < y->local);
}

/* Operators slot by slot; within a slot in the order of the graph. */
static int add_operators(struct rolling *r, const struct milp_sub_model *m,
                         const struct milp_solution *s, const int *position)
{
    struct milp_placed *ops = calloc((size_t)m->n_nodes + 1, sizeof *ops);
    int n = 0;
    if (!ops)
        return HP_ENOMEM;
    for (int v = 0; v < m->n_nodes; v++)
        if (m->nodes[v].is_op && m->nodes[v].fixed_device == COLDSTART_NOWHERE)
            ops[n++] = (struct milp_placed){s->rank[m->nodes[v].slot], m->nodes[v].slot,
                                            position[m->nodes[v].node]};
    qsort(ops, (size_t)n, sizeof *ops, compare_placed);
    for (int i = 0; i < n; i++) {
        int v = r->p->topological[ops[i].local];
        r->plan->order[r->n_ops_planned++] = v;
        r->plan->device[v] = (int8_t)milp_slot_device(m->slots, ops[i].slot);
        /* An operator without parameters runs alike in both kinds of slot. */
        r->plan->host[v] = milp_slot_is_host(ops[i].slot) && coldstart_has_params(r->p, v);
        r->planned[v] = true;
    }
    free(ops);
    return 0;
}

/* What each bus carries, slot by slot in the round of its devices: the parameters of the slot, then
 * its reads. */
static void add_copies(struct rolling *r, const struct milp_sub_model *m)
{
    const struct coldstart_problem *p = r->p;
    for (int bus = 0; bus < p->n_buses; bus++)
        for (int k = 0, j; (j = milp_bus_slot(p, m->slots, bus, k)) > 0; k++)
            for (int v = 0; v < m->n_nodes; v++) {
                const struct milp_node *node = &m->nodes[v];
                if (node->slot != j || node->fixed_device != COLDSTART_NOWHERE)
                    continue;
                if (!node->is_op) {
                    coldstart_plan_add(r->plan, node->node, milp_slot_device(m->slots, j), false);
                    r->planned[node->node] = true;
                } else if (r->plan->host[node->node] && p->contention && p->reads[node->node]) {
                    coldstart_plan_add(r->plan, node->node, milp_slot_device(m->slots, j), true);
                }
            }
}

static void outcome_count(struct milp_outcome *o, const struct milp_solution *s)
{
    o->sub_models++;
    o->proven += s->outcome == LP_OPTIMAL;
    o->without += s->outcome != LP_OPTIMAL && s->outcome != LP_FEASIBLE;
}

static int plan_sub_model(struct rolling *r, int sub_model, int first, int end, const int *position,
                          struct err *e)
{
    struct arena scratch = {0};
    struct milp_sub_model m;
    struct milp_solution s = {
        .rank = arena_alloc(&scratch, (size_t)r->p->n_devices * (size_t)r->options->slots + 1,
                            sizeof *s.rank)};
    int rc = s.rank ? take_sub_model(r, first, end, &scratch, &m, e)
                    : err_set(e, HP_ENOMEM, "out of memory");
    if (rc == 0 && (rc = sub_model_solve(r, &m, sub_model, &s, e)) == 0) {
        outcome_count(r->outcome, &s);
        r->state = s.state;
        for (int d = 0; d < r->p->n_devices; d++)
            r->outcome->latency_s = fmax(r->outcome->latency_s, r->state.device_free_s[d]);
        if (add_operators(r, &m, &s, position) < 0)
            rc = err_set(e, HP_ENOMEM, "out of memory");
        else
            add_copies(r, &m);
    }
    arena_free(&scratch);
    return rc;
}

int milp_schedule(const struct coldstart_problem *p, const struct milp_options *options,
                  struct coldstart_plan *out, struct milp_outcome *outcome, struct err *e)
{
    struct rolling r = {.p = p,
                        .options = options,
                        .plan = out,
                        .outcome = outcome,
                        .started_ns = env_now_ns(options->env)};
    *outcome = (struct milp_outcome){0};
    r.local = arena_alloc(&r.arena, (size_t)p->n_nodes, sizeof *r.local);
    r.planned = arena_alloc(&r.arena, (size_t)p->n_nodes, sizeof *r.planned);
    int *position = arena_alloc(&r.arena, (size_t)p->n_nodes, sizeof *position);
    int rc = r.local && r.planned && position && find_cuts(&r) == 0
                 ? 0
                 : err_set(e, HP_ENOMEM, "out of memory");
    for (int i = 0; rc == 0 && i < p->n_ops; i++)
        position[p->topological[i]] = i;
    out->n_copies = 0;
    memset(out->host, 0, (size_t)p->n_nodes * sizeof *out->host);
    for (int i = 0, first = 0; i < r.n_cuts && rc == 0; i++) {
        if (options->tell)
            options->tell(options->tell_ctx, (double)i / r.n_cuts, outcome->latency_s);
        rc = plan_sub_model(&r, i, first, r.cuts[i] + 1, position, e);
        first = r.cuts[i] + 1;
    }
    arena_free(&r.arena);
    return rc;
}
