/* What a GPU does with layers of LLaMA-7B's shape, beside what it could: copies within its memory,
 * and one large bf16 product. One table on standard output.
 *
 *     measure [--small] [--only ROW]
 *
 * --small: shapes that a stand-in runs in a moment; figures mean nothing. --only: one row (prefill,
 * slice, decode, batch, decode_q4_k, ways_q4_k, prefill_q4_k), for a profiler. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/backend/plugin.h"
#include "bench/gpu/layers.h"

static const struct llama_shape large = {4096, 11008, 32, 128, 32, 4, 2048, 64 * 192},
                                small = {64, 96, 2, 32, 2, 2, 24, 8 * 64};

/* No more than all rows need: a profiler wants room of its own. */
static const uint64_t MEMORY_BYTES = 8ull << 30;

/* Best of a few rounds after one that warms up; before a device's first figures of decode so many
 * steps, in which it finds out how products go (agent/backend/cuda/tuning.c). */
enum { ROUNDS = 5, DECIDING = 40 };

static double run_best(struct llama_layers *l, uint32_t sequences, uint32_t tokens, uint32_t prefix)
{
    double best = 1e30;
    layers_run(l, sequences, tokens, prefix);
    for (int i = 0; i < ROUNDS; i++) {
        double took = layers_run(l, sequences, tokens, prefix);
        best = took < best ? took : best;
    }
    return best;
}

/* Bytes read and written a second. */
static double copy_measure(struct device *d, uint64_t bytes)
{
    const struct backend *b = d->backend;
    struct memory m[2];
    struct stream *s;
    struct err e = {0};
    double best = 1e30;
    must(b->stream_create(d, &s, &e), &e);
    for (int i = 0; i < 2; i++)
        must(b->memory_alloc(d, bytes, &m[i], &e), &e);
    struct tensor from = tensor_rows(m[0], DTYPE_F32, bytes / 4096, 1024),
                  to = tensor_rows(m[1], DTYPE_F32, bytes / 4096, 1024);
    for (int i = 0; i < ROUNDS + 1; i++) {
        double start = seconds_now();
        b->copy(s, &to, &from);
        must(b->stream_wait(s, &e), &e);
        best = seconds_now() - start < best ? seconds_now() - start : best;
    }
    for (int i = 0; i < 2; i++)
        b->memory_release(d, &m[i]);
    b->stream_destroy(&s);
    return 2.0 * (double)bytes / best;
}

/* Multiplications and additions a second of a square bf16 product. */
static double product_measure(struct device *d, uint32_t n)
{
    const struct backend *b = d->backend;
    struct weight w = matrix_make(DTYPE_BF16, n, n);
    const struct weight *list[OP_WEIGHTS_MAX] = {&w};
    const struct graph_op op = {.kind = OP_MATMUL, .n_inputs = 1, .n_weights = 1, .weights = list};
    struct op_request request = {.op = &op};
    struct device_weight *loaded;
    struct device_op *ready;
    struct memory m[2];
    struct stream *s;
    struct err e = {0};
    double best = 1e30;
    must(b->weight_load(d, &w, WEIGHT_MATMUL, false, &loaded, &e), &e);
    request.weights[0] = loaded;
    must(b->op_prepare(d, &request, &ready, &e), &e);
    must(b->stream_create(d, &s, &e), &e);
    for (int i = 0; i < 2; i++)
        must(b->memory_alloc(d, (uint64_t)n * n * sizeof(float), &m[i], &e), &e);
    struct tensor in = tensor_rows(m[0], DTYPE_F32, n, n), out = tensor_rows(m[1], DTYPE_F32, n, n);
    for (int i = 0; i < ROUNDS + 1; i++) {
        double start = seconds_now();
        b->op_run(s, ready, &in, &out, NULL);
        must(b->stream_wait(s, &e), &e);
        best = seconds_now() - start < best ? seconds_now() - start : best;
    }
    for (int i = 0; i < 2; i++)
        b->memory_release(d, &m[i]);
    b->op_release(&ready);
    b->weight_free(d, &loaded);
    b->stream_destroy(&s);
    free((void *)(uintptr_t)w.data);
    return 2.0 * n * n * n / best;
}

