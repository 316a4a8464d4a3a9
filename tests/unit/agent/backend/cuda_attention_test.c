/* Attention of the cuda backend over pages, against the plain one. */
#include "tests/unit/agent/backend/cuda_attention_fixture.h"

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
        /* in parts: one, several, groups of heads that no four divide, windows, sinks */
        {{.heads = 1, .kv_heads = 1, .head_dim = 64}, KV_F16, 0, 1, 0},
        {{.heads = 2, .kv_heads = 1, .head_dim = 128}, KV_F16, 200, 1, 0},
        {{.heads = 7, .kv_heads = 1, .head_dim = 64}, KV_F16, 250, 2, 2},
        {{.heads = 8, .kv_heads = 2, .head_dim = 64, .cap = 3}, KV_F16, 130, 3, -3},
        {{.heads = 1, .kv_heads = 1, .head_dim = 64, .window = 140}, KV_F16, 200, 1, 0},
        {{.heads = 1, .kv_heads = 1, .head_dim = 128, .window = 5}, KV_F16, 129, 1, 1},
        {{.heads = 2, .kv_heads = 1, .head_dim = 256, .cap = 3}, KV_F16, 139, 1, 0},
        {{.heads = 2, .kv_heads = 2, .head_dim = 96}, KV_F16, 139, 1, 2},
        {{.heads = 3, .kv_heads = 1, .head_dim = 72, .window = 135}, KV_F16, 200, 1, 0},
        {{.heads = 1, .kv_heads = 1, .head_dim = 8}, KV_F16, 10, 1, 0},
        {{.heads = 2, .kv_heads = 1, .head_dim = 128}, KV_F16, 200, 2, 0},
        {{.heads = 1, .kv_heads = 1, .head_dim = 64, .window = 140}, KV_F16, 200, 2, 0},
        {{.heads = 2, .kv_heads = 2, .head_dim = 96}, KV_F16, 139, 2, 2},
        {{.heads = 3, .kv_heads = 1, .head_dim = 72, .window = 135}, KV_F16, 200, 2, 0},
        {{.heads = 2, .kv_heads = 1, .head_dim = 64}, KV_Q8_0, 139, 2, 0},
        {{.heads = 5, .kv_heads = 1, .head_dim = 96, .window = 131}, KV_Q8_0, 139, 1, 1},
        {{.heads = 1, .kv_heads = 1, .head_dim = 256}, KV_Q8_0, 139, 1, 0},
        /* tiles of tensor cores: within a page, after a prefix, several, part of one; windows, soft
           caps, sinks, all of a text */
        {{.heads = 2, .kv_heads = 1, .head_dim = 64}, KV_F16, 0, 16, 0},
        {{.heads = 4, .kv_heads = 2, .head_dim = 64}, KV_F16, 70, 20, 0},
        {{.heads = 1, .kv_heads = 1, .head_dim = 128}, KV_F16, 5, 130, 0},
        {{.heads = 2, .kv_heads = 2, .head_dim = 64, .window = 30}, KV_F16, 150, 70, 0},
        {{.heads = 2, .kv_heads = 1, .head_dim = 64, .window = 3, .cap = 2}, KV_Q8_0, 66, 66, 0.5f},
        {{.heads = 1, .kv_heads = 1, .head_dim = 96, .scale = 2}, KV_F16, 60, 17, -4},
        {{.heads = 2, .kv_heads = 1, .head_dim = 64, .whole = true}, KV_F16, 0, 70, 0},
        {{.heads = 2, .kv_heads = 1, .head_dim = 256, .window = 40}, KV_F16, 70, 20, 1},
        {{.heads = 1, .kv_heads = 1, .head_dim = 256, .cap = 5}, KV_Q8_0, 3, 66, 0},
    };
    cuda_attention_compare(cases, sizeof cases / sizeof *cases);
}

/* A batch of a prompt's tokens, a step of another sequence and a few tokens of a third. */
enum { MIXED_ROWS = 40 + 1 + 3, MIXED_WIDTH = 64 };

static void mixed_run(struct device *d, float *out)
{
    const struct backend *b = d->backend;
    static const uint32_t pages[3][2] = {{2, 0}, {1, KV_NO_PAGE}, {3, KV_NO_PAGE}};
    const uint32_t *by_group[3][1] = {{pages[0]}, {pages[1]}, {pages[2]}};
    const struct graph_op op = {.kind = OP_ATTENTION,
                                .n_inputs = 3,
                                .u.attention = {.heads = 1, .kv_heads = 1, .head_dim = 64}};
    struct kv_group g = {.layout = {.n_blocks = 1, .n_kv_heads = 1, .head_dim = 64}};
    struct err e = {0};
    assert_int_equal(b->memory_alloc(d, 4 * b->kv_page_bytes(d, &g.layout), &g.pool, &e), 0);
    float *rows[3];
    for (int i = 0; i < 3; i++)
        rows[i] = op_random(MIXED_ROWS * MIXED_WIDTH, (uint64_t)i + 1, 1);
    const struct attention_run runs[] = {
        {.first_row = 0, .n_tokens = 1, .first_position = 0, .pages = by_group[1]},
        {.first_row = 1, .n_tokens = 40, .first_position = 0, .pages = by_group[0]},
        {.first_row = 41, .n_tokens = 3, .first_position = 0, .pages = by_group[2]}};
    const struct op_batch batch = {.runs = runs, .n_runs = 3, .kv = &g};
    op_run_once(d, &op,
                (struct op_rows[]){{rows[0], MIXED_ROWS, MIXED_WIDTH},
                                   {rows[1], MIXED_ROWS, MIXED_WIDTH},
                                   {rows[2], MIXED_ROWS, MIXED_WIDTH}},
                NULL, &batch, out, MIXED_ROWS, MIXED_WIDTH);
    for (int i = 0; i < 3; i++)
        free(rows[i]);
    b->memory_release(d, &g.pool);
}

TEST(runs_of_many_and_few_tokens_share_a_batch)
{
    static const struct device_config plain = {.backend = "plain"};
    static float out[2][MIXED_ROWS * MIXED_WIDTH];
    struct device *devices[2] = {cuda_open(0)};
    struct err e = {0};
    assert_int_equal(device_open(&plain, &devices[1], &e), 0);
    for (int k = 0; k < 2; k++)
        mixed_run(devices[k], out[k]);
    for (size_t i = 0; i < MIXED_ROWS * MIXED_WIDTH; i++)
        if (!(fabsf(out[0][i] - out[1][i]) <= 2e-3f))
            fail_msg("row %zu: element %zu is %g instead of %g", i / MIXED_WIDTH, i % MIXED_WIDTH,
                     (double)out[0][i], (double)out[1][i]);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention_is_that_of_the_reference),
        cmocka_unit_test(runs_of_many_and_few_tokens_share_a_batch),
        cmocka_unit_test(steps_that_nobody_waits_for_are_those_of_the_reference),
    };
    return cmocka_run_group_tests_name("cuda_attention", tests, NULL, NULL);
}
