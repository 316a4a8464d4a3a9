#include "agent/graph_profiler.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/graph_profiler_int.h"

enum { NO_NODE = -1 };

/* ---- the graph ---- */

static void add_edge(struct graph_profiling *p, int from, int to)
{
    if (from != NO_NODE)
        json_array_append_new(p->edges, json_pack("[i,i]", from, to));
}

/* The node of a weight in one of its uses; made when it is met first. */
static int param_node(struct graph_profiling *p, const struct weight *w, bool rows, double load_s)
{
    for (int i = 0; i < p->n_placed; i++)
        if (p->placed[i].weight == w && p->placed[i].rows == rows)
            return p->placed[i].node;
    json_array_append_new(p->nodes,
                          json_pack("{s:s, s:s, s:f, s:f}", "name", w->name, "kind", "param",
                                    "bytes", (double)w->bytes, "load_s", load_s));
    p->placed[p->n_placed++] = (struct placed_param){w, rows, p->n_nodes};
    p->bytes += (double)w->bytes;
    p->load_s += load_s;
    return p->n_nodes++;
}

static void op_connect(struct graph_profiling *p, const struct graph_op *op, int self)
{
    for (int i = 0; i < op->n_inputs; i++) {
        bool again = false;
        for (int k = 0; k < i; k++)
            again = again || op->inputs[k] == op->inputs[i];
        if (!again)
            add_edge(p, p->writer[op->inputs[i]], self);
    }
    for (int i = 0; i < op->n_outputs; i++)
        p->writer[op->outputs[i]] = self;
}

static json_t *op_node(const struct graph_profiling *p, const struct graph_layer *layer,
                       const struct graph_op *op, const struct op_cost *c)
{
    char name[128];
    const char *weight = op->n_weights > 0 ? op->weights[0]->name : "";
    snprintf(name, sizeof name, "%.60s.%s%s%.40s", layer->name, op_kind_info(op->kind)->name,
             *weight ? " " : "", weight);
    json_t *node = json_pack("{s:s, s:s, s:f, s:[f]}", "name", name, "kind", "op", "bytes",
                             (double)graph_value_bytes(&p->graph->values[op->outputs[0]], p->sizes),
                             "exec_s", c->run_s);
    if (op->n_weights > 0) {
        json_object_set_new(node, "host_exec_s", json_pack("[f]", c->in_place_s));
        json_object_set_new(node, "host_read_bytes",
                            json_real((double)graph_op_weight_bytes(p->graph, op, p->sizes)));
    }
    return node;
}

static void add_op(struct graph_profiling *p, const struct graph_layer *layer,
                   const struct graph_op *op, const struct op_cost *c)
{
    int params[OP_WEIGHTS_MAX], n = 0;
    for (int i = 0; i < op->n_weights; i++)
        if (op->weights[i])
            params[n++] =
                param_node(p, op->weights[i], op_kind_info(op->kind)->weight_use[i] == WEIGHT_ROWS,
                           c->load_s[i]);
    int self = p->n_nodes++;
    json_array_append_new(p->nodes, op_node(p, layer, op, c));
    for (int i = 0; i < n; i++)
        add_edge(p, params[i], self);
    op_connect(p, op, self);
}

static int add_all(struct graph_profiling *p, struct err *e)
{
    for (int l = 0; l < p->graph->n_layers; l++)
        for (int i = 0; i < p->graph->layers[l].n_ops; i++) {
            const struct graph_op *op = &p->graph->ops[p->graph->layers[l].first_op + i];
            struct op_cost c = {0};
            int rc = graph_profiling_cost(p, op, &c, e);
            if (rc < 0)
                return err_at(e, "measuring %s of %s", op_kind_info(op->kind)->name,
                              p->graph->layers[l].name);
            add_op(p, &p->graph->layers[l], op, &c);
            if (p->c->progress)
                p->c->progress(p->c->progress_ctx, l, p->graph->n_layers);
        }
    return 0;
}

/* ---- around it ---- */

/* Numbers that are no zeros, which could be cheaper. */
static void fill_buffer(struct graph_profiling *p, int buffer)
{
    float row[1024];
    uint64_t n = p->section.buffer_bytes[buffer] / sizeof *row;
    for (int i = 0; i < 1024; i++)
        row[i] = (float)(i % 17) * 0.06f - 0.5f;
    for (uint64_t at = 0, some; at < n; at += some) {
        some = n - at < 1024 ? n - at : 1024;
        struct tensor to = tensor_rows(p->buffers[buffer], DTYPE_F32, 1, some),
                      from = tensor_on_host(row, DTYPE_F32, 1, some);
        to.offset = at * sizeof *row;
        p->b->copy(p->stream, &to, &from);
        p->b->stream_wait(p->stream, NULL);
    }
}

