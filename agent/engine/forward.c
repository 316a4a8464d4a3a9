#include "agent/engine/forward.h"

#include <assert.h>
#include <stdlib.h>

#include "common/env.h"

struct forward {
    struct forward_config config;
    struct section_run *run;
    uint32_t *positions[FORWARD_DEPTH]; /* [max_rows], of the batches under way */
    int turn;                           /* whose positions are next */
    uint32_t long_from; /* sequences that may reach more are long ones to the rotation */
};

/* ---- what the layers need ---- */

static struct section_config section_config_of(const struct forward_config *c)
{
    struct section_config s = c->section;
    s.sizes[GRAPH_TOKENS] = c->max_rows;
    s.sizes[GRAPH_WANTED] = c->max_rows < FORWARD_LOGIT_ROWS ? c->max_rows : FORWARD_LOGIT_ROWS;
    return s;
}

int forward_footprint(const struct forward_config *c, struct section_need *out, struct err *e)
{
    struct section_config s = section_config_of(c);
    return section_footprint(&s, out, e);
}

/* ---- making it ready ---- */

/* UINT32_MAX where all sequences rotate alike. */
static uint32_t long_from_of(const struct forward *f)
{
    const struct graph_section *s = section_run_plan(f->run);
    for (int i = 0; i < s->n_ops; i++)
        if (s->ops[i]->kind == OP_ROPE_ANGLES && s->ops[i]->u.rope.config->long_factors)
            return (uint32_t)s->ops[i]->u.rope.config->long_from;
    return UINT32_MAX;
}

int forward_create(const struct forward_config *c, struct forward **out, struct err *e)
{
    struct section_config s = section_config_of(c);
    struct forward *f = calloc(1, sizeof *f);
    if (!f)
        return err_set(e, HP_ENOMEM, "no memory for a stage");
    f->config = *c;
    int rc = section_run_create(&s, &f->run, e);
    f->config.section.kv = NULL; /* the caller's */
    for (int i = 0; i < FORWARD_DEPTH && rc == 0; i++)
        if (!(f->positions[i] = calloc(c->max_rows, sizeof *f->positions[i])))
            rc = err_set(e, HP_ENOMEM, "no memory for the positions of %u tokens", c->max_rows);
    f->long_from = rc < 0 ? 0 : long_from_of(f);
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
    section_run_destroy(&f->run);
    for (int i = 0; i < FORWARD_DEPTH; i++)
        free(f->positions[i]);
    free(f);
}

struct section_run *forward_section(const struct forward *f)
{
    return f->run;
}

/* Learned positions are rows of a table. */
uint32_t forward_positions(const struct forward *f)
{
    const struct graph *g = f->config.section.graph;
    const struct graph_section *s = section_run_plan(f->run);
    uint64_t most = UINT32_MAX;
    for (int i = 0; i < s->n_ops; i++) {
        const struct graph_op *op = s->ops[i];
        uint64_t first = op->kind == OP_EMBED ? (uint64_t)op->u.embed.first : 0;
        if (op->kind == OP_EMBED && g->values[op->inputs[0]].origin == VALUE_BATCH &&
            op->weights[0]->shape[0] - first < most)
            most = op->weights[0]->shape[0] - first;
    }
    return (uint32_t)most;
}

bool forward_rotates_long(const struct forward *f, uint32_t most_tokens)
{
    return most_tokens > f->long_from;
}

struct stream *forward_stream(const struct forward *f)
{
    return section_run_stream(f->run);
}

/* ---- running ---- */

/* What the batch gives: positions, and later the rows that are wanted. */
static void given_write(struct forward *f, enum graph_symbol symbol, const uint32_t *numbers)
{
    const struct graph_section *s = section_run_plan(f->run);
    for (int i = 0; i < s->n_given; i++)
        if (s->graph->values[s->given[i]].dims[0].symbol == (int)symbol)
            section_run_copy(f->run, &s->given[i], 1, section_run_rows(f->run, symbol), DTYPE_U32,
                             (void *)(uintptr_t)numbers, false);
}

static const uint32_t *positions_fill(struct forward *f, const struct forward_batch *b)
{
    uint32_t *positions = f->positions[f->turn];
    f->turn = (f->turn + 1) % FORWARD_DEPTH;
    for (int i = 0; i < b->n_runs; i++) {
        uint32_t of_long =
            forward_rotates_long(f, b->runs[i].most_tokens) ? GRAPH_POSITION_LONG : 0;
        for (uint32_t t = 0; t < b->runs[i].n_tokens; t++)
            positions[b->runs[i].first_row + t] = (b->runs[i].first_position + t) | of_long;
    }
    return positions;
}

