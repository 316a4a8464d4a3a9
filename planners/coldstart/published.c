#include "planners/coldstart/published.h"

#include <stdlib.h>
#include <string.h>

#include "planners/coldstart/layers.h"

/* The device of another bus from which the primary is reached fastest, per bus; the primary itself
 * for its own bus, COLDSTART_NOWHERE where no device of that bus reaches it. gates[n_buses]. */
static void gates_find(const struct coldstart_problem *p, int primary, int *gates)
{
    for (int b = 0; b < p->n_buses; b++) {
        double best = 0;
        gates[b] = COLDSTART_NOWHERE;
        for (int d = 0; d < p->n_devices; d++) {
            double speed = p->peer_bytes_per_s[d * p->n_devices + primary];
            if (p->bus_of[d] == b && d != primary && speed > best) {
                best = speed;
                gates[b] = d;
            }
        }
    }
    gates[p->bus_of[primary]] = primary;
}

/* All operators on one device in topological order, no copies yet. */
static void run_all_on(const struct coldstart_problem *p, int primary, const bool *host,
                       struct coldstart_plan *out)
{
    memcpy(out->order, p->topological, (size_t)p->n_ops * sizeof *out->order);
    memset(out->device, primary, (size_t)p->n_nodes * sizeof *out->device);
    if (host)
        memcpy(out->host, host, (size_t)p->n_nodes * sizeof *out->host);
    else
        memset(out->host, 0, (size_t)p->n_nodes * sizeof *out->host);
    out->n_copies = 0;
}

/* What the buses carry, in the order of use: a parameter, or the read of an operator in host mode.
 * `visit` places it. */
typedef void (*visit_fn)(void *ctx, int node, bool read);

static int visit_in_order(const struct coldstart_problem *p, const struct coldstart_plan *plan,
                          visit_fn visit, void *ctx)
{
    bool *seen = calloc((size_t)p->n_nodes, sizeof *seen);
    if (!seen)
        return HP_ENOMEM;
    for (int i = 0; i < p->n_ops; i++) {
        int v = plan->order[i];
        if (plan->host[v]) {
            if (p->contention && p->reads[v])
                visit(ctx, v, true);
            continue;
        }
        for (int k = p->param_inputs_at[v]; k < p->param_inputs_at[v + 1]; k++) {
            int w = p->param_inputs[k];
            if (!seen[w])
                visit(ctx, w, false);
            seen[w] = true;
        }
    }
    free(seen);
    return 0;
}

struct published_placing {
    const struct coldstart_problem *p;
    struct coldstart_plan *plan;
    int primary;
    int gates[OPGRAPH_MAX_BUSES];
    double free_s[OPGRAPH_MAX_BUSES];
    /* Parallel transmission: parts by bytes. */
    double part_bytes, placed_bytes;
    int parts[OPGRAPH_MAX_BUSES], n_parts;
    int *part_of; /* [node]; may be NULL */
};

static void place_on_primary(void *ctx, int node, bool read)
{
    struct published_placing *s = ctx;
    coldstart_plan_add(s->plan, node, s->primary, read);
}

int published_in_order(const struct coldstart_problem *p, int primary, const bool *host,
                       struct coldstart_plan *out)
{
    struct published_placing s = {.p = p, .plan = out, .primary = primary};
    run_all_on(p, primary, host, out);
    return visit_in_order(p, out, place_on_primary, &s);
}

int published_pipeline(const struct coldstart_problem *p, int primary, struct coldstart_plan *out)
{
    return published_in_order(p, primary, NULL, out);
}

int published_serial(const struct coldstart_problem *p, int primary, struct coldstart_plan *out)
{
    int rc = published_in_order(p, primary, NULL, out);
    if (rc == 0 && out->n_copies > 1) {
        struct coldstart_copy first = out->copies[0];
        memmove(out->copies, out->copies + 1, (size_t)(out->n_copies - 1) * sizeof *out->copies);
        out->copies[out->n_copies - 1] = first;
    }
    return rc;
}

/* The greedy's choice by node, of the operators on `primary`. */
static int greedy_choice(const struct coldstart_problem *p, int primary, bool *host)
{
    struct arena scratch = {0};
    struct layers l;
    int rc = layers_init(p, primary, &scratch, &l);
    bool *by_layer = rc == 0 ? arena_alloc(&scratch, (size_t)l.n, sizeof *by_layer) : NULL;
    rc = by_layer ? layers_greedy(&l, &scratch, by_layer) : HP_ENOMEM;
    for (int i = 0; rc == 0 && i < l.n; i++) {
        int v = l.layer[i].node;
        /* An operator without parameters counts as run from host memory, unless that would cost
         * something. */
        int at = v * p->n_devices + primary;
        host[v] = by_layer[i] &&
                  (l.layer[i].has_params || (!p->reads[v] && p->host_exec_s[at] <= p->exec_s[at]));
    }
    arena_free(&scratch);
    return rc;
}

