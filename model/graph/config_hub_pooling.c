/* What the files of a sentence encoder (the folder layout of `sentence-transformers`) say of
 * pooling: 1_Pooling/config.json and modules.json. */
#include <string.h>

#include "model/graph/facts.h"

static int pooling_unsupported(const struct json_at *at, struct err *e, const char *what)
{
    json_fail(at, e, "%s; known are mean, the first token ([CLS]) and the last token", what);
    if (e)
        e->code = HP_EUNSUPPORTED;
    return HP_EUNSUPPORTED;
}

static int read_mode(const struct json_at *config, enum model_pooling *out, struct err *e)
{
    static const struct {
        const char *key, *word;
        enum model_pooling pooling;
    } modes[] = {{"pooling_mode_mean_tokens", "mean", POOLING_MEAN},
                 {"pooling_mode_cls_token", "cls", POOLING_FIRST},
                 {"pooling_mode_lasttoken", "lasttoken", POOLING_LAST},
                 {"pooling_mode_max_tokens", "max", POOLING_NONE},
                 {"pooling_mode_mean_sqrt_len_tokens", "mean_sqrt_len_tokens", POOLING_NONE},
                 {"pooling_mode_weightedmean_tokens", "weightedmean", POOLING_NONE}};
    const char *word;
    int chosen = 0, rc = json_opt_string(config, "pooling_mode", "", &word, e);
    for (size_t i = 0; rc == 0 && i < sizeof modes / sizeof *modes; i++) {
        bool on;
        rc = json_opt_bool(config, modes[i].key, strcmp(word, modes[i].word) == 0, &on, e);
        if (rc < 0 || !on)
            continue;
        chosen++;
        *out = modes[i].pooling;
    }
    if (rc == 0 && (chosen != 1 || *out == POOLING_NONE))
        return pooling_unsupported(config, e, "a way of pooling that is not known here");
    return rc;
}

static int read_modules(const struct json_at *modules, bool *pooled, bool *normalised,
                        struct err *e)
{
    static const char *const known[] = {"Transformer", "Pooling", "Normalize"};
    size_t n;
    int rc = json_as_array(modules, &n, e);
    *pooled = *normalised = false;
    for (size_t i = 0; rc == 0 && i < n; i++) {
        struct json_at item = json_item(modules, i);
        const char *type;
        rc = json_get_string(&item, "type", &type, e);
        if (rc < 0)
            return rc;
        const char *dot = strrchr(type, '.');
        size_t k = 0;
        while (k < sizeof known / sizeof *known && strcmp(dot ? dot + 1 : type, known[k]) != 0)
            k++;
        if (k == sizeof known / sizeof *known)
            return pooling_unsupported(&item, e,
                                       "a part behind the encoder that is not known here");
        *pooled = *pooled || k == 1;
        *normalised = *normalised || k == 2;
    }
    return rc;
}

int facts_hub_pooling(const struct json_at *pooling, const struct json_at *modules,
                      struct model_config *c, struct err *e)
{
    bool pooled = false, normalised = true, encodes = c->pooling != POOLING_NONE;
    int rc = modules ? read_modules(modules, &pooled, &normalised, e) : 0;
    if (rc < 0 || (!encodes && !pooled))
        return rc;
    if (!encodes && !pooling)
        return pooling_unsupported(modules, e,
                                   "a decoder whose 1_Pooling/config.json is not there");
    rc = pooling ? read_mode(pooling, &c->pooling, e) : 0;
    c->unnormalised = !normalised;
    return rc;
}
