#include "agent/graph_profiler.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/backend/backend.h"
#include "common/env.h"
#include "model/model.h"

enum { MAX_SAMPLES = 15, MIN_SAMPLES = 3, MAX_PARAMS_OF_OP = 2, NO_NODE = -1 };

/* What one operator of a kind and shape takes. */
struct cost {
    enum op_kind kind;
    uint64_t rows, columns;
    int dtype;
    uint32_t tokens;
    double run_s, load_s, in_place_s;
    double read_bytes;
};

struct profiling {
    const struct graph_profiler_config *c;
    const struct backend *b;
    struct model *model;
    const struct graph *graph;
    struct stream *stream;
    struct tensor values[V_COUNT], angles, pool;
    struct kv_layout kv;
    uint32_t *pages, *positions;
    struct cost *costs;
    int n_costs;
    uint64_t sample_ns; /* time for one measurement */
    /* The graph in the making. */
    json_t *nodes, *edges;
    int n_nodes;
    int last_writer[V_COUNT]; /* the operator's node that wrote a value; NO_NODE: none */
    struct placed {
        const struct weight *weight;
        bool rows; /* as a table of rows: kept apart from the same weight as a matrix */
        int node;
    } * placed;
    int n_placed;
    double bytes, load_s; /* of all parameters */
};

static double seconds_since(uint64_t from_ns)
{
    return (double)(env_now_ns(&env_real) - from_ns) * 1e-9;
}

/* ---- measuring
 * -------------------------------------------------------------------------------------------------
 */

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

typedef int (*work_fn)(struct profiling *p, const struct graph_op *op,
                       struct device_weight *const weights[MAX_PARAMS_OF_OP], uint32_t tokens,
                       struct err *e);

/* The median of a few runs after a first one that warms up. */
static int measure(struct profiling *p, work_fn work, const struct graph_op *op,
                   struct device_weight *const weights[MAX_PARAMS_OF_OP], uint32_t tokens,
                   double *seconds, struct err *e)
{
    double samples[MAX_SAMPLES];
    int n = 0, rc = work(p, op, weights, tokens, e);
    uint64_t until = env_now_ns(&env_real) + p->sample_ns;
    while (rc == 0 && n < MAX_SAMPLES && (n < MIN_SAMPLES || env_now_ns(&env_real) < until)) {
        uint64_t from = env_now_ns(&env_real);
        rc = work(p, op, weights, tokens, e);
        samples[n++] = seconds_since(from);
    }
    if (rc == 0) {
        qsort(samples, (size_t)n, sizeof *samples, compare_doubles);
        *seconds = samples[n / 2];
    }
    return rc;
}

static int run_op(struct profiling *p, const struct graph_op *op,
                  struct device_weight *const weights[MAX_PARAMS_OF_OP], uint32_t tokens,
                  struct err *e)
{
    const struct backend *b = p->b;
    const struct model_config *m = model_config(p->model);
    const int *width = p->graph->value_width;
    struct tensor in = p->values[op->in], out = p->values[op->out];
    struct attention_run run = {0, tokens, 0, p->pages};
    switch (op->kind) {
    case OP_EMBED: b->embed(p->stream, weights[0], in, tokens, out); break;
    case OP_RMS_NORM: b->rms_norm(p->stream, in, weights[0], m->norm_epsilon, tokens, out); break;
    case OP_MATMUL:
        b->matmul(p->stream, in, weights[0], weights[1], tokens, op->accumulate, out);
        break;
    case OP_ROPE:
        b->rope(p->stream, &m->rope, p->angles, tokens, width[op->out] / m->head_dim, m->head_dim,
                out);
        break;
    case OP_ATTENTION:
        b->kv_append(p->stream, &p->kv, p->pool, 0, &run, 1, p->values[V_K], p->values[V_V]);
        b->attention(p->stream, &p->kv, p->pool, 0, &run, 1, width[op->out] / m->head_dim, in, out);
        break;
    case OP_SILU_MUL:
        b->silu_mul(p->stream, in, p->values[op->in2], (uint64_t)tokens * (uint64_t)width[op->out],
                    out);
        break;
    case OP_KIND_COUNT: break; /* not an operator */
    }
    return b->stream_wait(p->stream, e);
}

