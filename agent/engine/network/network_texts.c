/* What networks of language models have beside ONNX's operators (model/onnx/rows.h). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "agent/engine/network/network_int.h"
#include "model/onnx/call.h"

/* ---- operators of the model's graph ---- */

struct rows_step {
    const struct onnx_rows *of;
    int64_t rows;
    struct network_view in[OP_INPUTS_MAX], out;
};

static int rows_ready(struct network_plan *p, const struct network_step *s, struct err *e)
{
    const struct rows_step *r = s->data;
    return network_rows_load(p->facts->rows, p->nn, r->of, e);
}

/* Elements of `in` may have any size: it is read from its root's beginning on. */
static const void *input_at(const struct network_plan *p, const struct network_view *v, size_t each)
{
    return (const char *)network_root_data(p, v->root) + (size_t)v->offset * each;
}

static int rows_run(struct network_plan *p, const struct network_step *s, struct err *e)
{
    const struct rows_step *r = s->data;
    const void *in[OP_INPUTS_MAX];
    size_t each = r->of->op->kind == OP_EMBED ? sizeof(int64_t) : sizeof(float);
    for (int i = 0; i < r->of->op->n_inputs; i++)
        in[i] = input_at(p, &r->in[i], each);
    return network_rows_run(p->facts->rows, p->nn, r->of, in, r->rows, network_out(p, &r->out), e);
}

/* The operator's route says by number where it writes: what others have sent is looked at. */
static int route_check(struct network_plan *p, const struct rows_step *r, struct err *e)
{
    const struct network_view *route = &r->in[1];
    return r->of->op->kind == OP_EXPERT_MATMUL && p->roots[route->root].is_here
               ? network_rows_route_check(r->of, network_in(p, route), r->rows, e)
               : 0;
}

/* A table is read where it lies, and its rows go to the device. */
static int table_run_here(struct network_plan *p, const struct network_step *s, struct err *e)
{
    const struct rows_step *r = s->data;
    int rc = network_here_in(p, r->in[0].root, e);
    rc = rc < 0 ? rc : network_here_out(p, r->out.root, e);
    return rc < 0 ? rc : rows_run(p, s, e);
}

static int rows_run_there(struct network_plan *p, const struct network_step *s, struct err *e)
{
    const struct rows_step *r = s->data;
    const void *in[OP_INPUTS_MAX];
    if (r->of->op->kind == OP_EMBED)
        return table_run_here(p, s, e);
    int rc = route_check(p, r, e);
    if (rc < 0)
        return rc;
    for (int i = 0; i < r->of->op->n_inputs; i++)
        in[i] = network_there_in(p, &r->in[i]);
    return network_rows_put(p->facts->rows, r->of, in, r->rows, network_there_out(p, &r->out), e);
}

int network_lower_rows(struct network_plan *p, int node, const struct onnx_call *c, struct err *e)
{
    const struct onnx_node *k = c->node;
    struct rows_step *r = calloc(1, sizeof *r);
    struct nn_view dense = network_sizes(&p->values[k->outputs[0]].array);
    int rc = 0;
    if (!r)
        return err_no_memory(e, "a step");
    r->of = onnx_rows_of(c->in[0]);
    r->rows = dense.dims[0];
    for (int i = 0; i < r->of->op->n_inputs && rc == 0; i++)
        rc = network_need(p, k->inputs[1 + i], LAYOUT_PLAIN, &r->in[i], e);
    rc = rc < 0 ? rc : network_make_view(p, k->outputs[0], &dense, &r->out, e);
    if (rc < 0) {
        free(r);
        return rc;
    }
    for (int i = 0; i < r->of->op->n_inputs; i++)
        network_root_use(p, r->in[i].root);
    network_root_use(p, r->out.root);
    rc = network_step_add(p,
                          &(struct network_step){.run = rows_run,
                                                 .run_there = rows_run_there,
                                                 .ready = rows_ready,
                                                 .free = free,
                                                 .data = r,
                                                 .name = op_kind_info(r->of->op->kind)->name,
                                                 .node = node},
                          e);
    return rc < 0 ? rc : 1;
}

/* ---- scores ---- */

struct causal_step {
    int64_t rows, tokens, heads, window;
    struct network_view in, sinks, out; /* sinks.root -1: none */
};

static void row_hide(const struct causal_step *c, int64_t row, const float *from, float *to)
{
    int64_t own = row % c->tokens, first = onnx_causal_first(own, c->window);
    for (int64_t k = 0; k < first; k++)
        to[k] = ONNX_CAUSAL_HIDDEN;
    memcpy(to + first, from + first, (size_t)(own + 1 - first) * sizeof *to);
    for (int64_t k = own + 1; k < c->tokens; k++)
        to[k] = ONNX_CAUSAL_HIDDEN;
}

