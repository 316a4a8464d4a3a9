/* Attention and rotation of every kind, on every backend, against sums by hand in double
 * precision: windows, soft caps, sinks, values inside keys, slices of any length, several sequences
 * in one batch; styles and factors of rotation. */
#include "agent/backend/plain/loops.h"
#include "tests/unit/agent/backend/operator_fixture.h"

/* ---- attention ---- */

enum { PAGES = 12, SEQUENCES = 2, TOKENS_MAX = 300 };

struct attention_case {
    struct op_attention a;
    enum kv_format format;
    uint32_t tokens, slice; /* of each sequence; slices but the last */
    float sink;             /* of head h: this times (h + 1); 0: none */
    float size;             /* of queries and keys */
};

struct attention_data {
    const struct attention_case *c;
    size_t q_width, k_width, v_width, out_width;
    float *q, *k, *v, *sinks; /* [sequence][token] */
    double *kept_k, *kept_v;  /* as the cache has them */
    double *want;
};

/* Element i of a head's key or value as the cache has it. */
static double kept(const struct attention_case *c, const float *head, size_t i)
{
    uint8_t block[KV_Q8_BYTES];
    float values[KV_Q8_ELEMENTS];
    uint16_t half = dtype_f32_to_f16(head[i]);
    size_t first = i / KV_Q8_ELEMENTS * KV_Q8_ELEMENTS;
    if (c->format == KV_F32)
        return (double)head[i];
    if (c->format == KV_F16)
        return (double)dtype_f16_to_f32(half);
    loop_q8_0(head + first, KV_Q8_ELEMENTS, block);
    dtype_info(DTYPE_Q8_0)->to_f32(block, KV_Q8_ELEMENTS, values);
    return (double)values[i - first];
}

/* Whole rows as the cache has them. */
static double *kept_rows(const struct attention_case *c, const float *rows, size_t n)
{
    size_t head = (size_t)c->a.head_dim;
    double *out = calloc(n + 1, sizeof *out);
    assert_non_null(out);
    for (size_t i = 0; i < n; i++)
        out[i] = kept(c, rows + i / head * head, i % head);
    return out;
}

/* One query's answer. */
static void want_row(const struct attention_data *t, const float *q, size_t first,
                     uint32_t position, int head, double *out)
{
    const struct op_attention *a = &t->c->a;
    size_t hd = (size_t)a->head_dim, vd = a->value_dim ? (size_t)a->value_dim : hd,
           kv = (size_t)(head / (a->heads / a->kv_heads)) * hd;
    uint32_t from = kv_first_seen(a->window, position);
    double scores[TOKENS_MAX], greatest = -INFINITY, total = 0,
                               scale = a->scale != 0 ? (double)a->scale : 1 / sqrt((double)hd);
    for (uint32_t p = from; p <= position; p++) {
        double sum = 0;
        for (size_t i = 0; i < hd; i++)
            sum += (double)q[i] * t->kept_k[(first + p) * t->k_width + kv + i];
        sum *= scale;
        scores[p] = a->cap != 0 ? (double)a->cap * tanh(sum / (double)a->cap) : sum;
        greatest = fmax(greatest, scores[p]);
    }
    if (t->sinks)
        greatest = fmax(greatest, (double)t->sinks[head]);
    total = t->sinks ? exp((double)t->sinks[head] - greatest) : 0;
    memset(out, 0, vd * sizeof *out);
    for (uint32_t p = from; p <= position; p++) {
        double weight = exp(scores[p] - greatest);
        const double *value = a->value_dim ? t->kept_k + (first + p) * t->k_width + kv
                                           : t->kept_v + (first + p) * t->v_width + kv;
        total += weight;
        for (size_t i = 0; i < vd; i++)
            out[i] += weight * value[i];
    }
    for (size_t i = 0; i < vd; i++)
        out[i] /= total;
}

