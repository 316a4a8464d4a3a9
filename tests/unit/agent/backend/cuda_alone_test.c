/* Tokens that are their sequences' only ones of a batch: rotation, writing of keys and values and
 * attention are one kernel, whose numbers are to the bit those of operators one by one. */
#include "tests/unit/agent/backend/cuda_fixture.h"

static void calls_run(const struct backend *b, struct stream *s, const struct op_call *calls, int n,
                      const struct op_batch *batch, bool together)
{
    struct err e = {0};
    if (together)
        b->ops_run(s, calls, n, batch);
    for (int i = 0; !together && i < n; i++)
        b->op_run(s, calls[i].op, calls[i].inputs, &calls[i].out, batch);
    if (b->stream_wait(s, &e) < 0)
        fail_msg("%s", e.text);
}

static void tensor_fetch(const struct backend *b, struct stream *s, const struct tensor *t,
                         float *out)
{
    struct tensor host = tensor_on_host(out, DTYPE_F32, t->shape[0], tensor_width(t));
    struct err e = {0};
    b->copy(s, &host, t);
    assert_int_equal(b->stream_wait(s, &e), 0);
}

enum { SEQUENCES = 3, POSITION = 70 };
struct alone_case {
    int heads, kv_heads, head_dim;
    enum rope_style style;
    int dims; /* that rotate */
    bool product;
};

/* Queries and keys are rotated in place, then attended, then multiplied: what the three and the
 * product come to. */
static void alone_run(struct device *d, const struct alone_case *c, bool together, float *out)
{
    const struct backend *b = d->backend;
    size_t q = (size_t)(c->heads * c->head_dim), kv = (size_t)(c->kv_heads * c->head_dim),
           angles = (size_t)c->dims;
    const struct rope_config rope = {.style = c->style, .dims = c->dims, .base = 100, .scale = 1};
    float *m = op_random(q * 8, 9, 0.3f);
    uint8_t *bytes = malloc(q * 8 * sizeof *m);
    const struct weight matrix = weight_make(DTYPE_Q8_0, m, 8, q, bytes);
    const struct weight *list[] = {&matrix};
    const struct graph_op ops[] = {
        {.kind = OP_ROPE, .n_inputs = 2, .u.rope = {.config = &rope, .head_dim = c->head_dim}},
        {.kind = OP_ROPE, .n_inputs = 2, .u.rope = {.config = &rope, .head_dim = c->head_dim}},
        {.kind = OP_ATTENTION,
         .n_inputs = 3,
         .u.attention = {.heads = c->heads, .kv_heads = c->kv_heads, .head_dim = c->head_dim}},
        {.kind = OP_MATMUL, .n_inputs = 1, .n_weights = 1, .weights = list}};
    struct kv_group g = {
        .layout = {
            .n_blocks = 1, .n_kv_heads = c->kv_heads, .head_dim = c->head_dim, .format = KV_F16}};
    static const uint32_t pages[SEQUENCES][2] = {{0, 3}, {1, 4}, {2, 5}};
    const uint32_t *by_group[SEQUENCES][1];
    struct attention_run runs[SEQUENCES];
    struct op_call calls[4] = {{0}};
    struct device_weight *loaded;
    struct stream *s;
    struct err e = {0};
    uint64_t page_bytes = b->kv_page_bytes(d, &g.layout);
    assert_int_equal(b->stream_create(d, &s, &e), 0);
    assert_int_equal(b->weight_load(d, &matrix, WEIGHT_MATMUL, false, &loaded, &e), 0);
    assert_int_equal(b->memory_alloc(d, 6 * page_bytes, &g.pool, &e), 0);
    for (int i = 0; i < 4; i++) {
        const struct op_request r = {.op = &ops[i], .weights = {i == 3 ? loaded : NULL}};
        assert_int_equal(b->op_prepare(d, &r, &calls[i].op, &e), 0);
    }
    float *given[4] = {op_random(SEQUENCES * q, 1, 1), op_random(SEQUENCES * kv, 2, 1),
                       op_random(SEQUENCES * kv, 3, 1), op_random(SEQUENCES * angles, 4, 1)};
    struct tensor t[6];
    const size_t widths[] = {q, kv, kv, angles, q, 8};
    for (int i = 0; i < 6; i++)
        t[i] = op_tensor(d, s, &(struct op_rows){i < 4 ? given[i] : NULL, SEQUENCES, widths[i]});
    for (int i = 0; i < 2; i++) {
        calls[i].inputs[0] = calls[i].out = calls[2].inputs[i] = t[i];
        calls[i].inputs[1] = t[3];
    }
    calls[2].inputs[2] = t[2];
    calls[2].out = calls[3].inputs[0] = t[4];
    calls[3].out = t[5];
    uint16_t *halves = malloc(page_bytes);
    for (size_t i = 0; i < page_bytes / 2; i++)
        halves[i] = (uint16_t)(0x3000 + i * 2654435761u % 0xa00 + (i % 3 ? 0x8000 : 0));
    for (uint32_t p = 0; p < 6; p++) {
        const struct kv_part part = {.n_blocks = 1, .count = KV_PAGE_TOKENS};
        b->kv_import(s, &g, &p, &part, halves);
        assert_int_equal(b->stream_wait(s, &e), 0);
    }
    for (uint32_t i = 0; i < SEQUENCES; i++) {
        by_group[i][0] = pages[i];
        runs[i] = (struct attention_run){.first_row = i,
                                         .n_tokens = 1,
                                         .first_position = POSITION - i * 30,
                                         .pages = by_group[i]};
    }
    const struct op_batch batch = {.runs = runs, .n_runs = SEQUENCES, .kv = &g};
    calls_run(b, s, calls, c->product ? 4 : 3, &batch, together);
    for (int i = 0; i < (c->product ? 6 : 5); i++) {
        tensor_fetch(b, s, &t[i], out);
        out += SEQUENCES * widths[i];
    }
    for (int i = 0; i < 4; i++)
        b->op_release(&calls[i].op), free(given[i]);
    for (int i = 0; i < 6; i++)
        b->memory_release(d, &t[i].memory);
    b->memory_release(d, &g.pool);
    b->weight_free(d, &loaded);
    b->stream_destroy(&s);
    free(m), free(bytes), free(halves);
}

TEST(tokens_that_are_alone_are_rotated_and_attended_as_one_by_one)
{
    static const struct alone_case cases[] = {
        {2, 2, 64, ROPE_HALVES, 64, false},  {4, 2, 64, ROPE_PAIRS, 64, true},
        {3, 1, 128, ROPE_HALVES, 64, true},  {4, 1, 72, ROPE_PAIRS, 40, false},
        {2, 1, 256, ROPE_HALVES, 256, true}, {5, 1, 64, ROPE_HALVES, 64, true}};
    enum { MOST = SEQUENCES * (512 * 5 + 8) };
    static float out[2][MOST];
    struct device *d = cuda_open(0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        memset(out, 0, sizeof out);
        for (int together = 0; together < 2; together++)
            alone_run(d, &cases[i], together, out[together]);
        for (size_t k = 0; k < MOST; k++)
            if (memcmp(&out[0][k], &out[1][k], sizeof **out))
                fail_msg("case %zu: number %zu is %g one by one, %g together", i, k,
                         (double)out[0][k], (double)out[1][k]);
    }
    device_close(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokens_that_are_alone_are_rotated_and_attended_as_one_by_one),
    };
    return cmocka_run_group_tests_name("cuda_alone", tests, NULL, NULL);
}
