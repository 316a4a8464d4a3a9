/* One layer of each class through stage_run, point by point: warm, by the median or, at a quick
 * look, by the lower quartile, with caches as cold as they would be. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/backend/backend.h"
#include "agent/engine/forward.h"
#include "agent/profiler_int.h"
#include "common/doubles.h"
#include "common/env.h"
#include "transport/message.h"

enum {
    MAX_SAMPLES = 9,
    ATTENTION_TILE = 24,
    QUICK_LEAST_PREFIX = 128, /* what shorter ones cost drowns in what slices do */
    FINE_SLICE = 512,
    FINE_PREFIX = 4096,
    FINE_BATCH_PREFIX = 2048,
    FINE_POINT_MS = 60,
    FINE_LEAST_SAMPLES = 3,
    FINE_LONG_SAMPLES = 2,
    PREFIX_BYTES = 1 << 20 /* keys and values come in pieces of so many */
};
#define FINE_LONG_S 0.3
/* At least so many runs make a point, one that warms up and one that counts. */
#define POINT_RUNS 2
/* What takes less on a device of its own is put on its stream some times over: waiting for it once
 * takes tens of microseconds. */
#define SHORT_S 2e-3
enum { SHORT_REPEATS = 8 };
#define FINE_TOLERANCE 0.04 /* errors of interpolation below it drown in those of measuring */

static double seconds_since(uint64_t from_ns)
{
    return (double)(env_now_ns(&env_real) - from_ns) * 1e-9;
}

/* ---- which points ---- */

/* NULL: it has none. */
static const struct graph_op *layer_op(const struct graph *g, int layer, enum op_kind kind)
{
    for (int i = 0; i < g->layers[layer].n_ops; i++)
        if (g->ops[g->layers[layer].first_op + i].kind == kind)
            return &g->ops[g->layers[layer].first_op + i];
    return NULL;
}

static bool is_end(const struct measure *m, int layer)
{
    return layer == 0 || layer == m->graph->n_layers - 1;
}

/* Points of an axis. */
struct points {
    uint32_t at[8];
    int n;
};

/* A quick look. What slices cost beside their tokens decides how a prompt is cut, and is seen
 * between two that fill the kernels' tiles of rows to the last (points_fill): what a straight
 * line has between 16 and 64 rows is of a bend, where products by rows become products by panels.
 * Another is near 96 rows, which still have room beside the weights in a core's own cache. Products
 * grow straight from there on; attention, which is of the slice's own tokens too, does not. */
static struct points slices_quick(const struct measure *m, int layer)
{
    static const struct points dense = {{1, 16, 48, 96, 192}, 5},
                               attention = {{1, 16, 48, 144, 384}, 5},
                               longer = {{1, 16, 64, 256, 1024}, 5}, end = {{1, 256}, 2},
                               mixture = {{1, 2, 4, 8, 16, 64, 256}, 7},
                               longer_mixture = {{1, 2, 4, 8, 16, 64, 256, 1024}, 8};
    bool own = m->config->device->backend->own_memory; /* what is fast at 256 is faster beyond */
    if (layer_op(m->graph, layer, OP_EXPERT_MATMUL))
        return own ? longer_mixture : mixture; /* with the experts that their first tokens wake */
    if (layer_op(m->graph, layer, OP_ATTENTION))
        return own ? longer : attention;
    return is_end(m, layer) ? end : own ? longer : dense;
}

/* Attention grows straight with the prefix, up to its window, and on cores. */
static struct points prefixes_quick(const struct measure *m, int layer)
{
    static const struct points none = {{0}, 1}, straight = {{0, 1536}, 2},
                               bent = {{0, 512, 1536}, 3};
    const struct graph_op *attention = layer_op(m->graph, layer, OP_ATTENTION);
    if (!attention)
        return none;
    return attention->u.attention.window || m->config->device->backend->own_memory ? bent
                                                                                   : straight;
}

static uint32_t step_nearest(uint32_t n, uint32_t multiple_of)
{
    return (n + multiple_of / 2) / multiple_of * multiple_of;
}

/* Slices of more than one and a half steps become whole ones, and where these are near enough such
 * as fill the tiles of ATTENTION_TILE tokens, too, by which attention goes where eight heads share
 * keys. */