static void causal_part(void *ctx, int part, int parts)
{
    struct network_job *job = ctx;
    const struct causal_step *c = job->data;
    const float *sinks = c->sinks.root < 0 ? NULL : network_in(job->p, &c->sinks);
    int64_t first = c->rows * part / parts, end = c->rows * (part + 1) / parts,
            columns = c->tokens + (sinks != NULL);
    const float *from = network_in(job->p, &c->in) + first * c->tokens;
    float *to = network_out(job->p, &c->out) + first * columns;
    for (int64_t r = first; r < end; r++, from += c->tokens, to += columns) {
        row_hide(c, r, from, to);
        if (sinks)
            to[c->tokens] = sinks[r / c->tokens % c->heads];
    }
}

static int causal_run(struct network_plan *p, const struct network_step *s, struct err *e)
{
    const struct causal_step *c = s->data;
    (void)e;
    network_job_run(p, s, c->rows * c->tokens, causal_part);
    return 0;
}

static int causal_run_there(struct network_plan *p, const struct network_step *s, struct err *e)
{
    const struct causal_step *c = s->data;
    const struct network_device *d = p->facts->device;
    const struct array_causal a = {.x = network_there_in(p, &c->in),
                                   .sinks =
                                       c->sinks.root < 0 ? NULL : network_there_in(p, &c->sinks),
                                   .out = network_there_out(p, &c->out),
                                   .rows = c->rows,
                                   .tokens = c->tokens,
                                   .heads = c->heads,
                                   .window = c->window,
                                   .hidden = ONNX_CAUSAL_HIDDEN};
    (void)e;
    d->arrays->causal(d->stream, &a);
    return 0;
}

int network_lower_causal(struct network_plan *p, int node, const struct onnx_call *c, struct err *e)
{
    const struct onnx_node *k = c->node;
    const struct ndarray *x = c->in[0];
    struct nn_view dense = network_sizes(&p->values[k->outputs[0]].array);
    struct causal_step *s = calloc(1, sizeof *s);
    if (!s)
        return err_no_memory(e, "a step");
    *s = (struct causal_step){.rows = x->dims[0] * x->dims[1] * x->dims[2],
                              .tokens = x->dims[3],
                              .heads = x->dims[1] * call_int(c, "group", 1),
                              .window = call_int(c, "window", 0),
                              .sinks.root = -1};
    int rc = network_need(p, k->inputs[0], LAYOUT_PLAIN, &s->in, e);
    if (rc == 0 && call_in(c, 1))
        rc = network_need(p, k->inputs[1], LAYOUT_PLAIN, &s->sinks, e);
    rc = rc < 0 ? rc : network_make_view(p, k->outputs[0], &dense, &s->out, e);
    if (rc < 0) {
        free(s);
        return rc;
    }
    network_root_use(p, s->in.root);
    if (s->sinks.root >= 0)
        network_root_use(p, s->sinks.root);
    network_root_use(p, s->out.root);
    struct network_step step = {.run = causal_run,
                                .run_there = causal_run_there,
                                .free = free,
                                .data = s,
                                .name = "causal",
                                .node = node};
    rc = network_step_add(p, &step, e);
    return rc < 0 ? rc : 1;
}

/* ---- scores of tokens ---- */

enum { SCORE_ROWS = 64 /* that are multiplied at a time */ };

struct scores_step {
    const struct onnx_rows *of;
    struct onnx_scoring how;
    int64_t rows, width, n; /* n: numbers that the product gives of a row */
    struct network_view x, ids, wanted, out;
    struct network_view some, logits; /* room for SCORE_ROWS of each */
};

static int scores_ready(struct network_plan *p, const struct network_step *s, struct err *e)
{
    const struct scores_step *o = s->data;
    return network_rows_load(p->facts->rows, p->nn, o->of, e);
}

/* Rows that were multiplied together. */
struct scores_job {
    struct network_plan *p;
    const struct scores_step *o;
    int64_t rows[SCORE_ROWS]; /* which they are */
    int n;
};

static void row_score(const struct scores_job *j, int i)
{
    const struct nn_kernels *k = j->p->kernels;
    const struct scores_step *o = j->o;
    float *logits = network_out(j->p, &o->logits) + i * o->n,
          *out = network_out(j->p, &o->out) + j->rows[i] * ONNX_SCORE_COLUMNS;
    const int64_t *ids = input_at(j->p, &o->ids, sizeof *ids);
    size_t n = (size_t)o->n, best = 0;
    onnx_scores_cap(&o->how, logits, o->n);
    float most = k->largest(logits, n), own = logits[ids[j->rows[i]]];
    while (best + 1 < n && logits[best] != most)
        best++;
    k->unary(NN_SCALE, 1, -most, logits, logits, n);
    k->unary(NN_EXPONENT, 0, 0, logits, logits, n);
    float all = logf(k->sum(logits, n));
    out[ONNX_SCORE] = own - most - all;
    out[ONNX_SCORE_BEST] = (float)best;
    out[ONNX_SCORE_OF_BEST] = -all;
}

static void scores_part(void *ctx, int part, int parts)
{
    const struct scores_job *j = ctx;
    for (int i = j->n * part / parts; i < j->n * (part + 1) / parts; i++)
        row_score(j, i);
}

