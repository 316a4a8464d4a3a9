/* How config.json says that positions rotate: the older style (rope_theta, rope_scaling) and the
 * newer (rope_parameters, for all layers or for each kind of them). */
#include <math.h>
#include <string.h>

#include "model/graph/facts.h"
#include "model/graph/facts_source.h"
#include "model/graph/rope.h"

typedef int (*take_fn)(const struct json_at *scaling, const struct facts_source *s, int context,
                       struct rope_config *rope);

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

static int take_llama3(const struct json_at *scaling, const struct facts_source *s, int context,
                       struct rope_config *rope)
{
    struct rope_llama3 l;
    float *factors;
    int rc = get_llama3(scaling, context, &l, s->e);
    rc = rc < 0 ? rc : rope_factors_alloc(s->file, rope->dims, s->arena, &factors, s->e);
    if (rc < 0)
        return rc;
    rope_llama3_factors(&l, rope->base, rope->dims, factors);
    rope->factors = factors;
    return 0;
}

/* By what the file says, else by the two exponents that it gives, else by the usual one. */
static int get_yarn_magnitude(const struct json_at *scaling, double factor, float *out,
                              struct err *e)
{
    double m, m_all, given = 0;
    int rc = json_opt_number_min(scaling, "mscale", 0, 0, &m, e);
    rc = rc < 0 ? rc : json_opt_number_min(scaling, "mscale_all_dim", 0, 0, &m_all, e);
    if (rc < 0)
        return rc;
    double usual = rope_yarn_magnitude(factor, 1);
    if (m > 0 && m_all > 0)
        usual = rope_yarn_magnitude(factor, m) / rope_yarn_magnitude(factor, m_all);
    rc = json_opt_number_min(scaling, "attention_factor", 0, usual, &given, e);
    *out = (float)given;
    return rc;
}

static int get_yarn(const struct json_at *scaling, int context, struct rope_yarn *y, struct err *e)
{
    int rc = json_opt_number_min(scaling, "original_max_position_embeddings", 1, context,
                                 &y->original_context, e);
    rc = rc < 0 ? rc
                : json_opt_number_min(scaling, "factor", 1e-6, context / y->original_context,
                                      &y->factor, e);
    rc = rc < 0 ? rc : json_opt_number_min(scaling, "beta_fast", 1e-6, 32, &y->beta_fast, e);
    rc = rc < 0 ? rc : json_opt_number_min(scaling, "beta_slow", 1e-6, 1, &y->beta_slow, e);
    return rc < 0 ? rc : json_opt_bool(scaling, "truncate", true, &y->truncate, e);
}

static int take_yarn(const struct json_at *scaling, const struct facts_source *s, int context,
                     struct rope_config *rope)
{
    struct rope_yarn y;
    int rc = get_yarn(scaling, context, &y, s->e);
    rc = rc < 0 ? rc : rope_yarn_take(s->file, &y, s->arena, rope, s->e);
    return rc < 0 ? rc : get_yarn_magnitude(scaling, y.factor, &rope->magnitude, s->e);
}

static int get_factor_list(const struct json_at *scaling, const char *key,
                           const struct facts_source *s, int dims, const float **out)
{
    struct json_at list;
    size_t n;
    float *factors;
    int rc = json_get(scaling, key, &list, s->e);
    rc = rc < 0 ? rc : json_as_array(&list, &n, s->e);
    rc = rc < 0 ? rc : rope_factors_alloc(s->file, dims, s->arena, &factors, s->e);
    if (rc < 0)
        return rc;
    if (n != (size_t)dims / 2)
        return json_fail(&list, s->e, "%zu factors; %d rotated dimensions have %d", n, dims,
                         dims / 2);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        struct json_at item = json_item(&list, i);
        double factor = 1;
        rc = json_as_number_min(&item, 1e-6, &factor, s->e);
        factors[i] = (float)factor;
    }
    *out = factors;
    return rc;
}

/* The original context stands beside the scaling, or in it in the newer style. */
static int take_longrope(const struct json_at *scaling, const struct facts_source *s, int context,
                         struct rope_config *rope)
{
    double original, factor, magnitude;
    struct err *e = s->e;
    int rc = json_opt_number_min(s->config, "original_max_position_embeddings", 1, context,
                                 &original, e);
    rc = rc < 0 ? rc
                : json_opt_number_min(scaling, "original_max_position_embeddings", 1, original,
                                      &original, e);
    rc = rc < 0 ? rc : json_opt_number_min(scaling, "factor", 1e-6, context / original, &factor, e);
    if (rc < 0)
        return rc;
    double usual = factor <= 1 || original <= 1 ? 1 : sqrt(1 + log(factor) / log(original));
    rc = json_opt_number_min(scaling, "attention_factor", 0, usual, &magnitude, e);
    rc = rc < 0 ? rc : get_factor_list(scaling, "short_factor", s, rope->dims, &rope->factors);
    rc = rc < 0 ? rc : get_factor_list(scaling, "long_factor", s, rope->dims, &rope->long_factors);
    if (rc < 0)
        return rc;
    rope->long_from = original < MODEL_CONTEXT_MAX ? (int)original : MODEL_CONTEXT_MAX;
    rope->magnitude = (float)magnitude;
    return 0;
}

