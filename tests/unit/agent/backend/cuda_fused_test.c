/* Operators that the cuda backend puts on a stream together: to the bit what they write one by one,
 * in fewer launches. */
#include "tests/unit/agent/backend/cuda_fixture.h"

enum { WIDTH = 64, VALUES = 9, OPS_MOST = 16, ROWS_MOST = 17, POOL_PAGES = 2, ANGLES = 5 };

struct fused_op {
    enum op_kind kind;
    int in[OP_INPUTS_MAX], n_inputs, out; /* with OTHER a product by the matrix of another format */
};
enum { OTHER = 16 };
struct fused_case {
    const char *what;
    struct fused_op ops[OPS_MOST];
    int saved;  /* launches, where products take another form of their rows */
    int plain;  /* where they do not */
    int merged; /* besides of few rows: products of the same rows */
    int joined; /* besides: attention makes them, as integers of few rows, as halves of others */
};

static const struct rope_config rotation = {
    .style = ROPE_HALVES, .dims = 32, .base = 100, .scale = 1};
static const struct rope_config by_pairs = {
    .style = ROPE_PAIRS, .dims = WIDTH, .base = 100, .scale = 1};

/* What operators have besides values. */
struct fused_bench {
    struct device *device;
    const struct backend *backend;
    struct stream *stream;
    struct weight matrix, norm, bias, other;
    const struct weight *list[4][OP_WEIGHTS_MAX]; /* of a product, an RMS norm, a layer norm, the
                                                     other product */
    struct device_weight *loaded[4];
    struct memory values[VALUES];
    struct kv_group kv;
    uint8_t bytes[2][WIDTH * WIDTH * 4];
    float *numbers;
};

/* Another one, whose rows are as many bytes where there is such a one. */
static enum dtype dtype_beside(enum dtype t)
{
    return t == DTYPE_Q8_0 ? DTYPE_Q4_0 : t == DTYPE_BF16 ? DTYPE_F16 : t;
}

/* Values end where their rows do. */
static void bench_init(struct fused_bench *s, struct device *d, enum dtype dtype, uint32_t rows)
{
    float *values = op_random((size_t)WIDTH * WIDTH, 5, 0.2f);
    struct err e = {0};
    *s = (struct fused_bench){.device = d, .backend = d->backend};
    s->numbers = op_random(2 * WIDTH, 9, 1);
    s->matrix = weight_make(dtype, values, WIDTH, WIDTH, s->bytes[0]);
    s->other = weight_make(dtype_beside(dtype), values, WIDTH, WIDTH, s->bytes[1]);
    s->norm = vector_make(s->numbers, WIDTH);
    s->bias = vector_make(s->numbers + WIDTH, WIDTH);
    s->list[0][0] = &s->matrix;
    s->list[1][0] = s->list[2][0] = &s->norm;
    s->list[2][1] = &s->bias;
    s->list[3][0] = &s->other;
    const struct weight *all[] = {&s->matrix, &s->norm, &s->bias, &s->other};
    for (int i = 0; i < 4; i++)
        assert_int_equal(s->backend->weight_load(d, all[i], i % 3 ? WEIGHT_VECTOR : WEIGHT_MATMUL,
                                                 false, &s->loaded[i], &e),
                         0);
    for (int i = 0; i < VALUES; i++)
        assert_int_equal(
            s->backend->memory_alloc(d, rows * WIDTH * sizeof(float), &s->values[i], &e), 0);
    s->kv.layout =
        (struct kv_layout){.n_blocks = 1, .n_kv_heads = 1, .head_dim = WIDTH, .format = KV_F16};
    assert_int_equal(
        s->backend->memory_alloc(d, POOL_PAGES * s->backend->kv_page_bytes(d, &s->kv.layout),
                                 &s->kv.pool, &e),
        0);
    assert_int_equal(s->backend->stream_create(d, &s->stream, &e), 0);
    free(values);
}

static void bench_fini(struct fused_bench *s)
{
    for (int i = 0; i < 4; i++)
        s->backend->weight_free(s->device, &s->loaded[i]);
    for (int i = 0; i < VALUES; i++)
        s->backend->memory_release(s->device, &s->values[i]);
    s->backend->memory_release(s->device, &s->kv.pool);
    s->backend->stream_destroy(&s->stream);
    free(s->numbers);
}