/* The rows of a few ids straight from the file's mapping. */
static int embed_in_place(struct profiling *p, const struct graph_op *op,
                          struct device_weight *const weights[MAX_PARAMS_OF_OP], uint32_t tokens,
                          struct err *e)
{
    (void)weights;
    const struct weight *w = op->weight;
    const struct dtype_info *type = dtype_info(w->dtype);
    size_t width = (size_t)w->shape[1],
           row_bytes = width / type->block_elements * type->block_bytes;
    float *rows = malloc(width * tokens * sizeof *rows);
    if (!rows)
        return err_set(e, HP_ENOMEM, "no memory for the embedding of %u tokens", tokens);
    for (uint32_t t = 0; t < tokens; t++)
        type->to_f32(w->data + (size_t)(t * 977 % w->shape[0]) * row_bytes, width,
                     rows + t * width);
    p->b->tensor_write(p->stream, p->values[op->out], 0, rows, width * tokens * sizeof *rows);
    int rc = p->b->stream_wait(p->stream, e);
    free(rows);
    return rc;
}

static enum weight_use use_of(const struct graph_op *op)
{
    return op->kind == OP_MATMUL  ? WEIGHT_MATMUL
           : op->kind == OP_EMBED ? WEIGHT_ROWS
                                  : WEIGHT_VECTOR;
}

static int load(struct profiling *p, const struct weight *w, enum weight_use use,
                struct device_weight **out, double *seconds, struct err *e)
{
    uint64_t from = env_now_ns(&env_real);
    int rc = p->b->weight_load(p->c->device, w, use, p->c->f32, out, e);
    *seconds = seconds_since(from);
    return rc;
}

/* Loads the weight twice: the first time brings the file's pages in, the second is host memory to
 * device. */
static int load_warm(struct profiling *p, const struct weight *w, enum weight_use use,
                     struct device_weight **out, double *seconds, struct err *e)
{
    int rc = load(p, w, use, out, seconds, e);
    if (rc < 0)
        return rc;
    p->b->weight_free(p->c->device, out);
    return load(p, w, use, out, seconds, e);
}

static int measure_weighted(struct profiling *p, const struct graph_op *op, struct cost *c,
                            struct err *e)
{
    struct device_weight *weights[MAX_PARAMS_OF_OP] = {0};
    double bias_s = 0;
    int rc = load_warm(p, op->weight, use_of(op), &weights[0], &c->load_s, e);
    if (rc == 0 && op->bias)
        rc = load_warm(p, op->bias, WEIGHT_VECTOR, &weights[1], &bias_s, e);
    if (rc == 0)
        rc = measure(p, run_op, op, weights, c->tokens, &c->run_s, e);
    c->in_place_s = c->load_s + bias_s + c->run_s;
    c->read_bytes = (double)op->weight->bytes + (op->bias ? (double)op->bias->bytes : 0);
    if (rc == 0 && op->kind == OP_EMBED &&
        (rc = measure(p, embed_in_place, op, weights, c->tokens, &c->in_place_s, e)) == 0)
        c->read_bytes = (double)op->weight->bytes / (double)op->weight->shape[0] * c->tokens;
    for (int i = 0; i < MAX_PARAMS_OF_OP; i++)
        if (weights[i])
            p->b->weight_free(p->c->device, &weights[i]);
    return rc;
}

static bool same_cost(const struct cost *a, const struct cost *b)
{
    return a->kind == b->kind && a->rows == b->rows && a->columns == b->columns &&
           a->dtype == b->dtype && a->tokens == b->tokens;
}

