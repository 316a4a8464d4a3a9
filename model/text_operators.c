/* Each kind of operator of a language model's graph as nodes of a network. */
#include <math.h>
#include <stdint.h>

#include "model/graph/kinds.h"
#include "model/text_network_int.h"

static const float MASKED = -1e9F; /* added to a score: its exponential is 0 */

typedef void text_operator_fn(struct text_network *t, const struct graph_op *op);

static int64_t width_of(const struct text_network *t, int value)
{
    return (int64_t)graph_value_width(&t->g->values[value]);
}

static int input_of(const struct text_network *t, const struct graph_op *op, int i)
{
    return t->values[op->inputs[i]].value;
}

static void result_set(struct text_network *t, const struct graph_op *op, int value)
{
    t->values[op->outputs[0]] = (struct text_value){.value = value};
}

static void operator_refuse(struct text_network *t, const char *what)
{
    struct err e = {0};
    err_set(&e, HP_EUNSUPPORTED, "%s: %s: %s has no form in a network that pools serve",
            model_path(t->m), t->prefix, what);
    err_hint(&e, "`hpctl deploy` serves the model");
    onnx_builder_fail(t->b, &e);
}

/* ---- rows ---- */

static void add_embed(struct text_network *t, const struct graph_op *op)
{
    const struct op_embed *how = &op->u.embed;
    if (how->same) {
        int table = text_weight(t, op->weights[0], 0);
        result_set(t, op, text_slice(t, table, 0, how->first, how->first + 1));
    } else if (t->g->values[op->inputs[0]].origin == VALUE_BATCH) {
        int table = text_weight(t, op->weights[0], 0);
        result_set(t, op, text_table_rows(t, table, how->first));
        t->values[op->outputs[0]].each = true;
    } else if (how->first) {
        operator_refuse(t, "a table of tokens that begins later");
    } else {
        result_set(t, op, text_graph_op(t, op));
    }
}

/* All rows are wanted. */
static void add_rows(struct text_network *t, const struct graph_op *op)
{
    result_set(t, op, input_of(t, op, 0));
}

static void add_rms_norm(struct text_network *t, const struct graph_op *op)
{
    const struct onnx_attribute keep = {.name = "keepdims", .type = ONNX_INT, .u.i = 1};
    int64_t width = width_of(t, op->outputs[0]),
            part = (int64_t)weight_shape_columns(op->weights[0]), last = -1;
    int x = input_of(t, op, 0), weight = text_weight(t, op->weights[0], op->u.norm.one_more);
    x = part < width ? text_rows(t, x, part) : x;
    int mean =
        text_node(t, "ReduceMean", (const int[]){text_two(t, "Mul", x, x), text_ints(t, &last, 1)},
                  2, &keep, 1);
    int root = text_one(t, "Sqrt", text_two(t, "Add", mean, text_number(t, op->u.norm.epsilon)));
    int out = text_two(t, "Mul", text_two(t, "Div", x, root), weight);
    result_set(t, op, part < width ? text_rows(t, out, width) : out);
}

static void add_layer_norm(struct text_network *t, const struct graph_op *op)
{
    const struct onnx_attribute how[] = {
        {.name = "axis", .type = ONNX_INT, .u.i = -1},
        {.name = "epsilon", .type = ONNX_FLOAT, .u.f = op->u.norm.epsilon}};
    const int in[] = {input_of(t, op, 0), text_weight(t, op->weights[0], op->u.norm.one_more),
                      op->weights[1] ? text_weight(t, op->weights[1], 0) : -1};
    result_set(t, op, text_node(t, "LayerNormalization", in, op->weights[1] ? 3 : 2, how, 2));
}

/* Of float32 by Gemm, which packs what it multiplies by; others stay as the file has them. */
static void add_matmul(struct text_network *t, const struct graph_op *op)
{
    const struct onnx_attribute turned = {
        .name = "transB", .type = ONNX_INT, .u.i = !op->u.matmul.turned};
    bool has_bias = op->n_weights > 1 && op->weights[1];
    if (!text_weight_lies_ready(op->weights[0])) {
        result_set(t, op, text_graph_op(t, op));
        return;
    }
    const int in[] = {input_of(t, op, 0), text_weight(t, op->weights[0], 0),
                      has_bias ? text_weight(t, op->weights[1], 0) : -1};
    int out = text_node(t, "Gemm", in, has_bias ? 3 : 2, &turned, 1);
    result_set(t, op, op->n_inputs > 1 ? text_two(t, "Add", out, input_of(t, op, 1)) : out);
}

