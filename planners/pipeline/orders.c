#include "planners/pipeline/orders.h"

#include <math.h>
#include <string.h>

enum { MAX_SEQUENCES = 600, MAX_STARTS = 16, MAX_ORDERS = 1200 };

struct maker {
    struct exact *x;
    struct orders *out;
    int now[PIPELINE_MAX_DEVICES];
    bool used[PIPELINE_MAX_DEVICES];
    bool full;
};

static void order_add(struct maker *m, int n)
{
    struct orders *o = m->out;
    int must = 0, has = 0;
    for (int d = 0; d < m->x->c->n_devices; d++)
        must += m->x->must[d];
    for (int i = 0; i < n; i++)
        has += m->x->must[m->now[i]];
    if (n == 0 || has < must)
        return;
    if (o->n == MAX_ORDERS) {
        m->full = true;
        return;
    }
    memcpy(o->devices + (size_t)o->n * (size_t)o->stride, m->now, (size_t)n * sizeof(int));
    o->length[o->n++] = n;
}

/* ---- all of them ---- */

static bool stands_for_twin(const struct maker *m, int d)
{
    for (int k = 0; k < d; k++)
        if (m->x->twin_of[k] == m->x->twin_of[d] && !m->used[k])
            return false;
    return true;
}

/* Counts the sequences as they are made; gives up beyond the limit. */
static void all_from(struct maker *m, int depth, int *seen)
{
    const struct pipeline_cost *c = m->x->c;
    for (int d = 0; d < c->n_devices && !m->full; d++) {
        if (m->used[d] || !stands_for_twin(m, d) || depth >= c->n_layers)
            continue;
        if (depth > 0 && c->hops[m->now[depth - 1] * c->n_devices + d].bandwidth_bytes_per_s <= 0)
            continue;
        m->full = ++*seen > MAX_SEQUENCES;
        m->used[d] = true;
        m->now[depth] = d;
        order_add(m, depth + 1);
        all_from(m, depth + 1, seen);
        m->used[d] = false;
    }
}

/* ---- chains of nodes ---- */

static int node_of(const struct pipeline_cost *c, int d)
{
    return c->cluster->devices[c->devices[d].cluster_index].node;
}

/* Seconds of the whole model on a kind, as one slice. */
static double model_seconds(const struct pipeline_cost *c, int kind)
{
    return cost_units_seconds(c, kind, 0, c->n_layers, 0, c->n_units);
}

/* Appends the allowed devices of a node, fastest first. */
static int append_node(struct maker *m, int n, int node, const bool *allowed)
{
    const struct pipeline_cost *c = m->x->c;
    int first = n;
    for (int d = 0; d < c->n_devices; d++) {
        if (node_of(c, d) != node || !(allowed[c->devices[d].kind] || m->x->must[d]))
            continue;
        double speed = model_seconds(c, c->devices[d].kind);
        int at = n++;
        for (; at > first && model_seconds(c, c->devices[m->now[at - 1]].kind) > speed; at--)
            m->now[at] = m->now[at - 1];
        m->now[at] = d;
    }
    return n;
}

/* The best link from the last device to any allowed one of another node that was not visited; -1:
 * there is none. */
static int next_node(const struct maker *m, int last, const bool *visited, const bool *allowed)
{
    const struct pipeline_cost *c = m->x->c;
    double best = 0;
    int node = -1;
    for (int d = 0; d < c->n_devices; d++) {
        double speed = c->hops[last * c->n_devices + d].bandwidth_bytes_per_s;
        if (!visited[node_of(c, d)] && (allowed[c->devices[d].kind] || m->x->must[d]) &&
            speed > best) {
            best = speed;
            node = node_of(c, d);
        }
    }
    return node;
}

static void order_reverse(int *v, int n)
{
    for (int i = 0; i < n / 2; i++) {
        int t = v[i];
        v[i] = v[n - 1 - i];
        v[n - 1 - i] = t;
    }
}

