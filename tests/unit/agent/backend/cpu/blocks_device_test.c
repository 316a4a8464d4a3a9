/* Matrices in every quantised format on every set of kernels: products of few rows and of many,
 * what they hold, and blocks that are refused. */
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "agent/backend/backend.h"
#include "agent/backend/cpu/blocks.h"
#include "common/env.h"
#include "tests/share.h"
#include "tests/test.h"

enum { OUTPUTS = 523, INPUTS = 768, LONG_OUTPUTS = 83, LONG_INPUTS = 4352, ROWS_MOST = 70 };

static struct device *open_cpu(const char *kernels, int threads)
{
    struct device_config c = {
        .backend = "cpu", .kernels = kernels, .n_threads = threads, .memory_bytes = 1 << 30};
    struct device *d = NULL;
    struct err e = {0};
    if (device_open(&c, &d, &e) < 0) {
        assert_int_equal(e.code, HP_EDEVICE);
        print_message("# not on this CPU: %s\n", e.text);
    }
    return d;
}

struct matrix {
    struct weight weight;
    uint8_t *data;
    float *values; /* [outputs, inputs] */
    size_t outputs, inputs;
};

static struct matrix matrix_make(enum dtype t, size_t outputs, size_t inputs)
{
    const struct dtype_info *info = dtype_info(t);
    size_t bytes = outputs * inputs / info->block_elements * info->block_bytes;
    struct matrix m = {.data = malloc(bytes),
                       .values = calloc(outputs * inputs, sizeof(float)),
                       .outputs = outputs,
                       .inputs = inputs};
    assert_true(m.data && m.values);
    uint64_t seed = (uint64_t)t + 1;
    for (size_t i = 0; i < bytes; i++)
        m.data[i] = (uint8_t)(random_unit(&seed) * 256);
    for (size_t at = 0; at < bytes; at += info->block_bytes) {
        for (int i = 0; i < info->n_scales; i++) {
            uint16_t half = dtype_f32_to_f16((float)(random_unit(&seed) * 0.01));
            memcpy(m.data + at + info->scales_at + 2 * i, &half, sizeof half);
        }
        if (t == DTYPE_MXFP4)
            m.data[at] = (uint8_t)(118 + m.data[at] % 5);
        if (t == DTYPE_BF16) /* below 2 */
            m.data[at + 1] &= 0xbf;
    }
    info->to_f32(m.data, outputs * inputs, m.values);
    m.weight = (struct weight){.name = "blk.0.w",
                               .dtype = t,
                               .n_dims = 2,
                               .shape = {outputs, inputs},
                               .bytes = bytes,
                               .file = -1,
                               .data = m.data};
    return m;
}

static struct tensor tensor_of(struct device *d, struct stream *s, const float *values, size_t rows,
                               size_t width)
{
    struct memory m;
    struct err e = {0};
    assert_int_equal(d->backend->memory_alloc(d, rows * width * sizeof *values, &m, &e), 0);
    struct tensor t = tensor_rows(m, DTYPE_F32, rows, width),
                  host = tensor_on_host(values, DTYPE_F32, rows, width);
    d->backend->copy(s, &t, &host);
    return t;
}

