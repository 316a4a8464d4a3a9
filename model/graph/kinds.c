#include "model/graph/kinds.h"

#include <assert.h>
#include <string.h>

#include "common/experts.h"

static const struct graph_value *op_input(const struct graph *g, const struct graph_op *op, int i)
{
    return &g->values[op->inputs[i]];
}

/* ---- shapes ---- */

static int shape_of_input(const struct graph *g, const struct graph_op *op, int i,
                          struct graph_dim out[OP_DIMS_MAX])
{
    const struct graph_value *v = op_input(g, op, i);
    assert(v->n_dims <= OP_DIMS_MAX);
    memcpy(out, v->dims, (size_t)v->n_dims * sizeof *out);
    return v->n_dims;
}

/* As the first input. */
static int same_shape(const struct graph *g, const struct graph_op *op,
                      struct graph_dim out[OP_DIMS_MAX])
{
    return shape_of_input(g, op, 0, out);
}

static int embed_shape(const struct graph *g, const struct graph_op *op,
                       struct graph_dim out[OP_DIMS_MAX])
{
    out[0] = op_input(g, op, 0)->dims[0];
    out[1] = (struct graph_dim){.size = op->weights[0]->shape[1]};
    return 2;
}

static int rows_shape(const struct graph *g, const struct graph_op *op,
                      struct graph_dim out[OP_DIMS_MAX])
{
    int n = shape_of_input(g, op, 0, out);
    out[0] = op_input(g, op, 1)->dims[0];
    return n;
}

static int matmul_shape(const struct graph *g, const struct graph_op *op,
                        struct graph_dim out[OP_DIMS_MAX])
{
    int n = shape_of_input(g, op, 0, out);
    out[n - 1] = (struct graph_dim){.size = op->weights[0]->shape[op->u.matmul.turned ? 1 : 0]};
    return n;
}

/* A row for each head as long as a value. */
static int attention_shape(const struct graph *g, const struct graph_op *op,
                           struct graph_dim out[OP_DIMS_MAX])
{
    const struct op_attention *a = &op->u.attention;
    int n = shape_of_input(g, op, 0, out);
    if (a->value_dim)
        out[n - 1] = (struct graph_dim){.size = (uint64_t)a->heads * (uint64_t)a->value_dim};
    return n;
}

static int slice_shape(const struct graph *g, const struct graph_op *op,
                       struct graph_dim out[OP_DIMS_MAX])
{
    int n = shape_of_input(g, op, 0, out);
    out[n - 1] = (struct graph_dim){.size = op->u.slice.count};
    return n;
}

static int angles_shape(const struct graph *g, const struct graph_op *op,
                        struct graph_dim out[OP_DIMS_MAX])
{
    out[0] = op_input(g, op, 0)->dims[0];
    out[1] = (struct graph_dim){.size = (uint64_t)op->u.rope.config->dims};
    return 2;
}

static int route_shape(const struct graph *g, const struct graph_op *op,
                       struct graph_dim out[OP_DIMS_MAX])
{
    int n = shape_of_input(g, op, 0, out);
    out[n - 1] = (struct graph_dim){.size = 2 * (uint64_t)op->u.route.used};
    return n;
}

static int expert_matmul_shape(const struct graph *g, const struct graph_op *op,
                               struct graph_dim out[OP_DIMS_MAX])
{
    int n = shape_of_input(g, op, 0, out);
    uint64_t outputs = op->weights[0]->parts[0]->shape[op->u.experts.turned ? 1 : 0];
    out[n - 1] = (struct graph_dim){.size = outputs * (uint64_t)op->u.experts.used};
    return n;
}

static int expert_sum_shape(const struct graph *g, const struct graph_op *op,
                            struct graph_dim out[OP_DIMS_MAX])
{
    int n = shape_of_input(g, op, 0, out);
    out[n - 1].size /= (uint64_t)op->u.experts.used;
    return n;
}

static int head_matmul_shape(const struct graph *g, const struct graph_op *op,
                             struct graph_dim out[OP_DIMS_MAX])
{
    int n = shape_of_input(g, op, 0, out);
    uint64_t outputs = op->weights[0]->parts[0]->shape[op->u.heads.turned ? 1 : 0];
    out[n - 1] = (struct graph_dim){.size = outputs * (uint64_t)op->u.heads.heads};
    return n;
}

static int join_heads_shape(const struct graph *g, const struct graph_op *op,
                            struct graph_dim out[OP_DIMS_MAX])
{
    const struct op_heads *h = &op->u.heads;
    int n = shape_of_input(g, op, 0, out), width = h->parts[0].count + h->parts[1].count;
    out[n - 1] = (struct graph_dim){.size = (uint64_t)h->heads * (uint64_t)width};
    return n;
}

