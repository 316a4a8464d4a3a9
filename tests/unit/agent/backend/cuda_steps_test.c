/* Steps that come again, which the cuda backend keeps and starts as one: their numbers are to the
 * bit those of operators that are run one by one. */
#include "tests/unit/agent/backend/cuda_fixture.h"

enum { WIDTH = 64, ROWS = 20, GROUPS = 2, OWN_PAGES = 8, POOL_PAGES = 16, STEPS_MOST = 16 };

/* A product by integers, then attention to all tokens, and within a window. */
struct steps_bench {
    struct device *device;
    const struct backend *backend;
    struct stream *stream;
    struct graph_op ops[1 + GROUPS];
    struct device_op *ready[1 + GROUPS];
    struct weight matrix;
    const struct weight *list[2];
    uint8_t bytes[WIDTH * WIDTH * 2];
    struct device_weight *loaded;
    struct memory values[2 + GROUPS]; /* what comes in, the product, results */
    struct kv_group kv[GROUPS];
};

static void bench_init(struct steps_bench *s, struct device *d)
{
    static const struct op_attention attention = {.heads = 2, .kv_heads = 2, .head_dim = 32};
    float *values = op_random((size_t)WIDTH * WIDTH, 5, 0.2f);
    struct err e = {0};
    *s = (struct steps_bench){.device = d, .backend = d->backend};
    s->matrix = weight_make(DTYPE_Q8_0, values, WIDTH, WIDTH, s->bytes);
    s->list[0] = &s->matrix;
    s->ops[0] =
        (struct graph_op){.kind = OP_MATMUL, .n_inputs = 1, .n_weights = 1, .weights = s->list};
    s->ops[1] = (struct graph_op){.kind = OP_ATTENTION, .n_inputs = 3, .u.attention = attention};
    s->ops[2] = s->ops[1];
    s->ops[1].u.attention =
        (struct op_attention){.heads = 1, .kv_heads = 1, .head_dim = WIDTH}; /* in parts */
    s->ops[2].u.attention.window = 5;
    assert_int_equal(s->backend->stream_create(d, &s->stream, &e), 0);
    assert_int_equal(s->backend->weight_load(d, &s->matrix, WEIGHT_MATMUL, false, &s->loaded, &e),
                     0);
    for (int i = 0; i < 2 + GROUPS; i++)
        assert_int_equal(
            s->backend->memory_alloc(d, ROWS * WIDTH * sizeof(float), &s->values[i], &e), 0);
    for (int g = 0; g < GROUPS; g++) {
        const struct op_attention *a = &s->ops[1 + g].u.attention;
        struct kv_group *kv = &s->kv[g];
        kv->layout = (struct kv_layout){.n_blocks = 1,
                                        .n_kv_heads = a->kv_heads,
                                        .head_dim = a->head_dim,
                                        .format = KV_F16,
                                        .window = a->window};
        uint64_t bytes = POOL_PAGES * s->backend->kv_page_bytes(d, &kv->layout);
        assert_int_equal(s->backend->memory_alloc(d, bytes, &kv->pool, &e), 0);
    }
    for (int i = 0; i < 1 + GROUPS; i++) {
        const struct op_request request = {
            .op = &s->ops[i], .weights = {i ? NULL : s->loaded}, .kv_group = i ? i - 1 : 0};
        assert_int_equal(s->backend->op_prepare(d, &request, &s->ready[i], &e), 0);
    }
    free(values);
}

static void bench_fini(struct steps_bench *s)
{
    for (int i = 0; i < 1 + GROUPS; i++)
        s->backend->op_release(&s->ready[i]);
    for (int g = 0; g < GROUPS; g++)
        s->backend->memory_release(s->device, &s->kv[g].pool);
    for (int i = 0; i < 2 + GROUPS; i++)
        s->backend->memory_release(s->device, &s->values[i]);
    s->backend->weight_free(s->device, &s->loaded);
    s->backend->stream_destroy(&s->stream);
}

/* Sequences of one token each, the first at a position, the others before it. */
struct steps_case {
    uint32_t rows, position;
    uint64_t key; /* 0: no steps */
    bool windows; /* attention within a window alone */
    bool one;     /* all are one sequence's, from the position on */
};