static struct attention_data attention_data_make(const struct attention_case *c)
{
    const struct op_attention *a = &c->a;
    size_t n = SEQUENCES * c->tokens, hd = (size_t)a->head_dim;
    struct attention_data t = {.c = c,
                               .q_width = (size_t)a->heads * hd,
                               .k_width = (size_t)a->kv_heads * hd,
                               .v_width = (size_t)a->kv_heads * hd,
                               .out_width =
                                   (size_t)a->heads * (a->value_dim ? (size_t)a->value_dim : hd)};
    assert_true(c->tokens <= TOKENS_MAX);
    t.q = op_random(n * t.q_width, 1, c->size);
    t.k = op_random(n * t.k_width, 2, c->size);
    t.v = op_random(n * t.v_width, 3, 1);
    t.kept_k = kept_rows(c, t.k, n * t.k_width);
    t.kept_v = kept_rows(c, t.v, n * t.v_width);
    t.want = calloc(n * t.out_width, sizeof *t.want);
    if (c->sink != 0) {
        t.sinks = calloc((size_t)a->heads, sizeof *t.sinks);
        for (int h = 0; h < a->heads; h++)
            t.sinks[h] = c->sink * (float)(h + 1);
    }
    for (size_t row = 0; row < n; row++)
        for (int h = 0; h < a->heads; h++)
            want_row(&t, t.q + row * t.q_width + (size_t)h * hd, row / c->tokens * c->tokens,
                     (uint32_t)(row % c->tokens), h,
                     t.want + row * t.out_width + (size_t)h * (t.out_width / (size_t)a->heads));
    return t;
}

static void attention_data_free(struct attention_data *t)
{
    free(t->q), free(t->k), free(t->v), free(t->sinks);
    free(t->kept_k), free(t->kept_v), free(t->want);
}

/* Both sequences' tokens [first, first + n), side by side in one batch; NULL: one after the other
 * into `rows`. */
static float *rows_gather(const struct attention_data *t, const float *from, size_t width,
                          uint32_t first, uint32_t n)
{
    float *rows = calloc(SEQUENCES * n * width + 1, sizeof *rows);
    for (size_t s = 0; s < SEQUENCES; s++)
        memcpy(rows + s * n * width, from + (s * t->c->tokens + first) * width,
               n * width * sizeof *rows);
    return rows;
}

static void slice_run(struct device *d, const struct attention_data *t, const struct kv_group *kv,
                      uint32_t first, uint32_t n, float *out)
{
    static const uint32_t pages[SEQUENCES][PAGES / 2] = {{3, 0, 7, 5, 11, 2}, {1, 9, 4, 10, 6, 8}};
    const struct op_attention *a = &t->c->a;
    uint32_t own[SEQUENCES][PAGES / 2];
    const uint32_t *by_group[SEQUENCES][1] = {{own[0]}, {own[1]}};
    memcpy(own, pages, sizeof own);
    /* What nobody sees any more has been given back. */
    for (uint32_t p = 0; p < kv_first_seen(a->window, first) / KV_PAGE_TOKENS; p++)
        own[0][p] = own[1][p] = KV_NO_PAGE;
    struct attention_run runs[SEQUENCES];
    for (uint32_t s = 0; s < SEQUENCES; s++)
        runs[s] = (struct attention_run){
            .first_row = s * n, .n_tokens = n, .first_position = first, .pages = by_group[s]};
    const struct op_batch batch = {.runs = runs, .n_runs = SEQUENCES, .kv = kv};
    struct weight sinks = {.name = "sinks",
                           .dtype = DTYPE_F32,
                           .format = "F32",
                           .n_dims = 1,
                           .shape = {(uint64_t)a->heads},
                           .bytes = (uint64_t)a->heads * sizeof(float),
                           .file = -1,
                           .data = (const uint8_t *)t->sinks};
    const struct graph_op op = {.kind = OP_ATTENTION,
                                .n_inputs = a->value_dim ? 2 : 3,
                                .n_outputs = 1,
                                .n_weights = 1,
                                .u.attention = *a};
    float *q = rows_gather(t, t->q, t->q_width, first, n),
          *k = rows_gather(t, t->k, t->k_width, first, n),
          *v = rows_gather(t, t->v, t->v_width, first, n);
    size_t rows = (size_t)SEQUENCES * n;
    op_run_once(d, &op,
                (struct op_rows[OP_INPUTS_MAX]){
                    {q, rows, t->q_width}, {k, rows, t->k_width}, {v, rows, t->v_width}},
                (struct op_weight[OP_WEIGHTS_MAX]){{t->sinks ? &sinks : NULL, WEIGHT_VECTOR},
                                                   {NULL, WEIGHT_VECTOR}},
                &batch, out, rows, t->out_width);
    free(q), free(k), free(v);
}