/* The order as it stands and the other way round. */
static void add_both_ways(struct maker *m, int n)
{
    order_add(m, n);
    order_reverse(m->now, n);
    order_add(m, n);
    order_reverse(m->now, n);
}

/* From node to node along the best links. What there was before each link that is slower than all
 * before it is an order of its own: a slow link may cost more than the devices beyond it bring. */
static void chain_from(struct maker *m, int start, const bool *allowed, bool *visited)
{
    const struct pipeline_cost *c = m->x->c;
    double slowest = INFINITY;
    memset(visited, 0, (size_t)c->cluster->n_nodes * sizeof *visited);
    visited[start] = true;
    int n = append_node(m, 0, start, allowed);
    for (int node; (node = next_node(m, m->now[n - 1], visited, allowed)) >= 0;) {
        int last = m->now[n - 1], longer = append_node(m, n, node, allowed);
        double speed = c->hops[last * c->n_devices + m->now[n]].bandwidth_bytes_per_s;
        if (speed < slowest)
            add_both_ways(m, n);
        slowest = speed < slowest ? speed : slowest;
        visited[node] = true;
        n = longer;
    }
    add_both_ways(m, n);
}

/* Chains from every node that has an allowed device; from some of them, spread over all, where they
 * are many. */
static void chains_over(struct maker *m, const bool *allowed, bool *visited, int *starts)
{
    const struct pipeline_cost *c = m->x->c;
    int n = 0;
    for (int d = 0; d < c->n_devices; d++)
        if ((allowed[c->devices[d].kind] || m->x->must[d]) &&
            (n == 0 || node_of(c, d) != starts[n - 1]))
            starts[n++] = node_of(c, d);
    int used = n < MAX_STARTS ? n : MAX_STARTS;
    for (int i = 0; i < used; i++)
        chain_from(m, starts[(int)((long)i * n / used)], allowed, visited);
}

static int make_chains(struct maker *m, struct err *e)
{
    const struct pipeline_cost *c = m->x->c;
    int n_kinds = c->profile->n_kinds, n_nodes = c->cluster->n_nodes;
    bool *allowed = arena_alloc(c->arena, (size_t)n_kinds, sizeof *allowed);
    bool *visited = arena_alloc(c->arena, (size_t)n_nodes, sizeof *visited),
         *present = arena_alloc(c->arena, (size_t)n_kinds, sizeof *present);
    int *starts = arena_alloc(c->arena, (size_t)c->n_devices, sizeof *starts);
    if (!allowed || !visited || !present || !starts)
        return err_set(e, HP_ENOMEM, "out of memory while planning a pipeline");
    for (int d = 0; d < c->n_devices; d++)
        present[c->devices[d].kind] = true;
    for (int round = 0; round < n_kinds; round++) {
        int fastest = -1; /* of those not allowed yet */
        for (int q = 0; q < n_kinds; q++)
            if (present[q] && !allowed[q] &&
                (fastest < 0 || model_seconds(c, q) < model_seconds(c, fastest)))
                fastest = q;
        if (fastest < 0)
            break;
        allowed[fastest] = true;
        chains_over(m, allowed, visited, starts);
    }
    return 0;
}

int orders_make(struct exact *x, struct orders *out, struct err *e)
{
    const struct pipeline_cost *c = x->c;
    struct maker m = {.x = x, .out = out};
    *out = (struct orders){.stride = c->n_devices};
    out->length = arena_alloc(c->arena, MAX_ORDERS, sizeof(int));
    out->devices = arena_alloc(c->arena, (size_t)MAX_ORDERS * (size_t)c->n_devices, sizeof(int));
    if (!out->length || !out->devices)
        return err_set(e, HP_ENOMEM, "out of memory while planning a pipeline");
    if (x->options->order_fixed) {
        for (int d = 0; d < c->n_devices; d++)
            m.now[d] = d;
        order_add(&m, c->n_devices);
        return 0;
    }
    int seen = 0;
    all_from(&m, 0, &seen);
    if (!m.full)
        return 0;
    out->n = 0;
    m.full = false;
    return make_chains(&m, e);
}
