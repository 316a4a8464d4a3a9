#include "bench/gpu/layers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { VALUES = 10, STEPS_MAX = 20 };
/* A layer's values: rows of numbers that its operators read and write. */
enum layer_value { X, ANGLES, NORMED, Q, K, V, ATTENDED, GATE, UP, POSITIONS };

struct llama_step {
    struct graph_op op;
    const struct weight *list[OP_WEIGHTS_MAX];
    struct device_weight *weight;
    struct device_op *ready;
    enum layer_value in[3], out;
};
struct llama_layer {
    struct llama_step steps[STEPS_MAX];
    int n;
};
struct llama_layers {
    struct llama_shape shape;
    struct device *device;
    const struct backend *backend;
    struct stream *stream;
    struct rope_config rope;
    struct memory values[VALUES];
    uint32_t widths[VALUES];
    struct kv_group kv;
    uint32_t *pages, *positions;
    struct weight matrices[4], norm; /* [outputs, inputs]: width x width, hidden x width, width x
                                        hidden */
    struct llama_layer *all;         /* [distinct] */
    struct llama_layer first;        /* angles of the rotation */
    double weight_bytes, loaded_bytes, load_s;
    bool one_by_one;
};

double seconds_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

void must(int rc, const struct err *e)
{
    if (rc >= 0)
        return;
    fprintf(stderr, "%s\n", e->text);
    exit(1);
}

struct weight matrix_make(enum dtype dtype, uint64_t outputs, uint64_t inputs)
{
    const struct dtype_info *info = dtype_info(dtype);
    uint64_t bytes = dtype_bytes(dtype, outputs * inputs), state = 1;
    enum { SAMPLE = 256 * 64 };
    static float values[SAMPLE];
    uint8_t *data = malloc(bytes), sample[SAMPLE * 4];
    for (int i = 0; i < SAMPLE; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        values[i] = ((float)(state >> 40) / (1 << 24) - 0.5f) * 0.05f;
    }
    info->from_f32(values, SAMPLE, sample);
    uint64_t n = dtype_bytes(dtype, SAMPLE);
    for (uint64_t at = 0; data && at < bytes; at += n)
        memcpy(data + at, sample, bytes - at < n ? bytes - at : n);
    if (!data) {
        fprintf(stderr, "no memory for a matrix of %llu bytes\n", (unsigned long long)bytes);
        exit(1);
    }
    return (struct weight){.name = "matrix",
                           .dtype = dtype,
                           .format = info->name,
                           .n_dims = 2,
                           .shape = {outputs, inputs},
                           .bytes = bytes,
                           .file = -1,
                           .data = data};
}

/* ---- making them ready ---- */

static void step_add(struct llama_layers *l, struct llama_layer *to, struct llama_step step,
                     const struct weight *w, enum weight_use use)
{
    struct llama_step *s = &to->steps[to->n++];
    struct err e = {0};
    *s = step;
    s->list[0] = w;
    s->op.weights = s->list;
    s->op.n_weights = w ? 1 : 0;
    if (w) {
        double start = seconds_now();
        must(l->backend->weight_load(l->device, w, use, false, &s->weight, &e), &e);
        l->load_s += seconds_now() - start;
        l->loaded_bytes += (double)w->bytes;
        l->weight_bytes += (double)w->bytes * l->shape.layers / l->shape.distinct;
    }
    const struct op_request request = {
        .op = &s->op, .weights = {s->weight}, .kv_block = (int)(to - l->all)};
    must(l->backend->op_prepare(l->device, &request, &s->ready, &e), &e);
}

static void product_add(struct llama_layers *l, struct llama_layer *to, enum layer_value in,
                        enum layer_value out, int which)
{
    step_add(l, to,
             (struct llama_step){.op = {.kind = OP_MATMUL, .n_inputs = out == X ? 2 : 1},
                                 .in = {in, X},
                                 .out = out},
             &l->matrices[which], WEIGHT_MATMUL);
}

static void norm_add(struct llama_layers *l, struct llama_layer *to)
{
    step_add(
        l, to,
        (struct llama_step){.op = {.kind = OP_RMS_NORM, .n_inputs = 1, .u.norm.epsilon = 1e-5f},
                            .in = {X},
                            .out = NORMED},
        &l->norm, WEIGHT_VECTOR);
}

static void rope_add(struct llama_layers *l, struct llama_layer *to, enum layer_value of)
{
    step_add(l, to,
             (struct llama_step){
                 .op = {.kind = OP_ROPE,
                        .n_inputs = 2,
                        .u.rope = {.config = &l->rope, .head_dim = (int)l->shape.head_dim}},
                 .in = {of, ANGLES},
                 .out = of},
             NULL, WEIGHT_VECTOR);
}