static struct cost shape_of(const struct profiling *p, const struct graph_op *op)
{
    struct cost c = {
        .kind = op->kind, .dtype = -1, .tokens = op->out == V_LOGITS ? 1 : p->c->tokens};
    c.columns = (uint64_t)p->graph->value_width[op->out];
    if (op->weight) {
        c.rows = op->weight->shape[0];
        c.columns = op->weight->n_dims > 1 ? op->weight->shape[1] : 1;
        c.dtype = (int)op->weight->dtype * 2 + (op->bias != NULL);
    }
    return c;
}

static int cost_of(struct profiling *p, const struct graph_op *op, struct cost *out, struct err *e)
{
    struct cost c = shape_of(p, op);
    struct device_weight *none[MAX_PARAMS_OF_OP] = {0};
    for (int i = 0; i < p->n_costs; i++)
        if (same_cost(&p->costs[i], &c)) {
            *out = p->costs[i];
            return 0;
        }
    int rc = op->weight ? measure_weighted(p, op, &c, e)
                        : measure(p, run_op, op, none, c.tokens, &c.run_s, e);
    if (rc == 0)
        *out = p->costs[p->n_costs++] = c;
    return rc;
}

/* How many different measurements there are: a share of the time for each. */
static void share_time(struct profiling *p)
{
    int n = 0;
    for (int i = 0; i < p->graph->n_ops; i++) {
        struct cost c = shape_of(p, &p->graph->ops[i]);
        int k = 0;
        while (k < n && !same_cost(&p->costs[k], &c))
            k++;
        if (k == n)
            p->costs[n++] = c;
    }
    memset(p->costs, 0, (size_t)n * sizeof *p->costs);
    p->sample_ns = (p->c->budget_ms ? p->c->budget_ms : 3000) * 1000000 / (uint64_t)(n > 0 ? n : 1);
}

/* ---- the graph
 * ----------------------------------------------------------------------------------------------------
 */

static void add_edge(struct profiling *p, int from, int to)
{
    if (from != NO_NODE)
        json_array_append_new(p->edges, json_pack("[i,i]", from, to));
}

/* The node of a weight in one of its uses; made when it is met first. */
static int param_node(struct profiling *p, const struct weight *w, bool rows, double load_s)
{
    for (int i = 0; i < p->n_placed; i++)
        if (p->placed[i].weight == w && p->placed[i].rows == rows)
            return p->placed[i].node;
    json_array_append_new(p->nodes,
                          json_pack("{s:s, s:s, s:f, s:f}", "name", w->name, "kind", "param",
                                    "bytes", (double)w->bytes, "load_s", load_s));
    p->placed[p->n_placed++] = (struct placed){w, rows, p->n_nodes};
    p->bytes += (double)w->bytes;
    p->load_s += load_s;
    return p->n_nodes++;
}

static const char *kind_word(enum op_kind kind)
{
    static const char *const words[OP_KIND_COUNT] = {"embed", "norm",      "matmul",
                                                     "rope",  "attention", "silu_mul"};
    return words[kind];
}

static void connect(struct profiling *p, const struct graph_op *op, int self)
{
    add_edge(p, p->last_writer[op->in], self);
    if (op->kind == OP_SILU_MUL && op->in2 != op->in)
        add_edge(p, p->last_writer[op->in2], self);
    if (op->kind == OP_ATTENTION) {
        add_edge(p, p->last_writer[V_K], self);
        add_edge(p, p->last_writer[V_V], self);
    }
    if (op->accumulate && op->out != op->in)
        add_edge(p, p->last_writer[op->out], self);
    p->last_writer[op->out] = self;
}

