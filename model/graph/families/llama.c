/* LLaMA 1 to 3, and Mistral, which differs in defaults alone. */
#include "model/graph/families/parts.h"

static int llama_attention(struct graph_builder *b, int block, int x, int angles)
{
    const struct model_config *c = &b->facts->config;
    enum bias_policy bias = b->facts->bias[BIAS_GROUP_ATTENTION];
    int q_width = c->n_heads * c->head_dim, kv_width = c->n_kv_heads * c->head_dim;
    graph_layer_begin(b, block, "attn");
    int normed = graph_rms_norm(b, x, "attn_norm");
    int q = graph_matmul(b, normed, "attn_q", q_width, bias);
    int k = graph_matmul(b, normed, "attn_k", kv_width, bias);
    int v = graph_matmul(b, normed, "attn_v", kv_width, bias);
    q = graph_rope(b, q, angles);
    k = graph_rope(b, k, angles);
    int mixed = graph_attention(b, q, k, v);
    return graph_matmul_add(b, mixed, "attn_output", bias, x);
}

static void llama_build(struct graph_builder *b)
{
    int angles = graph_rope_angles(b, graph_positions(b));
    int x = part_embed(b);
    for (int block = 0; block < b->facts->config.n_blocks; block++) {
        x = llama_attention(b, block, x, angles);
        x = part_gated_mlp(b, block, x, b->facts->bias[BIAS_GROUP_MLP]);
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

/* Old exports carry the rotation's frequencies; they follow from the config. GGUF's
 * rope_freqs.weight is read with the config. */
static const char *const unneeded_hub[] = {".rotary_emb.inv_freq", NULL};

#define LLAMA                                                                                      \
    .block_prefix = {"blk.", "model.layers."}, .names = names, .rope = {ROPE_PAIRS, ROPE_HALVES},  \
    .unneeded = {NULL, unneeded_hub}, .epsilon_key = "attention.layer_norm_rms_epsilon",           \
    .hub = &hub_keys_usual, .build = llama_build

const struct family family_llama = {
    .name = "llama", .form_name = {"llama", "llama"}, LLAMA, .default_context = 2048};

/* In GGUF a Mistral calls itself llama. */
const struct family family_mistral = {.name = "mistral",
                                      .form_name = {NULL, "mistral"},
                                      LLAMA,
                                      .default_context = 131072,
                                      .default_kv_heads = 8,
                                      .default_window = 4096};
