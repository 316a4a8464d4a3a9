/* Products of the cuda backend where float32 is not asked for: few rows by integers where weights
 * are quantised, 16 bytes of weights at a time; many as f16 or bf16. */
#include "tests/unit/agent/backend/cuda_fixture.h"

static const enum dtype quantised[] = {DTYPE_Q8_0, DTYPE_Q4_0, DTYPE_Q4_1, DTYPE_Q5_0, DTYPE_Q5_1,
                                       DTYPE_Q4_K, DTYPE_Q5_K, DTYPE_Q6_K, DTYPE_MXFP4};
static const enum dtype plain_formats[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16};
enum { QUANTISED = sizeof quantised / sizeof *quantised };

struct few_rows_case {
    enum dtype dtype;
    size_t rows, inputs, outputs;
    bool adds;
};

/* out[rows, outputs], with the arithmetic that the backend chooses where not `f32`. */
static void product_run(struct device *d, const struct few_rows_case *p, const struct weight *w,
                        const struct weight *bias, const float *x, bool f32, float *out)
{
    const struct backend *b = d->backend;
    const struct weight *list[OP_WEIGHTS_MAX] = {w, p->adds ? bias : NULL};
    const struct graph_op op = {.kind = OP_MATMUL,
                                .n_inputs = p->adds ? 2 : 1,
                                .n_weights = p->adds ? 2 : 1,
                                .weights = list};
    struct op_request request = {.op = &op};
    struct device_weight *loaded[OP_WEIGHTS_MAX] = {0};
    struct device_op *ready;
    struct stream *s;
    struct err e = {0};
    assert_int_equal(b->stream_create(d, &s, &e), 0);
    for (int i = 0; i < op.n_weights; i++) {
        if (b->weight_load(d, list[i], i ? WEIGHT_VECTOR : WEIGHT_MATMUL, f32, &loaded[i], &e) < 0)
            fail_msg("%s", e.text);
        request.weights[i] = loaded[i];
    }
    struct tensor in[2] = {op_tensor(d, s, &(struct op_rows){x, p->rows, p->inputs}),
                           op_tensor(d, s, &(struct op_rows){x, p->rows, p->outputs})},
                  to = op_tensor(d, s, &(struct op_rows){NULL, p->rows, p->outputs}),
                  host = tensor_on_host(out, DTYPE_F32, p->rows, p->outputs);
    if (b->op_prepare(d, &request, &ready, &e) < 0)
        fail_msg("%s", e.text);
    b->op_run(s, ready, in, &to, NULL);
    b->copy(s, &host, &to);
    if (b->stream_wait(s, &e) < 0)
        fail_msg("%s", e.text);
    b->op_release(&ready);
    for (int i = 0; i < 2; i++)
        b->memory_release(d, &in[i].memory);
    b->memory_release(d, &to.memory);
    for (int i = 0; i < op.n_weights; i++)
        b->weight_free(d, &loaded[i]);
    b->stream_destroy(&s);
}

/* Whole numbers, the greatest of each 32 a 127: nothing is lost where they become integers. */
static float *whole_numbers(size_t n, uint64_t seed)
{
    float *x = op_random(n, seed, 127);
    for (size_t i = 0; i < n; i++)
        x[i] = i % 32 == seed % 32 ? -127 : rintf(x[i]);
    return x;
}

