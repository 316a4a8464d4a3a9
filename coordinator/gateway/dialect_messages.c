/* Anthropic's Messages: text in blocks, events with names, the prompt's length at the beginning. */
#include <inttypes.h>
#include <string.h>

#include "coordinator/gateway/body_fields.h"
#include "coordinator/gateway/dialect.h"
#include "coordinator/gateway/dialect_fields.h"
#include "coordinator/gateway/json_write.h"
#include "coordinator/gateway/messages_body.h"

/* ---- fields ---- */

static const struct field_name names[] = {
    {"model", "model"},   {"max_tokens", "max_tokens"},   {"stop_sequences", "stop"},
    {"stream", "stream"}, {"temperature", "temperature"}, {"top_p", "top_p"},
    {"top_k", "top_k"},   {"metadata", "metadata"},       {0}};

static const struct field_name refused_names[] = {
    {"stop_sequences", "stop"},
    {"output_config.format.schema", "response_format.json_schema.schema"},
    {"output_config.format", "response_format"},
    {0}};

/* As the API has it: who asks for no thinking gets none, where the model's template can say so.
 * How much is output_config.effort. */
static bool thinking_move(json_t *to, const json_t *from)
{
    const char *type =
        json_string_value(json_object_get(json_object_get(from, "thinking"), "type"));
    bool asked = type && strcmp(type, "disabled") != 0;
    json_t *effort = json_object_get(json_object_get(from, "output_config"), "effort");
    json_t *told = json_pack("{s:b, s:O*}", "enable_thinking", asked, "reasoning_effort",
                             json_is_string(effort) ? effort : NULL);
    return json_object_set_new(to, "chat_template_kwargs", told) == 0;
}

/* The system's words come first; an assistant's turn at the end is gone on with, unless it is a
 * call. */
static bool messages_move(json_t *to, const json_t *from)
{
    json_t *turns = json_object_get(from, "messages"), *all = json_array(), *turn;
    size_t i;
    bool fine = all != NULL;
    if (fine && field_asks(from, "system"))
        fine = message_add(all, "system", json_object_get(from, "system"));
    json_array_foreach(turns, i, turn)
    {
        fine = fine && message_turn_add(all, turn);
    }
    const json_t *last = json_array_get(all, json_array_size(all) - 1);
    const char *role = json_string_value(json_object_get(last, "role"));
    if (turns)
        fine = fine && json_object_set(to, "messages", json_is_array(turns) ? all : turns) == 0;
    if (fine && role && strcmp(role, "assistant") == 0 && !json_object_get(last, "tool_calls"))
        fine = json_object_set_new(to, "continue_final_message", json_true()) == 0;
    json_decref(all);
    return fine;
}

/* output_config.format, or output_format as it was called before. */
static bool format_move(json_t *to, const json_t *from)
{
    json_t *format = json_object_get(json_object_get(from, "output_config"), "format");
    format = format ? format : json_object_get(from, "output_format");
    return !format || json_is_null(format) || json_object_set(to, "response_format", format) == 0;
}

/* What would be ignored, were it of another type. */
static int types_check(const json_t *root, const char **param, struct err *e)
{
    const json_t *config = json_object_get(root, "output_config");
    int rc = body_field_content(json_object_get(root, "system"), "system", param, e);
    rc = rc < 0 ? rc : body_field_object(json_object_get(root, "thinking"), "thinking", param, e);
    rc = rc < 0 ? rc : body_field_object(config, "output_config", param, e);
    return rc < 0 ? rc
                  : body_field_text(json_object_get(config, "effort"), "output_config.effort",
                                    param, e);
}

static int messages_translate(json_t **root, bool *chat, const char **param, struct err *e)
{
    static const char *const unbuilt[] = {"mcp_servers", "container"};
    *chat = true;
    for (size_t i = 0; i < sizeof unbuilt / sizeof *unbuilt; i++)
        if (field_asks(*root, unbuilt[i]))
            return body_field_refuse(param, unbuilt[i], e,
                                     "this server has no tools of its own; leave it out");
    int rc = types_check(*root, param, e);
    rc = rc < 0 ? rc : message_tools_check(*root, param, e);
    if (rc < 0)
        return rc;
    json_t *to = json_object();
    if (!to || !fields_move(to, *root, names) || !messages_move(to, *root) ||
        !format_move(to, *root) || !thinking_move(to, *root) || !message_tools_move(to, *root)) {
        json_decref(to);
        return err_set(e, HP_ENOMEM, "out of memory for a request");
    }
    json_decref(*root);
    *root = to;
    return 0;
}

