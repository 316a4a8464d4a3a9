/* Operators that the CPU does together (ops_run): to the bit what they write one by one, in every
 * form of weights, for few rows and many, by any number of threads; what nobody reads need not be
 * written. */
#include <math.h>

#include "tests/share.h"
#include "tests/unit/agent/backend/cpu/fused_fixture.h"

enum { OPS_MOST = 16, PAGES = 5, FIRST = 80 /* position of the first token */ };

struct together_op {
    enum op_kind kind;
    enum together_value out, in[OP_INPUTS_MAX];
    int n_inputs;
    enum together_matrix matrix; /* of a product */
    bool bias, heads;            /* of a product; of a norm: of each head by itself */
    int first;                   /* column of a slice */
};

struct together_case {
    const char *what;
    struct together_op ops[OPS_MOST];
    struct rope_config rope;
    struct kv_layout kv;
    bool kept; /* the first norm's rows are wanted in the end, too */
};

#define OP(of, to, n, ...)                                                                         \
    {                                                                                              \
        .kind = of, .out = to, .n_inputs = n, .in = { __VA_ARGS__ }                                \
    }
#define NORM(from, to) OP(OP_RMS_NORM, to, 1, from)
#define HEADS_NORM(from, to)                                                                       \
    {                                                                                              \
        .kind = OP_RMS_NORM, .out = to, .n_inputs = 1, .in = {from}, .heads = true                 \
    }
#define PRODUCT(from, to, by)                                                                      \
    {                                                                                              \
        .kind = OP_MATMUL, .out = to, .n_inputs = 1, .in = {from}, .matrix = by                    \
    }
#define BIASED(from, to, by)                                                                       \
    {                                                                                              \
        .kind = OP_MATMUL, .out = to, .n_inputs = 1, .in = {from}, .matrix = by, .bias = true      \
    }
#define SUM(from, addend, to, by)                                                                  \
    {                                                                                              \
        .kind = OP_MATMUL, .out = to, .n_inputs = 2, .in = {from, addend}, .matrix = by            \
    }
#define SLICE(from, to, at)                                                                        \
    {                                                                                              \
        .kind = OP_SLICE, .out = to, .n_inputs = 1, .in = {from}, .first = at                      \
    }
#define TURN(from, to) OP(OP_ROPE, to, 2, from, ANGLES)
#define ATTENTION(q, k, v) OP(OP_ATTENTION, MIXED, 3, q, k, v)
#define ROTATION(by)                                                                               \
    {                                                                                              \
        .style = by, .dims = HEAD_DIM, .base = 1e4, .scale = 1                                     \
    }
#define CACHE(how, ...)                                                                            \
    {                                                                                              \
        .n_blocks = 1, .n_kv_heads = KV_HEADS, .head_dim = HEAD_DIM, .format = how, __VA_ARGS__    \
    }

