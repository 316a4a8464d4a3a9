/* Reading hp-graph/1: the host, the nodes, the edges. What must hold of the whole is checked by
 * opgraph.c. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common/opgraph_int.h"

/* An array member of at most `max` items. */
static int get_list(const struct json_at *at, const char *key, size_t max, struct json_at *list,
                    size_t *n, struct err *e)
{
    int rc = json_get(at, key, list, e);
    if (rc < 0 || (rc = json_as_array(list, n, e)) < 0)
        return rc;
    if (*n > max) {
        json_fail(list, e, "has %zu items; the limit is %zu", *n, max);
        return e ? (e->code = HP_ELIMIT) : HP_ELIMIT;
    }
    return 0;
}

/* ---- host ---- */

static int read_buses(struct opgraph *g, const struct json_at *host, struct err *e)
{
    struct json_at list;
    size_t n;
    int rc;
    if (!json_find(host, "buses", &list))
        return 0;
    if ((rc = get_list(host, "buses", OPGRAPH_MAX_BUSES, &list, &n, e)) < 0)
        return rc;
    g->bus_bytes_per_s = arena_alloc(&g->arena, n + 1, sizeof *g->bus_bytes_per_s);
    if (!g->bus_bytes_per_s)
        return json_no_memory(host, e);
    for (size_t i = 0; i < n; i++) {
        struct json_at item = json_item(&list, i);
        double *speed = &g->bus_bytes_per_s[g->n_buses++];
        if ((rc = json_get_number_min(&item, "bandwidth_bytes_per_s", 0, speed, e)) < 0)
            return rc;
        if (*speed <= 0)
            return json_fail(&item, e, "has a bandwidth of 0: nothing can be loaded over it");
    }
    return 0;
}

static int read_device(struct opgraph *g, const struct json_at *at, struct opgraph_device *d,
                       struct err *e)
{
    const char *name;
    struct json_at place;
    uint64_t bus;
    int rc;
    if ((rc = json_opt_string(at, "name", "", &name, e)) < 0 ||
        (rc = json_get_number_min(at, "memory_bytes", 0, &d->memory_bytes, e)) < 0)
        return rc;
    if (!json_find(at, "bus", &place))
        return json_fail(at, e,
                         "device \"%s\" has no \"bus\": nothing can be loaded to it; give the bus "
                         "or leave the device out",
                         name);
    if ((rc = json_as_u64(&place, &bus, e)) < 0)
        return rc;
    if (bus >= (uint64_t)g->n_buses)
        return json_fail(&place, e, "%llu is no bus: the host has %d of them, counted from 0",
                         (unsigned long long)bus, g->n_buses);
    d->bus = (int)bus;
    d->name = arena_strdup(&g->arena, name);
    return d->name ? 0 : json_no_memory(at, e);
}

static int read_devices(struct opgraph *g, const struct json_at *host, struct err *e)
{
    struct json_at list;
    size_t n;
    int rc = get_list(host, "devices", OPGRAPH_MAX_DEVICES, &list, &n, e);
    if (rc < 0)
        return rc;
    if (n == 0)
        return json_fail(&list, e, "is empty: a host has at least one device");
    g->devices = arena_alloc(&g->arena, n, sizeof *g->devices);
    g->peer_bytes_per_s = arena_alloc(&g->arena, n * n, sizeof *g->peer_bytes_per_s);
    if (!g->devices || !g->peer_bytes_per_s)
        return json_no_memory(host, e);
    for (size_t i = 0; i < n; i++) {
        struct json_at item = json_item(&list, i);
        if ((rc = read_device(g, &item, &g->devices[i], e)) < 0)
            return rc;
        g->n_devices++;
    }
    return 0;
}

/* `n` numbers of at least 0 into out. */
static int read_numbers(const struct json_at *at, int n, const char *what, double *out,
                        struct err *e)
{
    size_t found;
    int rc = json_as_array(at, &found, e);
    if (rc < 0)
        return rc;
    if (found != (size_t)n)
        return json_fail(at, e, "has %zu values for %d %s", found, n, what);
    for (size_t i = 0; i < found; i++) {
        struct json_at item = json_item(at, i);
        if ((rc = json_as_number_min(&item, 0, &out[i], e)) < 0)
            return rc;
    }
    return 0;
}

