/* config.json of a Hugging Face folder as a model's config; config_hub_rope.c reads how positions
 * rotate. */
#include <stdio.h>
#include <string.h>

#include "model/graph/facts.h"
#include "model/graph/facts_source.h"

/* A count; `fallback` below 0: it must be there. */
static int get_count(const struct json_at *at, const char *key, int fallback, int *out,
                     struct err *e)
{
    struct json_at m;
    uint64_t value = 0;
    *out = fallback;
    if (fallback >= 0 && !json_find(at, key, &m))
        return 0;
    int rc = json_get(at, key, &m, e);
    rc = rc < 0 ? rc : json_as_u64(&m, &value, e);
    if (rc < 0)
        return rc;
    if (value > MODEL_CONTEXT_MAX)
        return json_fail(&m, e, "%llu is more than %d", (unsigned long long)value,
                         MODEL_CONTEXT_MAX);
    *out = (int)value;
    return 0;
}

static int config_unsupported(const struct json_at *at, struct err *e, const char *what)
{
    json_fail(at, e, "%s", what);
    if (e)
        e->code = HP_EUNSUPPORTED;
    return HP_EUNSUPPORTED;
}

/* A null means no window; a missing key means the family's default. */
static int get_window(const struct facts_source *s, const struct family *family,
                      struct model_config *c)
{
    json_t *window = json_object_get(s->config->value, "sliding_window");
    struct json_at at = {s->config->file, window, s->config, "sliding_window", 0};
    uint64_t tokens = (uint64_t)family->default_window, first = 0,
             period = (uint64_t)family->window_period;
    bool used = !family->window_switched;
    int rc = json_opt_bool(s->config, "use_sliding_window", used, &used, s->e);
    if (rc < 0 || family->default_window == 0 || json_is_null(window) || !used)
        return rc;
    rc = window ? json_as_u64(&at, &tokens, s->e) : 0;
    if (rc == 0 && tokens == 0)
        return json_fail(&at, s->e, "a window of no tokens");
    if (rc == 0 && family->window_switched)
        rc = json_opt_u64(s->config, "max_window_layers", (uint64_t)family->default_window_blocks,
                          &first, s->e);
    if (rc == 0 && period)
        rc = json_opt_u64(s->config, "sliding_window_pattern", period, &period, s->e);
    if (rc < 0 || tokens >= (uint64_t)c->context || first >= (uint64_t)c->n_blocks)
        return rc;
    return facts_windows(s, c, (int)tokens, (int)first, period < INT32_MAX ? (int)period : 0);
}

/* Whether a layer's kind of attention is one with a window. */
static int get_layer_type(const struct json_at *item, bool *slides, struct err *e)
{
    const char *type;
    int rc = json_as_string(item, &type, e);
    if (rc < 0)
        return rc;
    *slides = strcmp(type, "sliding_attention") == 0;
    return *slides || strcmp(type, "full_attention") == 0
               ? 0
               : config_unsupported(item, e, "a kind of attention that is not known here");
}

/* The windows of a family whose layers have them by turns, as the file lists them. */
static int take_layer_types(const struct facts_source *s, const struct json_at *list, size_t n,
                            struct model_config *c)
{
    uint32_t tokens = 0, *own = arena_alloc(s->arena, n + 1, sizeof *own);
    if (!own)
        return err_set(s->e, HP_ENOMEM, "%s: out of memory", s->file);
    if (n != (size_t)c->n_blocks)
        return json_fail(list, s->e, "%zu kinds of attention for %d layers", n, c->n_blocks);
    for (size_t i = 0; i < n; i++)
        tokens = c->windows[i] > tokens ? c->windows[i] : tokens;
    for (size_t i = 0; i < n; i++) {
        struct json_at item = json_item(list, i);
        bool slides;
        int rc = get_layer_type(&item, &slides, s->e);
        if (rc < 0)
            return rc;
        own[i] = slides ? tokens : 0;
    }
    c->windows = own;
    return 0;
}

/* What each layer is said to be. Where the family's windows have no pattern it must be what the
 * other keys make of it. */
static int get_layer_types(const struct facts_source *s, const struct family *family,
                           struct model_config *c)
{
    struct json_at list;
    size_t n;
    if (!json_find(s->config, "layer_types", &list))
        return 0;
    int rc = json_as_array(&list, &n, s->e);
    if (rc < 0 || (c->windows && family->window_period))
        return rc < 0 ? rc : take_layer_types(s, &list, n, c);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        struct json_at item = json_item(&list, i);
        bool slides, given = c->windows && i < (size_t)c->n_blocks && c->windows[i] > 0;
        rc = get_layer_type(&item, &slides, s->e);
        if (rc == 0 && slides != given && !family->window_period)
            return config_unsupported(&item, s->e,
                                      "a kind of attention that the other keys do not give it");
    }
    return rc;
}

static int refuse_activation(const struct json_at *config, const struct hub_keys *keys,
                             struct err *e)
{
    struct json_at at;
    const char *activation;
    int rc = json_opt_string(config, keys->activation, keys->activations[0], &activation, e);
    for (const char *const *known = keys->activations; rc == 0 && *known; known++)
        if (strcmp(activation, *known) == 0)
            return 0;
    if (rc < 0)
        return rc;
    char what[96];
    snprintf(what, sizeof what, "an activation function other than %s", keys->activations[0]);
    json_find(config, keys->activation, &at);
    return config_unsupported(&at, e, what);
}

