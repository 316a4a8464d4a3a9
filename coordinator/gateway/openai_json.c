#include "coordinator/gateway/openai_json.h"

#include <inttypes.h>
#include <stdio.h>

#include "coordinator/gateway/json_write.h"
#include "coordinator/gateway/llama_timings.h"

/* A literal, or any text that needs no escapes. */
static void text_append(struct buffer *out, const char *text)
{
    buffer_append(out, text, strlen(text));
}

/* ---- errors ---- */

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
    text_append(out, "{\"error\":{\"message\":");
    json_write_text(out, message ? message : "");
    text_append(out, ",\"type\":");
    json_write_text(out, type_of_status(http_status));
    text_append(out, ",\"param\":");
    json_write_text(out, param);
    text_append(out, ",\"code\":");
    json_write_text(out, code);
    text_append(out, "}}");
}

void openai_event_error(struct buffer *out, int http_status, const char *message, const char *code)
{
    text_append(out, "data: ");
    openai_json_error(out, http_status, message, NULL, code);
    text_append(out, "\n\n");
}

/* ---- chunks ---- */

static void envelope_begin(struct buffer *out, const struct openai_head *h, const char *object)
{
    char number[32];
    text_append(out, "{\"id\":\"");
    text_append(out, h->id);
    text_append(out, "\",\"object\":\"");
    text_append(out, object);
    text_append(out, "\",\"created\":");
    snprintf(number, sizeof number, "%" PRId64, h->created_s);
    text_append(out, number);
    text_append(out, ",\"model\":");
    json_write_text(out, h->model);
    text_append(out, ",\"choices\":[");
}

static void chunk_begin(struct buffer *out, const struct openai_head *h)
{
    text_append(out, "data: ");
    envelope_begin(out, h, h->chat ? "chat.completion.chunk" : "text_completion");
}

static void choice_end(struct buffer *out, const char *finish, struct answer_scores *scores)
{
    answer_scores_write(scores, out);
    text_append(out, ",\"finish_reason\":");
    json_write_text(out, finish);
}

static void choice_begin(struct buffer *out, uint32_t index)
{
    char number[32];
    snprintf(number, sizeof number, "{\"index\":%" PRIu32, index);
    text_append(out, number);
}

static void counts_write(struct buffer *out, uint64_t prompt, uint64_t output)
{
    buffer_printf(out,
                  "\"usage\":{\"prompt_tokens\":%" PRIu64 ",\"completion_tokens\":%" PRIu64
                  ",\"total_tokens\":%" PRIu64,
                  prompt, output, prompt + output);
}

/* What a piece says of tokens: those so far of its own choice, or that they are told at the end. */
static void chunk_usage(struct buffer *out, const struct openai_head *h)
{
    const struct request_usage *u = h->usage;
    if (!h->include_usage)
        return;
    text_append(out, ",");
    if (!h->tells_usage) {
        text_append(out, "\"usage\":null");
        return;
    }
    counts_write(out, u ? u->prompt_tokens : h->prompt_tokens, u ? u->output_tokens : 0);
    text_append(out, "}");
}

static void chunk_end(struct buffer *out, const struct openai_head *h, const char *finish,
                      struct answer_scores *scores)
{
    choice_end(out, finish, scores);
    text_append(out, "}]");
    chunk_usage(out, h);
    if (h->tells_timings && h->usage) {
        text_append(out, ",\"timings\":{");
        llama_timings_write(out, h->usage);
        text_append(out, "}");
    }
    text_append(out, "}\n\n");
}

void openai_event_role(struct buffer *out, const struct openai_head *h, uint32_t index)
{
    chunk_begin(out, h);
    choice_begin(out, index);
    text_append(out, ",\"delta\":{\"role\":\"assistant\",\"content\":\"\"}");
    chunk_end(out, h, NULL, NULL);
}

void openai_event_text(struct buffer *out, const struct openai_head *h, uint32_t index,
                       const char *text, size_t n)
{
    openai_event_scored(out, h, index, text, n, NULL);
}

void openai_event_scored(struct buffer *out, const struct openai_head *h, uint32_t index,
                         const char *text, size_t n, struct answer_scores *scores)
{
    chunk_begin(out, h);
    choice_begin(out, index);
    text_append(out, h->chat ? ",\"delta\":{\"content\":" : ",\"text\":");
    json_write_string(out, text, n);
    text_append(out, h->chat ? "}" : "");
    chunk_end(out, h, NULL, scores);
}

