/* Ollama's API: a line of JSON for each piece of an answer, durations in nanoseconds, streams
 * unless "stream" is false. */
#include <inttypes.h>
#include <string.h>
#include <time.h>

#include "coordinator/gateway/body_fields.h"
#include "coordinator/gateway/dialect.h"
#include "coordinator/gateway/dialect_fields.h"
#include "coordinator/gateway/json_write.h"

/* ---- fields ---- */

static const struct field_name option_names[] = {{"temperature", "temperature"},
                                                 {"top_k", "top_k"},
                                                 {"top_p", "top_p"},
                                                 {"min_p", "min_p"},
                                                 {"seed", "seed"},
                                                 {"stop", "stop"},
                                                 {"repeat_penalty", "repetition_penalty"},
                                                 {"presence_penalty", "presence_penalty"},
                                                 {"frequency_penalty", "frequency_penalty"},
                                                 {0}};
static const struct field_name body_names[] = {{"suffix", "suffix"},
                                               {"logprobs", "logprobs"},
                                               {"top_logprobs", "top_logprobs"},
                                               {"tools", "tools"},
                                               {0}};
static const struct field_name message_names[] = {
    {"thinking", "reasoning_content"}, {"tool_name", "name"}, {0}};

static int ollama_refuse(const json_t *root, const char *name, const char **param, struct err *e)
{
    return field_asks(root, name)
               ? body_field_refuse(param, name, e,
                                   "this server does not support it yet; leave it out")
               : 0;
}

/* "demo:latest" is what Ollama's clients make of "demo". */
static json_t *model_named(const json_t *model)
{
    static const char latest[] = ":latest";
    size_t n = json_string_length(model), tail = sizeof latest - 1;
    const char *name = json_string_value(model);
    if (name && n > tail && strcmp(name + n - tail, latest) == 0)
        n -= tail;
    return name ? json_stringn(name, n) : json_null();
}

int ollama_name_read(json_t *root)
{
    const json_t *model = json_object_get(root, "model");
    model = model ? model : json_object_get(root, "name");
    return !json_is_string(model) || json_object_set_new(root, "model", model_named(model)) == 0
               ? 0
               : HP_ENOMEM;
}

/* true and false are Qwen3's word, the others gpt-oss's. */
static bool think_move(json_t *to, json_t *think)
{
    const char *name = json_is_boolean(think) ? "enable_thinking" : "reasoning_effort";
    if (!think || json_is_null(think))
        return true;
    return json_object_set_new(to, "chat_template_kwargs", json_pack("{s:O}", name, think)) == 0;
}

/* "json", or a schema. */
static bool format_move(json_t *to, json_t *format)
{
    const char *word = json_string_value(format);
    if (!format || json_is_null(format) || (word && !*word))
        return true;
    json_t *made =
        word ? json_pack("{s:s}", "type", "json_object")
             : json_pack("{s:s, s:{s:O}}", "type", "json_schema", "json_schema", "schema", format);
    return json_object_set_new(to, "response_format", made) == 0;
}

/* What both paths share; `to` has the messages or the prompt already. */
static int ollama_fields(const json_t *from, json_t *to, const char **param, struct err *e)
{
    const json_t *options = json_object_get(from, "options");
    const json_t *most = json_object_get(options, "num_predict");
    json_t *stream = json_object_get(from, "stream");
    if (options && !json_is_null(options) && !json_is_object(options))
        return body_field_refuse(param, "options", e, "must be an object");
    const char *format = json_string_value(json_object_get(from, "format"));
    if (format && *format && strcmp(format, "json") != 0)
        return body_field_refuse(param, "format", e, "must be \"json\" or a JSON schema");
    bool fine = json_object_set_new(to, "model", model_named(json_object_get(from, "model"))) == 0;
    fine = fine && json_object_set(to, "stream",
                                   stream && !json_is_null(stream) ? stream : json_true()) == 0;
    fine = fine && fields_move(to, options, option_names) && fields_move(to, from, body_names) &&
           think_move(to, json_object_get(from, "think")) &&
           format_move(to, json_object_get(from, "format"));
    if (fine && json_is_integer(most) && json_integer_value(most) > 0)
        fine = json_object_set(to, "max_tokens", (json_t *)most) == 0;
    return fine ? 0 : err_set(e, HP_ENOMEM, "out of memory for a request");
}

static int ollama_replace(json_t **root, json_t *to, const char **param, struct err *e)
{
    int rc = to ? ollama_fields(*root, to, param, e)
                : err_set(e, HP_ENOMEM, "out of memory for a request");
    if (rc < 0) {
        json_decref(to);
        return rc;
    }
    json_decref(*root);
    *root = to;
    return 0;
}

/* Without anything to answer a model is asked to be there, or may go: what is deployed stays either
 * way. The fields are checked as those of others, with a stand-in for the prompt. */