static const struct together_case cases[] = {
    {.what = "a layer of LLaMA",
     .ops = {NORM(X, NORMED), PRODUCT(NORMED, Q, TO_Q), PRODUCT(NORMED, K, TO_K),
             PRODUCT(NORMED, V, TO_V), TURN(Q, Q), TURN(K, K), ATTENTION(Q, K, V),
             SUM(MIXED, X, X, TO_O), NORM(X, NORMED), PRODUCT(NORMED, GATE, TO_GATE),
             PRODUCT(NORMED, UP, TO_UP), OP(OP_SILU_MUL, GATE, 2, GATE, UP),
             SUM(GATE, X, X, TO_DOWN)},
     .rope = ROTATION(ROPE_PAIRS),
     .kv = CACHE(KV_F16, .window = 0)},
    {.what = "biases, and a cache in 8 bits", /* Qwen2 */
     .ops = {NORM(X, NORMED), BIASED(NORMED, Q, TO_Q), BIASED(NORMED, K, TO_K),
             BIASED(NORMED, V, TO_V), TURN(Q, Q), TURN(K, K), ATTENTION(Q, K, V),
             SUM(MIXED, X, X, TO_O)},
     .rope = ROTATION(ROPE_HALVES),
     .kv = CACHE(KV_Q8_0, .window = 0)},
    {.what = "heads with norms of their own", /* Qwen3 */
     .ops = {NORM(X, NORMED), PRODUCT(NORMED, Q, TO_Q), PRODUCT(NORMED, K, TO_K),
             PRODUCT(NORMED, V, TO_V), HEADS_NORM(Q, Q), HEADS_NORM(K, KEYS), TURN(Q, Q),
             TURN(KEYS, KEYS), ATTENTION(Q, KEYS, V), SUM(MIXED, X, X, TO_O)},
     .rope = ROTATION(ROPE_HALVES),
     .kv = CACHE(KV_F32, .window = 0)},
    {.what = "columns of one product, of whose heads a part rotates", /* Phi-3 */
     .ops = {NORM(X, NORMED), PRODUCT(NORMED, QKV, TO_QKV), SLICE(QKV, Q, 0), TURN(Q, X),
             SLICE(QKV, K, WIDTH), TURN(K, KEYS), SLICE(QKV, V, WIDTH + KV_WIDTH),
             ATTENTION(X, KEYS, V)},
     .rope = {.style = ROPE_HALVES, .dims = 24, .base = 1e4, .scale = 1},
     .kv = CACHE(KV_F16, .window = 0)},
    {.what = "a window", /* Mistral, Gemma */
     .ops = {NORM(X, NORMED), PRODUCT(NORMED, Q, TO_Q), PRODUCT(NORMED, K, TO_K),
             PRODUCT(NORMED, V, TO_V), TURN(Q, Q), TURN(K, K), ATTENTION(Q, K, V)},
     .rope = ROTATION(ROPE_HALVES),
     .kv = CACHE(KV_F16, .window = 9)},
    {.what = "a layer norm, nothing rotates", /* GPT-2 */
     .ops = {OP(OP_LAYER_NORM, NORMED, 1, X), BIASED(NORMED, Q, TO_Q), BIASED(NORMED, K, TO_K),
             BIASED(NORMED, V, TO_V), ATTENTION(Q, K, V)},
     .kv = CACHE(KV_F16, .window = 0)},
    {.what = "rows of a norm that are read again later", /* a mixture's */
     .ops = {NORM(X, NORMED), PRODUCT(NORMED, GATE, TO_GATE), PRODUCT(NORMED, UP, TO_UP),
             OP(OP_SILU_MUL, GATE, 2, GATE, UP), OP(OP_ADD, MIXED, 2, NORMED, X)}},
    {.what = "rows of a norm that leave",
     .ops = {NORM(X, NORMED), PRODUCT(NORMED, Q, TO_Q)},
     .kept = true},
    {.what = "products to which the norm's rows are added, and where the norm's own rows were",
     .ops = {NORM(X, NORMED), SUM(NORMED, NORMED, Q, TO_Q), SUM(NORMED, Q, X, TO_O)}},
    {.what = "products that read and write each other's results",
     .ops = {PRODUCT(X, Q, TO_Q), SUM(X, Q, MIXED, TO_O), PRODUCT(X, Q, TO_O),
             PRODUCT(Q, NORMED, TO_Q), SUM(Q, MIXED, MIXED, TO_O)}},
    {.what = "more products of the same rows than go together",
     .ops = {NORM(X, NORMED), PRODUCT(NORMED, Q, TO_Q), PRODUCT(NORMED, K, TO_K),
             PRODUCT(NORMED, V, TO_V), PRODUCT(NORMED, GATE, TO_GATE), PRODUCT(NORMED, UP, TO_UP),
             PRODUCT(NORMED, KEYS, TO_V), PRODUCT(NORMED, MIXED, TO_O)}},
    {.what = "keys that are values, too",
     .ops = {TURN(K, KEYS), ATTENTION(Q, KEYS, KEYS)},
     .rope = ROTATION(ROPE_PAIRS),
     .kv = CACHE(KV_F16, .window = 0)},
    {.what = "values that lie in their keys", /* DeepSeek */
     .ops = {TURN(K, KEYS), OP(OP_ATTENTION, MIXED, 2, Q, KEYS)},
     .rope = ROTATION(ROPE_PAIRS),
     .kv = CACHE(KV_F16, .value_dim = HEAD_DIM)},
};
enum { CASES = sizeof cases / sizeof *cases };

/* ---- running ---- */

/* How operators are run: one by one; together; together by who says which results are read last. */
enum way { ALONE, TOGETHER, PASSING, WAYS };

struct together_run {
    float values[VALUES][ROWS_MOST * MLP];
    uint8_t *pool;
    struct graph_op ops[OPS_MOST];
    struct op_call calls[OPS_MOST];
    int n;
};

