#include "planners/coldstart/problem.h"

#include <assert.h>
#include <string.h>

static int split_inputs(struct coldstart_problem *p)
{
    const struct opgraph *g = p->graph;
    size_t n = (size_t)p->n_nodes, edges = (size_t)g->inputs_at[p->n_nodes];
    p->op_inputs_at = arena_alloc(&p->arena, n + 1, sizeof(int));
    p->param_inputs_at = arena_alloc(&p->arena, n + 1, sizeof(int));
    p->op_inputs = arena_alloc(&p->arena, edges + 1, sizeof(int));
    p->param_inputs = arena_alloc(&p->arena, edges + 1, sizeof(int));
    if (!p->op_inputs_at || !p->param_inputs_at || !p->op_inputs || !p->param_inputs)
        return HP_ENOMEM;
    int ops = 0, params = 0;
    for (int v = 0; v < p->n_nodes; v++) {
        p->op_inputs_at[v] = ops;
        p->param_inputs_at[v] = params;
        for (int i = g->inputs_at[v]; i < g->inputs_at[v + 1]; i++) {
            if (g->nodes[g->inputs[i]].is_op)
                p->op_inputs[ops++] = g->inputs[i];
            else
                p->param_inputs[params++] = g->inputs[i];
        }
    }
    p->op_inputs_at[p->n_nodes] = ops;
    p->param_inputs_at[p->n_nodes] = params;
    return 0;
}

static int fill_host(struct coldstart_problem *p)
{
    const struct opgraph *g = p->graph;
    size_t devices = (size_t)p->n_devices;
    p->memory_bytes = arena_alloc(&p->arena, devices, sizeof(double));
    p->bus_of = arena_alloc(&p->arena, devices, sizeof(int));
    p->peer_bytes_per_s =
        arena_memdup(&p->arena, g->peer_bytes_per_s, devices * devices * sizeof(double));
    if (!p->memory_bytes || !p->bus_of || !p->peer_bytes_per_s)
        return HP_ENOMEM;
    for (int d = 0; d < p->n_devices; d++) {
        p->memory_bytes[d] = g->devices[d].memory_bytes;
        p->bus_of[d] = g->devices[d].bus;
    }
    return 0;
}

static void fill_node(struct coldstart_problem *p, int v)
{
    const struct opgraph *g = p->graph;
    const struct opgraph_node *node = &g->nodes[v];
    p->is_op[v] = node->is_op;
    p->bytes[v] = node->bytes;
    p->reads[v] = node->is_op && node->host_read_bytes > 0;
    for (int b = 0; b < p->n_buses; b++) {
        size_t at = (size_t)v * (size_t)p->n_buses + (size_t)b;
        if (!node->is_op)
            p->load_s[at] =
                (node->load_s >= 0 ? node->load_s : node->bytes / g->bus_bytes_per_s[b]) +
                g->load_overhead_s;
        else if (p->contention && p->reads[v])
            p->read_s[at] = node->host_read_bytes / g->bus_bytes_per_s[b];
    }
    if (node->is_op) {
        size_t size = (size_t)p->n_devices * sizeof(double);
        memcpy(&p->exec_s[v * p->n_devices], node->exec_s, size);
        memcpy(&p->host_exec_s[v * p->n_devices], node->host_exec_s, size);
    }
}

static int fill_nodes(struct coldstart_problem *p)
{
    size_t n = (size_t)p->n_nodes, devices = (size_t)p->n_devices, buses = (size_t)p->n_buses;
    p->is_op = arena_alloc(&p->arena, n, sizeof(bool));
    p->reads = arena_alloc(&p->arena, n, sizeof(bool));
    p->bytes = arena_alloc(&p->arena, n, sizeof(double));
    p->exec_s = arena_alloc(&p->arena, n * devices, sizeof(double));
    p->host_exec_s = arena_alloc(&p->arena, n * devices, sizeof(double));
    p->load_s = arena_alloc(&p->arena, n * buses, sizeof(double));
    p->read_s = arena_alloc(&p->arena, n * buses, sizeof(double));
    if (!p->is_op || !p->reads || !p->bytes || !p->exec_s || !p->host_exec_s || !p->load_s ||
        !p->read_s)
        return HP_ENOMEM;
    for (int v = 0; v < p->n_nodes; v++)
        fill_node(p, v);
    return 0;
}