static struct graph_op graph_op_of(struct fused_bench *s, const struct fused_op *o)
{
    struct graph_op op = {.kind = o->kind, .n_inputs = o->n_inputs};
    int list = o->kind == OP_MATMUL ? o->out / OTHER * 3 : o->kind == OP_RMS_NORM ? 1 : 2;
    if (o->kind == OP_MATMUL || o->kind == OP_RMS_NORM || o->kind == OP_LAYER_NORM) {
        op.weights = s->list[list];
        op.n_weights = list == 2 ? 2 : 1;
    }
    if (o->kind == OP_RMS_NORM || o->kind == OP_LAYER_NORM)
        op.u.norm.epsilon = 1e-5f;
    if (o->kind == OP_ROPE)
        op.u.rope = (struct op_rope){
            .config = o->in[0] ? &rotation : &by_pairs, .head_dim = WIDTH, .first = o->in[0] * 8};
    if (o->kind == OP_ATTENTION)
        op.u.attention = (struct op_attention){.heads = 1, .kv_heads = 1, .head_dim = WIDTH};
    return op;
}

static void values_copy(struct fused_bench *s, uint32_t rows, float (*host)[ROWS_MOST * WIDTH],
                        bool to_host)
{
    struct err e = {0};
    for (int i = 0; i < VALUES; i++) {
        struct tensor there = tensor_rows(s->values[i], DTYPE_F32, rows, WIDTH),
                      here = tensor_on_host(host[i], DTYPE_F32, rows, WIDTH);
        s->backend->copy(s->stream, to_host ? &here : &there, to_host ? &there : &here);
    }
    if (s->backend->stream_wait(s->stream, &e) < 0)
        fail_msg("%s", e.text);
}

/* As the stand-in counts them; a GPU does not: 0. */
static uint64_t launches(void)
{
    uint64_t (*count)(void) = NULL;
    *(void **)&count = plugin_symbol("cuda_on_cpu_launches");
    return count ? count() : 0;
}

/* Twice, from the same values: what was made of the first's rows is not taken for the second's.
 * Returns how many launches the second took. */
static int case_run(struct fused_bench *s, const struct fused_case *c, uint32_t rows, bool together,
                    float (*out)[ROWS_MOST * WIDTH])
{
    static const uint32_t pages[] = {1};
    static const uint32_t *by_group[] = {pages};
    const struct attention_run run = {.n_tokens = rows, .first_position = 3, .pages = by_group};
    const struct op_batch batch = {.runs = &run, .n_runs = 1, .kv = &s->kv};
    struct graph_op ops[OPS_MOST];
    struct op_call calls[OPS_MOST + 1] = {{0}}; /* a view among them */
    struct err e = {0};
    uint64_t before = 0;
    int n = 0;
    for (int i = 0; i < OPS_MOST && c->ops[i].n_inputs; i++) {
        const struct fused_op *o = &c->ops[i];
        ops[i] = graph_op_of(s, o);
        struct op_request request = {.op = &ops[i]};
        for (int k = 0; k < ops[i].n_weights; k++)
            request.weights[k] = s->loaded[o->kind == OP_MATMUL ? o->out / OTHER * 3 : 1 + k];
        n += n == 1;
        struct op_call *call = &calls[n++];
        assert_int_equal(s->backend->op_prepare(s->device, &request, &call->op, &e), 0);
        for (int k = 0; k < o->n_inputs; k++)
            call->inputs[k] = tensor_rows(s->values[o->in[k]], DTYPE_F32, rows, WIDTH);
        call->out = tensor_rows(s->values[o->out % OTHER], DTYPE_F32, rows, WIDTH);
    }
    for (uint64_t turn = 0; turn < 2; turn++) {
        for (int i = 0; i < VALUES; i++) {
            float *x = op_random(ROWS_MOST * WIDTH, turn * 10 + (uint64_t)i + 1, 2);
            memcpy(out[i], x, sizeof *out);
            free(x);
        }
        values_copy(s, rows, out, false);
        before = launches();
        if (together)
            s->backend->ops_run(s->stream, calls, n, &batch);
        for (int i = 0; !together && i < n; i++)
            if (calls[i].op)
                s->backend->op_run(s->stream, calls[i].op, calls[i].inputs, &calls[i].out, &batch);
        if (s->backend->stream_wait(s->stream, &e) < 0)
            fail_msg("%s: %s", c->what, e.text);
        before = launches() - before;
        values_copy(s, rows, out, true);
    }
    for (int i = 0; i < n; i++)
        if (calls[i].op)
            s->backend->op_release(&calls[i].op);
    return (int)before;
}

/* HP_TEST_CUDA_DECODE of those that run together, "way=0" for those one by one. NULL: it is not
 * said. */
static const char *together_by;

static struct device *device_opened(bool together)
{
    if (together_by)
        setenv("HP_TEST_CUDA_DECODE", together ? together_by : "way=0", 1);
    struct device *d = cuda_open(0);
    unsetenv("HP_TEST_CUDA_DECODE");
    return d;
}

