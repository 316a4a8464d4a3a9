#include "agent/engine/forward.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* A weight in one of its uses: a tied embedding is both a table of rows and a matrix. */
struct loaded {
    const struct weight *source;
    enum weight_use use;
    struct device_weight *weight;
};

/* An operator made ready. */
struct step {
    const struct graph_op *op;
    const struct device_weight *weight, *bias;
    int kv_block; /* of attention: which block of the stage's cache */
};

struct forward {
    struct forward_config config;
    const struct backend *backend;
    struct stream *stream;
    struct tensor values[V_COUNT];
    struct tensor head_x; /* residual rows that meet the head: [FORWARD_LOGIT_ROWS, width] */
    struct tensor angles; /* of this batch's positions */
    uint32_t *positions;  /* [max_rows] */
    struct loaded *loaded;
    int n_loaded;
    struct step *steps;
    int n_steps, first_step_of_head; /* n_steps where there is no head */
    int rope_pairs;                  /* 0: no operator rotates */
};

/* ---- what the layers need
 * ----------------------------------------------------------------------------------- */

static int first_op(const struct forward_config *c)
{
    return c->graph->layers[c->first_layer].first_op;
}
static int end_op(const struct forward_config *c)
{
    const struct graph_layer *last = &c->graph->layers[c->end_layer - 1];
    return last->first_op + last->n_ops;
}

static enum weight_use use_of(const struct graph_op *op)
{
    return op->kind == OP_MATMUL  ? WEIGHT_MATMUL
           : op->kind == OP_EMBED ? WEIGHT_ROWS
                                  : WEIGHT_VECTOR;
}

/* Every distinct (weight, use) of the layers once; `out` has room for two an operator. */
static int list_weights(const struct forward_config *c, struct loaded *out)
{
    int n = 0;
    for (int i = first_op(c); i < end_op(c); i++) {
        const struct graph_op *op = &c->graph->ops[i];
        const struct loaded wanted[] = {{op->weight, use_of(op), NULL},
                                        {op->bias, WEIGHT_VECTOR, NULL}};
        for (int j = 0; j < 2; j++) {
            int known = 0;
            while (known < n &&
                   (out[known].source != wanted[j].source || out[known].use != wanted[j].use))
                known++;
            if (wanted[j].source && known == n)
                out[n++] = wanted[j];
        }
    }
    return n;
}

static uint32_t value_rows(const struct forward_config *c, enum graph_value v)
{
    return v == V_LOGITS && c->max_rows > FORWARD_LOGIT_ROWS ? FORWARD_LOGIT_ROWS : c->max_rows;
}

static uint64_t value_bytes(const struct forward_config *c, enum graph_value v)
{
    return (uint64_t)value_rows(c, v) * (uint64_t)c->graph->value_width[v] * sizeof(float);
}

static void values_used(const struct forward_config *c, bool used[V_COUNT])
{
    memset(used, 0, V_COUNT * sizeof *used);
    used[V_X] = true;
    for (int i = first_op(c); i < end_op(c); i++) {
        const struct graph_op *op = &c->graph->ops[i];
        used[op->in] = used[op->out] = true;
        if (op->kind == OP_SILU_MUL)
            used[op->in2] = true;
        if (op->kind == OP_ATTENTION)
            used[V_K] = used[V_V] = true;
    }
}

static bool has_op(const struct forward_config *c, enum op_kind kind)
{
    for (int i = first_op(c); i < end_op(c); i++)
        if (c->graph->ops[i].kind == kind)
            return true;
    return false;
}

int forward_attention_blocks(const struct forward_config *c)
{
    int n = 0;
    for (int i = first_op(c); i < end_op(c); i++)
        n += c->graph->ops[i].kind == OP_ATTENTION;
    return n;
}

static uint64_t head_x_bytes(const struct forward_config *c)
{
    return (uint64_t)value_rows(c, V_LOGITS) * (uint64_t)c->graph->value_width[V_X] * sizeof(float);
}

static uint64_t angles_bytes(const struct forward_config *c)
{
    return has_op(c, OP_ROPE)
               ? (uint64_t)c->max_rows * (uint64_t)c->model->rope.dims * sizeof(float)
               : 0;
}

int forward_footprint(const struct forward_config *c, uint64_t *weight_bytes,
                      uint64_t *activation_bytes, struct err *e)
{
    const struct backend *b = c->device->backend;
    uint64_t scratch = 0, weights = 0, values = head_x_bytes(c) + angles_bytes(c);
    bool used[V_COUNT];
    values_used(c, used);
    for (int v = 0; v < V_COUNT; v++)
        values += used[v] ? value_bytes(c, (enum graph_value)v) : 0;
    struct loaded *list = calloc((size_t)(end_op(c) - first_op(c)) * 2, sizeof *list);
    if (!list)
        return err_set(e, HP_ENOMEM, "no memory for the list of weights");
    int n = list_weights(c, list);
    for (int i = 0; i < n; i++) {
        weights += b->weight_resident_bytes(c->device, list[i].source, list[i].use, c->f32);
        uint64_t s = list[i].use == WEIGHT_MATMUL
                         ? b->matmul_scratch_bytes(c->device, list[i].source, c->f32, c->max_rows)
                         : 0;
        scratch = s > scratch ? s : scratch;
    }
    free(list);
    *weight_bytes = weights;
    *activation_bytes = values + scratch;
    return 0;
}

