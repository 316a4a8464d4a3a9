/* OpenAI's Responses: an answer is a list of items (messages, reasoning, calls), and a stream tells
 * each as it begins, grows and ends, with numbers, and the whole of it once more at its end. */
#include <inttypes.h>
#include <string.h>

#include "coordinator/gateway/dialect.h"
#include "coordinator/gateway/dialect_fields.h"
#include "coordinator/gateway/json_write.h"
#include "coordinator/gateway/openai_body.h"
#include "coordinator/gateway/responses_body.h"

/* ---- fields ---- */

static const struct field_name names[] = {{"model", "model"},
                                          {"max_output_tokens", "max_tokens"},
                                          {"stream", "stream"},
                                          {"temperature", "temperature"},
                                          {"top_p", "top_p"},
                                          {"user", "user"},
                                          {"metadata", "metadata"},
                                          {"service_tier", "service_tier"},
                                          {"parallel_tool_calls", "parallel_tool_calls"},
                                          {0}};

static const struct field_name refused_names[] = {
    {"max_output_tokens", "max_tokens"},
    {"text.format.schema", "response_format.json_schema.schema"},
    {"text.format", "response_format"},
    {"input", "messages"},
    {0}};

static int responses_translate(json_t **root, bool *chat, const char **param, struct err *e)
{
    *chat = true;
    int rc = responses_body_check(*root, param, e);
    if (rc < 0)
        return rc;
    json_t *to = json_object();
    if (!to || !fields_move(to, *root, names) || !responses_input_move(to, *root) ||
        !responses_tools_move(to, *root) || !responses_format_move(to, *root) ||
        !responses_reasoning_move(to, *root) || !responses_asked_add(to, *root)) {
        json_decref(to);
        return err_set(e, HP_ENOMEM, "out of memory for a request");
    }
    json_decref(*root);
    *root = to;
    return 0;
}

/* ---- items ---- */

/* The answer's own part of its name, which its items' have, too. */
static const char *head_name(const struct openai_head *h)
{
    return h->id + strlen("resp_");
}

static void part_write(struct buffer *out, const char *text, size_t n)
{
    buffer_printf(out, "{\"type\":\"output_text\",\"annotations\":[],\"logprobs\":[],\"text\":");
    json_write_string(out, text, n);
    buffer_printf(out, "}");
}

/* Without a text it has just begun. */
static void message_write(struct buffer *out, const struct openai_head *h, uint32_t item,
                          const char *text, size_t n, const char *status)
{
    buffer_printf(out,
                  "{\"type\":\"message\",\"id\":\"msg_%s_%" PRIu32
                  "\",\"role\":\"assistant\",\"status\":\"%s\",\"content\":[",
                  head_name(h), item, status);
    if (text)
        part_write(out, text, n);
    buffer_printf(out, "]}");
}

static void reasoning_write(struct buffer *out, const struct openai_head *h, uint32_t item,
                            const char *text, size_t n, const char *status)
{
    buffer_printf(out,
                  "{\"type\":\"reasoning\",\"id\":\"rs_%s_%" PRIu32
                  "\",\"summary\":[],\"status\":\"%s\",\"content\":[",
                  head_name(h), item, status);
    if (text) {
        buffer_printf(out, "{\"type\":\"reasoning_text\",\"text\":");
        json_write_string(out, text, n);
        buffer_printf(out, "}");
    }
    buffer_printf(out, "]}");
}

static void call_write(struct buffer *out, const struct openai_call *call, bool whole)
{
    buffer_printf(out,
                  "{\"type\":\"function_call\",\"id\":\"fc_%s\",\"call_id\":\"%s\",\"status\":"
                  "\"%s\",\"name\":",
                  call->id, call->id, whole ? "completed" : "in_progress");
    json_write_text(out, call->name);
    buffer_printf(out, ",\"arguments\":");
    json_write_string(out, call->arguments, whole ? call->n_arguments : 0);
    buffer_printf(out, "}");
}