/* One product, added to what is there, against double precision. */
static void check_rows(struct device *d, const struct matrix *m, struct device_weight *w,
                       size_t rows, bool f32)
{
    static const struct graph_op sum_row = {.kind = OP_MATMUL, .n_inputs = 2, .n_outputs = 1};
    static float x[ROWS_MOST * LONG_INPUTS], before[ROWS_MOST * OUTPUTS], out[ROWS_MOST * OUTPUTS];
    size_t inputs = m->inputs, outputs = m->outputs;
    const struct backend *b = d->backend;
    uint64_t seed = rows;
    struct stream *s;
    struct device_op *op;
    struct err e = {0};
    for (size_t i = 0; i < rows * inputs; i++)
        x[i] = (float)(random_unit(&seed) * 2 - 1);
    for (size_t i = 0; i < rows * outputs; i++)
        before[i] = (float)random_unit(&seed);
    assert_int_equal(b->stream_create(d, &s, &e), 0);
    struct tensor in = tensor_of(d, s, x, rows, inputs),
                  to = tensor_of(d, s, before, rows, outputs), sources[] = {in, to},
                  host = tensor_on_host(out, DTYPE_F32, rows, outputs);
    assert_int_equal(
        b->op_prepare(d, &(struct op_request){.op = &sum_row, .weights = {w}}, &op, &e), 0);
    b->op_run(s, op, sources, &to, NULL);
    assert_int_equal(b->stream_wait(s, &e), 0);
    b->copy(s, &host, &to);
    for (size_t i = 0; i < rows * outputs; i += (size_t)test_stride()) {
        double want = (double)before[i], size = want + 1;
        const float *xs = x + i / outputs * inputs, *ws = m->values + i % outputs * inputs;
        for (size_t k = 0; k < inputs; k++) {
            want += (double)xs[k] * (double)ws[k];
            size += fabs((double)xs[k] * (double)ws[k]);
        }
        if (!(fabs((double)out[i] - want) <= (f32 ? 1e-6 : 5e-3) * size))
            fail_msg("%s, %s: %zu rows, element %zu: %g, expected %g", b->device_describe(d),
                     dtype_info(m->weight.dtype)->name, rows, i, (double)out[i], want);
    }
    b->op_release(&op);
    b->memory_release(d, &in.memory);
    b->memory_release(d, &to.memory);
    b->stream_destroy(&s);
}

static void check_matrix(struct device *d, const struct matrix *m, bool f32)
{
    static const size_t rows[] = {1, 2, 5, 7, 8, 12, 19, 20, 70};
    const struct backend *b = d->backend;
    struct device_weight *w;
    struct err e = {0};
    uint64_t before = b->memory_free(d);
    assert_int_equal(b->weight_load(d, &m->weight, WEIGHT_MATMUL, f32, &w, &e), 0);
    uint64_t bytes = b->weight_resident_bytes(d, &m->weight, WEIGHT_MATMUL, f32);
    assert_int_equal(before - b->memory_free(d), bytes);
    /* never more than the file has, but for a group that rows do not fill */
    assert_in_range(bytes, m->weight.bytes,
                    m->weight.bytes + (f32 ? 0 : 15 * m->weight.bytes / m->outputs));
    size_t first = (size_t)m->weight.dtype % (size_t)test_stride(); /* every type others */
    for (size_t i = first; i < sizeof rows / sizeof *rows; i += (size_t)test_stride())
        check_rows(d, m, w, rows[i], f32);
    b->weight_free(d, &w);
}

TEST(products_are_right_in_every_quantised_format_at_its_own_size)
{
    static const char *const kernels[] = {"plain",  "avx2",        "avx_vnni",
                                          "avx512", "avx512_bf16", "amx"};
    for (int t = 0; t < DTYPE_WEIGHT_COUNT; t++) {
        if (dtype_info((enum dtype)t)->block_elements == 1)
            continue;
        struct matrix m = matrix_make((enum dtype)t, OUTPUTS, INPUTS);
        for (size_t k = 0; k < sizeof kernels / sizeof *kernels; k++) {
            struct device *d = open_cpu(kernels[k], 1 + (int)k % 2);
            if (d) {
                check_matrix(d, &m, false);
                check_matrix(d, &m, true);
            }
            device_close(&d);
        }
        free(m.data);
        free(m.values);
    }
}