static int swiglu_shape(const struct graph *g, const struct graph_op *op,
                        struct graph_dim out[OP_DIMS_MAX])
{
    int n = shape_of_input(g, op, 0, out);
    out[n - 1].size /= op->n_inputs == 1 ? 2 : 1;
    return n;
}

/* ---- what an operator reads, computes and keeps ---- */

/* Of the experts, those that the tokens wake: each takes its own, as if by lot. */
static uint64_t expert_bytes_read(const struct graph *g, const struct graph_op *op,
                                  const uint64_t *sizes)
{
    const struct weight *w = op->weights[0];
    double n = op->u.experts.count ? op->u.experts.all : w->n_parts, used = op->u.experts.used,
           rows = (double)graph_value_elements(op_input(g, op, 1), sizes) / (2 * used);
    return (uint64_t)(experts_awake(n, used, rows) / n * (double)w->bytes);
}

static double expert_matmul_flops(const struct graph *g, const struct graph_op *op,
                                  const uint64_t *sizes)
{
    const struct graph_value *out = &g->values[op->outputs[0]];
    const struct op_experts *x = &op->u.experts;
    uint64_t inputs = op->weights[0]->parts[0]->shape[x->turned ? 0 : 1];
    double here = x->count ? (double)x->count / x->all : 1;
    return 2.0 * here * (double)inputs * (double)graph_value_elements(out, sizes);
}

static uint64_t embed_bytes_read(const struct graph *g, const struct graph_op *op,
                                 const uint64_t *sizes)
{
    const struct weight *table = op->weights[0];
    return table->bytes / table->shape[0] * graph_value_elements(op_input(g, op, 0), sizes);
}

static double matmul_flops(const struct graph *g, const struct graph_op *op, const uint64_t *sizes)
{
    const struct graph_value *x = op_input(g, op, 0), *out = &g->values[op->outputs[0]];
    return 2.0 * (double)graph_value_width(x) * (double)graph_value_elements(out, sizes);
}

static uint64_t attention_state_bytes(const struct graph_op *op)
{
    const struct op_attention *a = &op->u.attention;
    uint64_t parts = a->value_dim ? 1 : 2;
    return parts * (uint64_t)a->kv_heads * (uint64_t)a->head_dim * sizeof(uint16_t);
}

static double head_matmul_flops(const struct graph *g, const struct graph_op *op,
                                const uint64_t *sizes)
{
    const struct graph_value *out = &g->values[op->outputs[0]];
    return 2.0 * op->u.heads.parts[0].count * (double)graph_value_elements(out, sizes);
}

/* ---- the table ---- */

