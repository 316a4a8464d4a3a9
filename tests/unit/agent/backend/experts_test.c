/* Mixtures of experts, operator by operator, against sums by hand: routers, grouped products,
 * gates; and values that files and texts should not have. */
#include "tests/unit/agent/backend/operator_fixture.h"

/* ---- routers ---- */

static void route(struct device *d, struct op_route how, const float *scores, size_t rows, size_t n,
                  bool by_lot, float *out)
{
    const struct graph_op op = {.kind = OP_ROUTE, .n_inputs = 1, .n_outputs = 1, .u.route = how};
    const struct op_batch batch = {.experts_by_lot = by_lot};
    op_run_once(d, &op, &(struct op_rows){scores, rows, n}, NULL, &batch, out, rows,
                2 * (size_t)how.used);
}

TEST(a_router_takes_the_greatest_scores_and_weighs_them_by_softmax)
{
    static const float scores[2][5] = {{1, 3, 2, 3, -1}, {0.5f, -2, 4, 1, 0}};
    static const double chosen[2][3] = {{1, 2, 3}, {0, 2, 3}}; /* by number */
    static const struct op_route ways[] = {
        {3, false, 0}, {3, true, 0}, {3, false, 2.5f}, {3, true, 0.5f}};
    for (int i = 0; i < OP_DEVICES; i++) {
        struct device *d = op_device(i);
        for (size_t w = 0; d && w < sizeof ways / sizeof *ways; w++) {
            float out[2][6];
            double want[2][6];
            for (int r = 0; r < 2; r++) {
                double all = 0, of_chosen = 0;
                for (int k = 0; k < 5; k++)
                    all += exp((double)scores[r][k]);
                for (int k = 0; k < 3; k++)
                    of_chosen += exp((double)scores[r][(int)chosen[r][k]]);
                for (int k = 0; k < 3; k++) {
                    want[r][k] = chosen[r][k];
                    want[r][3 + k] = exp((double)scores[r][(int)chosen[r][k]]) /
                                     (ways[w].renormalised ? of_chosen : all) *
                                     (ways[w].scale != 0 ? (double)ways[w].scale : 1);
                }
            }
            route(d, ways[w], scores[0], 2, 5, false, out[0]);
            op_near(d, out[0], want[0], 12, 1e-6);
        }
        device_close(&d);
    }
}

TEST(a_router_is_at_ease_with_ties_giants_and_what_is_no_number)
{
    enum { N = 7, USED = 3, ROWS = 6 };
    float scores[ROWS][N] = {{0, 0, 0, 0, 0, 0, 0},
                             {3e38f, -3e38f, 3e38f, 0, 1, 2, 3},
                             {-3e38f, -3e38f, -3e38f, -3e38f, -3e38f, -3e38f, -3e38f},
                             {88, 89, 1000, -1000, 0, 0, 999},
                             {2e-45f, 3e-45f, 0, -2e-45f, 0, 0, 0},
                             {NAN, 1, NAN, 2, -INFINITY, INFINITY, NAN}};
    static const int first[ROWS - 1][USED] = {
        {0, 1, 2}, {0, 2, 6}, {0, 1, 2}, {1, 2, 6}, {0, 1, 2}};
    for (int i = 0; i < OP_DEVICES; i++) {
        struct device *d = op_device(i);
        if (!d)
            continue;
        float out[ROWS][2 * USED];
        route(d, (struct op_route){.used = USED, .renormalised = true}, scores[0], ROWS, N, false,
              out[0]);
        for (int r = 0; r < ROWS; r++) {
            double sum = 0;
            for (int k = 0; k < USED; k++) {
                int expert = (int)out[r][k];
                assert_true(out[r][k] >= 0 && expert < N); /* whatever comes, an expert there is */
                for (int j = 0; j < k; j++)
                    assert_int_not_equal(expert, (int)out[r][j]);
                if (r < ROWS - 1)
                    assert_int_equal(expert, first[r][k]);
                sum += (double)out[r][USED + k];
            }
            if (r < ROWS - 1)
                assert_true(fabs(sum - 1) < 1e-5);
        }
        device_close(&d);
    }
}

