#include "coordinator/gateway/dialect.h"

static void stream_end(struct buffer *out, const struct openai_head *h, const char *finish,
                       const struct request_usage *u)
{
    (void)finish;
    if (h->include_usage)
        openai_event_usage(out, h, u);
    openai_event_done(out);
}

static void stream_begin(struct buffer *out, const struct openai_head *h, uint32_t index)
{
    if (h->chat)
        openai_event_role(out, h, index);
}

static void stream_fail(struct buffer *out, const struct openai_head *h, int http_status,
                        const char *message, const char *code)
{
    (void)h;
    openai_event_error(out, http_status, message, code);
    openai_event_done(out);
}

static void reply_end(struct buffer *out, const struct openai_head *h, const char *finish,
                      const struct request_usage *u)
{
    (void)h, (void)finish;
    openai_json_end(out, u);
}

const struct dialect dialect_openai = {
    .stream_type = "text/event-stream; charset=utf-8",
    .pulse = ": the answer goes on in a moment\n\n",
    .stopped = "stop",
    .begin = stream_begin,
    .text = openai_event_text,
    .scored = openai_event_scored,
    .reasoning = openai_event_reasoning,
    .call = openai_event_call,
    .finish = openai_event_finish,
    .end = stream_end,
    .fail = stream_fail,
    .reply_begin = openai_json_begin,
    .reply_choice = openai_json_choice,
    .reply_call = openai_json_call,
    .reply_end = reply_end,
    .error = openai_json_error,
};
