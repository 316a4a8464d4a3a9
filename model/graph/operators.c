/* The builder's given values and operators: each function is one kind's inputs, weights and
 * attributes. */
#include <stdio.h>

#include "model/graph/builder_int.h"

static uint64_t width_of(const struct graph_builder *b, int value)
{
    return b->rc < 0 ? 1 : graph_value_width(&b->values[value]);
}

static const char *layer_name(const struct graph_builder *b)
{
    return b->n_layers ? b->layers[b->n_layers - 1].name : "batch";
}

static struct op_made made_of(struct graph_builder *b, enum op_kind kind, const char *suffix,
                              const char *of, int n_inputs)
{
    return (struct op_made){
        .op = {.kind = kind, .n_inputs = n_inputs},
        .name =
            b->rc < 0 ? NULL : arena_printf(b->arena, "%s.%s", of ? of : layer_name(b), suffix)};
}

/* A value whose name is its operator's weight. */
static struct op_made made_with_weight(struct graph_builder *b, enum op_kind kind, int x,
                                       const char *weight)
{
    struct op_made m = made_of(b, kind, weight, NULL, 1);
    m.inputs[0] = x;
    m.op.n_weights = 1;
    return m;
}

/* ---- what is given ---- */

static int given_value(struct graph_builder *b, int *known, const char *name,
                       enum graph_origin origin, enum graph_symbol rows)
{
    if (*known < 0)
        *known = builder_value_add(b, name, DTYPE_U32, origin,
                                   &(struct graph_dim){.symbol = (int)rows}, 1);
    return *known;
}

int graph_ids(struct graph_builder *b)
{
    return given_value(b, &b->ids, "ids", VALUE_INPUT, GRAPH_TOKENS);
}
int graph_positions(struct graph_builder *b)
{
    return given_value(b, &b->positions, "positions", VALUE_BATCH, GRAPH_TOKENS);
}
int graph_wanted(struct graph_builder *b)
{
    return given_value(b, &b->wanted, "wanted", VALUE_BATCH, GRAPH_WANTED);
}

/* ---- operators ---- */

int graph_embed_from(struct graph_builder *b, int ids, const char *weight, int rows, int width,
                     struct op_embed how)
{
    struct op_made m = made_with_weight(b, OP_EMBED, ids, weight);
    m.weights[0] = builder_weight_take(b, weight, (uint64_t)rows, (uint64_t)width);
    m.op.u.embed = how;
    return b->rc < 0 ? 0 : builder_op_add(b, m);
}

int graph_embed(struct graph_builder *b, int ids, const char *weight, int rows, int width)
{
    return graph_embed_from(b, ids, weight, rows, width, (struct op_embed){0});
}

int graph_rows(struct graph_builder *b, int x, int indices)
{
    struct op_made m = made_of(b, OP_ROWS, "rows", NULL, 2);
    m.inputs[0] = x;
    m.inputs[1] = indices;
    return b->rc < 0 ? 0 : builder_op_add(b, m);
}

static int rms_norm_of(struct graph_builder *b, int x, const char *weight, uint64_t width)
{
    struct op_made m = made_with_weight(b, OP_RMS_NORM, x, weight);
    m.weights[0] = builder_weight_take(b, weight, 0, width);
    m.op.u.norm.epsilon = b->facts->config.norm_epsilon;
    m.op.u.norm.one_more = b->facts->family->norms_of_one[b->facts->form];
    return b->rc < 0 ? 0 : builder_op_add(b, m);
}

int graph_rms_norm(struct graph_builder *b, int x, const char *weight)
{
    return rms_norm_of(b, x, weight, width_of(b, x));
}

int graph_head_norm(struct graph_builder *b, int x, const char *weight)
{
    return rms_norm_of(b, x, weight, (uint64_t)b->facts->config.head_dim);
}

int graph_layer_norm(struct graph_builder *b, int x, const char *weight)
{
    struct op_made m = made_with_weight(b, OP_LAYER_NORM, x, weight);
    m.weights[0] = builder_weight_take(b, weight, 0, width_of(b, x));
    m.weights[1] = builder_bias_take(b, weight, BIAS_ALWAYS, width_of(b, x));
    m.op.n_weights = 2;
    m.op.u.norm.epsilon = b->facts->config.norm_epsilon;
    return b->rc < 0 ? 0 : builder_op_add(b, m);
}