/* ---- the response around them ---- */

static void response_begin(struct buffer *out, const struct openai_head *h)
{
    buffer_printf(
        out, "{\"id\":\"%s\",\"object\":\"response\",\"created_at\":%" PRId64 ",\"model\":", h->id,
        h->created_s);
    json_write_text(out, h->model);
    buffer_printf(out, ",\"output\":[");
}

static void usage_write(struct buffer *out, const struct request_usage *u)
{
    buffer_printf(
        out,
        "{\"input_tokens\":%" PRIu64 ",\"input_tokens_details\":{\"cached_tokens\":%" PRIu64
        "},\"output_tokens\":%" PRIu64 ",\"output_tokens_details\":{\"reasoning_tokens\":%" PRIu64
        "},\"total_tokens\":%" PRIu64 "}",
        u->prompt_tokens, u->cached_tokens, u->output_tokens, u->reasoning_tokens,
        u->prompt_tokens + u->output_tokens);
}

static const char *status_of(const char *finish)
{
    return strcmp(finish, "length") == 0 ? "incomplete" : "completed";
}

/* Why a response failed: members, and what closes the object. */
static void error_end(struct buffer *out, const char *message, const char *code)
{
    buffer_printf(out, "\"code\":");
    json_write_text(out, code ? code : "server_error");
    buffer_printf(out, ",\"message\":");
    json_write_text(out, message ? message : "");
    buffer_printf(out, "}");
}

/* Up to its "error":, which follows; without usage there is none to tell yet. */
static void response_state(struct buffer *out, const char *status, const struct request_usage *u)
{
    bool cut = strcmp(status, "incomplete") == 0;
    buffer_printf(out, "],\"status\":\"%s\",\"incomplete_details\":%s,\"usage\":", status,
                  cut ? "{\"reason\":\"max_output_tokens\"}" : "null");
    if (u)
        usage_write(out, u);
    else
        buffer_printf(out, "null");
    buffer_printf(out, ",\"error\":");
}

/* What was asked for, and what is never otherwise. */
static void response_asked(struct buffer *out, const struct openai_head *h)
{
    const char *asked = h->body ? h->body->asked : NULL;
    buffer_append(out, asked, asked ? strlen(asked) : 0);
    buffer_printf(out, ",\"background\":false,\"previous_response_id\":null,\"store\":false,"
                       "\"truncation\":\"disabled\"}");
}

/* Behind the items; without usage it goes on. */
static void response_end(struct buffer *out, const struct openai_head *h, const char *status,
                         const struct request_usage *u)
{
    response_state(out, status, u);
    buffer_printf(out, "null");
    response_asked(out, h);
}

/* ---- a stream ---- */

/* What follows are the event's other members, each with a comma before it, and "}\n\n". */
static void event_begin(struct buffer *out, const struct openai_head *h, const char *type)
{
    buffer_printf(
        out, "event: response.%s\ndata: {\"type\":\"response.%s\",\"sequence_number\":%" PRIu64,
        type, type, h->blocks->events++);
}

static void event_response(struct buffer *out, const struct openai_head *h, const char *type,
                           const char *status, const struct request_usage *u)
{
    event_begin(out, h, type);
    buffer_printf(out, ",\"response\":");
    response_begin(out, h);
    buffer_append(out, h->blocks->items.data, h->blocks->items.size);
    response_end(out, h, status, u);
    buffer_printf(out, "}\n\n");
}

/* What follows is the item itself, and "}\n\n". */
static void event_item(struct buffer *out, const struct openai_head *h, const char *type,
                       uint32_t item)
{
    event_begin(out, h, type);
    buffer_printf(out, ",\"output_index\":%" PRIu32 ",\"item\":", item);
}