/* Reading in place starts a model sooner; it is no way to run what fits nowhere, since later runs
 * want parameters resident. */
static int check_memory(const struct coldstart_problem *p, struct err *e)
{
    double most = 0;
    for (int d = 0; d < p->n_devices; d++)
        most = p->memory_bytes[d] > most ? p->memory_bytes[d] : most;
    for (int i = 0; i < p->n_ops; i++) {
        int v = p->topological[i];
        double bytes = 0;
        for (int k = p->param_inputs_at[v]; k < p->param_inputs_at[v + 1]; k++)
            bytes += p->bytes[p->param_inputs[k]];
        if (bytes > most) {
            err_set(
                e, HP_EINFEASIBLE,
                "operator %d (\"%s\") has %.0f bytes of parameters; the largest device holds %.0f",
                v, p->graph->nodes[v].name, bytes, most);
            return err_hint(e, "give a device more memory_bytes, or split the operator"),
                   HP_EINFEASIBLE;
        }
    }
    return 0;
}

int coldstart_problem_init(struct coldstart_problem *p, const struct opgraph *g, bool contention,
                           struct err *e)
{
    *p = (struct coldstart_problem){.graph = g,
                                    .contention = contention,
                                    .n_nodes = g->n_nodes,
                                    .n_ops = g->n_ops,
                                    .n_params = g->n_nodes - g->n_ops,
                                    .n_devices = g->n_devices,
                                    .n_buses = g->n_buses,
                                    .topological = g->topological,
                                    .readers_at = g->readers_at,
                                    .readers = g->readers};
    int rc = 0;
    if (split_inputs(p) < 0 || fill_host(p) < 0 || fill_nodes(p) < 0)
        rc = err_set(e, HP_ENOMEM, "out of memory: the graph has %d nodes", g->n_nodes);
    else
        rc = check_memory(p, e);
    if (rc < 0)
        coldstart_problem_fini(p);
    return rc;
}

void coldstart_problem_fini(struct coldstart_problem *p)
{
    arena_free(&p->arena);
    *p = (struct coldstart_problem){0};
}

int coldstart_plan_init(const struct coldstart_problem *p, int capacity, struct arena *arena,
                        struct coldstart_plan *out)
{
    int enough = 2 * p->n_params + p->n_ops + 1;
    capacity = capacity > enough ? capacity : enough;
    *out = (struct coldstart_plan){
        .order = arena_memdup(arena, p->topological, (size_t)p->n_ops * sizeof(int32_t)),
        .device = arena_alloc(arena, (size_t)p->n_nodes, sizeof(int8_t)),
        .host = arena_alloc(arena, (size_t)p->n_nodes, sizeof(bool)),
        .copies = arena_alloc(arena, (size_t)capacity, sizeof(struct coldstart_copy)),
        .capacity = capacity};
    return out->order && out->device && out->host && out->copies ? 0 : HP_ENOMEM;
}

void coldstart_plan_copy(const struct coldstart_problem *p, struct coldstart_plan *to,
                         const struct coldstart_plan *from)
{
    assert(to->capacity >= from->n_copies);
    memcpy(to->order, from->order, (size_t)p->n_ops * sizeof *to->order);
    memcpy(to->device, from->device, (size_t)p->n_nodes * sizeof *to->device);
    memcpy(to->host, from->host, (size_t)p->n_nodes * sizeof *to->host);
    memcpy(to->copies, from->copies, (size_t)from->n_copies * sizeof *to->copies);
    to->n_copies = from->n_copies;
}
