#include "agent/engine/section_run.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>

#include "agent/engine/made_up.h"
#include "agent/engine/section_tensor.h"
#include "model/model.h"

/* Weights that come while operators run. */
struct section_arrivals {
    pthread_mutex_t lock; /* of all below */
    pthread_cond_t changed;
    int n_ready;   /* operators from the first on that may be run */
    bool promised; /* somebody fills it, or will */
    struct err failure;
    atomic_bool ends;
    atomic_ullong missing_bytes;
};

struct section_run {
    struct section_config config;
    const struct backend *backend;
    struct stream *stream;
    struct section_plan plan;
    struct memory *buffers;         /* [plan.section.n_buffers] */
    struct device_weight **weights; /* [plan.n_weights] */
    struct made_up *made_up;        /* [plan.n_weights] */
    struct op_call *calls;          /* [plan.section.n_ops] */
    struct op_request *requests;    /* [plan.section.n_ops]: of those calls */
    int n_loaded;                   /* weights, by whoever loads them */
    bool whole;                     /* all operators are ready, as the stream's owner knows */
    struct section_arrivals arrivals;
    uint64_t sizes[GRAPH_SEQUENCE_SYMBOLS]; /* that the calls' tensors have now */
};

/* ---- making it ready ---- */

static int tables_alloc(struct section_run *r, struct err *e)
{
    const struct graph_section *s = &r->plan.section;
    r->buffers = calloc((size_t)s->n_buffers + 1, sizeof *r->buffers);
    r->weights = calloc((size_t)r->plan.n_weights + 1, sizeof *r->weights);
    r->made_up = calloc((size_t)r->plan.n_weights + 1, sizeof *r->made_up);
    r->calls = calloc((size_t)s->n_ops + 1, sizeof *r->calls);
    r->requests = calloc((size_t)s->n_ops + 1, sizeof *r->requests);
    return r->buffers && r->weights && r->made_up && r->calls && r->requests
               ? 0
               : err_set(e, HP_ENOMEM, "no memory for the list of operators");
}

static int buffers_alloc(struct section_run *r, struct err *e)
{
    int rc = 0;
    for (int i = 0; i < r->plan.section.n_buffers && rc == 0; i++)
        rc = r->backend->memory_alloc(r->config.device, r->plan.section.buffer_bytes[i],
                                      &r->buffers[i], e);
    return rc < 0 ? err_at(e, "activations of layers %d to %d", r->config.first_layer,
                           r->config.end_layer - 1)
                  : 0;
}

/* The files of the weights that follow are read while one is packed. */
struct weights_ahead {
    int next;       /* the first that nobody has asked for */
    uint64_t bytes; /* of those that are asked for and not packed */
};

static void weights_want(const struct section_plan *p, struct weights_ahead *a)
{
    enum { AHEAD_BYTES = 64 << 20 };
    while (a->next < p->n_weights && a->bytes < AHEAD_BYTES) {
        const struct weight *w = p->weights[a->next++].source;
        backend_weight_want(w);
        a->bytes += w->bytes;
    }
}

static bool load_is_stopped(const struct section_run *r)
{
    const atomic_bool *stop = r->config.stop;
    return (stop && atomic_load(stop)) || atomic_load(&r->arrivals.ends);
}

static int weight_load(struct section_run *r, int i, struct err *e)
{
    const struct section_config *c = &r->config;
    const struct section_weight *w = &r->plan.weights[i];
    const struct weight *source = w->source;
    if (c->make_up && w->use != WEIGHT_ROWS) {
        made_up_make(source, &r->made_up[i]);
        source = r->made_up[i].memory ? &r->made_up[i].weight : source;
    }
    return r->backend->weight_load(c->device, source, w->use, w->f32, &r->weights[i], e);
}