static int read_peers(struct opgraph *g, const struct json_at *host, struct err *e)
{
    struct json_at table;
    size_t rows;
    int rc, n = g->n_devices;
    if (!json_find(host, "peer_bytes_per_s", &table))
        return 0; /* no paths */
    if ((rc = json_as_array(&table, &rows, e)) < 0)
        return rc;
    if (rows != (size_t)n)
        return json_fail(&table, e, "has %zu rows for %d devices", rows, n);
    for (size_t i = 0; i < rows; i++) {
        struct json_at row = json_item(&table, i);
        if ((rc = read_numbers(&row, n, "devices", &g->peer_bytes_per_s[i * (size_t)n], e)) < 0)
            return rc;
    }
    return 0;
}

static int read_host(struct opgraph *g, const struct json_at *at, struct err *e)
{
    struct json_at host;
    int rc;
    if ((rc = json_get(at, "host", &host, e)) < 0 || (rc = json_as_object(&host, e)) < 0 ||
        (rc = read_buses(g, &host, e)) < 0 || (rc = read_devices(g, &host, e)) < 0 ||
        (rc = read_peers(g, &host, e)) < 0)
        return rc;
    return json_opt_number_min(&host, "load_overhead_s", 0, 0, &g->load_overhead_s, e);
}

/* ---- nodes ---- */

static int read_times(struct opgraph *g, const struct json_at *at, const char *key, double *out,
                      struct err *e)
{
    struct json_at list;
    if (!json_find(at, key, &list))
        return json_fail(at, e,
                         "is an operator without \"%s\": give its time on each of the %d devices",
                         key, g->n_devices);
    return read_numbers(&list, g->n_devices, "devices", out, e);
}

/* An operator's times in place are needed only where it reads a parameter, which the edges say:
 * until then NULL stands for a missing key and -1 for missing bytes. */
static int read_op(struct opgraph *g, const struct json_at *at, struct opgraph_node *v,
                   struct err *e)
{
    struct json_at place;
    int rc;
    v->is_op = true;
    v->exec_s = arena_alloc(&g->arena, (size_t)g->n_devices, sizeof(double));
    if (!v->exec_s)
        return json_no_memory(at, e);
    if ((rc = read_times(g, at, "exec_s", v->exec_s, e)) < 0)
        return rc;
    if (json_find(at, "host_exec_s", &place)) {
        v->host_exec_s = arena_alloc(&g->arena, (size_t)g->n_devices, sizeof(double));
        if (!v->host_exec_s)
            return json_no_memory(at, e);
        if ((rc = read_times(g, at, "host_exec_s", v->host_exec_s, e)) < 0)
            return rc;
    }
    v->host_read_bytes = -1;
    if (json_find(at, "host_read_bytes", &place))
        rc = json_as_number_min(&place, 0, &v->host_read_bytes, e);
    return rc;
}

static int read_node(struct opgraph *g, const struct json_at *at, struct opgraph_node *v,
                     struct err *e)
{
    const char *name, *kind;
    struct json_at load;
    int rc;
    v->load_s = -1;
    if ((rc = json_as_object(at, e)) < 0 || (rc = json_opt_string(at, "name", "", &name, e)) < 0 ||
        (rc = json_get_string(at, "kind", &kind, e)) < 0 ||
        (rc = json_get_number_min(at, "bytes", 0, &v->bytes, e)) < 0)
        return rc;
    v->name = arena_strdup(&g->arena, name);
    if (!v->name)
        return json_no_memory(at, e);
    if (strcmp(kind, "op") == 0)
        return read_op(g, at, v, e);
    if (strcmp(kind, "param") != 0)
        return json_fail(at, e, "kind is \"%s\", expected \"param\" or \"op\"", kind);
    if (json_find(at, "load_s", &load))
        rc = json_as_number_min(&load, 0, &v->load_s, e);
    return rc;
}

static int read_nodes(struct opgraph *g, const struct json_at *at, struct err *e)
{
    struct json_at list;
    size_t n;
    int rc = get_list(at, "nodes", OPGRAPH_MAX_NODES, &list, &n, e);
    if (rc < 0)
        return rc;
    g->nodes = arena_alloc(&g->arena, n + 1, sizeof *g->nodes);
    if (!g->nodes)
        return json_no_memory(at, e);
    for (size_t i = 0; i < n; i++) {
        struct json_at item = json_item(&list, i);
        if ((rc = read_node(g, &item, &g->nodes[i], e)) < 0)
            return rc;
        g->n_ops += g->nodes[i].is_op;
        g->n_nodes++;
    }
    return g->n_ops > 0 ? 0 : json_fail(&list, e, "has no operator");
}

