/* Ollama's API: a line of JSON for each piece of an answer, durations in nanoseconds, streams
 * unless "stream" is false. */
#include <inttypes.h>
#include <string.h>
#include <time.h>

#include "coordinator/gateway/dialect.h"
#include "coordinator/gateway/json_write.h"
#include "coordinator/gateway/ollama_body.h"
#include "coordinator/gateway/ollama_model.h"

/* ---- answers ---- */

static void time_write(struct buffer *out, time_t at)
{
    struct tm t;
    char text[40] = "";
    if (gmtime_r(&at, &t))
        strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &t);
    buffer_printf(out, "\"%s\"", text);
}

static void line_begin(struct buffer *out, const struct openai_head *h)
{
    buffer_printf(out, "{\"model\":");
    json_write_text(out, h->model);
    buffer_printf(out, ",\"created_at\":");
    time_write(out, (time_t)h->created_s);
}

static void line_end(struct buffer *out, const char *finish, const struct request_usage *u)
{
    double all_s = u->waited_s + u->prefill_s + u->decode_s;
    buffer_printf(out,
                  ",\"done\":true,\"done_reason\":\"%s\",\"total_duration\":%.0f,\"load_duration\":"
                  "0,\"prompt_eval_count\":%" PRIu64
                  ",\"prompt_eval_duration\":%.0f,\"eval_count\":%" PRIu64
                  ",\"eval_duration\":%.0f}\n",
                  strcmp(finish, "tool_calls") == 0 ? "stop" : finish, all_s * 1e9,
                  u->prompt_tokens, u->prefill_s * 1e9, u->output_tokens, u->decode_s * 1e9);
}

static void message_write(struct buffer *out, const char *text, size_t n)
{
    buffer_printf(out, ",\"message\":{\"role\":\"assistant\",\"content\":");
    json_write_string(out, text, n);
    buffer_printf(out, "}");
}

static void response_write(struct buffer *out, const char *text, size_t n)
{
    buffer_printf(out, ",\"response\":");
    json_write_string(out, text, n);
}

static void thinking_write(struct buffer *out, const char *text, size_t n)
{
    if (n == 0)
        return;
    buffer_printf(out, ",\"thinking\":");
    json_write_string(out, text, n);
}

static void call_write(struct buffer *out, const struct openai_call *call)
{
    buffer_printf(out, "%s{\"id\":\"%s\",\"function\":{\"index\":%" PRIu32 ",\"name\":",
                  call->index ? "," : "", call->id, call->index);
    json_write_text(out, call->name);
    buffer_printf(out, ",\"arguments\":");
    buffer_append(out, call->arguments, call->n_arguments);
    buffer_printf(out, "}}");
}

static void chat_reasoning(struct buffer *out, const struct openai_head *h, uint32_t index,
                           const char *text, size_t n)
{
    (void)index;
    line_begin(out, h);
    buffer_printf(out, ",\"message\":{\"role\":\"assistant\",\"content\":\"\"");
    thinking_write(out, text, n);
    buffer_printf(out, "},\"done\":false}\n");
}

static void generate_reasoning(struct buffer *out, const struct openai_head *h, uint32_t index,
                               const char *text, size_t n)
{
    (void)index;
    line_begin(out, h);
    response_write(out, "", 0);
    thinking_write(out, text, n);
    buffer_printf(out, ",\"done\":false}\n");
}

static void chat_call(struct buffer *out, const struct openai_head *h, uint32_t index,
                      const struct openai_call *call)
{
    struct openai_call alone = *call;
    (void)index;
    alone.index = 0;
    line_begin(out, h);
    buffer_printf(out, ",\"message\":{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[");
    call_write(out, &alone);
    buffer_printf(out, "]},\"done\":false}\n");
}

/* NULL: nothing is said of them. */
static void scores_write(struct buffer *out, struct answer_scores *scores)
{
    if (!scores || !scores->tells)
        return;
    buffer_printf(out, ",\"logprobs\":");
    answer_scores_write_list(scores, out);
}

static void chat_scored(struct buffer *out, const struct openai_head *h, uint32_t index,
                        const char *text, size_t n, struct answer_scores *scores)
{
    (void)index;
    line_begin(out, h);
    message_write(out, text, n);
    scores_write(out, scores);
    buffer_printf(out, ",\"done\":false}\n");
}

static void generate_scored(struct buffer *out, const struct openai_head *h, uint32_t index,
                            const char *text, size_t n, struct answer_scores *scores)
{
    (void)index;
    line_begin(out, h);
    response_write(out, text, n);
    scores_write(out, scores);
    buffer_printf(out, ",\"done\":false}\n");
}

static void chat_text(struct buffer *out, const struct openai_head *h, uint32_t index,
                      const char *text, size_t n)
{
    chat_scored(out, h, index, text, n, NULL);
}

