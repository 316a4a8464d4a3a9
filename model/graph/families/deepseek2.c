/* DeepSeek-V2: attention over a latent row (arXiv 2405.04434, section 2.1), of which the KV cache
 * keeps one a token for all heads; mixtures with shared experts, the first blocks dense.
 *
 * Keys are never made: a query's plain part is multiplied by its head's matrix instead, and so
 * meets the latent itself; values are made of what attention mixed. */
#include <math.h>
#include <string.h>

#include "model/graph/families/parts.h"
#include "model/graph/rope.h"

static int latent_read(const struct facts_source *s, struct model_config *c)
{
    struct latent_config *l = &c->latent;
    int key = 0, value = 0;
    int rc =
        facts_count(s, (struct facts_key){"attention.kv_lora_rank", "kv_lora_rank"}, -1, &l->rank);
    rc = rc < 0 ? rc
                : facts_count(s, (struct facts_key){"attention.q_lora_rank", "q_lora_rank"}, 0,
                              &l->query_rank);
    /* Newer GGUF files say by `key_length` what the cache keeps. */
    rc = rc < 0 ? rc : facts_count(s, (struct facts_key){"attention.key_length", NULL}, 0, &key);
    rc =
        rc < 0 ? rc : facts_count(s, (struct facts_key){"attention.value_length", NULL}, 0, &value);
    rc = rc < 0 ? rc
                : facts_count(s, (struct facts_key){"attention.key_length_mla", NULL}, key, &key);
    rc = rc < 0 ? rc
                : facts_count(s, (struct facts_key){"attention.value_length_mla", "v_head_dim"},
                              s->form == FORM_GGUF ? value : -1, &l->value);
    l->rotated = c->rope.dims;
    rc = rc < 0 ? rc
                : facts_count(s, (struct facts_key){NULL, "qk_nope_head_dim"},
                              s->form == FORM_GGUF && key > l->rotated ? key - l->rotated : -1,
                              &l->plain);
    if (rc < 0)
        return rc;
    if (l->rank < 1 || l->rank > MODEL_HEAD_MAX - MODEL_HEAD_MAX / 4 || l->plain < 1 ||
        l->plain > MODEL_HEAD_MAX / 4 || l->rotated < 2 || l->rotated > MODEL_HEAD_MAX / 4 ||
        l->value < 1 || l->value > MODEL_HEAD_MAX || l->query_rank > MODEL_DIMENSION_MAX)
        return err_set(s->e, HP_EPARSE,
                       "%s: a latent of %d, heads of %d and %d rotated elements, values of %d",
                       s->file, l->rank, l->plain, l->rotated, l->value);
    c->n_kv_heads = 1;
    c->head_dim = l->rank + l->rotated;
    return 0;
}

/* YaRN makes scores larger, by an exponent that the files name differently; rotation does not. */
static int scores_read(const struct facts_source *s, struct model_config *c)
{
    float exponent = 0, factor = 1;
    struct json_at scaling;
    struct facts_source of = *s;
    if (s->form == FORM_HUB && (json_find(s->config, "rope_scaling", &scaling) ||
                                json_find(s->config, "rope_parameters", &scaling)))
        of.config = &scaling;
    int rc =
        facts_number(&of, (struct facts_key){"rope.scaling.yarn_log_multiplier", "mscale_all_dim"},
                     0, &exponent);
    rc = rc < 0
             ? rc
             : facts_number(&of, (struct facts_key){"rope.scaling.factor", "factor"}, 1, &factor);
    if (s->form == FORM_GGUF) {
        exponent *= 10; /* the key has a tenth of it */
        c->rope.magnitude = 1;
    }
    double larger = exponent > 0 ? rope_yarn_magnitude((double)factor, (double)exponent) : 1;
    c->score_scale = (float)(larger * larger / sqrt((double)c->latent.plain + c->latent.rotated));
    return rc;
}

static int dense_read(const struct facts_source *s, struct model_config *c)
{
    int first = 0;
    int rc = facts_count(
        s, (struct facts_key){"leading_dense_block_count", "first_k_dense_replace"}, 0, &first);
    if (rc < 0 || c->n_blocks < 1 || c->n_blocks > MODEL_BLOCKS_MAX)
        return rc;
    bool *dense = arena_alloc(s->arena, (size_t)c->n_blocks, sizeof *dense);
    if (!dense)
        return err_set(s->e, HP_ENOMEM, "%s: out of memory", s->file);
    for (int i = 0; i < c->n_blocks; i++)
        dense[i] = i < first || c->experts.n == 0;
    c->experts.dense = dense;
    return 0;
}