static void product_compare(struct device *d, const struct few_rows_case *p, const float *x,
                            bool f32, double bound)
{
    static const struct device_config reference_of = {.backend = "plain"};
    struct device *reference;
    struct err e = {0};
    size_t n = p->rows * p->outputs;
    float *values = op_random(p->inputs * p->outputs, 7, 0.5f), *bias = op_random(p->outputs, 3, 1),
          *got = calloc(n, sizeof *got), *want = calloc(n, sizeof *want), greatest = 1;
    uint8_t *bytes = malloc(p->inputs * p->outputs * sizeof *values);
    struct weight w = weight_make(p->dtype, values, p->outputs, p->inputs, bytes),
                  b = vector_make(bias, p->outputs);
    assert_int_equal(device_open(&reference_of, &reference, &e), 0);
    product_run(reference, p, &w, &b, x, true, want);
    product_run(d, p, &w, &b, x, f32, got);
    for (size_t i = 0; i < n; i++)
        greatest = fmaxf(greatest, fabsf(want[i]));
    for (size_t i = 0; i < n; i++)
        if (!(fabs((double)got[i] - (double)want[i]) <= bound * (double)greatest))
            fail_msg("%s, %zu rows, %zu inputs, %zu outputs: element %zu is %g instead of %g",
                     dtype_info(p->dtype)->name, p->rows, p->inputs, p->outputs, i, (double)got[i],
                     (double)want[i]);
    device_close(&reference);
    free(values), free(bias), free(got), free(want), free(bytes);
}

TEST(few_rows_by_integers_are_those_of_the_reference)
{
    /* rows, blocks of a row, outputs: within a piece, one of it, several, an odd output */
    static const size_t shapes[][3] = {{1, 1, 1}, {1, 3, 9}, {3, 2, 5}, {8, 1, 2}, {6, 3, 8}};
    struct device *d = cuda_open(0);
    for (size_t i = 0; i < QUANTISED; i++)
        for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++) {
            size_t block = dtype_info(quantised[i])->block_elements;
            const struct few_rows_case p = {quantised[i], shapes[k][0], shapes[k][1] * block,
                                            shapes[k][2], k % 2 == 1};
            float *x = whole_numbers(p.rows * (p.inputs > p.outputs ? p.inputs : p.outputs), k + 1);
            product_compare(d, &p, x, false, 2e-6);
            free(x);
        }
    device_close(&d);
}

TEST(rows_of_several_pieces_are_added_up)
{
    struct device *d = cuda_open(0);
    for (size_t i = 0; i < QUANTISED; i++) {
        bool super = dtype_info(quantised[i])->block_elements == SUPERBLOCK_ELEMENTS;
        const struct few_rows_case p = {quantised[i], 1, super ? 256 * 19 : 32 * 131, 3, false};
        float *x = whole_numbers(p.inputs, 5);
        product_compare(d, &p, x, false, 2e-6);
        free(x);
    }
    device_close(&d);
}

/* By tensor cores: pieces for each warp and more, a last one that is not whole, outputs past a
 * block's. */
TEST(few_rows_of_several_pieces_are_those_of_the_reference)
{
    static const struct {
        size_t rows, outputs, blocks, superblocks;
        bool adds;
    } shapes[] = {{8, 17, 8 * 13 + 3, 14, false},
                  {2, 16, 8 * 4, 4, true},
                  {5, 33, 8 + 1, 3, true},
                  {7, 5, 1, 1, false}};
    struct device *d = cuda_open(0);
    for (size_t i = 0; i < QUANTISED; i++)
        for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++) {
            bool super = dtype_info(quantised[i])->block_elements == SUPERBLOCK_ELEMENTS;
            const struct few_rows_case p = {quantised[i], shapes[k].rows,
                                            super ? shapes[k].superblocks * SUPERBLOCK_ELEMENTS
                                                  : shapes[k].blocks * 32,
                                            shapes[k].outputs, shapes[k].adds};
            float *x = whole_numbers(p.rows * (p.inputs > p.outputs ? p.inputs : p.outputs), k + 1);
            product_compare(d, &p, x, false, 2e-6);
            free(x);
        }
    device_close(&d);
}