static struct op_made made_product(struct graph_builder *b, int x, const char *weight,
                                   uint64_t outputs, enum bias_policy bias, bool turned)
{
    struct op_made m = made_with_weight(b, OP_MATMUL, x, weight);
    uint64_t inputs = width_of(b, x);
    m.op.u.matmul.turned = turned;
    m.weights[0] =
        builder_weight_take(b, weight, turned ? inputs : outputs, turned ? outputs : inputs);
    m.weights[1] = builder_bias_take(b, weight, bias, outputs);
    m.op.n_weights = 2;
    return m;
}

static bool are_matrices_turned(const struct graph_builder *b)
{
    return b->facts->family->turned[b->facts->form];
}

int graph_matmul(struct graph_builder *b, int x, const char *weight, int outputs,
                 enum bias_policy bias)
{
    struct op_made m = made_product(b, x, weight, (uint64_t)outputs, bias, are_matrices_turned(b));
    return b->rc < 0 ? 0 : builder_op_add(b, m);
}

int graph_matmul_add(struct graph_builder *b, int x, const char *weight, enum bias_policy bias,
                     int to)
{
    struct op_made m = made_product(b, x, weight, width_of(b, to), bias, are_matrices_turned(b));
    m.inputs[m.op.n_inputs++] = to;
    return b->rc < 0 ? 0 : builder_op_add(b, m);
}

/* Where embeddings are tied by config.json, a head of its own is a copy that older writers left. */
static void copy_ignore(struct graph_builder *b, const char *weight)
{
    char copy[BUILDER_NAME_BYTES];
    builder_weight_name(b, weight, "weight", copy);
    const struct weight *left = weight_table_find(b->table, copy);
    if (left)
        weight_table_ignore(b->table, left);
}

int graph_logits(struct graph_builder *b, int x, const char *weight, const char *embedding)
{
    const struct model_config *c = &b->facts->config;
    if (c->tied_embeddings)
        copy_ignore(b, weight);
    struct op_made m = made_product(b, x, c->tied_embeddings ? embedding : weight,
                                    (uint64_t)c->vocabulary, BIAS_NEVER, false);
    return b->rc < 0 ? 0 : builder_op_add(b, m);
}

/* The rotation that a value of angles is of. */
static const struct rope_config *angles_rope(const struct graph_builder *b, int angles)
{
    int i = 0;
    while (b->ops[i].outputs[0] != angles)
        i++;
    return b->ops[i].u.rope.config;
}

int graph_rope_angles(struct graph_builder *b, int positions, const struct rope_config *rope)
{
    struct op_made m = made_of(b, OP_ROPE_ANGLES, "rope_angles", NULL, 1);
    m.inputs[0] = positions;
    m.op.u.rope = (struct op_rope){.config = rope, .head_dim = b->facts->config.head_dim};
    return b->rc < 0 ? 0 : builder_op_add(b, m);
}

int graph_rope(struct graph_builder *b, int x, int angles)
{
    struct op_made m = made_of(b, OP_ROPE, "rope", b->rc < 0 ? NULL : b->values[x].name, 2);
    m.inputs[0] = x;
    m.inputs[1] = angles;
    m.op.u.rope = (struct op_rope){.config = b->rc < 0 ? NULL : angles_rope(b, angles),
                                   .head_dim = b->facts->config.head_dim};
    return b->rc < 0 ? 0 : builder_op_add(b, m);
}

/* `v` -1: values are the first `value_dim` elements of k. */
static int attention_add(struct graph_builder *b, int q, int k, int v, int value_dim,
                         const char *sinks, bool whole)
{
    const struct model_config *c = &b->facts->config;
    struct op_made m = made_of(b, OP_ATTENTION, "attention", NULL, v < 0 ? 2 : 3);
    uint64_t heads = (uint64_t)c->n_heads * (uint64_t)c->head_dim,
             kv_heads = (uint64_t)c->n_kv_heads * (uint64_t)c->head_dim;
    if (b->rc == 0 && (width_of(b, q) != heads || width_of(b, k) != kv_heads ||
                       (v < 0 ? value_dim > c->head_dim : width_of(b, v) != kv_heads)))
        builder_fail(b, err_set(b->e, HP_EUNSUPPORTED,
                                "%s: %d heads (%d for keys and values) of size %d are not as wide "
                                "as q, k and v",
                                b->table->file, c->n_heads, c->n_kv_heads, c->head_dim));
    m.inputs[0] = q;
    m.inputs[1] = k;
    if (v >= 0)
        m.inputs[2] = v;
    m.op.u.attention = (struct op_attention){.heads = c->n_heads,
                                             .kv_heads = c->n_kv_heads,
                                             .head_dim = c->head_dim,
                                             .value_dim = value_dim,
                                             .window = c->windows ? c->windows[b->block] : 0,
                                             .scale = c->score_scale,
                                             .cap = c->score_cap,
                                             .whole = whole};
    if (sinks) {
        m.weights[0] = builder_weight_take(b, sinks, 0, (uint64_t)c->n_heads);
        m.op.n_weights = 1;
    }
    m.op.u.attention.block = b->n_attention++;
    return b->rc < 0 ? 0 : builder_op_add(b, m);
}

