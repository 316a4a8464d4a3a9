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

/* Those that are asked about. */
struct ready_rows {
    const char *name; /* NULL: all */
    struct buffer out;
    int found, serving;
};

static void row_add(struct ready_rows *rows, const struct request_model *m)
{
    if (rows->name && strcmp(rows->name, m->name) != 0)
        return;
    write_row(&rows->out, m, rows->found++ == 0);
    rows->serving += m->serving;
}

static void deployments_add(const struct requests *r, const char *client, struct ready_rows *rows)
{
    struct request_model models[REQUEST_MAX_MODELS];
    int n = r->models(r->ctx, client, models, REQUEST_MAX_MODELS);
    for (int i = 0; i < n && i < REQUEST_MAX_MODELS; i++)
        row_add(rows, &models[i]);
}

static void pooled_add(const struct pool_requests *pools, const char *client,
                       struct ready_rows *rows)
{
    const struct infer_model *models[POOL_MAX_MODELS];
    int n = pools ? pools->models(pools->ctx, client, models) : 0;
    for (int i = 0; i < n; i++) {
        struct err why = {0};
        bool serves = pools->ready(pools->ctx, models[i], &why) == 0;
        row_add(rows, &(struct request_model){.name = models[i]->name,
                                              .state = serves ? "serving" : "waiting",
                                              .state_text = why.text,
                                              .serving = serves});
    }
}

void ready_reply(const struct requests *r, const struct pool_requests *pools,
                 struct http_exchange *x, const char *client, const char *name, bool draining,
                 bool with_models)
{
    struct ready_rows rows = {.name = name};
    struct buffer out = {0};
    deployments_add(r, client, &rows);
    pooled_add(pools, client, &rows);
    bool ready = rows.serving > 0 && !draining;
    buffer_printf(&out, "{\"ready\":%s", ready ? "true" : "false");
    if (draining)
        buffer_printf(&out, ",\"why\":\"the coordinator is stopping\"");
    else if (!ready)
        buffer_printf(&out, ",\"why\":\"%s\"",
                      rows.found ? "nothing serves now"
                      : name     ? "there is no deployment or model of pools of this name"
                                 : "nothing is deployed");
    if (with_models)
        buffer_printf(&out, ",\"models\":[%s]", buffer_cstr(&rows.out));
    buffer_printf(&out, "}");
    out.failed = out.failed || rows.out.failed;
    openai_reply_json(x, ready ? 200 : name && !rows.found ? 404 : 503, &out);
    buffer_free(&rows.out);
}