static void op_of(const struct together_case *c, const struct together_op *o, struct graph_op *op)
{
    static const struct weight *const none[OP_WEIGHTS_MAX] = {NULL};
    *op = (struct graph_op){.kind = o->kind, .n_inputs = o->n_inputs, .weights = none};
    if (o->kind == OP_RMS_NORM || o->kind == OP_LAYER_NORM)
        op->u.norm.epsilon = 1e-5f;
    if (o->kind == OP_ROPE)
        op->u.rope = (struct op_rope){.config = &c->rope, .head_dim = HEAD_DIM};
    if (o->kind == OP_ATTENTION)
        op->u.attention = (struct op_attention){.heads = HEADS,
                                                .kv_heads = KV_HEADS,
                                                .head_dim = HEAD_DIM,
                                                .value_dim = c->kv.value_dim,
                                                .window = c->kv.window};
}

/* The value in whose memory another lies. */
static enum together_value root_of(const struct together_case *c, enum together_value v)
{
    for (int i = 0; i < OPS_MOST && c->ops[i].n_inputs; i++)
        if (c->ops[i].kind == OP_SLICE && c->ops[i].out == v)
            return c->ops[i].in[0];
    return v;
}

/* How far behind operator i its result is read last, if it is not written anew before and nobody
 * wants it in the end. */
static int last_reader(const struct together_case *c, int n, int i)
{
    const struct together_op *o = c->ops;
    int last = 0;
    for (int k = i + 1; k < n; k++) {
        for (int j = 0; j < o[k].n_inputs; j++)
            last = root_of(c, o[k].in[j]) == root_of(c, o[i].out) ? k - i : last;
        if (o[k].out == o[i].out)
            break;
    }
    return c->kept && i == 0 ? 0 : last;
}

static void calls_make(const struct together_bench *b, const struct together_case *c, uint32_t rows,
                       enum way way, struct together_run *r)
{
    struct tensor now[VALUES];
    struct err e = {0};
    for (int i = 0; i < VALUES; i++)
        now[i] = tensor_rows(b->values[i], DTYPE_F32, rows, widths[i]);
    for (r->n = 0; r->n < OPS_MOST && c->ops[r->n].n_inputs;)
        r->n++;
    for (int i = 0; i < r->n; i++) {
        const struct together_op *o = &c->ops[i];
        struct op_call *call = &r->calls[i];
        *call = (struct op_call){.last_reader = way == PASSING ? last_reader(c, r->n, i) : 0};
        if (o->kind == OP_SLICE) {
            now[o->out] = now[o->in[0]];
            now[o->out].offset += (uint64_t)o->first * sizeof(float);
            now[o->out].shape[1] = widths[o->out];
            continue;
        }
        op_of(c, o, &r->ops[i]);
        struct op_request request = {.op = &r->ops[i]};
        if (o->kind == OP_MATMUL) {
            request.weights[0] = b->matrices[o->matrix];
            request.weights[1] = o->bias ? b->bias : NULL;
        } else if (o->kind == OP_RMS_NORM || o->kind == OP_LAYER_NORM) {
            request.weights[0] = o->heads ? b->head_norm : b->norm;
            request.weights[1] = o->kind == OP_LAYER_NORM ? b->bias : NULL;
        }
        if (b->backend->op_prepare(b->device, &request, &call->op, &e) < 0)
            fail_msg("%s", e.text);
        for (int k = 0; k < o->n_inputs; k++)
            call->inputs[k] = now[o->in[k]];
        call->out = now[o->out];
    }
}

/* Which values are there before, and whether a result is one that somebody wants. */
static bool is_given(const struct together_case *c, int value)
{
    for (int i = 0; i < OPS_MOST && c->ops[i].n_inputs; i++) {
        for (int k = 0; k < c->ops[i].n_inputs; k++)
            if ((int)c->ops[i].in[k] == value)
                return true;
        if ((int)c->ops[i].out == value)
            return false;
    }
    return true;
}