TEST(experts_by_lot_are_different_ones_in_each_row_and_all_as_often)
{
    enum { N = 16, USED = 4, ROWS = 2000 };
    float *scores = calloc(ROWS * N, sizeof *scores), *out = calloc(ROWS * 2 * USED, sizeof *out);
    for (int i = 0; i < OP_DEVICES; i++) {
        struct device *d = op_device(i);
        if (!d)
            continue;
        int times[N] = {0}, awake = 0;
        bool seen[N] = {0};
        route(d, (struct op_route){.used = USED}, scores, ROWS, N, true, out);
        for (int r = 0; r < ROWS; r++)
            for (int k = 0; k < USED; k++) {
                int expert = (int)out[r * 2 * USED + k];
                assert_true(expert >= 0 && expert < N);
                for (int j = 0; j < k; j++)
                    assert_int_not_equal(expert, (int)out[r * 2 * USED + j]);
                awake += r < 4 && !seen[expert];
                seen[expert] |= r < 4;
                times[expert]++;
            }
        for (int k = 0; k < N; k++)
            assert_true(abs(times[k] - ROWS * USED / N) < 100); /* five deviations */
        assert_true(awake >= 8 && awake <= 14);                 /* of 16 (1 - (3/4)^4) = 10.9 */
        device_close(&d);
    }
    free(scores), free(out);
}

/* ---- grouped products ---- */

struct expert_case {
    size_t experts, used, rows, inputs, outputs;
    enum dtype dtype;
    bool apart, bias, turned; /* `apart`: each of a row's experts has an input of its own */
    int alone;                /* all rows take this expert first; -1: as the lot falls */
};

struct expert_data {
    const struct expert_case *c;
    float *x, *bias, *route,
        *values; /* values: [experts][outputs][inputs] as the format has them */
    uint8_t *bytes;
    struct weight *parts, whole, bias_weight;
    const struct weight **list;
    double *want;
};

/* Blocks of random bytes with scales that are numbers. */
static void blocks_fill(const struct expert_case *c, uint8_t *bytes, size_t n)
{
    uint64_t seed = 5;
    const struct dtype_info *t = dtype_info(c->dtype);
    for (size_t i = 0; i < n; i++)
        bytes[i] = (uint8_t)(random_unit(&seed) * 256);
    for (size_t i = 0; c->dtype == DTYPE_Q8_0 && i < n; i += t->block_bytes) {
        uint16_t scale = dtype_f32_to_f16((float)random_unit(&seed) * 0.01f);
        memcpy(bytes + i, &scale, sizeof scale);
    }
    for (size_t i = 0; c->dtype == DTYPE_F32 && i < n; i += sizeof(float)) {
        float value = (float)random_unit(&seed) - 0.5f;
        memcpy(bytes + i, &value, sizeof value);
    }
}

static void expert_weights(struct expert_data *e)
{
    const struct expert_case *c = e->c;
    const struct dtype_info *t = dtype_info(c->dtype);
    size_t each = c->outputs * c->inputs, each_bytes = each / t->block_elements * t->block_bytes;
    e->bytes = calloc(c->experts, each_bytes);
    e->values = calloc(c->experts * each, sizeof *e->values);
    e->parts = calloc(c->experts, sizeof *e->parts);
    e->list = calloc(c->experts, sizeof *e->list);
    blocks_fill(c, e->bytes, c->experts * each_bytes);
    for (size_t i = 0; i < c->experts; i++) {
        e->parts[i] = (struct weight){
            .name = "experts",
            .dtype = c->dtype,
            .format = t->name,
            .n_dims = 2,
            .shape = {c->turned ? c->inputs : c->outputs, c->turned ? c->outputs : c->inputs},
            .bytes = each_bytes,
            .file = -1,
            .data = e->bytes + i * each_bytes};
        e->list[i] = &e->parts[i];
        t->to_f32(e->parts[i].data, each, e->values + i * each);
    }
    e->whole = e->parts[0];
    e->whole.n_dims = 3;
    e->whole.shape[0] = c->experts;
    e->whole.shape[1] = e->parts[0].shape[0];
    e->whole.shape[2] = e->parts[0].shape[1];
    e->whole.bytes = c->experts * each_bytes;
    e->whole.parts = e->list;
    e->whole.n_parts = (int)c->experts;
    e->whole.n_parts_used = (int)c->used;
}

