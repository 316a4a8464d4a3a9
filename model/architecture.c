#include "model/architecture.h"

#include <stdio.h>
#include <string.h>

#define END_OF_RECIPE                                                                              \
    {                                                                                              \
        .kind = OP_KIND_COUNT                                                                      \
    }

/* ---- LLaMA 1 to 3, and what reads like it
 * ---------------------------------------------------------------------- */

static const struct op_recipe llama_embed[] = {
    {OP_EMBED,
     V_IDS,
     V_IDS,
     V_X,
     {"token_embd", "model.embed_tokens"},
     {0},
     false,
     BIAS_GROUP_NONE},
    END_OF_RECIPE,
};

static const struct op_recipe llama_attention[] = {
    {OP_RMS_NORM, V_X, V_X, V_NORM, {"attn_norm", "input_layernorm"}, {0}, false, BIAS_GROUP_NONE},
    {OP_MATMUL,
     V_NORM,
     V_NORM,
     V_Q,
     {"attn_q", "self_attn.q_proj"},
     {0},
     false,
     BIAS_GROUP_ATTENTION},
    {OP_MATMUL,
     V_NORM,
     V_NORM,
     V_K,
     {"attn_k", "self_attn.k_proj"},
     {0},
     false,
     BIAS_GROUP_ATTENTION},
    {OP_MATMUL,
     V_NORM,
     V_NORM,
     V_V,
     {"attn_v", "self_attn.v_proj"},
     {0},
     false,
     BIAS_GROUP_ATTENTION},
    {OP_ROPE, V_Q, V_Q, V_Q, {0}, {0}, false, BIAS_GROUP_NONE},
    {OP_ROPE, V_K, V_K, V_K, {0}, {0}, false, BIAS_GROUP_NONE},
    {OP_ATTENTION, V_Q, V_K, V_ATTN, {0}, {0}, false, BIAS_GROUP_NONE},
    {OP_MATMUL,
     V_ATTN,
     V_ATTN,
     V_X,
     {"attn_output", "self_attn.o_proj"},
     {0},
     true,
     BIAS_GROUP_ATTENTION},
    END_OF_RECIPE,
};

static const struct op_recipe llama_mlp[] = {
    {OP_RMS_NORM,
     V_X,
     V_X,
     V_NORM,
     {"ffn_norm", "post_attention_layernorm"},
     {0},
     false,
     BIAS_GROUP_NONE},
    {OP_MATMUL, V_NORM, V_NORM, V_GATE, {"ffn_gate", "mlp.gate_proj"}, {0}, false, BIAS_GROUP_MLP},
    {OP_MATMUL, V_NORM, V_NORM, V_UP, {"ffn_up", "mlp.up_proj"}, {0}, false, BIAS_GROUP_MLP},
    {OP_SILU_MUL, V_GATE, V_UP, V_GATE, {0}, {0}, false, BIAS_GROUP_NONE},
    {OP_MATMUL, V_GATE, V_GATE, V_X, {"ffn_down", "mlp.down_proj"}, {0}, true, BIAS_GROUP_MLP},
    END_OF_RECIPE,
};

static const struct op_recipe llama_head[] = {
    {OP_RMS_NORM, V_X, V_X, V_NORM, {"output_norm", "model.norm"}, {0}, false, BIAS_GROUP_NONE},
    {OP_MATMUL,
     V_NORM,
     V_NORM,
     V_LOGITS,
     {"output", "lm_head"},
     {"token_embd", "model.embed_tokens"},
     false,
     BIAS_GROUP_NONE},
    END_OF_RECIPE,
};

/* Old exports carry the rotation's frequencies; they follow from the config. GGUF's
 * rope_freqs.weight is read with the config. */
static const char *const llama_unneeded_hub[] = {".rotary_emb.inv_freq", NULL};

#define LLAMA_GRAPH                                                                                \
    .block_prefix = {"blk.", "model.layers."}, .rope = {ROPE_PAIRS, ROPE_HALVES},                  \
    .embed = llama_embed, .attention = llama_attention, .mlp = llama_mlp, .head = llama_head,      \
    .unneeded = {NULL, llama_unneeded_hub}

