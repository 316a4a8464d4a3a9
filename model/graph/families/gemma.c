/* Gemma 2 and 3: norms before and after each part, a GELU gate, a scaled embedding; soft caps and
 * windows in every other block (2), norms of q and k and five windows to one global block (3). */
#include <math.h>

#include "model/graph/facts_source.h"
#include "model/graph/families/parts.h"

/* GGUF's usual keys have no place for what the largest ones divide scores by: the size of a head in
 * the width. */
static int score_divisor_get(const struct facts_source *s, struct model_config *c,
                             int largest_blocks)
{
    float divisor, scale = 0;
    int usual = s->form == FORM_GGUF && c->n_blocks == largest_blocks && c->n_heads > 0
                    ? c->width / c->n_heads
                    : c->head_dim;
    const struct facts_key key = {NULL, "query_pre_attn_scalar"};
    int rc = facts_number(s, key, usual, &divisor);
    if (rc == 0 && !(divisor > 0))
        return facts_refuse(s, key, "no scores follow from it");
    c->embedding_scale = sqrtf((float)c->width);
    rc = rc < 0 ? rc : facts_number(s, (struct facts_key){"attention.scale", NULL}, 0, &scale);
    c->score_scale = scale > 0 ? scale : 1 / sqrtf(divisor);
    return rc;
}

/* A null of config.json is no cap; a missing key is the family's usual one. */
static int cap_get(const struct facts_source *s, const char *key, double usual, float *out)
{
    bool none = s->form == FORM_HUB && json_is_null(json_object_get(s->config->value, key));
    return facts_number(s, (struct facts_key){key, key}, none ? 0 : usual, out);
}

static int caps_get(const struct facts_source *s, double scores, double logits,
                    struct model_config *c)
{
    int rc = cap_get(s, "attn_logit_softcapping", scores, &c->score_cap);
    return rc < 0 ? rc : cap_get(s, "final_logit_softcapping", logits, &c->logit_cap);
}

static int gemma2_facts(const struct facts_source *s, struct family_facts *f)
{
    enum { LARGEST_BLOCKS = 46 };
    int rc = score_divisor_get(s, &f->config, LARGEST_BLOCKS);
    return rc < 0 ? rc : caps_get(s, 50, 30, &f->config);
}

static int gemma3_facts(const struct facts_source *s, struct family_facts *f)
{
    enum { LARGEST_BLOCKS = 62 };
    struct model_config *c = &f->config;
    float base = 0;
    int rc = score_divisor_get(s, c, LARGEST_BLOCKS);
    rc = rc < 0 ? rc : caps_get(s, 0, 0, c);
    rc = rc < 0 ? rc
                : facts_number(s, (struct facts_key){"rope.freq_base_swa", "rope_local_base_freq"},
                               10000, &base);
    if (rc == 0 && !c->has_window_rope) {
        c->window_rope = (struct rope_config){
            .style = c->rope.style, .dims = c->rope.dims, .base = base, .scale = 1};
        c->has_window_rope = true;
    }
    return rc;
}

static int gemma_attention(struct graph_builder *b, int block, int x, int angles,
                           const struct part_attention *how)
{
    graph_layer_begin(b, block, "attn");
    int normed = graph_rms_norm(b, x, "attn_norm");
    int mixed = part_attention_mixed(b, normed, angles, how);
    int out = graph_matmul(b, mixed, "attn_output", b->facts->config.width, BIAS_NEVER);
    return graph_add(b, graph_rms_norm(b, out, "post_attention_norm"), x);
}

static int gemma_mlp(struct graph_builder *b, int block, int x)
{
    const struct model_config *c = &b->facts->config;
    graph_layer_begin(b, block, "mlp");
    int normed = graph_rms_norm(b, x, "ffn_norm");
    int gate = graph_matmul(b, normed, "ffn_gate", c->mlp_width, BIAS_NEVER);
    int up = graph_matmul(b, normed, "ffn_up", c->mlp_width, BIAS_NEVER);
    int out =
        graph_matmul(b, graph_mul(b, graph_gelu(b, gate), up), "ffn_down", c->width, BIAS_NEVER);
    return graph_add(b, graph_rms_norm(b, out, "post_ffw_norm"), x);
}

static void gemma_build(struct graph_builder *b, const struct part_attention *how)
{
    struct part_angles angles = part_angles(b);
    int x = part_embed(b);
    for (int block = 0; block < b->facts->config.n_blocks; block++) {
        x = gemma_attention(b, block, x, part_angles_of(b, &angles, block), how);
        x = gemma_mlp(b, block, x);
    }
    part_head(b, x);
}

static void gemma2_build(struct graph_builder *b)
{
    gemma_build(b, &(struct part_attention){.qkv_bias = BIAS_NEVER});
}

static void gemma3_build(struct graph_builder *b)
{
    gemma_build(b, &(struct part_attention){.head_norms = true});
}

static const struct weight_name names[] = {
    {{"token_embd", "model.embed_tokens"}},
    {{"attn_norm", "input_layernorm"}},
    {{"attn_q", "self_attn.q_proj"}},
    {{"attn_k", "self_attn.k_proj"}},
    {{"attn_v", "self_attn.v_proj"}},
    {{"attn_q_norm", "self_attn.q_norm"}},
    {{"attn_k_norm", "self_attn.k_norm"}},
    {{"attn_output", "self_attn.o_proj"}},
    {{"post_attention_norm", "post_attention_layernorm"}},
    {{"ffn_norm", "pre_feedforward_layernorm"}},
    {{"ffn_gate", "mlp.gate_proj"}},
    {{"ffn_up", "mlp.up_proj"}},
    {{"ffn_down", "mlp.down_proj"}},
    {{"post_ffw_norm", "post_feedforward_layernorm"}},
    {{"output_norm", "model.norm"}},
    {{"output", "lm_head"}},
    {{NULL}},
};

static const struct hub_keys keys = {.width = "hidden_size",
                                     .blocks = "num_hidden_layers",
                                     .heads = "num_attention_heads",
                                     .kv_heads = "num_key_value_heads",
                                     .mlp_width = "intermediate_size",
                                     .context = "max_position_embeddings",
                                     .epsilon = "rms_norm_eps",
                                     .activation = "hidden_activation",
                                     .activations = {"gelu_pytorch_tanh"},
                                     .default_epsilon = 1e-6};

#define GEMMA                                                                                      \
    .block_prefix = {"blk.", "model.layers."}, .optional_prefix = {NULL, "model."},                \
    .names = names, .rope = {ROPE_HALVES, ROPE_HALVES}, .norms_of_one = {false, true},             \
    .epsilon_key = "attention.layer_norm_rms_epsilon", .hub = &keys, .default_window = 4096,       \
    .default_tied = true

const struct family family_gemma2 = {.name = "gemma2",
                                     .form_name = {"gemma2", "gemma2"},
                                     GEMMA,
                                     .default_context = 8192,
                                     .gguf_window = 4096,
                                     .capped = true,
                                     .window_period = 2,
                                     .facts = gemma2_facts,
                                     .build = gemma2_build};

const struct family family_gemma3 = {.name = "gemma3",
                                     .form_name = {"gemma3", "gemma3_text"},
                                     GEMMA,
                                     .default_context = 131072,
                                     .window_period = 6,
                                     .facts = gemma3_facts,
                                     .build = gemma3_build};