/* ---- answers ---- */

static const char *stop_reason(const char *finish)
{
    return strcmp(finish, "stop") == 0         ? "end_turn"
           : strcmp(finish, "length") == 0     ? "max_tokens"
           : strcmp(finish, "tool_calls") == 0 ? "tool_use"
                                               : finish;
}

static void message_begin(struct buffer *out, const struct openai_head *h)
{
    buffer_printf(out,
                  "{\"id\":\"%s\",\"type\":\"message\",\"role\":\"assistant\",\"model\":", h->id);
    json_write_text(out, h->model);
    buffer_printf(out, ",\"content\":[");
}

/* Why it ended, and by which of the stop sequences. */
static void stop_write(struct buffer *out, const struct openai_head *h, const char *finish)
{
    buffer_printf(out, "\"stop_reason\":\"%s\",\"stop_sequence\":", stop_reason(finish));
    json_write_text(out, h->stop);
}

static void usage_write(struct buffer *out, const struct request_usage *u)
{
    buffer_printf(out,
                  "\"usage\":{\"input_tokens\":%" PRIu64 ",\"cache_creation_input_tokens\":0,"
                  "\"cache_read_input_tokens\":%" PRIu64 ",\"output_tokens\":%" PRIu64 "}",
                  u->prompt_tokens - u->cached_tokens, u->cached_tokens, u->output_tokens);
}

static void stream_begin(struct buffer *out, const struct openai_head *h, uint32_t index)
{
    struct request_usage u = {.prompt_tokens = h->prompt_tokens};
    (void)index;
    buffer_printf(out, "event: message_start\ndata: {\"type\":\"message_start\",\"message\":");
    message_begin(out, h);
    buffer_printf(out, "],\"stop_reason\":null,\"stop_sequence\":null,");
    usage_write(out, &u);
    buffer_printf(out, "}}\n\n");
}

static void block_close(struct buffer *out, struct answer_blocks *b)
{
    if (b->open != BLOCK_NONE)
        buffer_printf(out,
                      "event: content_block_stop\ndata: {\"type\":\"content_block_stop\","
                      "\"index\":%" PRIu32 "}\n\n",
                      b->n - 1);
    b->open = BLOCK_NONE;
}

/* What follows is the block itself, and "}\n\n". */
static void block_begin(struct buffer *out, struct answer_blocks *b)
{
    block_close(out, b);
    buffer_printf(out,
                  "event: content_block_start\ndata: {\"type\":\"content_block_start\","
                  "\"index\":%" PRIu32 ",\"content_block\":",
                  b->n++);
}

/* What follows is the delta itself, and "}\n\n". */
static void delta_begin(struct buffer *out, const struct answer_blocks *b)
{
    buffer_printf(out,
                  "event: content_block_delta\ndata: {\"type\":\"content_block_delta\","
                  "\"index\":%" PRIu32 ",\"delta\":",
                  b->n - 1);
}

static void text_block_begin(struct buffer *out, struct answer_blocks *b)
{
    if (b->open == BLOCK_TEXT)
        return;
    block_begin(out, b);
    buffer_printf(out, "{\"type\":\"text\",\"text\":\"\"}}\n\n");
    b->open = BLOCK_TEXT;
}

static void stream_text(struct buffer *out, const struct openai_head *h, uint32_t index,
                        const char *text, size_t n)
{
    (void)index;
    text_block_begin(out, h->blocks);
    delta_begin(out, h->blocks);
    buffer_printf(out, "{\"type\":\"text_delta\",\"text\":");
    json_write_string(out, text, n);
    buffer_printf(out, "}}\n\n");
}

static void stream_reasoning(struct buffer *out, const struct openai_head *h, uint32_t index,
                             const char *text, size_t n)
{
    (void)index;
    if (h->blocks->open != BLOCK_REASONING) {
        block_begin(out, h->blocks);
        buffer_printf(out, "{\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"\"}}\n\n");
        h->blocks->open = BLOCK_REASONING;
    }
    delta_begin(out, h->blocks);
    buffer_printf(out, "{\"type\":\"thinking_delta\",\"thinking\":");
    json_write_string(out, text, n);
    buffer_printf(out, "}}\n\n");
}

