/* What operators take on a device: each kind and shape is loaded and run a few times. */
#include <stdlib.h>
#include <string.h>

#include "agent/graph_profiler_int.h"
#include "common/doubles.h"
#include "common/env.h"

enum { MAX_SAMPLES = 15, MIN_SAMPLES = 3 };

static double seconds_since(uint64_t from_ns)
{
    return (double)(env_now_ns(&env_real) - from_ns) * 1e-9;
}

typedef int (*work_fn)(struct graph_profiling *p, const struct graph_op *op,
                       struct device_op *ready, struct err *e);

/* The median of a few runs after a first one that warms up. */
static int work_measure(struct graph_profiling *p, work_fn work, const struct graph_op *op,
                        struct device_op *ready, double *seconds, struct err *e)
{
    double samples[MAX_SAMPLES];
    int n = 0, rc = work(p, op, ready, e);
    uint64_t until = env_now_ns(&env_real) + p->sample_ns;
    while (rc == 0 && n < MAX_SAMPLES && (n < MIN_SAMPLES || env_now_ns(&env_real) < until)) {
        uint64_t from = env_now_ns(&env_real);
        rc = work(p, op, ready, e);
        samples[n++] = seconds_since(from);
    }
    if (rc == 0) {
        doubles_sort(samples, (size_t)n);
        *seconds = doubles_median(samples, (size_t)n);
    }
    return rc;
}

struct tensor graph_profiling_tensor(const struct graph_profiling *p, int value)
{
    const struct graph_value *v = &p->graph->values[value];
    return section_tensor(&p->section, p->buffers, value,
                          graph_value_elements(v, p->sizes) / graph_value_width(v));
}

struct kv_layout graph_profiling_layout(const struct graph_profiling *p, const struct graph_op *op)
{
    const struct op_attention *a = &op->u.attention;
    return (struct kv_layout){.n_blocks = 1,
                              .n_kv_heads = a->kv_heads,
                              .head_dim = a->head_dim,
                              .value_dim = a->value_dim,
                              .format = p->c->f32 ? KV_F32 : KV_F16,
                              .window = a->window};
}

static int run_op(struct graph_profiling *p, const struct graph_op *op, struct device_op *ready,
                  struct err *e)
{
    const uint32_t *pages = p->pages;
    struct attention_run run = {.n_tokens = p->c->tokens, .pages = &pages};
    struct op_batch batch = {.runs = &run, .n_runs = 1, .kv = &p->kv, .experts_by_lot = true};
    if (op->kind == OP_ATTENTION)
        p->kv.layout = graph_profiling_layout(p, op);
    struct tensor inputs[OP_INPUTS_MAX], out = graph_profiling_tensor(p, op->outputs[0]);
    for (int i = 0; i < op->n_inputs; i++)
        inputs[i] = graph_profiling_tensor(p, op->inputs[i]);
    p->b->op_run(p->stream, ready, inputs, &out, &batch);
    return p->b->stream_wait(p->stream, e);
}

/* The rows of a few ids straight from the file's mapping. */
static int embed_in_place(struct graph_profiling *p, const struct graph_op *op,
                          struct device_op *ready, struct err *e)
{
    const struct weight *w = op->weights[0];
    struct tensor out = graph_profiling_tensor(p, op->outputs[0]);
    size_t width = (size_t)w->shape[1], n = out.shape[0];
    float *rows = malloc(width * n * sizeof *rows);
    (void)ready;
    if (!rows)
        return err_set(e, HP_ENOMEM, "no memory for the embedding of %zu tokens", n);
    int rc = 0;
    for (size_t t = 0; t < n && rc == 0; t++)
        rc = weight_rows_f32(w, t * 977 % w->shape[0], 1, rows + t * width, e);
    if (rc < 0) {
        free(rows);
        return rc;
    }
    struct tensor host = tensor_on_host(rows, DTYPE_F32, n, width);
    p->b->copy(p->stream, &out, &host);
    rc = p->b->stream_wait(p->stream, e);
    free(rows);
    return rc;
}

static int op_make(struct graph_profiling *p, const struct graph_op *op,
                   struct device_weight *const weights[OP_WEIGHTS_MAX], struct device_op **out,
                   struct err *e)
{
    struct op_request r = {.op = op};
    for (int i = 0; i < OP_WEIGHTS_MAX; i++)
        r.weights[i] = weights[i];
    return p->b->op_prepare(p->c->device, &r, out, e);
}

static int weight_load_timed(struct graph_profiling *p, const struct weight *w, enum weight_use use,
                             struct device_weight **out, double *seconds, struct err *e)
{
    uint64_t from = env_now_ns(&env_real);
    int rc = p->b->weight_load(p->c->device, w, use, p->c->f32, out, e);
    *seconds = seconds_since(from);
    return rc;
}

/* Loads the weight twice: the first time brings the file's pages in, the second is host memory to
 * device. */
static int load_warm(struct graph_profiling *p, const struct weight *w, enum weight_use use,
                     struct device_weight **out, double *seconds, struct err *e)
{
    int rc = weight_load_timed(p, w, use, out, seconds, e);
    if (rc < 0)
        return rc;
    p->b->weight_free(p->c->device, out);
    return weight_load_timed(p, w, use, out, seconds, e);
}