/* All but the last token are of one sequence; what is not given is no number. */
static void case_run(const struct together_bench *b, const struct together_case *c, uint32_t rows,
                     enum way way, struct together_run *r)
{
    static const uint32_t pages[][3] = {{KV_NO_PAGE, 1, 3}, {2}};
    static const uint32_t *const of_first[] = {pages[0]}, *const of_last[] = {pages[1]};
    const struct attention_run runs[] = {
        {.n_tokens = rows - 1, .first_position = FIRST, .pages = of_first},
        {.first_row = rows - 1, .n_tokens = 1, .first_position = 3, .pages = of_last}};
    struct kv_group kv = {.layout = c->kv};
    struct err e = {0};
    uint32_t whole[] = {4, 1, 3};
    const uint32_t *of_whole[] = {whole};
    struct attention_run seen[2] = {runs[0], runs[1]};
    seen[0].pages = c->kv.window ? of_first : of_whole;
    const struct op_batch batch = {
        .runs = rows > 1 ? seen : seen + 1, .n_runs = rows > 1 ? 2 : 1, .kv = &kv};
    uint64_t pool_bytes =
        c->kv.n_blocks ? PAGES * b->backend->kv_page_bytes(b->device, &c->kv) : sizeof(float);
    assert_int_equal(b->backend->memory_alloc(b->device, pool_bytes, &kv.pool, &e), 0);
    for (int i = 0; i < VALUES; i++) {
        floats_fill(r->values[i], rows * widths[i], (uint64_t)i + 1, i == ANGLES ? 0.05f : 1);
        for (size_t k = 0; !is_given(c, i) && k < rows * widths[i]; k++)
            r->values[i][k] = NAN;
        struct tensor there = tensor_rows(b->values[i], DTYPE_F32, rows, widths[i]),
                      here = tensor_on_host(r->values[i], DTYPE_F32, rows, widths[i]);
        b->backend->copy(b->stream, &there, &here);
    }
    calls_make(b, c, rows, way, r);
    for (int i = 0; way == ALONE && i < r->n; i++)
        if (r->calls[i].op)
            b->backend->op_run(b->stream, r->calls[i].op, r->calls[i].inputs, &r->calls[i].out,
                               &batch);
    if (way != ALONE)
        b->backend->ops_run(b->stream, r->calls, r->n, &batch);
    if (b->backend->stream_wait(b->stream, &e) < 0)
        fail_msg("%s: %s", c->what, e.text);
    for (int i = 0; i < VALUES; i++)
        memcpy(r->values[i], b->values[i].data, rows * widths[i] * sizeof(float));
    r->pool = malloc(pool_bytes);
    assert_non_null(r->pool);
    memcpy(r->pool, kv.pool.data, pool_bytes);
    for (int i = 0; i < r->n; i++)
        if (r->calls[i].op)
            b->backend->op_release(&r->calls[i].op);
    b->backend->memory_release(b->device, &kv.pool);
}

/* Whether a value's last result is one that nobody has read. */
static bool is_result(const struct together_case *c, const struct together_run *r, int value)
{
    for (int i = r->n - 1; i >= 0; i--)
        if ((int)c->ops[i].out == value)
            return c->ops[i].kind != OP_SLICE && r->calls[i].last_reader == 0;
    return false;
}

static void case_check(const struct together_bench *b, const struct together_case *c, uint32_t rows)
{
    static struct together_run runs[WAYS];
    uint64_t pool_bytes = c->kv.n_blocks ? PAGES * b->backend->kv_page_bytes(b->device, &c->kv) : 0;
    for (int way = ALONE; way < WAYS; way++) {
        case_run(b, c, rows, (enum way)way, &runs[way]);
        for (int v = 0; v < VALUES; v++)
            if ((way == TOGETHER || is_result(c, &runs[way], v)) &&
                memcmp(runs[ALONE].values[v], runs[way].values[v],
                       rows * widths[v] * sizeof(float)))
                fail_msg("%s, %u rows, %s: value %d is another in way %d", c->what, rows,
                         b->backend->device_describe(b->device), v, way);
        if (memcmp(runs[ALONE].pool, runs[way].pool, pool_bytes))
            fail_msg("%s, %u rows, %s: keys or values are others in way %d", c->what, rows,
                     b->backend->device_describe(b->device), way);
    }
    for (int way = ALONE; way < WAYS; way++)
        free(runs[way].pool);
}