int published_dha(const struct coldstart_problem *p, int primary, struct coldstart_plan *out)
{
    bool *host = calloc((size_t)p->n_nodes, sizeof *host);
    int rc = host ? greedy_choice(p, primary, host) : HP_ENOMEM;
    if (rc == 0)
        rc = published_in_order(p, primary, host, out);
    free(host);
    return rc;
}

/* ---- over several buses ---- */

static void placing_weigh(void *ctx, int node, bool read)
{
    struct published_placing *s = ctx;
    if (!read)
        s->part_bytes += s->p->bytes[node];
}

/* Goes along the order and gives each parameter the part in which it ends, by the bytes that are
 * loaded. */
static int assign_parts(struct published_placing *s)
{
    const struct coldstart_problem *p = s->p;
    bool *counted = calloc((size_t)p->n_nodes, sizeof *counted);
    if (!counted)
        return HP_ENOMEM;
    for (int i = 0; i < p->n_ops; i++) {
        int v = s->plan->order[i];
        for (int k = p->param_inputs_at[v]; k < p->param_inputs_at[v + 1]; k++) {
            int w = p->param_inputs[k];
            if (counted[w])
                continue;
            counted[w] = !s->plan->host[v];
            s->placed_bytes += counted[w] ? p->bytes[w] : 0;
            int part = (int)(s->placed_bytes / s->part_bytes);
            s->part_of[w] = part < s->n_parts ? part : s->n_parts - 1;
        }
    }
    free(counted);
    return 0;
}

static void place_by_part(void *ctx, int node, bool read)
{
    struct published_placing *s = ctx;
    int device = read ? s->primary : s->gates[s->parts[s->part_of[node]]];
    coldstart_plan_add(s->plan, node, device, read);
    if (device != s->primary)
        s->plan->copies[s->plan->n_copies - 1].to = (int8_t)s->primary;
}

/* Operators with a parameter of a later part are loaded. */
static void keep_first_part(const struct coldstart_problem *p, const int *part_of, bool *host)
{
    for (int v = 0; v < p->n_nodes; v++)
        for (int k = p->param_inputs_at[v]; k < p->param_inputs_at[v + 1]; k++)
            if (part_of[p->param_inputs[k]] > 0)
                host[v] = false;
}

int published_parallel(const struct coldstart_problem *p, int primary, bool dha,
                       struct coldstart_plan *out)
{
    struct published_placing s = {.p = p, .plan = out, .primary = primary};
    bool *host = calloc((size_t)p->n_nodes, sizeof *host);
    s.part_of = calloc((size_t)p->n_nodes, sizeof *s.part_of);
    int rc = host && s.part_of ? 0 : HP_ENOMEM, own = p->bus_of[primary];
    if (rc == 0) {
        gates_find(p, primary, s.gates);
        s.parts[s.n_parts++] = own;
        for (int b = 0; b < p->n_buses; b++)
            if (b != own && s.gates[b] != COLDSTART_NOWHERE)
                s.parts[s.n_parts++] = b;
        rc = dha ? greedy_choice(p, primary, host) : 0;
    }
    if (rc == 0) {
        run_all_on(p, primary, host, out);
        rc = visit_in_order(p, out, placing_weigh, &s);
        s.part_bytes = s.part_bytes > 0 ? s.part_bytes / s.n_parts : 1;
    }
    if (rc == 0 && (rc = assign_parts(&s)) == 0) {
        keep_first_part(p, s.part_of, host);
        memcpy(out->host, host, (size_t)p->n_nodes * sizeof *host);
    }
    if (rc == 0)
        rc = visit_in_order(p, out, place_by_part, &s);
    free(host);
    free(s.part_of);
    return rc;
}

static void place_on_first_free(void *ctx, int node, bool read)
{
    struct published_placing *s = ctx;
    const struct coldstart_problem *p = s->p;
    int best = p->bus_of[s->primary];
    for (int b = 0; b < p->n_buses && !read; b++)
        if (s->gates[b] != COLDSTART_NOWHERE && s->free_s[b] < s->free_s[best])
            best = b;
    s->free_s[best] += (read ? p->read_s : p->load_s)[node * p->n_buses + best];
    coldstart_plan_add(s->plan, node, s->gates[best], read);
    if (s->gates[best] != s->primary)
        s->plan->copies[s->plan->n_copies - 1].to = (int8_t)s->primary;
}

int published_interleaved(const struct coldstart_problem *p, int primary, const bool *host,
                          struct coldstart_plan *out)
{
    struct published_placing s = {.p = p, .plan = out, .primary = primary};
    gates_find(p, primary, s.gates);
    run_all_on(p, primary, host, out);
    return visit_in_order(p, out, place_on_first_free, &s);
}
