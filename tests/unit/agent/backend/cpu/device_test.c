/* The CPU as a device, through its table alone: products in every form and on any number of
 * threads, memory limits, KV blocks. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "agent/backend/backend.h"
#include "agent/backend/plain/loops.h"
#include "common/env.h"
#include "tests/test.h"

static struct device *open_cpu(const char *kernels, int threads, uint64_t memory)
{
    struct device_config c = {.n_threads = threads, .memory_bytes = memory, .kernels = kernels};
    struct device *d = NULL;
    struct err e = {0};
    if (device_open(&c, &d, &e) < 0 && e.code != HP_EDEVICE)
        fail_msg("%s", e.text);
    return d;
}

static float *random_floats(size_t n, uint64_t seed)
{
    float *out = calloc(n, sizeof *out);
    assert_non_null(out);
    for (size_t i = 0; i < n; i++)
        out[i] = (float)(random_unit(&seed) * 2 - 1);
    return out;
}

static void tensor_fill(struct device *d, struct stream *s, const struct tensor *t,
                        const float *values)
{
    struct tensor host = tensor_on_host(values, DTYPE_F32, t->shape[0], t->shape[1]);
    d->backend->copy(s, t, &host);
}

static void tensor_fetch(struct device *d, struct stream *s, const struct tensor *t, float *out)
{
    struct tensor host = tensor_on_host(out, DTYPE_F32, t->shape[0], t->shape[1]);
    d->backend->copy(s, &host, t);
}

static struct tensor tensor_of(struct device *d, struct stream *s, const float *values, size_t rows,
                               size_t width)
{
    struct memory m;
    struct err e = {0};
    assert_int_equal(d->backend->memory_alloc(d, rows * width * sizeof *values, &m, &e), 0);
    struct tensor t = tensor_rows(m, DTYPE_F32, rows, width);
    tensor_fill(d, s, &t, values);
    return t;
}

static struct device_op *op_of(struct device *d, const struct graph_op *op,
                               const struct device_weight *w, const struct device_weight *bias)
{
    struct op_request r = {.op = op, .weights = {w, bias}};
    struct device_op *out = NULL;
    struct err e = {0};
    if (d->backend->op_prepare(d, &r, &out, &e) < 0)
        fail_msg("%s", e.text);
    return out;
}

static const struct graph_op product_row = {.kind = OP_MATMUL, .n_inputs = 1, .n_outputs = 1},
                             sum_row = {.kind = OP_MATMUL, .n_inputs = 2, .n_outputs = 1};

static struct weight matrix_of(const float *values, size_t rows, size_t columns)
{
    return (struct weight){.name = "w",
                           .dtype = DTYPE_F32,
                           .n_dims = 2,
                           .shape = {rows, columns},
                           .bytes = rows * columns * sizeof *values,
                           .file = -1,
                           .data = (const uint8_t *)values};
}

struct product_case {
    size_t rows, outputs, inputs;
    bool accumulate, bias;
};

/* A case with its numbers, and its result in double precision; `magnitude` is what the products sum
 * to without signs. */
struct product_data {
    const struct product_case *c;
    float *x, *w, *bias, *before, *out;
    double *want, *magnitude;
};

static struct product_data product_by_hand(const struct product_case *c)
{
    size_t n = c->rows * c->outputs;
    struct product_data p = {.c = c,
                             .want = calloc(n, sizeof(double)),
                             .magnitude = calloc(n, sizeof(double)),
                             .out = calloc(n, sizeof(float))};
    p.x = random_floats(c->rows * c->inputs, 1);
    p.w = random_floats(c->outputs * c->inputs, 2);
    p.bias = random_floats(c->outputs, 3);
    p.before = random_floats(n, 4);
    for (size_t i = 0; i < n; i++) {
        const float *x = p.x + i / c->outputs * c->inputs, *w = p.w + i % c->outputs * c->inputs;
        double sum = c->accumulate ? (double)p.before[i] : 0, size = fabs(sum) + 1;
        for (size_t k = 0; k < c->inputs; k++) {
            sum += (double)x[k] * (double)w[k];
            size += fabs((double)x[k] * (double)w[k]);
        }
        p.want[i] = sum + (c->bias ? (double)p.bias[i % c->outputs] : 0);
        p.magnitude[i] = size;
    }
    return p;
}

static void product_free(struct product_data *p)
{
    free(p->x), free(p->w), free(p->bias), free(p->before), free(p->out), free(p->want),
        free(p->magnitude);
}