/* With weights as the file has them. */
static void add_graph_op(struct text_network *t, const struct graph_op *op)
{
    result_set(t, op, text_graph_op(t, op));
}

/* ---- element by element ---- */

static void add_silu_mul(struct text_network *t, const struct graph_op *op)
{
    int gate = input_of(t, op, 0);
    int silu = text_two(t, "Mul", gate, text_one(t, "Sigmoid", gate));
    result_set(t, op, text_two(t, "Mul", silu, input_of(t, op, 1)));
}

static void add_gelu(struct text_network *t, const struct graph_op *op)
{
    const struct onnx_attribute how = {
        .name = "approximate", .type = ONNX_STRING, .u.s = op->u.gelu.exact ? "none" : "tanh"};
    int x = input_of(t, op, 0);
    result_set(t, op, text_node(t, "Gelu", &x, 1, &how, 1));
}

/* Rows of positions are those of each text. */
static void add_add(struct text_network *t, const struct graph_op *op)
{
    const struct text_value *x = &t->values[op->inputs[0]], *y = &t->values[op->inputs[1]];
    int64_t width = width_of(t, op->outputs[0]);
    if (x->each == y->each) {
        bool each = x->each;
        result_set(t, op, text_two(t, "Add", x->value, y->value));
        t->values[op->outputs[0]].each = each;
        return;
    }
    int rows = text_reshape(t, x->each ? y->value : x->value, &width, 1);
    int sum = text_two(t, "Add", rows, x->each ? x->value : y->value);
    result_set(t, op, text_rows(t, sum, width));
}

static void add_mul(struct text_network *t, const struct graph_op *op)
{
    result_set(t, op, text_two(t, "Mul", input_of(t, op, 0), input_of(t, op, 1)));
}

static void add_scale(struct text_network *t, const struct graph_op *op)
{
    int number = text_number(t, op->u.number.value);
    result_set(t, op, text_two(t, "Mul", input_of(t, op, 0), number));
}

static int soft_cap(struct text_network *t, int x, float cap)
{
    int within = text_one(t, "Tanh", text_two(t, "Mul", x, text_number(t, 1 / cap)));
    return text_two(t, "Mul", within, text_number(t, cap));
}

static void add_soft_cap(struct text_network *t, const struct graph_op *op)
{
    result_set(t, op, soft_cap(t, input_of(t, op, 0), op->u.number.value));
}

static void add_slice(struct text_network *t, const struct graph_op *op)
{
    int64_t first = (int64_t)op->u.slice.first, end = first + (int64_t)op->u.slice.count;
    result_set(t, op, text_slice(t, input_of(t, op, 0), 1, first, end));
}

/* ---- rotation ---- */

static double frequency_of(const struct rope_config *r, int pair)
{
    double usual = pow(r->base, -2.0 * pair / r->dims) / (r->scale != 0 ? r->scale : 1);
    return r->factors ? usual / (double)r->factors[pair] : usual;
}

/* Cosines and sines of every position, of which a text has the first. */
static void add_rope_angles(struct text_network *t, const struct graph_op *op)
{
    const struct rope_config *r = op->u.rope.config;
    int64_t longest = text_network_longest(t->m);
    int pairs = r->dims / 2, cos_table, sin_table;
    double magnitude = r->magnitude != 0 ? (double)r->magnitude : 1;
    float *c = text_floats(t, longest, pairs, &cos_table),
          *s = text_floats(t, longest, pairs, &sin_table);
    for (int64_t p = 0; c && s && p < longest; p++)
        for (int i = 0; i < pairs; i++) {
            double turn = (double)p * frequency_of(r, i);
            c[p * pairs + i] = (float)(magnitude * cos(turn));
            s[p * pairs + i] = (float)(magnitude * sin(turn));
        }
    t->values[op->outputs[0]] = (struct text_value){.cos = text_table_rows(t, cos_table, 0),
                                                    .sin = text_table_rows(t, sin_table, 0)};
}

/* A table's rows [tokens, pairs] beside heads: [1, tokens, 1, pairs]; of pairs that lie side by
 * side [1, tokens, 1, pairs, 1]. */
static int angles_spread(struct text_network *t, int rows, int64_t pairs, bool side_by_side)
{
    const int64_t dims[] = {1, pairs, 1};
    return text_reshape(t, rows, dims, side_by_side ? 3 : 2);
}

