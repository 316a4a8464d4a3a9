#include "coordinator/gateway/embedding_model.h"

#include "coordinator/gateway/served_model.h"

int embedding_model_take(const struct openai *o, const char *client, struct embedding_body *b,
                         bool *in_pools, struct err *e)
{
    struct served_model found;
    int rc = served_model_find(o, client, b->name, &found, e);
    *in_pools = found.in_pools;
    b->param = "model";
    b->code = openai_model_code(rc);
    if (rc == 0 && !found.row.serving && !found.row.waits)
        rc = openai_not_serving(&found.row, e);
    if (rc == 0 && found.in_pools && !found.row.embeds)
        rc = err_set(e, HP_EINVAL, "\"%s\" gives no rows for texts: its files name no pooling",
                     b->name);
    if (rc < 0)
        return rc;
    b->param = NULL;
    rc = model_text_prepare(found.row.model, e);
    if (rc < 0)
        return rc;
    const struct model_config *c = model_config(found.row.model);
    b->model = model_share(found.row.model);
    b->width = (size_t)c->width;
    b->context = found.row.context;
    b->normalised = !c->unnormalised;
    return 0;
}