static void attention_check(struct device *d, const struct attention_data *t)
{
    const struct attention_case *c = t->c;
    struct err e = {0};
    struct kv_group kv = {.layout = {.n_blocks = 1,
                                     .n_kv_heads = c->a.kv_heads,
                                     .head_dim = c->a.head_dim,
                                     .value_dim = c->a.value_dim,
                                     .format = c->format,
                                     .window = c->a.window}};
    uint64_t page = d->backend->kv_page_bytes(d, &kv.layout), parts = c->a.value_dim ? 1 : 2;
    assert_int_equal(page, parts * KV_PAGE_TOKENS * kv_format_bytes(c->format, t->k_width));
    assert_int_equal(d->backend->memory_alloc(d, PAGES * page, &kv.pool, &e), 0);
    memset(kv.pool.data, 0xff, PAGES * page); /* what was there before is no number */
    for (uint32_t first = 0, n; first < c->tokens; first += n) {
        n = c->tokens - first < c->slice ? c->tokens - first : c->slice;
        float *out = op_random(SEQUENCES * n * t->out_width, 7, 1);
        slice_run(d, t, &kv, first, n, out);
        for (size_t s = 0; s < SEQUENCES; s++)
            op_near(d, out + s * n * t->out_width, t->want + (s * c->tokens + first) * t->out_width,
                    n * t->out_width, c->format == KV_Q8_0 ? 2e-4 : 4e-6);
        free(out);
    }
    d->backend->memory_release(d, &kv.pool);
}

static void attention_cases_check(const struct attention_case *cases, size_t n)
{
    for (size_t k = 0; k < n; k++) {
        struct attention_data t = attention_data_make(&cases[k]);
        for (int i = 0; i < OP_DEVICES; i++) {
            struct device *d = op_device(i);
            if (d)
                attention_check(d, &t);
            device_close(&d);
        }
        attention_data_free(&t);
    }
}
#define CASES_CHECK(cases) attention_cases_check(cases, sizeof(cases) / sizeof *(cases))

TEST(a_window_shows_a_token_itself_and_what_is_just_before_it)
{
    static const struct attention_case cases[] = {
        {{.heads = 2, .kv_heads = 1, .head_dim = 12, .window = 1}, KV_F32, 70, 9, 0, 1},
        {{.heads = 2, .kv_heads = 2, .head_dim = 8, .window = 7}, KV_F32, 150, 40, 0, 1},
        {{.heads = 4, .kv_heads = 2, .head_dim = 16, .window = 64}, KV_F16, 200, 200, 0, 1},
        {{.heads = 2, .kv_heads = 1, .head_dim = 16, .window = 65}, KV_F32, 200, 1, 0, 1},
        {{.heads = 2, .kv_heads = 1, .head_dim = 16, .window = 1000}, KV_F32, 130, 31, 0, 1},
        {{.heads = 3, .kv_heads = 3, .head_dim = 10, .window = 0}, KV_F16, 130, 64, 0, 1},
    };
    CASES_CHECK(cases);
}

TEST(scores_are_capped_before_they_are_weighed)
{
    static const struct attention_case cases[] = {
        {{.heads = 2, .kv_heads = 1, .head_dim = 16, .cap = 50}, KV_F32, 70, 70, 0, 8},
        {{.heads = 2, .kv_heads = 2, .head_dim = 16, .cap = 1, .scale = 1}, KV_F32, 66, 1, 0, 30},
        {{.heads = 2, .kv_heads = 2, .head_dim = 16, .cap = 5, .window = 9}, KV_F16, 66, 20, 0, 2},
    };
    CASES_CHECK(cases);
}

TEST(a_sink_takes_its_share_of_every_sum)
{
    static const struct attention_case cases[] = {
        {{.heads = 4, .kv_heads = 2, .head_dim = 8}, KV_F32, 70, 30, 0.5f, 1},
        {{.heads = 4, .kv_heads = 1, .head_dim = 8, .window = 5}, KV_F16, 70, 1, 1, 1},
        /* one that outweighs all, and one that weighs nothing */
        {{.heads = 2, .kv_heads = 1, .head_dim = 8}, KV_F32, 66, 66, 80, 1},
        {{.heads = 2, .kv_heads = 1, .head_dim = 8}, KV_F32, 66, 66, -1e30f, 1},
        {{.heads = 2, .kv_heads = 1, .head_dim = 8, .cap = 3, .window = 70}, KV_F32, 130, 66, 2, 4},
    };
    CASES_CHECK(cases);
}