static int job_run(struct scores_job *j, struct err *e)
{
    const struct scores_step *o = j->o;
    struct network_plan *p = j->p;
    const float *x = network_in(p, &o->x);
    float *some = network_out(p, &o->some);
    const void *in[] = {some};
    for (int i = 0; i < j->n; i++)
        memcpy(some + i * o->width, x + j->rows[i] * o->width, (size_t)o->width * sizeof *x);
    int rc = j->n ? network_rows_run(p->facts->rows, p->nn, o->of, in, j->n,
                                     network_out(p, &o->logits), e)
                  : 0;
    if (rc == 0)
        nn_parts_run(p->nn, j->n * o->n, scores_part, j);
    j->n = 0;
    return rc;
}

static int scores_run(struct network_plan *p, const struct network_step *s, struct err *e)
{
    const struct scores_step *o = s->data;
    const int64_t *wanted = input_at(p, &o->wanted, sizeof *wanted);
    struct scores_job j = {.p = p, .o = o};
    int rc = onnx_scores_check(input_at(p, &o->ids, sizeof(int64_t)), o->rows, o->n, e);
    memset(network_out(p, &o->out), 0, (size_t)(o->rows * ONNX_SCORE_COLUMNS) * sizeof(float));
    for (int64_t r = 0; r < o->rows && rc == 0; r++) {
        if (wanted[r])
            j.rows[j.n++] = r;
        if (j.n == SCORE_ROWS)
            rc = job_run(&j, e);
    }
    return rc < 0 ? rc : job_run(&j, e);
}

/* All rows, so many at a time. */
static int scores_run_there(struct network_plan *p, const struct network_step *s, struct err *e)
{
    const struct scores_step *o = s->data;
    const struct network_device *d = p->facts->device;
    int rc = network_here_in(p, o->ids.root, e);
    rc = rc < 0 ? rc : onnx_scores_check(input_at(p, &o->ids, sizeof(int64_t)), o->rows, o->n, e);
    for (int64_t r = 0; r < o->rows && rc == 0; r += SCORE_ROWS) {
        int64_t n = o->rows - r < SCORE_ROWS ? o->rows - r : SCORE_ROWS;
        const void *in[] = {network_there_in(p, &o->x) + r * o->width};
        float *logits = network_there_out(p, &o->logits);
        const struct array_scores c = {
            .x = logits,
            .ids = (const int64_t *)(const void *)network_there_in(p, &o->ids) + r,
            .wanted = (const int64_t *)(const void *)network_there_in(p, &o->wanted) + r,
            .out = network_there_out(p, &o->out) + r * ONNX_SCORE_COLUMNS,
            .rows = n,
            .n = o->n,
            .scale = o->how.scale,
            .cap = o->how.cap};
        rc = network_rows_put(p->facts->rows, o->of, in, n, logits, e);
        if (rc == 0)
            d->arrays->scores(d->stream, &c);
    }
    return rc;
}

static int scores_views(struct network_plan *p, const struct onnx_node *k, struct scores_step *o,
                        struct err *e)
{
    struct nn_view dense = network_sizes(&p->values[k->outputs[0]].array);
    int64_t some = o->rows < SCORE_ROWS ? o->rows : SCORE_ROWS;
    int rc = network_need(p, k->inputs[1], LAYOUT_PLAIN, &o->x, e);
    rc = rc < 0 ? rc : network_need(p, k->inputs[2], LAYOUT_PLAIN, &o->ids, e);
    rc = rc < 0 ? rc : network_need(p, k->inputs[3], LAYOUT_PLAIN, &o->wanted, e);
    rc = rc < 0 ? rc : network_make_view(p, k->outputs[0], &dense, &o->out, e);
    for (int i = 0; i < 2 && rc >= 0; i++) {
        struct network_view *room = i ? &o->logits : &o->some;
        int64_t each = i ? o->n : o->width;
        *room = (struct network_view){.v = {1, {some * each}, {1}}};
        room->root = rc = network_root_new(p, (uint64_t)(some * each) * sizeof(float), e);
    }
    return rc < 0 ? rc : 0;
}

int network_lower_scores(struct network_plan *p, int node, const struct onnx_call *c, struct err *e)
{
    const struct onnx_node *k = c->node;
    struct scores_step *o = calloc(1, sizeof *o);
    if (!o)
        return err_no_memory(e, "a step");
    *o = (struct scores_step){.of = onnx_rows_of(c->in[0]),
                              .how = onnx_scoring_of(c),
                              .rows = c->in[1]->dims[0],
                              .width = c->in[1]->dims[1]};
    o->n = (int64_t)graph_value_width(&o->of->graph->values[o->of->op->outputs[0]]);
    int rc = scores_views(p, k, o, e);
    if (rc < 0) {
        free(o);
        return rc;
    }
    const struct network_view *used[] = {&o->x, &o->ids, &o->wanted, &o->out, &o->some, &o->logits};
    for (size_t i = 0; i < sizeof used / sizeof *used; i++)
        network_root_use(p, used[i]->root);
    struct network_step step = {.run = scores_run,
                                .run_there = scores_run_there,
                                .ready = scores_ready,
                                .free = free,
                                .data = o,
                                .name = "scores",
                                .node = node};
    rc = network_step_add(p, &step, e);
    return rc < 0 ? rc : 1;
}
