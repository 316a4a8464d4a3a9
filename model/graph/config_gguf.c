/* The keys of a GGUF file as a model's config. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/graph/facts.h"
#include "model/graph/rope.h"

struct keys {
    const struct gguf *gguf;
    const char *file;
    const char *prefix; /* the architecture: "llama" */
    struct err *e;
};

static const char *key_of(const struct keys *k, const char *name, char *out, size_t size)
{
    snprintf(out, size, "%s.%s", k->prefix, name);
    return out;
}

/* A count; `fallback` below 0: it must be there. */
static int get_count(const struct keys *k, const char *name, int fallback, int *out)
{
    char key[128];
    uint64_t value = 0, missing = fallback < 0 ? 0 : (uint64_t)fallback;
    int rc = gguf_get_same_u64(k->gguf, k->file, key_of(k, name, key, sizeof key),
                               fallback < 0 ? NULL : &missing, &value, k->e);
    if (rc < 0)
        return rc;
    if (value > MODEL_CONTEXT_MAX)
        return err_set(k->e, HP_EPARSE, "%s: key %s is %llu, more than %d", k->file, key,
                       (unsigned long long)value, MODEL_CONTEXT_MAX);
    *out = (int)value;
    return 0;
}

static int get_number(const struct keys *k, const char *name, const double *fallback, double *out)
{
    char key[128];
    return gguf_get_f64(k->gguf, k->file, key_of(k, name, key, sizeof key), fallback, out, k->e);
}

static int get_heads(const struct keys *k, struct model_config *c)
{
    int values = 0;
    int rc = get_count(k, "attention.head_count", -1, &c->n_heads);
    rc = rc < 0 ? rc : get_count(k, "attention.head_count_kv", c->n_heads, &c->n_kv_heads);
    rc = rc < 0 ? rc
                : get_count(k, "attention.key_length", c->n_heads > 0 ? c->width / c->n_heads : 0,
                            &c->head_dim);
    rc = rc < 0 ? rc : get_count(k, "attention.value_length", c->head_dim, &values);
    if (rc == 0 && values != c->head_dim)
        return err_set(k->e, HP_EUNSUPPORTED, "%s: keys of size %d with values of size %d", k->file,
                       c->head_dim, values);
    return rc;
}

/* Position scaling by name; factors by tensor are read beside it. */
static int get_rope_scaling(const struct keys *k, struct rope_config *rope)
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
    bool none = type.size == 4 && memcmp(type.data, "none", 4) == 0,
         linear = type.size == 6 && memcmp(type.data, "linear", 6) == 0;
    if (type.data && !none && !linear)
        return err_set(
            k->e, HP_EUNSUPPORTED,
            "%s: rope scaling \"%.*s\"; known are none, linear and factors in rope_freqs.weight",
            k->file, type.size > 32 ? 32 : (int)type.size, type.data);
    rope->scale = none || factor == 0 ? 1 : factor; /* 0 is how some writers say none */
    return 0;
}

static int get_rope(const struct keys *k, struct weight_table *t, struct arena *arena,
                    struct model_config *c)
{
    static const double usual_base = 10000;
    int rc = get_count(k, "rope.dimension_count", c->head_dim, &c->rope.dims);
    rc = rc < 0 ? rc : get_number(k, "rope.freq_base", &usual_base, &c->rope.base);
    rc = rc < 0 ? rc : get_rope_scaling(k, &c->rope);
    const struct weight *factors = weight_table_find(t, "rope_freqs.weight");
    if (rc < 0 || !factors)
        return rc;
    weight_table_ignore(t, factors);
    if (c->rope.dims < 2 || c->rope.dims > MODEL_HEAD_MAX)
        return err_set(k->e, HP_EPARSE, "%s: %d rotated dimensions", k->file, c->rope.dims);
    return rope_factors_from_weight(k->file, factors, c->rope.dims, arena, &c->rope.factors, k->e);
}

/* Kinds of models that share the family's name and compute something else. */
static int refuse_variants(const struct keys *k, struct model_config *c)
{
    int experts = 0, window = 0, parts = 0;
    int rc = get_count(k, "expert_count", 0, &experts);
    rc = rc < 0 ? rc : get_count(k, "attention.sliding_window", 0, &window);
    if (rc < 0)
        return rc;
    if (experts > 0)
        return err_set(k->e, HP_EUNSUPPORTED,
                       "%s: a mixture of %d experts, which this version does not run", k->file,
                       experts);
    c->window = window < c->context ? window : 0;
    uint64_t none = 0, split = 0;
    rc = gguf_get_u64(k->gguf, k->file, "split.count", &none, &split, k->e);
    parts = split > 1 ? (int)(split & 0xffff) : 0;
    return rc == 0 && parts
               ? err_set(k->e, HP_EUNSUPPORTED, "%s: one of %d parts of a model; join them first",
                         k->file, parts)
               : rc;
}

/* The vocabulary is the embedding's rows: there may be more of them than tokens. */
static int get_vocabulary(const struct keys *k, const struct weight_table *t,
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

static int get_sizes(const struct keys *k, const struct family *family, struct model_config *c)
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

int facts_from_gguf(const struct gguf *g, const char *file, struct weight_table *t,
                    struct arena *arena, struct family_facts *out, struct err *e)
{
    *out = (struct family_facts){.form = FORM_GGUF, .bias = {BIAS_AS_FOUND, BIAS_AS_FOUND}};
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
    struct model_config *c = &out->config;
    c->architecture = out->family->name;
    c->name = name.data ? arena_strndup(arena, name.data, name.size) : "";
    if (!c->name)
        return err_set(e, HP_ENOMEM, "%s: out of memory", file);
    struct keys k = {g, file, out->family->form_name[FORM_GGUF], e};
    rc = get_sizes(&k, out->family, c);
    rc = rc < 0 ? rc : get_heads(&k, c);
    rc = rc < 0 ? rc : get_vocabulary(&k, t, c);
    rc = rc < 0 ? rc : refuse_variants(&k, c);
    c->rope.style = out->family->rope[FORM_GGUF];
    if (rc == 0 && c->rope.style != ROPE_NONE)
        rc = get_rope(&k, t, arena, c);
    c->tied_embeddings = !weight_table_find(t, "output.weight");
    return rc < 0 ? rc : facts_check(out, file, e);
}
