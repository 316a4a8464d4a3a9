/* The keys of a GGUF file: those of another one, or what a folder's config.json says in GGUF's
 * words. Where these have no place for something, a key of our own says it, which others pass over:
 * rope.scaling.yarn_truncate. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/convert/convert_int.h"
#include "model/graph/rope.h"

enum { KEY_NAME_BYTES = 128, QUANTISATION_VERSION = 2 };

/* "llama.block_count": below the architecture's name. */
struct keys {
    struct gguf_header *h;
    const char *prefix;
    char name[KEY_NAME_BYTES];
};

static const char *key_name(struct keys *k, const char *name)
{
    snprintf(k->name, sizeof k->name, "%s.%s", k->prefix, name);
    return k->name;
}

static void count_put(struct keys *k, const char *name, int v)
{
    gguf_put_u32(k->h, key_name(k, name), (uint32_t)v);
}

static void number_put(struct keys *k, const char *name, double v)
{
    gguf_put_f32(k->h, key_name(k, name), (float)v);
}

/* ---- what a config says ---- */

static void sizes_put(struct keys *k, const struct family *f, const struct model_config *c)
{
    count_put(k, "block_count", c->n_blocks);
    count_put(k, "context_length", c->context);
    count_put(k, "embedding_length", c->width);
    count_put(k, "feed_forward_length", c->mlp_width);
    count_put(k, "attention.head_count", c->n_heads);
    count_put(k, "attention.head_count_kv", c->n_kv_heads);
    count_put(k, "attention.key_length", c->head_dim);
    count_put(k, "attention.value_length", c->latent.rank ? c->latent.rank : c->head_dim);
    count_put(k, "vocab_size", c->vocabulary);
    number_put(k, f->epsilon_key, (double)c->norm_epsilon);
}

static void yarn_put(struct keys *k, const struct rope_config *r, bool latent)
{
    double usual = rope_yarn_magnitude(r->yarn->factor, 1),
           magnitude = r->magnitude > 0 ? (double)r->magnitude : 1;
    gguf_put_text(k->h, key_name(k, "rope.scaling.type"), "yarn");
    number_put(k, "rope.scaling.factor", r->yarn->factor);
    count_put(k, "rope.scaling.original_context_length", (int)r->yarn->original_context);
    number_put(k, "rope.scaling.yarn_beta_fast", r->yarn->beta_fast);
    number_put(k, "rope.scaling.yarn_beta_slow", r->yarn->beta_slow);
    if (!latent && fabs(magnitude / usual - 1) > 1e-6)
        number_put(k, "rope.scaling.attn_factor", magnitude / usual);
    if (!r->yarn->truncate)
        gguf_put_bool(k->h, key_name(k, "rope.scaling.yarn_truncate"), false);
}

static void rope_put(struct keys *k, const struct model_config *c)
{
    const struct rope_config *r = &c->rope;
    if (r->style == ROPE_NONE)
        return;
    number_put(k, "rope.freq_base", r->base);
    count_put(k, "rope.dimension_count", r->dims);
    if (c->has_window_rope)
        number_put(k, "rope.freq_base_swa", c->window_rope.base);
    if (r->yarn) {
        yarn_put(k, r, c->latent.rank > 0);
    } else if (r->long_factors) {
        count_put(k, "rope.scaling.original_context_length", r->long_from);
        number_put(k, "rope.scaling.attn_factor", r->magnitude > 0 ? (double)r->magnitude : 1);
    } else if (r->scale != 1) {
        gguf_put_text(k->h, key_name(k, "rope.scaling.type"), "linear");
        number_put(k, "rope.scaling.factor", r->scale);
    }
}

/* The window, and which blocks have it where the family's own rule does not say so. */
static void windows_put(struct keys *k, const struct family *f, const struct model_config *c)
{
    uint32_t window = 0;
    bool usual = true;
    for (int i = 0; c->windows && i < c->n_blocks; i++)
        window = c->windows[i] > window ? c->windows[i] : window;
    if (!window) { /* one that hides nothing, where files of the family always have one */
        if (f->window_period)
            count_put(k, "attention.sliding_window", c->context);
        return;
    }
    for (int i = 0; i < c->n_blocks; i++) {
        bool global = f->window_period && (i + 1) % f->window_period == 0;
        usual = usual && (c->windows[i] == 0) == global;
    }
    count_put(k, "attention.sliding_window", (int)window);
    if (usual)
        return;
    gguf_put_array(k->h, key_name(k, "attention.sliding_window_pattern"), GGUF_BOOL,
                   (uint64_t)c->n_blocks);
    for (int i = 0; i < c->n_blocks; i++)
        gguf_add_bool(k->h, c->windows[i] != 0);
}

static int leading_dense(const struct model_config *c)
{
    int n = 0;
    while (c->experts.dense && n < c->n_blocks && c->experts.dense[n])
        n++;
    return n;
}

