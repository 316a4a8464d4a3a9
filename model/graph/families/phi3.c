/* Phi-3: q, k and v in one matrix, gate and up in another; a part of each head rotates, and long
 * sequences rotate by factors of their own. */
#include "model/graph/families/parts.h"

/* A GGUF file whose context goes beyond the original one has factors for long sequences. */
static int phi3_facts(const struct facts_source *s, struct family_facts *f)
{
    const struct model_config *c = &f->config;
    const struct facts_key original = {"rope.scaling.original_context_length", NULL};
    int context;
    int rc = facts_count(s, original, c->context, &context);
    if (rc < 0 || context >= c->context || c->rope.long_factors || c->rope.yarn ||
        c->rope.scale != 1)
        return rc;
    err_set(s->e, HP_EPARSE, "%s: tensor rope_factors_long.weight is missing", s->file);
    err_hint(s->e,
             "without it positions from %d on would rotate otherwise: fetch the file again, "
             "or convert the model anew",
             context);
    return HP_EPARSE;
}

static int phi3_attention(struct graph_builder *b, int block, int x, int angles)
{
    const struct model_config *c = &b->facts->config;
    int q_width = c->n_heads * c->head_dim, kv_width = c->n_kv_heads * c->head_dim;
    graph_layer_begin(b, block, "attn");
    int normed = graph_rms_norm(b, x, "attn_norm");
    int qkv = graph_matmul(b, normed, "attn_qkv", q_width + 2 * kv_width, BIAS_NEVER);
    int q = graph_rope(b, graph_slice(b, qkv, 0, q_width), angles);
    int k = graph_rope(b, graph_slice(b, qkv, q_width, kv_width), angles);
    int v = graph_slice(b, qkv, q_width + kv_width, kv_width);
    int mixed = graph_attention(b, q, k, v, NULL);
    return graph_matmul_add(b, mixed, "attn_output", BIAS_NEVER, x);
}

static int phi3_mlp(struct graph_builder *b, int block, int x)
{
    int width = b->facts->config.mlp_width;
    graph_layer_begin(b, block, "mlp");
    int normed = graph_rms_norm(b, x, "ffn_norm");
    int both = graph_matmul(b, normed, "ffn_up", 2 * width, BIAS_NEVER);
    int gated =
        graph_silu_mul(b, graph_slice(b, both, 0, width), graph_slice(b, both, width, width));
    return graph_matmul_add(b, gated, "ffn_down", BIAS_NEVER, x);
}

static void phi3_build(struct graph_builder *b)
{
    struct part_angles angles = part_angles(b);
    int x = part_embed(b);
    for (int block = 0; block < b->facts->config.n_blocks; block++) {
        x = phi3_attention(b, block, x, angles.global);
        x = phi3_mlp(b, block, x);
    }
    part_head(b, x);
}

static const struct weight_name names[] = {
    {{"token_embd", "model.embed_tokens"}},
    {{"attn_norm", "input_layernorm"}},
    {{"attn_qkv", "self_attn.qkv_proj"}},
    {{"attn_output", "self_attn.o_proj"}},
    {{"ffn_norm", "post_attention_layernorm"}},
    {{"ffn_up", "mlp.gate_up_proj"}},
    {{"ffn_down", "mlp.down_proj"}},
    {{"output_norm", "model.norm"}},
    {{"output", "lm_head"}},
    {{NULL}},
};

/* Marks of turns swallow the white space behind them. */
static const char *const keeping_marks[] = {"<unk>", "<s>", "<|endoftext|>", NULL};

const struct family family_phi3 = {.name = "phi3",
                                   .form_name = {"phi3", "phi3"},
                                   .block_prefix = {"blk.", "model.layers."},
                                   .optional_prefix = {NULL, "model."},
                                   .names = names,
                                   .rope = {ROPE_HALVES, ROPE_HALVES},
                                   .epsilon_key = "attention.layer_norm_rms_epsilon",
                                   .hub = &hub_keys_usual,
                                   .keeping_marks = keeping_marks,
                                   .default_context = 4096,
                                   .default_window = MODEL_CONTEXT_MAX,
                                   .facts = phi3_facts,
                                   .build = phi3_build};