static void generate_text(struct buffer *out, const struct openai_head *h, uint32_t index,
                          const char *text, size_t n)
{
    generate_scored(out, h, index, text, n, NULL);
}

static void chat_end(struct buffer *out, const struct openai_head *h, const char *finish,
                     const struct request_usage *u)
{
    line_begin(out, h);
    message_write(out, "", 0);
    line_end(out, finish, u);
}

static void generate_end(struct buffer *out, const struct openai_head *h, const char *finish,
                         const struct request_usage *u)
{
    line_begin(out, h);
    response_write(out, "", 0);
    line_end(out, finish, u);
}

static void chat_choice(struct buffer *out, const struct openai_head *h, uint32_t index,
                        const struct openai_message *m, const char *finish)
{
    (void)h, (void)index, (void)finish;
    buffer_printf(out, ",\"message\":{\"role\":\"assistant\",\"content\":");
    json_write_string(out, m->text, m->n);
    thinking_write(out, m->reasoning, m->n_reasoning);
    if (m->n_calls) {
        buffer_printf(out, ",\"tool_calls\":[");
        buffer_append(out, m->calls, m->n_calls);
        buffer_printf(out, "]");
    }
    buffer_printf(out, "}");
    scores_write(out, m->scores);
}

static void generate_choice(struct buffer *out, const struct openai_head *h, uint32_t index,
                            const struct openai_message *m, const char *finish)
{
    (void)h, (void)index, (void)finish;
    response_write(out, m->text, m->n);
    thinking_write(out, m->reasoning, m->n_reasoning);
    scores_write(out, m->scores);
}

static void reply_end(struct buffer *out, const struct openai_head *h, const char *finish,
                      const struct request_usage *u)
{
    (void)h;
    line_end(out, finish, u);
}

static void ollama_error(struct buffer *out, int http_status, const char *message,
                         const char *param, const char *code)
{
    (void)http_status, (void)param, (void)code;
    buffer_printf(out, "{\"error\":");
    json_write_text(out, message ? message : "");
    buffer_printf(out, "}");
}

static void stream_fail(struct buffer *out, const struct openai_head *h, int http_status,
                        const char *message, const char *code)
{
    (void)h;
    ollama_error(out, http_status, message, NULL, code);
    buffer_printf(out, "\n");
}

static const struct field_name refused_names[] = {{"options.num_predict", "max_tokens"},
                                                  {"options.repeat_penalty", "repetition_penalty"},
                                                  {"options.mirostat", "mirostat"},
                                                  {"options.typical_p", "typical_p"},
                                                  {"options.tfs_z", "tfs_z"},
                                                  {"options.stop", "stop"},
                                                  {"format", "response_format.json_schema.schema"},
                                                  {"format", "response_format"},
                                                  {0}};

const struct dialect dialect_ollama_chat = {
    .stream_type = "application/x-ndjson",
    .shape = SCORES_OF_CHAT,
    .stopped = "stop",
    .translate = ollama_chat_translate,
    .names = refused_names,
    .text = chat_text,
    .scored = chat_scored,
    .reasoning = chat_reasoning,
    .call = chat_call,
    .end = chat_end,
    .fail = stream_fail,
    .reply_begin = line_begin,
    .reply_choice = chat_choice,
    .reply_call = call_write,
    .reply_end = reply_end,
    .error = ollama_error,
};
const struct dialect dialect_ollama_generate = {
    .stream_type = "application/x-ndjson",
    .shape = SCORES_OF_CHAT,
    .stopped = "stop",
    .translate = ollama_generate_translate,
    .names = refused_names,
    .text = generate_text,
    .scored = generate_scored,
    .reasoning = generate_reasoning,
    .end = generate_end,
    .fail = stream_fail,
    .reply_begin = line_begin,
    .reply_choice = generate_choice,
    .reply_end = reply_end,
    .error = ollama_error,
};

/* ---- what there is ---- */

void ollama_write_tags(struct buffer *out, const struct request_model *models, int n, bool running)
{
    int listed = 0;
    buffer_printf(out, "{\"models\":[");
    for (int i = 0; i < n; i++) {
        if (!models[i].serving)
            continue;
        buffer_printf(out, "%s{\"name\":", listed++ ? "," : "");
        json_write_text(out, models[i].name);
        buffer_printf(out, ",\"model\":");
        json_write_text(out, models[i].name);
        buffer_printf(out, ",\"modified_at\":");
        time_write(out, (time_t)models[i].created_s);
        buffer_printf(out, ",");
        ollama_model_write(out, models[i].model, models[i].content);
        if (running) /* what is deployed stays until it is undeployed */
            buffer_printf(out,
                          ",\"expires_at\":\"9999-12-31T23:59:59Z\",\"size_vram\":0,"
                          "\"context_length\":%" PRIu64,
                          models[i].context);
        buffer_printf(out, "}");
    }
    buffer_printf(out, "]}");
}