/* The first `n` of all weights. */
static int weights_load(struct section_run *r, int n, struct weights_ahead *ahead, struct err *e)
{
    const struct section_config *c = &r->config;
    for (; r->n_loaded < n; r->n_loaded++) {
        const struct section_weight *w = &r->plan.weights[r->n_loaded];
        weights_want(&r->plan, ahead);
        if (load_is_stopped(r))
            return err_set(e, HP_ECANCELED, "loading was stopped");
        int rc = weight_load(r, r->n_loaded, e);
        if (rc == 0 && c->later && c->model)
            rc = model_check(c->model, e);
        if (rc < 0)
            return rc;
        ahead->bytes -= w->source->bytes;
        uint64_t missing = atomic_fetch_sub(&r->arrivals.missing_bytes, w->resident_bytes);
        if (c->progress)
            c->progress(c->progress_ctx, r->plan.weight_bytes - (missing - w->resident_bytes),
                        r->plan.weight_bytes);
    }
    return 0;
}

static uint64_t value_rows(const struct section_run *r, int value)
{
    const struct graph_dim *rows = &r->config.graph->values[value].dims[0];
    return rows->size ? rows->size : r->sizes[rows->symbol];
}

struct tensor section_run_value(const struct section_run *r, int value, uint64_t rows)
{
    return section_tensor(&r->plan.section, r->buffers, value, rows);
}

/* As op_call has it. */
static int last_reader_of(const struct graph_section *s, int i)
{
    int last = s->last_read[s->ops[i]->outputs[0]];
    return last > i && last < s->n_ops ? last - i : 0;
}

/* What each operator reads and writes. */
static void calls_place(struct section_run *r)
{
    int blocks[KV_GROUPS_MAX] = {0}; /* by group: how many attentions came before */
    for (int i = 0; i < r->plan.section.n_ops; i++) {
        struct op_call *call = &r->calls[i];
        const struct graph_op *op = r->plan.section.ops[i];
        r->requests[i] = (struct op_request){.op = op};
        if (op->kind == OP_ATTENTION) {
            r->requests[i].kv_group = kv_groups_find(r->config.kv, &op->u.attention);
            r->requests[i].kv_block = blocks[r->requests[i].kv_group]++;
        }
        for (int k = 0; k < op->n_inputs; k++)
            call->inputs[k] = section_run_value(r, op->inputs[k], value_rows(r, op->inputs[k]));
        call->out = section_run_value(r, op->outputs[0], value_rows(r, op->outputs[0]));
        call->last_reader = last_reader_of(&r->plan.section, i);
    }
}

/* With the weights that it reads, and those before them. */
static int call_prepare(struct section_run *r, int i, struct weights_ahead *ahead, struct err *e)
{
    const struct graph_op *op = r->plan.section.ops[i];
    const int *rows = r->plan.weight_of + (size_t)i * OP_WEIGHTS_MAX;
    int n = 0;
    for (int k = 0; k < op->n_weights; k++)
        n = rows[k] + 1 > n ? rows[k] + 1 : n;
    int rc = weights_load(r, n, ahead, e);
    for (int k = 0; k < op->n_weights; k++)
        r->requests[i].weights[k] = rows[k] < 0 ? NULL : r->weights[rows[k]];
    return rc < 0 || op_kind_info(op->kind)->is_view
               ? rc
               : r->backend->op_prepare(r->config.device, &r->requests[i], &r->calls[i].op, e);
}

static void arrivals_tell(struct section_arrivals *a, int n_ready)
{
    pthread_mutex_lock(&a->lock);
    a->n_ready = n_ready;
    pthread_cond_broadcast(&a->changed);
    pthread_mutex_unlock(&a->lock);
}

static int calls_prepare(struct section_run *r, struct err *e)
{
    struct weights_ahead ahead = {0};
    int rc = 0;
    for (int i = 0; i < r->plan.section.n_ops && rc == 0; i++) {
        rc = call_prepare(r, i, &ahead, e);
        if (rc == 0)
            arrivals_tell(&r->arrivals, i + 1);
    }
    return rc;
}

