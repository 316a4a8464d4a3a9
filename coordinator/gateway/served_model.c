#include "coordinator/gateway/served_model.h"

#include <string.h>

#include "common/suggestion.h"

static int pools_find(const struct openai *o, const char *client, const char *name,
                      struct served_model *out, struct err *e)
{
    struct pool_text text;
    int rc = o->pools->text(o->pools->ctx, client, name, &text, e);
    if (rc < 0)
        return rc;
    out->row = (struct request_model){.name = name,
                                      .state = "serving",
                                      .state_text = "",
                                      .serving = true,
                                      .created_s = text.applied_s,
                                      .context = text.longest,
                                      .vocabulary = (uint32_t)model_config(text.model)->vocabulary,
                                      .embeds = text.rows,
                                      .retry_after_s = 1,
                                      .model = text.model};
    return 0;
}

int served_models_list(const struct openai *o, const char *client, struct served_model *out)
{
    struct request_model rows[REQUEST_MAX_MODELS];
    const struct infer_model *pooled[POOL_MAX_MODELS];
    struct err ignored;
    int n = o->requests->models(o->requests->ctx, client, rows, REQUEST_MAX_MODELS);
    n = n < REQUEST_MAX_MODELS ? n : REQUEST_MAX_MODELS;
    for (int i = 0; i < n; i++)
        out[i] = (struct served_model){.row = rows[i]};
    int n_pooled = o->pools ? o->pools->models(o->pools->ctx, client, pooled) : 0;
    for (int i = 0; i < n_pooled; i++) {
        out[n] = (struct served_model){.in_pools = true};
        n += pools_find(o, client, pooled[i]->name, &out[n], &ignored) == 0;
    }
    return n;
}

int served_model_only(const struct openai *o, const char *client, struct served_model *out,
                      struct err *e)
{
    struct served_model all[SERVED_MAX_MODELS];
    int n = served_models_list(o, client, all), deployed = 0;
    while (deployed < n && !all[deployed].in_pools)
        deployed++;
    int among = deployed ? deployed : n;
    if (among != 1)
        return err_set(e, among ? HP_EINVAL : HP_ENOENT,
                       among ? "model: there are several %s: say which one"
                             : "model: nothing is deployed here",
                       deployed ? "deployments" : "models");
    *out = all[0];
    return 0;
}

static int model_find(const struct openai *o, const char *client, const char *name,
                      struct served_model *out, struct err *e)
{
    struct err why = {0};
    *out = (struct served_model){0};
    int rc = o->requests->find(o->requests->ctx, client, name, &out->row, e);
    if (rc != HP_ENOENT || !o->pools)
        return rc;
    rc = pools_find(o, client, name, out, &why);
    out->in_pools = rc != HP_ENOENT;
    if (out->in_pools)
        *e = why;
    return rc;
}

/* Whether pools serve a network of this name, which no text is said to. */
static bool network_is_named(const struct openai *o, const char *client, const char *name)
{
    const struct infer_model *all[POOL_MAX_MODELS];
    int n = o->pools ? o->pools->models(o->pools->ctx, client, all) : 0;
    for (int i = 0; i < n; i++)
        if (strcmp(all[i]->name, name) == 0)
            return true;
    return false;
}

/* Says which name is nearest, of those that the client may use. */
static void suggestion_add(const struct openai *o, const char *client, const char *name,
                           struct err *e)
{
    struct served_model all[SERVED_MAX_MODELS];
    struct suggestion near = {0};
    struct err why = *e;
    int n = served_models_list(o, client, all);
    const char *slash = strrchr(name, '/');
    for (int i = 0; i < n; i++)
        suggestion_try(&near, slash ? slash + 1 : name, all[i].row.name);
    if (near.best)
        err_set(e, HP_ENOENT, "%s; did you mean \"%s\"?", why.text, near.best);
}

int served_model_find(const struct openai *o, const char *client, const char *name,
                      struct served_model *out, struct err *e)
{
    const char *slash = strrchr(name, '/');
    struct err why = {0};
    int rc = model_find(o, client, name, out, e);
    /* a key's list of models refuses what is not there, too */
    if ((rc == HP_ENOENT || rc == HP_EDENIED) && slash && slash[1]) {
        int found = model_find(o, client, slash + 1, out, &why);
        if (found != HP_ENOENT) { /* else with the name as it was asked for */
            *e = why;
            return found;
        }
    }
    if (rc != HP_ENOENT)
        return rc;
    if (network_is_named(o, client, name))
        return err_set(e, HP_ENOENT,
                       "\"%.100s\" is a network that pools serve: it takes tensors, at "
                       "/v2/models/%.100s/infer, and no texts",
                       name, name);
    suggestion_add(o, client, name, e);
    return rc;
}

int served_model_status(int rc, bool in_pools)
{
    if (in_pools && (rc == HP_ETIMEOUT || rc == HP_EBUSY))
        return rc == HP_ETIMEOUT ? 429 : 503;
    return openai_status_of(rc);
}