/* Turing has tensor cores for f16, and none that are used for bytes. */
TEST(few_rows_without_tensor_cores_are_those_of_the_reference)
{
    static const size_t rows[] = {3, 8};
    void (*restart)(void) = NULL;
    plugin_open();
    *(void **)&restart = plugin_symbol("cuda_on_cpu_restart");
    if (!restart)
        return; /* a GPU is what it is */
    setenv("CUDA_ON_CPU", "capability=75", 1);
    setenv("HP_TEST_CUDA_DECODE", "1", 1); /* as blocks that stay have one row alone, none does */
    restart();
    struct device *d = cuda_open(0);
    unsetenv("HP_TEST_CUDA_DECODE");
    for (size_t i = 0; i < QUANTISED; i++)
        for (size_t k = 0; k < 2; k++) {
            bool super = dtype_info(quantised[i])->block_elements == SUPERBLOCK_ELEMENTS;
            const struct few_rows_case p = {quantised[i], rows[k], super ? 256 * 9 : 32 * 67, 9,
                                            k == 0};
            float *x = whole_numbers(p.rows * p.inputs, k + 1);
            product_compare(d, &p, x, false, 2e-6);
            free(x);
        }
    for (size_t k = 0; k < 2; k++) {
        const struct few_rows_case p = {DTYPE_BF16, rows[k], 1040, 9, k == 0};
        float *x = op_random(p.rows * p.inputs, k + 1, 1);
        product_compare(d, &p, x, false, 2e-6);
        free(x);
    }
    device_close(&d);
    unsetenv("CUDA_ON_CPU");
    restart();
}

TEST(integers_lose_little_of_any_numbers)
{
    struct device *d = cuda_open(0);
    for (size_t i = 0; i < QUANTISED; i++) {
        const struct few_rows_case p = {quantised[i], 2, 512, 4, false};
        float *x = op_random(p.rows * p.inputs, 11, 3);
        for (size_t k = 40; k < 80; k++)
            x[k] = 0;
        x[500] = 1000;
        product_compare(d, &p, x, false, 0.02);
        free(x);
    }
    device_close(&d);
}

TEST(few_rows_in_float32_are_those_of_the_reference)
{
    static const size_t shapes[][3] = {{1, 8, 1},   {1, 40, 9},  {4, 1040, 3},
                                       {5, 264, 8}, {8, 24, 33}, {2, 808, 70}};
    struct device *d = cuda_open(0);
    for (size_t i = 0; i < 3; i++)
        for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++)
            for (int f32 = 0; f32 < 2; f32++) {
                const struct few_rows_case p = {plain_formats[i], shapes[k][0], shapes[k][1],
                                                shapes[k][2], k % 2 == 1};
                float *x =
                    op_random(p.rows * (p.inputs > p.outputs ? p.inputs : p.outputs), k + 1, 1);
                product_compare(d, &p, x, f32, 2e-6);
                free(x);
            }
    device_close(&d);
}

/* Weights that are quantised are as exact in bf16 as its 8 bits allow, whole numbers below 256 are
 * exact: sums differ by what weights lose. */
TEST(many_rows_as_halves_are_those_of_the_reference)
{
    static const size_t shapes[][3] = {{9, 1, 8}, {17, 2, 12}, {10, 3, 4}};
    struct device *d = cuda_open(0);
    for (size_t i = 0; i < QUANTISED + 2; i++)
        for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++) {
            enum dtype t = i < QUANTISED ? quantised[i] : plain_formats[1 + i - QUANTISED];
            size_t block = i < QUANTISED ? dtype_info(t)->block_elements : 40;
            const struct few_rows_case p = {t, shapes[k][0], shapes[k][1] * block, shapes[k][2],
                                            k % 2 == 1};
            float *x = whole_numbers(p.rows * (p.inputs > p.outputs ? p.inputs : p.outputs), k + 1);
            product_compare(d, &p, x, false, 1e-2);
            free(x);
        }
    device_close(&d);
}

