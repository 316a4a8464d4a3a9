/* The mixtures of Qwen2 (biases, a shared expert behind a gate) and Qwen3 (norms of q and k). */
#include "model/graph/families/parts.h"

static int qwen_experts_read(const struct facts_source *s, struct family_facts *f)
{
    static const struct part_expert_keys older = {"num_experts", "num_experts_per_tok",
                                                  "moe_intermediate_size",
                                                  "shared_expert_intermediate_size"},
                                         newer = {"num_local_experts", "num_experts_per_tok",
                                                  "moe_intermediate_size",
                                                  "shared_expert_intermediate_size"};
    int rc = part_experts_read(s, &older, &f->config);
    if (rc == 0 && f->config.experts.n == 0)
        rc = part_experts_read(s, &newer, &f->config);
    if (rc == 0 && f->config.experts.n == 0)
        return facts_refuse(s, (struct facts_key){"expert_count", older.n},
                            "a mixture of no experts");
    return rc;
}

/* Blocks that config.json lists, and all but every so many, are dense; in GGUF files, which have no
 * key for it, those that have a matrix where others have experts. */
static int qwen_dense_read(const struct facts_source *s, struct model_config *c)
{
    int step, rc = facts_count(s, (struct facts_key){NULL, "decoder_sparse_step"}, 1, &step);
    struct json_at list;
    size_t n = 0;
    if (rc < 0 || c->n_blocks < 1 || c->n_blocks > MODEL_BLOCKS_MAX)
        return rc;
    bool *dense = arena_alloc(s->arena, (size_t)c->n_blocks, sizeof *dense);
    if (!dense)
        return err_set(s->e, HP_ENOMEM, "%s: out of memory", s->file);
    c->experts.dense = dense;
    if (s->form == FORM_GGUF) {
        part_dense_find(s, c->n_blocks, dense);
        return 0;
    }
    for (int i = 0; i < c->n_blocks; i++)
        dense[i] = step < 1 || (i + 1) % step != 0;
    if (json_find(s->config, "mlp_only_layers", &list))
        rc = json_as_array(&list, &n, s->e);
    for (size_t i = 0; i < n && rc == 0; i++) {
        struct json_at item = json_item(&list, i);
        uint64_t block;
        rc = json_as_u64(&item, &block, s->e);
        if (rc == 0 && block < (uint64_t)c->n_blocks)
            dense[block] = true;
    }
    return rc;
}

static int qwen2_moe_facts(const struct facts_source *s, struct family_facts *f)
{
    struct expert_config *x = &f->config.experts;
    int rc = facts_flag(s, (struct facts_key){"expert_weights_norm", "norm_topk_prob"}, false,
                        &x->renormalised);
    rc = rc < 0 ? rc : qwen_experts_read(s, f);
    return rc < 0 ? rc : qwen_dense_read(s, &f->config);
}

/* GGUF files of Qwen3 do not say that weights sum to 1. */
static int qwen3_moe_facts(const struct facts_source *s, struct family_facts *f)
{
    struct expert_config *x = &f->config.experts;
    int rc = facts_flag(s, (struct facts_key){"expert_weights_norm", "norm_topk_prob"},
                        s->form == FORM_GGUF, &x->renormalised);
    rc = rc < 0 ? rc : qwen_experts_read(s, f);
    return rc < 0 ? rc : qwen_dense_read(s, &f->config);
}

static int qwen_mixture(struct graph_builder *b, int block, int x)
{
    return part_mixture(b, block, x, "ffn_gate_inp_shexp");
}

static void qwen2_moe_build(struct graph_builder *b)
{
    part_decoder(
        b, &(struct part_decoder){.attention = {.qkv_bias = BIAS_ALWAYS}, .mlp = qwen_mixture});
}

static void qwen3_moe_build(struct graph_builder *b)
{
    enum bias_policy bias = b->facts->bias[BIAS_GROUP_ATTENTION];
    part_decoder(b, &(struct part_decoder){
                        .attention = {.qkv_bias = bias, .output_bias = bias, .head_norms = true},
                        .mlp = qwen_mixture});
}

#define QWEN_MOE                                                                                   \
    .block_prefix = {"blk.", "model.layers."}, .names = weight_names_usual,                        \
    .rope = {ROPE_HALVES, ROPE_HALVES}, .epsilon_key = "attention.layer_norm_rms_epsilon",         \
    .hub = &hub_keys_usual, .default_context = 32768, .default_window = 4096,                      \
    .window_switched = true, .default_window_blocks = 28

const struct family family_qwen2_moe = {.name = "qwen2moe",
                                        .form_name = {"qwen2moe", "qwen2_moe"},
                                        QWEN_MOE,
                                        .default_kv_heads = 16,
                                        .facts = qwen2_moe_facts,
                                        .build = qwen2_moe_build};

const struct family family_qwen3_moe = {.name = "qwen3moe",
                                        .form_name = {"qwen3moe", "qwen3_moe"},
                                        QWEN_MOE,
                                        .default_kv_heads = 4,
                                        .facts = qwen3_moe_facts,
                                        .build = qwen3_moe_build};
