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
    {{"attn_output", "self_attn.o_proj"}},
    {{"ffn_norm", "post_attention_layernorm"}},
    {{"ffn_gate", "mlp.gate_proj"}},
    {{"ffn_up", "mlp.up_proj"}},
    {{"ffn_down", "mlp.down_proj"}},
    {{"output_norm", "model.norm"}},
    {{"output", "lm_head"}},
    {{NULL}},
};

/* Layer `embed`: rows of the embedding by token ids. */
static int token_embed(struct graph_builder *b)
{
    const struct model_config *c = &b->facts->config;
    graph_layer_begin(b, -1, "embed");
    return graph_embed(b, graph_ids(b), "token_embd", c->vocabulary, c->width);
}

/* Layer `attn`. */
static int rotary_attention(struct graph_builder *b, int block, int x, int angles,
                            const struct part_biases *bias)
{
    const struct model_config *c = &b->facts->config;
    int q_width = c->n_heads * c->head_dim, kv_width = c->n_kv_heads * c->head_dim;
    graph_layer_begin(b, block, "attn");
    int normed = graph_rms_norm(b, x, "attn_norm");
    int q = graph_matmul(b, normed, "attn_q", q_width, bias->qkv);
    int k = graph_matmul(b, normed, "attn_k", kv_width, bias->qkv);
    int v = graph_matmul(b, normed, "attn_v", kv_width, bias->qkv);
    q = graph_rope(b, q, angles);
    k = graph_rope(b, k, angles);
    int mixed = graph_attention(b, q, k, v);
    return graph_matmul_add(b, mixed, "attn_output", bias->output, x);
}

/* Layer `mlp`: norm, silu(gate) * up, down, residual. */
static int gated_mlp(struct graph_builder *b, int block, int x, enum bias_policy bias)
{
    int width = b->facts->config.mlp_width;
    graph_layer_begin(b, block, "mlp");
    int normed = graph_rms_norm(b, x, "ffn_norm");
    int gate = graph_matmul(b, normed, "ffn_gate", width, bias);
    int up = graph_matmul(b, normed, "ffn_up", width, bias);
    int gated = graph_silu_mul(b, gate, up);
    return graph_matmul_add(b, gated, "ffn_down", bias, x);
}

/* Layer `head`: the rows that are wanted, RMS norm, vocabulary. */
static void rms_head(struct graph_builder *b, int x)
{
    graph_layer_begin(b, -1, "head");
    x = graph_rows(b, x, graph_wanted(b));
    x = graph_rms_norm(b, x, "output_norm");
    graph_output(b, graph_logits(b, x, "output", "token_embd"));
}

void part_decoder(struct graph_builder *b, const struct part_biases *bias)
{
    int angles = graph_rope_angles(b, graph_positions(b));
    int x = token_embed(b);
    for (int block = 0; block < b->facts->config.n_blocks; block++) {
        x = rotary_attention(b, block, x, angles, bias);
        x = gated_mlp(b, block, x, bias->mlp);
    }
    rms_head(b, x);
}