/* Nothing changes for sequences within the original context; longer ones, of up to `factor` times
 * as many tokens, rotate by the base that the longest of them takes. */
static int take_dynamic(const struct json_at *scaling, const struct facts_source *s, int context,
                        struct rope_config *rope)
{
    double factor, original;
    float *usual, *stretched;
    int rc = json_get_number_min(scaling, "factor", 1, &factor, s->e);
    rc = rc < 0 ? rc
                : json_opt_number_min(scaling, "original_max_position_embeddings", 1, context,
                                      &original, s->e);
    if (rc < 0)
        return rc;
    double longest = fmin(fmax(context, floor(original * factor)), MODEL_CONTEXT_MAX);
    if (longest <= original || rope->dims < 4)
        return 0;
    rc = rope_factors_alloc(s->file, rope->dims, s->arena, &usual, s->e);
    rc = rc < 0 ? rc : rope_factors_alloc(s->file, rope->dims, s->arena, &stretched, s->e);
    if (rc < 0)
        return rc;
    for (int i = 0; i < rope->dims / 2; i++)
        usual[i] = 1;
    rope_dynamic_factors(factor, longest / original, rope->dims, stretched);
    rope->factors = usual;
    rope->long_factors = stretched;
    rope->long_from = (int)original;
    rope->reach = (int)longest;
    return 0;
}

static int take_linear(const struct json_at *scaling, const struct facts_source *s, int context,
                       struct rope_config *rope)
{
    (void)context;
    return json_get_number_min(scaling, "factor", 1e-6, &rope->scale, s->e);
}

/* `scaling` names its type and has the type's parameters beside it. */
static int get_scaling(const struct json_at *scaling, const struct facts_source *s, int context,
                       struct rope_config *rope)
{
    static const struct {
        const char *type;
        take_fn take; /* NULL: nothing to take */
    } types[] = {{"default", NULL},       {"linear", take_linear}, {"dynamic", take_dynamic},
                 {"llama3", take_llama3}, {"yarn", take_yarn},     {"longrope", take_longrope},
                 {"su", take_longrope}};
    const char *older, *type;
    int rc = json_as_object(scaling, s->e);
    rc = rc < 0 ? rc : json_opt_string(scaling, "type", "default", &older, s->e);
    rc = rc < 0 ? rc : json_opt_string(scaling, "rope_type", older, &type, s->e);
    if (rc < 0)
        return rc;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(type, types[i].type) == 0)
            return types[i].take ? types[i].take(scaling, s, context, rope) : 0;
    json_fail(scaling, s->e,
              "rope scaling \"%.32s\"; known are default, linear, dynamic, llama3, yarn and "
              "longrope",
              type);
    return s->e ? s->e->code = HP_EUNSUPPORTED : HP_EUNSUPPORTED;
}

/* Base, rotated part of a head, and scaling: `from` has them in the newer style, else the config in
 * the older. */
static int get_rotation(const struct json_at *from, const struct facts_source *s,
                        const struct model_config *c, struct rope_config *rope)
{
    struct json_at older;
    double base, part;
    struct err *e = s->e;
    int rc = from ? json_as_object(from, e) : 0;
    rc = rc < 0 ? rc : json_opt_number_min(s->config, "rope_theta", 1e-6, 10000, &base, e);
    rc = rc < 0 ? rc : json_opt_number_min(s->config, "partial_rotary_factor", 0, 1, &part, e);
    if (rc == 0 && from) {
        rc = json_opt_number_min(from, "rope_theta", 1e-6, base, &base, e);
        rc = rc < 0 ? rc : json_opt_number_min(from, "partial_rotary_factor", 0, part, &part, e);
    }
    if (rc < 0)
        return rc;
    if (part > 1)
        return json_fail(s->config, e, "partial_rotary_factor is %g", part);
    if (c->head_dim < 1 || c->head_dim > MODEL_HEAD_MAX)
        return json_fail(s->config, e, "a head size of %d is not within 1 to %d", c->head_dim,
                         MODEL_HEAD_MAX);
    rope->base = base;
    rope->dims = rope->dims ? rope->dims : (int)(c->head_dim * part);
    rope->scale = 1;
    if (from)
        return get_scaling(from, s, c->context, rope);
    return json_find(s->config, "rope_scaling", &older) ? get_scaling(&older, s, c->context, rope)
                                                        : 0;
}

int facts_hub_rope(const struct facts_source *s, struct model_config *c)
{
    struct json_at newer, full, sliding;
    if (!json_find(s->config, "rope_parameters", &newer))
        return get_rotation(NULL, s, c, &c->rope);
    int rc = json_as_object(&newer, s->e);
    if (rc < 0 || !json_find(&newer, "full_attention", &full))
        return rc < 0 ? rc : get_rotation(&newer, s, c, &c->rope);
    rc = get_rotation(&full, s, c, &c->rope);
    if (rc < 0 || !json_find(&newer, "sliding_attention", &sliding))
        return rc;
    c->window_rope.style = c->rope.style;
    c->has_window_rope = true;
    return get_rotation(&sliding, s, c, &c->window_rope);
}
