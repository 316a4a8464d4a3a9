/* The cuda backend's plugin as the stand-in runs it (tests/cuda_on_cpu): every operator against the
 * plain backend, with shapes that have an edge, and what happens when there is no driver, no memory
 * or no GPU any more. */
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/backend/plain/plain.h"
#include "agent/engine/local.h"
#include "model/model.h"
#include "tests/unit/agent/backend/cuda_fixture.h"

enum { MODEL_LOGITS = 2, MODEL_TOKENS = 2 };

/* ---- the stand-in itself ---- */

/* Runs `faults NAME`: its exit status, and what it says. */
static int fault_run(const char *name, char *said, size_t size)
{
    int ends[2], status;
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        close(ends[0]);
        const char *path = standin_path("faults");
        execl(path, path, name, (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    size_t at = 0;
    for (ssize_t n; (n = read(ends[0], said + at, size - 1 - at)) > 0;)
        at += (size_t)n;
    said[at] = '\0';
    close(ends[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(the_stand_in_finds_each_kind_of_fault)
{
    static const struct {
        const char *name, *words, *where;
    } cases[] = {
        {"past_the_end", "bytes past the end of an allocation of 256 bytes",
         "kernel past_the_end, block (1,0,0), thread ("},
        {"before_it", "out of bounds: read", "thread (0,0,0), faults.cu:"},
        {"unwritten", "nobody has written", "faults.cu:"},
        {"freed", "out of bounds: read", "faults.cu:"},
        {"host_memory", "read of the host's memory", "faults.cu:"},
        {"no_barrier", "shared memory", "kernel no_barrier"},
        {"write_after_read", "without a barrier between", "faults.cu:"},
        {"shared_unwritten", "no thread of the block has written", "faults.cu:"},
        {"blocks_race", "race in device memory", "faults.cu:"},
        {"barrier_left_out", "never reaches", "faults.cu:"},
        {"lanes_left_out", "wait for others that never come", "faults.cu:"},
        {"host_touches", "the host touches device memory", ""},
        {"copy_past_the_end", "a copy of 260 bytes: out of bounds", ""},
    };
    char said[2048];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int status = fault_run(cases[i].name, said, sizeof said);
        if (status != 86 || !strstr(said, cases[i].words) || !strstr(said, cases[i].where))
            fail_msg("%s: status %d, \"%s\"", cases[i].name, status, said);
    }
}

TEST(the_stand_in_lets_what_is_right_be)
{
    char said[2048];
    static const char *const names[] = {"none", "event"};
    for (size_t i = 0; i < 2; i++)
        if (fault_run(names[i], said, sizeof said) != 0)
            fail_msg("%s: %s", names[i], said);
}

TEST(a_missing_wait_for_an_event_is_found_by_some_seed)
{
    char said[2048], seed[32];
    int found = 0;
    for (int i = 1; i <= 8; i++) {
        snprintf(seed, sizeof seed, "seed=%d", i);
        setenv("CUDA_ON_CPU", seed, 1);
        found += fault_run("no_event", said, sizeof said) == 86;
    }
    unsetenv("CUDA_ON_CPU");
    assert_true(found > 0);
}

/* ---- operators ---- */

struct one_op {
    const struct graph_op *op;
    const struct op_rows *inputs;
    const struct op_weight *weights;
    size_t rows, width;
    float bound;
};

/* The same on both backends. */
static void same(struct device *d, const struct one_op *t)
{
    static const struct device_config plain = {.backend = "plain"};
    struct device *reference;
    struct err e = {0};
    size_t n = t->rows * t->width;
    float *want = calloc(n + 1, sizeof *want), *got = calloc(n + 1, sizeof *got);
    assert_int_equal(device_open(&plain, &reference, &e), 0);
    op_run_once(reference, t->op, t->inputs, t->weights, NULL, want, t->rows, t->width);
    op_run_once(d, t->op, t->inputs, t->weights, NULL, got, t->rows, t->width);
    for (size_t i = 0; i < n; i++)
        if (!(fabsf(got[i] - want[i]) <= t->bound * fmaxf(1, fabsf(want[i]))))
            fail_msg("%s, %zu x %zu: element %zu is %g instead of %g",
                     op_kind_info(t->op->kind)->name, t->rows, t->width, i, (double)got[i],
                     (double)want[i]);
    free(want), free(got);
    device_close(&reference);
}

static const enum dtype formats[] = {DTYPE_F32,  DTYPE_F16,  DTYPE_BF16, DTYPE_Q8_0,
                                     DTYPE_Q4_0, DTYPE_Q4_1, DTYPE_Q5_0, DTYPE_Q5_1,
                                     DTYPE_Q4_K, DTYPE_Q5_K, DTYPE_Q6_K, DTYPE_MXFP4};
enum { FORMATS = sizeof formats / sizeof *formats };

static void product_try(struct device *d, enum dtype t, size_t rows, size_t inputs, size_t outputs,
                        bool adds, bool turned)
{
    float *values = op_random(inputs * outputs, 7, 0.5f), *x = op_random(rows * inputs, 8, 1),
          *addend = op_random(rows * outputs, 9, 1), *bias = op_random(outputs, 10, 1);
    uint8_t *bytes = malloc(inputs * outputs * sizeof *values);
    struct weight w = turned ? weight_make(t, values, inputs, outputs, bytes)
                             : weight_make(t, values, outputs, inputs, bytes),
                  b = vector_make(bias, outputs);
    const struct graph_op op = {.kind = OP_MATMUL,
                                .n_inputs = adds ? 2 : 1,
                                .n_weights = adds ? 2 : 1,
                                .u.matmul.turned = turned};
    same(d,
         &(struct one_op){&op, (struct op_rows[]){{x, rows, inputs}, {addend, rows, outputs}},
                          (struct op_weight[]){{&w, turned ? WEIGHT_MATMUL_TURNED : WEIGHT_MATMUL},
                                               {adds ? &b : NULL, WEIGHT_VECTOR}},
                          rows, outputs, 2e-5f});
    free(values), free(x), free(addend), free(bias), free(bytes);
}

TEST(products_of_each_format_are_those_of_the_reference)
{
    struct device *d = cuda_open(0);
    for (int i = 0; i < FORMATS; i++) {
        bool whole = dtype_info(formats[i])->block_elements == 1;
        size_t inputs = whole ? 37 : dtype_info(formats[i])->block_elements;
        product_try(d, formats[i], 1, inputs, 5, false, false);
        product_try(d, formats[i], 7, inputs * 2, 3, true, false);
        product_try(d, formats[i], 9, inputs, 67, true, false);
        product_try(d, formats[i], 65, inputs, 2, false, false);
        if (whole)
            product_try(d, formats[i], 3, 19, 70, true, true);
    }
    device_close(&d);
}

TEST(rows_of_a_table_are_those_of_the_reference)
{
    static const uint32_t ids[] = {3, 0, 6, 6};
    struct device *d = cuda_open(0);
    for (int i = 0; i < FORMATS; i++) {
        size_t block = dtype_info(formats[i])->block_elements, width = block == 1 ? 33 : block;
        float *values = op_random(9 * width, 3, 1), out[4 * 256], want[4 * 256];
        uint8_t *bytes = malloc(9 * width * sizeof *values);
        struct weight w = weight_make(formats[i], values, 9, width, bytes);
        const struct graph_op op = {
            .kind = OP_EMBED, .n_inputs = 1, .n_weights = 1, .u.embed = {.first = 2}};
        /* ids travel as float32's bytes */
        op_run_once(d, &op, (struct op_rows[]){{(const float *)(const void *)ids, 4, 1}},
                    (struct op_weight[]){{&w, WEIGHT_ROWS}, {NULL, WEIGHT_ROWS}}, NULL, out, 4,
                    width);
        for (size_t r = 0; r < 4; r++)
            dtype_info(formats[i])
                ->to_f32(bytes + (ids[r] + 2) * (w.bytes / 9), width, want + r * width);
        for (size_t k = 0; k < 4 * width; k++)
            assert_true(fabsf(out[k] - want[k]) <= 1e-6f * fmaxf(1, fabsf(want[k])));
        free(values), free(bytes);
    }
    device_close(&d);
}

TEST(norms_gates_and_sums_are_those_of_the_reference)
{
    static const struct graph_op ops[] = {
        {.kind = OP_ADD, .n_inputs = 2},
        {.kind = OP_MUL, .n_inputs = 2},
        {.kind = OP_SILU_MUL, .n_inputs = 2},
        {.kind = OP_GELU, .n_inputs = 1},
        {.kind = OP_GELU, .n_inputs = 1, .u.gelu.exact = true},
        {.kind = OP_SCALE, .n_inputs = 1, .u.number.value = 0.3f},
        {.kind = OP_SOFT_CAP, .n_inputs = 1, .u.number.value = 2},
        {.kind = OP_RMS_NORM, .n_inputs = 1, .n_weights = 1, .u.norm.epsilon = 1e-5f},
        {.kind = OP_LAYER_NORM, .n_inputs = 1, .n_weights = 2, .u.norm.epsilon = 1e-5f},
    };
    static const size_t widths[] = {1, 31, 64, 300};
    struct device *d = cuda_open(0);
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        for (size_t k = 0; k < 4; k++) {
            size_t n = 3 * widths[k];
            float *a = op_random(n, 1, 4), *b = op_random(n, 2, 4);
            struct weight w = vector_make(a, widths[k]), bias = vector_make(b, widths[k]);
            same(d, &(struct one_op){
                        &ops[i], (struct op_rows[]){{a, 3, widths[k]}, {b, 3, widths[k]}},
                        (struct op_weight[]){{ops[i].n_weights ? &w : NULL, WEIGHT_VECTOR},
                                             {ops[i].n_weights > 1 ? &bias : NULL, WEIGHT_VECTOR}},
                        3, widths[k], 2e-5f});
            free(a), free(b);
        }
    device_close(&d);
}

TEST(rotations_are_those_of_the_reference)
{
    static const uint32_t positions[] = {0, 1, 4095, 100000, GRAPH_POSITION_LONG | 70000};
    float factors[8], long_factors[8];
    for (int i = 0; i < 8; i++) {
        factors[i] = 1 + (float)i;
        long_factors[i] = 2 + (float)i;
    }
    struct device *d = cuda_open(0);
    for (int style = 0; style < 2; style++) {
        const struct rope_config rope = {.style = style ? ROPE_PAIRS : ROPE_HALVES,
                                         .dims = 16,
                                         .base = 10000,
                                         .scale = 2,
                                         .factors = factors,
                                         .long_factors = long_factors};
        const struct graph_op angles = {
            .kind = OP_ROPE_ANGLES, .n_inputs = 1, .u.rope.config = &rope};
        const struct graph_op turn = {
            .kind = OP_ROPE,
            .n_inputs = 2,
            .u.rope = {.config = &rope, .head_dim = 24, .first = 4 * style}};
        float *x = op_random(5 * 3 * 24, 5, 1), made[5 * 16];
        same(d, &(struct one_op){&angles,
                                 (struct op_rows[]){{(const float *)(const void *)positions, 5, 1}},
                                 NULL, 5, 16, 1e-6f});
        op_run_once(d, &angles, (struct op_rows[]){{(const float *)(const void *)positions, 5, 1}},
                    NULL, NULL, made, 5, 16);
        same(d, &(struct one_op){&turn, (struct op_rows[]){{x, 5, 72}, {made, 5, 16}}, NULL, 5, 72,
                                 1e-6f});
        free(x);
    }
    device_close(&d);
}

TEST(rows_times_a_number_each_are_those_of_the_reference)
{
    static const struct graph_op op = {.kind = OP_GATE_ROWS, .n_inputs = 2};
    static const size_t widths[] = {1, 33, 300};
    struct device *d = cuda_open(0);
    for (size_t k = 0; k < 3; k++) {
        float *x = op_random(5 * widths[k], 1, 4), *gates = op_random(5, 2, 9);
        same(d, &(struct one_op){&op, (struct op_rows[]){{x, 5, widths[k]}, {gates, 5, 1}}, NULL, 5,
                                 widths[k], 2e-6f});
        free(x), free(gates);
    }
    device_close(&d);
}

TEST(each_id_takes_the_same_row_where_the_graph_says_so)
{
    static const uint32_t ids[] = {900000, 0, 6};
    static const struct graph_op op = {
        .kind = OP_EMBED, .n_inputs = 1, .n_weights = 1, .u.embed = {.first = 3, .same = true}};
    struct device *d = cuda_open(0);
    for (int i = 0; i < FORMATS; i++) {
        size_t block = dtype_info(formats[i])->block_elements, width = block == 1 ? 33 : block;
        float *values = op_random(4 * width, 3, 1);
        uint8_t *bytes = malloc(4 * width * sizeof *values);
        struct weight w = weight_make(formats[i], values, 4, width, bytes);
        same(d, &(struct one_op){&op, (struct op_rows[]){{(const float *)(const void *)ids, 3, 1}},
                                 (struct op_weight[]){{&w, WEIGHT_ROWS}, {NULL, WEIGHT_ROWS}}, 3,
                                 width, 1e-6f});
        free(values), free(bytes);
    }
    device_close(&d);
}

/* Rows as F16, BF16 and Q8_WIRE, there and back, as the reference has them to the bit. */
TEST(rows_leave_and_come_in_each_format)
{
    static const enum dtype wires[] = {DTYPE_F16, DTYPE_BF16, DTYPE_Q8_WIRE, DTYPE_F32};
    static const struct device_config plain = {.backend = "plain"};
    struct device *devices[2] = {cuda_open(0)};
    struct err e = {0};
    enum { ROWS = 3, WIDTH = 128 };
    float *x = op_random(ROWS * WIDTH, 4, 3), back[2][ROWS * WIDTH];
    uint8_t bytes[2][ROWS * WIDTH * 4];
    x[5] = 1e6f, x[70] = -1e38f, x[200] = 3e-7f, x[201] = 0;
    assert_int_equal(device_open(&plain, &devices[1], &e), 0);
    for (size_t i = 0; i < sizeof wires / sizeof *wires; i++) {
        memset(bytes, 0, sizeof bytes);
        for (int k = 0; k < 2; k++) {
            const struct backend *b = devices[k]->backend;
            struct stream *s;
            assert_int_equal(b->stream_create(devices[k], &s, &e), 0);
            struct tensor t = op_tensor(devices[k], s, &(struct op_rows){x, ROWS, WIDTH}),
                          host = tensor_on_host(bytes[k], wires[i], ROWS, WIDTH),
                          wide = tensor_on_host(back[k], DTYPE_F32, ROWS, WIDTH);
            b->copy(s, &host, &t);
            b->copy(s, &t, &host);
            b->copy(s, &wide, &t);
            assert_int_equal(b->stream_wait(s, &e), 0);
            b->memory_release(devices[k], &t.memory);
            b->stream_destroy(&s);
        }
        assert_memory_equal(bytes[0], bytes[1], sizeof bytes[0]);
        assert_memory_equal(back[0], back[1], sizeof back[0]);
    }
    free(x);
    device_close(&devices[0]), device_close(&devices[1]);
}

/* Neither side is float32: host to device, within it, and back, as the reference has them. */
TEST(rows_turn_from_each_narrow_format_to_each_other)
{
    static const enum dtype wires[] = {DTYPE_F16, DTYPE_BF16, DTYPE_Q8_WIRE};
    static const struct device_config plain = {.backend = "plain"};
    struct device *devices[2] = {cuda_open(0)};
    struct stream *reference;
    struct err e = {0};
    enum { ROWS = 3, WIDTH = 128, MOST = ROWS * WIDTH * sizeof(float) };
    float *x = op_random(ROWS * WIDTH, 4, 3);
    uint8_t first[MOST], bytes[2][MOST];
    x[5] = 6e4f, x[70] = -1e38f, x[200] = 3e-7f, x[201] = 0;
    assert_int_equal(device_open(&plain, &devices[1], &e), 0);
    assert_int_equal(devices[1]->backend->stream_create(devices[1], &reference, &e), 0);
    for (size_t i = 0; i < 9; i++) {
        enum dtype from = wires[i / 3], to = wires[i % 3];
        struct tensor wide = tensor_on_host(x, DTYPE_F32, ROWS, WIDTH),
                      narrow = tensor_on_host(first, from, ROWS, WIDTH);
        devices[1]->backend->copy(reference, &narrow, &wide);
        memset(bytes, 0, sizeof bytes);
        for (int k = 0; k < 2; k++) {
            const struct backend *b = devices[k]->backend;
            struct memory memory[2];
            struct stream *s;
            assert_int_equal(b->stream_create(devices[k], &s, &e), 0);
            for (int m = 0; m < 2; m++)
                assert_int_equal(b->memory_alloc(devices[k], MOST, &memory[m], &e), 0);
            struct tensor given = tensor_on_host(first, from, ROWS, WIDTH),
                          taken = tensor_on_host(bytes[k], from, ROWS, WIDTH),
                          there = tensor_rows(memory[0], to, ROWS, WIDTH),
                          turned = tensor_rows(memory[1], from, ROWS, WIDTH);
            b->copy(s, &there, &given);
            b->copy(s, &turned, &there);
            b->copy(s, &taken, &turned);
            assert_int_equal(b->stream_wait(s, &e), 0);
            for (int m = 0; m < 2; m++)
                b->memory_release(devices[k], &memory[m]);
            b->stream_destroy(&s);
        }
        if (memcmp(bytes[0], bytes[1], MOST) != 0)
            fail_msg("%s by way of %s", dtype_info(from)->name, dtype_info(to)->name);
    }
    free(x);
    devices[1]->backend->stream_destroy(&reference);
    device_close(&devices[0]), device_close(&devices[1]);
}

/* ---- attention ---- */

struct cuda_attention_case {
    struct op_attention a;
    enum kv_format format;
    uint32_t first, count; /* tokens before the batch that is looked at, and in it */
    float sink;            /* of the first head, and times its number of the others; 0: none */
};

static size_t attention_width(const struct op_attention *a)
{
    return (size_t)a->heads * (size_t)(a->value_dim ? a->value_dim : a->head_dim);
}

/* What was in 4 pages before is no number. */
static void pool_spoil(struct device *d, const struct kv_group *g, const uint32_t *pages)
{
    const struct backend *b = d->backend;
    const struct kv_part all = {.n_blocks = g->layout.n_blocks, .count = 4 * KV_PAGE_TOKENS};
    size_t bytes = 4 * b->kv_page_bytes(d, &g->layout);
    uint8_t *spoilt = malloc(bytes);
    struct stream *s;
    struct err e = {0};
    memset(spoilt, 0xff, bytes);
    assert_int_equal(b->stream_create(d, &s, &e), 0);
    b->kv_import(s, g, pages, &all, spoilt);
    assert_int_equal(b->stream_wait(s, &e), 0);
    b->stream_destroy(&s);
    free(spoilt);
}

static void attention_run(struct device *d, const struct cuda_attention_case *c, float *out,
                          uint8_t *exported)
{
    const struct backend *b = d->backend;
    size_t hd = (size_t)c->a.head_dim, kv = (size_t)c->a.kv_heads * hd, q = (size_t)c->a.heads * hd;
    float sinks[8];
    for (int h = 0; h < 8; h++)
        sinks[h] = c->sink * (float)(h + 1);
    struct weight w = vector_make(sinks, (uint64_t)c->a.heads);
    struct err e = {0};
    struct kv_group g = {.layout = {.n_blocks = 2,
                                    .n_kv_heads = c->a.kv_heads,
                                    .head_dim = c->a.head_dim,
                                    .value_dim = c->a.value_dim,
                                    .format = c->format,
                                    .window = c->a.window}};
    uint32_t pages[] = {3, 0, 2, 1};
    const uint32_t *by_group[] = {pages};
    assert_int_equal(b->memory_alloc(d, 4 * b->kv_page_bytes(d, &g.layout), &g.pool, &e), 0);
    pool_spoil(d, &g, pages);
    const struct graph_op op = {.kind = OP_ATTENTION,
                                .n_inputs = c->a.value_dim ? 2 : 3,
                                .n_weights = c->sink != 0,
                                .u.attention = c->a};
    for (uint32_t first = 0, n; first < c->first + c->count; first += n) {
        n = first < c->first ? c->first : c->count;
        float *rows[3] = {op_random(n * q, first + 1, 1), op_random(n * kv, first + 2, 1),
                          op_random(n * kv, first + 3, 1)};
        const struct attention_run run = {
            .n_tokens = n, .first_position = first, .pages = by_group};
        const struct op_batch batch = {.runs = &run, .n_runs = 1, .kv = &g};
        for (uint32_t p = 0; p < kv_first_seen(c->a.window, first) / KV_PAGE_TOKENS; p++)
            pages[p] = KV_NO_PAGE; /* given back */
        op_run_once(
            d, &op, (struct op_rows[]){{rows[0], n, q}, {rows[1], n, kv}, {rows[2], n, kv}},
            (struct op_weight[]){{c->sink != 0 ? &w : NULL, WEIGHT_VECTOR}, {NULL, WEIGHT_VECTOR}},
            &batch, out, n, attention_width(&c->a));
        for (int i = 0; i < 3; i++)
            free(rows[i]);
    }
    struct stream *s;
    uint32_t seen = kv_first_seen(c->a.window, c->first) / KV_PAGE_TOKENS * KV_PAGE_TOKENS;
    const struct kv_part part = {
        .n_blocks = 1, .first = seen + 1, .count = c->first + c->count - 1 - seen};
    assert_int_equal(b->stream_create(d, &s, &e), 0);
    b->kv_export(s, &g, pages, &part, exported);
    b->kv_import(s, &g, pages, &part, exported);
    assert_int_equal(b->stream_wait(s, &e), 0);
    b->stream_destroy(&s);
    b->memory_release(d, &g.pool);
}

TEST(attention_is_that_of_the_reference)
{
    static const struct cuda_attention_case cases[] = {
        {{.heads = 2, .kv_heads = 1, .head_dim = 32}, KV_F32, 0, 1, 0},
        {{.heads = 4, .kv_heads = 2, .head_dim = 40}, KV_F16, 62, 5, 0},
        {{.heads = 2, .kv_heads = 2, .head_dim = 96}, KV_Q8_0, 3, 130, 0},
        {{.heads = 3, .kv_heads = 1, .head_dim = 130, .cap = 3}, KV_F32, 64, 1, 0},
        {{.heads = 1, .kv_heads = 1, .head_dim = 257, .window = 7}, KV_F16, 10, 20, 0},
        {{.heads = 2, .kv_heads = 1, .head_dim = 16, .whole = true}, KV_F32, 0, 9, 0},
        {{.heads = 2, .kv_heads = 1, .head_dim = 20, .window = 9}, KV_F32, 150, 3, 0},
        /* sinks: greater than any score, less than all, with windows and soft caps */
        {{.heads = 4, .kv_heads = 2, .head_dim = 16}, KV_F32, 0, 5, 40},
        {{.heads = 4, .kv_heads = 2, .head_dim = 16}, KV_F16, 5, 3, -40},
        {{.heads = 2, .kv_heads = 1, .head_dim = 64, .window = 3, .cap = 2}, KV_Q8_0, 66, 2, 0.5f},
        /* values inside keys */
        {{.heads = 4, .kv_heads = 1, .head_dim = 24, .value_dim = 16}, KV_F32, 62, 5, 0},
        {{.heads = 3, .kv_heads = 1, .head_dim = 72, .value_dim = 64}, KV_F16, 3, 2, 1},
        {{.heads = 2, .kv_heads = 1, .head_dim = 96, .value_dim = 64}, KV_Q8_0, 2, 3, 0},
        {{.heads = 2, .kv_heads = 2, .head_dim = 10, .value_dim = 3, .scale = 2}, KV_F32, 0, 4, 0},
        {{.heads = 1, .kv_heads = 1, .head_dim = 576, .value_dim = 512}, KV_F16, 0, 3, 0},
    };
    static const struct device_config plain = {.backend = "plain"};
    struct device *devices[2] = {cuda_open(0)};
    struct err e = {0};
    assert_int_equal(device_open(&plain, &devices[1], &e), 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct cuda_attention_case *c = &cases[i];
        size_t n = c->count * attention_width(&c->a),
               most = (c->first + c->count) * (size_t)(c->a.heads * c->a.head_dim);
        float *out[2];
        uint8_t *kept[2];
        for (int k = 0; k < 2; k++) {
            out[k] = calloc(most + 1, sizeof **out);
            kept[k] = calloc(most + 1, 8);
            attention_run(devices[k], c, out[k], kept[k]);
        }
        assert_memory_equal(kept[0], kept[1], most * 8);
        for (size_t k = 0; k < n; k++)
            if (!(fabsf(out[0][k] - out[1][k]) <= 2e-5f))
                fail_msg("case %zu: element %zu is %g instead of %g", i, k, (double)out[0][k],
                         (double)out[1][k]);
        for (int k = 0; k < 2; k++)
            free(out[k]), free(kept[k]);
    }
    device_close(&devices[0]), device_close(&devices[1]);
}

/* Steps of one sequence on a stream that nobody waits for until the last, `out` [STEPS][WIDTH]. */
enum { STEPS = 40, STEP_WIDTH = 32 };

static void steps_run(struct device *d, float *out)
{
    const struct backend *b = d->backend;
    static const uint32_t pages[] = {1};
    const uint32_t *by_group[] = {pages};
    const struct graph_op op = {.kind = OP_ATTENTION,
                                .n_inputs = 3,
                                .u.attention = {.heads = 1, .kv_heads = 1, .head_dim = STEP_WIDTH}};
    const struct op_request request = {.op = &op};
    struct kv_group g = {.layout = {.n_blocks = 1, .n_kv_heads = 1, .head_dim = STEP_WIDTH}};
    struct device_op *ready;
    struct stream *s;
    struct tensor rows[STEPS][4];
    struct err e = {0};
    assert_int_equal(b->memory_alloc(d, 2 * b->kv_page_bytes(d, &g.layout), &g.pool, &e), 0);
    assert_int_equal(b->stream_create(d, &s, &e), 0);
    assert_int_equal(b->op_prepare(d, &request, &ready, &e), 0);
    for (uint32_t i = 0; i < STEPS * 4; i++) {
        float *x = op_random(STEP_WIDTH, i + 1, 2);
        rows[i / 4][i % 4] = op_tensor(d, s, &(struct op_rows){x, 1, STEP_WIDTH});
        assert_int_equal(b->stream_wait(s, &e), 0);
        free(x);
    }
    for (uint32_t i = 0; i < STEPS; i++) {
        const struct attention_run run = {.n_tokens = 1, .first_position = i, .pages = by_group};
        const struct op_batch batch = {.runs = &run, .n_runs = 1, .kv = &g};
        struct tensor host = tensor_on_host(out + (size_t)i * STEP_WIDTH, DTYPE_F32, 1, STEP_WIDTH);
        b->op_run(s, ready, rows[i], &rows[i][3], &batch);
        b->copy(s, &host, &rows[i][3]);
    }
    assert_int_equal(b->stream_wait(s, &e), 0);
    float kept[STEPS * STEP_WIDTH]; /* as it is now: what follows may wait */
    memcpy(kept, out, sizeof kept);
    b->op_release(&ready);
    for (uint32_t i = 0; i < STEPS * 4; i++)
        b->memory_release(d, &rows[i / 4][i % 4].memory);
    b->memory_release(d, &g.pool);
    b->stream_destroy(&s);
    memcpy(out, kept, sizeof kept);
}

TEST(steps_that_nobody_waits_for_are_those_of_the_reference)
{
    static const struct device_config plain = {.backend = "plain"};
    static float out[2][STEPS * STEP_WIDTH];
    struct device *devices[2] = {cuda_open(0)};
    struct err e = {0};
    assert_int_equal(device_open(&plain, &devices[1], &e), 0);
    for (int k = 0; k < 2; k++)
        steps_run(devices[k], out[k]);
    for (size_t i = 0; i < STEPS * STEP_WIDTH; i++)
        if (!(fabsf(out[0][i] - out[1][i]) <= 2e-5f))
            fail_msg("step %zu: element %zu is %g instead of %g", i / STEP_WIDTH, i % STEP_WIDTH,
                     (double)out[0][i], (double)out[1][i]);
    device_close(&devices[0]), device_close(&devices[1]);
}

/* ---- a model ---- */

/* Logits of a prompt in slices through several stages, and what follows it. */
static void model_run(struct device *d, struct model *m, float *logits, uint32_t *tokens)
{
    static const uint32_t prompt[] = {1, 40, 52, 9, 77, 31, 5, 18, 60, 91};
    enum { PROMPT = sizeof prompt / sizeof *prompt };
    const struct local_config c = {.model = m,
                                   .device = d,
                                   .n_stages = 2,
                                   .slice = 9,
                                   .compute = COMPUTE_F32,
                                   .max_tokens = 64};
    struct local_chain *chain;
    struct err e = {0};
    for (int i = 0; i < 2; i++) {
        if (local_chain_open(&c, &chain, &e) < 0)
            fail_msg("%s", e.text);
        int rc = i ? local_chain_greedy(chain, prompt, PROMPT, tokens, MODEL_TOKENS, &e)
                   : local_chain_run(chain, prompt, PROMPT, MODEL_LOGITS, logits, &e);
        if (rc < 0)
            fail_msg("%s", e.text);
        local_chain_close(&chain);
    }
}

TEST(a_model_in_stages_gives_the_tokens_of_the_reference)
{
    static const struct device_config plain = {.backend = "plain"};
    struct device *devices[2] = {cuda_open(0)};
    struct model *m;
    struct err e = {0};
    uint32_t tokens[2][MODEL_TOKENS];
    float *logits[2];
    if (model_open("examples/demo-model/demo-q8_0.gguf", &m, &e) < 0)
        fail_msg("%s", e.text);
    size_t vocabulary = graph_head_width(model_graph(m)), n = MODEL_LOGITS * vocabulary;
    assert_int_equal(device_open(&plain, &devices[1], &e), 0);
    for (int k = 0; k < 2; k++) {
        logits[k] = calloc(n, sizeof **logits);
        model_run(devices[k], m, logits[k], tokens[k]);
    }
    float greatest = 0;
    for (size_t i = 0; i < n; i++)
        greatest = fmaxf(greatest, fabsf(logits[1][i]));
    for (size_t i = 0; i < n; i++)
        if (!(fabsf(logits[0][i] - logits[1][i]) <= 1e-5f * greatest))
            fail_msg("logit %zu is %g instead of %g", i, (double)logits[0][i],
                     (double)logits[1][i]);
    assert_memory_equal(tokens[0], tokens[1], sizeof tokens[0]);
    for (int k = 0; k < 2; k++) {
        free(logits[k]);
        device_close(&devices[k]);
    }
    model_close(&m);
}

/* ---- what goes wrong ---- */

TEST(a_gpu_without_enough_memory_says_how_many_bytes_are_missing)
{
    struct device *d = cuda_open(1000);
    struct memory m;
    struct err e = {0};
    assert_int_equal(d->backend->memory_alloc(d, 1500, &m, &e), HP_ENOMEM);
    assert_non_null(strstr(e.text, "500 bytes are missing"));
    assert_int_equal(d->backend->memory_alloc(d, 1000, &m, &e), 0);
    assert_int_equal(d->backend->memory_free(d), 0);
    d->backend->memory_release(d, &m);
    assert_int_equal(d->backend->memory_free(d), 1000);
    device_close(&d);
}

TEST(a_box_without_a_driver_or_such_a_gpu_is_told_so)
{
    const struct plugin *p = plugin_open();
    struct plugin_facts facts;
    struct err e = {0};
    void (*restart)(void) = NULL;
    *(void **)&restart = standin_symbol("cuda_on_cpu_restart");
    assert_int_equal(p->facts(1, &facts, &e), HP_EDEVICE);
    assert_non_null(strstr(e.text, "no device cuda:1: this box has 1 GPUs"));
    setenv("CUDA_ON_CPU", "driver=0", 1);
    restart();
    assert_int_equal(p->facts(0, &facts, &e), HP_EDEVICE);
    assert_non_null(strstr(e.text, "this box has no NVIDIA driver"));
    setenv("CUDA_ON_CPU", "driver=12040", 1);
    restart();
    assert_int_equal(p->facts(0, &facts, &e), HP_EDEVICE);
    assert_non_null(
        strstr(e.text, "driver knows CUDA 12.4, and libhp-cuda.so was built with 13.0"));
    struct device *d = NULL;
    const struct device_config c = {.backend = "cuda", .of = p->backend};
    assert_int_equal(device_open(&c, &d, &e), HP_EDEVICE);
    assert_null(d);
    setenv("CUDA_ON_CPU", "driver=13010", 1); /* newer is right */
    restart();
    assert_int_equal(p->facts(0, &facts, &e), 0);
    unsetenv("CUDA_ON_CPU");
    restart();
    assert_int_equal(p->facts(0, &facts, &e), 0);
}

/* From each call on in turn all calls fail, as when the GPU falls off the bus: an error, no crash.
 */
TEST(a_gpu_that_falls_off_the_bus_is_an_error_at_every_call)
{
    const struct backend *b = plugin_open()->backend;
    void (*restart)(void) = NULL;
    uint64_t (*calls)(void) = NULL;
    *(void **)&restart = standin_symbol("cuda_on_cpu_restart");
    *(void **)&calls = standin_symbol("cuda_on_cpu_calls");
    float x[64] = {1}, out[64];
    bool went_well = false;
    for (int fails = 1; !went_well; fails++) {
        char setting[64];
        struct device *d = NULL;
        struct stream *s = NULL;
        struct memory m = {0};
        struct err e = {0};
        assert_true(fails < 200);
        snprintf(setting, sizeof setting, "call_fails=%d", fails);
        setenv("CUDA_ON_CPU", setting, 1);
        restart();
        const struct device_config c = {.backend = "cuda", .of = b};
        int rc = device_open(&c, &d, &e);
        rc = rc < 0 ? rc : b->stream_create(d, &s, &e);
        rc = rc < 0 ? rc : b->memory_alloc(d, sizeof x, &m, &e);
        if (rc == 0) {
            struct tensor t = tensor_rows(m, DTYPE_F32, 1, 64),
                          from = tensor_on_host(x, DTYPE_F32, 1, 64),
                          to = tensor_on_host(out, DTYPE_F32, 1, 64);
            b->copy(s, &t, &from);
            b->copy(s, &to, &t);
            rc = b->stream_wait(s, &e);
        }
        went_well = rc == 0;
        assert_true(!went_well || calls() < (uint64_t)fails);
        if (rc < 0) {
            assert_int_equal(e.code, HP_EDEVICE);
            assert_non_null(strstr(e.text, "illegal memory access"));
        }
        unsetenv("CUDA_ON_CPU");
        if (m.data)
            b->memory_release(d, &m);
        if (s)
            b->stream_destroy(&s);
        if (d)
            device_close(&d);
    }
    restart();
}

/* Scratch that there is no room for ends what runs; the GPU is there all the same. */
TEST(want_of_memory_while_it_computes_is_no_lost_gpu)
{
    void (*restart)(void) = NULL;
    const struct backend *b = plugin_open()->backend;
    struct device *d;
    struct stream *s;
    struct memory m;
    struct err e = {0};
    float x[64] = {1, 2, 3};
    uint16_t out[64];
    *(void **)&restart = standin_symbol("cuda_on_cpu_restart");
    setenv("CUDA_ON_CPU", "malloc_fails=2", 1); /* the first is the tensor's */
    restart();
    d = cuda_open(0);
    assert_int_equal(b->stream_create(d, &s, &e), 0);
    assert_int_equal(b->memory_alloc(d, sizeof x, &m, &e), 0);
    struct tensor t = tensor_rows(m, DTYPE_F32, 1, 64), from = tensor_on_host(x, DTYPE_F32, 1, 64),
                  to = tensor_on_host(out, DTYPE_F16, 1, 64);
    b->copy(s, &t, &from);
    b->copy(s, &to, &t);
    assert_int_equal(b->stream_wait(s, &e), HP_ENOMEM);
    assert_non_null(strstr(e.text, "memory"));
    b->copy(s, &to, &t);
    assert_int_equal(b->stream_wait(s, &e), 0);
    b->memory_release(d, &m);
    b->stream_destroy(&s);
    device_close(&d);
    unsetenv("CUDA_ON_CPU");
    restart();
}

/* A stage that serves: the GPU is lost in the midst of a step, sooner or later in it. The step
 * fails with CUDA's reason, so does what is asked of it after, and the process opens another. */
TEST(a_gpu_that_is_lost_while_it_serves_fails_its_stage_and_nothing_else)
{
    static const uint32_t prompt[] = {1, 40, 52}, next = 9;
    static const uint64_t later[] = {1, 2, 7, 23, 60};
    void (*restart)(void) = NULL;
    void (*lose)(uint64_t after) = NULL;
    struct model *m;
    struct err e = {0};
    plugin_open();
    *(void **)&restart = standin_symbol("cuda_on_cpu_restart");
    *(void **)&lose = standin_symbol("cuda_on_cpu_lose");
    if (model_open("examples/demo-model/demo-q8_0.gguf", &m, &e) < 0)
        fail_msg("%s", e.text);
    float *logits = calloc(graph_head_width(model_graph(m)), sizeof *logits);
    for (size_t i = 0; i <= sizeof later / sizeof *later; i++) {
        struct device *d = cuda_open(0);
        const struct local_config c = {
            .model = m, .device = d, .n_stages = 1, .compute = COMPUTE_F32, .max_tokens = 64};
        struct local_chain *chain;
        if (local_chain_open(&c, &chain, &e) < 0)
            fail_msg("%s", e.text);
        assert_int_equal(local_chain_run(chain, prompt, 3, 1, logits, &e), 0);
        if (i < sizeof later / sizeof *later) {
            lose(later[i]);
            for (int again = 0; again < 2; again++) {
                struct err lost = {0};
                assert_int_equal(local_chain_run(chain, &next, 1, 1, logits, &lost), HP_EDEVICE);
                assert_non_null(strstr(lost.text, "illegal memory access"));
            }
        } else {
            assert_int_equal(local_chain_run(chain, &next, 1, 1, logits, &e), 0);
        }
        local_chain_close(&chain);
        device_close(&d);
        restart();
    }
    free(logits);
    model_close(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_stand_in_finds_each_kind_of_fault),
        cmocka_unit_test(the_stand_in_lets_what_is_right_be),
        cmocka_unit_test(a_missing_wait_for_an_event_is_found_by_some_seed),
        cmocka_unit_test(products_of_each_format_are_those_of_the_reference),
        cmocka_unit_test(rows_of_a_table_are_those_of_the_reference),
        cmocka_unit_test(norms_gates_and_sums_are_those_of_the_reference),
        cmocka_unit_test(rotations_are_those_of_the_reference),
        cmocka_unit_test(rows_times_a_number_each_are_those_of_the_reference),
        cmocka_unit_test(each_id_takes_the_same_row_where_the_graph_says_so),
        cmocka_unit_test(rows_leave_and_come_in_each_format),
        cmocka_unit_test(rows_turn_from_each_narrow_format_to_each_other),
        cmocka_unit_test(attention_is_that_of_the_reference),
        cmocka_unit_test(steps_that_nobody_waits_for_are_those_of_the_reference),
        cmocka_unit_test(a_model_in_stages_gives_the_tokens_of_the_reference),
        cmocka_unit_test(a_gpu_without_enough_memory_says_how_many_bytes_are_missing),
        cmocka_unit_test(a_box_without_a_driver_or_such_a_gpu_is_told_so),
        cmocka_unit_test(a_gpu_that_falls_off_the_bus_is_an_error_at_every_call),
        cmocka_unit_test(want_of_memory_while_it_computes_is_no_lost_gpu),
        cmocka_unit_test(a_gpu_that_is_lost_while_it_serves_fails_its_stage_and_nothing_else),
    };
    return cmocka_run_group_tests_name("cuda", tests, NULL, NULL);
}