/* Element (output, input) of an expert's matrix. */
static double expert_value(const struct expert_data *e, size_t expert, size_t o, size_t i)
{
    const struct expert_case *c = e->c;
    size_t at = c->turned ? i * c->outputs + o : o * c->inputs + i;
    return (double)e->values[expert * c->outputs * c->inputs + at];
}

static void expert_want(struct expert_data *e)
{
    const struct expert_case *c = e->c;
    for (size_t slot = 0; slot < c->rows * c->used; slot++) {
        size_t row = slot / c->used, k = slot % c->used,
               expert = (size_t)e->route[row * 2 * c->used + k];
        const float *x = c->apart ? e->x + slot * c->inputs : e->x + row * c->inputs;
        for (size_t o = 0; o < c->outputs; o++) {
            double sum = c->bias ? (double)e->bias[expert * c->outputs + o] : 0;
            for (size_t i = 0; i < c->inputs; i++)
                sum += (double)x[i] * expert_value(e, expert, o, i);
            e->want[slot * c->outputs + o] = sum;
        }
    }
}

static struct expert_data expert_data_make(const struct expert_case *c)
{
    struct expert_data e = {.c = c};
    uint64_t seed = 11;
    size_t slots = c->rows * c->used;
    e.x = op_random((c->apart ? slots : c->rows) * c->inputs, 1, 1);
    e.bias = op_random(c->experts * c->outputs, 2, 1);
    e.route = calloc(2 * slots, sizeof *e.route);
    e.want = calloc(slots * c->outputs, sizeof *e.want);
    for (size_t r = 0; r < c->rows; r++) {
        size_t first =
            c->alone >= 0 ? (size_t)c->alone : (size_t)(random_unit(&seed) * (double)c->experts);
        for (size_t k = 0; k < c->used; k++)
            e.route[r * 2 * c->used + k] = (float)((first + k) % c->experts);
    }
    expert_weights(&e);
    e.bias_weight = (struct weight){.name = "bias",
                                    .dtype = DTYPE_F32,
                                    .format = "F32",
                                    .n_dims = 2,
                                    .shape = {c->experts, c->outputs},
                                    .bytes = c->experts * c->outputs * sizeof(float),
                                    .file = -1,
                                    .data = (const uint8_t *)e.bias};
    expert_want(&e);
    return e;
}

static void expert_data_free(struct expert_data *e)
{
    free(e->x), free(e->bias), free(e->route), free(e->values), free(e->bytes), free(e->parts);
    free((void *)e->list), free(e->want);
}

static void experts_run_some(struct device *d, const struct expert_data *e, struct op_experts some,
                             float *out)
{
    const struct expert_case *c = e->c;
    struct weight whole = e->whole;
    if (some.count) {
        whole.parts += some.first;
        whole.n_parts = some.count;
        whole.shape[0] = (uint64_t)some.count;
        whole.data = NULL;
        whole.bytes = whole.bytes / c->experts * (uint64_t)some.count;
    }
    some.used = (int)c->used;
    some.turned = c->turned;
    const struct graph_op op = {
        .kind = OP_EXPERT_MATMUL, .n_inputs = 2, .n_outputs = 1, .n_weights = 2, .u.experts = some};
    const struct op_rows in[OP_INPUTS_MAX] = {{e->x, c->rows, c->inputs * (c->apart ? c->used : 1)},
                                              {e->route, c->rows, 2 * c->used}};
    const struct op_weight w[OP_WEIGHTS_MAX] = {
        {&whole, c->turned ? WEIGHT_MATMUL_TURNED : WEIGHT_MATMUL},
        {c->bias ? &e->bias_weight : NULL, WEIGHT_VECTOR}};
    op_run_once(d, &op, in, w, NULL, out, c->rows, c->used * c->outputs);
}

