#include "agent/profiler.h"

#include "agent/backend/backend.h"
#include "agent/engine/stage.h"
#include "common/digest.h"
#include "common/env.h"
#include "common/json.h"
#include "common/log.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_CLASSES = 16, MAX_POINTS = 4, MAX_SAMPLES = 9, PROFILE_VERSION = 2 };

/* Where each class of layer is looked at: products grow with the slice alone, attention with the prefix too. */
struct grid {
    uint32_t slices[MAX_POINTS], prefixes[MAX_POINTS];
    int n_slices, n_prefixes;
};
static const struct grid grid_attention = {{1, 16, 64, 256}, {0, 512, 1536}, 4, 3};
static const struct grid grid_products = {{1, 16, 64, 256}, {0}, 4, 1};
static const struct grid grid_ends = {{1, 256}, {0}, 2, 1};

struct measure {
    const struct profiler_config *config;
    struct model *model;
    const struct graph *graph;
    uint64_t point_ns; /* time for one point */
    int layer;
    struct stage *stage;
    void *input;
    float *output;
    uint8_t *prefix; /* zeros: a KV block of the longest prefix */
    uint8_t *cold;   /* cold_bytes that push the layer's weights out of the caches; NULL for a model that stays in them */
    size_t cold_bytes;
    json_t *tables;
};

static uint64_t now_ns(void) { return env_now_ns(&env_real); }

static bool layer_has(const struct graph *g, int layer, enum op_kind kind)
{
    for (int i = 0; i < g->layers[layer].n_ops; i++)
        if (g->ops[g->layers[layer].first_op + i].kind == kind)
            return true;
    return false;
}