static void points_fill(struct points *x, uint32_t step, uint32_t context)
{
    uint32_t both = step;
    while (step && both % ATTENTION_TILE)
        both += step;
    for (int i = 0; step > 1 && i < x->n; i++) {
        uint32_t fills = 4 * x->at[i] >= 3 * both ? both : step;
        if (2 * x->at[i] < 3 * step)
            continue;
        x->at[i] = step_nearest(x->at[i], fills);
        x->at[i] -= x->at[i] > context && context >= 2 * fills ? fills : 0;
    }
}

/* Cut at the model's context. */
static void grid_quick(const struct measure *m, struct measure_class *c)
{
    struct points x = slices_quick(m, c->layer), y = prefixes_quick(m, c->layer);
    uint32_t context = (uint32_t)model_config(m->model)->context;
    points_fill(&x, c->step, context);
    while (x.n > 1 && x.at[x.n - 1] > context)
        x.n--;
    uint32_t room = context > x.at[x.n - 1] ? context - x.at[x.n - 1] : 0;
    if (y.n == 2 && y.at[1] > room) /* of a straight line any point will do */
        y.at[1] = room;
    while (y.n > 1 && (y.at[y.n - 1] > room || y.at[y.n - 1] < QUICK_LEAST_PREFIX))
        y.n--;
    grid_begin(&c->grid, x.at, x.n, y.at, y.n, 1);
}

/* What a fine measurement begins with; it adds more itself. */
static void grid_fine(const struct measure *m, struct measure_class *c)
{
    uint32_t context = (uint32_t)model_config(m->model)->context,
             dense[] = {1, 8, 32, 128, FINE_SLICE}, prefixes[3] = {0},
             mixtures[] = {1, 2, 4, 8, 16, 32, 128, FINE_SLICE};
    uint32_t most = context < 2 ? 1 : context / 2 < FINE_SLICE ? context / 2 : FINE_SLICE;
    bool mixture = layer_op(m->graph, c->layer, OP_EXPERT_MATMUL);
    uint32_t *slices = mixture ? mixtures : dense;
    int n_x = mixture ? 8 : 5, n_y = 1;
    while (n_x > 1 && slices[n_x - 2] >= most)
        n_x--;
    slices[n_x - 1] = most;
    uint32_t longest = context - most < FINE_PREFIX ? context - most : FINE_PREFIX;
    if (layer_op(m->graph, c->layer, OP_ATTENTION) && longest >= 4) {
        prefixes[1] = longest / 4;
        prefixes[2] = longest;
        n_y = 3;
    }
    grid_begin(&c->grid, slices, n_x, prefixes, n_y, FINE_TOLERANCE);
}

/* Of what cannot be told nothing is measured, which says why. */
static uint32_t layer_step(const struct measure *m, int layer)
{
    struct stage_config config = profiler_stage_config(m, layer, 1, 0, 1);
    struct section_need need = {0};
    struct err ignored;
    return stage_footprint(&config, &need, &ignored) < 0 ? 0 : need.row_step;
}

static void classes_find(struct measure *m)
{
    for (int i = 0; i < m->graph->n_layers; i++) {
        int k = 0;
        while (k < m->n_classes && strcmp(m->graph->layers[m->classes[k].layer].class_name,
                                          m->graph->layers[i].class_name) != 0)
            k++;
        if (k == PROFILER_MAX_CLASSES)
            continue;
        struct measure_class *c = &m->classes[k];
        c->n_layers++;
        if (k < m->n_classes)
            continue;
        m->n_classes++;
        c->layer = i;
        c->step = layer_step(m, i);
        c->share = layer_op(m->graph, i, OP_ATTENTION) ? 4 : is_end(m, i) ? 1 : 2;
        if (m->config->fine)
            grid_fine(m, c);
        else
            grid_quick(m, c);
    }
}

/* ---- one point ---- */

/* A stage comes back to a layer after it has been through all its others, and then finds that
 * layer's weights in memory, not in a cache, unless the whole model fits into one. Weights are only
 * read, and so is this: caches full of what was written would have to write it before they take the
 * layer's. */
static void caches_leave(const struct measure *m)
{
    for (size_t i = 0; m->cold && i < m->cold_bytes; i += 64)
        (void)((const volatile uint8_t *)m->cold)[i];
}