static int experts_read(const struct facts_source *s, struct model_config *c)
{
    static const struct part_expert_keys keys = {
        .n = "n_routed_experts", .used = "num_experts_per_tok", .width = "moe_intermediate_size"};
    struct expert_config *x = &c->experts;
    int shared = 0, groups = 1;
    const struct facts_key groups_key = {NULL, "n_group"}, gating_key = {NULL, "scoring_func"};
    const char *gating = "softmax";
    int rc = part_experts_read(s, &keys, c);
    rc = rc < 0 ? rc
                : facts_count(s, (struct facts_key){"expert_shared_count", "n_shared_experts"}, 0,
                              &shared);
    rc = rc < 0
             ? rc
             : facts_number(s, (struct facts_key){"expert_weights_scale", "routed_scaling_factor"},
                            0, &x->scale);
    rc = rc < 0 ? rc
                : facts_flag(s, (struct facts_key){"expert_weights_norm", "norm_topk_prob"}, false,
                             &x->renormalised);
    rc = rc < 0 ? rc : facts_count(s, groups_key, 1, &groups);
    if (rc == 0 && s->form == FORM_HUB)
        rc = json_opt_string(s->config, gating_key.hub, gating, &gating, s->e);
    if (rc < 0)
        return rc;
    if (strcmp(gating, "softmax") != 0)
        return facts_refuse(s, gating_key, "weights of experts other than by softmax");
    if (groups > 1)
        return facts_refuse(s, groups_key, "experts in groups");
    if (shared > 0 && x->width > MODEL_DIMENSION_MAX / shared)
        return err_set(s->e, HP_EPARSE, "%s: %d shared experts of width %d", s->file, shared,
                       x->width);
    x->shared_width = shared * x->width;
    return dense_read(s, c);
}

static int deepseek2_facts(const struct facts_source *s, struct family_facts *f)
{
    int rc = latent_read(s, &f->config);
    rc = rc < 0 ? rc : scores_read(s, &f->config);
    return rc < 0 ? rc : experts_read(s, &f->config);
}

/* [tokens, heads * (plain + rotated)] */
static int latent_queries(struct graph_builder *b, int normed)
{
    const struct model_config *c = &b->facts->config;
    int width = c->n_heads * (c->latent.plain + c->latent.rotated);
    if (!c->latent.query_rank)
        return graph_matmul(b, normed, "attn_q", width, BIAS_NEVER);
    int low = graph_matmul(b, normed, "attn_q_a", c->latent.query_rank, BIAS_NEVER);
    return graph_matmul(b, graph_rms_norm(b, low, "attn_q_a_norm"), "attn_q_b", width, BIAS_NEVER);
}

/* Older files and folders have the matrices of keys and values in one, head by head. */
static bool is_split(const struct graph_builder *b)
{
    return b->facts->form == FORM_GGUF && weight_table_find(b->table, "blk.0.attn_k_b.weight");
}

static int latent_attention(struct graph_builder *b, int block, int x, int angles)
{
    const struct model_config *c = &b->facts->config;
    const struct latent_config *l = &c->latent;
    uint64_t heads = (uint64_t)c->n_heads, rank = (uint64_t)l->rank, plain = (uint64_t)l->plain,
             value = (uint64_t)l->value;
    int query = l->plain + l->rotated;
    bool split = is_split(b);
    graph_layer_begin(b, block, "attn");
    int normed = graph_rms_norm(b, x, "attn_norm");
    int q = graph_rope_part(b, latent_queries(b, normed), angles, query, l->plain);
    int both = graph_matmul(b, normed, "attn_kv_a_mqa", l->rank + l->rotated, BIAS_NEVER);
    int latent = graph_rms_norm(b, graph_slice(b, both, 0, l->rank), "attn_kv_a_norm");
    int turning =
        graph_rope_part(b, graph_slice(b, both, l->rank, l->rotated), angles, l->rotated, 0);
    int k = graph_join_heads(b, latent, turning, 1, (struct op_head_part){0, l->rank, l->rank},
                             (struct op_head_part){0, l->rotated, l->rotated});
    int met = graph_head_matmul(
        b, q, (struct op_head_part){0, l->plain, query}, split ? "attn_k_b" : "attn_kv_b",
        split ? &(struct head_matrices){heads, 0, rank, 0, plain}
              : &(struct head_matrices){heads, 0, plain, plain + value, rank},
        !split);
    q = graph_join_heads(b, met, q, c->n_heads, (struct op_head_part){0, l->rank, l->rank},
                         (struct op_head_part){l->plain, l->rotated, query});
    int mixed = graph_latent_attention(b, q, k, l->rank);
    int out = graph_head_matmul(
        b, mixed, (struct op_head_part){0, l->rank, l->rank}, split ? "attn_v_b" : "attn_kv_b",
        split ? &(struct head_matrices){heads, 0, value, 0, rank}
              : &(struct head_matrices){heads, plain, value, plain + value, rank},
        false);
    return graph_matmul_add(b, out, "attn_output", BIAS_NEVER, x);
}

