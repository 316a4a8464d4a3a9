#include "coordinator/gateway/openai_json.h"

#include <inttypes.h>
#include <stdio.h>

#include "coordinator/gateway/json_write.h"

/* A literal, or any text that needs no escapes. */
static void raw(struct buffer *out, const char *text)
{
    buffer_append(out, text, strlen(text));
}

/* ---- errors
 * ---------------------------------------------------------------------------------------------------------
 */

static const char *type_of_status(int status)
{
    switch (status) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 404: return "not_found_error";
    case 429: return "rate_limit_error";
    default: return status >= 500 ? "server_error" : "invalid_request_error";
    }
}

void openai_json_error(struct buffer *out, int http_status, const char *message, const char *param,
                       const char *code)
{
    raw(out, "{\"error\":{\"message\":");
    json_write_text(out, message ? message : "");
    raw(out, ",\"type\":");
    json_write_text(out, type_of_status(http_status));
    raw(out, ",\"param\":");
    json_write_text(out, param);
    raw(out, ",\"code\":");
    json_write_text(out, code);
    raw(out, "}}");
}

void openai_event_error(struct buffer *out, int http_status, const char *message, const char *code)
{
    raw(out, "data: ");
    openai_json_error(out, http_status, message, NULL, code);
    raw(out, "\n\n");
}

/* ---- chunks
 * ---------------------------------------------------------------------------------------------------------
 */

static void envelope(struct buffer *out, const struct openai_head *h, const char *object)
{
    char number[32];
    raw(out, "{\"id\":\"");
    raw(out, h->id);
    raw(out, "\",\"object\":\"");
    raw(out, object);
    raw(out, "\",\"created\":");
    snprintf(number, sizeof number, "%" PRId64, h->created_s);
    raw(out, number);
    raw(out, ",\"model\":");
    json_write_text(out, h->model);
    raw(out, ",\"choices\":[");
}

static void chunk_begin(struct buffer *out, const struct openai_head *h)
{
    raw(out, "data: ");
    envelope(out, h, h->chat ? "chat.completion.chunk" : "text_completion");
}

static void choice_end(struct buffer *out, const char *finish)
{
    raw(out, ",\"logprobs\":null,\"finish_reason\":");
    json_write_text(out, finish);
    raw(out, "}]");
}

static void chunk_end(struct buffer *out, const struct openai_head *h, const char *finish)
{
    choice_end(out, finish);
    raw(out, h->include_usage ? ",\"usage\":null}\n\n" : "}\n\n");
}

void openai_event_role(struct buffer *out, const struct openai_head *h)
{
    chunk_begin(out, h);
    raw(out, "{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"}");
    chunk_end(out, h, NULL);
}

void openai_event_text(struct buffer *out, const struct openai_head *h, const char *text, size_t n)
{
    chunk_begin(out, h);
    raw(out, h->chat ? "{\"index\":0,\"delta\":{\"content\":" : "{\"index\":0,\"text\":");
    json_write_string(out, text, n);
    raw(out, h->chat ? "}" : "");
    chunk_end(out, h, NULL);
}

void openai_event_finish(struct buffer *out, const struct openai_head *h, const char *finish)
{
    chunk_begin(out, h);
    raw(out, h->chat ? "{\"index\":0,\"delta\":{}" : "{\"index\":0,\"text\":\"\"");
    chunk_end(out, h, finish);
}

static void usage_and_timings(struct buffer *out, const struct request_usage *u)
{
    buffer_printf(out,
                  "\"usage\":{\"prompt_tokens\":%" PRIu64 ",\"completion_tokens\":%" PRIu64
                  ",\"total_tokens\":%" PRIu64 "}",
                  u->prompt_tokens, u->output_tokens, u->prompt_tokens + u->output_tokens);
    buffer_printf(out, ",\"timings\":{\"waited_s\":%.9g,\"prefill_s\":%.9g,\"decode_s\":%.9g}}",
                  u->waited_s, u->prefill_s, u->decode_s);
}

void openai_event_usage(struct buffer *out, const struct openai_head *h,
                        const struct request_usage *u)
{
    chunk_begin(out, h);
    raw(out, "],");
    usage_and_timings(out, u);
    raw(out, "\n\n");
}

void openai_event_done(struct buffer *out)
{
    raw(out, "data: [DONE]\n\n");
}

void openai_json_reply(struct buffer *out, const struct openai_head *h, const char *text, size_t n,
                       const char *finish, const struct request_usage *u)
{
    envelope(out, h, h->chat ? "chat.completion" : "text_completion");
    raw(out, h->chat ? "{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":"
                     : "{\"index\":0,\"text\":");
    json_write_string(out, text, n);
    raw(out, h->chat ? "}" : "");
    choice_end(out, finish);
    raw(out, ",");
    usage_and_timings(out, u);
}