static void experts_run(struct device *d, const struct expert_data *e, float *out)
{
    experts_run_some(d, e, (struct op_experts){0}, out);
}

/* out = base + what these experts make of the rows, by their weights. */
static void experts_add(struct device *d, const struct expert_data *e, struct op_experts some,
                        const float *base, float *out)
{
    const struct expert_case *c = e->c;
    size_t width = c->used * c->outputs;
    float *made = calloc(c->rows * width, sizeof *made);
    assert_non_null(made);
    experts_run_some(d, e, some, made);
    some.used = (int)c->used;
    const struct graph_op op = {
        .kind = OP_EXPERT_SUM, .n_inputs = 3, .n_outputs = 1, .u.experts = some};
    const struct op_rows in[OP_INPUTS_MAX] = {
        {made, c->rows, width}, {e->route, c->rows, 2 * c->used}, {base, c->rows, c->outputs}};
    op_run_once(d, &op, in, NULL, NULL, out, c->rows, c->outputs);
    free(made);
}

TEST(grouped_products_are_what_each_row_would_get_alone)
{
    static const struct expert_case cases[] = {
        {4, 2, 1, 32, 7, DTYPE_F32, false, false, false, -1},
        {4, 2, 5, 33, 65, DTYPE_F32, false, true, false, -1},
        {3, 1, 40, 64, 20, DTYPE_F32, false, false, false, 1}, /* two experts asleep */
        {8, 8, 9, 20, 30, DTYPE_F32, true, true, false, -1},   /* all of them at once */
        {64, 4, 3, 32, 8, DTYPE_F32, true, false, false, -1},  /* more experts than slots */
        {4, 2, 70, 64, 48, DTYPE_Q8_0, false, false, false, -1},
        {4, 2, 3, 96, 33, DTYPE_Q8_0, true, true, false, 3},
        {5, 3, 12, 24, 16, DTYPE_F32, false, true, true, -1}, /* matrices the other way round */
        {1, 1, 6, 32, 16, DTYPE_F32, false, false, false, -1},
    };
    for (int i = 0; i < OP_DEVICES; i++) {
        struct device *d = op_device(i);
        for (size_t k = 0; d && k < sizeof cases / sizeof *cases; k++) {
            struct expert_data e = expert_data_make(&cases[k]);
            size_t n = cases[k].rows * cases[k].used * cases[k].outputs;
            float *out = op_random(n, 9, 1);
            experts_run(d, &e, out);
            op_near(d, out, e.want, n, 2e-6);
            free(out);
            expert_data_free(&e);
        }
        device_close(&d);
    }
}

/* The sums of all experts; then the same group by group, each by operators that have its matrices
 * alone. */
TEST(groups_of_experts_add_up_to_the_bit_what_all_of_them_do)
{
    static const struct expert_case cases[] = {
        {8, 3, 1, 32, 32, DTYPE_F32, false, true, false, -1},
        {8, 3, 41, 64, 64, DTYPE_Q8_0, false, true, false, -1},
        {7, 2, 90, 32, 32, DTYPE_F32, true, false, false, -1},
        {4, 4, 5, 32, 32, DTYPE_F32, false, true, true, 0},
        {64, 2, 200, 64, 32, DTYPE_Q8_0, false, false, false, 3},
    };
    static const int groups[] = {2, 3, 4};
    for (int i = 0; i < OP_DEVICES; i++) {
        struct device *d = op_device(i);
        for (size_t k = 0; d && k < sizeof cases / sizeof *cases; k++) {
            struct expert_data e = expert_data_make(&cases[k]);
            size_t n = cases[k].rows * cases[k].outputs;
            float *base = op_random(n, 3, 1), *want = calloc(n, sizeof *want),
                  *got = calloc(n, sizeof *got);
            experts_add(d, &e, (struct op_experts){0}, base, want);
            for (size_t g = 0; g < sizeof groups / sizeof *groups; g++) {
                int all = (int)cases[k].experts;
                memcpy(got, base, n * sizeof *got);
                for (int first = 0, part = 0; part < groups[g]; part++) {
                    int end = all * (part + 1) / groups[g];
                    experts_add(
                        d, &e,
                        (struct op_experts){.first = first, .count = end - first, .all = all}, got,
                        got);
                    first = end;
                }
                assert_memory_equal(got, want, n * sizeof *got);
            }
            free(base), free(want), free(got);
            expert_data_free(&e);
        }
        device_close(&d);
    }
}

