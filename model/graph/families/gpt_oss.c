/* gpt-oss: attention sinks, a window in every other block, biases everywhere, experts with a
 * clamped SwiGLU; Hugging Face folders have gate and up of the experts in one matrix, column by
 * column. */
#include "model/graph/families/parts.h"

static int gpt_oss_facts(const struct facts_source *s, struct family_facts *f)
{
    static const struct part_expert_keys keys = {.n = "num_local_experts",
                                                 .used = "num_experts_per_tok"};
    f->config.experts.renormalised = true;
    f->bias[BIAS_GROUP_ATTENTION] = BIAS_ALWAYS;
    int rc = part_experts_read(s, &keys, &f->config);
    if (rc == 0 && f->config.experts.n == 0)
        return facts_refuse(s, (struct facts_key){"expert_count", keys.n},
                            "a mixture of no experts");
    return rc;
}

static int gpt_oss_swiglu(struct graph_builder *b, int normed, int route)
{
    const struct op_swiglu how = {.alpha = 1.702f, .limit = 7};
    const struct model_config *c = &b->facts->config;
    int width = c->experts.width;
    if (b->facts->form == FORM_HUB) {
        int both = graph_expert_matmul(b, normed, route, "ffn_gate_up_exps",
                                       (struct expert_shape){c->width, 2 * width},
                                       "ffn_gate_up_exps_bias");
        return graph_clamped_swiglu(b, both, both, how);
    }
    struct expert_shape shape = {c->width, width};
    int gate = graph_expert_matmul(b, normed, route, "ffn_gate_exps", shape, "ffn_gate_exps.bias!");
    int up = graph_expert_matmul(b, normed, route, "ffn_up_exps", shape, "ffn_up_exps.bias!");
    return graph_clamped_swiglu(b, gate, up, how);
}

static int gpt_oss_experts(struct graph_builder *b, struct part_mixed in)
{
    const struct model_config *c = &b->facts->config;
    return graph_expert_matmul(b, gpt_oss_swiglu(b, in.normed, in.route), in.route, "ffn_down_exps",
                               (struct expert_shape){c->experts.width, c->width},
                               "ffn_down_exps.bias!");
}

static int gpt_oss_mlp(struct graph_builder *b, int block, int x)
{
    const struct model_config *c = &b->facts->config;
    graph_layer_part_begin(b, block, "moe", 0, graph_expert_groups(b));
    int normed = graph_rms_norm(b, x, "post_attention_norm");
    int scores = graph_matmul(b, normed, "ffn_gate_inp", c->experts.n, BIAS_ALWAYS);
    int route = graph_route(b, scores);
    return part_experts(b, block, (struct part_mixed){normed, route}, x, gpt_oss_experts);
}

static void gpt_oss_build(struct graph_builder *b)
{
    part_decoder(b, &(struct part_decoder){.attention = {.qkv_bias = BIAS_ALWAYS,
                                                         .output_bias = BIAS_ALWAYS,
                                                         .sinks = "attn_sinks"},
                                           .mlp = gpt_oss_mlp});
}

static const struct weight_name names[] = {
    {{"token_embd", "model.embed_tokens"}},
    {{"attn_norm", "input_layernorm"}},
    {{"attn_q", "self_attn.q_proj"}},
    {{"attn_k", "self_attn.k_proj"}},
    {{"attn_v", "self_attn.v_proj"}},
    {{"attn_sinks", "self_attn.sinks!"}},
    {{"attn_output", "self_attn.o_proj"}},
    {{"post_attention_norm", "post_attention_layernorm"}},
    {{"ffn_gate_inp", "mlp.router"}},
    {{"ffn_gate_exps", "mlp.experts.gate_up_proj!"}},
    {{"ffn_gate_up_exps", "mlp.experts.gate_up_proj!"}},
    {{"ffn_gate_up_exps_bias", "mlp.experts.gate_up_proj_bias!"}},
    {{"ffn_up_exps", "mlp.experts.gate_up_proj!"}},
    {{"ffn_gate_exps.bias!", "mlp.experts.gate_up_proj_bias!"}},
    {{"ffn_up_exps.bias!", "mlp.experts.gate_up_proj_bias!"}},
    {{"ffn_down_exps", "mlp.experts.down_proj!"}},
    {{"ffn_down_exps.bias!", "mlp.experts.down_proj_bias!"}},
    {{"output_norm", "model.norm"}},
    {{"output", "lm_head"}},
    {{NULL}},
};

/* Folders have gate and up by turns. */
static const struct weight_cut_row cuts[] = {{"ffn_gate_up_exps", CUT_UNWRITTEN},
                                             {"ffn_gate_up_exps_bias", CUT_UNWRITTEN},
                                             {"ffn_gate_exps", CUT_EVEN_ROWS},
                                             {"ffn_up_exps", CUT_ODD_ROWS},
                                             {"ffn_gate_exps.bias!", CUT_EVEN_ELEMENTS},
                                             {"ffn_up_exps.bias!", CUT_ODD_ELEMENTS},
                                             {NULL, CUT_NONE}};

const struct family family_gpt_oss = {.name = "gpt-oss",
                                      .form_name = {"gpt-oss", "gpt_oss"},
                                      .block_prefix = {"blk.", "model.layers."},
                                      .names = names,
                                      .cuts = cuts,
                                      .rope = {ROPE_HALVES, ROPE_HALVES},
                                      .experts_turned = {false, true},
                                      .epsilon_key = "attention.layer_norm_rms_epsilon",
                                      .hub = &hub_keys_usual,
                                      .default_context = 131072,
                                      .default_kv_heads = 8,
                                      .default_window = 128,
                                      .window_period = 2,
                                      .facts = gpt_oss_facts,
                                      .build = gpt_oss_build};