/* A product of the first `rows` of x. */
static void product_run(struct device *d, struct device_weight *w, const struct matrix *m,
                        const float *x, size_t rows, float *out)
{
    static const struct graph_op row = {.kind = OP_MATMUL, .n_inputs = 1, .n_outputs = 1};
    const struct backend *b = d->backend;
    struct stream *s;
    struct device_op *op;
    struct err e = {0};
    assert_int_equal(b->stream_create(d, &s, &e), 0);
    struct tensor in = tensor_of(d, s, x, rows, m->inputs),
                  to = tensor_of(d, s, out, rows, m->outputs),
                  host = tensor_on_host(out, DTYPE_F32, rows, m->outputs);
    assert_int_equal(b->op_prepare(d, &(struct op_request){.op = &row, .weights = {w}}, &op, &e),
                     0);
    b->op_run(s, op, &in, &to, NULL);
    assert_int_equal(b->stream_wait(s, &e), 0);
    b->copy(s, &host, &to);
    b->op_release(&op);
    b->memory_release(d, &in.memory);
    b->memory_release(d, &to.memory);
    b->stream_destroy(&s);
}

/* Slices of a few rows may be multiplied in other ways than long ones. */
TEST(rows_of_short_and_of_long_slices_have_the_same_bits)
{
    enum { LONG = 140, SHORT = 100 };
    static const char *const kernels[] = {"avx2", "avx_vnni", "avx512", "amx"};
    static const enum dtype types[] = {DTYPE_Q8_0, DTYPE_Q4_K, DTYPE_Q6_K};
    static float x[LONG * INPUTS], out[2][LONG * OUTPUTS];
    uint64_t seed = 1;
    for (size_t i = 0; i < LONG * INPUTS; i++)
        x[i] = (float)(random_unit(&seed) * 2 - 1) * (i % 97 == 5 ? 20 : 1);
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        struct matrix m = matrix_make(types[t], OUTPUTS, INPUTS);
        for (size_t k = 0; k < sizeof kernels / sizeof *kernels; k++) {
            struct device *d = open_cpu(kernels[k], 1);
            struct device_weight *w;
            struct err e = {0};
            if (!d)
                continue;
            assert_int_equal(d->backend->weight_load(d, &m.weight, WEIGHT_MATMUL, false, &w, &e),
                             0);
            product_run(d, w, &m, x, LONG, out[0]);
            product_run(d, w, &m, x, SHORT, out[1]);
            assert_memory_equal(out[0], out[1], SHORT * OUTPUTS * sizeof **out);
            d->backend->weight_free(d, &w);
            device_close(&d);
        }
        free(m.data);
        free(m.values);
    }
}

/* More inputs than one panel has. */
TEST(products_of_many_inputs_are_summed_over_their_chunks)
{
    static const char *const kernels[] = {"avx2", "avx_vnni", "avx512_bf16", "amx"};
    static const enum dtype types[] = {DTYPE_Q8_0, DTYPE_Q6_K, DTYPE_Q4_K};
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        struct matrix m = matrix_make(types[t], LONG_OUTPUTS, LONG_INPUTS);
        for (size_t k = 0; k < sizeof kernels / sizeof *kernels; k++) {
            struct device *d = open_cpu(kernels[k], 2);
            if (d)
                check_matrix(d, &m, false);
            device_close(&d);
        }
        free(m.data);
        free(m.values);
    }
}

/* Of many inputs, and of outputs that fill no last panel, and not all of a panel's groups; of more
 * rows than one pass has. */