void openai_event_reasoning(struct buffer *out, const struct openai_head *h, uint32_t index,
                            const char *text, size_t n)
{
    chunk_begin(out, h);
    choice_begin(out, index);
    text_append(out, ",\"delta\":{\"reasoning_content\":");
    json_write_string(out, text, n);
    text_append(out, "}");
    chunk_end(out, h, NULL, NULL);
}

static void call_write(struct buffer *out, const struct openai_call *call)
{
    text_append(out, "\"id\":");
    json_write_text(out, call->id);
    text_append(out, ",\"type\":\"function\",\"function\":{\"name\":");
    json_write_text(out, call->name);
    text_append(out, ",\"arguments\":");
    json_write_string(out, call->arguments, call->n_arguments);
    text_append(out, "}}");
}

void openai_event_call(struct buffer *out, const struct openai_head *h, uint32_t index,
                       const struct openai_call *call)
{
    chunk_begin(out, h);
    choice_begin(out, index);
    buffer_printf(out, ",\"delta\":{\"tool_calls\":[{\"index\":%" PRIu32 ",", call->index);
    call_write(out, call);
    text_append(out, "]}");
    chunk_end(out, h, NULL, NULL);
}

void openai_json_call(struct buffer *out, const struct openai_call *call)
{
    text_append(out, call->index ? ",{" : "{");
    call_write(out, call);
}

void openai_event_finish(struct buffer *out, const struct openai_head *h, uint32_t index,
                         const char *finish)
{
    chunk_begin(out, h);
    choice_begin(out, index);
    text_append(out, h->chat ? ",\"delta\":{}" : ",\"text\":\"\"");
    chunk_end(out, h, finish, NULL);
}

static void usage_and_timings(struct buffer *out, const struct request_usage *u)
{
    counts_write(out, u->prompt_tokens, u->output_tokens);
    buffer_printf(out, ",\"prompt_tokens_details\":{\"cached_tokens\":%" PRIu64 "}}",
                  u->cached_tokens);
    buffer_printf(out, ",\"timings\":{\"waited_s\":%.9g,\"prefill_s\":%.9g,\"decode_s\":%.9g",
                  u->waited_s, u->prefill_s, u->decode_s);
    if (u->planned_s > 0)
        buffer_printf(out, ",\"planned_s\":%.9g", u->planned_s);
    text_append(out, ",");
    llama_timings_write(out, u);
    text_append(out, "}}");
}

void openai_event_usage(struct buffer *out, const struct openai_head *h,
                        const struct request_usage *u)
{
    chunk_begin(out, h);
    text_append(out, "],");
    usage_and_timings(out, u);
    text_append(out, "\n\n");
}

void openai_event_done(struct buffer *out)
{
    text_append(out, "data: [DONE]\n\n");
}

void openai_json_begin(struct buffer *out, const struct openai_head *h)
{
    envelope_begin(out, h, h->chat ? "chat.completion" : "text_completion");
}

void openai_json_choice(struct buffer *out, const struct openai_head *h, uint32_t index,
                        const struct openai_message *m, const char *finish)
{
    text_append(out, index ? "," : "");
    choice_begin(out, index);
    text_append(out, h->chat ? ",\"message\":{\"role\":\"assistant\",\"content\":" : ",\"text\":");
    if (m->n_calls && !m->n)
        text_append(out, "null");
    else
        json_write_string(out, m->text, m->n);
    if (m->n_reasoning) {
        text_append(out, ",\"reasoning_content\":");
        json_write_string(out, m->reasoning, m->n_reasoning);
    }
    if (m->n_calls) {
        text_append(out, ",\"tool_calls\":[");
        buffer_append(out, m->calls, m->n_calls);
        text_append(out, "]");
    }
    text_append(out, h->chat ? "}" : "");
    choice_end(out, finish, m->scores);
    if (m->scores)
        answer_scores_write_prompt(m->scores, out);
    text_append(out, "}");
}

void openai_json_end(struct buffer *out, const struct request_usage *u)
{
    text_append(out, "],");
    usage_and_timings(out, u);
}