static int cold_create(struct measure *m, struct err *e)
{
    if (m->config->device->backend->own_memory)
        return 0;
    long cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
    uint64_t weights = 0;
    for (int i = 0; i < m->graph->n_layers; i++)
        weights += m->graph->layers[i].param_bytes;
    if (cache <= 0 || cache > 1 << 29 || weights < (uint64_t)cache / 2)
        return 0;
    m->cold_bytes = (size_t)cache + (size_t)cache / 4;
    m->cold = malloc(m->cold_bytes);
    if (!m->cold)
        return err_set(e, HP_ENOMEM, "no memory to measure a layer");
    memset(m->cold, 1, m->cold_bytes); /* else all of it would be one page of zeros */
    uint64_t from = env_now_ns(&env_real);
    caches_leave(m);
    m->cold_s = seconds_since(from);
    return 0;
}

/* A sequence that begins with `prefix` tokens, whose keys and values are zeros. */
static int prefixed_open(struct measure *m, uint64_t id, struct grid_point p, struct err *e)
{
    int rc = stage_sequence_open_at(m->stage, id, p.prefix + p.slice, p.prefix, 0, e);
    struct kv_shape shape = stage_kv_shape(m->stage);
    struct kv_cursor at = {0};
    struct kv_range r;
    while (rc == 0 && kv_shape_next(&shape, p.prefix, PREFIX_BYTES, &at, &r))
        rc = stage_kv_import(m->stage, id, &r, m->prefix, e);
    return rc;
}

/* Between the layers of a stage no rows come from the host or go there, as they do where one layer
 * is a stage: of a device to which they are copied only the operators are timed. */
static int layer_run(struct measure *m, const struct batch_run *runs, int n, double *seconds,
                     struct err *e)
{
    struct forward_timing timing = {m->repeats, 0};
    uint64_t from = env_now_ns(&env_real);
    if (!m->config->device->backend->own_memory) {
        int rc = stage_run(m->stage, runs, n, m->input, m->output, e);
        *seconds = seconds_since(from);
        return rc;
    }
    int rc = stage_run_timed(m->stage, runs, n, m->input, m->output, &timing, e);
    *seconds = timing.seconds;
    return rc;
}

/* `batch` sequences, each with `slice` new tokens after `prefix` cached ones. `warms`: it counts
 * for nothing. */
static int run_once(struct measure *m, uint32_t batch, struct grid_point p, bool warms,
                    double *seconds, struct err *e)
{
    struct batch_run runs[PROFILER_MAX_BATCH];
    int rc = 0;
    uint32_t open = 0;
    for (; rc == 0 && open < batch; open++) {
        runs[open] = (struct batch_run){.sequence = open + 1,
                                        .first_position = p.prefix,
                                        .n_tokens = p.slice,
                                        .n_logits = stage_is_last(m->stage)};
        rc = prefixed_open(m, open + 1, p, e);
    }
    if (!warms)
        caches_leave(m);
    rc = rc < 0 ? rc : layer_run(m, runs, (int)batch, seconds, e);
    for (uint32_t i = 0; i < open; i++)
        stage_sequence_close(m->stage, i + 1);
    return rc;
}

static int point_measure(struct measure *m, uint32_t batch, struct grid_point p, double *seconds,
                         struct err *e)
{
    double samples[MAX_SAMPLES], warm = 0;
    uint64_t from = env_now_ns(&env_real);
    m->repeats = 1;
    int rc = run_once(m, batch, p, true, &warm, e), n = 0;
    m->around = warm > 0 ? seconds_since(from) / warm : 1;
    m->repeats = warm < SHORT_S ? SHORT_REPEATS : 1;
    /* What takes long varies little, but for the box being taken away. */
    int least = !m->config->fine ? 1 : warm < FINE_LONG_S ? FINE_LEAST_SAMPLES : FINE_LONG_SAMPLES;
    uint64_t until = env_now_ns(&env_real) + m->point_ns;
    while (rc == 0 && n < MAX_SAMPLES && (n < least || env_now_ns(&env_real) < until)) {
        if (m->config->between)
            m->config->between(m->config->between_ctx);
        rc = run_once(m, batch, p, false, &samples[n++], e);
        if (rc == 0 && m->config->stop && atomic_load(m->config->stop))
            rc = err_set(e, HP_ECANCELED, "the measurement was stopped");
    }
    if (rc < 0)
        return rc;
    doubles_sort(samples, (size_t)n);
    /* What others take of the box only adds, and of a quick look's few runs to more than half. */
    *seconds = m->config->fine ? doubles_median(samples, (size_t)n) : samples[(n - 1) / 4];
    m->points++;
    return 0;
}

/* ---- one class ---- */