static void ops_put(struct steps_bench *s, const struct steps_case *c, const struct op_batch *batch)
{
    struct tensor v[2 + GROUPS];
    for (int i = 0; i < 2 + GROUPS; i++)
        v[i] = tensor_rows(s->values[i], DTYPE_F32, c->rows, WIDTH);
    s->backend->op_run(s->stream, s->ready[0], &v[0], &v[1], NULL);
    for (int g = c->windows; batch && g < GROUPS; g++) {
        const struct tensor in[3] = {v[1], v[0], v[0]};
        s->backend->op_run(s->stream, s->ready[1 + g], in, &v[2 + g], batch);
    }
}

/* Page p of a sequence is any of the pool's that all have: sequences share these, but the page that
 * a step's token comes to is its own. */
static void case_run(struct steps_bench *s, const struct steps_case *c, uint64_t seed, bool kept,
                     float *out)
{
    static uint32_t pages[ROWS][2048];
    static const uint32_t *by_group[ROWS][GROUPS];
    struct attention_run runs[ROWS];
    float *x = op_random((size_t)c->rows * WIDTH, seed, 1);
    struct tensor in = tensor_rows(s->values[0], DTYPE_F32, c->rows, WIDTH),
                  given = tensor_on_host(x, DTYPE_F32, c->rows, WIDTH);
    bool attends = c->rows <= OWN_PAGES;
    struct err e = {0};
    for (uint32_t r = 0; attends && r < c->rows; r++) {
        for (uint32_t p = 0; p < 2048; p++)
            pages[r][p] = OWN_PAGES + (p + r) % (POOL_PAGES - OWN_PAGES);
        by_group[r][0] = by_group[r][1] = pages[r];
        runs[r] = (struct attention_run){.first_row = r,
                                         .n_tokens = 1,
                                         .first_position = c->position - r * KV_PAGE_TOKENS,
                                         .pages = by_group[r]};
        pages[r][runs[r].first_position / KV_PAGE_TOKENS] = r; /* its own */
    }
    if (c->one)
        runs[0].n_tokens = c->rows;
    const struct op_batch all = {.runs = runs, .n_runs = c->one ? 1 : (int)c->rows, .kv = s->kv},
                          *batch = attends ? &all : NULL;
    s->backend->copy(s->stream, &in, &given);
    bool steps = kept && c->key && s->backend->steps_begin;
    if (!steps || !s->backend->steps_begin(s->stream, c->key, batch)) {
        ops_put(s, c, batch);
        if (steps && !s->backend->steps_end(s->stream, batch))
            ops_put(s, c, batch);
    }
    for (int i = 0; i < 1 + GROUPS; i++) {
        struct tensor there = tensor_rows(s->values[1 + i], DTYPE_F32, c->rows, WIDTH),
                      here =
                          tensor_on_host(out + (size_t)i * ROWS * WIDTH, DTYPE_F32, c->rows, WIDTH);
        if (i == 0 || (attends && i > c->windows))
            s->backend->copy(s->stream, &here, &there);
    }
    if (s->backend->stream_wait(s->stream, &e) < 0)
        fail_msg("%s", e.text);
    free(x);
}

/* What was in the pools before is of the seed. */
static void pools_fill(struct steps_bench *s)
{
    static const uint32_t pages[POOL_PAGES] = {0, 1, 2,  3,  4,  5,  6,  7,
                                               8, 9, 10, 11, 12, 13, 14, 15};
    struct err e = {0};
    for (int g = 0; g < GROUPS; g++) {
        const struct kv_part all = {.n_blocks = 1, .count = POOL_PAGES * KV_PAGE_TOKENS};
        size_t n = (size_t)POOL_PAGES * KV_PAGE_TOKENS * 2 * WIDTH;
        uint16_t *halves = malloc(n * sizeof *halves);
        for (size_t i = 0; i < n; i++)
            halves[i] = (uint16_t)(0x3000 + i * 2654435761u % 0xa00 + (i % 3 ? 0x8000 : 0));
        s->backend->kv_import(s->stream, &s->kv[g], pages, &all, halves);
        assert_int_equal(s->backend->stream_wait(s->stream, &e), 0);
        free(halves);
    }
}

