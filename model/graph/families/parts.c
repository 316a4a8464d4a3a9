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

const struct weight_name weight_names_usual[] = {
    {{"token_embd", "model.embed_tokens"}},
    {{"attn_norm", "input_layernorm"}},
    {{"attn_q", "self_attn.q_proj"}},
    {{"attn_k", "self_attn.k_proj"}},
    {{"attn_v", "self_attn.v_proj"}},
    {{"attn_q_norm", "self_attn.q_norm"}},
    {{"attn_k_norm", "self_attn.k_norm"}},
    {{"attn_output", "self_attn.o_proj"}},
    {{"ffn_norm", "post_attention_layernorm"}},
    {{"ffn_gate", "mlp.gate_proj"}},
    {{"ffn_up", "mlp.up_proj"}},
    {{"ffn_down", "mlp.down_proj"}},
    {{"ffn_gate_inp", "mlp.gate"}},
    {{"ffn_gate_exps", "mlp.experts.*.gate_proj"}},
    {{"ffn_up_exps", "mlp.experts.*.up_proj"}},
    {{"ffn_down_exps", "mlp.experts.*.down_proj"}},
    {{"ffn_gate_inp_shexp", "mlp.shared_expert_gate"}},
    {{"ffn_gate_shexp", "mlp.shared_expert.gate_proj"}},
    {{"ffn_up_shexp", "mlp.shared_expert.up_proj"}},
    {{"ffn_down_shexp", "mlp.shared_expert.down_proj"}},
    {{"output_norm", "model.norm"}},
    {{"output", "lm_head"}},
    {{NULL}},
};

struct part_angles part_angles(struct graph_builder *b)
{
    const struct model_config *c = &b->facts->config;
    int positions = graph_positions(b), global = graph_rope_angles(b, positions, &c->rope);
    return (struct part_angles){
        global, c->has_window_rope ? graph_rope_angles(b, positions, &c->window_rope) : global};
}

int part_angles_of(const struct graph_builder *b, const struct part_angles *a, int block)
{
    const uint32_t *windows = b->facts->config.windows;
    return windows && windows[block] ? a->window : a->global;
}

int part_embed(struct graph_builder *b)
{
    const struct model_config *c = &b->facts->config;
    graph_layer_begin(b, -1, "embed");
    int x = graph_embed(b, graph_ids(b), "token_embd", c->vocabulary, c->width);
    return graph_scale(b, x, c->embedding_scale);
}

/* x plus the product, times the config's factor for residuals. */
static int residual_add(struct graph_builder *b, int in, const char *weight, enum bias_policy bias,
                        int x)
{
    const struct model_config *c = &b->facts->config;
    if (c->residual_scale == 0)
        return graph_matmul_add(b, in, weight, bias, x);
    int out = graph_matmul(b, in, weight, c->width, bias);
    return graph_add(b, graph_scale(b, out, c->residual_scale), x);
}

int part_attention_mixed(struct graph_builder *b, int normed, int angles,
                         const struct part_attention *how)
{
    const struct model_config *c = &b->facts->config;
    int q_width = c->n_heads * c->head_dim, kv_width = c->n_kv_heads * c->head_dim;
    int q = graph_matmul(b, normed, "attn_q", q_width, how->qkv_bias);
    int k = graph_matmul(b, normed, "attn_k", kv_width, how->qkv_bias);
    int v = graph_matmul(b, normed, "attn_v", kv_width, how->qkv_bias);
    if (how->head_norms) {
        q = graph_head_norm(b, q, "attn_q_norm");
        k = graph_head_norm(b, k, "attn_k_norm");
    }
    q = graph_rope(b, q, angles);
    k = graph_rope(b, k, angles);
    return graph_attention(b, q, k, v, how->sinks);
}

/* Layer `attn`: norm, attention, output, residual. */
static int rotary_attention(struct graph_builder *b, int block, int x, int angles,
                            const struct part_attention *how)
{
    graph_layer_begin(b, block, "attn");
    int normed = graph_rms_norm(b, x, "attn_norm");
    int mixed = part_attention_mixed(b, normed, angles, how);
    return residual_add(b, mixed, "attn_output", how->output_bias, x);
}

int part_gated_mlp(struct graph_builder *b, int block, int x, enum bias_policy bias)
{
    int width = b->facts->config.mlp_width;
    graph_layer_begin(b, block, "mlp");
    int normed = graph_rms_norm(b, x, "ffn_norm");
    int gate = graph_matmul(b, normed, "ffn_gate", width, bias);
    int up = graph_matmul(b, normed, "ffn_up", width, bias);
    int gated = graph_silu_mul(b, gate, up);
    return residual_add(b, gated, "ffn_down", bias, x);
}

void part_head(struct graph_builder *b, int x)
{
    const struct model_config *c = &b->facts->config;
    graph_layer_begin(b, -1, "head");
    x = graph_rows(b, x, graph_wanted(b));
    x = graph_rms_norm(b, x, "output_norm");
    if (c->pooling == POOLING_NONE) {
        x = graph_scale(b, graph_logits(b, x, "output", "token_embd"), c->logit_scale);
        x = graph_soft_cap(b, x, c->logit_cap);
    }
    graph_output(b, x);
}

void part_decoder(struct graph_builder *b, const struct part_decoder *how)
{
    struct part_angles angles = part_angles(b);
    int x = part_embed(b);
    for (int block = 0; block < b->facts->config.n_blocks; block++) {
        x = rotary_attention(b, block, x, part_angles_of(b, &angles, block), &how->attention);
        x = how->mlp ? how->mlp(b, block, x) : part_gated_mlp(b, block, x, how->mlp_bias);
    }
    part_head(b, x);
}