static const struct op_kind_info kinds[OP_KIND_COUNT] = {
    [OP_EMBED] = {.name = "embed", /* ids */
                  .min_inputs = 1,
                  .max_inputs = 1,
                  .max_weights = 1,
                  .weight_use = {WEIGHT_ROWS},
                  .shares = OP_NO_INPUT,
                  .shape = embed_shape,
                  .weight_bytes_read = embed_bytes_read},
    [OP_ROWS] = {.name = "rows", /* x, indices */
                 .min_inputs = 2,
                 .max_inputs = 2,
                 .shares = OP_NO_INPUT,
                 .shape = rows_shape},
    [OP_RMS_NORM] = {.name = "norm", /* x */
                     .min_inputs = 1,
                     .max_inputs = 1,
                     .max_weights = 1,
                     .weight_use = {WEIGHT_VECTOR},
                     .shares = OP_NO_INPUT,
                     .shape = same_shape},
    [OP_LAYER_NORM] = {.name = "layer_norm", /* x */
                       .min_inputs = 1,
                       .max_inputs = 1,
                       .max_weights = 2,
                       .weight_use = {WEIGHT_VECTOR, WEIGHT_VECTOR},
                       .shares = OP_NO_INPUT,
                       .shape = same_shape},
    [OP_MATMUL] = {.name = "matmul", /* x, and what the product is added to */
                   .min_inputs = 1,
                   .max_inputs = 2,
                   .max_weights = 2,
                   .weight_use = {WEIGHT_MATMUL, WEIGHT_VECTOR},
                   .shares = 1,
                   .shape = matmul_shape,
                   .flops = matmul_flops},
    [OP_ROPE_ANGLES] = {.name = "rope_angles", /* positions */
                        .min_inputs = 1,
                        .max_inputs = 1,
                        .shares = OP_NO_INPUT,
                        .shape = angles_shape},
    [OP_ROPE] = {.name = "rope", /* x, angles */
                 .min_inputs = 2,
                 .max_inputs = 2,
                 .shares = 0,
                 .shape = same_shape},
    [OP_ATTENTION] = {.name = "attention", /* q, k, and v where it is no part of k */
                      .min_inputs = 2,
                      .max_inputs = 3,
                      .max_weights = 1, /* sinks: a score of each head that no value stands for */
                      .weight_use = {WEIGHT_VECTOR},
                      .shares = OP_NO_INPUT,
                      .shape = attention_shape,
                      .state_bytes_per_token = attention_state_bytes},
    [OP_SILU_MUL] = {.name = "silu_mul", /* gate, up */
                     .min_inputs = 2,
                     .max_inputs = 2,
                     .shares = 0,
                     .shape = same_shape},
    [OP_GELU] = {.name = "gelu", /* x */
                 .min_inputs = 1,
                 .max_inputs = 1,
                 .shares = 0,
                 .shape = same_shape},
    [OP_ADD] = {.name = "add", /* two of one shape */
                .min_inputs = 2,
                .max_inputs = 2,
                .shares = 0,
                .shape = same_shape},
    [OP_MUL] = {.name = "mul", /* two of one shape */
                .min_inputs = 2,
                .max_inputs = 2,
                .shares = 0,
                .shape = same_shape},
    [OP_SCALE] = {.name = "scale", /* x */
                  .min_inputs = 1,
                  .max_inputs = 1,
                  .shares = 0,
                  .shape = same_shape},
    [OP_SOFT_CAP] = {.name = "soft_cap", /* x */
                     .min_inputs = 1,
                     .max_inputs = 1,
                     .shares = 0,
                     .shape = same_shape},
    [OP_ROUTE] = {.name = "route", /* scores of all experts */
                  .min_inputs = 1,
                  .max_inputs = 1,
                  .shares = OP_NO_INPUT,
                  .exact = true, /* numbers of experts */
                  .shape = route_shape},
    [OP_EXPERT_MATMUL] = {.name = "expert_matmul", /* x, route */
                          .min_inputs = 2,
                          .max_inputs = 2,
                          .max_weights = 2,
                          .weight_use = {WEIGHT_MATMUL, WEIGHT_VECTOR},
                          .shares = OP_NO_INPUT,
                          .shape = expert_matmul_shape,
                          .flops = expert_matmul_flops,
                          .weight_bytes_read = expert_bytes_read},
    [OP_HEAD_MATMUL] = {.name = "head_matmul", /* x */
                        .min_inputs = 1,
                        .max_inputs = 1,
                        .max_weights = 1,
                        .weight_use = {WEIGHT_MATMUL},
                        .shares = OP_NO_INPUT,
                        .shape = head_matmul_shape,
                        .flops = head_matmul_flops},
    [OP_JOIN_HEADS] = {.name = "join_heads", /* two with heads of their own size */
                       .min_inputs = 2,
                       .max_inputs = 2,
                       .shares = OP_NO_INPUT,
                       .shape = join_heads_shape},
    [OP_EXPERT_SUM] = {.name = "expert_sum", /* x, route, and what the sum is added to */
                       .min_inputs = 2,
                       .max_inputs = 3,
                       .shares = 2,
                       .shape = expert_sum_shape},
    [OP_GATE_ROWS] = {.name = "gate_rows", /* x, gate */
                      .min_inputs = 2,
                      .max_inputs = 2,
                      .shares = 0,
                      .shape = same_shape},
    [OP_CLAMPED_SWIGLU] = {.name = "clamped_swiglu", /* gate, up; or both by turns */
                           .min_inputs = 1,
                           .max_inputs = 2,
                           .shares = OP_NO_INPUT,
                           .shape = swiglu_shape},
    [OP_SLICE] = {.name = "slice", /* x */
                  .min_inputs = 1,
                  .max_inputs = 1,
                  .shares = OP_NO_INPUT,
                  .is_view = true,
                  .shape = slice_shape},
};

const struct op_kind_info *op_kind_info(enum op_kind kind)
{
    assert((unsigned)kind < OP_KIND_COUNT);
    return &kinds[kind];
}

