/* GPT-2: learned positions, layer norm, GELU, fused q/k/v. */
#include "model/graph/builder.h"

static int gpt2_embed(struct graph_builder *b)
{
    const struct model_config *c = &b->facts->config;
    graph_layer_begin(b, -1, "embed");
    int token = graph_embed(b, graph_ids(b), "token_embd", c->vocabulary, c->width);
    int place = graph_embed(b, graph_positions(b), "position_embd", c->context, c->width);
    return graph_add(b, token, place);
}

static int gpt2_attention(struct graph_builder *b, int block, int x)
{
    int width = b->facts->config.width;
    graph_layer_begin(b, block, "attn");
    int normed = graph_layer_norm(b, x, "attn_norm");
    int qkv = graph_matmul(b, normed, "attn_qkv", 3 * width, BIAS_ALWAYS);
    int q = graph_slice(b, qkv, 0, width);
    int k = graph_slice(b, qkv, width, width);
    int v = graph_slice(b, qkv, 2 * width, width);
    int mixed = graph_attention(b, q, k, v, NULL);
    return graph_matmul_add(b, mixed, "attn_output", BIAS_ALWAYS, x);
}

static int gpt2_mlp(struct graph_builder *b, int block, int x)
{
    graph_layer_begin(b, block, "mlp");
    int normed = graph_layer_norm(b, x, "ffn_norm");
    int up = graph_matmul(b, normed, "ffn_up", b->facts->config.mlp_width, BIAS_ALWAYS);
    return graph_matmul_add(b, graph_gelu(b, up), "ffn_down", BIAS_ALWAYS, x);
}

static void gpt2_build(struct graph_builder *b)
{
    int x = gpt2_embed(b);
    for (int block = 0; block < b->facts->config.n_blocks; block++) {
        x = gpt2_attention(b, block, x);
        x = gpt2_mlp(b, block, x);
    }
    graph_layer_begin(b, -1, "head");
    x = graph_rows(b, x, graph_wanted(b));
    x = graph_layer_norm(b, x, "output_norm");
    if (b->facts->config.pooling == POOLING_NONE)
        x = graph_logits(b, x, "output", "token_embd");
    graph_output(b, x);
}

static const struct weight_name names[] = {
    {{"token_embd", "transformer.wte"}},
    {{"position_embd", "transformer.wpe"}},
    {{"attn_norm", "ln_1"}},
    {{"attn_qkv", "attn.c_attn"}},
    {{"attn_output", "attn.c_proj"}},
    {{"ffn_norm", "ln_2"}},
    {{"ffn_up", "mlp.c_fc"}},
    {{"ffn_down", "mlp.c_proj"}},
    {{"output_norm", "transformer.ln_f"}},
    {{"output", "lm_head"}},
    {{NULL}},
};

/* The causal mask, which the first exports carry. */
static const char *const unneeded_hub[] = {".attn.bias", ".attn.masked_bias", NULL};

static const struct hub_keys keys = {.width = "n_embd",
                                     .blocks = "n_layer",
                                     .heads = "n_head",
                                     .kv_heads = "n_head",
                                     .mlp_width = "n_inner",
                                     .context = "n_positions",
                                     .epsilon = "layer_norm_epsilon",
                                     .activation = "activation_function",
                                     .activations = {"gelu_new", "gelu_pytorch_tanh"},
                                     .default_mlp = 4,
                                     .default_epsilon = 1e-5};

const struct family family_gpt2 = {.name = "gpt2",
                                   .form_name = {"gpt2", "gpt2"},
                                   .block_prefix = {"blk.", "transformer.h."},
                                   .optional_prefix = {NULL, "transformer."},
                                   .names = names,
                                   .rope = {ROPE_NONE, ROPE_NONE},
                                   .turned = {false, true},
                                   .epsilon_key = "attention.layer_norm_epsilon",
                                   .hub = &keys,
                                   .unneeded = {NULL, unneeded_hub},
                                   .default_context = 1024,
                                   .default_tied = true,
                                   .build = gpt2_build};