TEST(operators_together_are_those_one_by_one_to_the_bit)
{
    static const struct device_config devices[] = {{.kernels = "avx2", .n_threads = 1},
                                                   {.kernels = "avx_vnni", .n_threads = 2},
                                                   {.kernels = "avx512", .n_threads = 3},
                                                   {.kernels = "avx512_bf16", .n_threads = 2}};
    static const struct {
        enum dtype formats[2];
        bool f32;
    } files[] = {{{DTYPE_Q4_K, DTYPE_Q6_K}, false}, {{DTYPE_Q8_0, DTYPE_Q8_0}, false},
                 {{DTYPE_Q5_K, DTYPE_Q4_0}, false}, {{DTYPE_BF16, DTYPE_BF16}, false},
                 {{DTYPE_Q4_K, DTYPE_F16}, false},  {{DTYPE_Q8_0, DTYPE_F32}, true}};
    static const uint32_t rows[] = {1, 3, 4, 9, 21, ROWS_MOST};
    static struct together_bench b;
    const size_t stride = (size_t)test_stride();
    setenv("HP_TEST_LEAST_VALUES", "1", 1);
    for (size_t d = 0; d < sizeof devices / sizeof *devices; d++) {
        struct device *device = NULL;
        struct err e = {0};
        if (device_open(&devices[d], &device, &e) < 0) {
            assert_int_equal(e.code, HP_EDEVICE);
            print_message("# not on this CPU: %s\n", e.text);
            continue;
        }
        for (size_t f = 0; f < sizeof files / sizeof *files; f++) {
            bench_open(&b, device, files[f].formats, files[f].f32);
            for (size_t i = 0; i < CASES; i++) /* of each case, where few are tried, other rows */
                for (size_t k = (d + f + i) % stride; k < sizeof rows / sizeof *rows; k += stride)
                    case_check(&b, &cases[i], rows[k]);
            bench_close(&b);
        }
        device_close(&device);
    }
    unsetenv("HP_TEST_LEAST_VALUES");
}

/* ---- any operators in any order ---- */

static uint32_t below(uint64_t *seed, uint32_t n)
{
    return (uint32_t)(random_unit(seed) * n);
}

/* A value so wide, but not this one. */
static enum together_value value_of(uint64_t *seed, size_t width, int but)
{
    for (;;) {
        uint32_t v = below(seed, VALUES);
        if (widths[v] == width && (int)v != but && v != ANGLES)
            return (enum together_value)v;
    }
}

/* A product of these rows (VALUES: of any), with a bias or an addend or neither. */
static struct together_op product_of(uint64_t *seed, int from)
{
    enum together_matrix m;
    do
        m = (enum together_matrix)(1 + below(seed, MATRICES - 1));
    while (from != VALUES && matrices[m].inputs != widths[from]);
    struct together_op o = {.kind = OP_MATMUL, .n_inputs = 1, .matrix = m};
    size_t outputs = matrices[m].outputs;
    o.in[0] = from == VALUES ? value_of(seed, matrices[m].inputs, -1) : (enum together_value)from;
    o.out = value_of(seed, outputs, (int)o.in[0]);
    o.bias = below(seed, 4) == 0;
    if (below(seed, 3) == 0) {
        o.in[o.n_inputs++] = below(seed, 2) ? o.out : value_of(seed, outputs, -1);
        o.bias = false;
    }
    return o;
}

static struct together_op norm_of(uint64_t *seed)
{
    static const size_t wide[] = {WIDTH, WIDTH, KV_WIDTH};
    struct together_op o = {.kind = OP_RMS_NORM, .n_inputs = 1};
    size_t width = wide[below(seed, 3)];
    o.in[0] = value_of(seed, width, -1);
    o.out = below(seed, 4) ? value_of(seed, width, -1) : o.in[0];
    o.heads = width != WIDTH || below(seed, 4) == 0;
    if (!o.heads && below(seed, 3) == 0)
        o.kind = OP_LAYER_NORM;
    return o;
}

static struct together_op turn_of(uint64_t *seed)
{
    size_t width = below(seed, 3) ? KV_WIDTH : WIDTH;
    struct together_op o = {.kind = OP_ROPE, .n_inputs = 2, .in = {[1] = ANGLES}};
    o.in[0] = value_of(seed, width, -1);
    o.out = below(seed, 2) ? value_of(seed, width, -1) : o.in[0];
    return o;
}

/* Of these keys (VALUES: of any). */
static struct together_op attention_of(uint64_t *seed, int keys)
{
    struct together_op o = {.kind = OP_ATTENTION, .n_inputs = 3};
    o.in[0] = value_of(seed, WIDTH, -1);
    o.in[1] = keys != VALUES && widths[keys] == KV_WIDTH ? (enum together_value)keys
                                                         : value_of(seed, KV_WIDTH, -1);
    o.in[2] = value_of(seed, KV_WIDTH, -1);
    o.out = value_of(seed, WIDTH, (int)o.in[0]);
    return o;
}

