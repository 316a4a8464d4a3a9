/* llama-server's own completions: POST /completion and /infill. An event for each piece of the
 * answer, of which the last says how it ended; no [DONE]. */
#include <inttypes.h>
#include <string.h>

#include "coordinator/gateway/dialect.h"
#include "coordinator/gateway/json_write.h"
#include "coordinator/gateway/llama_body.h"
#include "coordinator/gateway/llama_settings.h"

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

/* Of an answer the times between its tokens are known: one less than it has tokens. */
static void timings_write(struct buffer *out, const struct request_usage *u)
{
    double read = (double)(u->prompt_tokens - u->cached_tokens), made = (double)u->output_tokens,
           steps = made > 1 ? made - 1 : 0;
    buffer_printf(out,
                  ",\"timings\":{\"cache_n\":%" PRIu64
                  ",\"prompt_n\":%.0f,\"prompt_ms\":%.3f,\"prompt_per_token_ms\":%.3f,"
                  "\"prompt_per_second\":%.3f,\"predicted_n\":%.0f,\"predicted_ms\":%.3f,"
                  "\"predicted_per_token_ms\":%.3f,\"predicted_per_second\":%.3f}",
                  u->cached_tokens, read, u->prefill_s * 1e3, rate_of(u->prefill_s * 1e3, read),
                  rate_of(read, u->prefill_s), made, u->decode_s * 1e3,
                  rate_of(u->decode_s * 1e3, steps), rate_of(steps, u->decode_s));
}

static const char *stop_type(const struct openai_head *h, const char *finish)
{
    return strcmp(finish, "length") == 0 ? "limit" : h->stop ? "word" : "eos";
}

/* The rest of an object that began at `from`. */
static void last_write(struct buffer *out, size_t from, const struct openai_head *h,
                       const char *finish, const struct request_usage *u)
{
    buffer_printf(out, ",\"model\":");
    json_write_text(out, h->model);
    buffer_printf(out,
                  ",\"tokens_predicted\":%" PRIu64 ",\"tokens_evaluated\":%" PRIu64
                  ",\"tokens_cached\":%" PRIu64
                  ",\"truncated\":false,\"has_new_line\":%s,\"stop_type\":\"%s\","
                  "\"stopping_word\":",
                  u->output_tokens, u->prompt_tokens, u->prompt_tokens + u->output_tokens,
                  h->has_line ? "true" : "false", stop_type(h, finish));
    json_write_text(out, h->stop ? h->stop : "");
    buffer_printf(out, ",\"generation_settings\":");
    llama_settings_write(h->body, out);
    timings_write(out, u);
    buffer_printf(out, "}");
    if (h->body)
        response_fields_pick(&h->body->fields, out, from);
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
    size_t from = out->size;
    piece_begin(out, "", 0, true);
    last_write(out, from, h, finish, u);
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

static void reply_end(struct buffer *out, const struct openai_head *h, const char *finish,
                      const struct request_usage *u)
{
    last_write(out, 0, h, finish, u);
}

static const struct field_name refused_names[] = {
    {"n_predict", "max_tokens"}, {"repeat_penalty", "repetition_penalty"}, {0}};

#define COMPLETION                                                                                 \
    .stream_type = "text/event-stream", .nameless = true, .selects = true, .pulse = ":\n\n",       \
    .stopped = "stop", .names = refused_names, .text = stream_text, .end = stream_end,             \
    .fail = openai_event_error, .reply_begin = reply_begin, .reply_choice = reply_choice,          \
    .reply_end = reply_end, .error = openai_json_error

const struct dialect dialect_llama = {COMPLETION, .translate = llama_completion_translate};
const struct dialect dialect_llama_infill = {COMPLETION, .translate = llama_infill_translate,
                                             .fills = true};