/* Methods whose tensors say by themselves what they are. */
static int refuse_method(const struct json_at *quantisation, struct err *e)
{
    static const char *const known[] = {"mxfp4", "fp8", "fbgemm_fp8", "compressed-tensors"};
    const char *method;
    int rc = json_as_object(quantisation, e);
    rc = rc < 0 ? rc : json_opt_string(quantisation, "quant_method", "none", &method, e);
    if (rc < 0)
        return rc;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(method, known[i]) == 0)
            return 0;
    json_fail(quantisation, e,
              "weights quantised by the method \"%.32s\"; known are mxfp4, fp8, fbgemm_fp8 and "
              "compressed-tensors with F8_E4M3",
              method);
    if (e)
        e->code = HP_EUNSUPPORTED;
    err_hint(e, "take the model's first weights (BF16), or its GGUF file");
    return HP_EUNSUPPORTED;
}

/* Variants of a family that compute something else. */
static int refuse_variants(const struct facts_source *s, const struct family *family,
                           struct model_config *c)
{
    const struct json_at *config = s->config;
    struct err *e = s->e;
    struct json_at at;
    int rc = refuse_activation(config, family->hub, e);
    if (rc < 0)
        return rc;
    if (json_find(config, "quantization_config", &at) && (rc = refuse_method(&at, e)) < 0)
        return rc;
    rc = get_window(s, family, c);
    return rc < 0 ? rc : get_layer_types(s, family, c);
}

/* A null counts as a missing key where the family has a rule for it. */
static int get_mlp_width(const struct json_at *config, const struct hub_keys *keys,
                         struct model_config *c, struct err *e)
{
    json_t *value = json_object_get(config->value, keys->mlp_width);
    if (!keys->default_mlp || (value && !json_is_null(value)))
        return get_count(config, keys->mlp_width, -1, &c->mlp_width, e);
    c->mlp_width = c->width <= MODEL_DIMENSION_MAX ? keys->default_mlp * c->width : 0;
    return 0;
}

static int get_sizes(const struct json_at *config, const struct family *family,
                     struct model_config *c, struct err *e)
{
    const struct hub_keys *keys = family->hub;
    double epsilon;
    int rc = get_count(config, "vocab_size", -1, &c->vocabulary, e);
    rc = rc < 0 ? rc : get_count(config, keys->width, -1, &c->width, e);
    rc = rc < 0 ? rc : get_count(config, keys->blocks, -1, &c->n_blocks, e);
    rc = rc < 0 ? rc : get_count(config, keys->heads, -1, &c->n_heads, e);
    int kv_heads = family->default_kv_heads ? family->default_kv_heads : c->n_heads;
    rc = rc < 0 ? rc : get_count(config, keys->kv_heads, kv_heads, &c->n_kv_heads, e);
    rc = rc < 0 ? rc
                : get_count(config, "head_dim", c->n_heads > 0 ? c->width / c->n_heads : 0,
                            &c->head_dim, e);
    rc = rc < 0 ? rc : get_mlp_width(config, keys, c, e);
    rc = rc < 0 ? rc : get_count(config, keys->context, family->default_context, &c->context, e);
    rc = rc < 0 ? rc
                : json_opt_number_min(config, keys->epsilon, 0, keys->default_epsilon, &epsilon, e);
    c->norm_epsilon = rc < 0 ? 0 : (float)epsilon;
    return rc < 0 || !keys->rotated ? rc : get_count(config, keys->rotated, -1, &c->rope.dims, e);
}

static int get_switches(const struct json_at *config, struct family_facts *f, struct err *e)
{
    bool attention, mlp;
    int rc = json_opt_bool(config, "tie_word_embeddings", f->family->default_tied,
                           &f->config.tied_embeddings, e);
    rc = rc < 0 ? rc : json_opt_bool(config, "attention_bias", false, &attention, e);
    rc = rc < 0 ? rc : json_opt_bool(config, "mlp_bias", false, &mlp, e);
    if (rc < 0)
        return rc;
    f->bias[BIAS_GROUP_ATTENTION] = attention ? BIAS_ALWAYS : BIAS_NEVER;
    f->bias[BIAS_GROUP_MLP] = mlp ? BIAS_ALWAYS : BIAS_NEVER;
    return 0;
}

int facts_from_hub(const struct json_at *config, struct arena *arena, struct family_facts *out,
                   struct err *e)
{
    *out = (struct family_facts){.form = FORM_HUB};
    const char *type, *name;
    int rc = json_get_string(config, "model_type", &type, e);
    rc = rc < 0 ? rc : family_find(FORM_HUB, config->file, type, strlen(type), &out->family, e);
    rc = rc < 0 ? rc : json_opt_string(config, "_name_or_path", "", &name, e);
    if (rc < 0)
        return rc;
    struct model_config *c = &out->config;
    struct facts_source s = {
        .form = FORM_HUB, .file = config->file, .config = config, .arena = arena, .e = e};
    c->architecture = out->family->name;
    c->name = arena_strdup(arena, name);
    if (!c->name)
        return err_set(e, HP_ENOMEM, "%s: out of memory", config->file);
    rc = get_sizes(config, out->family, c, e);
    c->rope.style = out->family->rope[FORM_HUB];
    if (rc == 0 && c->rope.style != ROPE_NONE)
        rc = facts_hub_rope(&s, c);
    if (rc == 0 && c->rope.reach > c->context)
        c->context = c->rope.reach;
    rc = rc < 0 ? rc : refuse_variants(&s, out->family, c);
    rc = rc < 0 ? rc : get_switches(config, out, e);
    if (rc == 0 && out->family->facts)
        rc = out->family->facts(&s, out);
    if (rc == 0 && c->pooling == POOLING_NONE) /* not an encoder */
        rc = facts_causal(&s);
    return rc < 0 ? rc : facts_check(out, config->file, e);
}