/* Which rows the head works on: at most FORWARD_LOGIT_ROWS. */
static void head_rows_set(struct forward *f, const uint32_t *wanted, uint32_t rows)
{
    section_run_resize(f->run, GRAPH_WANTED, rows);
    given_write(f, GRAPH_WANTED, wanted);
}

static void head_run(struct forward *f, const uint32_t *wanted, uint32_t rows,
                     const struct op_batch *batch)
{
    const struct graph_section *s = section_run_plan(f->run);
    head_rows_set(f, wanted, rows);
    section_run_ops(f->run, s->first_wanted_op, s->n_ops, batch);
}

/* What the head has found. */
static void head_copy(struct forward *f, uint32_t rows, float *to)
{
    const struct graph_section *s = section_run_plan(f->run);
    section_run_copy(f->run, s->outputs, s->n_outputs, rows, DTYPE_F32, to, true);
}

/* The tokens of its rows, from the so manieth of the batch on. Rows of a device that does not pick
 * are copied, and in doubt. */
static void head_sample(struct forward *f, const struct forward_sampling *how, uint32_t first,
                        uint32_t rows, float *to)
{
    const struct graph_section *s = section_run_plan(f->run);
    const struct backend *backend = f->config.section.device->backend;
    struct tensor logits = section_run_value(f->run, s->outputs[0], rows);
    if (s->n_outputs == 1 && backend->sample &&
        backend->sample(section_run_stream(f->run), &logits, how->asks + first, how->picked + first,
                        to))
        return;
    for (uint32_t i = 0; i < rows; i++)
        how->picked[first + i] = SAMPLE_IN_DOUBT;
    head_copy(f, rows, to);
}

/* The rows that are looked at: the next ones come once these have been. */
static void scored_run(struct forward *f, const struct forward_batch *b,
                       const struct op_batch *batch)
{
    const struct backend *backend = f->config.section.device->backend;
    const struct forward_scoring *s = b->scoring;
    uint32_t most = s && s->n_rows < FORWARD_LOGIT_ROWS ? s->n_rows : FORWARD_LOGIT_ROWS, rows;
    for (uint32_t r = 0; s && r < b->n_scored_rows; r += rows) {
        rows = b->n_scored_rows - r < most ? b->n_scored_rows - r : most;
        head_run(f, b->scored_rows + r, rows, batch);
        head_copy(f, rows, s->rows);
        if (backend->stream_wait(section_run_stream(f->run), b->failure) < 0)
            return;
        s->see(s->ctx, r, rows, s->rows);
    }
}

/* What the head has found of rows that are asked for, from the so manieth on. */
static void head_take(struct forward *f, const struct forward_batch *b, uint32_t first,
                      uint32_t rows, float *to)
{
    if (b->sampling)
        head_sample(f, b->sampling, first, rows, to);
    else
        head_copy(f, rows, to);
}

/* The head, on the rows that are asked for, a few at a time. */
static void wanted_run(struct forward *f, const struct forward_batch *b,
                       const struct op_batch *batch)
{
    const struct graph_section *s = section_run_plan(f->run);
    float *to = b->output;
    for (uint32_t r = 0, rows; r < b->n_logit_rows; r += rows) {
        rows = b->n_logit_rows - r < FORWARD_LOGIT_ROWS ? b->n_logit_rows - r : FORWARD_LOGIT_ROWS;
        head_run(f, b->logit_rows + r, rows, batch);
        head_take(f, b, r, rows, to);
        for (int i = 0; i < s->n_outputs; i++)
            to += rows * graph_value_width(&s->graph->values[s->outputs[i]]);
    }
}

static void layers_time(struct forward *f, const struct forward_batch *b, int end,
                        const struct op_batch *batch)
{
    struct forward_timing *t = b->timing;
    const struct backend *backend = f->config.section.device->backend;
    struct stream *s = section_run_stream(f->run);
    backend->stream_wait(s, b->failure);
    uint64_t from = env_now_ns(&env_real);
    for (uint32_t i = 0; i < t->repeats; i++)
        section_run_ops(f->run, 0, end, batch);
    backend->stream_wait(s, b->failure);
    t->seconds = (double)(env_now_ns(&env_real) - from) * 1e-9 / t->repeats;
}

/* ---- rows in the device's memory ---- */

/* A value's rows [first, first + n) there; *at is where the value begins, and becomes where the
 * next does. */