static struct together_op elements_of(uint64_t *seed)
{
    struct together_op o = {.kind = below(seed, 2) ? OP_ADD : OP_SILU_MUL, .n_inputs = 2};
    o.out = value_of(seed, below(seed, 2) ? WIDTH : MLP, -1);
    o.in[0] = value_of(seed, widths[o.out], -1);
    o.in[1] = value_of(seed, widths[o.out], -1);
    return o;
}

/* Most follow what they can be done together with. */
static struct together_op next_of(uint64_t *seed, const struct together_op *before)
{
    enum op_kind kind = before ? before->kind : OP_ADD;
    if ((kind == OP_RMS_NORM || kind == OP_LAYER_NORM) && widths[before->out] == WIDTH &&
        below(seed, 5))
        return product_of(seed, (int)before->out);
    if (kind == OP_MATMUL && below(seed, 3))
        return product_of(seed, (int)before->in[0]);
    if (kind == OP_ROPE && below(seed, 4))
        return attention_of(seed, (int)before->out);
    if (kind == OP_ATTENTION && below(seed, 3))
        return product_of(seed, (int)before->out);
    switch (below(seed, 7)) {
    case 0: return product_of(seed, VALUES);
    case 1:
    case 2: return turn_of(seed);
    case 3: return attention_of(seed, VALUES);
    case 4: return elements_of(seed);
    default: return norm_of(seed);
    }
}

static void case_make(struct together_case *c, char what[32], uint64_t seed)
{
    static const enum kv_format formats[] = {KV_F16, KV_F32, KV_Q8_0};
    snprintf(what, 32, "seed %llu", (unsigned long long)seed);
    *c = (struct together_case){.what = what,
                                .rope = {.style = below(&seed, 2) ? ROPE_PAIRS : ROPE_HALVES,
                                         .dims = below(&seed, 3) ? HEAD_DIM : 24,
                                         .base = 1e4,
                                         .scale = 1},
                                .kv = CACHE(formats[below(&seed, 3)], .window = 0),
                                .kept = below(&seed, 4) == 0};
    for (int i = 0; i < OPS_MOST; i++)
        c->ops[i] = next_of(&seed, i ? &c->ops[i - 1] : NULL);
}

TEST(any_operators_in_any_order_together_are_those_one_by_one_to_the_bit)
{
    enum { FILES = 8, PROGRAMS = 24 };
    static const enum dtype formats[] = {DTYPE_Q4_0, DTYPE_Q4_1, DTYPE_Q5_0,   DTYPE_Q5_1,
                                         DTYPE_Q8_0, DTYPE_Q2_K, DTYPE_Q3_K,   DTYPE_Q4_K,
                                         DTYPE_Q5_K, DTYPE_Q6_K, DTYPE_IQ4_NL, DTYPE_IQ4_XS,
                                         DTYPE_F16,  DTYPE_BF16, DTYPE_F32};
    enum { FORMATS = sizeof formats / sizeof *formats };
    static const char *const kernels[] = {"avx2", "avx_vnni", "avx512", "avx512_bf16"};
    static const uint32_t rows[] = {1, 2, 5, 12, 33, ROWS_MOST};
    static struct together_bench b;
    uint64_t seed = env_now_ns(&env_real);
    const char *fixed = getenv("HP_SEED");
    if (fixed)
        seed = strtoull(fixed, NULL, 10);
    print_message("# seed %llu\n", (unsigned long long)seed);
    setenv("HP_TEST_LEAST_VALUES", "1", 1);
    for (int f = 0; f < FILES; f++) {
        struct device_config how = {.kernels = kernels[f % 4], .n_threads = 1 + f % 3};
        enum dtype pair[] = {formats[below(&seed, FORMATS)], formats[below(&seed, FORMATS)]};
        struct device *device = NULL;
        struct err e = {0};
        if (device_open(&how, &device, &e) < 0) {
            assert_int_equal(e.code, HP_EDEVICE);
            continue;
        }
        bench_open(&b, device, pair, below(&seed, 6) == 0);
        for (int p = 0; p < PROGRAMS; p++) {
            struct together_case c;
            char what[32];
            case_make(&c, what, seed);
            case_check(&b, &c, rows[below(&seed, sizeof rows / sizeof *rows)]);
        }
        bench_close(&b);
        device_close(&device);
    }
    unsetenv("HP_TEST_LEAST_VALUES");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(operators_together_are_those_one_by_one_to_the_bit),
        cmocka_unit_test(any_operators_in_any_order_together_are_those_one_by_one_to_the_bit),
    };
    return cmocka_run_group_tests_name("operators of the CPU together", tests, NULL, NULL);
}