TEST(amx_gives_the_bits_of_avx512_wherever_inputs_and_outputs_are_cut)
{
    static const char *const kernels[] = {"avx512_bf16", "amx"};
    enum { CUTS = 4, PASSES_ROWS = 385 };
    static const size_t outputs[] = {LONG_OUTPUTS, LONG_OUTPUTS - 16},
                        rows[CUTS] = {20, 31, ROWS_MOST, PASSES_ROWS};
    static float x[PASSES_ROWS * LONG_INPUTS], out[2][PASSES_ROWS * LONG_OUTPUTS];
    struct device *d[2] = {open_cpu(kernels[0], 2), open_cpu(kernels[1], 2)};
    uint64_t seed = 1;
    for (size_t i = 0; i < PASSES_ROWS * LONG_INPUTS; i++)
        x[i] = (float)(random_unit(&seed) * 2 - 1) * (i % 97 == 5 ? 20 : 1);
    for (int t = 0; d[0] && d[1] && t < DTYPE_WEIGHT_COUNT; t++)
        for (size_t i = 0; dtype_info((enum dtype)t)->block_elements > 1 && i < 2 * CUTS; i++) {
            struct matrix m = matrix_make((enum dtype)t, outputs[i / CUTS], LONG_INPUTS);
            for (size_t k = 0; k < 2; k++) {
                struct device_weight *w;
                struct err e = {0};
                assert_int_equal(
                    d[k]->backend->weight_load(d[k], &m.weight, WEIGHT_MATMUL, false, &w, &e), 0);
                product_run(d[k], w, &m, x, rows[i % CUTS], out[k]);
                d[k]->backend->weight_free(d[k], &w);
            }
            assert_memory_equal(out[0], out[1], rows[i % CUTS] * m.outputs * sizeof **out);
            free(m.data);
            free(m.values);
        }
    for (size_t k = 0; k < 2; k++)
        device_close(&d[k]);
}

struct loader {
    struct device *device;
    struct matrix matrix;
    atomic_bool stop;
};

static void *loader_main(void *ctx)
{
    struct loader *l = ctx;
    const struct backend *b = l->device->backend;
    b->loader_enter(l->device);
    while (!atomic_load(&l->stop)) {
        struct device_weight *w;
        struct err e = {0};
        assert_int_equal(b->weight_load(l->device, &l->matrix.weight, WEIGHT_MATMUL, false, &w, &e),
                         0);
        b->weight_free(l->device, &w);
    }
    return NULL;
}

/* What products work with is given back and taken anew where they need more; a loader that packs on
 * the same threads has its own. AddressSanitizer sees it. */
TEST(a_loader_packs_beside_products_that_need_more_and_more)
{
    enum { TURNS = 5, STEP = 30, MOST = 360 };
    static float x[MOST * INPUTS], out[MOST * OUTPUTS];
    struct matrix m = matrix_make(DTYPE_Q8_0, OUTPUTS, INPUTS);
    for (int turn = 0; turn < TURNS; turn++) {
        struct loader l = {open_cpu(NULL, 3), matrix_make(DTYPE_BF16, OUTPUTS, INPUTS), false};
        struct device_weight *w;
        struct err e = {0};
        pthread_t loader;
        assert_int_equal(
            l.device->backend->weight_load(l.device, &m.weight, WEIGHT_MATMUL, false, &w, &e), 0);
        product_run(l.device, w, &m, x, STEP, out);
        assert_int_equal(pthread_create(&loader, NULL, loader_main, &l), 0);
        for (size_t rows = STEP; rows <= MOST; rows += STEP)
            product_run(l.device, w, &m, x, rows, out);
        atomic_store(&l.stop, true);
        pthread_join(loader, NULL);
        l.device->backend->weight_free(l.device, &w);
        assert_int_equal(l.device->backend->weight_load(l.device, &l.matrix.weight, WEIGHT_MATMUL,
                                                        false, &w, &e),
                         0);
        check_rows(l.device, &l.matrix, w, ROWS_MOST, false);
        l.device->backend->weight_free(l.device, &w);
        device_close(&l.device);
        free(l.matrix.data);
        free(l.matrix.values);
    }
    free(m.data);
    free(m.values);
}

