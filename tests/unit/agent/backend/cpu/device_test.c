/* The CPU as a device, through its table alone: products in every form and on any number of
 * threads, memory limits, KV blocks. */
#include <cmocka.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "agent/backend/backend.h"
#include "common/env.h"

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

static struct tensor tensor_of(struct device *d, struct stream *s, const float *values, size_t n)
{
    struct tensor t;
    struct err e = {0};
    assert_int_equal(d->backend->tensor_alloc(d, n * sizeof *values, &t, &e), 0);
    d->backend->tensor_write(s, t, 0, values, n * sizeof *values);
    return t;
}

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
struct product {
    const struct product_case *c;
    float *x, *w, *bias, *before, *out;
    double *want, *magnitude;
};

static struct product product_by_hand(const struct product_case *c)
{
    size_t n = c->rows * c->outputs;
    struct product p = {.c = c,
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

static void product_free(struct product *p)
{
    free(p->x), free(p->w), free(p->bias), free(p->before), free(p->out), free(p->want),
        free(p->magnitude);
}

static void check_product(struct device *d, struct product *p, bool f32)
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
    struct tensor x = tensor_of(d, s, p->x, c->rows * c->inputs),
                  out = tensor_of(d, s, p->before, n);
    b->matmul(s, x, dw, c->bias ? db : NULL, (uint32_t)c->rows, c->accumulate, out);
    assert_int_equal(b->stream_wait(s, &e), 0);
    b->tensor_read(s, out, 0, p->out, n * sizeof *p->out);
    for (size_t i = 0; i < n; i++)
        if (!(fabs((double)p->out[i] - p->want[i]) <= (f32 ? 1e-6 : 4e-3) * p->magnitude[i]))
            fail_msg("%s: %zu x %zu x %zu, element %zu: %g, expected %g", b->device_describe(d),
                     c->rows, c->outputs, c->inputs, i, (double)p->out[i], p->want[i]);
    b->weight_free(d, &dw);
    b->weight_free(d, &db);
    b->tensor_free(d, &x);
    b->tensor_free(d, &out);
    b->stream_destroy(&s);
}

static void products_are_right_in_every_form_and_on_any_number_of_threads(void **state)
{
    (void)state;
    static const char *const kernels[] = {"plain", "avx2", "avx512", "avx512_bf16"};
    /* The larger ones are packed for bf16; the odd ones leave panels and chunks half full. */
    static const struct product_case cases[] = {
        {1, 3, 5, false, false},      {1, 130, 33, true, true},     {9, 65, 600, false, true},
        {70, 64, 64, true, false},    {1, 520, 520, false, true},   {3, 513, 515, true, false},
        {7, 513, 515, true, true},    {15, 1000, 300, false, true}, {33, 515, 514, true, false},
        {12, 600, 513, false, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct product p = product_by_hand(&cases[i]);
        for (size_t k = 0; k < 4; k++)
            for (int threads = 1; threads <= 2; threads++) {
                struct device *d = open_cpu(kernels[k], threads, 0);
                if (d) {
                    check_product(d, &p, false);
                    check_product(d, &p, true);
                }
                device_close(&d);
            }
        product_free(&p);
    }
}

static void float32_products_do_not_depend_on_rows_or_threads(void **state)
{
    (void)state;
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
        struct tensor tx = tensor_of(d, s, x, ROWS * INPUTS),
                      to = tensor_of(d, s, x, ROWS * OUTPUTS);
        b->matmul(s, tx, dw, NULL, ROWS, false, to);
        b->tensor_read(s, to, 0, together, sizeof together);
        for (size_t r = 0; r < ROWS; r++) {
            b->tensor_write(s, tx, 0, x + r * INPUTS, INPUTS * sizeof *x);
            b->matmul(s, tx, dw, NULL, 1, false, to);
            b->tensor_read(s, to, 0, alone + r * OUTPUTS, OUTPUTS * sizeof *alone);
        }
        assert_memory_equal(together, alone, sizeof alone);
        b->weight_free(d, &dw);
        b->tensor_free(d, &tx);
        b->tensor_free(d, &to);
        b->stream_destroy(&s);
        device_close(&d);
    }
    free(x);
    free(w);
}

static void what_a_weight_holds_is_known_before_it_is_loaded(void **state)
{
    (void)state;
    static const struct {
        size_t rows, columns;
        enum weight_use use;
        bool f32;
    } cases[] = {{600, 515, WEIGHT_MATMUL, false},
                 {600, 515, WEIGHT_MATMUL, true},
                 {600, 515, WEIGHT_ROWS, false},
                 {1, 515, WEIGHT_VECTOR, false}};
    float *w = random_floats(600 * 515, 1);
    struct device *d = open_cpu(NULL, 1, 1 << 30);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct weight source = matrix_of(w, cases[i].rows, cases[i].columns);
        struct device_weight *dw;
        struct err e = {0};
        uint64_t before = d->backend->memory_free(d);
        assert_int_equal(d->backend->weight_load(d, &source, cases[i].use, cases[i].f32, &dw, &e),
                         0);
        assert_int_equal(before - d->backend->memory_free(d),
                         d->backend->weight_resident_bytes(d, &source, cases[i].use, cases[i].f32));
        d->backend->weight_free(d, &dw);
        assert_int_equal(d->backend->memory_free(d), before);
    }
    device_close(&d);
    free(w);
}