/* More outputs than are turned at once; 16 bytes of results divide each panel. */
TEST(large_matrices_are_turned_a_panel_at_a_time)
{
    struct device *d = cuda_open(0);
    const struct few_rows_case p = {DTYPE_Q8_0, 9, 66816, 516, true};
    float *x = op_random(p.rows * p.inputs, 3, 1);
    for (size_t i = 0; i < p.rows * p.inputs; i++)
        x[i] = i % p.inputs < 32 ? x[i] : 0; /* so that the bias is seen */
    product_compare(d, &p, x, false, 1e-2);
    free(x);
    device_close(&d);
}

/* Results whose rows no 16 bytes divide, and f16 where a number is too large for it. */
TEST(what_halves_cannot_hold_goes_another_way_or_is_cut)
{
    struct device *d = cuda_open(0);
    const struct few_rows_case odd = {DTYPE_Q8_0, 9, 64, 5, true},
                               whole = {DTYPE_F16, 9, 64, 4, false};
    float *x = whole_numbers(9 * 64, 3);
    product_compare(d, &odd, x, false, 2e-5);
    x[5] = 1e9f;
    float *cut = whole_numbers(9 * 64, 3), *values = op_random(64 * 4, 7, 0.5f), got[36], want[36];
    uint8_t bytes[64 * 4 * 2];
    struct weight w = weight_make(DTYPE_F16, values, 4, 64, bytes);
    cut[5] = 65504;
    product_run(d, &whole, &w, NULL, x, false, got);
    product_run(d, &whole, &w, NULL, cut, false, want);
    assert_memory_equal(got, want, sizeof got);
    free(x), free(cut), free(values);
    device_close(&d);
}

/* A device whose products of one row go by blocks that do not stay, or by so many that stay until
 * all is done. */
static struct device *decode_open(const char *how)
{
    setenv("HP_TEST_CUDA_DECODE", how, 1);
    struct device *d = cuda_open(0);
    unsetenv("HP_TEST_CUDA_DECODE");
    return d;
}

static void stays_compare(struct device *others, struct device *stay, const struct few_rows_case *p,
                          const float *x)
{
    float *values = op_random(p->inputs * p->outputs, 7, 0.5f), *bias = op_random(p->outputs, 3, 1),
          *got = calloc(p->outputs, sizeof *got), *want = calloc(p->outputs, sizeof *want);
    uint8_t *bytes = malloc(p->inputs * p->outputs * sizeof *values);
    struct weight w = weight_make(p->dtype, values, p->outputs, p->inputs, bytes),
                  b = vector_make(bias, p->outputs);
    product_run(others, p, &w, &b, x, false, want);
    product_run(stay, p, &w, &b, x, false, got);
    for (size_t i = 0; i < p->outputs; i++)
        if (memcmp(&got[i], &want[i], sizeof got[i]))
            fail_msg("%s, %zu inputs, %zu outputs: element %zu is %.9g by blocks that stay, %.9g "
                     "by others",
                     dtype_info(p->dtype)->name, p->inputs, p->outputs, i, (double)got[i],
                     (double)want[i]);
    free(values), free(bias), free(bytes), free(got), free(want);
}

/* And what the reference finds. Rows within a piece, of one and of several, whose blocks begin
 * anywhere; outputs that no warp and no block divides. */
TEST(blocks_that_stay_find_to_the_bit_what_others_do)
{
    static const struct {
        size_t outputs, blocks, superblocks;
        bool adds;
        const char *stay;
    } shapes[] = {{75, 1, 1, true, "3"},
                  {26, 67, 9, false, "2"},
                  {41, 3, 2, true, "1"},
                  {18, 131, 19, true, "2"}};
    struct device *others = decode_open("way=0");
    for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++) {
        struct device *stay = decode_open(shapes[k].stay);
        for (size_t i = 0; i < QUANTISED; i++) {
            bool super = dtype_info(quantised[i])->block_elements == SUPERBLOCK_ELEMENTS;
            const struct few_rows_case p = {quantised[i], 1,
                                            super ? shapes[k].superblocks * SUPERBLOCK_ELEMENTS
                                                  : shapes[k].blocks * 32,
                                            shapes[k].outputs, shapes[k].adds};
            size_t n = p.inputs > p.outputs ? p.inputs : p.outputs;
            float *x = op_random(n, k + 3, 2), *whole = whole_numbers(n, k + 1);
            stays_compare(others, stay, &p, x);
            product_compare(stay, &p, whole, false, 2e-6);
            free(x), free(whole);
        }
        device_close(&stay);
    }
    device_close(&others);
}