/* An input that is no number spoils the rows that have it, and no other. */
TEST(a_spoilt_row_spoils_no_other)
{
    static const struct expert_case c = {4, 2, 30, 32, 12, DTYPE_F32, false, false, false, -1};
    struct expert_data e = expert_data_make(&c);
    for (size_t i = 0; i < c.inputs; i++)
        e.x[7 * c.inputs + i] = i % 2 ? INFINITY : NAN;
    for (int i = 0; i < OP_DEVICES; i++) {
        struct device *d = op_device(i);
        if (!d)
            continue;
        size_t row = c.used * c.outputs, n = c.rows * row;
        float *out = op_random(n, 9, 1);
        experts_run(d, &e, out);
        for (size_t k = 7 * row; k < 8 * row; k++)
            assert_true(!isfinite(out[k]));
        op_near(d, out, e.want, 7 * row, 2e-6);
        op_near(d, out + 8 * row, e.want + 8 * row, n - 8 * row, 2e-6);
        free(out);
        device_close(&d);
    }
    expert_data_free(&e);
}

/* ---- what follows the products ---- */

TEST(what_experts_made_is_added_by_weight)
{
    enum { ROWS = 300, USED = 3, WIDTH = 70 };
    float *x = op_random(ROWS * USED * WIDTH, 1, 1), *way = op_random(ROWS * 2 * USED, 2, 1),
          *out = calloc(ROWS * WIDTH, sizeof *out);
    double *want = calloc(ROWS * WIDTH, sizeof *want);
    const struct graph_op op = {
        .kind = OP_EXPERT_SUM, .n_inputs = 2, .n_outputs = 1, .u.experts = {.used = USED}};
    memset(way + USED, 0, USED * sizeof *way); /* a row that takes nothing of its experts */
    for (size_t i = 0; i < ROWS * WIDTH; i++)
        for (size_t k = 0; k < USED; k++)
            want[i] += (double)way[i / WIDTH * 2 * USED + USED + k] *
                       (double)x[(i / WIDTH * USED + k) * WIDTH + i % WIDTH];
    for (int i = 0; i < OP_DEVICES; i++) {
        struct device *d = op_device(i);
        if (!d)
            continue;
        op_run_once(d, &op,
                    (struct op_rows[OP_INPUTS_MAX]){{x, ROWS, USED * WIDTH}, {way, ROWS, 2 * USED}},
                    NULL, NULL, out, ROWS, WIDTH);
        op_near(d, out, want, ROWS * WIDTH, 1e-6);
        device_close(&d);
    }
    free(x), free(way), free(out), free(want);
}

TEST(a_gate_shuts_and_opens_whole_rows)
{
    static const float gates[] = {0, 1, -1, 30, -30, 100, -100, 3e38f, -3e38f, INFINITY, -INFINITY};
    enum { ROWS = sizeof gates / sizeof *gates, WIDTH = 19 };
    const struct graph_op op = {.kind = OP_GATE_ROWS, .n_inputs = 2, .n_outputs = 1};
    float *x = op_random(ROWS * WIDTH, 1, 3), out[ROWS * WIDTH];
    double want[ROWS * WIDTH];
    for (size_t i = 0; i < ROWS * WIDTH; i++)
        want[i] = (double)x[i] / (1 + exp(-(double)gates[i / WIDTH]));
    for (int i = 0; i < OP_DEVICES; i++) {
        struct device *d = op_device(i);
        if (!d)
            continue;
        op_run_once(d, &op, (struct op_rows[OP_INPUTS_MAX]){{x, ROWS, WIDTH}, {gates, ROWS, 1}},
                    NULL, NULL, out, ROWS, WIDTH);
        op_near(d, out, want, ROWS * WIDTH, 1e-6);
        device_close(&d);
    }
    free(x);
}