/* ---- making it ready
 * ------------------------------------------------------------------------------------------ */

static int alloc_values(struct forward *f, struct err *e)
{
    const struct forward_config *c = &f->config;
    bool used[V_COUNT];
    values_used(c, used);
    int rc = 0;
    for (int v = 0; v < V_COUNT && rc == 0; v++)
        if (used[v])
            rc = f->backend->tensor_alloc(c->device, value_bytes(c, (enum graph_value)v),
                                          &f->values[v], e);
    if (rc == 0)
        rc = f->backend->tensor_alloc(c->device, head_x_bytes(c), &f->head_x, e);
    if (rc == 0 && angles_bytes(c) > 0)
        rc = f->backend->tensor_alloc(c->device, angles_bytes(c), &f->angles, e);
    return rc < 0 ? err_at(e, "activations of %u tokens", c->max_rows) : 0;
}

static int load_weights(struct forward *f, struct err *e)
{
    const struct forward_config *c = &f->config;
    uint64_t done = 0, total = 0;
    f->loaded = calloc((size_t)(end_op(c) - first_op(c)) * 2, sizeof *f->loaded);
    if (!f->loaded)
        return err_set(e, HP_ENOMEM, "no memory for the list of weights");
    f->n_loaded = list_weights(c, f->loaded);
    for (int i = 0; i < f->n_loaded; i++)
        total += f->backend->weight_resident_bytes(c->device, f->loaded[i].source, f->loaded[i].use,
                                                   c->f32);
    for (int i = 0; i < f->n_loaded; i++) {
        struct loaded *l = &f->loaded[i];
        if (c->stop && atomic_load(c->stop))
            return err_set(e, HP_ECANCELED, "loading was stopped");
        int rc = f->backend->weight_load(c->device, l->source, l->use, c->f32, &l->weight, e);
        if (rc < 0)
            return rc;
        done += f->backend->weight_resident_bytes(c->device, l->source, l->use, c->f32);
        if (c->progress)
            c->progress(c->progress_ctx, done, total);
    }
    return 0;
}

static const struct device_weight *find_weight(const struct forward *f, const struct weight *source,
                                               enum weight_use use)
{
    for (int i = 0; i < f->n_loaded; i++)
        if (f->loaded[i].source == source && f->loaded[i].use == use)
            return f->loaded[i].weight;
    return NULL;
}

/* The head is the layer that makes logits; it runs on the rows that are asked for. */
static int make_steps(struct forward *f, struct err *e)
{
    const struct forward_config *c = &f->config;
    int kv_blocks = 0;
    f->n_steps = end_op(c) - first_op(c);
    f->first_step_of_head = f->n_steps;
    f->steps = calloc((size_t)f->n_steps, sizeof *f->steps);
    f->positions = calloc(c->max_rows, sizeof *f->positions);
    if (!f->steps || !f->positions)
        return err_set(e, HP_ENOMEM, "no memory for the list of operators");
    for (int i = 0; i < f->n_steps; i++) {
        const struct graph_op *op = &c->graph->ops[first_op(c) + i];
        f->steps[i] = (struct step){.op = op,
                                    .weight = find_weight(f, op->weight, use_of(op)),
                                    .bias = find_weight(f, op->bias, WEIGHT_VECTOR)};
        if (op->kind == OP_ATTENTION)
            f->steps[i].kv_block = kv_blocks++;
        if (op->kind == OP_ROPE)
            f->rope_pairs = c->model->rope.dims / 2;
    }
    for (int l = c->first_layer; l < c->end_layer; l++)
        for (int i = 0; i < c->graph->layers[l].n_ops; i++)
            if (c->graph->ops[c->graph->layers[l].first_op + i].out == V_LOGITS)
                f->first_step_of_head = c->graph->layers[l].first_op - first_op(c);
    return 0;
}

int forward_create(const struct forward_config *c, struct forward **out, struct err *e)
{
    struct forward *f = calloc(1, sizeof *f);
    if (!f)
        return err_set(e, HP_ENOMEM, "no memory for a stage");
    f->config = *c;
    f->backend = c->device->backend;
    int rc = f->backend->stream_create(c->device, &f->stream, e);
    if (rc == 0)
        rc = alloc_values(f, e);
    if (rc == 0)
        rc = load_weights(f, e);
    if (rc == 0)
        rc = make_steps(f, e);
    if (rc < 0)
        forward_destroy(&f);
    else
        *out = f;
    return rc;
}

