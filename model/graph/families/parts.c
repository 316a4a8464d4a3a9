#include "model/graph/families/parts.h"

const struct hub_keys hub_keys_usual = {.width = "hidden_size",
                                        .blocks = "num_hidden_layers",
                                        .heads = "num_attention_heads",
                                        .kv_heads = "num_key_value_heads",
                                        .mlp_width = "intermediate_size",
                                        .context = "max_position_embeddings",
                                        .epsilon = "rms_norm_eps",
                                        .activation = "hidden_act",
                                        .activations = {"silu", "swish"},
                                        .default_epsilon = 1e-6};

int part_embed(struct graph_builder *b)
{
    const struct model_config *c = &b->facts->config;
    graph_layer_begin(b, -1, "embed");
    return graph_embed(b, graph_ids(b), "token_embd", c->vocabulary, c->width);
}

int part_gated_mlp(struct graph_builder *b, int block, int x, enum bias_policy bias)
{
    int width = b->facts->config.mlp_width;
    graph_layer_begin(b, block, "mlp");
    int normed = graph_rms_norm(b, x, "ffn_norm");
    int gate = graph_matmul(b, normed, "ffn_gate", width, bias);
    int up = graph_matmul(b, normed, "ffn_up", width, bias);
    int gated = graph_silu_mul(b, gate, up);
    return graph_matmul_add(b, gated, "ffn_down", bias, x);
}

void part_head(struct graph_builder *b, int x)
{
    graph_layer_begin(b, -1, "head");
    x = graph_rows(b, x, graph_wanted(b));
    x = graph_rms_norm(b, x, "output_norm");
    graph_output(b, graph_logits(b, x, "output", "token_embd"));
}