TEST(a_clamped_swiglu_stays_within_its_limit_side_by_side_and_by_turns)
{
    static const float ends[] = {0,   7,    -7,    6.999f, 7.001f,   -8, 100, -100,
                                 1e4, -1e4, 3e38f, -3e38f, INFINITY, 1,  -1,  1e-40f};
    enum { ENDS = sizeof ends / sizeof *ends, N = ENDS * ENDS };
    const struct op_swiglu how = {.alpha = 1.702f, .limit = 7};
    float gate[N], up[N], both[2 * N], out[N];
    double want[N];
    for (size_t i = 0; i < N; i++) {
        gate[i] = both[2 * i] = ends[i / ENDS];
        up[i] = both[2 * i + 1] = ends[i % ENDS];
        double g = fmin((double)gate[i], 7), u = fmax(fmin((double)up[i], 7), -7);
        want[i] = g < -1e30 ? 0 : (u + 1) * g / (1 + exp(-(double)how.alpha * g));
    }
    struct graph_op op = {
        .kind = OP_CLAMPED_SWIGLU, .n_inputs = 2, .n_outputs = 1, .u.swiglu = how};
    for (int i = 0; i < OP_DEVICES; i++) {
        struct device *d = op_device(i);
        if (!d)
            continue;
        op.n_inputs = 2;
        op_run_once(d, &op, (struct op_rows[OP_INPUTS_MAX]){{gate, ENDS, ENDS}, {up, ENDS, ENDS}},
                    NULL, NULL, out, ENDS, ENDS);
        op_near(d, out, want, N, 1e-6);
        op.n_inputs = 1;
        op_run_once(d, &op, (struct op_rows[OP_INPUTS_MAX]){{both, ENDS, 2 * ENDS}}, NULL, NULL,
                    out, ENDS, ENDS);
        op_near(d, out, want, N, 1e-6);
        device_close(&d);
    }
}

TEST(a_soft_cap_bounds_everything_and_leaves_small_values_alone)
{
    static const float caps[] = {30, 50, 1};
    enum { N = 203 };
    float x[N], out[N];
    double want[N];
    struct graph_op op = {.kind = OP_SOFT_CAP, .n_inputs = 1, .n_outputs = 1};
    for (size_t c = 0; c < sizeof caps / sizeof *caps; c++)
        for (int i = 0; i < OP_DEVICES; i++) {
            struct device *d = op_device(i);
            if (!d)
                continue;
            op.u.number.value = caps[c];
            for (int k = 0; k < N; k++) {
                x[k] = k == N - 1 ? 3e38f : k == N - 2 ? -3e38f : (float)(k - N / 2) * caps[c] / 20;
                want[k] = (double)caps[c] * tanh((double)x[k] / (double)caps[c]);
            }
            op_run_once(d, &op, &(struct op_rows){x, 7, N / 7}, NULL, NULL, out, 7, N / 7);
            op_near(d, out, want, N, 1e-6);
            for (int k = 0; k < N; k++)
                assert_true(fabsf(out[k]) <= caps[c]);
            device_close(&d);
        }
}

/* ---- heads ---- */