static void layer_make(struct llama_layers *l, struct llama_layer *to)
{
    int heads = (int)l->shape.heads, head_dim = (int)l->shape.head_dim;
    norm_add(l, to);
    product_add(l, to, NORMED, Q, 0);
    product_add(l, to, NORMED, K, 0);
    product_add(l, to, NORMED, V, 0);
    rope_add(l, to, Q);
    rope_add(l, to, K);
    step_add(l, to,
             (struct llama_step){
                 .op = {.kind = OP_ATTENTION,
                        .n_inputs = 3,
                        .u.attention = {.heads = heads, .kv_heads = heads, .head_dim = head_dim}},
                 .in = {Q, K, V},
                 .out = ATTENDED},
             NULL, WEIGHT_VECTOR);
    product_add(l, to, ATTENDED, X, 0);
    norm_add(l, to);
    product_add(l, to, NORMED, GATE, 1);
    product_add(l, to, NORMED, UP, 1);
    step_add(l, to,
             (struct llama_step){
                 .op = {.kind = OP_SILU_MUL, .n_inputs = 2}, .in = {GATE, UP}, .out = GATE},
             NULL, WEIGHT_VECTOR);
    product_add(l, to, GATE, X, 2);
}

static void values_make(struct llama_layers *l)
{
    const struct llama_shape *s = &l->shape;
    struct err e = {0};
    for (int i = 0; i < VALUES; i++) {
        l->widths[i] = i == GATE || i == UP ? s->hidden
                       : i == ANGLES        ? s->head_dim
                       : i == POSITIONS     ? 1
                                            : s->width;
        must(l->backend->memory_alloc(l->device, (uint64_t)s->rows * l->widths[i] * sizeof(float),
                                      &l->values[i], &e),
             &e);
    }
    l->kv.layout = (struct kv_layout){.n_blocks = (int)s->distinct,
                                      .n_kv_heads = (int)s->heads,
                                      .head_dim = (int)s->head_dim,
                                      .format = KV_F16};
    uint32_t pages = s->tokens / KV_PAGE_TOKENS + 1;
    must(l->backend->memory_alloc(l->device,
                                  pages * l->backend->kv_page_bytes(l->device, &l->kv.layout),
                                  &l->kv.pool, &e),
         &e);
    l->pages = calloc(pages, sizeof *l->pages);
    l->positions = calloc(s->rows, sizeof *l->positions);
    for (uint32_t i = 0; i < pages; i++)
        l->pages[i] = i;
}

struct llama_layers *layers_create(struct device *d, const struct llama_shape *shape,
                                   enum dtype dtype)
{
    struct llama_layers *l = calloc(1, sizeof *l);
    struct err e = {0};
    float *ones = calloc(shape->width, sizeof *ones);
    l->shape = *shape;
    l->device = d;
    l->backend = d->backend;
    l->rope = (struct rope_config){
        .style = ROPE_HALVES, .dims = (int)shape->head_dim, .base = 10000, .scale = 1};
    l->all = calloc(shape->distinct, sizeof *l->all);
    l->matrices[0] = matrix_make(dtype, shape->width, shape->width);
    l->matrices[1] = matrix_make(dtype, shape->hidden, shape->width);
    l->matrices[2] = matrix_make(dtype, shape->width, shape->hidden);
    for (uint32_t i = 0; i < shape->width; i++)
        ones[i] = 1;
    l->norm = (struct weight){.name = "norm",
                              .dtype = DTYPE_F32,
                              .format = "F32",
                              .n_dims = 1,
                              .shape = {shape->width},
                              .bytes = shape->width * sizeof *ones,
                              .file = -1,
                              .data = (const uint8_t *)ones};
    must(l->backend->stream_create(d, &l->stream, &e), &e);
    values_make(l);
    step_add(l, &l->first,
             (struct llama_step){
                 .op = {.kind = OP_ROPE_ANGLES, .n_inputs = 1, .u.rope.config = &l->rope},
                 .in = {POSITIONS},
                 .out = ANGLES},
             NULL, WEIGHT_VECTOR);
    for (uint32_t i = 0; i < shape->distinct; i++)
        layer_make(l, &l->all[i]);
    return l;
}

static void layer_free(struct llama_layers *l, struct llama_layer *of)
{
    for (int i = 0; i < of->n; i++) {
        l->backend->op_release(&of->steps[i].ready);
        if (of->steps[i].weight)
            l->backend->weight_free(l->device, &of->steps[i].weight);
    }
}

