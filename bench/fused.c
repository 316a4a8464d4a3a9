/* What operators that the CPU does together save (backend.h: ops_run) over one by one, of a layer
 * of 1.1 billion parameters with 22: both ways by turns on the same memory, other layers' weights
 * in between, medians. Processor time of one thread; of more the time that passes.
 *
 *     fused [THREADS [FORMAT [KERNELS]]]     1, Q4_K (values' weights in Q6_K), the best
 */
#include <stdio.h>
#include <stdlib.h>

#include "agent/backend/backend.h"
#include "bench/fill.h"
#include "bench/machine.h"
#include "common/env.h"

enum {
    WIDTH = 2048,
    HEADS = 32,
    KV_HEADS = 4,
    HEAD_DIM = 64,
    KV_WIDTH = KV_HEADS * HEAD_DIM,
    MLP = 5632,
    BLOCKS = 22,
    LAYERS = 3, /* that there are; BLOCKS are counted */
    ROWS_MOST = 512,
    BEHIND = 448, /* tokens before a step of few rows */
    TURNS_MOST = 201
};

enum fused_value { X, NORMED, Q, K, V, ANGLES, MIXED, GATE, UP, VALUES };
static const uint64_t widths[VALUES] = {WIDTH,    WIDTH, WIDTH, KV_WIDTH, KV_WIDTH,
                                        HEAD_DIM, WIDTH, MLP,   MLP};

enum step { END, NORM, TO_Q, TO_K, TO_V, TO_GATE, TO_UP, TURN_Q, TURN_K, ATTEND, STEPS };
static const struct {
    enum op_kind kind;
    enum fused_value in[OP_INPUTS_MAX], out;
    int n_inputs;
    uint64_t outputs; /* of a product */
} steps[STEPS] = {[NORM] = {OP_RMS_NORM, {X}, NORMED, 1, 0},
                  [TO_Q] = {OP_MATMUL, {NORMED}, Q, 1, WIDTH},
                  [TO_K] = {OP_MATMUL, {NORMED}, K, 1, KV_WIDTH},
                  [TO_V] = {OP_MATMUL, {NORMED}, V, 1, KV_WIDTH},
                  [TO_GATE] = {OP_MATMUL, {NORMED}, GATE, 1, MLP},
                  [TO_UP] = {OP_MATMUL, {NORMED}, UP, 1, MLP},
                  [TURN_Q] = {OP_ROPE, {Q, ANGLES}, Q, 2, 0},
                  [TURN_K] = {OP_ROPE, {K, ANGLES}, K, 2, 0},
                  [ATTEND] = {OP_ATTENTION, {Q, K, V}, MIXED, 3, 0}};

static const struct {
    const char *what;
    enum step steps[STEPS];
} sets[] = {{"queries, keys and values", {TO_Q, TO_K, TO_V}},
            {"gate and up", {TO_GATE, TO_UP}},
            {"a norm and keys", {NORM, TO_K}},
            {"keys' rotation and attention", {TURN_K, ATTEND}}};

struct fused_layers {
    struct device *device;
    const struct backend *backend;
    struct stream *stream;
    struct graph_op rows[STEPS];
    struct rope_config rope;
    struct device_op *ops[LAYERS][STEPS];
    struct memory values[VALUES];
    struct kv_group kv;
    int threads;
};

static void require(int rc, const struct err *e)
{
    if (rc == 0)
        return;
    fprintf(stderr, "fused: %s\n", e->text);
    exit(1);
}

static struct device_weight *weight_random(struct fused_layers *l, enum dtype t, uint64_t outputs,
                                           uint64_t inputs, enum weight_use use)
{
    uint64_t n = outputs * inputs, bytes = dtype_bytes(t, n);
    struct weight w = {.name = "w",
                       .dtype = t,
                       .n_dims = outputs > 1 ? 2 : 1,
                       .shape = {outputs > 1 ? outputs : inputs, inputs},
                       .bytes = bytes,
                       .file = -1};
    struct device_weight *out = NULL;
    struct err e = {0};
    uint8_t *data = calloc(1, bytes);
    if (!data)
        exit(1);
    weights_fill(t, data, bytes);
    w.data = data;
    require(l->backend->weight_load(l->device, &w, use, false, &out, &e), &e);
    free(data); /* blocks and vectors are copied */
    return out;
}

static void layer_make(struct fused_layers *l, int layer, enum dtype format)
{
    enum dtype of_values = format == DTYPE_Q4_K ? DTYPE_Q6_K : format;
    struct err e = {0};
    for (int i = END + 1; i < STEPS; i++) {
        struct op_request r = {.op = &l->rows[i], .kv_block = layer};
        l->rows[i] = (struct graph_op){.kind = steps[i].kind, .n_inputs = steps[i].n_inputs};
        if (i == NORM)
            r.weights[0] = weight_random(l, DTYPE_F32, 1, WIDTH, WEIGHT_VECTOR);
        if (steps[i].kind == OP_MATMUL)
            r.weights[0] = weight_random(l, i == TO_V ? of_values : format, steps[i].outputs, WIDTH,
                                         WEIGHT_MATMUL);
        if (steps[i].kind == OP_ROPE)
            l->rows[i].u.rope = (struct op_rope){.config = &l->rope, .head_dim = HEAD_DIM};
        if (i == ATTEND)
            l->rows[i].u.attention =
                (struct op_attention){.heads = HEADS, .kv_heads = KV_HEADS, .head_dim = HEAD_DIM};
        require(l->backend->op_prepare(l->device, &r, &l->ops[layer][i], &e), &e);
    }
}

