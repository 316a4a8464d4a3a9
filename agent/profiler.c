/* The profiler's face: what is kept of earlier measurements, what is said beside the tables. */
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <time.h>

#include "agent/engine/section_plan.h"
#include "agent/profiler_int.h"
#include "common/digest.h"
#include "common/env.h"
#include "common/fs.h"
#include "common/json.h"
#include "common/log.h"

enum { PROFILE_VERSION = 11 };

/* ---- beside the tables ---- */

/* The whole model's time for one slice without a prefix. */
static double model_seconds(const struct measure *m, double slice)
{
    double seconds = 0;
    for (int k = 0; k < m->n_classes; k++)
        seconds += m->classes[k].n_layers * grid_at(&m->classes[k].grid, slice, 0);
    return seconds;
}

/* The shortest slice whose time per token is within PROFILER_USEFUL_WITHIN of the best one's, among
 * those that were measured. */
static uint32_t useful_slice(const struct measure *m)
{
    double best = INFINITY;
    uint32_t shortest = UINT32_MAX;
    for (int pass = 0; pass < 2; pass++)
        for (int k = 0; k < m->n_classes; k++)
            for (int i = 0; i < m->classes[k].grid.axes[0].n; i++) {
                uint32_t slice = m->classes[k].grid.axes[0].at[i];
                double each = model_seconds(m, slice) / slice;
                if (pass == 0)
                    best = fmin(best, each);
                else if (each <= PROFILER_USEFUL_WITHIN * best && slice < shortest)
                    shortest = slice;
            }
    return shortest;
}

/* What was measured, with what, when. */
static json_t *source_note(const struct measure *m)
{
    struct utsname system;
    const struct device *d = m->config->device;
    bool known = uname(&system) == 0;
    return json_pack("{s:s, s:s, s:s, s:s%, s:s, s:s, s:I, s:i, s:f, s:b}", "device",
                     d->backend->device_describe(d), "backend", d->backend->name, "libraries",
                     d->backend->libraries ? d->backend->libraries() : "", "driver",
                     known ? system.release : "", known ? strlen(system.release) : (size_t)0,
                     "program", HP_VERSION, "compute", m->config->f32 ? "f32" : "auto",
                     "measured_s", (json_int_t)time(NULL), "points", m->points, "elapsed_s",
                     (double)(env_now_ns(&env_real) - m->begun_ns) * 1e-9, "fine", m->config->fine);
}

/* Of a mixture: how many experts there are, how many of them a token takes, what all weigh. */
static json_t *experts_note(const struct graph_layer *l)
{
    return json_pack("{s:i, s:i, s:I}", "count", l->experts, "used", l->experts_used, "bytes",
                     (json_int_t)l->expert_bytes);
}

static int layers_list(struct measure *m, struct err *e)
{
    json_t *list = json_member_add(m->tables, "layers", json_array());
    for (int i = 0; i < m->graph->n_layers; i++) {
        const struct graph_layer *l = &m->graph->layers[i];
        struct stage_config c = profiler_stage_config(m, i, 1, 1, 1);
        struct section_need f;
        int rc = stage_footprint(&c, &f, e);
        if (rc < 0)
            return rc;
        json_t *row = json_pack("{s:s, s:s, s:I, s:I, s:I, s:I}", "name", l->name, "class",
                                l->class_name, "param_bytes", (json_int_t)l->param_bytes,
                                "resident_bytes", (json_int_t)f.weight_bytes,
                                "state_bytes_per_token", (json_int_t)l->state_bytes_per_token,
                                "output_bytes_per_token", (json_int_t)l->output_bytes_per_token);
        if (l->experts > 0)
            json_object_set_new(row, "experts", experts_note(l));
        json_array_append_new(list, row);
    }
    return 0;
}

/* Bytes that all layers hold for one token of a batch, as the model alone says. */
static int token_bytes(const struct measure *m, uint64_t *out, struct err *e)
{
    static const uint64_t one_token[GRAPH_SEQUENCE_SYMBOLS] = {[GRAPH_TOKENS] = 1};
    struct graph_section s;
    int rc = graph_section_make(m->graph, 0, m->graph->n_layers, one_token, &s, e);
    if (rc < 0)
        return rc;
    *out = graph_section_bytes(&s);
    graph_section_free(&s);
    return 0;
}

/* What the device holds beside that for a batch of so many tokens: scratch of its kernels, what its
 * memory is rounded up to. */
static int scratch_bytes(const struct measure *m, uint32_t tokens, uint64_t of_one, uint64_t *out,
                         struct err *e)
{
    struct stage_config c = profiler_stage_config(m, 0, tokens, 1, 1);
    struct section_need need;
    c.end_layer = m->graph->n_layers;
    int rc = stage_footprint(&c, &need, e);
    if (rc < 0)
        return rc;
    uint64_t told = of_one * tokens;
    *out = need.activation_bytes > told ? need.activation_bytes - told : 0;
    return 0;
}

