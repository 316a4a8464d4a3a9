/* The keys of a GGUF file as a model's config. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/graph/facts.h"
#include "model/graph/facts_source.h"
#include "model/graph/rope.h"

static const char *key_of(const struct facts_source *s, const char *name, char *out, size_t size)
{
    snprintf(out, size, "%s.%s", s->prefix, name);
    return out;
}

/* A count; `fallback` below 0: it must be there. */
static int get_count(const struct facts_source *s, const char *name, int fallback, int *out)
{
    return facts_count(s, (struct facts_key){.gguf = name}, fallback, out);
}

static int get_number(const struct facts_source *s, const char *name, const double *fallback,
                      double *out)
{
    char key[128];
    return gguf_get_f64(s->gguf, s->file, key_of(s, name, key, sizeof key), fallback, out, s->e);
}

static int get_heads(const struct facts_source *k, const struct family *family,
                     struct model_config *c)
{
    int values = 0;
    int rc = get_count(k, "attention.head_count", -1, &c->n_heads);
    rc = rc < 0 ? rc : get_count(k, "attention.head_count_kv", c->n_heads, &c->n_kv_heads);
    rc = rc < 0 ? rc
                : get_count(k, "attention.key_length", c->n_heads > 0 ? c->width / c->n_heads : 0,
                            &c->head_dim);
    rc = rc < 0 ? rc : get_count(k, "attention.value_length", c->head_dim, &values);
    if (rc == 0 && values != c->head_dim && !family->values_differ)
        return err_set(k->e, HP_EUNSUPPORTED,
                       "%s: keys of size %d with values of size %d (%s.attention.value_length), "
                       "which models of family %s have not",
                       k->file, c->head_dim, values, k->prefix, family->name);
    return rc;
}

static bool is_type(const struct gguf_string *type, const char *name)
{
    return type->size == strlen(name) && memcmp(type->data, name, type->size) == 0;
}

static int get_yarn(const struct facts_source *k, double factor, struct model_config *c)
{
    const double fast = 32, slow = 1, one = 1, context = c->context;
    double attention = 1;
    struct rope_yarn y = {.factor = factor, .truncate = true};
    int rc = get_number(k, "rope.scaling.yarn_beta_fast", &fast, &y.beta_fast);
    rc = rc < 0 ? rc : get_number(k, "rope.scaling.yarn_beta_slow", &slow, &y.beta_slow);
    rc = rc < 0
             ? rc
             : get_number(k, "rope.scaling.original_context_length", &context, &y.original_context);
    rc = rc < 0 ? rc : get_number(k, "rope.scaling.attn_factor", &one, &attention);
    /* A key of our own (model/convert/keys.c): the field's have none. */
    rc = rc < 0 ? rc
                : facts_flag(k, (struct facts_key){.gguf = "rope.scaling.yarn_truncate"}, true,
                             &y.truncate);
    rc = rc < 0 ? rc : rope_yarn_take(k->file, &y, k->arena, &c->rope, k->e);
    c->rope.magnitude = (float)(attention * rope_yarn_magnitude(factor, 1));
    return rc;
}

/* Position scaling by name; factors by tensor are read beside it. */
static int get_rope_scaling(const struct facts_source *k, struct model_config *c)
{
    char key[128];
    struct gguf_string type;
    double factor = 1, old_factor = 1, one = 1;
    int rc = gguf_get_string(k->gguf, k->file, key_of(k, "rope.scaling.type", key, sizeof key),
                             &type, k->e);
    rc = rc < 0 ? rc : get_number(k, "rope.scale_linear", &one, &old_factor);
    rc = rc < 0 ? rc : get_number(k, "rope.scaling.factor", &old_factor, &factor);
    if (rc < 0)
        return rc;
    c->rope.scale = 1;
    if (type.data && is_type(&type, "yarn"))
        return get_yarn(k, factor, c);
    bool none = type.data && (is_type(&type, "none") || is_type(&type, "longrope"));
    if (type.data && !none && !is_type(&type, "linear"))
        return err_set(k->e, HP_EUNSUPPORTED,
                       "%s: rope scaling \"%.*s\"; known are none, linear, yarn, longrope and "
                       "factors in rope_freqs.weight",
                       k->file, type.size > 32 ? 32 : (int)type.size, type.data);
    c->rope.scale = none || factor == 0 ? 1 : factor; /* 0 is how some writers say none */
    return 0;
}