static void layers_make(struct fused_layers *l, const char *kernels, enum dtype format)
{
    const struct device_config c = {.n_threads = l->threads, .kernels = kernels};
    struct err e = {0};
    require(device_open(&c, &l->device, &e), &e);
    l->backend = l->device->backend;
    l->rope = (struct rope_config){.style = ROPE_PAIRS, .dims = HEAD_DIM, .base = 1e4, .scale = 1};
    l->kv.layout =
        (struct kv_layout){.n_blocks = LAYERS, .n_kv_heads = KV_HEADS, .head_dim = HEAD_DIM};
    require(l->backend->stream_create(l->device, &l->stream, &e), &e);
    for (int i = 0; i < LAYERS; i++)
        layer_make(l, i, format);
    for (int i = 0; i < VALUES; i++) {
        require(l->backend->memory_alloc(l->device, ROWS_MOST * widths[i] * sizeof(float),
                                         &l->values[i], &e),
                &e);
        inputs_fill(l->values[i].data, ROWS_MOST * widths[i], widths[i]);
    }
    require(l->backend->memory_alloc(l->device,
                                     16 * l->backend->kv_page_bytes(l->device, &l->kv.layout),
                                     &l->kv.pool, &e),
            &e);
}

static double now_s(const struct fused_layers *l)
{
    return l->threads > 1 ? (double)env_now_ns(&env_real) * 1e-9 : seconds();
}

/* Calls of a set in a layer; returns how many. */
static int calls_make(const struct fused_layers *l, const enum step *set, int layer, uint64_t rows,
                      struct op_call *calls)
{
    int n = 0;
    for (; set[n] != END; n++) {
        enum step s = set[n];
        calls[n] = (struct op_call){
            .op = l->ops[layer][s],
            .out = tensor_rows(l->values[steps[s].out], DTYPE_F32, rows, widths[steps[s].out])};
        for (int k = 0; k < steps[s].n_inputs; k++)
            calls[n].inputs[k] =
                tensor_rows(l->values[steps[s].in[k]], DTYPE_F32, rows, widths[steps[s].in[k]]);
    }
    for (int i = 0; i < n; i++) /* of a norm, and of keys that are rotated, what follows */
        calls[i].last_reader = steps[set[i]].out == NORMED || set[i] == TURN_K ? n - 1 - i : 0;
    return n;
}

/* Seconds of a set in all layers. */
static double set_time(const struct fused_layers *l, const enum step *set, uint64_t rows,
                       bool together)
{
    static const uint32_t pages[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    static const uint32_t *const by_group[] = {pages};
    const struct attention_run run = {
        .n_tokens = (uint32_t)rows, .first_position = rows <= 64 ? BEHIND : 0, .pages = by_group};
    const struct op_batch batch = {.runs = &run, .n_runs = 1, .kv = &l->kv};
    struct op_call calls[LAYERS][STEPS];
    int n = 0;
    for (int i = 0; i < LAYERS; i++)
        n = calls_make(l, set, i, rows, calls[i]);
    double began = now_s(l);
    for (int i = 0; i < LAYERS; i++) {
        if (together)
            l->backend->ops_run(l->stream, calls[i], n, &batch);
        for (int k = 0; !together && k < n; k++)
            l->backend->op_run(l->stream, calls[i][k].op, calls[i][k].inputs, &calls[i][k].out,
                               &batch);
    }
    double took = now_s(l) - began;
    l->backend->stream_wait(l->stream, NULL);
    return took;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median_of(double *values, int n)
{
    qsort(values, (size_t)n, sizeof *values, by_value);
    return values[n / 2];
}

static void set_measure(const struct fused_layers *l, int set, uint64_t rows)
{
    static double took[2][TURNS_MOST], saved[TURNS_MOST];
    int turns = rows <= 4 ? TURNS_MOST : rows <= 64 ? 61 : 15;
    for (int i = -2; i < turns; i++) { /* the first two to get warm */
        double t[2];
        for (int k = 0; k < 2; k++) {
            int way = (i + k) & 1;
            t[way] = set_time(l, sets[set].steps, rows, way);
        }
        for (int way = 0; i >= 0 && way < 2; way++)
            took[way][i] = t[way];
        if (i >= 0)
            saved[i] = t[0] - t[1];
    }
    double each = 1e6 * BLOCKS / LAYERS / (double)rows;
    printf("%4llu rows, %-30s one by one %9.2f, together %9.2f, saved %7.2f us a token\n",
           (unsigned long long)rows, sets[set].what, median_of(took[0], turns) * each,
           median_of(took[1], turns) * each, median_of(saved, turns) * each);
}

int main(int argc, char **argv)
{
    static const uint64_t rows[] = {1, 4, 64, 512};
    struct fused_layers l = {.threads = argc > 1 ? atoi(argv[1]) : 1};
    enum dtype format = DTYPE_Q4_K;
    for (int t = 0; argc > 2 && t < DTYPE_WEIGHT_COUNT; t++)
        if (strcmp(dtype_info((enum dtype)t)->name, argv[2]) == 0)
            format = (enum dtype)t;
    layers_make(&l, argc > 3 ? argv[3] : NULL, format);
    printf("%s, %s\n", l.backend->device_describe(l.device), dtype_info(format)->name);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int set = 0; set < (int)(sizeof sets / sizeof *sets); set++)
            set_measure(&l, set, rows[i]);
    return 0;
}