static void check_product(struct device *d, struct product_data *p, bool f32)
{
    const struct backend *b = d->backend;
    const struct product_case *c = p->c;
    size_t n = c->rows * c->outputs;
    struct stream *s;
    struct err e = {0};
    assert_int_equal(b->stream_create(d, &s, &e), 0);
    struct weight matrix = matrix_of(p->w, c->outputs, c->inputs),
                  vector = matrix_of(p->bias, 1, c->outputs);
    struct device_weight *dw, *db;
    assert_int_equal(b->weight_load(d, &matrix, WEIGHT_MATMUL, f32, &dw, &e), 0);
    assert_int_equal(b->weight_load(d, &vector, WEIGHT_VECTOR, f32, &db, &e), 0);
    struct tensor x = tensor_of(d, s, p->x, c->rows, c->inputs),
                  out = tensor_of(d, s, p->before, c->rows, c->outputs), inputs[] = {x, out};
    struct device_op *op =
        op_of(d, c->accumulate ? &sum_row : &product_row, dw, c->bias ? db : NULL);
    b->op_run(s, op, inputs, &out, NULL);
    assert_int_equal(b->stream_wait(s, &e), 0);
    tensor_fetch(d, s, &out, p->out);
    b->op_release(&op);
    for (size_t i = 0; i < n; i++)
        if (!(fabs((double)p->out[i] - p->want[i]) <= (f32 ? 1e-6 : 4e-3) * p->magnitude[i]))
            fail_msg("%s: %zu x %zu x %zu, element %zu: %g, expected %g", b->device_describe(d),
                     c->rows, c->outputs, c->inputs, i, (double)p->out[i], p->want[i]);
    b->weight_free(d, &dw);
    b->weight_free(d, &db);
    b->memory_release(d, &x.memory);
    b->memory_release(d, &out.memory);
    b->stream_destroy(&s);
}

