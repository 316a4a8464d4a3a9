/* llama-server's own completions: POST /completion and /infill. An event for each piece of an
 * answer, of which its last says how it ended; no [DONE]. A whole reply is an object, or a list of
 * them where several answers were asked for. */
#include <inttypes.h>
#include <string.h>

#include "coordinator/gateway/dialect.h"
#include "coordinator/gateway/json_write.h"
#include "coordinator/gateway/llama_body.h"
#include "coordinator/gateway/llama_settings.h"
#include "coordinator/gateway/llama_timings.h"

/* What is said of tokens (NULL: nothing is), as members behind others. Of `f` those alone that are
 * asked for; NULL: all. */
static void scores_write(struct buffer *out, const struct response_fields *f,
                         struct answer_scores *scores)
{
    if (!f || response_fields_have(f, "tokens")) {
        buffer_printf(out, ",\"tokens\":");
        if (scores)
            answer_scores_write_ids(scores, out);
        else
            buffer_printf(out, "[]");
    }
    if (scores && scores->tells && (!f || response_fields_have(f, "completion_probabilities"))) {
        buffer_printf(out, ",\"completion_probabilities\":");
        answer_scores_write_list(scores, out);
    }
}

static void timings_write(struct buffer *out, const struct request_usage *u)
{
    buffer_printf(out, ",\"timings\":{");
    llama_timings_write(out, u);
    buffer_printf(out, "}");
}

/* An object that stays open. */
static void piece_begin(struct buffer *out, const struct openai_head *h, uint32_t index,
                        const char *text, size_t n, bool last)
{
    buffer_printf(out, "{\"index\":%" PRIu32 ",\"content\":", index);
    json_write_string(out, text, n);
    buffer_printf(out,
                  ",\"id_slot\":-1,\"stop\":%s,\"tokens_predicted\":%" PRIu64
                  ",\"tokens_evaluated\":%" PRIu64,
                  last ? "true" : "false", h->usage->output_tokens, h->usage->prompt_tokens);
}

static const char *stop_type(const struct openai_head *h, const char *finish)
{
    return strcmp(finish, "length") == 0 ? "limit" : h->stop ? "word" : "eos";
}

/* Picks of the object at `from` what the body asks for. What is said of tokens may be long, and is
 * no part of the tree that is made for it, but written behind. */
static void answer_pick(struct buffer *out, size_t from, const struct response_fields *f,
                        struct answer_scores *scores)
{
    response_fields_pick(f, out, from);
    if (out->failed)
        return;
    size_t end = --out->size; /* the brace */
    scores_write(out, f, scores);
    if (end == from + 1 && out->size > end) { /* nothing stands before the comma */
        memmove(out->data + end, out->data + end + 1, out->size - end - 1);
        out->size--;
    }
    buffer_printf(out, "}");
}

/* Of an answer that is over. */
static void answer_write(struct buffer *out, const struct openai_head *h, uint32_t index,
                         const char *text, size_t n, struct answer_scores *scores,
                         const char *finish)
{
    size_t from = out->size;
    piece_begin(out, h, index, text, n, true);
    buffer_printf(out, ",\"model\":");
    json_write_text(out, h->model);
    buffer_printf(out,
                  ",\"tokens_cached\":%" PRIu64
                  ",\"truncated\":false,\"has_new_line\":%s,\"stop_type\":\"%s\","
                  "\"stopping_word\":",
                  h->usage->prompt_tokens + h->usage->output_tokens, h->has_line ? "true" : "false",
                  stop_type(h, finish));
    json_write_text(out, h->stop ? h->stop : "");
    buffer_printf(out, ",\"generation_settings\":");
    llama_settings_write(h->body, out);
    timings_write(out, h->usage);
    buffer_printf(out, "}");
    if (!out->failed)
        answer_pick(out, from, &h->body->fields, scores);
}

static void stream_scored(struct buffer *out, const struct openai_head *h, uint32_t index,
                          const char *text, size_t n, struct answer_scores *scores)
{
    buffer_printf(out, "data: ");
    piece_begin(out, h, index, text, n, false);
    scores_write(out, NULL, scores);
    if (h->tells_timings)
        timings_write(out, h->usage);
    buffer_printf(out, "}\n\n");
}

static void stream_text(struct buffer *out, const struct openai_head *h, uint32_t index,
                        const char *text, size_t n)
{
    stream_scored(out, h, index, text, n, NULL);
}

static void stream_finish(struct buffer *out, const struct openai_head *h, uint32_t index,
                          const char *finish)
{
    buffer_printf(out, "data: ");
    answer_write(out, h, index, "", 0, NULL, finish);
    buffer_printf(out, "\n\n");
}

static void stream_end(struct buffer *out, const struct openai_head *h, const char *finish,
                       const struct request_usage *u)
{
    (void)out, (void)h, (void)finish, (void)u; /* each answer has said its own */
}

static bool is_list(const struct openai_head *h)
{
    return h->body->n_prompts * h->body->n_given > 1;
}

static void reply_begin(struct buffer *out, const struct openai_head *h)
{
    buffer_printf(out, "%s", is_list(h) ? "[" : "");
}

static void reply_choice(struct buffer *out, const struct openai_head *h, uint32_t index,
                         const struct openai_message *m, const char *finish)
{
    buffer_printf(out, "%s", index ? "," : "");
    answer_write(out, h, index, m->text, m->n, m->scores, finish);
}

static void reply_end(struct buffer *out, const struct openai_head *h, const char *finish,
                      const struct request_usage *u)
{
    (void)finish, (void)u;
    buffer_printf(out, "%s", is_list(h) ? "]" : "");
}

static void stream_fail(struct buffer *out, const struct openai_head *h, int http_status,
                        const char *message, const char *code)
{
    (void)h;
    openai_event_error(out, http_status, message, code);
}

static const struct field_name refused_names[] = {{"n_predict", "max_tokens"},
                                                  {"repeat_penalty", "repetition_penalty"},
                                                  {"n_probs", "logprobs"},
                                                  {0}};

#define COMPLETION                                                                                 \
    .stream_type = "text/event-stream", .shape = SCORES_OF_LLAMA, .selects = true,                 \
    .pulse = ":\n\n", .stopped = "stop", .names = refused_names, .text = stream_text,              \
    .scored = stream_scored, .finish = stream_finish, .end = stream_end, .fail = stream_fail,      \
    .reply_begin = reply_begin, .reply_choice = reply_choice, .reply_end = reply_end,              \
    .error = openai_json_error

const struct dialect dialect_llama = {COMPLETION, .translate = llama_completion_translate};
const struct dialect dialect_llama_infill = {COMPLETION, .translate = llama_infill_translate,
                                             .fills = true};