int section_run_create(const struct section_config *c, struct section_run **out, struct err *e)
{
    struct section_run *r = calloc(1, sizeof *r);
    if (!r)
        return err_set(e, HP_ENOMEM, "no memory for layers %d to %d", c->first_layer,
                       c->end_layer - 1);
    r->config = *c;
    r->backend = c->device->backend;
    pthread_mutex_init(&r->arrivals.lock, NULL);
    pthread_cond_init(&r->arrivals.changed, NULL);
    if (c->later)
        r->config.progress = NULL;
    int rc = section_plan_make(c, &r->plan, e);
    atomic_store(&r->arrivals.missing_bytes, r->plan.weight_bytes);
    if (rc == 0)
        rc = tables_alloc(r, e);
    if (rc == 0)
        rc = r->backend->stream_create(c->device, &r->stream, e);
    if (rc == 0 && r->backend->stream_reserve)
        rc = r->backend->stream_reserve(r->stream, r->plan.scratch_bytes, e);
    if (rc == 0)
        rc = buffers_alloc(r, e);
    if (rc == 0)
        calls_place(r);
    if (rc == 0 && !c->later)
        rc = calls_prepare(r, e);
    r->whole = !c->later;
    r->config.kv = NULL;
    if (rc < 0)
        section_run_destroy(&r);
    else
        *out = r;
    return rc;
}

static void arrivals_end(struct section_arrivals *a)
{
    atomic_store(&a->ends, true);
    pthread_mutex_lock(&a->lock);
    while (a->promised)
        pthread_cond_wait(&a->changed, &a->lock);
    pthread_mutex_unlock(&a->lock);
    pthread_mutex_destroy(&a->lock);
    pthread_cond_destroy(&a->changed);
}

void section_run_destroy(struct section_run **self)
{
    struct section_run *r = *self;
    *self = NULL;
    if (!r)
        return;
    arrivals_end(&r->arrivals);
    if (r->stream) /* first: what is under way on it ends */
        r->backend->stream_destroy(&r->stream);
    for (int i = 0; r->calls && i < r->plan.section.n_ops; i++)
        if (r->calls[i].op)
            r->backend->op_release(&r->calls[i].op);
    for (int i = 0; r->weights && i < r->plan.n_weights; i++)
        r->backend->weight_free(r->config.device, &r->weights[i]);
    for (int i = 0; r->made_up && i < r->plan.n_weights; i++)
        made_up_free(&r->made_up[i]);
    for (int i = 0; r->buffers && i < r->plan.section.n_buffers; i++)
        r->backend->memory_release(r->config.device, &r->buffers[i]);
    section_plan_free(&r->plan);
    free(r->buffers);
    free(r->weights);
    free(r->made_up);
    free(r->calls);
    free(r->requests);
    free(r);
}

/* ---- weights that come later ---- */

void section_run_promise(struct section_run *r)
{
    assert(r->config.later);
    pthread_mutex_lock(&r->arrivals.lock);
    r->arrivals.promised = true;
    pthread_mutex_unlock(&r->arrivals.lock);
}

int section_run_fill(struct section_run *r,
                     void (*progress)(void *ctx, uint64_t done_bytes, uint64_t total_bytes),
                     void *progress_ctx, struct err *e)
{
    struct section_arrivals *a = &r->arrivals;
    struct err failure = {0};
    r->config.progress = progress;
    r->config.progress_ctx = progress_ctx;
    int rc = calls_prepare(r, &failure);
    pthread_mutex_lock(&a->lock);
    a->failure = failure;
    a->promised = false; /* from here on it may be gone */
    pthread_cond_broadcast(&a->changed);
    pthread_mutex_unlock(&a->lock);
    if (rc < 0 && e)
        *e = failure;
    return rc;
}

uint64_t section_run_missing_bytes(const struct section_run *r)
{
    return atomic_load(&((struct section_run *)r)->arrivals.missing_bytes);
}

int section_run_failure(struct section_run *r, struct err *e)
{
    if (r->whole)
        return 0;
    pthread_mutex_lock(&r->arrivals.lock);
    struct err failure = r->arrivals.failure;
    pthread_mutex_unlock(&r->arrivals.lock);
    if (failure.code < 0 && e)
        *e = failure;
    return failure.code;
}