/* What inputs will take is known before: the device never takes more for it. */
TEST(scratch_of_products_is_known_before)
{
    struct matrix m = matrix_make(DTYPE_Q4_K, OUTPUTS, INPUTS);
    for (size_t rows = 1; rows <= ROWS_MOST; rows += 23) {
        struct device *d = open_cpu(NULL, 1);
        struct device_weight *w;
        struct err e = {0};
        const struct backend *b = d->backend;
        assert_int_equal(b->weight_load(d, &m.weight, WEIGHT_MATMUL, false, &w, &e), 0);
        check_rows(d, &m, w, 1, false);
        check_rows(d, &m, w, ROWS_MOST, false); /* a thread's own, and the most of inputs */
        assert_int_equal(b->matmul_scratch_bytes(d, &m.weight, WEIGHT_MATMUL, false, ROWS_MOST), 0);
        b->weight_free(d, &w);
        device_close(&d);
        d = open_cpu(NULL, 1);
        assert_true(b->matmul_scratch_bytes(d, &m.weight, WEIGHT_MATMUL, false, (uint32_t)rows) >=
                    rows * INPUTS);
        device_close(&d);
    }
    free(m.data);
    free(m.values);
}

TEST(rows_of_quantised_products_go_by_whole_tiles)
{
    struct matrix quantised = matrix_make(DTYPE_Q4_K, OUTPUTS, INPUTS),
                  plain = matrix_make(DTYPE_F16, OUTPUTS, INPUTS);
    struct device *d = open_cpu(NULL, 1);
    const struct backend *b = d->backend;
    uint32_t step = b->matmul_row_step(d, &quantised.weight, WEIGHT_MATMUL, false);
    assert_true(step > 0 && step % BLOCK_TILE == 0);
    assert_int_equal(b->matmul_row_step(d, &quantised.weight, WEIGHT_MATMUL, true), 0);
    assert_int_equal(b->matmul_row_step(d, &plain.weight, WEIGHT_MATMUL, false), 0);
    device_close(&d);
    free(quantised.data);
    free(quantised.values);
    free(plain.data);
    free(plain.values);
}

TEST(a_scale_that_is_no_number_is_refused_by_tensor_and_block)
{
    static const char *const kernels[] = {"plain", NULL};
    for (int t = 0; t < DTYPE_WEIGHT_COUNT; t++) {
        const struct dtype_info *info = dtype_info((enum dtype)t);
        if (info->block_elements == 1)
            continue;
        struct matrix m = matrix_make((enum dtype)t, OUTPUTS, INPUTS);
        uint8_t *block = m.data + 1001 * info->block_bytes;
        if (t == DTYPE_MXFP4)
            *block = 0xff;
        else
            memcpy(block + info->scales_at, "\x01\xfe", 2);
        for (size_t k = 0; k < 2; k++) {
            struct device *d = open_cpu(kernels[k], 1);
            struct device_weight *w = NULL;
            struct err e = {0};
            uint64_t before = d->backend->memory_free(d);
            assert_int_equal(d->backend->weight_load(d, &m.weight, WEIGHT_MATMUL, false, &w, &e),
                             HP_EPARSE);
            assert_non_null(strstr(e.text, "blk.0.w: block 1001 "));
            assert_non_null(strstr(e.text, info->name));
            assert_null(w);
            assert_int_equal(d->backend->memory_free(d), before);
            device_close(&d);
        }
        free(m.data);
        free(m.values);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_are_right_in_every_quantised_format_at_its_own_size),
        cmocka_unit_test(products_of_many_inputs_are_summed_over_their_chunks),
        cmocka_unit_test(rows_of_short_and_of_long_slices_have_the_same_bits),
        cmocka_unit_test(a_loader_packs_beside_products_that_need_more_and_more),
        cmocka_unit_test(amx_gives_the_bits_of_avx512_wherever_inputs_and_outputs_are_cut),
        cmocka_unit_test(scratch_of_products_is_known_before),
        cmocka_unit_test(rows_of_quantised_products_go_by_whole_tiles),
        cmocka_unit_test(a_scale_that_is_no_number_is_refused_by_tensor_and_block),
    };
    return cmocka_run_group_tests_name("blocks on devices", tests, NULL, NULL);
}
