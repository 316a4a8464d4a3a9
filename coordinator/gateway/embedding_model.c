#include "coordinator/gateway/embedding_model.h"

#include <stdlib.h>
#include <string.h>

#include "coordinator/gateway/served_model.h"

/* It is called here as it is listed, whatever the body said. */
static int name_take(struct embedding_body *b, const struct request_model *row, struct err *e)
{
    char *name = b->name && strcmp(b->name, row->name) == 0 ? b->name : strdup(row->name);
    if (!name)
        return err_no_memory(e, "a request");
    if (name != b->name)
        free(b->name);
    b->name = name;
    return 0;
}

int embedding_model_take(const struct openai *o, const char *client, struct embedding_body *b,
                         bool *in_pools, struct err *e)
{
    struct served_model found = {0};
    int rc = b->name ? served_model_find(o, client, b->name, &found, e)
                     : served_model_only(o, client, &found, e);
    if (rc == 0)
        rc = name_take(b, &found.row, e);
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