static const struct architecture families[] = {
    {.name = "llama", .form_name = {"llama", "llama"}, LLAMA_GRAPH, .default_context = 2048},
    /* In GGUF a Mistral calls itself llama. */
    {.name = "mistral",
     .form_name = {NULL, "mistral"},
     LLAMA_GRAPH,
     .default_context = 131072,
     .default_kv_heads = 8,
     .default_window = 4096},
};
enum { N_FAMILIES = sizeof families / sizeof *families };

/* ---- finding and checking
 * -------------------------------------------------------------------------------------- */

static void known_names(enum model_form form, char *out, size_t size)
{
    size_t at = 0;
    out[0] = '\0';
    for (int i = 0; i < N_FAMILIES && at < size; i++)
        if (families[i].form_name[form]) {
            int n = snprintf(out + at, size - at, at ? ", %s" : "%s", families[i].form_name[form]);
            at += n > 0 ? (size_t)n : 0;
        }
}

int architecture_find(enum model_form form, const char *file, const char *name, size_t size,
                      const struct architecture **out, struct err *e)
{
    for (int i = 0; i < N_FAMILIES; i++) {
        const char *known = families[i].form_name[form];
        if (known && strlen(known) == size && memcmp(known, name, size) == 0) {
            *out = &families[i];
            return 0;
        }
    }
    char known[256], shown[65];
    size_t n = size < sizeof shown - 1 ? size : sizeof shown - 1;
    for (size_t i = 0; i < n; i++)
        shown[i] = name[i] > ' ' && name[i] < 0x7f ? name[i] : '?';
    shown[n] = '\0';
    known_names(form, known, sizeof known);
    return err_set(e, HP_EUNSUPPORTED, "%s: architecture \"%s\" is not one that is known: %s", file,
                   shown, known);
}

/* heads * size of each, bounded; 0 when it is not. */
static int bounded_product(int a, int b)
{
    int n;
    return __builtin_mul_overflow(a, b, &n) || n > MODEL_DIMENSION_MAX ? 0 : n;
}

int facts_check(const struct model_facts *f, const char *file, struct err *e)
{
    const struct model_config *c = &f->config;
    const struct {
        const char *what;
        int value, max;
    } bounds[] = {
        {"vocabulary", c->vocabulary, MODEL_DIMENSION_MAX},
        {"width", c->width, MODEL_DIMENSION_MAX},
        {"number of blocks", c->n_blocks, MODEL_BLOCKS_MAX},
        {"number of heads", c->n_heads, MODEL_DIMENSION_MAX},
        {"number of KV heads", c->n_kv_heads, c->n_heads},
        {"head size", c->head_dim, MODEL_HEAD_MAX},
        {"MLP width", c->mlp_width, MODEL_DIMENSION_MAX},
        {"context", c->context, MODEL_CONTEXT_MAX},
        {"number of rotated dimensions", c->rope.dims, c->head_dim},
    };
    for (size_t i = 0; i < sizeof bounds / sizeof *bounds; i++)
        if (bounds[i].value < 1 || bounds[i].value > bounds[i].max)
            return err_set(e, HP_EPARSE, "%s: a %s of %d is not within 1 to %d", file,
                           bounds[i].what, bounds[i].value, bounds[i].max);
    if (!bounded_product(c->n_heads, c->head_dim))
        return err_set(e, HP_EPARSE, "%s: %d heads of size %d are more than %d", file, c->n_heads,
                       c->head_dim, MODEL_DIMENSION_MAX);
    if (c->n_heads % c->n_kv_heads)
        return err_set(e, HP_EPARSE, "%s: %d heads do not share %d KV heads evenly", file,
                       c->n_heads, c->n_kv_heads);
    if (c->rope.dims % 2)
        return err_set(e, HP_EPARSE, "%s: %d rotated dimensions do not make pairs", file,
                       c->rope.dims);
    if (!(c->norm_epsilon >= 0 && c->norm_epsilon < 1))
        return err_set(e, HP_EPARSE, "%s: a norm epsilon of %g", file, (double)c->norm_epsilon);
    if (!(c->rope.base > 0 && c->rope.base < 1e30) || !(c->rope.scale > 0 && c->rope.scale < 1e30))
        return err_set(e, HP_EPARSE, "%s: a rope base of %g with factor %g", file, c->rope.base,
                       c->rope.scale);
    return 0;
}