/* Scratch is part of what a stage needs, and what is promised is enough. */
TEST(room_for_products_is_what_was_promised)
{
    enum { ROWS = 8400, INPUTS = 256, OUTPUTS = 8 };
    struct device *d = cuda_open(0);
    const struct few_rows_case p = {DTYPE_Q4_K, ROWS, INPUTS, OUTPUTS, false};
    float *values = op_random(INPUTS * OUTPUTS, 7, 0.5f), *x = whole_numbers(ROWS * INPUTS, 5),
          *out = calloc(ROWS * OUTPUTS, sizeof *out);
    uint8_t bytes[INPUTS * OUTPUTS];
    struct weight w = weight_make(p.dtype, values, OUTPUTS, INPUTS, bytes);
    const struct backend *b = d->backend;
    uint64_t weights = b->weight_resident_bytes(d, &w, WEIGHT_MATMUL, false),
             room = b->matmul_scratch_bytes(d, &w, WEIGHT_MATMUL, false, ROWS),
             rows = ROWS * (INPUTS + 2 * OUTPUTS) * sizeof(float);
    assert_true(room > 2 * (ROWS + OUTPUTS) * INPUTS);
    assert_true(b->matmul_scratch_bytes(d, &w, WEIGHT_MATMUL, true, ROWS) == 0);
    assert_true(b->matmul_scratch_bytes(d, &w, WEIGHT_MATMUL, false, 1) >= 8 * INPUTS * 3 / 2);
    device_close(&d);
    d = cuda_open(weights + room + rows);
    product_run(d, &p, &w, NULL, x, false, out);
    assert_true(b->memory_free(d) == weights + room + rows);
    free(values), free(x), free(out);
    device_close(&d);
}