static void experts_put(struct keys *k, const struct model_config *c)
{
    const struct expert_config *x = &c->experts;
    if (!x->n)
        return;
    count_put(k, "expert_count", x->n);
    count_put(k, "expert_used_count", x->used);
    count_put(k, "expert_feed_forward_length", x->width);
    gguf_put_bool(k->h, key_name(k, "expert_weights_norm"), x->renormalised);
    if (x->scale != 0)
        number_put(k, "expert_weights_scale", (double)x->scale);
    if (x->shared_width && c->latent.rank)
        count_put(k, "expert_shared_count", x->shared_width / x->width);
    else if (x->shared_width)
        count_put(k, "expert_shared_feed_forward_length", x->shared_width);
    if (leading_dense(c))
        count_put(k, "leading_dense_block_count", leading_dense(c));
}

/* Attention over a latent: its sizes, and what YaRN makes scores larger by, which the key has as a
 * tenth of the exponent. */
static void latent_put(struct keys *k, const struct model_config *c)
{
    const struct latent_config *l = &c->latent;
    if (!l->rank)
        return;
    count_put(k, "attention.kv_lora_rank", l->rank);
    if (l->query_rank)
        count_put(k, "attention.q_lora_rank", l->query_rank);
    count_put(k, "attention.key_length_mla", l->plain + l->rotated);
    count_put(k, "attention.value_length_mla", l->value);
    count_put(k, "expert_gating_func", 1);
    double larger = sqrt((double)c->score_scale * sqrt((double)l->plain + l->rotated));
    if (c->rope.yarn && c->rope.yarn->factor > 1 && larger > 1)
        number_put(k, "rope.scaling.yarn_log_multiplier", (larger - 1) / log(c->rope.yarn->factor));
}

static void scales_put(struct keys *k, const struct family *f, const struct model_config *c)
{
    if (c->score_scale != 0 && !c->latent.rank)
        number_put(k, "attention.scale", (double)c->score_scale);
    if (c->score_cap != 0 || f->capped)
        number_put(k, "attn_logit_softcapping", (double)c->score_cap);
    if (c->logit_cap != 0 || f->capped)
        number_put(k, "final_logit_softcapping", (double)c->logit_cap);
    if (c->embedding_scale != 0)
        number_put(k, "embedding_scale", (double)c->embedding_scale);
    if (c->residual_scale != 0)
        number_put(k, "residual_scale", (double)c->residual_scale);
    if (c->logit_scale != 0)
        number_put(k, "logit_scale", 1 / (double)c->logit_scale);
}

/* GGUF has no key for rows that keep their length: one of our own has it. */
static void pooling_put(struct keys *k, const struct model_config *c)
{
    static const int kinds[] = {
        [POOLING_NONE] = 0, [POOLING_MEAN] = 1, [POOLING_FIRST] = 2, [POOLING_LAST] = 3};
    if (c->pooling == POOLING_NONE)
        return;
    count_put(k, "pooling_type", kinds[c->pooling]);
    if (c->unnormalised)
        gguf_put_bool(k->h, key_name(k, "pooling_normalised"), false);
}

static const char *model_title(const struct model *m)
{
    const char *name = m->facts.config.name;
    if (*name)
        return name;
    const char *slash = strrchr(m->hub.folder, '/');
    return slash && slash[1] ? slash + 1 : m->hub.folder;
}

static int config_refuse(const struct model *m, struct err *e)
{
    const struct model_config *c = &m->facts.config;
    float magnitude = c->rope.magnitude;
    if (c->latent.rank && magnitude != 0 && fabsf(magnitude - 1) > 1e-6f)
        return err_set(e, HP_EUNSUPPORTED,
                       "%s: YaRN's mscale and mscale_all_dim differ: GGUF has no key for that",
                       m->path);
    return 0;
}

static int keys_of_config(struct model *m, struct gguf_header *h, struct err *e)
{
    const struct model_config *c = &m->facts.config;
    const struct family *f = m->facts.family;
    struct keys k = {.h = h, .prefix = family_written(f)};
    int rc = config_refuse(m, e);
    if (rc < 0)
        return rc;
    gguf_put_text(h, "general.architecture", k.prefix);
    gguf_put_text(h, "general.name", model_title(m));
    sizes_put(&k, f, c);
    rope_put(&k, c);
    windows_put(&k, f, c);
    experts_put(&k, c);
    latent_put(&k, c);
    scales_put(&k, f, c);
    pooling_put(&k, c);
    return convert_tokens(m, h, e);
}

/* ---- what another file says ---- */

static bool key_begins(const struct gguf_key *k, const char *with)
{
    size_t n = strlen(with);
    return k->name.size >= n && memcmp(k->name.data, with, n) == 0;
}

static void keys_copy(const struct model *m, struct gguf_header *h)
{
    for (size_t i = 0; i < m->gguf.n_keys; i++) {
        const struct gguf_key *k = &m->gguf.keys[i];
        if (!key_begins(k, "general.file_type") && !key_begins(k, "general.quantization_version") &&
            !key_begins(k, "general.alignment") && !key_begins(k, "split."))
            gguf_put_copy(h, k);
    }
}

int convert_keys(struct model *m, const struct convert_type *type, struct gguf_header *h,
                 struct err *e)
{
    int rc = 0;
    if (m->form == FORM_GGUF)
        keys_copy(m, h);
    else
        rc = keys_of_config(m, h, e);
    gguf_put_u32(h, "general.file_type", type->file_type);
    if (dtype_info(type->dtype)->block_elements > 1)
        gguf_put_u32(h, "general.quantization_version", QUANTISATION_VERSION);
    return rc;
}