/* ---- edges ---- */

static int read_edge(const struct opgraph *g, const struct json_at *at, int edge[2], struct err *e)
{
    size_t n;
    int rc = json_as_array(at, &n, e);
    if (rc < 0)
        return rc;
    if (n != 2)
        return json_fail(at, e, "has %zu values; an edge is [from, to]", n);
    for (size_t i = 0; i < 2; i++) {
        struct json_at item = json_item(at, i);
        uint64_t v;
        if ((rc = json_as_u64(&item, &v, e)) < 0)
            return rc;
        if (v >= (uint64_t)g->n_nodes)
            return json_fail(&item, e, "%llu is no node: there are %d", (unsigned long long)v,
                             g->n_nodes);
        edge[i] = (int)v;
    }
    if (!g->nodes[edge[1]].is_op)
        return json_fail(at, e, "leads to the parameter \"%s\": only operators have inputs",
                         g->nodes[edge[1]].name);
    return 0;
}

static int compare_edges(const void *a, const void *b)
{
    const int *x = a, *y = b;
    if (x[0] != y[0])
        return x[0] < y[0] ? -1 : 1;
    return (x[1] > y[1]) - (x[1] < y[1]);
}

/* Lists by one end of the edges: entries of node v at [at[v], at[v + 1]). `edges` are sorted, so
 * every list is ascending. */
static int index_edges(struct opgraph *g, const int (*edges)[2], int n, int by, int **at_out,
                       int **list_out)
{
    int *at = arena_alloc(&g->arena, (size_t)g->n_nodes + 2, sizeof *at),
        *list = arena_alloc(&g->arena, (size_t)n + 1, sizeof *list);
    if (!at || !list)
        return HP_ENOMEM;
    for (int i = 0; i < n; i++)
        at[edges[i][by] + 2]++;
    for (int v = 0; v < g->n_nodes; v++)
        at[v + 2] += at[v + 1];
    for (int i = 0; i < n; i++)
        list[at[edges[i][by] + 1]++] = edges[i][1 - by];
    *at_out = at;
    *list_out = list;
    return 0;
}

static int read_edges(struct opgraph *g, const struct json_at *at, struct err *e)
{
    struct json_at list;
    size_t n;
    int rc = get_list(at, "edges", OPGRAPH_MAX_EDGES, &list, &n, e);
    if (rc < 0)
        return rc;
    int(*edges)[2] = calloc(n + 1, sizeof *edges), kept = 0;
    if (!edges)
        return json_no_memory(at, e);
    for (size_t i = 0; i < n && rc == 0; i++) {
        struct json_at item = json_item(&list, i);
        rc = read_edge(g, &item, edges[i], e);
    }
    if (rc == 0) {
        qsort(edges, n, sizeof *edges, compare_edges);
        for (size_t i = 0; i < n; i++)
            if (i == 0 || compare_edges(edges[i], edges[i - 1]) != 0)
                memmove(edges[kept++], edges[i], sizeof *edges);
        if (index_edges(g, (const int(*)[2])edges, kept, 1, &g->inputs_at, &g->inputs) < 0 ||
            index_edges(g, (const int(*)[2])edges, kept, 0, &g->readers_at, &g->readers) < 0)
            rc = json_no_memory(at, e);
    }
    free(edges);
    return rc;
}

int opgraph_read(struct opgraph *g, const struct json_at *at, struct err *e)
{
    struct json_at model;
    int rc = json_expect_format(at, "hp-graph/1", e);
    if (rc < 0)
        return rc;
    bool named = json_find(at, "model", &model) &&
                 json_is_string(model.value); /* not of the format: only shown */
    g->model = arena_strdup(&g->arena, named ? json_string_value(model.value) : "");
    if (!g->model)
        return json_no_memory(at, e);
    rc = read_host(g, at, e);
    if (rc == 0)
        rc = read_nodes(g, at, e);
    return rc == 0 ? read_edges(g, at, e) : rc;
}
