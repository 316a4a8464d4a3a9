#include "coordinator/gateway/slots.h"

#include "coordinator/gateway/served_model.h"

/* As many as may run; the first ones do. */
static void slots_write(const struct request_model *m, struct buffer *out)
{
    buffer_printf(out, "[");
    for (uint32_t i = 0; i < m->slots || i < m->busy; i++)
        buffer_printf(out,
                      "%s{\"id\":%u,\"id_task\":-1,\"n_ctx\":%llu,\"speculative\":false,"
                      "\"is_processing\":%s}",
                      i ? "," : "", i, (unsigned long long)m->context,
                      i < m->busy ? "true" : "false");
    buffer_printf(out, "]");
}

void slots_reply(const struct openai *o, struct http_exchange *x, const char *client,
                 const char *name, bool fails_when_full)
{
    struct served_model found = {0};
    struct buffer out = {0};
    struct err e = {0};
    int rc = name ? served_model_find(o, client, name, &found, &e)
                  : served_model_only(o, client, &found, &e);
    if (rc == 0 && found.in_pools)
        rc = err_set(&e, HP_EINVAL, "pools serve \"%s\", without slots", found.row.name);
    else if (rc == 0 && fails_when_full && found.row.busy >= found.row.slots)
        rc = err_set(&e, HP_EBUSY, "no slot available: \"%s\" has %u sequences, as many as it may",
                     found.row.name, found.row.busy);
    if (rc < 0) {
        openai_error(x, openai_status_of(rc), e.text, rc == HP_EBUSY ? NULL : "model",
                     rc == HP_ENOENT ? openai_model_code(rc) : status_word(rc));
        return;
    }
    slots_write(&found.row, &out);
    openai_reply_json(x, 200, &out);
}