/* 1, 2, 3, 4, 6, 8, 12 ... */
static uint32_t batch_next(uint32_t n)
{
    bool power = (n & (n - 1)) == 0;
    return n < 2 ? 2 : power ? n / 2 * 3 : n / 3 * 4;
}

static int scratch_note(struct measure *m, struct err *e)
{
    enum { TOKENS_MOST = 8192 };
    json_t *note = json_member_add(m->tables, "scratch", json_object()),
           *tokens = json_member_add(note, "tokens", json_array()),
           *bytes = json_member_add(note, "bytes", json_array());
    uint64_t of_one, there;
    int rc = token_bytes(m, &of_one, e);
    for (uint32_t n = 1; rc == 0 && n <= TOKENS_MOST; n = batch_next(n)) {
        rc = scratch_bytes(m, n, of_one, &there, e);
        json_array_append_new(tokens, json_integer(n));
        json_array_append_new(bytes, json_integer(rc < 0 ? 0 : (json_int_t)there));
    }
    return rc;
}

/* ---- what was measured before ---- */

static void key_print(struct buffer *key, const char *kind, const struct weight *w)
{
    buffer_printf(key, "%s:%s", kind, w->format);
    for (int i = 0; i < w->n_dims; i++)
        buffer_printf(key, ":%llu", (unsigned long long)w->shape[i]);
    buffer_printf(key, " ");
}

/* The name of results: the shape of the model, number formats included, the device, the compute. */
static void cache_file(const struct measure *m, char *out, size_t size)
{
    const struct model_config *c = model_config(m->model);
    struct buffer key = {0};
    buffer_printf(&key, "%d %s f32=%d v=%d w=%d b=%d h=%d kv=%d hd=%d mlp=%d ctx=%d\n",
                  (int)PROFILE_VERSION,
                  m->config->device->backend->device_describe(m->config->device), m->config->f32,
                  c->vocabulary, c->width, c->n_blocks, c->n_heads, c->n_kv_heads, c->head_dim,
                  c->mlp_width, c->context);
    for (int i = 0; i < m->graph->n_ops; i++) {
        const struct graph_op *op = &m->graph->ops[i];
        if (op->n_weights > 0)
            key_print(&key, op_kind_info(op->kind)->name, op->weights[0]);
        if (op->kind == OP_ROUTE)
            buffer_printf(&key, "of which %d ", op->u.route.used);
    }
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

/* What was measured before; NULL: nothing, or this time it shall be measured anew. */
static json_t *kept_tables(const struct measure *m, const char *file)
{
    struct json_at at;
    json_t *kept = NULL;
    return !file[0] || m->config->fine || json_load_at(file, &kept, &at, NULL) < 0 ? NULL : kept;
}

/* Of a device without room for the layers at work: what they would take is said without times, so
 * that no plan counts on more than there is. */
static int measure_no_times(struct measure *m, struct err *e)
{
    log_warn("agent", "profile_without_times", "text=\"%s\"", e->text);
    json_object_clear(m->tables);
    int rc = layers_list(m, e);
    return rc < 0 ? rc : scratch_note(m, e);
}

static int measure_all(struct measure *m, const char *file, struct err *e)
{
    struct err kept_error = {0};
    m->begun_ns = env_now_ns(&env_real);
    m->budget_ns = (m->config->budget_ms ? m->config->budget_ms : 2000) * 1000000;
    int rc = profiler_classes_measure(m, e);
    if (rc == HP_ENOMEM && !m->config->fine)
        return measure_no_times(m, e);
    rc = rc < 0 ? rc : layers_list(m, e);
    rc = rc < 0 ? rc : scratch_note(m, e);
    if (rc < 0)
        return rc;
    if (m->config->fine)
        json_object_set_new(m->tables, "useful_slice",
                            json_pack("{s:I, s:f}", "tokens", (json_int_t)useful_slice(m), "within",
                                      PROFILER_USEFUL_WITHIN));
    json_object_set_new(m->tables, "source", source_note(m));
    if (file[0] && (fs_folder_make(m->config->cache, 0755, &kept_error) < 0 ||
                    json_save(m->tables, file, &kept_error) < 0))
        log_warn("agent", "profile_not_kept", "file=%s text=\"%s\"", file, kept_error.text);
    return 0;
}

int profiler_measure(const struct profiler_config *c, struct buffer *out, struct err *e)
{
    struct measure m = {.config = c};
    char file[PATH_MAX] = "";
    int rc = model_open(c->path, &m.model, e);
    if (rc < 0)
        return rc;
    m.graph = model_graph(m.model);
    if (c->cache && c->cache[0])
        cache_file(&m, file, sizeof file);
    m.tables = kept_tables(&m, file);
    if (!m.tables) {
        m.tables = json_object();
        rc = measure_all(&m, file, e);
    }
    rc = rc < 0 ? rc : tables_text(m.tables, out, e);
    json_decref(m.tables);
    model_close(&m.model);
    return rc;
}