static bool small_shapes;    /* no goal is told */
static const char *only_row; /* NULL: all */

static bool is_wanted(const char *row)
{
    return !only_row || strcmp(row, only_row) == 0;
}

static void row_print(const char *what, double value, const char *unit, double share, double goal)
{
    printf("%-44s %12.4g %-9s", what, value, unit);
    if (goal > 0 && !small_shapes)
        printf(" %8.3g of %.3g %s", share, goal, share >= goal ? "reached" : "missed");
    printf("\n");
    fflush(stdout);
}

/* What the device could: bytes and operations a second. */
struct limits {
    double copy, product;
};

static void prompts_print(struct llama_layers *l, const struct llama_shape *s,
                          const struct limits *most)
{
    uint32_t slice = s->rows / 4, prefix = small_shapes ? 96 : 6144;
    double took, rate;
    if (is_wanted("prefill")) {
        took = run_best(l, 1, s->rows, 0), rate = layers_flops(s, 1, s->rows, 0) / took;
        row_print("prefill of 2048 tokens, bf16: tokens", s->rows / took, "per s",
                  rate / most->product, 0.6);
    }
    if (is_wanted("slice")) {
        took = run_best(l, 1, slice, prefix), rate = layers_flops(s, 1, slice, prefix) / took;
        row_print("512 tokens after 6144, bf16: tokens", slice / took, "per s",
                  rate / most->product, 0.5);
    }
}

/* Of 8 sequences, beside one that takes `one` seconds a step. */
static void few_print(struct llama_layers *l, const char *format, uint32_t context, double one)
{
    char what[64];
    double took = run_best(l, 8, 1, context);
    snprintf(what, sizeof what, "8 sequences of 128 tokens, %s: tokens", format);
    row_print(what, 8 / took, "per s", 0, 0);
    snprintf(what, sizeof what, "8 sequences of 128 tokens, %s", format);
    row_print(what, 8 * one / took, "times one", 0, 0);
}

static void steps_print(struct llama_layers *l, const struct limits *most)
{
    uint32_t batch = small_shapes ? 4 : 64, context = small_shapes ? 16 : 127;
    double one, took;
    if (!is_wanted("decode") && !is_wanted("batch") && !is_wanted("few"))
        return;
    one = run_best(l, 1, 1, context);
    if (is_wanted("decode")) {
        row_print("decode, bf16: steps", 1 / one, "per s",
                  layers_weight_bytes(l) / one / most->copy, 0.7);
        layers_one_by_one(l, true);
        took = run_best(l, 1, 1, context);
        layers_one_by_one(l, false);
        row_print("decode, bf16, one launch an operator: steps", 1 / took, "per s", 0, 0);
    }
    if (is_wanted("batch")) {
        took = run_best(l, batch, 1, context);
        row_print("64 sequences of 128 tokens, bf16: tokens", batch / took, "per s",
                  batch * one / took, 40);
    }
    if (is_wanted("few"))
        few_print(l, "bf16", context, one);
}

static void quantised_print(struct llama_layers *l, const struct llama_shape *s,
                            const struct limits *most)
{
    if (is_wanted("decode_q4_k") || is_wanted("few_q4_k")) {
        for (int i = 0; i < DECIDING; i++)
            layers_run(l, 1, 1, small_shapes ? 16 : 127);
        double took = run_best(l, 1, 1, small_shapes ? 16 : 127);
        row_print("decode, Q4_K: steps", 1 / took, "per s",
                  layers_weight_bytes(l) / took / most->copy, 0.6);
        if (is_wanted("few_q4_k"))
            few_print(l, "Q4_K", small_shapes ? 16 : 127, took);
    }
    if (is_wanted("prefill_q4_k")) {
        double took = run_best(l, 1, s->rows, 0), rate = layers_flops(s, 1, s->rows, 0) / took;
        row_print("prefill of 2048 tokens, Q4_K: tokens", s->rows / took, "per s",
                  rate / most->product, 0);
    }
}