/* Token ids all over the vocabulary, positions that follow each other: u32 [rows]. */
static void fill_numbers(struct graph_profiling *p, int value, uint32_t step, uint32_t below)
{
    struct tensor to = graph_profiling_tensor(p, value);
    for (uint32_t t = 0; t < to.shape[0]; t++)
        p->numbers[t] = t * step % below;
    struct tensor from = tensor_on_host(p->numbers, DTYPE_U32, to.shape[0], 1);
    p->b->copy(p->stream, &to, &from);
    p->b->stream_wait(p->stream, NULL);
}

static int fill_values(struct graph_profiling *p, struct err *e)
{
    for (int i = 0; i < p->section.n_buffers; i++)
        fill_buffer(p, i);
    for (int i = 0; i < p->section.n_inputs; i++)
        fill_numbers(p, p->section.inputs[i], 977, (uint32_t)model_config(p->model)->vocabulary);
    for (int i = 0; i < p->section.n_given; i++)
        fill_numbers(p, p->section.given[i], 1, p->c->tokens);
    return p->b->stream_wait(p->stream, e);
}

static int alloc_pool(struct graph_profiling *p, struct err *e)
{
    uint32_t n_pages = (p->c->tokens + KV_PAGE_TOKENS - 1) / KV_PAGE_TOKENS;
    uint64_t page_bytes = 0;
    for (uint32_t i = 0; i < n_pages; i++)
        p->pages[i] = i;
    for (int i = 0; i < p->graph->n_ops; i++) {
        if (p->graph->ops[i].kind != OP_ATTENTION)
            continue;
        struct kv_layout l = graph_profiling_layout(p, &p->graph->ops[i]);
        uint64_t bytes = p->b->kv_page_bytes(p->c->device, &l);
        page_bytes = bytes > page_bytes ? bytes : page_bytes;
    }
    return p->b->memory_alloc(p->c->device, n_pages * page_bytes, &p->kv.pool, e);
}

static int alloc_values(struct graph_profiling *p, struct err *e)
{
    p->sizes[GRAPH_TOKENS] = p->c->tokens;
    p->sizes[GRAPH_WANTED] = 1;
    int rc = graph_section_make(p->graph, 0, p->graph->n_layers, p->sizes, &p->section, e);
    if (rc < 0)
        return rc;
    p->buffers = calloc((size_t)p->section.n_buffers, sizeof *p->buffers);
    if (!p->buffers)
        return err_set(e, HP_ENOMEM, "no memory for %d values", p->section.n_buffers);
    for (int i = 0; i < p->section.n_buffers && rc == 0; i++)
        rc = p->b->memory_alloc(p->c->device, p->section.buffer_bytes[i], &p->buffers[i], e);
    rc = rc < 0 ? rc : alloc_pool(p, e);
    rc = rc < 0 ? rc : fill_values(p, e);
    for (int i = 0; i < p->graph->n_prelude_ops && rc == 0; i++)
        rc = graph_profiling_run(p, &p->graph->ops[i], e);
    return rc;
}

static int open_all(struct graph_profiling *p, struct err *e)
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
    p->numbers = calloc(p->c->tokens, sizeof *p->numbers);
    p->nodes = json_array();
    p->edges = json_array();
    p->writer = calloc((size_t)p->graph->n_values, sizeof *p->writer);
    for (int v = 0; p->writer && v < p->graph->n_values; v++)
        p->writer[v] = NO_NODE;
    if (!p->costs || !p->placed || !p->writer || !p->pages || !p->numbers || !p->nodes || !p->edges)
        return err_set(e, HP_ENOMEM, "no memory for a graph of %d operators", p->graph->n_ops);
    rc = p->b->stream_create(p->c->device, &p->stream, e);
    return rc < 0 ? rc : alloc_values(p, e);
}

static void close_all(struct graph_profiling *p)
{
    for (int i = 0; p->buffers && i < p->section.n_buffers; i++)
        p->b->memory_release(p->c->device, &p->buffers[i]);
    p->b->memory_release(p->c->device, &p->kv.pool);
    if (p->stream)
        p->b->stream_destroy(&p->stream);
    graph_section_free(&p->section);
    free(p->buffers);
    free(p->writer);
    free(p->costs);
    free(p->placed);
    free(p->pages);
    free(p->numbers);
    json_decref(p->nodes);
    json_decref(p->edges);
    model_close(&p->model);
}

/* What the file calls itself, or what it is called. */
static const char *model_name(const struct graph_profiling *p)
{
    const char *name = model_config(p->model)->name, *slash = strrchr(p->c->path, '/');
    return name && name[0] ? name : slash && slash[1] ? slash + 1 : p->c->path;
}

int graph_profiler_measure(const struct graph_profiler_config *c, json_t **graph, struct err *e)
{
    struct graph_profiling p = {.c = c, .b = c->device->backend};
    int rc = open_all(&p, e);
    if (rc == 0) {
        graph_profiling_share_time(&p);
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