TEST(heads_meet_their_own_matrices_and_are_joined_part_by_part)
{
    enum { HEADS = 3, INPUTS = 5, OUTPUTS = 4, STRIDE = 8, ROWS = 6 };
    float *x = op_random(ROWS * HEADS * STRIDE, 1, 1),
          *m = op_random(HEADS * OUTPUTS * INPUTS, 2, 1), out[ROWS * HEADS * (OUTPUTS + 2)];
    double want[ROWS * HEADS * (OUTPUTS + 2)];
    struct weight parts[HEADS], whole;
    const struct weight *list[HEADS];
    for (int h = 0; h < HEADS; h++) {
        parts[h] = (struct weight){.name = "heads",
                                   .dtype = DTYPE_F32,
                                   .format = "F32",
                                   .n_dims = 2,
                                   .shape = {OUTPUTS, INPUTS},
                                   .bytes = OUTPUTS * INPUTS * sizeof *m,
                                   .file = -1,
                                   .data = (const uint8_t *)(m + h * OUTPUTS * INPUTS)};
        list[h] = &parts[h];
    }
    whole = parts[0];
    whole.parts = list;
    whole.n_parts = HEADS;
    const struct graph_op product = {.kind = OP_HEAD_MATMUL,
                                     .n_inputs = 1,
                                     .n_outputs = 1,
                                     .n_weights = 1,
                                     .u.heads = {HEADS, {{2, INPUTS, STRIDE}}, false}},
                          join = {
                              .kind = OP_JOIN_HEADS,
                              .n_inputs = 2,
                              .n_outputs = 1,
                              .u.heads = {HEADS, {{0, OUTPUTS, OUTPUTS}, {6, 2, STRIDE}}, false}};
    for (int i = 0; i < OP_DEVICES; i++) {
        struct device *d = op_device(i);
        if (!d)
            continue;
        float made[ROWS * HEADS * OUTPUTS];
        op_run_once(d, &product, &(struct op_rows){x, ROWS, HEADS * STRIDE},
                    (struct op_weight[OP_WEIGHTS_MAX]){{&whole, WEIGHT_MATMUL}, {NULL, 0}}, NULL,
                    made, ROWS, HEADS * OUTPUTS);
        op_run_once(d, &join,
                    (struct op_rows[OP_INPUTS_MAX]){{made, ROWS, HEADS * OUTPUTS},
                                                    {x, ROWS, HEADS * STRIDE}},
                    NULL, NULL, out, ROWS, HEADS * (OUTPUTS + 2));
        for (int r = 0; r < ROWS; r++)
            for (int h = 0; h < HEADS; h++) {
                const float *head = x + (r * HEADS + h) * STRIDE;
                double *to = want + (r * HEADS + h) * (OUTPUTS + 2);
                for (int o = 0; o < OUTPUTS; o++) {
                    to[o] = 0;
                    for (int k = 0; k < INPUTS; k++)
                        to[o] += (double)head[2 + k] * (double)m[(h * OUTPUTS + o) * INPUTS + k];
                }
                to[OUTPUTS] = (double)head[6];
                to[OUTPUTS + 1] = (double)head[7];
            }
        op_near(d, out, want, sizeof want / sizeof *want, 1e-6);
        device_close(&d);
    }
    free(x), free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_router_takes_the_greatest_scores_and_weighs_them_by_softmax),
        cmocka_unit_test(a_router_is_at_ease_with_ties_giants_and_what_is_no_number),
        cmocka_unit_test(experts_by_lot_are_different_ones_in_each_row_and_all_as_often),
        cmocka_unit_test(grouped_products_are_what_each_row_would_get_alone),
        cmocka_unit_test(groups_of_experts_add_up_to_the_bit_what_all_of_them_do),
        cmocka_unit_test(a_spoilt_row_spoils_no_other),
        cmocka_unit_test(what_experts_made_is_added_by_weight),
        cmocka_unit_test(a_gate_shuts_and_opens_whole_rows),
        cmocka_unit_test(a_clamped_swiglu_stays_within_its_limit_side_by_side_and_by_turns),
        cmocka_unit_test(a_soft_cap_bounds_everything_and_leaves_small_values_alone),
        cmocka_unit_test(heads_meet_their_own_matrices_and_are_joined_part_by_part),
    };
    return cmocka_run_group_tests_name("experts", tests, NULL, NULL);
}