/* Of the item that is open. What follows are members, each with a comma before it, and "}\n\n". */
static void event_inside(struct buffer *out, const struct openai_head *h, const char *type)
{
    const struct answer_blocks *b = h->blocks;
    event_begin(out, h, type);
    buffer_printf(
        out, ",\"item_id\":\"%s_%s_%" PRIu32 "\",\"output_index\":%" PRIu32 ",\"content_index\":0",
        b->open == BLOCK_REASONING ? "rs" : "msg", head_name(h), b->n - 1, b->n - 1);
}

static void stream_begin(struct buffer *out, const struct openai_head *h, uint32_t index)
{
    (void)index;
    event_response(out, h, "created", "in_progress", NULL);
    event_response(out, h, "in_progress", "in_progress", NULL);
}

/* The item that is over stands in the response that ends the stream. */
static void item_keep(struct answer_blocks *b, const struct buffer *out, size_t from)
{
    if (b->items.size)
        buffer_append(&b->items, ",", 1);
    buffer_append(&b->items, out->data + from, out->failed ? 0 : out->size - from);
}

static void item_close(struct buffer *out, const struct openai_head *h, const char *status)
{
    struct answer_blocks *b = h->blocks;
    const char *text = buffer_cstr(&b->said);
    bool reasons = b->open == BLOCK_REASONING;
    if (b->open == BLOCK_NONE)
        return;
    event_inside(out, h, reasons ? "reasoning_text.done" : "output_text.done");
    buffer_printf(out, reasons ? ",\"text\":" : ",\"logprobs\":[],\"text\":");
    json_write_string(out, text, b->said.size);
    buffer_printf(out, "}\n\n");
    if (!reasons) {
        event_inside(out, h, "content_part.done");
        buffer_printf(out, ",\"part\":");
        part_write(out, text, b->said.size);
        buffer_printf(out, "}\n\n");
    }
    event_item(out, h, "output_item.done", b->n - 1);
    size_t from = out->size;
    (reasons ? reasoning_write : message_write)(out, h, b->n - 1, text, b->said.size, status);
    item_keep(b, out, from);
    buffer_printf(out, "}\n\n");
    b->open = BLOCK_NONE;
    b->said.size = 0;
}

static void item_open(struct buffer *out, const struct openai_head *h, int kind)
{
    struct answer_blocks *b = h->blocks;
    bool reasons = kind == BLOCK_REASONING;
    if ((int)b->open == kind)
        return;
    item_close(out, h, "completed");
    event_item(out, h, "output_item.added", b->n++);
    (reasons ? reasoning_write : message_write)(out, h, b->n - 1, NULL, 0, "in_progress");
    buffer_printf(out, "}\n\n");
    b->open = reasons ? BLOCK_REASONING : BLOCK_TEXT;
    if (reasons)
        return;
    event_inside(out, h, "content_part.added");
    buffer_printf(out, ",\"part\":");
    part_write(out, "", 0);
    buffer_printf(out, "}\n\n");
}

static void delta_tell(struct buffer *out, const struct openai_head *h, const char *type,
                       const char *text, size_t n)
{
    buffer_append(&h->blocks->said, text, n);
    event_inside(out, h, type);
    buffer_printf(out,
                  h->blocks->open == BLOCK_TEXT ? ",\"logprobs\":[],\"delta\":" : ",\"delta\":");
    json_write_string(out, text, n);
    buffer_printf(out, "}\n\n");
}

static void stream_text(struct buffer *out, const struct openai_head *h, uint32_t index,
                        const char *text, size_t n)
{
    (void)index;
    item_open(out, h, BLOCK_TEXT);
    delta_tell(out, h, "output_text.delta", text, n);
}

static void stream_reasoning(struct buffer *out, const struct openai_head *h, uint32_t index,
                             const char *text, size_t n)
{
    (void)index;
    item_open(out, h, BLOCK_REASONING);
    delta_tell(out, h, "reasoning_text.delta", text, n);
}