static void progress_tell(const struct measure *m, const struct measure_class *c)
{
    struct message_profile_progress p = {.what = m->graph->layers[c->layer].class_name,
                                         .points = (uint64_t)m->points,
                                         .elapsed_s = seconds_since(m->begun_ns),
                                         .budget_s = (double)m->budget_ns * 1e-9,
                                         .error =
                                             grid_is_whole(&c->grid) ? grid_error(&c->grid) : 1};
    if (m->config->progress)
        m->config->progress(m->config->progress_ctx, &p);
}

/* A quick look at a slow device: the next line of its grid would take the class past its time. */
static bool line_is_too_long(const struct measure *m, const struct measure_class *c,
                             uint64_t until_ns)
{
    double line =
        POINT_RUNS * m->around * grid_line_seconds(&c->grid) + m->cold_s * c->grid.axes[1].n;
    return !m->config->fine && line > 0 &&
           (double)env_now_ns(&env_real) + line * 1e9 > (double)until_ns;
}

static int grid_measure(struct measure *m, struct measure_class *c, uint64_t until_ns,
                        struct err *e)
{
    struct grid_point p;
    while ((!grid_is_whole(&c->grid) || env_now_ns(&env_real) < until_ns) &&
           grid_next(&c->grid, &p)) {
        double seconds;
        int rc = point_measure(m, 1, p, &seconds, e);
        if (rc < 0)
            return rc;
        grid_tell(&c->grid, seconds);
        if (line_is_too_long(m, c, until_ns))
            grid_cut(&c->grid);
        progress_tell(m, c);
    }
    return 0;
}

static json_t *axis_list(const struct grid_axis *a)
{
    json_t *list = json_array();
    for (int i = 0; i < a->n; i++)
        json_array_append_new(list, json_integer(a->at[i]));
    return list;
}

static json_t *grid_table(const struct measure_grid *g, bool fine)
{
    json_t *rows = json_array();
    for (int i = 0; i < g->axes[0].n; i++) {
        json_t *row = json_array();
        for (int k = 0; k < g->axes[1].n; k++)
            json_array_append_new(row, json_real(g->seconds[i][k]));
        json_array_append_new(rows, row);
    }
    json_t *table = json_pack("{s:o, s:o, s:o}", "slice", axis_list(&g->axes[0]), "prefix",
                              axis_list(&g->axes[1]), "seconds", rows);
    if (fine)
        json_object_set_new(table, "interpolation_error", json_real(grid_error(g)));
    return table;
}

/* Steps of decode: one new token of each of several sequences. */
static int batches_measure(struct measure *m, const struct measure_class *c, uint32_t longest,
                           json_t *table, struct err *e)
{
    struct grid_axis batches = {.at = {1, 2, 4, PROFILER_MAX_BATCH}, .n = 4},
                     prefixes = {.at = {0, longest / 4, longest}, .n = longest >= 4 ? 3 : 1};
    json_t *rows = json_array();
    int rc = 0;
    for (int i = 0; rc == 0 && i < batches.n; i++) {
        json_t *row = json_array();
        for (int k = 0; rc == 0 && k < prefixes.n; k++) {
            double seconds = 0;
            rc = point_measure(m, batches.at[i], (struct grid_point){1, prefixes.at[k]}, &seconds,
                               e);
            json_array_append_new(row, json_real(seconds));
            progress_tell(m, c);
        }
        json_array_append_new(rows, row);
    }
    json_object_set_new(table, "decode",
                        json_pack("{s:o, s:o, s:o}", "batch", axis_list(&batches), "prefix",
                                  axis_list(&prefixes), "seconds", rows));
    return rc;
}

struct stage_config profiler_stage_config(const struct measure *m, int layer, uint32_t max_slice,
                                          uint32_t max_prefix, uint32_t max_batch)
{
    return (struct stage_config){.model = m->model,
                                 .first_layer = layer,
                                 .end_layer = layer + 1,
                                 .device = m->config->device,
                                 .compute = m->config->f32 ? COMPUTE_F32 : COMPUTE_AUTO,
                                 .kv_tokens = max_slice + max_prefix,
                                 .max_sequences = max_batch,
                                 .measured = true,
                                 .max_batch_tokens = max_slice > max_batch ? max_slice : max_batch};
}