TEST(products_are_right_in_every_form_and_on_any_number_of_threads)
{
    static const char *const kernels[] = {"plain",  "avx2",        "avx_vnni",
                                          "avx512", "avx512_bf16", "amx"};
    /* The larger ones are packed for bf16; the odd ones leave panels and chunks half full. */
    static const struct product_case cases[] = {
        {1, 3, 5, false, false},      {1, 130, 33, true, true},     {9, 65, 600, false, true},
        {70, 64, 64, true, false},    {1, 520, 520, false, true},   {3, 513, 515, true, false},
        {7, 513, 515, true, true},    {15, 1000, 300, false, true}, {33, 515, 514, true, false},
        {12, 600, 513, false, false}, {1, 515, 528, true, true},    {6, 513, 1040, false, true},
        {9, 519, 528, true, false},   {40, 530, 512, true, false},  {57, 518, 544, false, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct product_data p = product_by_hand(&cases[i]);
        size_t n = cases[i].rows * cases[i].outputs;
        float *f32 = calloc(n, sizeof *f32);
        assert_non_null(f32);
        for (size_t k = 0; k < sizeof kernels / sizeof *kernels; k++)
            for (int threads = 1; threads <= 2; threads++) {
                struct device *d = open_cpu(kernels[k], threads, 0);
                if (d) {
                    check_product(d, &p, true);
                    memcpy(f32, p.out, n * sizeof *f32);
                    check_product(d, &p, false);
                }
                /* Without bf16 rows of large matrices lie side by side, and that is all, but for
                 * many rows, which are multiplied by integers. */
                bool by_words = cases[i].rows >= 40 && cases[i].inputs % 32 == 0;
                if (d && k < 4 && !by_words)
                    assert_memory_equal(p.out, f32, n * sizeof *f32);
                device_close(&d);
            }
        free(f32);
        product_free(&p);
    }
}

TEST(float32_products_do_not_depend_on_rows_or_threads)
{
    enum { ROWS = 13, OUTPUTS = 70, INPUTS = 1100 };
    float *x = random_floats(ROWS * INPUTS, 1), *w = random_floats(OUTPUTS * INPUTS, 2),
          together[ROWS * OUTPUTS], alone[ROWS * OUTPUTS];
    struct weight matrix = matrix_of(w, OUTPUTS, INPUTS);
    for (int threads = 1; threads <= 2; threads++) {
        struct device *d = open_cpu(NULL, threads, 0);
        const struct backend *b = d->backend;
        struct stream *s;
        struct device_weight *dw;
        struct err e = {0};
        assert_int_equal(b->stream_create(d, &s, &e), 0);
        assert_int_equal(b->weight_load(d, &matrix, WEIGHT_MATMUL, true, &dw, &e), 0);
        struct tensor tx = tensor_of(d, s, x, ROWS, INPUTS), to = tensor_of(d, s, x, ROWS, OUTPUTS);
        struct device_op *op = op_of(d, &product_row, dw, NULL);
        b->op_run(s, op, &tx, &to, NULL);
        tensor_fetch(d, s, &to, together);
        tx.shape[0] = to.shape[0] = 1;
        for (size_t r = 0; r < ROWS; r++) {
            tensor_fill(d, s, &tx, x + r * INPUTS);
            b->op_run(s, op, &tx, &to, NULL);
            tensor_fetch(d, s, &to, alone + r * OUTPUTS);
        }
        b->op_release(&op);
        assert_memory_equal(together, alone, sizeof alone);
        b->weight_free(d, &dw);
        b->memory_release(d, &tx.memory);
        b->memory_release(d, &to.memory);
        b->stream_destroy(&s);
        device_close(&d);
    }
    free(x);
    free(w);
}

/* Bytes that a weight takes of a device that has the scratch to pack it. */
static uint64_t weight_takes(struct device *d, const struct weight *w, enum weight_use use,
                             bool f32, struct device_weight **out)
{
    struct err e = {0};
    assert_int_equal(d->backend->weight_load(d, w, use, f32, out, &e), 0);
    d->backend->weight_free(d, out);
    uint64_t before = d->backend->memory_free(d);
    assert_int_equal(d->backend->weight_load(d, w, use, f32, out, &e), 0);
    return before - d->backend->memory_free(d);
}

TEST(what_a_weight_holds_is_known_before_it_is_loaded)
{
    static const struct {
        size_t rows, columns;
        enum weight_use use;
        bool f32;
    } cases[] = {{600, 515, WEIGHT_MATMUL, false},
                 {600, 515, WEIGHT_MATMUL, true},
                 {600, 515, WEIGHT_ROWS, false},
                 {601, 528, WEIGHT_MATMUL, false},
                 {1, 515, WEIGHT_VECTOR, false}};
    float *w = random_floats(601 * 528, 1);
    for (size_t i = 0; i < 2 * sizeof cases / sizeof *cases; i++) {
        struct device *d = open_cpu(i % 2 ? "avx2" : NULL, 1, 1 << 30);
        if (!d)
            continue;
        struct weight source = matrix_of(w, cases[i / 2].rows, cases[i / 2].columns);
        struct device_weight *dw;
        uint64_t bytes = weight_takes(d, &source, cases[i / 2].use, cases[i / 2].f32, &dw),
                 after = d->backend->memory_free(d);
        assert_int_equal(bytes, d->backend->weight_resident_bytes(d, &source, cases[i / 2].use,
                                                                  cases[i / 2].f32));
        d->backend->weight_free(d, &dw);
        assert_int_equal(d->backend->memory_free(d) - after, bytes);
        device_close(&d);
    }
    free(w);
}

TEST(beyond_the_limit_the_error_says_how_much_is_missing)
{
    struct device *d = open_cpu(NULL, 1, 1000);
    struct memory t, u;
    struct err e = {0};
    assert_int_equal(d->backend->memory_alloc(d, 600, &t, &e), 0);
    assert_int_equal(d->backend->memory_alloc(d, 600, &u, &e), HP_ENOMEM);
    assert_non_null(strstr(e.text, "200 bytes are missing"));
    float *w = random_floats(110, 1);
    struct weight source = matrix_of(w, 11, 10);
    struct device_weight *dw = NULL;
    assert_int_equal(d->backend->weight_load(d, &source, WEIGHT_MATMUL, true, &dw, &e), HP_ENOMEM);
    assert_null(dw);
    d->backend->memory_release(d, &t);
    assert_int_equal(d->backend->memory_free(d), 1000);
    device_close(&d);
    free(w);
}

static const char *const cpu_and_plain[] = {NULL, "plain"};

/* Groups of layers that look different in all there is, of one sequence each. */
enum { KV_TOKENS = 100, KV_PAGES = 4, KV_GROUPS = 3, KV_BLOCKS = 2 };
static const struct kv_layout kv_layouts[KV_GROUPS] = {
    {.n_blocks = KV_BLOCKS, .n_kv_heads = 3, .head_dim = 10, .format = KV_F32},
    {.n_blocks = KV_BLOCKS, .n_kv_heads = 2, .head_dim = 16, .window = 30},
    {.n_blocks = KV_BLOCKS, .n_kv_heads = 2, .head_dim = 64, .format = KV_Q8_0}};

struct kv_bench {
    struct device *d;
    struct stream *s;
    struct kv_group groups[KV_GROUPS];
    float *k[KV_GROUPS], *v[KV_GROUPS]; /* [KV_TOKENS, heads * head_dim] */
};

static size_t kv_width(int group)
{
    return (size_t)kv_layouts[group].n_kv_heads * (size_t)kv_layouts[group].head_dim;
}

static void kv_bench_open(struct kv_bench *t, const char *kernels)
{
    struct err e = {0};
    t->d = open_cpu(kernels, 1, 0);
    assert_int_equal(t->d->backend->stream_create(t->d, &t->s, &e), 0);
    for (int g = 0; g < KV_GROUPS; g++) {
        const struct backend *b = t->d->backend;
        t->groups[g].layout = kv_layouts[g];
        assert_int_equal(b->memory_alloc(t->d, KV_PAGES * b->kv_page_bytes(t->d, &kv_layouts[g]),
                                         &t->groups[g].pool, &e),
                         0);
        t->k[g] = random_floats(KV_TOKENS * kv_width(g), 5 + (uint64_t)g);
        t->v[g] = random_floats(KV_TOKENS * kv_width(g), 7 + (uint64_t)g);
    }
}

static void kv_bench_close(struct kv_bench *t)
{
    for (int g = 0; g < KV_GROUPS; g++) {
        t->d->backend->memory_release(t->d, &t->groups[g].pool);
        free(t->k[g]), free(t->v[g]);
    }
    t->d->backend->stream_destroy(&t->s);
    device_close(&t->d);
}

/* Attention of tokens [first, first + n) of block `block` of a group: queries are keys. Writes
 * [n, heads * head_dim]. */
static void kv_bench_attend(struct kv_bench *t, int g, int block, const uint32_t *pages,
                            uint32_t first, uint32_t n, float *out)
{
    const struct kv_layout *l = &kv_layouts[g];
    size_t width = kv_width(g);
    const struct graph_op row = {.kind = OP_ATTENTION,
                                 .n_inputs = 3,
                                 .n_outputs = 1,
                                 .u.attention = {.heads = l->n_kv_heads,
                                                 .kv_heads = l->n_kv_heads,
                                                 .head_dim = l->head_dim,
                                                 .window = l->window}};
    struct tensor in[] = {tensor_of(t->d, t->s, t->k[g] + first * width, n, width),
                          tensor_of(t->d, t->s, t->k[g] + first * width, n, width),
                          tensor_of(t->d, t->s, t->v[g] + first * width, n, width)},
                  to = tensor_of(t->d, t->s, t->k[g], n, width);
    const uint32_t *by_group[KV_GROUPS] = {NULL};
    by_group[g] = pages;
    struct attention_run run = {.n_tokens = n, .first_position = first, .pages = by_group};
    struct op_batch batch = {.runs = &run, .n_runs = 1, .kv = t->groups};
    struct op_request r = {.op = &row, .kv_group = g, .kv_block = block};
    struct device_op *op;
    assert_int_equal(t->d->backend->op_prepare(t->d, &r, &op, NULL), 0);
    t->d->backend->op_run(t->s, op, in, &to, &batch);
    assert_int_equal(t->d->backend->stream_wait(t->s, NULL), 0);
    if (out)
        tensor_fetch(t->d, t->s, &to, out);
    t->d->backend->op_release(&op);
    for (int i = 0; i < 3; i++)
        t->d->backend->memory_release(t->d, &in[i].memory);
    t->d->backend->memory_release(t->d, &to.memory);
}

TEST(kv_blocks_leave_and_come_back_as_they_were)
{
    enum { FIRST = 20, COUNT = 70 };
    static const uint32_t there[] = {1, 3}, here[] = {2, 0};
    for (int i = 0; i < 2 * KV_GROUPS; i++) {
        int g = i % KV_GROUPS;
        struct kv_bench t;
        kv_bench_open(&t, cpu_and_plain[i / KV_GROUPS]);
        const struct backend *b = t.d->backend;
        for (int block = 0; block < KV_BLOCKS; block++)
            kv_bench_attend(&t, g, block, there, 0, KV_TOKENS, NULL);
        enum kv_format format = kv_layouts[g].format;
        size_t width = kv_width(g), one = (size_t)2 * COUNT * kv_format_bytes(format, width);
        uint8_t *out = calloc(2, one), *back = calloc(2, one);
        const struct kv_part all = {0, 2, FIRST, COUNT}, last = {1, 1, FIRST, COUNT};
        b->kv_export(t.s, &t.groups[g], there, &all, out);
        b->kv_import(t.s, &t.groups[g], here, &all, out);
        b->kv_export(t.s, &t.groups[g], here, &all, back);
        assert_memory_equal(out, back, 2 * one);
        /* A block alone is the same as among others, in as many pieces as one likes. */
        memset(back, 0, one);
        b->kv_export(t.s, &t.groups[g], there, &last, back);
        assert_memory_equal(back, out + one, one);
        b->kv_import(t.s, &t.groups[g], here, &(struct kv_part){0, 1, FIRST, COUNT}, back);
        b->kv_export(t.s, &t.groups[g], here, &(struct kv_part){0, 1, FIRST, COUNT}, back);
        assert_memory_equal(back, out + one, one);
        /* [block][k or v][token][kv head][head dim]: the values of block 1 begin at three quarters.
         */
        uint8_t *blocks = calloc(COUNT, KV_Q8_BYTES * width);
        loop_q8_0(t.v[g] + FIRST * width, format == KV_Q8_0 ? COUNT * width : 0, blocks);
        if (format == KV_Q8_0)
            assert_memory_equal(out + one / 2 * 3, blocks, one / 2);
        free(blocks);
        for (size_t n = 0; format != KV_Q8_0 && n < COUNT * width; n++) {
            float want = t.v[g][FIRST * width + n], got;
            uint16_t half;
            memcpy(&half, out + one / 2 * 3 + n * 2, 2);
            memcpy(&got, out + one / 2 * 3 + (format == KV_F32 ? n * 4 : 0), 4);
            if (format == KV_F32)
                assert_true(got == want);
            else
                assert_int_equal(half, dtype_f32_to_f16(want));
        }
        kv_bench_close(&t);
        free(out), free(back);
    }
}

/* What one backend exports another imports, and goes on with: as the plain loops would. */
TEST(a_sequence_goes_on_behind_imported_kv_on_any_backend)
{
    enum { MOVED = 70, LEFT = KV_TOKENS - MOVED };
    static const uint32_t pages[] = {1, 3};
    for (int i = 0; i < 4; i++)
        for (int g = 0; g < KV_GROUPS; g++) {
            struct kv_bench from, to, plain;
            size_t n = LEFT * kv_width(g);
            kv_bench_open(&from, cpu_and_plain[i / 2]);
            kv_bench_open(&to, cpu_and_plain[i % 2]);
            kv_bench_open(&plain, "plain");
            float *got = calloc(n, sizeof *got), *want = calloc(n, sizeof *want);
            kv_bench_attend(&plain, g, 1, pages, 0, MOVED, NULL);
            kv_bench_attend(&plain, g, 1, pages, MOVED, LEFT, want);
            kv_bench_attend(&from, g, 1, pages, 0, MOVED, NULL);
            /* With a window: from the page that the next token begins to see. */
            uint32_t first =
                kv_first_seen(kv_layouts[g].window, MOVED) / KV_PAGE_TOKENS * KV_PAGE_TOKENS;
            struct kv_part part = {1, 1, first, MOVED - first};
            void *block = calloc(part.count * kv_width(g), 2 * sizeof(float));
            from.d->backend->kv_export(from.s, &from.groups[g], pages, &part, block);
            to.d->backend->kv_import(to.s, &to.groups[g], pages, &part, block);
            kv_bench_attend(&to, g, 1, pages, MOVED, LEFT, got);
            for (size_t k = 0; k < n; k++)
                assert_true(fabsf(got[k] - want[k]) < 1e-5f);
            kv_bench_close(&from), kv_bench_close(&to), kv_bench_close(&plain);
            free(got), free(want), free(block);
        }
}

TEST(attention_is_the_same_on_any_number_of_threads)
{
    enum { HEADS = 6, KV = 3, DIM = 32, FIRST = 90, SECOND = 1, ROWS = FIRST + SECOND };
    static const uint32_t pages[] = {3, 1}, others[] = {2};
    static const uint32_t *const of_first[] = {pages}, *const of_second[] = {others};
    static const struct graph_op row = {
        .kind = OP_ATTENTION,
        .n_inputs = 3,
        .n_outputs = 1,
        .u.attention = {.heads = HEADS, .kv_heads = KV, .head_dim = DIM}};
    const struct attention_run runs[] = {
        {.n_tokens = FIRST, .pages = of_first},
        {.first_row = FIRST, .n_tokens = SECOND, .pages = of_second}};
    struct kv_layout l = {.n_blocks = 1, .n_kv_heads = KV, .head_dim = DIM};
    float *q = random_floats(ROWS * HEADS * DIM, 1), *k = random_floats(ROWS * KV * DIM, 2),
          *first = calloc(ROWS * HEADS * DIM, sizeof *first);
    float *out = calloc(ROWS * HEADS * DIM, sizeof *out);
    for (int threads = 0; threads <= 4; threads++) {
        struct device *d = open_cpu(threads ? NULL : "plain", threads, 0);
        const struct backend *b = d->backend;
        struct stream *s;
        struct err e = {0};
        struct memory pool;
        assert_int_equal(b->stream_create(d, &s, &e), 0);
        assert_int_equal(b->memory_alloc(d, 4 * b->kv_page_bytes(d, &l), &pool, &e), 0);
        struct tensor in[] = {tensor_of(d, s, q, ROWS, HEADS * DIM),
                              tensor_of(d, s, k, ROWS, KV * DIM)},
                      to = tensor_of(d, s, q, ROWS, HEADS * DIM), inputs[] = {in[0], in[1], in[1]};
        struct kv_group group = {l, pool};
        struct op_batch batch = {.runs = runs, .n_runs = 2, .kv = &group};
        struct device_op *op = op_of(d, &row, NULL, NULL);
        b->op_run(s, op, inputs, &to, &batch);
        assert_int_equal(b->stream_wait(s, &e), 0);
        tensor_fetch(d, s, &to, out);
        if (threads == 1)
            memcpy(first, out, ROWS * HEADS * DIM * sizeof *out);
        if (threads > 0)
            assert_memory_equal(out, first, ROWS * HEADS * DIM * sizeof *out);
        /* A sequence of one token attends to itself: its value, as f16. */
        for (size_t i = 0; i < DIM; i++)
            assert_true(fabsf(out[FIRST * HEADS * DIM + i] - k[FIRST * KV * DIM + i]) < 1e-3f);
        b->op_release(&op);
        b->memory_release(d, &in[0].memory), b->memory_release(d, &in[1].memory);
        b->memory_release(d, &to.memory), b->memory_release(d, &pool);
        b->stream_destroy(&s);
        device_close(&d);
    }
    free(q), free(k), free(first), free(out);
}

/* A view of every second column pair of a wider value, and other number formats. */
TEST(copies_convert_formats_and_follow_strides)
{
    enum { ROWS = 3, WIDTH = 5, WIDE = 2 * WIDTH };
    for (int i = 0; i < 2; i++) {
        struct device *d = open_cpu(cpu_and_plain[i], 1, 0);
        const struct backend *b = d->backend;
        struct stream *s;
        struct err e = {0};
        float *values = random_floats(ROWS * WIDE, 7), back[ROWS * WIDTH];
        uint16_t halves[ROWS * WIDTH];
        assert_int_equal(b->stream_create(d, &s, &e), 0);
        struct tensor whole = tensor_of(d, s, values, ROWS, WIDE), view = whole;
        view.offset = WIDTH * sizeof(float);
        view.shape[1] = WIDTH;
        static const enum dtype types[] = {DTYPE_F16, DTYPE_BF16};
        for (int t = 0; t < 2; t++) {
            struct tensor half = tensor_on_host(halves, types[t], ROWS, WIDTH),
                          full = tensor_on_host(back, DTYPE_F32, ROWS, WIDTH);
            b->copy(s, &half, &view);
            b->copy(s, &full, &half);
            for (size_t n = 0; n < ROWS * WIDTH; n++) {
                float from = values[n / WIDTH * WIDE + WIDTH + n % WIDTH];
                uint16_t want = t ? dtype_f32_to_bf16(from) : dtype_f32_to_f16(from);
                assert_int_equal(halves[n], want);
                assert_true(back[n] == (t ? dtype_bf16_to_f32(want) : dtype_f16_to_f32(want)));
            }
        }
        b->memory_release(d, &whole.memory);
        b->stream_destroy(&s);
        device_close(&d);
        free(values);
    }
}

/* Large ones go to several threads in pieces, with a last one that is short; what is beyond the
 * largest f16 becomes that. */
TEST(large_copies_give_what_small_ones_give_and_saturate)
{
    enum { ROWS = 700, WIDTH = 301, N = ROWS * WIDTH, VIEW = 299 };
    float *values = random_floats(N, 8), *back = calloc(N, sizeof *back);
    uint16_t *halves = calloc(N, sizeof *halves), want;
    values[5] = 1e30f, values[N - 1] = -1e30f;
    for (int i = 0; i < 2; i++) {
        struct device *d = open_cpu(cpu_and_plain[i], 2, 0);
        const struct backend *b = d->backend;
        struct stream *s;
        struct err e = {0};
        assert_int_equal(b->stream_create(d, &s, &e), 0);
        struct tensor whole = tensor_of(d, s, values, ROWS, WIDTH),
                      half = tensor_on_host(halves, DTYPE_F16, ROWS, WIDTH),
                      full = tensor_on_host(back, DTYPE_F32, ROWS, WIDTH);
        b->copy(s, &half, &whole);
        b->copy(s, &full, &half);
        for (size_t n = 0; n < N; n++) {
            float from = fabsf(values[n]) > 65504 ? copysignf(65504, values[n]) : values[n];
            want = dtype_f32_to_f16(from);
            assert_int_equal(halves[n], want);
            assert_true(back[n] == dtype_f16_to_f32(want));
        }
        b->copy(s, &full, &whole);
        assert_memory_equal(back, values, N * sizeof *values);
        struct tensor view = whole;
        view.offset = sizeof(float);
        view.shape[1] = VIEW;
        half = tensor_on_host(halves, DTYPE_F16, ROWS, VIEW);
        b->copy(s, &half, &view);
        for (size_t n = 0; n < ROWS * VIEW; n++) {
            float from = values[n / VIEW * WIDTH + 1 + n % VIEW];
            from = fabsf(from) > 65504 ? copysignf(65504, from) : from;
            assert_int_equal(halves[n], dtype_f32_to_f16(from));
        }
        b->memory_release(d, &whole.memory);
        b->stream_destroy(&s);
        device_close(&d);
    }
    free(values), free(back), free(halves);
}

/* The result need not lie where the operator's kind would let it. */
TEST(results_do_not_depend_on_where_they_lie)
{
    enum { ROWS = 4, WIDTH = 24 };
    static const struct rope_config rope = {
        .style = ROPE_HALVES, .dims = 8, .base = 10000, .scale = 1};
    static const struct graph_op rows[] = {
        {.kind = OP_MATMUL, .n_inputs = 2, .n_outputs = 1},
        {.kind = OP_ROPE, .n_inputs = 2, .n_outputs = 1, .u.rope = {&rope, 12, 0}},
        {.kind = OP_SILU_MUL, .n_inputs = 2, .n_outputs = 1},
    };
    float *x = random_floats(ROWS * WIDTH, 1), *y = random_floats(ROWS * WIDTH, 2),
          *w = random_floats(WIDTH * WIDTH, 3), apart[ROWS * WIDTH], shared[ROWS * WIDTH];
    struct weight matrix = matrix_of(w, WIDTH, WIDTH);
    for (int i = 0; i < 6; i++) {
        struct device *d = open_cpu(cpu_and_plain[i / 3], 1, 0);
        const struct backend *b = d->backend;
        const struct graph_op *row = &rows[i % 3];
        struct stream *s;
        struct device_weight *dw;
        struct err e = {0};
        assert_int_equal(b->stream_create(d, &s, &e), 0);
        assert_int_equal(b->weight_load(d, &matrix, WEIGHT_MATMUL, true, &dw, &e), 0);
        struct tensor in[] = {tensor_of(d, s, x, ROWS, WIDTH), tensor_of(d, s, y, ROWS, WIDTH)},
                      out = tensor_of(d, s, w, ROWS, WIDTH);
        struct device_op *op = op_of(d, row, row->kind == OP_MATMUL ? dw : NULL, NULL);
        b->op_run(s, op, in, &out, NULL);
        tensor_fetch(d, s, &out, apart);
        int where = op_kind_info(row->kind)->shares;
        b->op_run(s, op, in, &in[where], NULL);
        tensor_fetch(d, s, &in[where], shared);
        assert_memory_equal(apart, shared, sizeof apart);
        b->op_release(&op);
        b->weight_free(d, &dw);
        b->memory_release(d, &in[0].memory), b->memory_release(d, &in[1].memory);
        b->memory_release(d, &out.memory);
        b->stream_destroy(&s);
        device_close(&d);
    }
    free(x), free(y), free(w);
}

/* A matrix that lies as [inputs, outputs] gives the products of the one that lies the other way. */
TEST(turned_matrices_multiply_like_the_others)
{
    enum { ROWS = 3, INPUTS = 600, OUTPUTS = 520 };
    static const struct graph_op turned_row = {
        .kind = OP_MATMUL, .n_inputs = 1, .n_outputs = 1, .u.matmul = {true}};
    float *x = random_floats(ROWS * INPUTS, 1), *w = random_floats(INPUTS * OUTPUTS, 2),
          *turned = calloc(INPUTS * OUTPUTS, sizeof *turned), out[2][ROWS * OUTPUTS];
    for (size_t i = 0; i < INPUTS * OUTPUTS; i++)
        turned[i % INPUTS * OUTPUTS + i / INPUTS] = w[i];
    struct weight matrices[] = {matrix_of(w, OUTPUTS, INPUTS), matrix_of(turned, INPUTS, OUTPUTS)};
    static const enum weight_use uses[] = {WEIGHT_MATMUL, WEIGHT_MATMUL_TURNED};
    for (int i = 0; i < 6; i++) {
        struct device *d = open_cpu(cpu_and_plain[i / 4], 1, 1 << 30);
        const struct backend *b = d->backend;
        struct stream *s;
        struct device_weight *dw;
        struct err e = {0};
        bool f32 = i / 2 % 2;
        assert_int_equal(weight_takes(d, &matrices[i % 2], uses[i % 2], f32, &dw),
                         b->weight_resident_bytes(d, &matrices[i % 2], uses[i % 2], f32));
        assert_int_equal(b->stream_create(d, &s, &e), 0);
        struct tensor tx = tensor_of(d, s, x, ROWS, INPUTS), to = tensor_of(d, s, x, ROWS, OUTPUTS);
        struct device_op *op = op_of(d, i % 2 ? &turned_row : &product_row, dw, NULL);
        b->op_run(s, op, &tx, &to, NULL);
        tensor_fetch(d, s, &to, out[i % 2]);
        for (size_t n = 0; i % 2 && n < ROWS * OUTPUTS; n++)
            assert_true(fabsf(out[0][n] - out[1][n]) <= 1e-4f * (1 + fabsf(out[0][n])));
        b->op_release(&op);
        b->weight_free(d, &dw);
        b->memory_release(d, &tx.memory), b->memory_release(d, &to.memory);
        b->stream_destroy(&s);
        device_close(&d);
    }
    free(x), free(w), free(turned);
}

TEST(every_backend_says_what_it_runs)
{
    for (int i = 0; i < 2; i++) {
        struct device *d = open_cpu(cpu_and_plain[i], 1, 0);
        for (int kind = 0; kind < OP_KIND_COUNT; kind++)
            for (int t = 0; t < DTYPE_WEIGHT_COUNT; t++)
                assert_int_equal(d->backend->op_supports((enum op_kind)kind, (enum dtype)t),
                                 !op_kind_info((enum op_kind)kind)->is_view);
        assert_false(d->backend->op_supports(OP_KIND_COUNT, DTYPE_F32));
        assert_false(d->backend->op_supports(OP_MATMUL, DTYPE_U32));
        device_close(&d);
    }
}

TEST(what_multiplies_what_is_said_for_every_set_of_instructions)
{
    static const struct {
        const char *kernels, *quantised, *plain;
    } cases[] = {{"avx2", "8-bit integers, AVX2", "16-bit integers"},
                 {"avx_vnni", "8-bit integers, AVX-VNNI", "16-bit integers"},
                 {"avx512", "8-bit integers, VNNI", "16-bit integers"},
                 {"avx512_bf16", "8-bit integers, VNNI", "bf16 panels"},
                 {"amx", "8-bit integers, AMX", "bf16 panels"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct device_choice said[DEVICE_CHOICES_MAX];
        struct device *d = open_cpu(cases[i].kernels, 1, 0);
        if (!d)
            continue;
        int n = d->backend->choices(d, said, DEVICE_CHOICES_MAX), found = 0;
        for (int k = 0; k < n; k++)
            if (strncmp(said[k].what, "quantised", 9) == 0)
                found += strcmp(said[k].how, cases[i].quantised) == 0 ||
                         (strstr(said[k].what, "few") && strcmp(cases[i].kernels, "amx") == 0);
            else if (strncmp(said[k].what, "F32", 3) == 0)
                found += strstr(said[k].how, cases[i].plain) != NULL;
        assert_int_equal(found, 3);
        assert_string_equal(said[0].how, cases[i].kernels);
        device_close(&d);
    }
}

TEST(devices_that_cannot_be_are_refused)
{
    static const struct {
        struct device_config c;
        int code;
    } cases[] = {{{.backend = "abacus"}, HP_ENOENT},
                 {{.n_threads = -1}, HP_EINVAL},
                 {{.n_threads = 100000}, HP_EINVAL},
                 {{.kernels = "sse9"}, HP_EINVAL}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct device *d = NULL;
        struct err e = {0};
        assert_int_equal(device_open(&cases[i].c, &d, &e), cases[i].code);
        assert_null(d);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_are_right_in_every_form_and_on_any_number_of_threads),
        cmocka_unit_test(float32_products_do_not_depend_on_rows_or_threads),
        cmocka_unit_test(what_a_weight_holds_is_known_before_it_is_loaded),
        cmocka_unit_test(beyond_the_limit_the_error_says_how_much_is_missing),
        cmocka_unit_test(kv_blocks_leave_and_come_back_as_they_were),
        cmocka_unit_test(a_sequence_goes_on_behind_imported_kv_on_any_backend),
        cmocka_unit_test(attention_is_the_same_on_any_number_of_threads),
        cmocka_unit_test(copies_convert_formats_and_follow_strides),
        cmocka_unit_test(large_copies_give_what_small_ones_give_and_saturate),
        cmocka_unit_test(results_do_not_depend_on_where_they_lie),
        cmocka_unit_test(turned_matrices_multiply_like_the_others),
        cmocka_unit_test(every_backend_says_what_it_runs),
        cmocka_unit_test(what_multiplies_what_is_said_for_every_set_of_instructions),
        cmocka_unit_test(devices_that_cannot_be_are_refused),
    };
    return cmocka_run_group_tests_name("cpu device", tests, NULL, NULL);
}