static void beyond_the_limit_the_error_says_how_much_is_missing(void **state)
{
    (void)state;
    struct device *d = open_cpu(NULL, 1, 1000);
    struct tensor t, u;
    struct err e = {0};
    assert_int_equal(d->backend->tensor_alloc(d, 600, &t, &e), 0);
    assert_int_equal(d->backend->tensor_alloc(d, 600, &u, &e), HP_ENOMEM);
    assert_non_null(strstr(e.text, "200 bytes are missing"));
    float *w = random_floats(100, 1);
    struct weight source = matrix_of(w, 10, 11 - 1);
    struct device_weight *dw = NULL;
    source.shape[0] = 11;
    assert_int_equal(d->backend->weight_load(d, &source, WEIGHT_MATMUL, true, &dw, &e), HP_ENOMEM);
    assert_null(dw);
    d->backend->tensor_free(d, &t);
    assert_int_equal(d->backend->memory_free(d), 1000);
    device_close(&d);
    free(w);
}

static void kv_blocks_leave_and_come_back_as_they_were(void **state)
{
    (void)state;
    enum { TOKENS = 100, PAGES = 2, WIDTH = 3 * 10 };
    static const uint32_t there[PAGES] = {1, 3}, here[PAGES] = {2, 0};
    for (int f32 = 0; f32 < 2; f32++) {
        struct device *d = open_cpu(NULL, 1, 0);
        const struct backend *b = d->backend;
        struct kv_layout l = {.n_blocks = 2, .n_kv_heads = 3, .head_dim = 10, .f32 = f32 != 0};
        struct stream *s;
        struct err e = {0};
        struct tensor pool;
        assert_int_equal(b->stream_create(d, &s, &e), 0);
        assert_int_equal(b->tensor_alloc(d, 4 * b->kv_page_bytes(d, &l), &pool, &e), 0);
        float *k = random_floats(TOKENS * WIDTH, 5), *v = random_floats(TOKENS * WIDTH, 6);
        struct tensor tk = tensor_of(d, s, k, TOKENS * WIDTH),
                      tv = tensor_of(d, s, v, TOKENS * WIDTH);
        struct attention_run run = {.n_tokens = TOKENS, .pages = there};
        for (int block = 0; block < 2; block++)
            b->kv_append(s, &l, pool, block, &run, 1, tk, tv);
        size_t bytes = (size_t)2 * 2 * 70 * WIDTH * (f32 ? 4 : 2);
        uint8_t *out = calloc(1, bytes), *back = calloc(1, bytes);
        b->kv_export(s, &l, pool, there, 20, 70, out);
        b->kv_import(s, &l, pool, here, 20, 70, out);
        b->kv_export(s, &l, pool, here, 20, 70, back);
        assert_memory_equal(out, back, bytes);
        /* [block][k or v][token][kv head][head dim]: the values of block 1 begin at three quarters.
         */
        for (size_t i = 0; i < 70 * WIDTH; i++) {
            float want = v[20 * WIDTH + i], got;
            uint16_t half;
            memcpy(&half, out + bytes / 4 * 3 + i * 2, 2);
            memcpy(&got, out + bytes / 4 * 3 + (f32 ? i * 4 : 0), 4);
            if (f32)
                assert_true(got == want);
            else
                assert_int_equal(half, dtype_f32_to_f16(want));
        }
        b->tensor_free(d, &tk), b->tensor_free(d, &tv), b->tensor_free(d, &pool);
        b->stream_destroy(&s);
        device_close(&d);
        free(k), free(v), free(out), free(back);
    }
}