void layers_destroy(struct llama_layers **self)
{
    struct llama_layers *l = *self;
    *self = NULL;
    layer_free(l, &l->first);
    for (uint32_t i = 0; i < l->shape.distinct; i++)
        layer_free(l, &l->all[i]);
    for (int i = 0; i < VALUES; i++)
        l->backend->memory_release(l->device, &l->values[i]);
    l->backend->memory_release(l->device, &l->kv.pool);
    l->backend->stream_destroy(&l->stream);
    for (int i = 0; i < 3; i++)
        free((void *)(uintptr_t)l->matrices[i].data);
    free((void *)(uintptr_t)l->norm.data);
    free(l->all);
    free(l->pages);
    free(l->positions);
    free(l);
}

/* ---- running ---- */

double layers_weight_bytes(const struct llama_layers *l)
{
    return l->weight_bytes;
}

double layers_load_rate(const struct llama_layers *l)
{
    return l->loaded_bytes / l->load_s;
}

double layers_flops(const struct llama_shape *s, uint32_t sequences, uint32_t tokens,
                    uint32_t prefix)
{
    double all = (double)sequences * tokens, seen = prefix + (tokens + 1) / 2.0;
    double products = 2.0 * (4.0 * s->width * s->width + 3.0 * s->width * s->hidden);
    return s->layers * all * (products + 4.0 * seen * s->heads * s->head_dim);
}

static void layer_run(struct llama_layers *l, struct llama_layer *of, uint32_t rows,
                      const struct op_batch *batch)
{
    struct op_call calls[STEPS_MAX];
    for (int i = 0; i < of->n; i++) {
        struct llama_step *s = &of->steps[i];
        struct op_call *c = &calls[i];
        c->op = s->ready;
        c->out = tensor_rows(l->values[s->out], DTYPE_F32, rows, l->widths[s->out]);
        for (int k = 0; k < s->op.n_inputs; k++)
            c->inputs[k] =
                tensor_rows(l->values[s->in[k]], s->in[k] == POSITIONS ? DTYPE_U32 : DTYPE_F32,
                            rows, l->widths[s->in[k]]);
    }
    l->backend->ops_run(l->stream, calls, of->n, batch);
}

static void all_run(struct llama_layers *l, uint32_t rows, const struct op_batch *batch)
{
    layer_run(l, &l->first, rows, batch);
    for (uint32_t i = 0; i < l->shape.layers; i++)
        layer_run(l, &l->all[i % l->shape.distinct], rows, batch);
}

void layers_one_by_one(struct llama_layers *l, bool one_by_one)
{
    l->one_by_one = one_by_one;
}

double layers_run(struct llama_layers *l, uint32_t sequences, uint32_t tokens, uint32_t prefix)
{
    struct attention_run *runs = calloc(sequences, sizeof *runs);
    const uint32_t **pages = calloc(sequences, sizeof *pages);
    uint32_t each = (prefix + tokens + KV_PAGE_TOKENS - 1) / KV_PAGE_TOKENS;
    struct err e = {0};
    for (uint32_t i = 0; i < sequences; i++) {
        pages[i] = l->pages + i * each;
        runs[i] = (struct attention_run){.first_row = i * tokens,
                                         .n_tokens = tokens,
                                         .first_position = prefix,
                                         .pages = &pages[i]};
        for (uint32_t t = 0; t < tokens; t++)
            l->positions[i * tokens + t] = prefix + t;
    }
    const struct op_batch batch = {.runs = runs, .n_runs = (int)sequences, .kv = &l->kv};
    struct tensor given = tensor_on_host(l->positions, DTYPE_U32, sequences * tokens, 1),
                  there = tensor_rows(l->values[POSITIONS], DTYPE_U32, sequences * tokens, 1);
    bool keeps = !l->one_by_one && l->backend->steps_begin;
    must(l->backend->stream_wait(l->stream, &e), &e);
    double start = seconds_now();
    l->backend->copy(l->stream, &there, &given);
    if (!keeps || !l->backend->steps_begin(l->stream, sequences * tokens, &batch)) {
        all_run(l, sequences * tokens, &batch);
        if (keeps && !l->backend->steps_end(l->stream, &batch))
            all_run(l, sequences * tokens, &batch);
    }
    must(l->backend->stream_wait(l->stream, &e), &e);
    double took = seconds_now() - start;
    free(runs);
    free(pages);
    return took;
}