TEST(values_that_lie_in_their_keys_are_kept_once)
{
    static const struct attention_case cases[] = {
        {{.heads = 4, .kv_heads = 1, .head_dim = 24, .value_dim = 16}, KV_F32, 140, 50, 0, 1},
        {{.heads = 16, .kv_heads = 1, .head_dim = 72, .value_dim = 64}, KV_F16, 140, 1, 0, 1},
        {{.heads = 4, .kv_heads = 2, .head_dim = 7, .value_dim = 7, .window = 9},
         KV_F32,
         80,
         33,
         0,
         1},
        {{.heads = 2, .kv_heads = 1, .head_dim = 10, .value_dim = 3, .scale = 2},
         KV_F32,
         70,
         70,
         1,
         1},
    };
    CASES_CHECK(cases);
}

/* One token far greater than all others takes all weight; equal ones share it evenly; nothing
 * overflows on the way. */
TEST(scores_of_any_size_make_weights_that_sum_to_one)
{
    static const struct attention_case cases[] = {
        {{.heads = 2, .kv_heads = 1, .head_dim = 16, .scale = 1000}, KV_F32, 70, 70, 0, 3},
        {{.heads = 2, .kv_heads = 1, .head_dim = 16}, KV_F32, 130, 65, 0, 1e-30f},
        {{.heads = 2, .kv_heads = 1, .head_dim = 16}, KV_F32, 70, 7, 0, 1e-42f},
    };
    CASES_CHECK(cases);
}

/* Of all kinds, by the exact sums over what 8 bits have kept. */
TEST(keys_and_values_are_kept_in_8_bits)
{
    static const struct attention_case cases[] = {
        {{.heads = 1, .kv_heads = 1, .head_dim = 32}, KV_Q8_0, 70, 1, 0, 1},
        {{.heads = 8, .kv_heads = 2, .head_dim = 64}, KV_Q8_0, 80, 1, 0, 1},
        {{.heads = 8, .kv_heads = 1, .head_dim = 128}, KV_Q8_0, 80, 64, 0, 1},
        {{.heads = 3, .kv_heads = 1, .head_dim = 96, .window = 65}, KV_Q8_0, 100, 1, 0, 1},
        {{.heads = 4, .kv_heads = 2, .head_dim = 32, .cap = 5, .window = 9}, KV_Q8_0, 80, 7, 0, 2},
        {{.heads = 4, .kv_heads = 2, .head_dim = 64}, KV_Q8_0, 70, 1, 0.5f, 1},
        {{.heads = 16, .kv_heads = 1, .head_dim = 96, .value_dim = 64}, KV_Q8_0, 70, 1, 0, 1},
        {{.heads = 12, .kv_heads = 1, .head_dim = 64}, KV_Q8_0, 70, 1, 0, 1},
    };
    CASES_CHECK(cases);
}

/* ---- rotation ---- */

struct rope_case {
    enum rope_style style;
    int dims, head_dim, first;
    double base, scale;
    float magnitude;
    bool factors, long_factors;
};

static double rope_want(const struct rope_case *c, const float *factors, const float *longer,
                        uint32_t position, int pair, double *turn)
{
    bool is_long = position & GRAPH_POSITION_LONG;
    double frequency = pow(c->base, -2.0 * pair / c->dims) / c->scale;
    if (c->long_factors && is_long)
        frequency /= (double)longer[pair];
    else if (c->factors)
        frequency /= (double)factors[pair];
    *turn = (position & ~GRAPH_POSITION_LONG) * frequency;
    return c->magnitude != 0 ? (double)c->magnitude : 1;
}