static void attention_is_the_same_on_any_number_of_threads(void **state)
{
    (void)state;
    enum { HEADS = 6, KV = 3, DIM = 32, FIRST = 90, SECOND = 1, ROWS = FIRST + SECOND };
    static const uint32_t pages[] = {3, 1}, others[] = {2};
    const struct attention_run runs[] = {{.n_tokens = FIRST, .pages = pages},
                                         {.first_row = FIRST, .n_tokens = SECOND, .pages = others}};
    struct kv_layout l = {.n_blocks = 1, .n_kv_heads = KV, .head_dim = DIM};
    float *q = random_floats(ROWS * HEADS * DIM, 1), *k = random_floats(ROWS * KV * DIM, 2),
          *first = calloc(ROWS * HEADS * DIM, sizeof *first);
    float *out = calloc(ROWS * HEADS * DIM, sizeof *out);
    for (int threads = 1; threads <= 4; threads++) {
        struct device *d = open_cpu(NULL, threads, 0);
        const struct backend *b = d->backend;
        struct stream *s;
        struct err e = {0};
        struct tensor pool;
        assert_int_equal(b->stream_create(d, &s, &e), 0);
        assert_int_equal(b->tensor_alloc(d, 4 * b->kv_page_bytes(d, &l), &pool, &e), 0);
        struct tensor tq = tensor_of(d, s, q, ROWS * HEADS * DIM),
                      tk = tensor_of(d, s, k, ROWS * KV * DIM),
                      to = tensor_of(d, s, q, ROWS * HEADS * DIM);
        b->kv_append(s, &l, pool, 0, runs, 2, tk, tk);
        b->attention(s, &l, pool, 0, runs, 2, HEADS, tq, to);
        assert_int_equal(b->stream_wait(s, &e), 0);
        b->tensor_read(s, to, 0, out, ROWS * HEADS * DIM * sizeof *out);
        if (threads == 1)
            memcpy(first, out, ROWS * HEADS * DIM * sizeof *out);
        assert_memory_equal(out, first, ROWS * HEADS * DIM * sizeof *out);
        /* A sequence of one token attends to itself: its value, as f16. */
        for (size_t i = 0; i < DIM; i++)
            assert_true(fabsf(out[FIRST * HEADS * DIM + i] - k[FIRST * KV * DIM + i]) < 1e-3f);
        b->tensor_free(d, &tq), b->tensor_free(d, &tk), b->tensor_free(d, &to),
            b->tensor_free(d, &pool);
        b->stream_destroy(&s);
        device_close(&d);
    }
    free(q), free(k), free(first), free(out);
}

static void devices_that_cannot_be_are_refused(void **state)
{
    (void)state;
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
        cmocka_unit_test(attention_is_the_same_on_any_number_of_threads),
        cmocka_unit_test(devices_that_cannot_be_are_refused),
    };
    return cmocka_run_group_tests_name("cpu device", tests, NULL, NULL);
}