static int translate_load(json_t **root, const char **param, struct err *e)
{
    const json_t *keep = json_object_get(*root, "keep_alive");
    const char *text = json_string_value(keep);
    bool leaves = (json_is_number(keep) && json_number_value(keep) == 0) ||
                  (text && *text && strspn(text, "0hms") == strlen(text));
    json_t *to = json_pack("{s:[{s:s, s:s}]}", "messages", "role", "user", "content", "-");
    int rc = ollama_replace(root, to, param, e);
    return rc < 0 ? rc : leaves ? DIALECT_UNLOAD : DIALECT_LOAD;
}

static int translate_chat(json_t **root, bool *chat, const char **param, struct err *e)
{
    json_t *messages = json_object_get(*root, "messages"), *message;
    size_t i;
    *chat = true;
    if (!field_asks(*root, "messages"))
        return translate_load(root, param, e);
    json_array_foreach(messages, i, message)
    {
        if (field_asks(message, "images"))
            return body_field_refuse(param, "messages", e, "images are not supported");
        if (json_is_object(message) && !fields_move(message, message, message_names))
            return err_set(e, HP_ENOMEM, "out of memory for a request");
    }
    return ollama_replace(root, json_pack("{s:O?}", "messages", messages), param, e);
}

static int translate_generate(json_t **root, bool *chat, const char **param, struct err *e)
{
    static const char *const unbuilt[] = {"images", "template", "tools"};
    json_t *prompt = json_object_get(*root, "prompt"), *system = json_object_get(*root, "system");
    *chat = !json_is_true(json_object_get(*root, "raw"));
    for (size_t i = 0; i < sizeof unbuilt / sizeof *unbuilt; i++) {
        int rc = ollama_refuse(*root, unbuilt[i], param, e);
        if (rc < 0)
            return rc;
    }
    if (!field_asks(*root, "prompt")) {
        *chat = true;
        return translate_load(root, param, e);
    }
    if (!json_is_string(prompt))
        return body_field_refuse(param, "prompt", e, "must be a text");
    if (!*chat)
        return ollama_replace(root, json_pack("{s:O}", "prompt", prompt), param, e);
    json_t *messages = json_array();
    bool fine = !field_asks(*root, "system") || message_add(messages, "system", system);
    fine = message_add(messages, "user", prompt) && fine;
    json_t *to = fine ? json_pack("{s:O}", "messages", messages) : NULL;
    json_decref(messages);
    return ollama_replace(root, to, param, e);
}

/* ---- answers ---- */

static void line_begin(struct buffer *out, const struct openai_head *h)
{
    struct tm t;
    time_t at = (time_t)h->created_s;
    char text[40] = "";
    if (gmtime_r(&at, &t))
        strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &t);
    buffer_printf(out, "{\"model\":");
    json_write_text(out, h->model);
    buffer_printf(out, ",\"created_at\":\"%s\"", text);
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

static void chat_text(struct buffer *out, const struct openai_head *h, uint32_t index,
                      const char *text, size_t n)
{
    (void)index;
    line_begin(out, h);
    message_write(out, text, n);
    buffer_printf(out, ",\"done\":false}\n");
}

static void generate_text(struct buffer *out, const struct openai_head *h, uint32_t index,
                          const char *text, size_t n)
{
    (void)index;
    line_begin(out, h);
    response_write(out, text, n);
    buffer_printf(out, ",\"done\":false}\n");
}

static void scores_write(struct buffer *out, struct answer_scores *scores)
{
    if (!scores->tells)
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

static void stream_fail(struct buffer *out, int http_status, const char *message, const char *code)
{
    ollama_error(out, http_status, message, NULL, code);
    buffer_printf(out, "\n");
}

const struct dialect dialect_ollama_chat = {
    .stream_type = "application/x-ndjson",
    .stopped = "stop",
    .translate = translate_chat,
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
    .stopped = "stop",
    .translate = translate_generate,
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
        struct tm t;
        time_t at = (time_t)models[i].created_s;
        char text[40] = "";
        if (!models[i].serving)
            continue;
        if (gmtime_r(&at, &t))
            strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &t);
        buffer_printf(out, "%s{\"name\":", listed++ ? "," : "");
        json_write_text(out, models[i].name);
        buffer_printf(out, ",\"model\":");
        json_write_text(out, models[i].name);
        buffer_printf(out,
                      ",\"modified_at\":\"%s\",\"size\":0,\"digest\":\"\",\"details\":{\"format\":"
                      "\"\",\"family\":\"\",\"families\":null,\"parameter_size\":\"\","
                      "\"quantization_level\":\"\"}",
                      text);
        if (running) /* what is deployed stays until it is undeployed */
            buffer_printf(out,
                          ",\"expires_at\":\"9999-12-31T23:59:59Z\",\"size_vram\":0,"
                          "\"context_length\":%" PRIu64,
                          models[i].context);
        buffer_printf(out, "}");
    }
    buffer_printf(out, "]}");
}