static void cases_compare(const struct fused_case *cases, size_t n, enum dtype dtype, uint32_t rows)
{
    static float out[2][VALUES][ROWS_MOST * WIDTH];
    static struct fused_bench s;
    int took[2];
    bool few = rows <= 8,
         forms = dtype != DTYPE_F32 && (!few || dtype == DTYPE_Q8_0 || dtype == DTYPE_MXFP4);
    struct device *devices[2] = {NULL};
    for (int together = 0; together < 2; together++)
        devices[together] = device_opened(together);
    for (size_t i = 0; i < n; i++) {
        const struct fused_case *c = &cases[i];
        for (int together = 0; together < 2; together++) {
            /* with a room that nobody has written to */
            bench_init(&s, devices[together], dtype, rows);
            took[together] = case_run(&s, c, rows, together, out[together]);
            bench_fini(&s);
        }
        for (int v = 0; v < VALUES; v++)
            if (memcmp(out[0][v], out[1][v], rows * WIDTH * sizeof(float)))
                fail_msg("%s, %s, %u rows: value %d is another where they run together", c->what,
                         dtype_info(dtype)->name, rows, v);
        int saved = forms ? c->saved : c->plain;
        saved += (few ? c->merged : 0) + (forms ? c->joined : 0);
        if (launches() && took[0] - took[1] != saved)
            fail_msg("%s, %s, %u rows: %d launches one by one, %d together", c->what,
                     dtype_info(dtype)->name, rows, took[0], took[1]);
    }
    device_close(&devices[0]), device_close(&devices[1]);
}