static int load_all(struct graph_profiling *p, const struct graph_op *op, struct op_cost *c,
                    struct device_weight *weights[OP_WEIGHTS_MAX], struct err *e)
{
    int rc = 0;
    for (int i = 0; i < op->n_weights && rc == 0; i++)
        if (op->weights[i])
            rc = load_warm(p, op->weights[i], graph_op_weight_use(op, i), &weights[i],
                           &c->load_s[i], e);
    return rc;
}

/* An operator on experts is told which: what stands in its input's memory would name any. */
static int route_fill(struct graph_profiling *p, const struct graph_op *op, struct err *e)
{
    int rc = 0;
    if (op->kind != OP_EXPERT_MATMUL && op->kind != OP_EXPERT_SUM)
        return 0;
    for (int i = 0; i < p->graph->n_ops && rc == 0; i++)
        if (p->graph->ops[i].kind == OP_ROUTE && p->graph->ops[i].outputs[0] == op->inputs[1])
            rc = graph_profiling_run(p, &p->graph->ops[i], e);
    return rc;
}

static int measure_loaded(struct graph_profiling *p, const struct graph_op *op,
                          struct device_op *ready, struct op_cost *c, struct err *e)
{
    int rc = route_fill(p, op, e);
    rc = rc < 0 ? rc : work_measure(p, run_op, op, ready, &c->run_s, e);
    c->in_place_s = c->run_s;
    for (int i = 0; i < op->n_weights; i++)
        c->in_place_s += c->load_s[i];
    if (rc == 0 && op->kind == OP_EMBED)
        rc = work_measure(p, embed_in_place, op, ready, &c->in_place_s, e);
    return rc;
}

static int measure_op(struct graph_profiling *p, const struct graph_op *op, struct op_cost *c,
                      struct err *e)
{
    struct device_weight *weights[OP_WEIGHTS_MAX] = {0};
    struct device_op *ready = NULL;
    int rc = load_all(p, op, c, weights, e);
    if (rc == 0)
        rc = op_make(p, op, weights, &ready, e);
    if (rc == 0)
        rc = measure_loaded(p, op, ready, c, e);
    if (ready)
        p->b->op_release(&ready);
    for (int i = 0; i < OP_WEIGHTS_MAX; i++)
        if (weights[i])
            p->b->weight_free(p->c->device, &weights[i]);
    return rc;
}

int graph_profiling_run(struct graph_profiling *p, const struct graph_op *op, struct err *e)
{
    struct device_weight *none[OP_WEIGHTS_MAX] = {0};
    struct device_op *ready = NULL;
    int rc = op_make(p, op, none, &ready, e);
    if (rc == 0)
        rc = run_op(p, op, ready, e);
    if (ready)
        p->b->op_release(&ready);
    return rc;
}

static bool same_cost(const struct op_cost *a, const struct op_cost *b)
{
    return a->kind == b->kind && a->rows == b->rows && a->columns == b->columns &&
           a->dtype == b->dtype && a->tokens == b->tokens;
}

static struct op_cost shape_of(const struct graph_profiling *p, const struct graph_op *op)
{
    struct op_cost c = {.kind = op->kind,
                        .dtype = -1,
                        .tokens = (uint32_t)graph_profiling_tensor(p, op->outputs[0]).shape[0]};
    const struct weight *w = op->n_weights > 0 ? op->weights[0] : NULL;
    c.columns = graph_value_width(&p->graph->values[op->outputs[0]]);
    if (w) {
        c.rows = w->n_dims > 2 ? w->shape[0] * w->shape[1] : w->shape[0];
        c.columns = w->n_dims > 1 ? w->shape[w->n_dims - 1] : 1;
        c.dtype = (int)w->dtype;
    }
    for (int i = 1; i < op->n_weights; i++)
        c.dtype = c.dtype * 2 + (op->weights[i] != NULL);
    return c;
}

int graph_profiling_cost(struct graph_profiling *p, const struct graph_op *op, struct op_cost *out,
                         struct err *e)
{
    struct op_cost c = shape_of(p, op);
    for (int i = 0; i < p->n_costs; i++)
        if (same_cost(&p->costs[i], &c)) {
            *out = p->costs[i];
            return 0;
        }
    int rc = op_kind_info(op->kind)->is_view ? 0 : measure_op(p, op, &c, e);
    if (rc == 0)
        *out = p->costs[p->n_costs++] = c;
    return rc;
}

/* How many different measurements there are: a share of the time for each. */
void graph_profiling_share_time(struct graph_profiling *p)
{
    int n = 0;
    for (int i = 0; i < p->graph->n_ops; i++) {
        struct op_cost c = shape_of(p, &p->graph->ops[i]);
        int k = 0;
        while (k < n && !same_cost(&p->costs[k], &c))
            k++;
        if (k == n)
            p->costs[n++] = c;
    }
    memset(p->costs, 0, (size_t)n * sizeof *p->costs);
    p->sample_ns = (p->c->budget_ms ? p->c->budget_ms : 3000) * 1000000 / (uint64_t)(n > 0 ? n : 1);
}
