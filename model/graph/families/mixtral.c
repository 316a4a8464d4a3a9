/* Mixtral: a Mistral whose MLPs are mixtures. In GGUF it calls itself llama (llama.c). */
#include "model/graph/families/parts.h"

static int mixtral_facts(const struct facts_source *s, struct family_facts *f)
{
    static const struct part_expert_keys keys = {.n = "num_local_experts",
                                                 .used = "num_experts_per_tok"};
    f->config.experts.renormalised = true;
    int rc = part_experts_read(s, &keys, &f->config);
    if (rc == 0 && f->config.experts.n == 0)
        return facts_refuse(s, (struct facts_key){"expert_count", keys.n},
                            "a mixture of no experts");
    return rc;
}

static int mixtral_mlp(struct graph_builder *b, int block, int x)
{
    return part_mixture(b, block, x, NULL);
}

static void mixtral_build(struct graph_builder *b)
{
    part_decoder(b, &(struct part_decoder){.mlp = mixtral_mlp});
}

static const struct weight_name names[] = {
    {{"token_embd", "model.embed_tokens"}},
    {{"attn_norm", "input_layernorm"}},
    {{"attn_q", "self_attn.q_proj"}},
    {{"attn_k", "self_attn.k_proj"}},
    {{"attn_v", "self_attn.v_proj"}},
    {{"attn_output", "self_attn.o_proj"}},
    {{"ffn_norm", "post_attention_layernorm"}},
    {{"ffn_gate_inp", "block_sparse_moe.gate"}},
    {{"ffn_gate_exps", "block_sparse_moe.experts.*.w1"}},
    {{"ffn_up_exps", "block_sparse_moe.experts.*.w3"}},
    {{"ffn_down_exps", "block_sparse_moe.experts.*.w2"}},
    {{"output_norm", "model.norm"}},
    {{"output", "lm_head"}},
    {{NULL}},
};

const struct family family_mixtral = {.name = "mixtral",
                                      .form_name = {NULL, "mixtral"},
                                      .written_as = "llama",
                                      .block_prefix = {"blk.", "model.layers."},
                                      .optional_prefix = {NULL, "model."},
                                      .names = names,
                                      .rope = {ROPE_PAIRS, ROPE_HALVES},
                                      .epsilon_key = "attention.layer_norm_rms_epsilon",
                                      .hub = &hub_keys_usual,
                                      .default_context = 131072,
                                      .default_kv_heads = 8,
                                      .default_window = MODEL_CONTEXT_MAX,
                                      .facts = mixtral_facts,
                                      .build = mixtral_build};