/* Rows that take 2 of 3 matrices each, with one input or one for each of them. */
static void pairs_run(struct device *d, enum dtype t, bool apart, bool f32, float *out)
{
    enum { ROWS = 5, EXPERTS = 3, USED = 2, OUTPUTS = 3 };
    const struct backend *b = d->backend;
    size_t inputs = dtype_info(t)->block_elements * 2, step = apart ? USED * inputs : inputs;
    float *values = op_random(EXPERTS * OUTPUTS * inputs, 7, 0.5f),
          *x = whole_numbers(ROWS * step, 3), *bias = op_random(EXPERTS * OUTPUTS, 4, 1),
          route[ROWS][2 * USED];
    uint8_t *bytes = malloc(EXPERTS * OUTPUTS * inputs * sizeof *values);
    struct weight parts[EXPERTS], whole, bias_weight = vector_make(bias, EXPERTS * OUTPUTS);
    const struct weight *list[EXPERTS], *weights[] = {&whole, &bias_weight};
    for (int i = 0; i < EXPERTS; i++) {
        parts[i] = weight_make(t, values + (size_t)i * OUTPUTS * inputs, OUTPUTS, inputs,
                               bytes + (size_t)i * dtype_bytes(t, OUTPUTS * inputs));
        list[i] = &parts[i];
    }
    whole = parts[0];
    whole.parts = list;
    whole.n_parts = EXPERTS;
    for (int r = 0; r < ROWS; r++)
        for (int k = 0; k < 2 * USED; k++)
            route[r][k] = k < USED ? (float)((r + k * 2) % EXPERTS) : 0.5f;
    const struct graph_op op = {.kind = OP_EXPERT_MATMUL,
                                .n_inputs = 2,
                                .n_weights = 2,
                                .weights = weights,
                                .u.experts = {.used = USED}};
    struct device_weight *loaded[2];
    struct device_op *ready;
    struct stream *s;
    struct err e = {0};
    assert_int_equal(b->stream_create(d, &s, &e), 0);
    assert_int_equal(b->weight_load(d, &whole, WEIGHT_MATMUL, f32, &loaded[0], &e), 0);
    assert_int_equal(b->weight_load(d, &bias_weight, WEIGHT_VECTOR, f32, &loaded[1], &e), 0);
    const struct op_request request = {.op = &op, .weights = {loaded[0], loaded[1]}};
    struct tensor in[2] = {op_tensor(d, s, &(struct op_rows){x, ROWS, step}),
                           op_tensor(d, s, &(struct op_rows){route[0], ROWS, 2 * USED})},
                  to = op_tensor(d, s, &(struct op_rows){NULL, ROWS, USED * OUTPUTS}),
                  host = tensor_on_host(out, DTYPE_F32, ROWS, USED * OUTPUTS);
    assert_int_equal(b->op_prepare(d, &request, &ready, &e), 0);
    b->op_run(s, ready, in, &to, NULL);
    b->copy(s, &host, &to);
    assert_int_equal(b->stream_wait(s, &e), 0);
    b->op_release(&ready);
    b->memory_release(d, &in[0].memory), b->memory_release(d, &in[1].memory);
    b->memory_release(d, &to.memory);
    b->weight_free(d, &loaded[0]), b->weight_free(d, &loaded[1]);
    b->stream_destroy(&s);
    free(values), free(x), free(bias), free(bytes);
}

TEST(experts_by_integers_are_those_of_the_reference)
{
    static const struct device_config reference_of = {.backend = "plain"};
    enum { N = 5 * 2 * 3 };
    struct device *d = cuda_open(0), *reference;
    struct err e = {0};
    float got[N], want[N];
    assert_int_equal(device_open(&reference_of, &reference, &e), 0);
    for (size_t i = 0; i < QUANTISED; i++)
        for (int apart = 0; apart < 2; apart++) {
            float greatest = 1;
            pairs_run(reference, quantised[i], apart, true, want);
            pairs_run(d, quantised[i], apart, false, got);
            for (size_t k = 0; k < N; k++)
                greatest = fmaxf(greatest, fabsf(want[k]));
            for (size_t k = 0; k < N; k++)
                if (!(fabsf(got[k] - want[k]) <= 2e-6f * greatest))
                    fail_msg("%s: element %zu is %g instead of %g", dtype_info(quantised[i])->name,
                             k, (double)got[k], (double)want[k]);
        }
    device_close(&d), device_close(&reference);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(few_rows_by_integers_are_those_of_the_reference),
        cmocka_unit_test(rows_of_several_pieces_are_added_up),
        cmocka_unit_test(few_rows_of_several_pieces_are_those_of_the_reference),
        cmocka_unit_test(few_rows_without_tensor_cores_are_those_of_the_reference),
        cmocka_unit_test(blocks_that_stay_find_to_the_bit_what_others_do),
        cmocka_unit_test(integers_lose_little_of_any_numbers),
        cmocka_unit_test(few_rows_in_float32_are_those_of_the_reference),
        cmocka_unit_test(many_rows_as_halves_are_those_of_the_reference),
        cmocka_unit_test(large_matrices_are_turned_a_panel_at_a_time),
        cmocka_unit_test(what_halves_cannot_hold_goes_another_way_or_is_cut),
        cmocka_unit_test(experts_by_integers_are_those_of_the_reference),
        cmocka_unit_test(room_for_products_is_what_was_promised),
    };
    return cmocka_run_group_tests_name("cuda_products", tests, NULL, NULL);
}