static void stream_call(struct buffer *out, const struct openai_head *h, uint32_t index,
                        const struct openai_call *call)
{
    static const char *const types[] = {"function_call_arguments.delta",
                                        "function_call_arguments.done"};
    struct answer_blocks *b = h->blocks;
    (void)index;
    item_close(out, h, "completed");
    uint32_t item = b->n++;
    event_item(out, h, "output_item.added", item);
    call_write(out, call, false);
    buffer_printf(out, "}\n\n");
    for (int i = 0; i < 2; i++) {
        event_begin(out, h, types[i]);
        buffer_printf(
            out, ",\"item_id\":\"fc_%s\",\"output_index\":%" PRIu32 ",\"name\":", call->id, item);
        json_write_text(out, call->name);
        buffer_printf(out, i ? ",\"arguments\":" : ",\"delta\":");
        json_write_string(out, call->arguments, call->n_arguments);
        buffer_printf(out, "}\n\n");
    }
    event_item(out, h, "output_item.done", item);
    size_t from = out->size;
    call_write(out, call, true);
    item_keep(b, out, from);
    buffer_printf(out, "}\n\n");
}

static void stream_end(struct buffer *out, const struct openai_head *h, const char *finish,
                       const struct request_usage *u)
{
    const char *status = status_of(finish);
    if (h->blocks->n == 0)
        item_open(out, h, BLOCK_TEXT);
    item_close(out, h, status);
    out->failed |= h->blocks->said.failed | h->blocks->items.failed;
    event_response(out, h, status, status, u);
}

/* Some clients look for the one event, others for a response that has ended. */
static void stream_fail(struct buffer *out, const struct openai_head *h, int http_status,
                        const char *message, const char *code)
{
    (void)http_status;
    buffer_printf(out,
                  "event: error\ndata: {\"type\":\"error\",\"sequence_number\":%" PRIu64
                  ",\"param\":null,",
                  h->blocks->events++);
    error_end(out, message, code);
    buffer_printf(out, "\n\n");
    event_begin(out, h, "failed");
    buffer_printf(out, ",\"response\":");
    response_begin(out, h);
    buffer_append(out, h->blocks->items.data, h->blocks->items.size);
    response_state(out, "failed", NULL);
    buffer_printf(out, "{");
    error_end(out, message, code);
    response_asked(out, h);
    buffer_printf(out, "}\n\n");
}

/* ---- a whole reply ---- */

static void reply_choice(struct buffer *out, const struct openai_head *h, uint32_t index,
                         const struct openai_message *m, const char *finish)
{
    bool has_text = m->n > 0 || !m->n_calls;
    uint32_t item = 0;
    (void)index;
    if (m->n_reasoning) {
        reasoning_write(out, h, item++, m->reasoning, m->n_reasoning, "completed");
        buffer_printf(out, ",");
    }
    if (has_text) {
        message_write(out, h, item, m->text, m->n, status_of(finish));
        buffer_printf(out, m->n_calls ? "," : "");
    }
    buffer_append(out, m->calls, m->n_calls);
}

static void reply_call(struct buffer *out, const struct openai_call *call)
{
    buffer_printf(out, call->index ? "," : "");
    call_write(out, call, true);
}

static void reply_end(struct buffer *out, const struct openai_head *h, const char *finish,
                      const struct request_usage *u)
{
    response_end(out, h, status_of(finish), u);
}

const struct dialect dialect_responses = {
    .stream_type = "text/event-stream; charset=utf-8",
    .pulse = ": the answer goes on in a moment\n\n",
    .stopped = "stop",
    .id_prefix = "resp_",
    .repeats = true,
    .translate = responses_translate,
    .names = refused_names,
    .begin = stream_begin,
    .text = stream_text,
    .reasoning = stream_reasoning,
    .call = stream_call,
    .end = stream_end,
    .fail = stream_fail,
    .reply_begin = response_begin,
    .reply_choice = reply_choice,
    .reply_call = reply_call,
    .reply_end = reply_end,
    .error = openai_json_error,
};