static struct device *device_new(void)
{
    const struct plugin *p;
    struct device *d;
    struct err e = {0};
    must(plugin_cuda(&p, &e), &e);
    const struct device_config c = {
        .backend = "cuda", .of = p->backend, .memory_bytes = small_shapes ? 0 : MEMORY_BYTES};
    must(device_open(&c, &d, &e), &e);
    return d;
}

/* Which way the device has found products of one row to go, and what each took. */
static void choice_print(struct device *d)
{
    struct device_choice all[DEVICE_CHOICES_MAX];
    int n = d->backend->choices(d, all, DEVICE_CHOICES_MAX);
    for (int i = 0; i < n; i++)
        if (strcmp(all[i].what, "products of one row") == 0)
            printf("products of one row: %s (%s)\n", all[i].how, all[i].why);
}

/* Steps of one sequence where all products of one row go one way (agent/backend/cuda/tuning.c),
 * and where the device finds out which; each on a device of its own. */
static void ways_print(const struct llama_shape *s, const struct limits *most)
{
    static const char *const ways[][2] = {
        {"way=0", "decode, Q4_K, no block stays: steps"},
        {"way=1", "decode, Q4_K, 6 blocks stay: steps"},
        {NULL, "decode, Q4_K, the faster way: steps"},
    };
    for (size_t i = 0; is_wanted("ways_q4_k") && i < sizeof ways / sizeof *ways; i++) {
        if (ways[i][0])
            setenv("HP_TEST_CUDA_DECODE", ways[i][0], 1);
        struct device *d = device_new();
        unsetenv("HP_TEST_CUDA_DECODE");
        struct llama_layers *l = layers_create(d, s, small_shapes ? DTYPE_Q8_0 : DTYPE_Q4_K);
        for (int k = 0; k < DECIDING; k++)
            layers_run(l, 1, 1, small_shapes ? 16 : 127);
        double took = run_best(l, 1, 1, small_shapes ? 16 : 127);
        row_print(ways[i][1], 1 / took, "per s", layers_weight_bytes(l) / took / most->copy, 0);
        choice_print(d);
        layers_destroy(&l);
        device_close(&d);
    }
}

static struct limits table_print(struct device *d, const struct llama_shape *s)
{
    struct limits most = {.copy = 1, .product = 1};
    if (!only_row) {
        most.copy = copy_measure(d, small_shapes ? 1 << 16 : 1 << 30);
        most.product = product_measure(d, small_shapes ? 64 : 8192);
        row_print("copy within the GPU, read and written", most.copy / 1e9, "GB/s", 0, 0);
        row_print("bf16 product, 8192 x 8192 x 8192", most.product / 1e12, "TFLOP/s", 0, 0);
    }
    struct llama_layers *l = layers_create(d, s, DTYPE_BF16);
    row_print("weights to the GPU, from pages of the host", layers_load_rate(l) / 1e9, "GB/s", 0,
              0);
    prompts_print(l, s, &most);
    steps_print(l, &most);
    layers_destroy(&l);
    l = layers_create(d, s, small_shapes ? DTYPE_Q8_0 : DTYPE_Q4_K);
    quantised_print(l, s, &most);
    layers_destroy(&l);
    return most;
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        small_shapes = small_shapes || strcmp(argv[i], "--small") == 0;
        if (strcmp(argv[i], "--only") == 0 && i + 1 < argc)
            only_row = argv[++i];
    }
    struct device *d = device_new();
    const struct llama_shape *shape = small_shapes ? &small : &large;
    printf("%s\n", d->backend->device_describe(d));
    struct limits most = table_print(d, shape);
    device_close(&d);
    ways_print(shape, &most);
    return 0;
}
