/* config.json of a Hugging Face folder as a model's config: the older style (rope_theta,
 * rope_scaling) and the newer (rope_parameters). */
#include <stdio.h>
#include <string.h>

#include "model/graph/facts.h"
#include "model/graph/rope.h"

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

static int get_llama3(const struct json_at *scaling, int context, struct rope_llama3 *s,
                      struct err *e)
{
    int rc = json_get_number_min(scaling, "factor", 1, &s->factor, e);
    rc =
        rc < 0 ? rc : json_get_number_min(scaling, "low_freq_factor", 1e-6, &s->low_freq_factor, e);
    rc = rc < 0 ? rc
                : json_get_number_min(scaling, "high_freq_factor", 1e-6, &s->high_freq_factor, e);
    rc = rc < 0 ? rc
                : json_opt_number_min(scaling, "original_max_position_embeddings", 1, context,
                                      &s->original_context, e);
    if (rc == 0 && s->high_freq_factor <= s->low_freq_factor)
        return json_fail(scaling, e, "high_freq_factor %g is not above low_freq_factor %g",
                         s->high_freq_factor, s->low_freq_factor);
    return rc;
}

/* `scaling` names its type and has the type's parameters beside it. */
static int get_scaling(const struct json_at *scaling, struct arena *arena, struct model_config *c,
                       struct err *e)
{
    const char *older, *type;
    int rc = json_as_object(scaling, e);
    rc = rc < 0 ? rc : json_opt_string(scaling, "type", "default", &older, e);
    rc = rc < 0 ? rc : json_opt_string(scaling, "rope_type", older, &type, e);
    if (rc < 0 || strcmp(type, "default") == 0)
        return rc;
    if (strcmp(type, "linear") == 0)
        return json_get_number_min(scaling, "factor", 1e-6, &c->rope.scale, e);
    if (strcmp(type, "llama3") != 0) {
        json_fail(scaling, e, "rope scaling \"%.32s\"; known are default, linear and llama3", type);
        return e ? e->code = HP_EUNSUPPORTED : HP_EUNSUPPORTED;
    }
    struct rope_llama3 s;
    rc = get_llama3(scaling, c->context, &s, e);
    if (rc < 0)
        return rc;
    float *factors = arena_alloc(arena, (size_t)c->rope.dims / 2 + 1, sizeof *factors);
    if (!factors)
        return err_set(e, HP_ENOMEM, "%s: out of memory", scaling->file);
    rope_llama3_factors(&s, c->rope.base, c->rope.dims, factors);
    c->rope.factors = factors;
    return 0;
}

static int get_rope(const struct json_at *config, struct arena *arena, struct model_config *c,
                    struct err *e)
{
    struct json_at newer, older, none = {config->file, NULL, config, "rope_parameters", 0};
    double base, part;
    bool has_newer = json_find(config, "rope_parameters", &newer),
         has_older = json_find(config, "rope_scaling", &older);
    const struct json_at *from = has_newer ? &newer : &none;
    if (has_newer && json_as_object(&newer, e) < 0)
        return HP_EPARSE;
    int rc = json_opt_number_min(config, "rope_theta", 1e-6, 10000, &base, e);
    rc = rc < 0 ? rc : json_opt_number_min(from, "rope_theta", 1e-6, base, &c->rope.base, e);
    rc = rc < 0 ? rc : json_opt_number_min(config, "partial_rotary_factor", 0, 1, &part, e);
    rc = rc < 0 ? rc : json_opt_number_min(from, "partial_rotary_factor", 0, part, &part, e);
    if (rc < 0)
        return rc;
    if (part > 1)
        return json_fail(config, e, "partial_rotary_factor is %g", part);
    if (c->head_dim < 1 || c->head_dim > MODEL_HEAD_MAX)
        return json_fail(config, e, "a head size of %d is not within 1 to %d", c->head_dim,
                         MODEL_HEAD_MAX);
    c->rope.dims = (int)(c->head_dim * part);
    c->rope.scale = 1;
    if (has_newer)
        return get_scaling(&newer, arena, c, e);
    return has_older ? get_scaling(&older, arena, c, e) : 0;
}

static int config_unsupported(const struct json_at *at, struct err *e, const char *what)
{
    json_fail(at, e, "%s", what);
    if (e)
        e->code = HP_EUNSUPPORTED;
    return HP_EUNSUPPORTED;
}

/* A null means no window; a missing key means the family's default. One that is as long as the
 * context hides nothing. */
static int get_window(const struct json_at *config, const struct family *family,
                      struct model_config *c, struct err *e)
{
    json_t *window = json_object_get(config->value, "sliding_window");
    struct json_at at = {config->file, window, config, "sliding_window", 0};
    uint64_t tokens = (uint64_t)family->default_window, first = 0;
    bool used = !family->window_switched;
    int rc = json_opt_bool(config, "use_sliding_window", used, &used, e);
    if (rc < 0 || family->default_window == 0 || json_is_null(window) || !used)
        return rc;
    rc = window ? json_as_u64(&at, &tokens, e) : 0;
    if (rc == 0 && tokens == 0)
        return json_fail(&at, e, "a window of no tokens");
    if (rc == 0 && family->window_switched)
        rc = json_opt_u64(config, "max_window_layers", (uint64_t)family->default_window_blocks,
                          &first, e);
    if (rc == 0 && tokens < (uint64_t)c->context && first < (uint64_t)c->n_blocks) {
        c->window = (int)tokens;
        c->window_first_block = (int)first;
    }
    return rc;
}

/* What each layer is said to be must be what the other keys make of it. */
static int check_layer_types(const struct json_at *config, const struct model_config *c,
                             struct err *e)
{
    struct json_at at;
    size_t n;
    if (!json_find(config, "layer_types", &at))
        return 0;
    int rc = json_as_array(&at, &n, e);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        struct json_at item = json_item(&at, i);
        const char *type, *own = c->window && i >= (size_t)c->window_first_block
                                     ? "sliding_attention"
                                     : "full_attention";
        rc = json_as_string(&item, &type, e);
        if (rc == 0 && strcmp(type, own) != 0)
            return config_unsupported(&item, e,
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

/* Variants of a family that compute something else. */
static int refuse_variants(const struct json_at *config, const struct family *family,
                           struct model_config *c, struct err *e)
{
    struct json_at at;
    int rc = refuse_activation(config, family->hub, e);
    if (rc < 0)
        return rc;
    if (json_find(config, "quantization_config", &at))
        return config_unsupported(&at, e, "weights quantised by a method of their own");
    rc = get_window(config, family, c, e);
    return rc < 0 ? rc : check_layer_types(config, c, e);
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
    return rc;
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
    c->architecture = out->family->name;
    c->name = arena_strdup(arena, name);
    if (!c->name)
        return err_set(e, HP_ENOMEM, "%s: out of memory", config->file);
    rc = get_sizes(config, out->family, c, e);
    rc = rc < 0 ? rc : refuse_variants(config, out->family, c, e);
    rc = rc < 0 ? rc : get_switches(config, out, e);
    c->rope.style = out->family->rope[FORM_HUB];
    if (rc == 0 && c->rope.style != ROPE_NONE)
        rc = get_rope(config, arena, c, e);
    return rc < 0 ? rc : facts_check(out, config->file, e);
}