static void rope_check(struct device *d, const struct rope_case *c)
{
    static const uint32_t positions[] = {0, 1, 5, 63, 4096, 131071, GRAPH_POSITION_LONG | 5};
    enum { ROWS = sizeof positions / sizeof *positions, HEADS = 2, WIDEST = 32 };
    float factors[WIDEST], longer[WIDEST];
    for (int i = 0; i < WIDEST; i++) {
        factors[i] = 1 + (float)i * 0.25f;
        longer[i] = 2 + (float)i * 0.5f;
    }
    struct rope_config rope = {.style = c->style,
                               .dims = c->dims,
                               .base = c->base,
                               .scale = c->scale,
                               .factors = c->factors ? factors : NULL,
                               .long_factors = c->long_factors ? longer : NULL,
                               .long_from = 4,
                               .magnitude = c->magnitude};
    const struct op_rope how = {.config = &rope, .head_dim = c->head_dim, .first = c->first};
    const struct graph_op angles_op = {.kind = OP_ROPE_ANGLES, .n_inputs = 1, .u.rope = how},
                          rope_op = {.kind = OP_ROPE, .n_inputs = 2, .u.rope = how};
    size_t width = HEADS * (size_t)c->head_dim;
    float *x = op_random(ROWS * width, 1, 1), *out = op_random(ROWS * width, 2, 1),
          angles[ROWS * 2 * WIDEST], numbers[ROWS];
    double *want = calloc(ROWS * width, sizeof *want);
    memcpy(numbers, positions, sizeof numbers); /* the bits, as they are */
    for (size_t i = 0; i < ROWS * width; i++)
        want[i] = (double)x[i];
    for (int r = 0; r < ROWS; r++)
        for (int h = 0; h < HEADS; h++)
            for (int i = 0; i < c->dims / 2; i++) {
                double turn, size = rope_want(c, factors, longer, positions[r], i, &turn);
                size_t head = (size_t)r * width + (size_t)(h * c->head_dim + c->first),
                       a = head + (size_t)(c->style == ROPE_PAIRS ? 2 * i : i),
                       b = a + (size_t)(c->style == ROPE_PAIRS ? 1 : c->dims / 2);
                want[a] = size * ((double)x[a] * cos(turn) - (double)x[b] * sin(turn));
                want[b] = size * ((double)x[a] * sin(turn) + (double)x[b] * cos(turn));
            }
    op_run_once(d, &angles_op, &(struct op_rows){numbers, ROWS, 1}, NULL, NULL, angles, ROWS,
                (size_t)c->dims);
    op_run_once(d, &rope_op,
                (struct op_rows[OP_INPUTS_MAX]){{x, ROWS, width}, {angles, ROWS, (size_t)c->dims}},
                NULL, NULL, out, ROWS, width);
    op_near(d, out, want, ROWS * width, 1e-6);
    free(x), free(out), free(want);
}

TEST(heads_rotate_by_style_part_factors_and_length)
{
    static const struct rope_case cases[] = {
        {ROPE_HALVES, 16, 16, 0, 10000, 1, 0, false, false},
        {ROPE_PAIRS, 16, 16, 0, 10000, 1, 0, false, false},
        {ROPE_HALVES, 12, 16, 0, 10000, 1, 0, false, false},   /* a part of a head */
        {ROPE_PAIRS, 8, 24, 16, 10000, 1, 0, false, false},    /* the end of a head */
        {ROPE_HALVES, 16, 16, 0, 1e6, 4, 0, false, false},     /* linear */
        {ROPE_HALVES, 16, 16, 0, 5e5, 1, 1.2f, true, false},   /* YaRN, LLaMA 3 */
        {ROPE_HALVES, 12, 16, 0, 10000, 1, 1.19f, true, true}, /* long rope */
        {ROPE_PAIRS, 2, 2, 0, 10000, 1, 0, false, false},
    };
    for (int i = 0; i < OP_DEVICES; i++) {
        struct device *d = op_device(i);
        for (size_t k = 0; d && k < sizeof cases / sizeof *cases; k++)
            rope_check(d, &cases[k]);
        device_close(&d);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_window_shows_a_token_itself_and_what_is_just_before_it),
        cmocka_unit_test(scores_are_capped_before_they_are_weighed),
        cmocka_unit_test(a_sink_takes_its_share_of_every_sum),
        cmocka_unit_test(values_that_lie_in_their_keys_are_kept_once),
        cmocka_unit_test(scores_of_any_size_make_weights_that_sum_to_one),
        cmocka_unit_test(keys_and_values_are_kept_in_8_bits),
        cmocka_unit_test(heads_rotate_by_style_part_factors_and_length),
    };
    return cmocka_run_group_tests_name("attention", tests, NULL, NULL);
}