TEST(operators_together_are_those_one_by_one)
{
    static const struct fused_case cases[] = {
        {"a norm and products of it",
         {{OP_RMS_NORM, {0}, 1, 1}, {OP_MATMUL, {1}, 1, 2}, {OP_MATMUL, {1}, 1, 3}},
         2,
         0,
         1,
         0},
        {"products of which one reads what another writes",
         {{OP_RMS_NORM, {0}, 1, 1}, {OP_MATMUL, {1}, 1, 2}, {OP_MATMUL, {1, 2}, 2, 3}},
         2,
         0,
         0,
         0},
        {"products of which one is added to what it becomes",
         {{OP_RMS_NORM, {0}, 1, 1}, {OP_MATMUL, {1}, 1, 2}, {OP_MATMUL, {1, 3}, 2, 3}},
         2,
         0,
         1,
         0},
        {"a layer norm and a product of it",
         {{OP_LAYER_NORM, {0}, 1, 1}, {OP_MATMUL, {1}, 1, 2}},
         1,
         0,
         0,
         0},
        {"a sum, its norm and a product",
         {{OP_ADD, {0, 1}, 2, 2}, {OP_RMS_NORM, {2}, 1, 3}, {OP_MATMUL, {3}, 1, 4}},
         2,
         1,
         0,
         0},
        {"a sum in place, its norm where its other part was",
         {{OP_ADD, {0, 1}, 2, 0}, {OP_LAYER_NORM, {0}, 1, 1}, {OP_MATMUL, {1, 0}, 2, 2}},
         2,
         1,
         0,
         0},
        {"norms, a sum and a norm",
         {{OP_RMS_NORM, {0}, 1, 1},
          {OP_ADD, {1, 2}, 2, 2},
          {OP_RMS_NORM, {2}, 1, 3},
          {OP_MATMUL, {3}, 1, 4}},
         2,
         1,
         0,
         0},
        {"a gate by GELU and a product",
         {{OP_GELU, {0}, 1, 1}, {OP_MUL, {1, 2}, 2, 3}, {OP_MATMUL, {3}, 1, 4}},
         2,
         1,
         0,
         0},
        {"a gate by GELU in place",
         {{OP_GELU, {0}, 1, 0}, {OP_MUL, {2, 0}, 2, 0}, {OP_MATMUL, {0}, 1, 4}},
         2,
         1,
         0,
         0},
        {"a square of a GELU is none of its gates",
         {{OP_GELU, {0}, 1, 1}, {OP_MUL, {1, 1}, 2, 2}, {OP_MATMUL, {2}, 1, 3}},
         1,
         0,
         0,
         0},
        {"a gate by SiLU and a product",
         {{OP_SILU_MUL, {0, 1}, 2, 0}, {OP_MATMUL, {0}, 1, 3}},
         1,
         0,
         0,
         0},
        {"rows that are written again between two products",
         {{OP_RMS_NORM, {0}, 1, 1},
          {OP_MATMUL, {1}, 1, 2},
          {OP_SILU_MUL, {2, 3}, 2, 1},
          {OP_ADD, {1, 3}, 2, 4},
          {OP_MATMUL, {1}, 1, 3}},
         1,
         0,
         0,
         0},
        {"a product of rows that are no norm's, after a norm",
         {{OP_RMS_NORM, {0}, 1, 1}, {OP_MATMUL, {2}, 1, 3}, {OP_MATMUL, {1}, 1, 4}},
         0,
         0,
         0,
         0},
        {"rotations and the attention that reads them",
         {{OP_ROPE, {0, ANGLES}, 2, 0},
          {OP_ROPE, {1, ANGLES}, 2, 2},
          {OP_ATTENTION, {0, 2, 3}, 3, 4},
          {OP_MATMUL, {4}, 1, 3}},
         2,
         2,
         0,
         1},
        {"a layer of LLaMA",
         {{OP_RMS_NORM, {0}, 1, 1},
          {OP_MATMUL, {1}, 1, 2},
          {OP_MATMUL, {1}, 1, 3},
          {OP_MATMUL, {1}, 1, 4},
          {OP_ROPE, {2, ANGLES}, 2, 2},
          {OP_ROPE, {3, ANGLES}, 2, 3},
          {OP_ATTENTION, {2, 3, 4}, 3, 6},
          {OP_MATMUL, {6, 0}, 2, 0},
          {OP_RMS_NORM, {0}, 1, 1},
          {OP_MATMUL, {1}, 1, 7},
          {OP_MATMUL, {1}, 1, 8},
          {OP_SILU_MUL, {7, 8}, 2, 7},
          {OP_MATMUL, {7, 0}, 2, 0}},
         8,
         2,
         3,
         1},
        {"rotated keys where queries were",
         {{OP_ROPE, {0, ANGLES}, 2, 2},
          {OP_ROPE, {1, ANGLES}, 2, 0},
          {OP_ATTENTION, {2, 0, 3}, 3, 4}},
         0,
         0,
         0,
         0},
    };
    static const struct {
        enum dtype dtype;
        uint32_t rows;
    } shapes[] = {{DTYPE_Q8_0, 1}, {DTYPE_Q8_0, 3},  {DTYPE_MXFP4, 6}, {DTYPE_Q8_0, 17},
                  {DTYPE_F16, 9},  {DTYPE_BF16, 10}, {DTYPE_BF16, 2},  {DTYPE_F32, 1},
                  {DTYPE_F32, 12}, {DTYPE_BF16, 17}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        cases_compare(cases, sizeof cases / sizeof *cases, shapes[i].dtype, shapes[i].rows);
}

TEST(products_of_two_formats_are_launches_of_their_own)
{
    static const struct fused_case cases[] = {{"products in two formats",
                                               {{OP_RMS_NORM, {0}, 1, 1},
                                                {OP_MATMUL, {1}, 1, 2},
                                                {OP_MATMUL, {1}, 1, 3 | OTHER},
                                                {OP_MATMUL, {1}, 1, 4}},
                                               3,
                                               0,
                                               0,
                                               0}};
    cases_compare(cases, 1, DTYPE_Q8_0, 1);
    cases_compare(cases, 1, DTYPE_Q8_0, 3);
    cases_compare(cases, 1, DTYPE_BF16, 2);
}

/* What one by one is multiplied by blocks that go when their outputs are done is multiplied
 * together by some that stay. */
TEST(products_in_one_launch_are_those_of_blocks_that_stay)
{
    static const struct fused_case cases[] = {
        {"three products",
         {{OP_RMS_NORM, {0}, 1, 1},
          {OP_MATMUL, {1}, 1, 2},
          {OP_MATMUL, {1, 3}, 2, 3},
          {OP_MATMUL, {1, 0}, 2, 4}},
         3,
         0,
         2,
         0},
        {"two products",
         {{OP_RMS_NORM, {0}, 1, 1}, {OP_MATMUL, {1}, 1, 2}, {OP_MATMUL, {1}, 1, 3}},
         2,
         0,
         1,
         0}};
    static const char *const stay[] = {"1", "3", "5", "way=1"};
    for (size_t i = 0; i < sizeof stay / sizeof *stay; i++) {
        together_by = stay[i];
        cases_compare(cases, 2, DTYPE_Q8_0, 1);
        cases_compare(cases, 2, DTYPE_MXFP4, 1);
    }
    together_by = NULL;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_in_one_launch_are_those_of_blocks_that_stay),
        cmocka_unit_test(operators_together_are_those_one_by_one),
        cmocka_unit_test(products_of_two_formats_are_launches_of_their_own),
    };
    return cmocka_run_group_tests_name("cuda_fused", tests, NULL, NULL);
}