/* Operators that may be run, at least one more than `first`; else it has failed. */
static int calls_await(struct section_run *r, int first)
{
    struct section_arrivals *a = &r->arrivals;
    pthread_mutex_lock(&a->lock);
    while (a->n_ready <= first && a->failure.code == 0)
        pthread_cond_wait(&a->changed, &a->lock);
    int n = a->n_ready;
    pthread_mutex_unlock(&a->lock);
    r->whole = n == r->plan.section.n_ops;
    return n;
}

const struct graph_section *section_run_plan(const struct section_run *r)
{
    return &r->plan.section;
}

struct stream *section_run_stream(const struct section_run *r)
{
    return r->stream;
}

/* ---- running ---- */

uint64_t section_run_rows(const struct section_run *r, enum graph_symbol symbol)
{
    return r->sizes[symbol];
}

void section_run_resize(struct section_run *r, enum graph_symbol symbol, uint64_t rows)
{
    if (r->sizes[symbol] == rows)
        return;
    r->sizes[symbol] = rows;
    for (int i = 0; i < r->plan.section.n_ops; i++) {
        struct op_call *call = &r->calls[i];
        const struct graph_op *op = r->plan.section.ops[i];
        for (int k = 0; k < op->n_inputs; k++)
            call->inputs[k].shape[0] = value_rows(r, op->inputs[k]);
        call->out.shape[0] = value_rows(r, op->outputs[0]);
    }
}

static void steps_put(struct section_run *r, int first, int end, const struct op_batch *batch)
{
    const struct backend *b = r->backend;
    if (b->ops_run) {
        b->ops_run(r->stream, r->calls + first, end - first, batch);
        return;
    }
    for (int i = first; i < end; i++)
        if (r->calls[i].op)
            b->op_run(r->stream, r->calls[i].op, r->calls[i].inputs, &r->calls[i].out, batch);
}

/* What tells these steps from others: whether they begin with the section and where they end, and
 * how many rows their tensors have. */
static uint64_t steps_key(const struct section_run *r, int first, int end)
{
    bool wanted = end > r->plan.section.first_wanted_op;
    return (uint64_t)end << 48 | (uint64_t)(first > 0) << 47 |
           (wanted ? r->sizes[GRAPH_WANTED] : 0) << 24 | r->sizes[GRAPH_TOKENS];
}

/* Each as soon as its weights are there. */
static void arriving_put(struct section_run *r, int first, int end, const struct op_batch *batch)
{
    while (first < end) {
        int n = calls_await(r, first);
        if (n <= first)
            return;
        steps_put(r, first, n < end ? n : end, batch);
        first = n;
    }
}

void section_run_ops(struct section_run *r, int first, int end, const struct op_batch *batch)
{
    const struct backend *b = r->backend;
    if (!r->whole) {
        arriving_put(r, first, end, batch);
        return;
    }
    if (first >= end ||
        (b->steps_begin && b->steps_begin(r->stream, steps_key(r, first, end), batch)))
        return;
    steps_put(r, first, end, batch);
    if (b->steps_end && !b->steps_end(r->stream, batch))
        steps_put(r, first, end, batch);
}

void section_run_copy(struct section_run *r, const int *values, int n, uint64_t rows,
                      enum dtype outside, void *host, bool to_host)
{
    uint8_t *at = host;
    for (int i = 0; i < n; i++) {
        struct tensor device = section_run_value(r, values[i], rows);
        enum dtype t = device.dtype == DTYPE_F32
                           ? graph_value_border(&r->config.graph->values[values[i]], outside)
                           : device.dtype;
        struct tensor there = tensor_on_host(at, t, rows, tensor_width(&device));
        if (to_host)
            r->backend->copy(r->stream, &there, &device);
        else
            r->backend->copy(r->stream, &device, &there);
        at += there.memory.bytes;
    }
}