/* Of the largest piece that a prefix is imported in. */
static size_t prefix_bytes(const struct measure *m)
{
    struct kv_shape shape = stage_kv_shape(m->stage);
    size_t most = PREFIX_BYTES;
    for (uint32_t g = 0; g < shape.n_groups; g++) {
        size_t page = (size_t)shape.groups[g].token_bytes * KV_PAGE_TOKENS;
        most = page > most ? page : most;
    }
    return most;
}

static int buffers_make(struct measure *m, uint32_t tokens, struct err *e)
{
    size_t width_in = m->layer ? graph_border_width(m->graph, m->layer - 1) : 1,
           width_out = stage_is_last(m->stage) ? 0 : graph_border_width(m->graph, m->layer),
           rows = (size_t)tokens * width_in,
           logits = stage_is_last(m->stage)
                        ? (size_t)model_config(m->model)->vocabulary * PROFILER_MAX_BATCH
                        : 0;
    m->input = calloc(rows, sizeof(float)); /* also ids: token 0 */
    m->output = calloc(1 + logits + (size_t)tokens * width_out, sizeof(float));
    m->prefix = calloc(prefix_bytes(m), 1);
    if (!m->input || !m->output || !m->prefix)
        return err_set(e, HP_ENOMEM, "no memory to measure a layer");
    /* Zeros could be cheaper than numbers. */
    for (size_t i = 0; m->layer && i < rows; i++)
        ((float *)m->input)[i] = (float)(i % 17) * 0.06f - 0.5f;
    return 0;
}

static int class_measure(struct measure *m, struct measure_class *c, uint64_t until_ns,
                         struct err *e)
{
    const struct grid_axis *x = &c->grid.axes[0], *y = &c->grid.axes[1];
    uint32_t slice = x->at[x->n - 1], prefix = y->at[y->n - 1],
             batch = m->config->fine ? PROFILER_MAX_BATCH : 1;
    uint32_t batch_prefix = prefix < FINE_BATCH_PREFIX ? prefix : FINE_BATCH_PREFIX,
             tokens = slice > batch ? slice : batch;
    struct stage_config config = profiler_stage_config(m, c->layer, slice, prefix, batch);
    /* Every sequence takes whole pages. */
    uint64_t together = (uint64_t)batch * (batch_prefix + 2 * KV_PAGE_TOKENS);
    config.kv_tokens = batch > 1 && together > config.kv_tokens ? together : config.kv_tokens;
    m->layer = c->layer;
    int rc = stage_load(&config, &m->stage, e);
    if (rc < 0)
        return rc;
    rc = buffers_make(m, tokens, e);
    rc = rc < 0 ? rc : grid_measure(m, c, until_ns, e);
    if (rc == 0)
        grid_settle(&c->grid);
    json_t *table = grid_table(&c->grid, m->config->fine);
    if (c->step > 0)
        json_object_set_new(table, "step", json_integer(c->step));
    if (rc == 0 && batch > 1)
        rc = batches_measure(m, c, batch_prefix, table, e);
    json_object_set_new(m->tables, m->graph->layers[c->layer].class_name, table);
    free(m->input);
    free(m->output);
    free(m->prefix);
    stage_unload(&m->stage);
    return rc;
}

int profiler_classes_measure(struct measure *m, struct err *e)
{
    classes_find(m);
    int points = 0, rc = cold_create(m, e);
    double shares = 0;
    for (int k = 0; k < m->n_classes; k++) {
        points += m->classes[k].grid.axes[0].n * m->classes[k].grid.axes[1].n;
        shares += m->classes[k].share;
    }
    if (!m->config->fine) /* emptying large caches takes no part of it */
        m->budget_ns += (uint64_t)(points * m->cold_s * 1e9);
    /* Of a quick look half is for long slices and prefixes, of which a run takes more than that. */
    m->point_ns =
        m->config->fine ? FINE_POINT_MS * UINT64_C(1000000) : m->budget_ns / (2 * (uint64_t)points);
    /* What a class does not need is for those after it. */
    for (int k = 0; rc == 0 && k < m->n_classes; k++) {
        uint64_t now = env_now_ns(&env_real), end = m->begun_ns + m->budget_ns,
                 left = end > now ? end - now : 0;
        rc = class_measure(m, &m->classes[k],
                           now + (uint64_t)((double)left * m->classes[k].share / shares), e);
        shares -= m->classes[k].share;
        if (rc < 0)
            err_at(e, "measuring %s", m->graph->layers[m->classes[k].layer].name);
    }
    free(m->cold);
    m->cold = NULL;
    return rc;
}