static void add_op(struct profiling *p, const struct graph_layer *layer, const struct graph_op *op,
                   const struct cost *c)
{
    int params[MAX_PARAMS_OF_OP], n = 0;
    char name[128];
    if (op->weight)
        params[n++] = param_node(p, op->weight, op->kind == OP_EMBED, c->load_s);
    if (op->bias)
        params[n++] = param_node(p, op->bias, false, c->in_place_s - c->load_s - c->run_s);
    int self = p->n_nodes++;
    snprintf(name, sizeof name, "%.60s.%s%s%.40s", layer->name, kind_word(op->kind),
             op->weight ? " " : "", op->weight ? op->weight->name : "");
    json_t *node =
        json_pack("{s:s, s:s, s:f, s:[f]}", "name", name, "kind", "op", "bytes",
                  (double)c->tokens * p->graph->value_width[op->out] * (double)sizeof(float),
                  "exec_s", c->run_s);
    if (n > 0) {
        json_object_set_new(node, "host_exec_s", json_pack("[f]", c->in_place_s));
        json_object_set_new(node, "host_read_bytes", json_real(c->read_bytes));
    }
    json_array_append_new(p->nodes, node);
    for (int i = 0; i < n; i++)
        add_edge(p, params[i], self);
    connect(p, op, self);
}

static int add_all(struct profiling *p, struct err *e)
{
    for (int l = 0; l < p->graph->n_layers; l++)
        for (int i = 0; i < p->graph->layers[l].n_ops; i++) {
            const struct graph_op *op = &p->graph->ops[p->graph->layers[l].first_op + i];
            struct cost c = {0};
            int rc = cost_of(p, op, &c, e);
            if (rc < 0)
                return err_at(e, "measuring %s of %s", kind_word(op->kind),
                              p->graph->layers[l].name);
            add_op(p, &p->graph->layers[l], op, &c);
            if (p->c->progress)
                p->c->progress(p->c->progress_ctx, l, p->graph->n_layers);
        }
    return 0;
}

/* ---- around it
 * ------------------------------------------------------------------------------------------------------
 */

/* Token ids all over the vocabulary, and numbers that are no zeros, which could be cheaper. */
static int fill_values(struct profiling *p, struct err *e)
{
    int widest = 1;
    for (int v = 0; v < V_COUNT; v++)
        widest = p->graph->value_width[v] > widest ? p->graph->value_width[v] : widest;
    float *row = malloc((size_t)widest * sizeof *row);
    if (!row)
        return err_set(e, HP_ENOMEM, "no memory for a row of %d numbers", widest);
    for (int i = 0; i < widest; i++)
        row[i] = (float)(i % 17) * 0.06f - 0.5f;
    for (uint32_t t = 0; t < p->c->tokens; t++) {
        uint32_t id = t * 977 % (uint32_t)model_config(p->model)->vocabulary;
        p->b->tensor_write(p->stream, p->values[V_IDS], t * sizeof id, &id, sizeof id);
        for (int v = V_IDS + 1; v < V_LOGITS; v++) {
            uint64_t bytes = (uint64_t)p->graph->value_width[v] * sizeof(float);
            p->b->tensor_write(p->stream, p->values[v], t * bytes, row, bytes);
        }
    }
    int rc = p->b->stream_wait(p->stream, e);
    free(row);
    return rc;
}

static int alloc_values(struct profiling *p, struct err *e)
{
    const struct model_config *m = model_config(p->model);
    uint32_t tokens = p->c->tokens, n_pages = (tokens + KV_PAGE_TOKENS - 1) / KV_PAGE_TOKENS;
    int rc = 0;
    for (int v = 0; v < V_COUNT && rc == 0; v++) {
        uint64_t rows = v == V_LOGITS ? 1 : tokens;
        rc = p->b->tensor_alloc(p->c->device,
                                rows * (uint64_t)p->graph->value_width[v] * sizeof(float),
                                &p->values[v], e);
    }
    p->kv = (struct kv_layout){1, m->n_kv_heads, m->head_dim, p->c->f32};
    if (rc == 0 && m->rope.dims > 0)
        rc = p->b->tensor_alloc(
            p->c->device, (uint64_t)tokens * (uint64_t)m->rope.dims * sizeof(float), &p->angles, e);
    if (rc == 0)
        rc = p->b->tensor_alloc(p->c->device, n_pages * p->b->kv_page_bytes(p->c->device, &p->kv),
                                &p->pool, e);
    for (uint32_t i = 0; i < n_pages; i++)
        p->pages[i] = i;
    for (uint32_t t = 0; t < tokens; t++)
        p->positions[t] = t;
    if (rc == 0 && m->rope.dims > 0)
        p->b->rope_angles(p->stream, &m->rope, p->positions, tokens, p->angles);
    return rc == 0 ? fill_values(p, e) : rc;
}