static struct tensor device_rows(struct forward *f, const struct forward_device_rows *d, int value,
                                 uint64_t *at)
{
    const struct graph_value *v = &f->config.section.graph->values[value];
    struct tensor t = tensor_rows(d->memory, graph_value_border(v, f->config.border), d->rows,
                                  graph_value_width(v));
    t.offset = *at;
    *at += dtype_bytes(t.dtype, d->rows * graph_value_width(v));
    return t;
}

static struct tensor rows_cut(struct tensor t, uint64_t first, uint64_t n)
{
    t.offset += dtype_bytes(t.dtype, first * t.strides[0]);
    t.shape[0] = n;
    return t;
}

static void device_rows_give(struct forward *f, const struct forward_batch *b)
{
    const struct graph_section *s = section_run_plan(f->run);
    const struct backend *backend = f->config.section.device->backend;
    uint64_t at = 0;
    for (int i = 0; i < s->n_outputs; i++) {
        struct tensor there = device_rows(f, &b->to, s->outputs[i], &at),
                      here = section_run_value(f->run, s->outputs[i], b->rows);
        backend->copy(section_run_stream(f->run), &there, &here);
    }
}

static void device_rows_take(struct forward *f, const struct forward_batch *b)
{
    const struct graph_section *s = section_run_plan(f->run);
    const struct backend *backend = f->config.section.device->backend;
    uint64_t at = 0;
    for (int i = 0; i < s->n_inputs; i++) {
        struct tensor there = device_rows(f, &b->from, s->inputs[i], &at),
                      here = section_run_value(f->run, s->inputs[i], b->rows);
        for (int k = 0; k < (b->from.first_rows ? b->n_runs : 1); k++) {
            const struct attention_run *r = &b->runs[k];
            bool all = !b->from.first_rows;
            struct tensor from = rows_cut(there, all ? 0 : b->from.first_rows[k],
                                          all ? b->rows : r->n_tokens),
                          to = rows_cut(here, all ? 0 : r->first_row, from.shape[0]);
            backend->copy(section_run_stream(f->run), &to, &from);
        }
    }
}

/* Operators up to `end`. */
static void layers_run(struct forward *f, const struct forward_batch *b, int end,
                       const struct op_batch *batch)
{
    if (b->timing)
        layers_time(f, b, end, batch);
    else
        section_run_ops(f->run, 0, end, batch);
}

/* Layers and head put on the stream as one: a step of decode. */
static bool whole_fits(const struct forward *f, const struct forward_batch *b)
{
    const struct graph_section *s = section_run_plan(f->run);
    return s->first_wanted_op < s->n_ops && b->n_logit_rows > 0 &&
           b->n_logit_rows <= FORWARD_LOGIT_ROWS && (!b->scoring || b->n_scored_rows == 0);
}

static void whole_run(struct forward *f, const struct forward_batch *b,
                      const struct op_batch *batch)
{
    head_rows_set(f, b->logit_rows, b->n_logit_rows);
    layers_run(f, b, section_run_plan(f->run)->n_ops, batch);
    head_take(f, b, 0, b->n_logit_rows, b->output);
}

/* The layers, and then the head where they end with it. */
static void parts_run(struct forward *f, const struct forward_batch *b,
                      const struct op_batch *batch)
{
    const struct graph_section *s = section_run_plan(f->run);
    layers_run(f, b, s->first_wanted_op, batch);
    if (s->first_wanted_op < s->n_ops) {
        scored_run(f, b, batch);
        wanted_run(f, b, batch);
    } else if (b->to.memory.data) {
        device_rows_give(f, b);
    } else {
        section_run_copy(f->run, s->outputs, s->n_outputs, b->rows, f->config.border, b->output,
                         true);
    }
}

void forward_submit(struct forward *f, const struct forward_batch *b, struct event *done)
{
    const struct graph_section *s = section_run_plan(f->run);
    const struct op_batch batch = {.runs = b->runs,
                                   .n_runs = b->n_runs,
                                   .kv = b->kv,
                                   .experts_by_lot = f->config.experts_by_lot};
    assert(b->rows > 0 && b->rows <= f->config.max_rows);
    section_run_resize(f->run, GRAPH_TOKENS, b->rows);
    given_write(f, GRAPH_TOKENS, positions_fill(f, b));
    if (b->from.memory.data)
        device_rows_take(f, b);
    else
        section_run_copy(f->run, s->inputs, s->n_inputs, b->rows, f->config.border,
                         (void *)(uintptr_t)b->input, false);
    if (whole_fits(f, b))
        whole_run(f, b, &batch);
    else
        parts_run(f, b, &batch);
    f->config.section.device->backend->event_record(done, section_run_stream(f->run));
}