static void deepseek2_build(struct graph_builder *b)
{
    struct part_angles angles = part_angles(b);
    int x = part_embed(b);
    for (int block = 0; block < b->facts->config.n_blocks; block++) {
        x = latent_attention(b, block, x, angles.global);
        x = part_mixture(b, block, x, NULL);
    }
    part_head(b, x);
}

static const struct weight_name names[] = {
    {{"token_embd", "model.embed_tokens"}},
    {{"attn_norm", "input_layernorm"}},
    {{"attn_q", "self_attn.q_proj"}},
    {{"attn_q_a", "self_attn.q_a_proj"}},
    {{"attn_q_a_norm", "self_attn.q_a_layernorm"}},
    {{"attn_q_b", "self_attn.q_b_proj"}},
    {{"attn_kv_a_mqa", "self_attn.kv_a_proj_with_mqa"}},
    {{"attn_kv_a_norm", "self_attn.kv_a_layernorm"}},
    {{"attn_kv_b", "self_attn.kv_b_proj"}},
    {{"attn_k_b", "self_attn.kv_b_proj"}},
    {{"attn_v_b", "self_attn.kv_b_proj"}},
    {{"attn_output", "self_attn.o_proj"}},
    {{"ffn_norm", "post_attention_layernorm"}},
    {{"ffn_gate", "mlp.gate_proj"}},
    {{"ffn_up", "mlp.up_proj"}},
    {{"ffn_down", "mlp.down_proj"}},
    {{"ffn_gate_inp", "mlp.gate"}},
    {{"ffn_gate_exps", "mlp.experts.*.gate_proj"}},
    {{"ffn_up_exps", "mlp.experts.*.up_proj"}},
    {{"ffn_down_exps", "mlp.experts.*.down_proj"}},
    {{"ffn_gate_shexp", "mlp.shared_experts.gate_proj"}},
    {{"ffn_up_shexp", "mlp.shared_experts.up_proj"}},
    {{"ffn_down_shexp", "mlp.shared_experts.down_proj"}},
    {{"output_norm", "model.norm"}},
    {{"output", "lm_head"}},
    {{NULL}},
};

static const struct weight_cut_row cuts[] = {{"attn_kv_b", CUT_UNWRITTEN},
                                             {"attn_k_b", CUT_HEAD_KEYS},
                                             {"attn_v_b", CUT_HEAD_VALUES},
                                             {NULL, CUT_NONE}};

static const struct hub_keys keys = {.width = "hidden_size",
                                     .blocks = "num_hidden_layers",
                                     .heads = "num_attention_heads",
                                     .kv_heads = "num_key_value_heads",
                                     .mlp_width = "intermediate_size",
                                     .context = "max_position_embeddings",
                                     .epsilon = "rms_norm_eps",
                                     .rotated = "qk_rope_head_dim",
                                     .activation = "hidden_act",
                                     .activations = {"silu", "swish"},
                                     .default_epsilon = 1e-6};

const struct family family_deepseek2 = {.name = "deepseek2",
                                        .form_name = {"deepseek2", "deepseek_v2"},
                                        .block_prefix = {"blk.", "model.layers."},
                                        .names = names,
                                        .cuts = cuts,
                                        .rope = {ROPE_PAIRS, ROPE_PAIRS},
                                        .epsilon_key = "attention.layer_norm_rms_epsilon",
                                        .hub = &keys,
                                        .default_context = 2048,
                                        .values_differ = true,
                                        .facts = deepseek2_facts,
                                        .build = deepseek2_build};