static void cases_compare(const struct steps_case *cases, size_t n)
{
    static float out[2][STEPS_MOST][(1 + GROUPS) * ROWS * WIDTH];
    static struct steps_bench s;
    struct device *d = cuda_open(0);
    assert_true(n <= STEPS_MOST);
    memset(out, 0, sizeof out);
    for (int kept = 0; kept < 2; kept++) {
        bench_init(&s, d);
        pools_fill(&s);
        for (size_t i = 0; i < n; i++)
            case_run(&s, &cases[i], i + 1, kept, out[kept][i]);
        bench_fini(&s);
    }
    for (size_t i = 0; i < n; i++)
        if (memcmp(out[0][i], out[1][i], sizeof out[0][i]))
            fail_msg("step %zu is another where steps are kept", i);
    device_close(&d);
}

TEST(kept_steps_are_those_that_are_not_kept)
{
    /* across a page and across what one part has, with another number of rows between */
    static const struct steps_case cases[] = {
        {1, 126, 1, 0, 0}, {1, 127, 1, 0, 0}, {1, 128, 1, 0, 0},
        {1, 129, 1, 0, 0}, {3, 200, 3, 0, 0}, {3, 257, 3, 0, 0},
        {1, 130, 1, 0, 0}, {3, 258, 3, 0, 0}, {1, 131, 1, 0, 0}};
    cases_compare(cases, sizeof cases / sizeof *cases);
}

/* Attention goes another way where a sequence has several tokens, and where it sees much. */
TEST(kept_steps_are_of_one_kind_of_attention)
{
    static const struct steps_case cases[] = {
        {2, 90, 1, 0, false},  {2, 91, 1, 0, false},  {2, 92, 1, 0, false}, {2, 93, 1, 0, true},
        {2, 95, 1, 0, true},   {2, 97, 1, 0, true},   {2, 93, 1, 0, false}, {2, 300, 1, 0, false},
        {2, 301, 1, 0, false}, {2, 302, 1, 0, false}, {2, 94, 1, 0, false}};
    cases_compare(cases, sizeof cases / sizeof *cases);
}

TEST(kept_steps_find_rooms_that_have_moved)
{
    /* a product of many rows between, which takes a larger room */
    static const struct steps_case cases[] = {
        {1, 70, 1, 0, 0}, {1, 71, 1, 0, 0}, {1, 72, 1, 0, 0},  {20, 0, 0, 0, 0}, {20, 0, 20, 0, 0},
        {1, 73, 1, 0, 0}, {1, 74, 1, 0, 0}, {20, 0, 20, 0, 0}, {20, 0, 20, 0, 0}};
    cases_compare(cases, sizeof cases / sizeof *cases);
}

TEST(kept_steps_grow_with_the_pages_of_their_sequences)
{
    static const struct steps_case cases[] = {
        {2, 700, 1, 1, 0},   {2, 701, 1, 1, 0},    {2, 702, 1, 1, 0},    {2, 60000, 1, 1, 0},
        {2, 60001, 1, 1, 0}, {2, 130000, 1, 1, 0}, {2, 130001, 1, 1, 0}, {2, 703, 1, 1, 0}};
    cases_compare(cases, sizeof cases / sizeof *cases);
}

TEST(kept_steps_make_room_for_others)
{
    enum { KEYS = 19 };
    static struct steps_bench s;
    static float out[2][(1 + GROUPS) * ROWS * WIDTH];
    struct device *d = cuda_open(0);
    for (int kept = 0; kept < 2; kept++) {
        bench_init(&s, d);
        pools_fill(&s);
        for (uint32_t turn = 0; turn < 3 * KEYS; turn++) {
            const struct steps_case c = {1, 64 + turn, 1 + turn % KEYS, true, false};
            case_run(&s, &c, turn + 1, kept, out[kept]);
            case_run(&s, &c, turn + 1, kept, out[kept]);
        }
        bench_fini(&s);
    }
    assert_memory_equal(out[0], out[1], sizeof out[0]);
    device_close(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kept_steps_are_those_that_are_not_kept),
        cmocka_unit_test(kept_steps_are_of_one_kind_of_attention),
        cmocka_unit_test(kept_steps_find_rooms_that_have_moved),
        cmocka_unit_test(kept_steps_grow_with_the_pages_of_their_sequences),
        cmocka_unit_test(kept_steps_make_room_for_others),
    };
    return cmocka_run_group_tests_name("cuda_steps", tests, NULL, NULL);
}
