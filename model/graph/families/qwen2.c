/* Qwen2: a LLaMA whose q, k and v have biases. */
#include "model/graph/families/parts.h"

static int qwen2_attention(struct graph_builder *b, int block, int x, int angles)
{
    const struct model_config *c = &b->facts->config;
    int q_width = c->n_heads * c->head_dim, kv_width = c->n_kv_heads * c->head_dim;
    graph_layer_begin(b, block, "attn");
    int normed = graph_rms_norm(b, x, "attn_norm");
    int q = graph_matmul(b, normed, "attn_q", q_width, BIAS_ALWAYS);
    int k = graph_matmul(b, normed, "attn_k", kv_width, BIAS_ALWAYS);
    int v = graph_matmul(b, normed, "attn_v", kv_width, BIAS_ALWAYS);
    q = graph_rope(b, q, angles);
    k = graph_rope(b, k, angles);
    int mixed = graph_attention(b, q, k, v);
    return graph_matmul_add(b, mixed, "attn_output", BIAS_NEVER, x);
}

static void qwen2_build(struct graph_builder *b)
{
    int angles = graph_rope_angles(b, graph_positions(b));
    int x = part_embed(b);
    for (int block = 0; block < b->facts->config.n_blocks; block++) {
        x = qwen2_attention(b, block, x, angles);
        x = part_gated_mlp(b, block, x, BIAS_NEVER);
    }
    part_head(b, x);
}

static const struct weight_name names[] = {
    {{"token_embd", "model.embed_tokens"}},
    {{"attn_norm", "input_layernorm"}},
    {{"attn_q", "self_attn.q_proj"}},
    {{"attn_k", "self_attn.k_proj"}},
    {{"attn_v", "self_attn.v_proj"}},
    {{"attn_output", "self_attn.o_proj"}},
    {{"ffn_norm", "post_attention_layernorm"}},
    {{"ffn_gate", "mlp.gate_proj"}},
    {{"ffn_up", "mlp.up_proj"}},
    {{"ffn_down", "mlp.down_proj"}},
    {{"output_norm", "model.norm"}},
    {{"output", "lm_head"}},
    {{NULL}},
};

const struct family family_qwen2 = {.name = "qwen2",
                                    .form_name = {"qwen2", "qwen2"},
                                    .block_prefix = {"blk.", "model.layers."},
                                    .names = names,
                                    .rope = {ROPE_HALVES, ROPE_HALVES},
                                    .epsilon_key = "attention.layer_norm_rms_epsilon",
                                    .hub = &hub_keys_usual,
                                    .default_context = 32768,
                                    .default_kv_heads = 32,
                                    .default_window = 4096,
                                    .window_switched = true,
                                    .default_window_blocks = 28,
                                    .build = qwen2_build};
