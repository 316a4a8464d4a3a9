#include "agent/engine/forward.h"

#include <assert.h>
#include <stdlib.h>

#include "agent/engine/forward_plan.h"
#include "agent/engine/section_tensor.h"

/* An operator made ready. */
struct step {
    const struct graph_op *row;
    struct device_op *op; /* NULL: a view, nothing to run */
    struct tensor inputs[OP_INPUTS_MAX], out;
};

struct forward {
    struct forward_config config;
    const struct backend *backend;
    struct stream *stream;
    struct forward_plan plan;
    struct memory *buffers;                 /* [plan.section.n_buffers] */
    struct device_weight **weights;         /* [plan.n_weights] */
    struct step *steps;                     /* [plan.section.n_ops] */
    uint32_t *positions[FORWARD_DEPTH];     /* [max_rows], of the batches under way */
    int turn;                               /* whose positions are next */
    uint64_t sizes[GRAPH_SEQUENCE_SYMBOLS]; /* that the steps' tensors have now */
};

/* ---- what the layers need ---- */

int forward_footprint(const struct forward_config *c, uint64_t *weight_bytes,
                      uint64_t *activation_bytes, struct err *e)
{
    struct forward_plan plan;
    int rc = forward_plan_make(c, &plan, e);
    if (rc < 0)
        return rc;
    *weight_bytes = plan.weight_bytes;
    *activation_bytes = graph_section_bytes(&plan.section) + plan.scratch_bytes;
    forward_plan_free(&plan);
    return 0;
}

/* ---- making it ready ---- */

static int tables_alloc(struct forward *f, struct err *e)
{
    const struct graph_section *s = &f->plan.section;
    f->buffers = calloc((size_t)s->n_buffers, sizeof *f->buffers);
    f->weights = calloc((size_t)f->plan.n_weights + 1, sizeof *f->weights);
    f->steps = calloc((size_t)s->n_ops, sizeof *f->steps);
    bool positions = true;
    for (int i = 0; i < FORWARD_DEPTH; i++) {
        f->positions[i] = calloc(f->config.max_rows, sizeof *f->positions[i]);
        positions = positions && f->positions[i];
    }
    return f->buffers && f->weights && f->steps && positions
               ? 0
               : err_set(e, HP_ENOMEM, "no memory for the list of operators");
}

static int buffers_alloc(struct forward *f, struct err *e)
{
    int rc = 0;
    for (int i = 0; i < f->plan.section.n_buffers && rc == 0; i++)
        rc = f->backend->memory_alloc(f->config.device, f->plan.section.buffer_bytes[i],
                                      &f->buffers[i], e);
    return rc < 0 ? err_at(e, "activations of %u tokens", f->config.max_rows) : 0;
}

static int weights_load(struct forward *f, struct err *e)
{
    const struct forward_config *c = &f->config;
    uint64_t done = 0;
    for (int i = 0; i < f->plan.n_weights; i++) {
        const struct forward_weight *w = &f->plan.weights[i];
        if (c->stop && atomic_load(c->stop))
            return err_set(e, HP_ECANCELED, "loading was stopped");
        int rc = f->backend->weight_load(c->device, w->source, w->use, c->f32, &f->weights[i], e);
        if (rc < 0)
            return rc;
        done += w->resident_bytes;
        if (c->progress)
            c->progress(c->progress_ctx, done, f->plan.weight_bytes);
    }
    return 0;
}

static struct tensor tensor_of(const struct forward *f, int value, uint64_t rows)
{
    return section_tensor(&f->plan.section, f->buffers, value, rows);
}

/* blocks[group]: how many attentions of the group came before. */
static int step_make(struct forward *f, int i, int blocks[KV_GROUPS_MAX], struct err *e)
{
    struct step *step = &f->steps[i];
    const struct graph_op *op = step->row = f->plan.section.ops[i];
    struct op_request r = {.op = op};
    if (op->kind == OP_ATTENTION) {
        r.kv_group = kv_groups_find(f->config.kv, &op->u.attention);
        r.kv_block = blocks[r.kv_group]++;
    }
    for (int k = 0; k < op->n_weights; k++) {
        int row = f->plan.weight_of[i * OP_WEIGHTS_MAX + k];
        r.weights[k] = row < 0 ? NULL : f->weights[row];
    }
    for (int k = 0; k < op->n_inputs; k++)
        step->inputs[k] = tensor_of(f, op->inputs[k], 0);
    step->out = tensor_of(f, op->outputs[0], 0);
    return op_kind_info(op->kind)->is_view
               ? 0
               : f->backend->op_prepare(f->config.device, &r, &step->op, e);
}

static int steps_make(struct forward *f, struct err *e)
{
    int rc = 0, blocks[KV_GROUPS_MAX] = {0};
    for (int i = 0; i < f->plan.section.n_ops && rc == 0; i++)
        rc = step_make(f, i, blocks, e);
    return rc;
}

int forward_create(const struct forward_config *c, struct forward **out, struct err *e)
{
    struct forward *f = calloc(1, sizeof *f);
    if (!f)
        return err_set(e, HP_ENOMEM, "no memory for a stage");
    f->config = *c;
    f->backend = c->device->backend;
    int rc = forward_plan_make(c, &f->plan, e);
    if (rc == 0)
        rc = tables_alloc(f, e);
    if (rc == 0)
        rc = f->backend->stream_create(c->device, &f->stream, e);
    if (rc == 0)
        rc = buffers_alloc(f, e);
    if (rc == 0)
        rc = weights_load(f, e);
    if (rc == 0)
        rc = steps_make(f, e);
    f->config.kv = NULL;
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
    for (int i = 0; f->steps && i < f->plan.section.n_ops; i++)
        if (f->steps[i].op)
            f->backend->op_release(&f->steps[i].op);
    for (int i = 0; f->weights && i < f->plan.n_weights; i++)
        f->backend->weight_free(f->config.device, &f->weights[i]);
    for (int i = 0; f->buffers && i < f->plan.section.n_buffers; i++)
        f->backend->memory_release(f->config.device, &f->buffers[i]);
    if (f->stream)
        f->backend->stream_destroy(&f->stream);
    forward_plan_free(&f->plan);
    free(f->buffers);
    free(f->weights);
    free(f->steps);
    for (int i = 0; i < FORWARD_DEPTH; i++)
        free(f->positions[i]);
    free(f);
}

