#include "coordinator/gateway/model_list.h"

#include <time.h>

#include "coordinator/gateway/dialect.h"
#include "coordinator/gateway/json_write.h"
#include "coordinator/gateway/served_model.h"

/* What may be asked of it. Pools serve what writes texts for `echo` alone. */
static const char *task_of(const struct served_model *m)
{
    return m->row.embeds ? "embed" : m->in_pools ? "score" : "generate";
}

/* OpenAI's fields and Anthropic's: neither's clients mind the other's. */
static void model_row(struct buffer *out, const struct served_model *served)
{
    const struct request_model *m = &served->row;
    struct tm t;
    time_t at = (time_t)m->created_s;
    char day[40] = "";
    if (gmtime_r(&at, &t))
        strftime(day, sizeof day, "%Y-%m-%dT%H:%M:%SZ", &t);
    buffer_printf(out, "{\"id\":");
    json_write_text(out, m->name);
    buffer_printf(out, ",\"type\":\"model\",\"display_name\":");
    json_write_text(out, m->name);
    buffer_printf(out, ",\"created_at\":\"%s\"", day);
    buffer_printf(out,
                  ",\"object\":\"model\",\"created\":%llu,\"owned_by\":\"hodgepodge\",\"max_model_"
                  "len\":%llu,\"vocabulary\":%u,\"task\":\"%s\",\"state\":",
                  (unsigned long long)m->created_s, (unsigned long long)m->context, m->vocabulary,
                  task_of(served));
    json_write_text(out, m->state);
    buffer_printf(out, "}");
}

static void serving_write(const struct openai *o, const char *client, struct buffer *out)
{
    struct served_model models[SERVED_MAX_MODELS];
    int n = served_models_list(o, client, models), listed = 0;
    buffer_printf(out, "{\"object\":\"list\",\"data\":[");
    for (int i = 0; i < n; i++)
        if (models[i].row.serving) {
            buffer_printf(out, "%s", listed++ ? "," : "");
            model_row(out, &models[i]);
        }
    buffer_printf(out, "],\"has_more\":false}");
}

void model_list_reply(const struct openai *o, struct http_exchange *x, const char *client,
                      const char *name)
{
    struct served_model one;
    struct err e = {0};
    struct buffer out = {0};
    int rc = name ? served_model_find(o, client, name, &one, &e) : 0;
    if (rc < 0) {
        openai_error(x, served_model_status(rc, one.in_pools), e.text, "model",
                     openai_model_code(rc));
        return;
    }
    if (name)
        model_row(&out, &one);
    else
        serving_write(o, client, &out);
    openai_reply_json(x, 200, &out);
}

void model_list_reply_ollama(const struct openai *o, struct http_exchange *x, const char *client,
                             bool running)
{
    struct served_model models[SERVED_MAX_MODELS];
    struct request_model rows[SERVED_MAX_MODELS];
    struct buffer out = {0};
    int n = served_models_list(o, client, models);
    for (int i = 0; i < n; i++)
        rows[i] = models[i].row;
    ollama_write_tags(&out, rows, n, running);
    openai_reply_json(x, 200, &out);
}
