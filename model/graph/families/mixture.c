/* Blocks whose MLP is a mixture of experts. */
#include <stdio.h>

#include "model/graph/families/parts.h"

int part_experts_read(const struct facts_source *s, const struct part_expert_keys *hub,
                      struct model_config *c)
{
    struct expert_config *x = &c->experts;
    const struct facts_key count = {"expert_count", hub->n},
                           used = {"expert_used_count", hub->used};
    int rc = facts_count(s, count, 0, &x->n);
    if (rc < 0 || x->n == 0)
        return rc;
    rc = facts_count(s, used, -1, &x->used);
    rc = rc < 0 ? rc
                : facts_count(s, (struct facts_key){"expert_feed_forward_length", hub->width},
                              c->mlp_width, &x->width);
    rc = rc < 0 ? rc
                : facts_count(
                      s, (struct facts_key){"expert_shared_feed_forward_length", hub->shared_width},
                      0, &x->shared_width);
    rc = rc < 0 ? rc
                : facts_number(s, (struct facts_key){"expert_weights_scale", NULL}, 0, &x->scale);
    if (rc == 0 && (x->n > MODEL_EXPERTS_MAX || x->used < 1 || x->used > x->n ||
                    x->used > MODEL_EXPERTS_USED_MAX))
        return err_set(s->e, HP_EPARSE,
                       "%s: %d of %d experts for each token: 1 to %d of at most %d are known",
                       s->file, x->used, x->n, MODEL_EXPERTS_USED_MAX, MODEL_EXPERTS_MAX);
    if (rc == 0 &&
        (x->width < 1 || x->width > MODEL_DIMENSION_MAX / x->used ||
         c->width > MODEL_DIMENSION_MAX / x->used || x->shared_width > MODEL_DIMENSION_MAX))
        return err_set(s->e, HP_EPARSE, "%s: experts of width %d, a shared one of width %d",
                       s->file, x->width, x->shared_width);
    return rc;
}

void part_dense_find(const struct facts_source *s, int blocks, bool *dense)
{
    for (int i = 0; i < blocks; i++) {
        char router[64], matrix[64];
        snprintf(router, sizeof router, "blk.%d.ffn_gate_inp.weight", i);
        snprintf(matrix, sizeof matrix, "blk.%d.ffn_gate.weight", i);
        dense[i] = !weight_table_find(s->weights, router) && weight_table_find(s->weights, matrix);
    }
}

/* What the expert makes of each row that every token takes. */
static int shared_expert(struct graph_builder *b, int normed, const char *gate_weight)
{
    const struct model_config *c = &b->facts->config;
    int width = c->experts.shared_width;
    int gate = graph_matmul(b, normed, "ffn_gate_shexp", width, BIAS_NEVER);
    int up = graph_matmul(b, normed, "ffn_up_shexp", width, BIAS_NEVER);
    int out = graph_matmul(b, graph_silu_mul(b, gate, up), "ffn_down_shexp", c->width, BIAS_NEVER);
    if (!gate_weight)
        return out;
    return graph_gate_rows(b, out, graph_matmul(b, normed, gate_weight, 1, BIAS_NEVER));
}

int part_experts(struct graph_builder *b, int block, struct part_mixed in, int to,
                 int (*make)(struct graph_builder *b, struct part_mixed in))
{
    int groups = graph_expert_groups(b);
    for (int g = 0; g < groups; g++) {
        if (g > 0)
            graph_layer_part_begin(b, block, "moe", g, groups);
        graph_expert_group_begin(b, g);
        to = graph_expert_sum(b, make(b, in), in.route, to);
    }
    return to;
}

/* down * (silu(gate) * up), of each expert that a row takes. */
static int gated_experts(struct graph_builder *b, struct part_mixed in)
{
    const struct model_config *c = &b->facts->config;
    struct expert_shape up_shape = {c->width, c->experts.width},
                        down_shape = {c->experts.width, c->width};
    int gate = graph_expert_matmul(b, in.normed, in.route, "ffn_gate_exps", up_shape, NULL);
    int up = graph_expert_matmul(b, in.normed, in.route, "ffn_up_exps", up_shape, NULL);
    return graph_expert_matmul(b, graph_silu_mul(b, gate, up), in.route, "ffn_down_exps",
                               down_shape, NULL);
}

int part_mixture(struct graph_builder *b, int block, int x, const char *shared_gate)
{
    const struct model_config *c = &b->facts->config;
    if (c->experts.dense && c->experts.dense[block])
        return part_gated_mlp(b, block, x, BIAS_NEVER);
    graph_layer_part_begin(b, block, "moe", 0, graph_expert_groups(b));
    int normed = graph_rms_norm(b, x, "ffn_norm");
    int scores = graph_matmul(b, normed, "ffn_gate_inp", c->experts.n, BIAS_NEVER);
    int route = graph_route(b, scores);
    if (c->experts.shared_width > 0)
        x = graph_add(b, shared_expert(b, normed, shared_gate), x);
    return part_experts(b, block, (struct part_mixed){normed, route}, x, gated_experts);
}
