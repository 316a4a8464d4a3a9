#include "coordinator/gateway/served_model.h"

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
                                      .context = text.longest,
                                      .vocabulary = (uint32_t)model_config(text.model)->vocabulary,
                                      .embeds = text.rows,
                                      .retry_after_s = 1,
                                      .model = text.model};
    return 0;
}

int served_model_find(const struct openai *o, const char *client, const char *name,
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

int served_model_status(int rc, bool in_pools)
{
    if (in_pools && (rc == HP_ETIMEOUT || rc == HP_EBUSY))
        return rc == HP_ETIMEOUT ? 429 : 503;
    return openai_status_of(rc);
}
