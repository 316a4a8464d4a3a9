#include "model/graph/facts_source.h"

#include <math.h>
#include <stdio.h>

enum { KEY_NAME_BYTES = 128 };

static const char *gguf_key_of(const struct facts_source *s, const char *name,
                               char out[KEY_NAME_BYTES])
{
    snprintf(out, KEY_NAME_BYTES, "%s.%s", s->prefix, name);
    return out;
}

static bool key_is_there(const struct facts_source *s, struct facts_key k)
{
    char key[KEY_NAME_BYTES];
    struct json_at at;
    if (s->form == FORM_GGUF)
        return k.gguf && gguf_find(s->gguf, gguf_key_of(s, k.gguf, key));
    return k.hub && json_find(s->config, k.hub, &at);
}

int facts_count(const struct facts_source *s, struct facts_key k, int fallback, int *out)
{
    char key[KEY_NAME_BYTES];
    uint64_t value = 0;
    int rc = 0;
    *out = fallback;
    if (!key_is_there(s, k) && fallback >= 0)
        return 0;
    if (s->form == FORM_GGUF)
        rc = gguf_get_same_u64(s->gguf, s->file, gguf_key_of(s, k.gguf, key), NULL, &value, s->e);
    else
        rc = json_get_u64(s->config, k.hub, &value, s->e);
    if (rc == 0 && value > MODEL_CONTEXT_MAX)
        return err_set(s->e, HP_EPARSE, "%s: key %s is %llu, more than %d", s->file,
                       s->form == FORM_GGUF ? key : k.hub, (unsigned long long)value,
                       MODEL_CONTEXT_MAX);
    *out = (int)value;
    return rc;
}

int facts_number(const struct facts_source *s, struct facts_key k, double fallback, float *out)
{
    char key[KEY_NAME_BYTES];
    double value = fallback;
    int rc = 0;
    if (key_is_there(s, k)) {
        struct json_at at;
        if (s->form == FORM_GGUF)
            rc = gguf_get_f64(s->gguf, s->file, gguf_key_of(s, k.gguf, key), &fallback, &value,
                              s->e);
        else if (json_find(s->config, k.hub, &at))
            rc = json_as_number(&at, &value, s->e);
    }
    *out = (float)value;
    if (rc == 0 && !isfinite(*out))
        return err_set(s->e, HP_EPARSE, "%s: key %s is %g", s->file,
                       s->form == FORM_GGUF ? k.gguf : k.hub, value);
    return rc;
}

int facts_flag(const struct facts_source *s, struct facts_key k, bool fallback, bool *out)
{
    char key[KEY_NAME_BYTES];
    *out = fallback;
    if (!key_is_there(s, k))
        return 0;
    if (s->form == FORM_GGUF)
        return gguf_get_bool(s->gguf, s->file, gguf_key_of(s, k.gguf, key), fallback, out, s->e);
    return json_opt_bool(s->config, k.hub, fallback, out, s->e);
}

int facts_refuse(const struct facts_source *s, struct facts_key k, const char *what)
{
    char key[KEY_NAME_BYTES];
    struct json_at at;
    if (s->form == FORM_GGUF)
        return err_set(s->e, HP_EUNSUPPORTED, "%s: key %s: %s", s->file,
                       gguf_key_of(s, k.gguf, key), what);
    if (json_find(s->config, k.hub, &at))
        json_fail(&at, s->e, "%s", what);
    else
        json_fail(s->config, s->e, "%s: %s", k.hub, what);
    if (s->e)
        s->e->code = HP_EUNSUPPORTED;
    return HP_EUNSUPPORTED;
}

int facts_windows(const struct facts_source *s, struct model_config *c, int tokens, int first,
                  int period)
{
    c->windows = NULL;
    if (tokens <= 0 || tokens >= c->context || first >= c->n_blocks || c->n_blocks < 1 ||
        c->n_blocks > MODEL_BLOCKS_MAX)
        return 0;
    uint32_t *windows = arena_alloc(s->arena, (size_t)c->n_blocks, sizeof *windows);
    if (!windows)
        return err_set(s->e, HP_ENOMEM, "%s: out of memory", s->file);
    for (int i = 0; i < c->n_blocks; i++) {
        bool global = period > 0 ? (i + 1) % period == 0 : i < first;
        windows[i] = global ? 0 : (uint32_t)tokens;
    }
    c->windows = windows;
    return 0;
}

int facts_pooling(const struct facts_source *s, enum model_pooling fallback, struct model_config *c)
{
    const enum model_pooling kinds[] = {fallback, POOLING_MEAN, POOLING_FIRST, POOLING_LAST};
    enum { N_KINDS = sizeof kinds / sizeof *kinds };
    const struct facts_key key = {"pooling_type", NULL}, length = {"pooling_normalised", NULL};
    bool normalised;
    int kind, rc = facts_count(s, key, 0, &kind);
    rc = rc < 0 ? rc : facts_flag(s, length, true, &normalised);
    if (rc == 0 && kind >= N_KINDS)
        return facts_refuse(s, key, "only mean, first and last token are pooled here");
    c->pooling = rc < 0 ? POOLING_NONE : kinds[kind];
    c->unnormalised = rc == 0 && !normalised;
    return rc;
}

int facts_causal(const struct facts_source *s)
{
    static const struct facts_key keys[] = {{"attention.causal", "is_causal"},
                                            {NULL, "use_bidirectional_attention"}};
    bool causal, both;
    int rc = facts_flag(s, keys[0], true, &causal);
    rc = rc < 0 ? rc : facts_flag(s, keys[1], false, &both);
    if (rc == 0 && (!causal || both))
        return facts_refuse(s, keys[both],
                            "a model of this family whose tokens see what is behind them");
    return rc;
}