static int get_factors(const struct facts_source *k, const char *tensor, int dims,
                       const float **out)
{
    const struct weight *factors = weight_table_find(k->weights, tensor);
    if (!factors)
        return 0;
    weight_table_ignore(k->weights, factors);
    if (dims < 2 || dims > MODEL_HEAD_MAX)
        return err_set(k->e, HP_EPARSE, "%s: %d rotated dimensions", k->file, dims);
    return rope_factors_from_weight(k->file, factors, dims, k->arena, out, k->e);
}

/* Long sequences rotate otherwise where the file has factors for them, or says so. */
static int long_factors_check(const struct facts_source *k, const struct model_config *c)
{
    char key[128];
    struct gguf_string type;
    int rc = gguf_get_string(k->gguf, k->file, key_of(k, "rope.scaling.type", key, sizeof key),
                             &type, k->e);
    bool both = rc == 0 && type.data && is_type(&type, "longrope"),
         has_short = weight_table_find(k->weights, "rope_factors_short.weight");
    if (rc < 0 || (c->rope.long_factors ? has_short : !has_short && !both))
        return rc;
    err_set(k->e, HP_EPARSE, "%s: tensor rope_factors_%s.weight is missing", k->file,
            c->rope.long_factors ? "short" : "long");
    err_hint(k->e, "without it long sequences would rotate otherwise: fetch the file again, or "
                   "convert the model anew");
    return HP_EPARSE;
}

static int get_rope(const struct facts_source *k, struct model_config *c)
{
    static const double usual_base = 10000, one = 1;
    double attention = 1;
    int rc = get_count(k, "rope.dimension_count", c->head_dim, &c->rope.dims);
    rc = rc < 0 ? rc : get_number(k, "rope.freq_base", &usual_base, &c->rope.base);
    rc = rc < 0 ? rc : get_rope_scaling(k, c);
    rc = rc < 0 ? rc : get_factors(k, "rope_freqs.weight", c->rope.dims, &c->rope.factors);
    rc = rc < 0 ? rc : get_factors(k, "rope_factors_short.weight", c->rope.dims, &c->rope.factors);
    rc = rc < 0 ? rc
                : get_factors(k, "rope_factors_long.weight", c->rope.dims, &c->rope.long_factors);
    rc = rc < 0 ? rc : long_factors_check(k, c);
    if (rc < 0 || !c->rope.long_factors)
        return rc;
    rc = get_count(k, "rope.scaling.original_context_length", c->context, &c->rope.long_from);
    rc = rc < 0 ? rc : get_number(k, "rope.scaling.attn_factor", &one, &attention);
    c->rope.magnitude = (float)attention;
    return rc;
}

/* Which blocks have the window, one truth value for each. */
static int get_window_list(const struct facts_source *k, const struct gguf_key *list, int window,
                           struct model_config *c)
{
    if (list->element_type == GGUF_STRING || list->count != (uint64_t)c->n_blocks)
        return err_set(k->e, HP_EPARSE,
                       "%s: key %s.attention.sliding_window_pattern has %llu entries for %d blocks",
                       k->file, k->prefix, (unsigned long long)list->count, c->n_blocks);
    int rc = facts_windows(k, c, window, 0, 0);
    if (rc < 0 || !c->windows)
        return rc;
    uint32_t *windows = arena_memdup(k->arena, c->windows, (size_t)c->n_blocks * sizeof *windows);
    if (!windows)
        return err_set(k->e, HP_ENOMEM, "%s: out of memory", k->file);
    for (int i = 0; i < c->n_blocks; i++)
        windows[i] = gguf_element_i64(list, (uint64_t)i) ? (uint32_t)window : 0;
    c->windows = windows;
    return 0;
}

/* Kinds of models that share the family's name and compute something else. */
static int refuse_variants(const struct facts_source *k, const struct family *family,
                           struct model_config *c)
{
    int window = 0, period = 0;
    char key[128];
    const struct gguf_key *pattern =
        gguf_find(k->gguf, key_of(k, "attention.sliding_window_pattern", key, sizeof key));
    int rc = get_count(k, "attention.sliding_window", family->gguf_window, &window);
    if (rc == 0 && pattern && pattern->type == GGUF_ARRAY)
        return get_window_list(k, pattern, window, c);
    rc = rc < 0 ? rc
                : get_count(k, "attention.sliding_window_pattern", family->window_period, &period);
    return rc < 0 ? rc : facts_windows(k, c, window, 0, period);
}

