#include "coordinator/gateway/embedding_model.h"

/* What pools serve under the name, told as a deployment. */
static int pools_find(const struct openai *o, const char *client, const char *name,
                      struct request_model *found, struct err *e)
{
    struct pool_text text;
    int rc = o->pools->text(o->pools->ctx, client, name, &text, e);
    if (rc == 0 && !text.rows)
        rc = err_set(e, HP_EINVAL, "\"%s\" gives no rows for texts: its files name no pooling",
                     name);
    if (rc == 0)
        *found = (struct request_model){.model = text.model, .context = text.longest};
    return rc;
}

static int model_find(const struct openai *o, const char *client, const char *name,
                      struct request_model *found, bool *in_pools, struct err *e)
{
    struct err why = {0};
    int rc = o->requests->find(o->requests->ctx, client, name, found, e);
    if (rc == 0 && !found->serving && !found->waits)
        return openai_not_serving(found, e);
    if (rc != HP_ENOENT || !o->pools)
        return rc;
    rc = pools_find(o, client, name, found, &why);
    *in_pools = rc != HP_ENOENT;
    if (*in_pools)
        *e = why;
    return rc;
}

int embedding_model_take(const struct openai *o, const char *client, struct embedding_body *b,
                         bool *in_pools, struct err *e)
{
    struct request_model found;
    int rc = model_find(o, client, b->name, &found, in_pools, e);
    b->param = "model";
    b->code = openai_model_code(rc);
    if (rc < 0)
        return rc;
    b->param = NULL;
    rc = model_text_prepare(found.model, e);
    if (rc < 0)
        return rc;
    const struct model_config *c = model_config(found.model);
    b->model = model_share(found.model);
    b->width = (size_t)c->width;
    b->context = found.context;
    b->normalised = !c->unnormalised;
    return 0;
}