/* Learned positions are rows of a table. */
uint32_t forward_positions(const struct forward *f)
{
    const struct graph *g = f->config.graph;
    uint64_t most = UINT32_MAX;
    for (int i = 0; i < f->plan.section.n_ops; i++) {
        const struct graph_op *op = f->plan.section.ops[i];
        if (op->kind == OP_EMBED && g->values[op->inputs[0]].origin == VALUE_BATCH &&
            op->weights[0]->shape[0] < most)
            most = op->weights[0]->shape[0];
    }
    return (uint32_t)most;
}

struct stream *forward_stream(const struct forward *f)
{
    return f->stream;
}

/* ---- running ---- */

static void tensor_resize(const struct forward *f, struct tensor *t, int value)
{
    const struct graph_dim *rows = &f->config.graph->values[value].dims[0];
    t->shape[0] = rows->size ? rows->size : f->sizes[rows->symbol];
}

/* The steps work on so many rows of that symbol from now on. */
static void rows_set(struct forward *f, enum graph_symbol symbol, uint64_t rows)
{
    if (f->sizes[symbol] == rows)
        return;
    f->sizes[symbol] = rows;
    for (int i = 0; i < f->plan.section.n_ops; i++) {
        struct step *step = &f->steps[i];
        for (int k = 0; k < step->row->n_inputs; k++)
            tensor_resize(f, &step->inputs[k], step->row->inputs[k]);
        tensor_resize(f, &step->out, step->row->outputs[0]);
    }
}

static void steps_run(struct forward *f, int first, int end, const struct op_batch *batch)
{
    for (int i = first; i < end; i++)
        if (f->steps[i].op)
            f->backend->op_run(f->stream, f->steps[i].op, f->steps[i].inputs, &f->steps[i].out,
                               batch);
}

/* Rows of a value come from the host, or go there: `values` of a border follow each other, each
 * with all its rows. */
static void border_copy(struct forward *f, const int *values, int n, uint64_t rows, void *host,
                        bool to_host)
{
    uint8_t *at = host;
    for (int i = 0; i < n; i++) {
        struct tensor device = tensor_of(f, values[i], rows),
                      outside = tensor_on_host(at, device.dtype, rows, tensor_width(&device));
        if (to_host)
            f->backend->copy(f->stream, &outside, &device);
        else
            f->backend->copy(f->stream, &device, &outside);
        at += outside.memory.bytes;
    }
}

/* What the batch gives: positions, and later the rows that are wanted. */
static void given_write(struct forward *f, enum graph_symbol symbol, const uint32_t *numbers)
{
    const struct graph_section *s = &f->plan.section;
    for (int i = 0; i < s->n_given; i++)
        if (f->config.graph->values[s->given[i]].dims[0].symbol == (int)symbol)
            border_copy(f, &s->given[i], 1, f->sizes[symbol], (void *)(uintptr_t)numbers, false);
}

static const uint32_t *positions_fill(struct forward *f, const struct forward_batch *b)
{
    uint32_t *positions = f->positions[f->turn];
    f->turn = (f->turn + 1) % FORWARD_DEPTH;
    for (int i = 0; i < b->n_runs; i++)
        for (uint32_t t = 0; t < b->runs[i].n_tokens; t++)
            positions[b->runs[i].first_row + t] = b->runs[i].first_position + t;
    return positions;
}

/* The head, on the rows that are asked for, a few at a time. */
static void wanted_run(struct forward *f, const struct forward_batch *b,
                       const struct op_batch *batch)
{
    const struct graph_section *s = &f->plan.section;
    uint8_t *to = (uint8_t *)b->output;
    for (uint32_t r = 0, rows; r < b->n_logit_rows; r += rows) {
        rows = b->n_logit_rows - r < FORWARD_LOGIT_ROWS ? b->n_logit_rows - r : FORWARD_LOGIT_ROWS;
        rows_set(f, GRAPH_WANTED, rows);
        given_write(f, GRAPH_WANTED, b->logit_rows + r);
        steps_run(f, s->first_wanted_op, s->n_ops, batch);
        border_copy(f, s->outputs, s->n_outputs, rows, to, true);
        for (int i = 0; i < s->n_outputs; i++)
            to += graph_value_bytes(&f->config.graph->values[s->outputs[i]], f->sizes);
    }
}

void forward_submit(struct forward *f, const struct forward_batch *b, struct event *done)
{
    const struct graph_section *s = &f->plan.section;
    const struct op_batch batch = {.runs = b->runs, .n_runs = b->n_runs, .kv = b->kv};
    assert(b->rows > 0 && b->rows <= f->config.max_rows);
    rows_set(f, GRAPH_TOKENS, b->rows);
    given_write(f, GRAPH_TOKENS, positions_fill(f, b));
    border_copy(f, s->inputs, s->n_inputs, b->rows, (void *)(uintptr_t)b->input, false);
    steps_run(f, 0, s->first_wanted_op, &batch);
    if (s->first_wanted_op < s->n_ops)
        wanted_run(f, b, &batch);
    else
        border_copy(f, s->outputs, s->n_outputs, b->rows, b->output, true);
    f->backend->event_record(done, f->stream);
}
