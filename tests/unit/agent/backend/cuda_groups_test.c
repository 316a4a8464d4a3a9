/* Products of many rows with the matrices of their experts: each matrix is read for all rows that
 * take it. */
#include "tests/unit/agent/backend/cuda_fixture.h"

struct groups_case {
    enum dtype dtype;
    uint32_t experts, used, rows, inputs, outputs;
    bool apart, bias;
    int alone;        /* all rows take this expert and the next ones; -1: as it comes */
    int first, count; /* the operator has so many of the experts; 0: all */
};
enum { EXPERTS_MOST = 16 };

/* Weights of which the format is exact, so that both devices have the same. */
struct groups_data {
    struct weight parts[EXPERTS_MOST], whole, bias_weight;
    const struct weight *list[EXPERTS_MOST];
    uint8_t *bytes;
    float *bias, *x, *route;
};

static void data_make(struct groups_data *g, const struct groups_case *c)
{
    size_t n = (size_t)c->outputs * c->inputs, part = dtype_bytes(c->dtype, n);
    float *values = op_random(n * c->experts, 7, 0.5f);
    uint64_t seed = 11;
    *g = (struct groups_data){.bytes = malloc(part * c->experts)};
    for (uint32_t e = 0; e < c->experts; e++) {
        g->parts[e] =
            weight_make(c->dtype, values + e * n, c->outputs, c->inputs, g->bytes + e * part);
        g->list[e] = &g->parts[e];
    }
    g->whole = g->parts[0];
    g->whole.n_dims = 3;
    g->whole.shape[0] = c->experts;
    g->whole.shape[1] = c->outputs;
    g->whole.shape[2] = c->inputs;
    g->whole.bytes = part * c->experts;
    g->whole.parts = g->list + c->first;
    g->whole.n_parts = c->count ? c->count : (int)c->experts;
    g->bias = op_random((size_t)c->experts * c->outputs, 9, 1);
    g->bias_weight = vector_make(g->bias, (uint64_t)c->experts * c->outputs);
    g->x = op_random((size_t)c->rows * c->inputs * (c->apart ? c->used : 1), 3, 1);
    g->route = calloc((size_t)c->rows * 2 * c->used, sizeof *g->route);
    for (uint32_t r = 0; r < c->rows; r++) {
        uint32_t first = c->alone >= 0 ? (uint32_t)c->alone
                                       : (uint32_t)(random_unit(&seed) * (double)c->experts);
        for (uint32_t k = 0; k < c->used; k++)
            g->route[r * 2 * c->used + k] = (float)((first + k * 3) % c->experts);
    }
    free(values);
}

static void groups_run(struct device *d, const struct groups_case *c, const struct groups_data *g,
                       float *out)
{
    const struct backend *b = d->backend;
    const struct weight *list[OP_WEIGHTS_MAX] = {&g->whole, c->bias ? &g->bias_weight : NULL};
    const struct graph_op op = {
        .kind = OP_EXPERT_MATMUL,
        .n_inputs = 2,
        .n_outputs = 1,
        .n_weights = 2,
        .weights = list,
        .u.experts = {
            .used = (int)c->used, .first = c->first, .count = c->count, .all = (int)c->experts}};
    struct op_request request = {.op = &op};
    struct device_weight *loaded[2] = {0};
    struct device_op *ready;
    struct stream *s;
    struct err e = {0};
    size_t width = (size_t)c->used * c->outputs;
    if (b->weight_load(d, &g->whole, WEIGHT_MATMUL, false, &loaded[0], &e) < 0 ||
        (c->bias && b->weight_load(d, &g->bias_weight, WEIGHT_VECTOR, false, &loaded[1], &e) < 0))
        fail_msg("%s", e.text);
    request.weights[0] = loaded[0], request.weights[1] = loaded[1];
    assert_int_equal(b->stream_create(d, &s, &e), 0);
    assert_int_equal(b->op_prepare(d, &request, &ready, &e), 0);
    struct tensor in[2] = {op_tensor(
                               d, s,
                               &(struct op_rows){g->x, c->rows,
                                                 (size_t)c->inputs * (c->apart ? c->used : 1)}),
                           op_tensor(d, s, &(struct op_rows){g->route, c->rows, 2 * c->used})},
                  to = op_tensor(d, s, &(struct op_rows){out, c->rows, width}), /* zeros */
        host = tensor_on_host(out, DTYPE_F32, c->rows, width);
    b->op_run(s, ready, in, &to, NULL);
    b->copy(s, &host, &to);
    if (b->stream_wait(s, &e) < 0)
        fail_msg("%s", e.text);
    for (int i = 0; i < 2; i++) {
        b->memory_release(d, &in[i].memory);
        if (loaded[i])
            b->weight_free(d, &loaded[i]);
    }
    b->memory_release(d, &to.memory);
    b->op_release(&ready);
    b->stream_destroy(&s);
}