/* The grid of a layer, cut at the model's context. */
static struct grid grid_of(const struct measure *m)
{
    const struct graph *g = m->graph;
    struct grid grid = layer_has(g, m->layer, OP_ATTENTION)          ? grid_attention
                       : m->layer == 0 || m->layer == g->n_layers - 1 ? grid_ends
                                                                      : grid_products;
    uint32_t context = (uint32_t)model_config(m->model)->context;
    while (grid.n_slices > 1 && grid.slices[grid.n_slices - 1] > context)
        grid.n_slices--;
    while (grid.n_prefixes > 1 && grid.prefixes[grid.n_prefixes - 1] + grid.slices[grid.n_slices - 1] > context)
        grid.n_prefixes--;
    return grid;
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* A stage comes back to a layer after it has been through all its others, and then finds that layer's weights in memory, not in a cache, unless
 * the whole model fits into one. */
static void caches_leave(struct measure *m)
{
    for (size_t i = 0; m->cold && i < m->cold_bytes; i += 64)
        ((volatile uint8_t *)m->cold)[i]++;
}

static int cold_create(struct measure *m, struct err *e)
{
    long cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
    uint64_t weights = 0;
    for (int i = 0; i < m->graph->n_layers; i++)
        weights += m->graph->layers[i].param_bytes;
    if (cache <= 0 || cache > 1 << 29 || weights < (uint64_t)cache / 2)
        return 0;
    m->cold_bytes = (size_t)cache + (size_t)cache / 4;
    m->cold = calloc(m->cold_bytes, 1);
    return m->cold ? 0 : err_set(e, HP_ENOMEM, "no memory to measure a layer");
}

static int run_once(struct measure *m, uint32_t slice, uint32_t prefix, double *seconds, struct err *e)
{
    struct stage_run run = {1, prefix, slice, stage_is_last(m->stage)};
    int rc = stage_sequence_open(m->stage, 1, prefix + slice, e);
    if (rc < 0)
        return rc;
    if (prefix)
        rc = stage_kv_import(m->stage, 1, 0, prefix, m->prefix, e);
    caches_leave(m);
    uint64_t from = now_ns();
    if (rc == 0)
        rc = stage_run(m->stage, &run, 1, m->input, m->output, e);
    *seconds = (double)(now_ns() - from) * 1e-9;
    stage_sequence_close(m->stage, 1);
    return rc;
}

static int point_measure(struct measure *m, uint32_t slice, uint32_t prefix, double *seconds, struct err *e)
{
    double samples[MAX_SAMPLES], warm;
    int n = 0, rc = run_once(m, slice, prefix, &warm, e);
    uint64_t until = now_ns() + m->point_ns;
    while (rc == 0 && n < MAX_SAMPLES && (n == 0 || now_ns() < until)) {
        rc = run_once(m, slice, prefix, &samples[n++], e);
        if (rc == 0 && m->config->stop && atomic_load(m->config->stop))
            rc = err_set(e, HP_ECANCELED, "the measurement was stopped");
    }
    if (rc < 0)
        return rc;
    qsort(samples, (size_t)n, sizeof *samples, compare_doubles);
    *seconds = samples[n / 2];
    return 0;
}

static int grid_measure(struct measure *m, const struct grid *grid, json_t *table, struct err *e)
{
    json_t *slices = json_array(), *prefixes = json_array(), *seconds = json_array();
    int rc = 0;
    for (int j = 0; j < grid->n_prefixes; j++)
        json_array_append_new(prefixes, json_integer(grid->prefixes[j]));
    for (int i = 0; rc == 0 && i < grid->n_slices; i++) {
        json_t *row = json_array();
        json_array_append_new(slices, json_integer(grid->slices[i]));
        for (int j = 0; rc == 0 && j < grid->n_prefixes; j++) {
            double s;
            rc = point_measure(m, grid->slices[i], grid->prefixes[j], &s, e);
            if (rc == 0)
                json_array_append_new(row, json_real(s));
        }
        json_array_append_new(seconds, row);
    }
    json_object_set_new(table, "slice", slices);
    json_object_set_new(table, "prefix", prefixes);
    json_object_set_new(table, "seconds", seconds);
    return rc;
}

static struct stage_config stage_config_of(const struct measure *m, int layer, uint32_t max_slice, uint32_t max_prefix)
{
    return (struct stage_config){.model = m->model,
                                 .first_layer = layer,
                                 .end_layer = layer + 1,
                                 .device = m->config->device,
                                 .compute = m->config->f32 ? COMPUTE_F32 : COMPUTE_AUTO,
                                 .kv_tokens = max_slice + max_prefix,
                                 .max_sequences = 1,
                                 .max_batch_tokens = max_slice};
}

static int class_measure(struct measure *m, struct err *e)
{
    struct grid grid = grid_of(m);
    uint32_t slice = grid.slices[grid.n_slices - 1], prefix = grid.prefixes[grid.n_prefixes - 1];
    struct stage_config c = stage_config_of(m, m->layer, slice, prefix);
    const struct model_config *mc = model_config(m->model);
    int rc = stage_load(&c, &m->stage, e);
    if (rc < 0)
        return rc;
    size_t width = (size_t)mc->width, rows = (size_t)slice * width;
    m->input = calloc(rows, sizeof(float)); /* also ids: token 0 */
    m->output = calloc(stage_is_last(m->stage) && (size_t)mc->vocabulary > rows ? (size_t)mc->vocabulary : rows, sizeof(float));
    m->prefix = calloc(stage_kv_bytes(m->stage, prefix) + 1, 1);
    json_t *table = json_object();
    if (!m->input || !m->output || !m->prefix)
        rc = err_set(e, HP_ENOMEM, "no memory to measure a layer");
    /* Zeros could be cheaper than numbers. */
    for (size_t i = 0; rc == 0 && m->layer && i < rows; i++)
        ((float *)m->input)[i] = (float)(i % 17) * 0.06f - 0.5f;
    rc = rc < 0 ? rc : grid_measure(m, &grid, table, e);
    json_object_set_new(m->tables, m->graph->layers[m->layer].class_name, table);
    free(m->input);
    free(m->output);
    free(m->prefix);
    stage_unload(&m->stage);
    return rc;
}

static int classes_measure(struct measure *m, struct err *e)
{
    int firsts[MAX_CLASSES], n = 0, points = 0;
    for (int i = 0; i < m->graph->n_layers && n < MAX_CLASSES; i++) {
        int k = 0;
        while (k < n && strcmp(m->graph->layers[firsts[k]].class_name, m->graph->layers[i].class_name) != 0)
            k++;
        if (k < n)
            continue;
        firsts[n++] = m->layer = i;
        struct grid grid = grid_of(m);
        points += grid.n_slices * grid.n_prefixes;
    }
    m->point_ns = (m->config->budget_ms ? m->config->budget_ms : 2000) * 1000000 / (uint64_t)points;
    for (int k = 0; k < n; k++) {
        m->layer = firsts[k];
        int rc = class_measure(m, e);
        if (rc < 0)
            return err_at(e, "measuring %s", m->graph->layers[firsts[k]].name);
    }
    return 0;
}

static int layers_list(struct measure *m, struct err *e)
{
    json_t *list = json_array();
    json_object_set_new(m->tables, "layers", list);
    for (int i = 0; i < m->graph->n_layers; i++) {
        const struct graph_layer *l = &m->graph->layers[i];
        struct stage_config c = stage_config_of(m, i, 1, 1);
        struct stage_footprint f;
        int rc = stage_footprint(&c, &f, e);
        if (rc < 0)
            return rc;
        json_array_append_new(list, json_pack("{s:s, s:s, s:I, s:I, s:I, s:I}", "name", l->name, "class", l->class_name, "param_bytes",
                                              (json_int_t)l->param_bytes, "resident_bytes", (json_int_t)f.weight_bytes,
                                              "state_bytes_per_token", (json_int_t)l->state_bytes_per_token, "output_bytes_per_token",
                                              (json_int_t)l->output_bytes_per_token));
    }
    return 0;
}

/* ---- what was measured before -------------------------------------------------------------------------------------- */

/* The name of results: the shape of the model, number formats included, the device, the compute. */
static void cache_file(const struct measure *m, char *out, size_t size)
{
    const struct model_config *c = model_config(m->model);
    struct buffer key = {0};
    buffer_printf(&key, "%d %s f32=%d v=%d w=%d b=%d h=%d kv=%d hd=%d mlp=%d ctx=%d\n", (int)PROFILE_VERSION,
                  m->config->device->backend->device_describe(m->config->device), m->config->f32, c->vocabulary, c->width, c->n_blocks, c->n_heads,
                  c->n_kv_heads, c->head_dim, c->mlp_width, c->context);
    for (int i = 0; i < m->graph->n_ops; i++)
        if (m->graph->ops[i].weight)
            buffer_printf(&key, "%d:%d ", (int)m->graph->ops[i].kind, (int)m->graph->ops[i].weight->dtype);
    struct digest d = digest_of(key.data, key.size);
    char hex[DIGEST_HEX];
    digest_hex(&d, hex);
    snprintf(out, size, "%s/%s.json", m->config->cache, hex);
    buffer_free(&key);
}

static int tables_text(json_t *tables, struct buffer *out, struct err *e)
{
    char *text = json_dumps(tables, JSON_COMPACT);
    if (!text)
        return err_set(e, HP_ENOMEM, "no memory for a profile");
    buffer_append(out, text, strlen(text));
    free(text);
    return out->failed ? err_set(e, HP_ENOMEM, "no memory for a profile") : 0;
}

int profiler_measure(const struct profiler_config *c, struct buffer *out, struct err *e)
{
    struct measure m = {.config = c};
    char file[PATH_MAX] = "";
    int rc = model_open(c->path, &m.model, e);
    if (rc < 0)
        return rc;
    m.graph = model_graph(m.model);
    struct json_at at;
    json_t *kept = NULL;
    if (c->cache && c->cache[0]) {
        cache_file(&m, file, sizeof file);
        if (json_load_at(file, &kept, &at, NULL) < 0)
            kept = NULL;
    }
    if (kept) {
        rc = tables_text(kept, out, e);
        json_decref(kept);
        model_close(&m.model);
        return rc;
    }
    m.tables = json_object();
    rc = cold_create(&m, e);
    rc = rc < 0 ? rc : classes_measure(&m, e);
    rc = rc < 0 ? rc : layers_list(&m, e);
    rc = rc < 0 ? rc : tables_text(m.tables, out, e);
    if (rc == 0 && file[0]) {
        struct err kept_error = {0};
        if ((mkdir(c->cache, 0755) != 0 && errno != EEXIST) || json_save(m.tables, file, &kept_error) < 0)
            log_warn("agent", "profile_not_kept", "file=%s text=\"%s\"", file, kept_error.text);
    }
    free(m.cold);
    json_decref(m.tables);
    model_close(&m.model);
    return rc;
}