int graph_attention(struct graph_builder *b, int q, int k, int v, const char *sinks)
{
    return attention_add(b, q, k, v, 0, sinks, false);
}

int graph_latent_attention(struct graph_builder *b, int q, int k, int value_dim)
{
    return attention_add(b, q, k, -1, value_dim, NULL, false);
}

int graph_attention_whole(struct graph_builder *b, int q, int k, int v)
{
    return attention_add(b, q, k, v, 0, NULL, true);
}

int graph_silu_mul(struct graph_builder *b, int gate, int up)
{
    struct op_made m = made_of(b, OP_SILU_MUL, "silu_mul", NULL, 2);
    m.inputs[0] = gate;
    m.inputs[1] = up;
    return b->rc < 0 ? 0 : builder_op_add(b, m);
}

static int gelu_add(struct graph_builder *b, int x, bool exact)
{
    struct op_made m = made_of(b, OP_GELU, "gelu", NULL, 1);
    m.inputs[0] = x;
    m.op.u.gelu.exact = exact;
    return b->rc < 0 ? 0 : builder_op_add(b, m);
}

int graph_gelu(struct graph_builder *b, int x)
{
    return gelu_add(b, x, false);
}

int graph_gelu_exact(struct graph_builder *b, int x)
{
    return gelu_add(b, x, true);
}

int graph_add(struct graph_builder *b, int x, int y)
{
    struct op_made m = made_of(b, OP_ADD, "add", NULL, 2);
    m.inputs[0] = x;
    m.inputs[1] = y;
    return b->rc < 0 ? 0 : builder_op_add(b, m);
}

int graph_mul(struct graph_builder *b, int x, int y)
{
    struct op_made m = made_of(b, OP_MUL, "mul", NULL, 2);
    m.inputs[0] = x;
    m.inputs[1] = y;
    return b->rc < 0 ? 0 : builder_op_add(b, m);
}

static int with_number(struct graph_builder *b, enum op_kind kind, const char *suffix, int x,
                       float value)
{
    struct op_made m = made_of(b, kind, suffix, NULL, 1);
    if (value == 0)
        return x;
    m.inputs[0] = x;
    m.op.u.number.value = value;
    return b->rc < 0 ? 0 : builder_op_add(b, m);
}

int graph_scale(struct graph_builder *b, int x, float factor)
{
    return with_number(b, OP_SCALE, "scale", x, factor);
}

int graph_soft_cap(struct graph_builder *b, int x, float cap)
{
    return with_number(b, OP_SOFT_CAP, "soft_cap", x, cap);
}

int graph_rope_part(struct graph_builder *b, int x, int angles, int head_dim, int first)
{
    struct op_made m = made_of(b, OP_ROPE, "rope", b->rc < 0 ? NULL : b->values[x].name, 2);
    m.inputs[0] = x;
    m.inputs[1] = angles;
    m.op.u.rope = (struct op_rope){
        .config = b->rc < 0 ? NULL : angles_rope(b, angles), .head_dim = head_dim, .first = first};
    return b->rc < 0 ? 0 : builder_op_add(b, m);
}

int graph_head_matmul(struct graph_builder *b, int x, struct op_head_part part, const char *weight,
                      const struct head_matrices *matrices, bool turned)
{
    struct op_made m = made_with_weight(b, OP_HEAD_MATMUL, x, weight);
    m.op.u.heads =
        (struct op_heads){.heads = (int)matrices->heads, .parts = {part}, .turned = turned};
    m.weights[0] = builder_heads_take(b, weight, matrices);
    return b->rc < 0 ? 0 : builder_op_add(b, m);
}

