#include "coordinator/gateway/slots.h"

#include <jansson.h>

#include "coordinator/gateway/served_model.h"

/* As many as run, and as many as may. */
static void slots_write(const json_t *told, uint64_t context, struct buffer *out)
{
    json_int_t most = json_integer_value(json_object_get(told, "max_sequences")),
               active = json_integer_value(json_object_get(told, "sequences_active"));
    buffer_printf(out, "[");
    for (json_int_t i = 0; i < most || i < active; i++)
        buffer_printf(out,
                      "%s{\"id\":%lld,\"id_task\":-1,\"n_ctx\":%llu,\"speculative\":false,"
                      "\"is_processing\":%s}",
                      i ? "," : "", (long long)i, (unsigned long long)context,
                      i < active ? "true" : "false");
    buffer_printf(out, "]");
}

void slots_reply(const struct openai *o, struct http_exchange *x, const char *client,
                 const char *name)
{
    struct served_model found = {0};
    struct buffer told = {0}, out = {0};
    struct err e = {0};
    int rc = name ? served_model_find(o, client, name, &found, &e)
                  : served_model_only(o, client, &found, &e);
    if (rc == 0 && found.in_pools)
        rc = err_set(&e, HP_EINVAL, "pools serve \"%s\", without slots", found.row.name);
    if (rc == 0)
        rc =
            o->requests->document(o->requests->ctx, DOCUMENT_DEPLOYMENT, found.row.name, &told, &e);
    if (rc < 0) {
        openai_error(x, openai_status_of(rc), e.text, "model",
                     rc == HP_ENOENT ? openai_model_code(rc) : status_word(rc));
        buffer_free(&told);
        return;
    }
    json_t *root = json_loadb(buffer_cstr(&told), told.size, 0, NULL);
    slots_write(root, found.row.context, &out);
    json_decref(root);
    buffer_free(&told);
    openai_reply_json(x, 200, &out);
}
