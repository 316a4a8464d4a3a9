/* LLaMA 1 to 3, and Mistral, which differs in defaults alone; in GGUF Mixtral, too. */
#include "model/graph/families/parts.h"

static int llama_facts(const struct facts_source *s, struct family_facts *f)
{
    static const struct part_expert_keys none = {0};
    f->config.experts.renormalised = true;
    return part_experts_read(s, &none, &f->config);
}

static int llama_mixture(struct graph_builder *b, int block, int x)
{
    return part_mixture(b, block, x, NULL);
}

static void llama_build(struct graph_builder *b)
{
    const enum bias_policy *bias = b->facts->bias;
    part_decoder(b,
                 &(struct part_decoder){.attention = {.qkv_bias = bias[BIAS_GROUP_ATTENTION],
                                                      .output_bias = bias[BIAS_GROUP_ATTENTION]},
                                        .mlp_bias = bias[BIAS_GROUP_MLP],
                                        .mlp = b->facts->config.experts.n ? llama_mixture : NULL});
}

/* Old exports carry the rotation's frequencies; they follow from the config. GGUF's
 * rope_freqs.weight is read with the config. */
static const char *const unneeded_hub[] = {".rotary_emb.inv_freq", NULL};

#define LLAMA                                                                                      \
    .block_prefix = {"blk.", "model.layers."}, .optional_prefix = {NULL, "model."},                \
    .names = weight_names_usual, .rope = {ROPE_PAIRS, ROPE_HALVES},                                \
    .unneeded = {NULL, unneeded_hub}, .epsilon_key = "attention.layer_norm_rms_epsilon",           \
    .hub = &hub_keys_usual, .facts = llama_facts, .build = llama_build

const struct family family_llama = {
    .name = "llama", .form_name = {"llama", "llama"}, LLAMA, .default_context = 2048};

/* In GGUF a Mistral calls itself llama. */
const struct family family_mistral = {.name = "mistral",
                                      .form_name = {NULL, "mistral"},
                                      .written_as = "llama",
                                      LLAMA,
                                      .default_context = 131072,
                                      .default_kv_heads = 8,
                                      .default_window = 4096};
