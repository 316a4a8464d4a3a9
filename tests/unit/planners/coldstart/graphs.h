/* Graphs for the tests of cold starts: from text, from a file, and random ones. */
#ifndef HP_TESTS_COLDSTART_GRAPHS_H
#define HP_TESTS_COLDSTART_GRAPHS_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/bytes.h"
#include "common/env.h"
#include "common/opgraph.h"
#include "tests/test.h"

static inline void graph_from_text(const char *text, struct opgraph *g)
{
    json_t *root;
    struct json_at at;
    struct err e = {0};
    if (json_parse_at("g.json", text, strlen(text), &root, &at, &e) < 0)
        fail_msg("%s", e.text);
    int rc = opgraph_from_json(&at, g, &e);
    json_decref(root);
    if (rc < 0)
        fail_msg("%s", e.text);
}

/* A file of the shared data; skips the test where there is none. */
static inline const char *shared_file(const char *name)
{
    static char path[4096];
    const char *shared = getenv("HP_SHARED");
    snprintf(path, sizeof path, "%s/data/coldstart/%s", shared ? shared : "../shared", name);
    FILE *f = fopen(path, "r");
    if (!f) {
        print_message("%s is not there\n", path);
        skip();
    }
    fclose(f);
    return path;
}

struct random_graph {
    uint64_t state;
    struct buffer nodes, edges;
    int n_nodes, n_devices;
    int stem; /* the operator that the next one reads */
};

static inline int random_below(struct random_graph *r, int n)
{
    return (int)(random_unit(&r->state) * n);
}

static inline int random_add_param(struct random_graph *r)
{
    buffer_printf(&r->nodes, "%s{\"name\": \"w\", \"kind\": \"param\", \"bytes\": %d}",
                  r->n_nodes ? "," : "", 1000 * (1 + random_below(r, 30000)));
    return r->n_nodes++;
}

static inline void random_add_times(struct random_graph *r, const char *key, double seconds)
{
    buffer_printf(&r->nodes, ", \"%s\": [", key);
    for (int d = 0; d < r->n_devices; d++)
        buffer_printf(&r->nodes, "%s%.9g", d ? "," : "", seconds * (1 + 0.25 * (d % 3)));
    buffer_printf(&r->nodes, "]");
}

static inline int random_add_op(struct random_graph *r, const int *inputs, int n_inputs)
{
    int params[2], n_params = random_below(r, 3);
    for (int i = 0; i < n_params; i++)
        params[i] = random_add_param(r);
    double exec = random_below(r, 5) == 0 ? 0 : 1e-4 * random_below(r, 30);
    int self = r->n_nodes++;
    buffer_printf(&r->nodes,
                  "%s{\"name\": \"o%d\", \"kind\": \"op\", \"bytes\": %d, \"host_read_bytes\": %d",
                  self ? "," : "", self, 1000 * random_below(r, 5000),
                  n_params ? 1000 * random_below(r, 20000) : 0);
    random_add_times(r, "exec_s", exec);
    random_add_times(r, "host_exec_s", exec + (n_params ? 1e-4 * random_below(r, 40) : 0));
    buffer_printf(&r->nodes, "}");
    for (int i = 0; i < n_params; i++)
        buffer_printf(&r->edges, "%s[%d, %d]", r->edges.size ? "," : "", params[i], self);
    for (int i = 0; i < n_inputs; i++)
        buffer_printf(&r->edges, "%s[%d, %d]", r->edges.size ? "," : "", inputs[i], self);
    return self;
}

/* A series of stretches, each one operator or a few side by side between two; on devices that share
 * buses in turn. */
static inline void graph_random(uint64_t seed, int n_devices, int n_buses, struct opgraph *g)
{
    struct random_graph r = {.state = seed, .n_devices = n_devices};
    struct buffer text = {0};
    r.stem = random_add_op(&r, NULL, 0);
    for (int stretch = 0; stretch < 3; stretch++) {
        int side[3], n = 1 + random_below(&r, 3);
        for (int i = 0; i < n; i++)
            side[i] = random_add_op(&r, &r.stem, 1);
        r.stem = random_add_op(&r, side, n);
    }
    buffer_printf(
        &text, "{\"format\": \"hp-graph/1\", \"host\": {\"load_overhead_s\": 1e-5, \"buses\": [");
    for (int b = 0; b < n_buses; b++)
        buffer_printf(&text, "%s{\"bandwidth_bytes_per_s\": %d}", b ? "," : "",
                      b % 2 ? 1000000000 : 2000000000);
    buffer_printf(&text, "], \"devices\": [");
    for (int d = 0; d < n_devices; d++)
        buffer_printf(&text, "%s{\"name\": \"g%d\", \"memory_bytes\": 1e12, \"bus\": %d}",
                      d ? "," : "", d, d % n_buses);
    buffer_printf(&text, "], \"peer_bytes_per_s\": [");
    for (int a = 0; a < n_devices; a++)
        for (int b = 0; b < n_devices; b++)
            buffer_printf(&text, "%s%d%s",
                          b   ? ","
                          : a ? ",["
                              : "[",
                          a == b                                    ? 0
                          : 3000000000u % (unsigned)(a + b + 7) > 3 ? 1500000000
                                                                    : 900000000,
                          b == n_devices - 1 ? "]" : "");
    buffer_printf(&text, "]}, \"nodes\": [%s], \"edges\": [%s]}", buffer_cstr(&r.nodes),
                  buffer_cstr(&r.edges));
    graph_from_text(buffer_cstr(&text), g);
    buffer_free(&text);
    buffer_free(&r.nodes);
    buffer_free(&r.edges);
}

#endif