int graph_join_heads(struct graph_builder *b, int x, int y, int heads, struct op_head_part of_x,
                     struct op_head_part of_y)
{
    struct op_made m = made_of(b, OP_JOIN_HEADS, "join", b->rc < 0 ? NULL : b->values[x].name, 2);
    m.inputs[0] = x;
    m.inputs[1] = y;
    m.op.u.heads = (struct op_heads){.heads = heads, .parts = {of_x, of_y}};
    return b->rc < 0 ? 0 : builder_op_add(b, m);
}

int graph_route(struct graph_builder *b, int scores)
{
    const struct expert_config *c = &b->facts->config.experts;
    struct op_made m = made_of(b, OP_ROUTE, "route", NULL, 1);
    m.inputs[0] = scores;
    m.op.u.route =
        (struct op_route){.used = c->used, .renormalised = c->renormalised, .scale = c->scale};
    return b->rc < 0 ? 0 : builder_op_add(b, m);
}

int graph_expert_groups(const struct graph_builder *b)
{
    int n = b->facts->config.experts.n, groups = b->expert_groups < n ? b->expert_groups : n;
    return groups < 1 ? 1 : groups;
}

void graph_expert_group_begin(struct graph_builder *b, int group)
{
    int n = b->facts->config.experts.n, groups = graph_expert_groups(b);
    int first = (int)((int64_t)n * group / groups), end = (int)((int64_t)n * (group + 1) / groups);
    b->experts_here = groups == 1
                          ? (struct op_experts){0}
                          : (struct op_experts){.first = first, .count = end - first, .all = n};
}

static struct op_experts experts_here(const struct graph_builder *b)
{
    struct op_experts here = b->experts_here;
    here.used = b->facts->config.experts.used;
    return here;
}

int graph_expert_matmul(struct graph_builder *b, int x, int route, const char *weight,
                        struct expert_shape shape, const char *bias)
{
    struct op_made m = made_with_weight(b, OP_EXPERT_MATMUL, x, weight);
    bool turned = b->facts->family->experts_turned[b->facts->form] && !builder_is_apart(b, weight);
    uint64_t inputs = (uint64_t)shape.inputs, outputs = (uint64_t)shape.outputs;
    m.inputs[m.op.n_inputs++] = route;
    m.op.u.experts = experts_here(b);
    m.op.u.experts.turned = turned;
    m.weights[0] =
        builder_experts_take(b, weight, turned ? inputs : outputs, turned ? outputs : inputs);
    if (bias) {
        m.weights[1] = builder_weight_take(b, bias, (uint64_t)b->facts->config.experts.n, outputs);
        m.op.n_weights = 2;
    }
    return b->rc < 0 ? 0 : builder_op_add(b, m);
}

int graph_expert_sum(struct graph_builder *b, int x, int route, int to)
{
    struct op_made m = made_of(b, OP_EXPERT_SUM, "expert_sum", NULL, 3);
    m.inputs[0] = x;
    m.inputs[1] = route;
    m.inputs[2] = to;
    m.op.u.experts = experts_here(b);
    return b->rc < 0 ? 0 : builder_op_add(b, m);
}

int graph_gate_rows(struct graph_builder *b, int x, int gate)
{
    struct op_made m = made_of(b, OP_GATE_ROWS, "gate_rows", NULL, 2);
    m.inputs[0] = x;
    m.inputs[1] = gate;
    return b->rc < 0 ? 0 : builder_op_add(b, m);
}

int graph_clamped_swiglu(struct graph_builder *b, int gate, int up, struct op_swiglu how)
{
    struct op_made m = made_of(b, OP_CLAMPED_SWIGLU, "clamped_swiglu", NULL, up == gate ? 1 : 2);
    m.inputs[0] = gate;
    m.inputs[1] = up;
    m.op.u.swiglu = how;
    return b->rc < 0 ? 0 : builder_op_add(b, m);
}

int graph_slice(struct graph_builder *b, int x, int first, int count)
{
    char columns[64];
    snprintf(columns, sizeof columns, "%d-%d", first, first + count - 1);
    struct op_made m = made_of(b, OP_SLICE, columns, b->rc < 0 ? NULL : b->values[x].name, 1);
    m.inputs[0] = x;
    m.op.u.slice = (struct op_slice){(uint64_t)first, (uint64_t)count};
    return b->rc < 0 ? 0 : builder_op_add(b, m);
}