/* To what halves leave of rows: bf16 has 8 bits. */
static void groups_compare(uint64_t memory_bytes)
{
    static const struct groups_case cases[] = {
        {DTYPE_F16, 2, 1, 20, 24, 9, false, false, -1, 0,
         0}, /* less than a tile, in all directions */
        {DTYPE_F16, 3, 2, 130, 72, 70, false, true, -1, 0, 0},
        {DTYPE_BF16, 4, 2, 40, 64, 65, true, false, -1, 0, 0},
        {DTYPE_Q8_0, 4, 2, 70, 96, 64, true, true, -1, 0, 0},
        {DTYPE_Q8_0, 5, 1, 140, 64, 8, false, false, 2, 0,
         0}, /* all one expert: others have none */
        {DTYPE_Q4_0, 16, 4, 40, 32, 10, false, false, -1, 0, 0},
        {DTYPE_MXFP4, 3, 2, 33, 64, 20, false, true, -1, 0, 0},
        {DTYPE_Q4_K, 2, 2, 17, 256, 66, true, false, -1, 0, 0},
        {DTYPE_Q6_K, 2, 1, 65, 256, 5, false, false, 1, 0, 0},
        /* with little memory: several panels of matrices, of outputs, and rows in several turns */
        {DTYPE_Q8_0, 12, 3, 33, 64, 64, false, true, -1, 0, 0},
        {DTYPE_Q8_0, 12, 1, 96, 64, 64, false, false, 10, 0, 0}, /* of the second panel alone */
        {DTYPE_Q4_K, 2, 1, 20, 256, 150, false, true, -1, 0, 0},
        {DTYPE_F16, 2, 2, 140, 72, 9, true, true, -1, 0, 0},
        {DTYPE_Q8_0, 3, 2, 260, 64, 5, false, false, -1, 0, 0},
        /* some of the experts */
        {DTYPE_Q8_0, 8, 2, 70, 64, 64, false, true, -1, 3, 4},
        {DTYPE_F16, 12, 3, 66, 72, 9, true, true, -1, 0, 5},
        {DTYPE_Q4_K, 4, 2, 40, 256, 20, false, false, 0, 2, 2},
    };
    static const struct device_config plain = {.backend = "plain"};
    struct device *devices[2] = {cuda_open(memory_bytes)};
    struct err e = {0};
    assert_int_equal(device_open(&plain, &devices[1], &e), 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct groups_case *c = &cases[i];
        size_t n = (size_t)c->rows * c->used * c->outputs;
        float *out[2], greatest = 0;
        struct groups_data g;
        data_make(&g, c);
        for (int k = 0; k < 2; k++) {
            out[k] = calloc(n, sizeof **out);
            groups_run(devices[k], c, &g, out[k]);
        }
        for (size_t k = 0; k < n; k++)
            greatest = fmaxf(greatest, fabsf(out[1][k]));
        for (size_t k = 0; k < n; k++)
            if (!(fabsf(out[0][k] - out[1][k]) <= 8e-3f * greatest))
                fail_msg("case %zu: row %zu, element %zu is %g instead of %g", i,
                         k / (c->used * c->outputs), k % (c->used * c->outputs), (double)out[0][k],
                         (double)out[1][k]);
        free(out[0]), free(out[1]);
        free(g.bytes), free(g.bias), free(g.x), free(g.route);
    }
    device_close(&devices[0]), device_close(&devices[1]);
}

TEST(rows_meet_the_matrices_of_their_experts_group_by_group)
{
    groups_compare(0);
}

TEST(groups_take_small_rooms_where_memory_is_small)
{
    groups_compare(4 << 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_meet_the_matrices_of_their_experts_group_by_group),
        cmocka_unit_test(groups_take_small_rooms_where_memory_is_small),
    };
    return cmocka_run_group_tests_name("cuda_groups", tests, NULL, NULL);
}