static int open_all(struct profiling *p, struct err *e)
{
    int rc = model_open(p->c->path, &p->model, e);
    if (rc < 0)
        return rc;
    p->graph = model_graph(p->model);
    if (p->c->tokens < 1 || p->c->tokens > (uint32_t)model_config(p->model)->context)
        return err_set(e, HP_EINVAL, "%u tokens: the model takes 1 to %d", p->c->tokens,
                       model_config(p->model)->context);
    size_t ops = (size_t)p->graph->n_ops + 1;
    p->costs = calloc(ops, sizeof *p->costs);
    p->placed = calloc(2 * ops, sizeof *p->placed);
    p->pages = calloc(p->c->tokens, sizeof *p->pages);
    p->positions = calloc(p->c->tokens, sizeof *p->positions);
    p->nodes = json_array();
    p->edges = json_array();
    for (int v = 0; v < V_COUNT; v++)
        p->last_writer[v] = NO_NODE;
    if (!p->costs || !p->placed || !p->pages || !p->positions || !p->nodes || !p->edges)
        return err_set(e, HP_ENOMEM, "no memory for a graph of %d operators", p->graph->n_ops);
    rc = p->b->stream_create(p->c->device, &p->stream, e);
    return rc < 0 ? rc : alloc_values(p, e);
}

static void close_all(struct profiling *p)
{
    for (int v = 0; v < V_COUNT; v++)
        p->b->tensor_free(p->c->device, &p->values[v]);
    p->b->tensor_free(p->c->device, &p->angles);
    p->b->tensor_free(p->c->device, &p->pool);
    if (p->stream)
        p->b->stream_destroy(&p->stream);
    free(p->costs);
    free(p->placed);
    free(p->pages);
    free(p->positions);
    json_decref(p->nodes);
    json_decref(p->edges);
    model_close(&p->model);
}

/* What the file calls itself, or what it is called. */
static const char *model_name(const struct profiling *p)
{
    const char *name = model_config(p->model)->name, *slash = strrchr(p->c->path, '/');
    return name && name[0] ? name : slash && slash[1] ? slash + 1 : p->c->path;
}

int graph_profiler_measure(const struct graph_profiler_config *c, json_t **graph, struct err *e)
{
    struct profiling p = {.c = c, .b = c->device->backend};
    int rc = open_all(&p, e);
    if (rc == 0) {
        share_time(&p);
        rc = add_all(&p, e);
    }
    if (rc == 0) {
        double speed = p.load_s > 0 ? p.bytes / p.load_s : 1e9;
        *graph = json_pack(
            "{s:s, s:s, s:{s:s, s:i}, s:{s:[{s:f}], s:[{s:s, s:f, s:i}], s:[[i]], s:i}, s:O, s:O}",
            "format", "hp-graph/1", "model", model_name(&p), "source", "device",
            p.b->device_describe(c->device), "tokens", (int)c->tokens, "host", "buses",
            "bandwidth_bytes_per_s", speed, "devices", "name", c->device_name, "memory_bytes",
            (double)c->memory_bytes, "bus", 0, "peer_bytes_per_s", 0, "load_overhead_s", 0, "nodes",
            p.nodes, "edges", p.edges);
        if (!*graph)
            rc = err_set(e, HP_ENOMEM, "no memory for the graph");
    }
    close_all(&p);
    return rc;
}