void forward_destroy(struct forward **self)
{
    struct forward *f = *self;
    *self = NULL;
    if (!f)
        return;
    for (int i = 0; i < f->n_loaded; i++)
        f->backend->weight_free(f->config.device, &f->loaded[i].weight);
    for (int v = 0; v < V_COUNT; v++)
        f->backend->tensor_free(f->config.device, &f->values[v]);
    f->backend->tensor_free(f->config.device, &f->head_x);
    f->backend->tensor_free(f->config.device, &f->angles);
    if (f->stream)
        f->backend->stream_destroy(&f->stream);
    free(f->loaded);
    free(f->steps);
    free(f->positions);
    free(f);
}

/* ---- running
 * ----------------------------------------------------------------------------------------------------
 */

static struct tensor value(const struct forward *f, enum graph_value v, bool in_head)
{
    return in_head && v == V_X ? f->head_x : f->values[v];
}

static void run_step(struct forward *f, const struct step *s, const struct forward_batch *b,
                     uint32_t rows, bool in_head)
{
    const struct backend *k = f->backend;
    const struct model_config *m = f->config.model;
    const struct graph_op *op = s->op;
    struct tensor in = value(f, op->in, in_head), out = value(f, op->out, in_head);
    const int *width = f->config.graph->value_width;
    switch (op->kind) {
    case OP_EMBED: k->embed(f->stream, s->weight, in, rows, out); break;
    case OP_RMS_NORM: k->rms_norm(f->stream, in, s->weight, m->norm_epsilon, rows, out); break;
    case OP_MATMUL: k->matmul(f->stream, in, s->weight, s->bias, rows, op->accumulate, out); break;
    case OP_ROPE:
        k->rope(f->stream, &m->rope, f->angles, rows, width[op->out] / m->head_dim, m->head_dim,
                out);
        break;
    case OP_ATTENTION:
        k->kv_append(f->stream, b->kv, b->kv_pool, s->kv_block, b->runs, b->n_runs, f->values[V_K],
                     f->values[V_V]);
        k->attention(f->stream, b->kv, b->kv_pool, s->kv_block, b->runs, b->n_runs,
                     width[op->out] / m->head_dim, in, out);
        break;
    case OP_SILU_MUL:
        k->silu_mul(f->stream, in, value(f, op->in2, in_head),
                    (uint64_t)rows * (uint64_t)width[op->out], out);
        break;
    case OP_KIND_COUNT: break; /* not an operator */
    }
}

static void prepare(struct forward *f, const struct forward_batch *b)
{
    for (int i = 0; i < b->n_runs; i++)
        for (uint32_t t = 0; t < b->runs[i].n_tokens; t++)
            f->positions[b->runs[i].first_row + t] = b->runs[i].first_position + t;
    if (f->rope_pairs > 0)
        f->backend->rope_angles(f->stream, &f->config.model->rope, f->positions, b->rows,
                                f->angles);
}

static void write_input(struct forward *f, const struct forward_batch *b)
{
    enum graph_value first = f->steps[0].op->kind == OP_EMBED ? V_IDS : V_X;
    f->backend->tensor_write(f->stream, f->values[first], 0, b->input,
                             (uint64_t)b->rows * (uint64_t)f->config.graph->value_width[first] *
                                 sizeof(float));
}

/* The head, on the rows that are asked for, a few at a time. */
static void run_head(struct forward *f, const struct forward_batch *b)
{
    const int *width = f->config.graph->value_width;
    uint32_t step = value_rows(&f->config, V_LOGITS);
    for (uint32_t r = 0; r < b->n_logit_rows; r += step) {
        uint32_t rows = b->n_logit_rows - r < step ? b->n_logit_rows - r : step;
        f->backend->gather_rows(f->stream, f->values[V_X], b->logit_rows + r, rows,
                                (uint32_t)width[V_X], f->head_x);
        for (int i = f->first_step_of_head; i < f->n_steps; i++)
            run_step(f, &f->steps[i], b, rows, true);
        f->backend->tensor_read(f->stream, f->values[V_LOGITS], 0,
                                b->output + (size_t)r * (size_t)width[V_LOGITS],
                                (uint64_t)rows * (uint64_t)width[V_LOGITS] * sizeof(float));
    }
}

int forward_run(struct forward *f, const struct forward_batch *b, struct err *e)
{
    assert(b->rows > 0 && b->rows <= f->config.max_rows);
    prepare(f, b);
    write_input(f, b);
    for (int i = 0; i < f->first_step_of_head; i++)
        run_step(f, &f->steps[i], b, b->rows, false);
    if (f->first_step_of_head < f->n_steps)
        run_head(f, b);
    else
        f->backend->tensor_read(f->stream, f->values[V_X], 0, b->output,
                                (uint64_t)b->rows * (uint64_t)f->config.graph->value_width[V_X] *
                                    sizeof(float));
    return f->backend->stream_wait(f->stream, e);
}