static int pair_turn(struct text_network *t, const char *op, int a, int by_a, int b, int by_b)
{
    return text_two(t, op, text_two(t, "Mul", a, by_a), text_two(t, "Mul", b, by_b));
}

/* The part of heads that rotates: [batch, tokens, heads, dims]. */
static int part_rotate(struct text_network *t, int part, const struct rope_config *r,
                       const struct text_value *angles, int64_t heads)
{
    bool side_by_side = r->style == ROPE_PAIRS;
    int64_t pairs = r->dims / 2, axis = side_by_side ? 4 : 3, half = side_by_side ? 1 : pairs;
    int c = angles_spread(t, angles->cos, pairs, side_by_side),
        s = angles_spread(t, angles->sin, pairs, side_by_side);
    if (side_by_side)
        part = text_reshape(t, part, (const int64_t[]){heads, pairs, 2}, 3);
    int a = text_slice(t, part, axis, 0, half), b = text_slice(t, part, axis, half, 2 * half);
    const int turned[] = {pair_turn(t, "Sub", a, c, b, s), pair_turn(t, "Add", a, s, b, c)};
    int out = text_concat(t, turned, 2, axis);
    return side_by_side ? text_reshape(t, out, (const int64_t[]){heads, r->dims}, 2) : out;
}

static void add_rope(struct text_network *t, const struct graph_op *op)
{
    const struct op_rope *rope = &op->u.rope;
    int64_t width = width_of(t, op->outputs[0]), heads = width / rope->head_dim;
    const int64_t dims[] = {heads, rope->head_dim};
    int x = text_reshape(t, input_of(t, op, 0), dims, 2), parts[3], n = 0,
        end = rope->first + rope->config->dims;
    if (rope->first > 0)
        parts[n++] = text_slice(t, x, 3, 0, rope->first);
    int part = end - rope->first < rope->head_dim ? text_slice(t, x, 3, rope->first, end) : x;
    parts[n++] = part_rotate(t, part, rope->config, &t->values[op->inputs[1]], heads);
    if (end < rope->head_dim)
        parts[n++] = text_slice(t, x, 3, end, rope->head_dim);
    result_set(t, op, text_rows(t, text_concat(t, parts, n, 3), width));
}

/* ---- attention ---- */

/* What is added to scores [batch, heads, queries, tokens] of texts that see all of themselves: it
 * is the same for all layers. */
static int mask_bias(struct text_network *t)
{
    if (t->bias >= 0)
        return t->bias;
    int mask = text_cast(t, t->mask, ND_F32);
    int bias =
        text_two(t, "Mul", text_two(t, "Sub", text_number(t, 1), mask), text_number(t, MASKED));
    /* [batch, tokens] to [batch, 1, 1, tokens] */
    const int parts[] = {text_ints(t, (const int64_t[]){-1, 1, 1}, 3), t->length};
    t->bias = text_two(t, "Reshape", bias, text_concat(t, parts, 2, 0));
    return t->bias;
}

/* Rows to [batch, kv_heads, group * tokens, head_dim]. */
static int queries_order(struct text_network *t, int rows, const struct op_attention *a)
{
    int64_t kv = a->kv_heads, group = a->heads / a->kv_heads, dim = a->head_dim;
    if (group == 1)
        return text_transpose(t, text_reshape(t, rows, (const int64_t[]){kv, dim}, 2),
                              (const int64_t[]){0, 2, 1, 3}, 4);
    int x = text_reshape(t, rows, (const int64_t[]){kv, group, dim}, 3);
    x = text_transpose(t, x, (const int64_t[]){0, 2, 3, 1, 4}, 5);
    const int parts[] = {text_ints(t, (const int64_t[]){-1, kv}, 2),
                         text_two(t, "Mul", t->length, text_ints(t, &group, 1)),
                         text_ints(t, &dim, 1)};
    return text_two(t, "Reshape", x, text_concat(t, parts, 3, 0));
}

/* And back to rows. */
static int queries_rows(struct text_network *t, int x, const struct op_attention *a)
{
    int64_t kv = a->kv_heads, group = a->heads / a->kv_heads,
            dim = a->value_dim ? a->value_dim : a->head_dim;
    if (group == 1)
        return text_rows(t, text_transpose(t, x, (const int64_t[]){0, 2, 1, 3}, 4), kv * dim);
    const int parts[] = {text_ints(t, (const int64_t[]){-1, kv, group}, 3), t->length,
                         text_ints(t, &dim, 1)};
    x = text_two(t, "Reshape", x, text_concat(t, parts, 3, 0));
    return text_rows(t, text_transpose(t, x, (const int64_t[]){0, 3, 1, 2, 4}, 5),
                     kv * group * dim);
}

