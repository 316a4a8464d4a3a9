/* Operators of the cuda backend against the plain one, with shapes that have an edge. */
#include "tests/unit/agent/backend/cuda_fixture.h"

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

enum { TABLE_WIDTH = 4096, TABLE_ROWS = 13 * 256 + 1, PICKS = 64 };

static struct device_weight *table_load(struct device *d, const struct weight *w)
{
    struct device_weight *there;
    struct err e = {0};
    if (d->backend->weight_load(d, w, WEIGHT_ROWS, false, &there, &e) < 0)
        fail_msg("%s", e.text);
    return there;
}

/* Rows of a table that has been loaded are what was sent. */
static void table_check(struct device *d, const struct weight *w, struct device_weight *there)
{
    const struct backend *b = d->backend;
    const struct graph_op op = {
        .kind = OP_EMBED, .n_inputs = 1, .n_weights = 1, .weights = (const struct weight *[]){w}};
    const struct op_request request = {.op = &op, .weights = {there}};
    uint32_t ids[PICKS];
    float *out = malloc(PICKS * TABLE_WIDTH * sizeof *out);
    struct device_op *ready;
    struct stream *s;
    struct err e = {0};
    for (uint32_t i = 0; i < PICKS; i++) /* of all of it */
        ids[i] = i <= 26 ? (i + 1) / 2 * 256 - i % 2 : i * 52;
    assert_int_equal(b->stream_create(d, &s, &e), 0);
    assert_int_equal(b->op_prepare(d, &request, &ready, &e), 0);
    struct tensor in = op_tensor(d, s,
                                 &(struct op_rows){(const float *)(const void *)ids, PICKS, 1}),
                  to = op_tensor(d, s, &(struct op_rows){NULL, PICKS, TABLE_WIDTH}),
                  host = tensor_on_host(out, DTYPE_F32, PICKS, TABLE_WIDTH);
    b->op_run(s, ready, &in, &to, NULL);
    b->copy(s, &host, &to);
    if (b->stream_wait(s, &e) < 0)
        fail_msg("%s", e.text);
    for (size_t r = 0; r < PICKS; r++)
        assert_memory_equal(out + r * TABLE_WIDTH,
                            w->data + (size_t)ids[r] * TABLE_WIDTH * sizeof *out,
                            TABLE_WIDTH * sizeof *out);
    b->op_release(&ready);
    b->memory_release(d, &to.memory);
    b->memory_release(d, &in.memory);
    b->stream_destroy(&s);
    free(out);
}

TEST(large_tables_that_follow_each_other_are_there_whole)
{
    struct device *d = cuda_open(0);
    struct device_weight *there[2];
    struct weight tables[2];
    for (int i = 0; i < 2; i++) {
        tables[i] = (struct weight){.name = "table",
                                    .dtype = DTYPE_F32,
                                    .format = "F32",
                                    .n_dims = 2,
                                    .shape = {TABLE_ROWS, TABLE_WIDTH},
                                    .bytes = (uint64_t)TABLE_ROWS * TABLE_WIDTH * sizeof(float)};
        tables[i].data =
            (const uint8_t *)op_random(tables[i].bytes / sizeof(float), (uint64_t)i + 3, 1);
    }
    for (int i = 0; i < 2; i++)
        there[i] = table_load(d, &tables[i]);
    for (int i = 0; i < 2; i++) {
        table_check(d, &tables[i], there[i]);
        d->backend->weight_free(d, &there[i]);
        free((void *)(uintptr_t)tables[i].data);
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

/* A thread keeps one, two or four runs of four elements; wider rows are read twice. */
TEST(norms_of_wide_rows_are_those_of_the_reference)
{
    static const struct graph_op ops[] = {
        {.kind = OP_RMS_NORM, .n_inputs = 1, .n_weights = 1, .u.norm.epsilon = 1e-5f},
        {.kind = OP_LAYER_NORM, .n_inputs = 1, .n_weights = 2, .u.norm.epsilon = 1e-5f},
    };
    static const size_t widths[] = {1028, 2052, 4100, 9220, 16388};
    struct device *d = cuda_open(0);
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        for (size_t k = 0; k < sizeof widths / sizeof *widths; k++) {
            float *a = op_random(2 * widths[k], 1, 4), *b = op_random(2 * widths[k], 2, 4);
            struct weight w = vector_make(b, widths[k]), bias = vector_make(b + 4, widths[k]);
            same(d, &(struct one_op){
                        &ops[i], (struct op_rows[]){{a, 2, widths[k]}},
                        (struct op_weight[]){{&w, WEIGHT_VECTOR},
                                             {ops[i].n_weights > 1 ? &bias : NULL, WEIGHT_VECTOR}},
                        2, widths[k], 2e-5f});
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_of_each_format_are_those_of_the_reference),
        cmocka_unit_test(rows_of_a_table_are_those_of_the_reference),
        cmocka_unit_test(large_tables_that_follow_each_other_are_there_whole),
        cmocka_unit_test(norms_gates_and_sums_are_those_of_the_reference),
        cmocka_unit_test(norms_of_wide_rows_are_those_of_the_reference),
        cmocka_unit_test(rotations_are_those_of_the_reference),
        cmocka_unit_test(rows_times_a_number_each_are_those_of_the_reference),
        cmocka_unit_test(each_id_takes_the_same_row_where_the_graph_says_so),
        cmocka_unit_test(rows_leave_and_come_in_each_format),
        cmocka_unit_test(rows_turn_from_each_narrow_format_to_each_other),
    };
    return cmocka_run_group_tests_name("cuda_operators", tests, NULL, NULL);
}