/* The vocabulary is the embedding's rows: there may be more of them than tokens. */
static int get_vocabulary(const struct facts_source *k, const struct weight_table *t,
                          struct model_config *c)
{
    const struct weight *embedding = weight_table_find(t, "token_embd.weight");
    if (!embedding)
        return err_set(k->e, HP_EPARSE, "%s: tensor token_embd.weight is missing", k->file);
    if (embedding->n_dims != 2 || embedding->shape[0] > MODEL_DIMENSION_MAX)
        return err_set(k->e, HP_EPARSE,
                       "%s: tensor token_embd.weight is not a matrix of at most %d rows", k->file,
                       MODEL_DIMENSION_MAX);
    int rows = (int)embedding->shape[0];
    int rc = get_count(k, "vocab_size", rows, &c->vocabulary);
    if (rc == 0 && c->vocabulary != rows)
        return err_set(k->e, HP_EPARSE,
                       "%s: tensor token_embd.weight has %d rows; key %s.vocab_size says %d",
                       k->file, rows, k->prefix, c->vocabulary);
    return rc;
}

static int get_sizes(const struct facts_source *k, const struct family *family,
                     struct model_config *c)
{
    double epsilon = 0;
    int rc = get_count(k, "block_count", -1, &c->n_blocks);
    rc = rc < 0 ? rc : get_count(k, "context_length", -1, &c->context);
    rc = rc < 0 ? rc : get_count(k, "embedding_length", -1, &c->width);
    rc = rc < 0 ? rc : get_count(k, "feed_forward_length", -1, &c->mlp_width);
    rc = rc < 0 ? rc : get_number(k, family->epsilon_key, NULL, &epsilon);
    c->norm_epsilon = (float)epsilon;
    return rc;
}

/* The family that the file names, and what people call the model. */
static int family_read(const struct gguf *g, const char *file, struct arena *arena,
                       struct family_facts *out, struct err *e)
{
    struct gguf_string architecture, name;
    int rc = gguf_get_string(g, file, "general.architecture", &architecture, e);
    if (rc == 0 && !architecture.data)
        return err_set(e, HP_EPARSE, "%s: key general.architecture is missing", file);
    rc = rc < 0
             ? rc
             : family_find(FORM_GGUF, file, architecture.data, architecture.size, &out->family, e);
    rc = rc < 0 ? rc : gguf_get_string(g, file, "general.name", &name, e);
    if (rc < 0)
        return rc;
    out->config.architecture = out->family->name;
    out->config.name = name.data ? arena_strndup(arena, name.data, name.size) : "";
    return out->config.name ? 0 : err_set(e, HP_ENOMEM, "%s: out of memory", file);
}

static int refuse_experts(const struct facts_source *k, const struct model_config *c)
{
    int experts = 0;
    int rc = get_count(k, "expert_count", 0, &experts);
    if (rc == 0 && experts > 0 && c->experts.n == 0)
        return err_set(k->e, HP_EUNSUPPORTED,
                       "%s: key %s.expert_count is %d, and models of family %s have no experts",
                       k->file, k->prefix, experts, c->architecture);
    return rc;
}

int facts_from_gguf(const struct gguf *g, const char *file, struct weight_table *t,
                    struct arena *arena, struct family_facts *out, struct err *e)
{
    *out = (struct family_facts){.form = FORM_GGUF, .bias = {BIAS_AS_FOUND, BIAS_AS_FOUND}};
    int rc = family_read(g, file, arena, out, e);
    if (rc < 0)
        return rc;
    struct model_config *c = &out->config;
    struct facts_source k = {.form = FORM_GGUF,
                             .file = file,
                             .gguf = g,
                             .prefix = out->family->form_name[FORM_GGUF],
                             .weights = t,
                             .arena = arena,
                             .e = e};
    rc = get_sizes(&k, out->family, c);
    rc = rc < 0 ? rc : get_heads(&k, out->family, c);
    rc = rc < 0 ? rc : get_vocabulary(&k, t, c);
    rc = rc < 0 ? rc : refuse_variants(&k, out->family, c);
    c->rope.style = out->family->rope[FORM_GGUF];
    if (rc == 0 && c->rope.style != ROPE_NONE)
        rc = get_rope(&k, c);
    c->tied_embeddings = !weight_table_find(t, "output.weight");
    if (rc == 0 && out->family->facts)
        rc = out->family->facts(&k, out);
    if (rc == 0 && c->pooling == POOLING_NONE) { /* not an encoder */
        rc = facts_causal(&k);
        rc = rc < 0 ? rc : facts_pooling(&k, POOLING_NONE, c);
    }
    rc = rc < 0 ? rc : refuse_experts(&k, c);
    rc = rc < 0 ? rc : facts_check(out, file, e);
    return rc < 0 ? rc : facts_gguf_heeded(&k, c);
}