/* What each token sees of the scores, as parts of 1. A token of a decoder sees itself and those
 * before it, and so none of the padding behind its text. */
static int scores_share(struct text_network *t, int scores, const struct graph_op *op)
{
    const struct op_attention *a = &op->u.attention;
    const struct weight *sinks = op->n_weights > 0 ? op->weights[0] : NULL;
    if (a->whole)
        return text_softmax(t, "Softmax", text_two(t, "Add", scores, mask_bias(t)));
    scores = text_causal(t, scores, a->window, a->heads / a->kv_heads,
                         sinks ? text_weight(t, sinks, 0) : -1);
    int shares = text_softmax(t, "Softmax", scores);
    if (!sinks)
        return shares;
    /* What the sinks took is nobody's. */
    const int in[] = {shares, text_ints(t, &(int64_t){0}, 1), t->length,
                      text_ints(t, &(int64_t){3}, 1)};
    return text_node(t, "Slice", in, 4, NULL, 0);
}

/* Values are rows of their own, or the first elements of the keys. */
static int values_order(struct text_network *t, const struct graph_op *op)
{
    const struct op_attention *a = &op->u.attention;
    const int64_t kv[] = {a->kv_heads, a->head_dim};
    int v = text_reshape(t, input_of(t, op, a->value_dim ? 1 : 2), kv, 2);
    if (a->value_dim)
        v = text_slice(t, v, 3, 0, a->value_dim);
    return text_transpose(t, v, (const int64_t[]){0, 2, 1, 3}, 4);
}

static void add_attention(struct text_network *t, const struct graph_op *op)
{
    const struct op_attention *a = &op->u.attention;
    const int64_t kv[] = {a->kv_heads, a->head_dim};
    if (a->whole && op->n_weights > 0 && op->weights[0]) {
        operator_refuse(t, "attention over whole texts with sinks");
        return;
    }
    int q = queries_order(t, input_of(t, op, 0), a);
    int k = text_transpose(t, text_reshape(t, input_of(t, op, 1), kv, 2),
                           (const int64_t[]){0, 2, 3, 1}, 4);
    float scale = a->scale != 0 ? a->scale : 1 / sqrtf((float)a->head_dim);
    int scores = text_two(t, "Mul", text_two(t, "MatMul", q, k), text_number(t, scale));
    scores = a->cap != 0 ? soft_cap(t, scores, a->cap) : scores;
    int shares = scores_share(t, scores, op);
    result_set(t, op, queries_rows(t, text_two(t, "MatMul", shares, values_order(t, op)), a));
}

/* ---- the table ---- */

static text_operator_fn *const operators[OP_KIND_COUNT] = {
    [OP_EMBED] = add_embed,
    [OP_ROWS] = add_rows,
    [OP_RMS_NORM] = add_rms_norm,
    [OP_LAYER_NORM] = add_layer_norm,
    [OP_MATMUL] = add_matmul,
    [OP_ROPE_ANGLES] = add_rope_angles,
    [OP_ROPE] = add_rope,
    [OP_ATTENTION] = add_attention,
    [OP_SILU_MUL] = add_silu_mul,
    [OP_GELU] = add_gelu,
    [OP_ADD] = add_add,
    [OP_MUL] = add_mul,
    [OP_SCALE] = add_scale,
    [OP_SOFT_CAP] = add_soft_cap,
    [OP_ROUTE] = add_graph_op,
    [OP_EXPERT_MATMUL] = add_graph_op,
    [OP_HEAD_MATMUL] = add_graph_op,
    [OP_JOIN_HEADS] = add_graph_op,
    [OP_EXPERT_SUM] = add_graph_op,
    [OP_GATE_ROWS] = add_graph_op,
    [OP_CLAMPED_SWIGLU] = add_graph_op,
    [OP_SLICE] = add_slice,
};

void text_operator_add(struct text_network *t, const struct graph_op *op)
{
    t->prefix = t->g->values[op->outputs[0]].name;
    for (int i = 0; i < op->n_inputs; i++)
        if (t->values[op->inputs[i]].each && op->kind != OP_ADD) {
            operator_refuse(t, "what is made of positions alone");
            return;
        }
    if (operators[op->kind])
        operators[op->kind](t, op);
    else
        operator_refuse(t, op_kind_info(op->kind)->name);
}