static void stream_call(struct buffer *out, const struct openai_head *h, uint32_t index,
                        const struct openai_call *call)
{
    (void)index;
    block_begin(out, h->blocks);
    buffer_printf(out, "{\"type\":\"tool_use\",\"id\":\"%s\",\"name\":", call->id);
    json_write_text(out, call->name);
    buffer_printf(out, ",\"input\":{}}}\n\n");
    h->blocks->open = BLOCK_CALL;
    delta_begin(out, h->blocks);
    buffer_printf(out, "{\"type\":\"input_json_delta\",\"partial_json\":");
    json_write_string(out, call->arguments, call->n_arguments);
    buffer_printf(out, "}}\n\n");
    block_close(out, h->blocks);
}

static void stream_end(struct buffer *out, const struct openai_head *h, const char *finish,
                       const struct request_usage *u)
{
    if (h->blocks->n == 0)
        text_block_begin(out, h->blocks);
    block_close(out, h->blocks);
    buffer_printf(out, "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{");
    stop_write(out, h, finish);
    buffer_printf(out, "},");
    usage_write(out, u);
    buffer_printf(out, "}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n");
}

static void reply_choice(struct buffer *out, const struct openai_head *h, uint32_t index,
                         const struct openai_message *m, const char *finish)
{
    bool has_text = m->n > 0 || !m->n_calls;
    (void)h, (void)index, (void)finish;
    if (m->n_reasoning) {
        buffer_printf(out, "{\"type\":\"thinking\",\"signature\":\"\",\"thinking\":");
        json_write_string(out, m->reasoning, m->n_reasoning);
        buffer_printf(out, "},");
    }
    if (has_text) {
        buffer_printf(out, "{\"type\":\"text\",\"text\":");
        json_write_string(out, m->text, m->n);
        buffer_printf(out, m->n_calls ? "}," : "}");
    }
    buffer_append(out, m->calls, m->n_calls);
    buffer_printf(out, "]");
}

static void reply_call(struct buffer *out, const struct openai_call *call)
{
    buffer_printf(out, "%s{\"type\":\"tool_use\",\"id\":\"%s\",\"name\":", call->index ? "," : "",
                  call->id);
    json_write_text(out, call->name);
    buffer_printf(out, ",\"input\":");
    buffer_append(out, call->arguments, call->n_arguments);
    buffer_printf(out, "}");
}

static void reply_end(struct buffer *out, const struct openai_head *h, const char *finish,
                      const struct request_usage *u)
{
    buffer_printf(out, ",");
    stop_write(out, h, finish);
    buffer_printf(out, ",");
    usage_write(out, u);
    buffer_printf(out, "}");
}

static const char *error_type(int http_status)
{
    switch (http_status) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 404: return "not_found_error";
    case 413: return "request_too_large";
    case 429: return "rate_limit_error";
    case 503: return "overloaded_error";
    default: return http_status >= 500 ? "api_error" : "invalid_request_error";
    }
}

static void messages_error(struct buffer *out, int http_status, const char *message,
                           const char *param, const char *code)
{
    (void)param, (void)code;
    buffer_printf(out, "{\"type\":\"error\",\"error\":{\"type\":\"%s\",\"message\":",
                  error_type(http_status));
    json_write_text(out, message ? message : "");
    buffer_printf(out, "}}");
}

static void stream_fail(struct buffer *out, const struct openai_head *h, int http_status,
                        const char *message, const char *code)
{
    (void)h;
    buffer_printf(out, "event: error\ndata: ");
    messages_error(out, http_status, message, NULL, code);
    buffer_printf(out, "\n\n");
}

const struct dialect dialect_messages = {
    .stream_type = "text/event-stream; charset=utf-8",
    .pulse = "event: ping\ndata: {\"type\":\"ping\"}\n\n",
    .stopped = "stop_sequence",
    .id_prefix = "msg_",
    .translate = messages_translate,
    .names = refused_names,
    .begin = stream_begin,
    .text = stream_text,
    .reasoning = stream_reasoning,
    .call = stream_call,
    .end = stream_end,
    .fail = stream_fail,
    .reply_begin = message_begin,
    .reply_choice = reply_choice,
    .reply_call = reply_call,
    .reply_end = reply_end,
    .error = messages_error,
};