enum weight_use graph_op_weight_use(const struct graph_op *op, int weight)
{
    enum weight_use use = op_kind_info(op->kind)->weight_use[weight];
    if (op->kind == OP_MATMUL && use == WEIGHT_MATMUL && op->u.matmul.turned)
        return WEIGHT_MATMUL_TURNED;
    if (op->kind == OP_HEAD_MATMUL && op->u.heads.turned)
        return WEIGHT_MATMUL_TURNED;
    if (op->kind == OP_EXPERT_MATMUL && use == WEIGHT_MATMUL && op->u.experts.turned)
        return WEIGHT_MATMUL_TURNED;
    return op->kind == OP_RMS_NORM && op->u.norm.one_more ? WEIGHT_VECTOR_OF_ONE : use;
}

double graph_op_flops(const struct graph *g, const struct graph_op *op, const uint64_t *sizes)
{
    const struct op_kind_info *k = op_kind_info(op->kind);
    return k->flops ? k->flops(g, op, sizes) : 0;
}

uint64_t graph_op_weight_bytes(const struct graph *g, const struct graph_op *op,
                               const uint64_t *sizes)
{
    const struct op_kind_info *k = op_kind_info(op->kind);
    uint64_t bytes = 0;
    if (k->weight_bytes_read)
        return k->weight_bytes_read(g, op, sizes);
    for (int i = 0; i < op->n_weights; i++)
        bytes += op->weights[i] ? op->weights[i]->bytes : 0;
    return bytes;
}

/* ---- values ---- */

static uint64_t dim_size(struct graph_dim d, const uint64_t *sizes)
{
    return d.size ? d.size : sizes[d.symbol];
}

uint64_t graph_value_elements(const struct graph_value *v, const uint64_t *sizes)
{
    uint64_t n = 1;
    for (int i = 0; i < v->n_dims; i++)
        n *= dim_size(v->dims[i], sizes);
    return n;
}

uint64_t graph_value_bytes(const struct graph_value *v, const uint64_t *sizes)
{
    const struct dtype_info *t = dtype_info(v->dtype);
    return graph_value_elements(v, sizes) / t->block_elements * t->block_bytes;
}

uint64_t graph_value_width(const struct graph_value *v)
{
    uint64_t n = 1;
    for (int i = 1; i < v->n_dims; i++)
        n *= v->dims[i].size;
    return n;
}

uint64_t graph_border_width(const struct graph *g, int layer)
{
    const struct graph_layer *l = &g->layers[layer];
    uint64_t width = 0;
    for (int i = 0; i < l->n_outputs; i++)
        width += graph_value_width(&g->values[l->outputs[i]]);
    return width;
}

uint64_t graph_border_exact(const struct graph *g, int layer)
{
    const struct graph_layer *l = &g->layers[layer];
    uint64_t width = 0;
    for (int i = 0; i < l->n_outputs; i++)
        width += g->values[l->outputs[i]].exact ? graph_value_width(&g->values[l->outputs[i]]) : 0;
    return width;
}

enum dtype graph_value_border(const struct graph_value *v, enum dtype border)
{
    return v->exact ? DTYPE_F32 : border;
}

uint64_t graph_border_bytes(const struct graph *g, int layer, enum dtype border, uint64_t tokens)
{
    uint64_t exact = graph_border_exact(g, layer), others = graph_border_width(g, layer) - exact;
    return dtype_bytes(border, tokens * others) + dtype_bytes(DTYPE_F32, tokens * exact);
}

static struct profile_part layer_part(const struct graph *g, int layer, int whole)
{
    const struct graph_layer *l = &g->layers[layer];
    struct profile_part part = {whole, l->class_name, 1, 1};
    if (!l->whole_class)
        return part;
    int first = layer - l->part, end = first + l->n_parts;
    double bytes = 0, hands_on = (double)g->layers[end - 1].output_bytes_per_token;
    for (int i = first; i < end; i++)
        bytes += (double)g->layers[i].param_bytes;
    part.class_name = l->whole_class;
    part.share = bytes > 0 ? (double)l->param_bytes / bytes : 1;
    part.crosses = hands_on > 0 ? (double)l->output_bytes_per_token / hands_on : 1;
    return part;
}

void graph_parts_list(const struct graph *g, struct profile_part *out)
{
    for (int i = 0, whole = -1; i < g->n_layers; i++) {
        whole += g->layers[i].part == 0;
        out[i] = layer_part(g, i, whole);
    }
}

uint64_t graph_head_width(const struct graph *g)
{
    return graph_border_width(g, g->n_layers - 1);
}

bool graph_is_whole(const struct graph *g)
{
    for (int i = 0; i < g->n_ops; i++)
        if (g->ops[i].kind == OP_ATTENTION && g->ops[i].u.attention.whole)
            return true;
    return false;
}
