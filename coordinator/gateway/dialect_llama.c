/* llama-server's own completions: POST /completion and /infill. An event for each piece of the
 * answer, of which the last says how it ended; no [DONE]. */
#include <inttypes.h>
#include <string.h>

#include "coordinator/gateway/dialect.h"
#include "coordinator/gateway/json_write.h"
#include "coordinator/gateway/llama_body.h"

static void piece_begin(struct buffer *out, const char *text, size_t n, bool last)
{
    buffer_printf(out, "{\"index\":0,\"content\":");
    json_write_string(out, text, n);
    buffer_printf(out, ",\"tokens\":[],\"id_slot\":-1,\"stop\":%s", last ? "true" : "false");
}

static double rate_of(double n, double seconds)
{
    return seconds > 0 ? n / seconds : 0;
}

static void timings_write(struct buffer *out, const struct request_usage *u)
{
    double read = (double)(u->prompt_tokens - u->cached_tokens), made = (double)u->output_tokens;
    buffer_printf(out,
                  ",\"timings\":{\"cache_n\":%" PRIu64
                  ",\"prompt_n\":%.0f,\"prompt_ms\":%.3f,\"prompt_per_token_ms\":%.3f,"
                  "\"prompt_per_second\":%.3f,\"predicted_n\":%.0f,\"predicted_ms\":%.3f,"
                  "\"predicted_per_token_ms\":%.3f,\"predicted_per_second\":%.3f}",
                  u->cached_tokens, read, u->prefill_s * 1e3, rate_of(u->prefill_s * 1e3, read),
                  rate_of(read, u->prefill_s), made, u->decode_s * 1e3,
                  rate_of(u->decode_s * 1e3, made), rate_of(made, u->decode_s));
}

static void last_write(struct buffer *out, const struct openai_head *h, const char *finish,
                       const struct request_usage *u)
{
    buffer_printf(out, ",\"model\":");
    json_write_text(out, h->model);
    buffer_printf(out,
                  ",\"tokens_predicted\":%" PRIu64 ",\"tokens_evaluated\":%" PRIu64
                  ",\"tokens_cached\":%" PRIu64 ",\"truncated\":false,\"stop_type\":\"%s\","
                  "\"stopping_word\":",
                  u->output_tokens, u->prompt_tokens, u->prompt_tokens + u->output_tokens,
                  strcmp(finish, "length") == 0 ? "limit"
                  : h->stop                     ? "word"
                                                : "eos");
    json_write_text(out, h->stop ? h->stop : "");
    timings_write(out, u);
    buffer_printf(out, "}");
}

static void stream_text(struct buffer *out, const struct openai_head *h, uint32_t index,
                        const char *text, size_t n)
{
    (void)h, (void)index;
    buffer_printf(out, "data: ");
    piece_begin(out, text, n, false);
    buffer_printf(out, "}\n\n");
}

static void stream_end(struct buffer *out, const struct openai_head *h, const char *finish,
                       const struct request_usage *u)
{
    buffer_printf(out, "data: ");
    piece_begin(out, "", 0, true);
    last_write(out, h, finish, u);
    buffer_printf(out, "\n\n");
}

static void reply_begin(struct buffer *out, const struct openai_head *h)
{
    (void)out, (void)h;
}

static void reply_choice(struct buffer *out, const struct openai_head *h, uint32_t index,
                         const struct openai_message *m, const char *finish)
{
    (void)h, (void)index, (void)finish;
    piece_begin(out, m->text, m->n, true);
}

static const struct field_name refused_names[] = {
    {"n_predict", "max_tokens"}, {"repeat_penalty", "repetition_penalty"}, {0}};

#define COMPLETION                                                                                 \
    .stream_type = "text/event-stream", .nameless = true, .pulse = ":\n\n", .stopped = "stop",     \
    .names = refused_names, .text = stream_text, .end = stream_end, .fail = openai_event_error,    \
    .reply_begin = reply_begin, .reply_choice = reply_choice, .reply_end = last_write,             \
    .error = openai_json_error

const struct dialect dialect_llama = {COMPLETION, .translate = llama_completion_translate};
const struct dialect dialect_llama_infill = {COMPLETION, .translate = llama_infill_translate,
                                             .fills = true};
