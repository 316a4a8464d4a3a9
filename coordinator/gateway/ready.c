#include "coordinator/gateway/ready.h"

#include <string.h>

#include "coordinator/gateway/json_write.h"
#include "coordinator/gateway/openai.h"

static void write_row(struct buffer *out, const struct request_model *m, bool first)
{
    buffer_printf(out, "%s{\"id\":", first ? "" : ",");
    json_write_text(out, m->name);
    buffer_printf(out, ",\"ready\":%s,\"state\":", m->serving ? "true" : "false");
    json_write_text(out, m->state);
    buffer_printf(out, ",\"why\":");
    json_write_text(out, m->serving || !m->state_text ? "" : m->state_text);
    buffer_printf(out, "}");
}

void ready_reply(const struct requests *r, struct http_exchange *x, const char *client,
                 const char *name, bool draining, bool with_models)
{
    struct request_model models[REQUEST_MAX_MODELS];
    struct buffer rows = {0}, out = {0};
    int n = r->models(r->ctx, client, models, REQUEST_MAX_MODELS), found = 0, serving = 0;
    for (int i = 0; i < n && i < REQUEST_MAX_MODELS; i++) {
        if (name && strcmp(name, models[i].name) != 0)
            continue;
        write_row(&rows, &models[i], found++ == 0);
        serving += models[i].serving;
    }
    bool ready = serving > 0 && !draining;
    buffer_printf(&out, "{\"ready\":%s", ready ? "true" : "false");
    if (draining)
        buffer_printf(&out, ",\"why\":\"the coordinator is stopping\"");
    else if (!ready)
        buffer_printf(&out, ",\"why\":\"%s\"",
                      found  ? "nothing serves now"
                      : name ? "there is no deployment of this name"
                             : "nothing is deployed");
    if (with_models)
        buffer_printf(&out, ",\"models\":[%s]", buffer_cstr(&rows));
    buffer_printf(&out, "}");
    out.failed = out.failed || rows.failed;
    openai_reply_json(x, ready ? 200 : name && !found ? 404 : 503, &out);
    buffer_free(&rows);
}
