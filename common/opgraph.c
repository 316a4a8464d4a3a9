#include "common/opgraph.h"

#include <stdlib.h>

#include "common/opgraph_int.h"

/* ---- what must hold of the whole ---- */

static bool reads_parameter(const struct opgraph *g, int v)
{
    for (int i = g->inputs_at[v]; i < g->inputs_at[v + 1]; i++)
        if (!g->nodes[g->inputs[i]].is_op)
            return true;
    return false;
}

static int check_nodes(struct opgraph *g, const struct json_at *at, struct err *e)
{
    struct json_at list;
    int rc = json_get(at, "nodes", &list, e);
    for (int v = 0; rc == 0 && v < g->n_nodes; v++) {
        struct json_at item = json_item(&list, (size_t)v);
        struct opgraph_node *node = &g->nodes[v];
        if (!node->is_op) {
            if (g->readers_at[v] == g->readers_at[v + 1])
                return json_fail(
                    &item, e,
                    "no operator reads the parameter \"%s\": leave it out or add its edge",
                    node->name);
            continue;
        }
        bool reads = reads_parameter(g, v);
        if (!node->host_exec_s && reads)
            return json_fail(&item, e,
                             "operator \"%s\" reads a parameter but has no \"host_exec_s\": give "
                             "its time on each device",
                             node->name);
        if (node->host_read_bytes < 0 && reads)
            return json_fail(&item, e,
                             "operator \"%s\" reads a parameter but has no \"host_read_bytes\"",
                             node->name);
        if (!node->host_exec_s)
            node->host_exec_s = node->exec_s;
        if (node->host_read_bytes < 0)
            node->host_read_bytes = 0;
    }
    return rc;
}

static void heap_push(int *heap, int *n, int v)
{
    int i = (*n)++;
    for (; i > 0 && heap[(i - 1) / 2] > v; i = (i - 1) / 2)
        heap[i] = heap[(i - 1) / 2];
    heap[i] = v;
}

static int heap_pop(int *heap, int *n)
{
    int top = heap[0], last = heap[--*n], i = 0;
    for (int child = 1; child < *n; child = 2 * i + 1) {
        if (child + 1 < *n && heap[child + 1] < heap[child])
            child++;
        if (heap[child] >= last)
            break;
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = last;
    return top;
}

/* Kahn's algorithm, lowest index first. */
static int sort_operators(struct opgraph *g, const struct json_at *at, struct err *e)
{
    struct json_at list;
    int rc = json_get(at, "edges", &list, e), n_heap = 0, n = 0;
    int *missing = calloc((size_t)g->n_nodes * 2 + 1, sizeof *missing);
    g->topological = arena_alloc(&g->arena, (size_t)g->n_ops + 1, sizeof *g->topological);
    if (!missing || !g->topological) {
        free(missing);
        return json_no_memory(at, e);
    }
    int *heap = missing + g->n_nodes;
    for (int v = 0; v < g->n_nodes; v++) {
        for (int i = g->inputs_at[v]; i < g->inputs_at[v + 1]; i++)
            missing[v] += g->nodes[g->inputs[i]].is_op;
        if (g->nodes[v].is_op && missing[v] == 0)
            heap_push(heap, &n_heap, v);
    }
    while (n_heap > 0) {
        int u = heap_pop(heap, &n_heap);
        g->topological[n++] = u;
        for (int i = g->readers_at[u]; i < g->readers_at[u + 1]; i++)
            if (--missing[g->readers[i]] == 0)
                heap_push(heap, &n_heap, g->readers[i]);
    }
    for (int v = 0; rc == 0 && n < g->n_ops && v < g->n_nodes; v++)
        if (missing[v] > 0)
            rc = json_fail(&list, e, "have a cycle that keeps node %d (\"%s\") waiting for itself",
                           v, g->nodes[v].name);
    free(missing);
    return rc;
}

/* ---- the whole ---- */

int opgraph_from_json(const struct json_at *at, struct opgraph *out, struct err *e)
{
    struct opgraph g = {0};
    int rc = opgraph_read(&g, at, e);
    if (rc == 0)
        rc = check_nodes(&g, at, e);
    if (rc == 0)
        rc = sort_operators(&g, at, e);
    if (rc < 0)
        opgraph_free(&g);
    else
        *out = g;
    return rc;
}

int opgraph_load(const char *file, struct opgraph *out, struct err *e)
{
    json_t *root;
    struct json_at at;
    int rc = json_load_at(file, &root, &at, e);
    if (rc < 0)
        return rc;
    rc = opgraph_from_json(&at, out, e);
    json_decref(root);
    return rc;
}

void opgraph_free(struct opgraph *g)
{
    arena_free(&g->arena);
    *g = (struct opgraph){0};
}
