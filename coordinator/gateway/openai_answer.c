#include "coordinator/gateway/openai_answer.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <xxhash.h>

#include "common/env.h"
#include "coordinator/gateway/dialect.h"
#include "coordinator/gateway/event_ids.h"
#include "coordinator/gateway/openai.h"

enum { LARGE_REPLY_BYTES = 1 << 20 }; /* from here on a reply is not copied, but counted */

int answer_init(struct openai_answer *a, uint32_t n, void *owner, const struct tokenizer *t,
                char *const *stops, int n_stops, struct err *e)
{
    a->choices = calloc(n, sizeof *a->choices);
    a->n_choices = a->n_left = a->choices ? n : 0;
    bool good = a->choices != NULL;
    for (uint32_t i = 0; i < a->n_choices; i++) {
        a->choices[i] = (struct openai_choice){.owner = owner, .index = i};
        completion_init(&a->choices[i].text, t, true);
        for (int k = 0; k < n_stops && good; k++)
            good = completion_add_stop(&a->choices[i].text, stops[k]);
    }
    return good ? 0 : err_set(e, HP_ENOMEM, "out of memory for a request");
}

/* Special tokens that the reader has to see. */
static bool marks_keep(struct completion_text *t, const struct answer_rules *rules)
{
    static const char *const channels[] = {CHANNEL_HEAD, CHANNEL_START, CHANNEL_BODY, CHANNEL_END,
                                           CHANNEL_CALL};
    const struct tool_format *f = rules->format;
    const char *kept[] = {rules->reasons ? REASONING_BEGIN : NULL,
                          rules->reasons ? REASONING_END : NULL, f ? f->begin : NULL,
                          f ? f->end : NULL};
    bool is_channels = f && f->syntax == TOOL_CHANNELS, good = true;
    for (size_t k = 0; is_channels && k < sizeof channels / sizeof *channels && good; k++)
        good = completion_keep(t, channels[k]);
    for (size_t k = 0; !is_channels && k < sizeof kept / sizeof *kept && good; k++)
        good = !kept[k] || completion_keep(t, kept[k]);
    return good;
}

int answer_expect(struct openai_answer *a, const struct answer_rules *rules, struct err *e)
{
    bool good = true;
    for (uint32_t i = 0; i < a->n_choices && good; i++) {
        answer_reader_init(&a->choices[i].reader, rules);
        good = marks_keep(&a->choices[i].text, rules);
    }
    return good ? 0 : err_set(e, HP_ENOMEM, "out of memory for a request");
}

void answer_fini(struct openai_answer *a)
{
    for (uint32_t i = 0; i < a->n_choices; i++) {
        completion_fini(&a->choices[i].text);
        answer_scores_fini(&a->choices[i].scores);
        answer_reader_free(&a->choices[i].reader);
        buffer_free(&a->choices[i].said);
        buffer_free(&a->choices[i].reasoned);
        buffer_free(&a->choices[i].calls);
    }
    buffer_free(&a->blocks.said);
    buffer_free(&a->blocks.items);
    free(a->choices);
    a->choices = NULL;
    a->n_choices = a->n_left = 0;
}

/* What a reader has from before, though it was written anew. */
static void events_drop(struct openai_answer *a, size_t from)
{
    http_stream_buffer(a->x)->size = from;
}

/* Events that begin at `from` tell their reader how far they come. */
static void events_mark(struct openai_answer *a, size_t from)
{
    struct event_id id = {.n = a->n_choices};
    if (!a->marks || a->n_choices > EVENT_ID_MOST_CHOICES)
        return;
    for (uint32_t i = 0; i < a->n_choices; i++) {
        id.tokens[i] = a->choices[i].n_read;
        id.ended[i] = a->choices[i].finish != NULL;
    }
    event_id_write(http_stream_buffer(a->x), from, &id);
}

void answer_begin(struct openai_answer *a, bool had)
{
    const struct dialect *d = a->head.dialect;
    size_t from = http_stream_buffer(a->x)->size;
    for (uint32_t i = 0; d->begin && i < a->n_choices; i++)
        d->begin(http_stream_buffer(a->x), &a->head, i);
    if (had)
        events_drop(a, from);
    http_stream_flush(a->x);
}

/* ---- what a choice is made of: into a stream, or into a whole message ---- */

/* What is written next is of this one. */
static void head_turn(struct openai_answer *a, const struct openai_choice *c)
{
    a->head.stop = c->text.found;
    a->head.has_line = c->text.has_line;
    a->head.usage = &c->usage;
}

struct choice_parts {
    struct openai_answer *answer;
    struct openai_choice *choice;
};

static bool scores_wait(const struct openai_answer *a, const struct openai_choice *c)
{
    return a->head.dialect->scored && answer_scores_wait(&c->scores);
}

static void on_text(void *ctx, const char *text, size_t n)
{
    struct choice_parts *p = ctx;
    struct openai_answer *a = p->answer;
    const struct dialect *d = a->head.dialect;
    struct openai_choice *c = p->choice;
    if (!a->stream)
        buffer_append(&c->said, text, n);
    else if (scores_wait(a, c))
        d->scored(http_stream_buffer(a->x), &a->head, c->index, text, n, &c->scores);
    else
        d->text(http_stream_buffer(a->x), &a->head, c->index, text, n);
    a->told = true;
}

static void on_reasoning(void *ctx, const char *text, size_t n)
{
    struct choice_parts *p = ctx;
    struct openai_answer *a = p->answer;
    if (a->stream)
        a->head.dialect->reasoning(http_stream_buffer(a->x), &a->head, p->choice->index, text, n);
    else
        buffer_append(&p->choice->reasoned, text, n);
    a->told = true;
}

/* Nine letters and digits where templates take no others; their first is not always 0. */
static void call_name(char *out, size_t size, uint64_t drawn, bool is_short)
{
    static const char digits[] = "abcdefghijklmnopqrstuvwxyz0123456789";
    if (!is_short) {
        snprintf(out, size, "call_%016" PRIx64, drawn);
        return;
    }
    for (int i = 0; i < 9; i++, drawn /= sizeof digits - 1)
        out[i] = digits[drawn % (sizeof digits - 1)];
    out[9] = '\0';
}

/* Whoever reads an answer once more finds the same calls in it. */
static uint64_t call_draw(const struct openai_answer *a, const struct openai_choice *c)
{
    char text[80];
    if (!a->kept)
        return env_random_u64(&env_real);
    int n =
        snprintf(text, sizeof text, "%s/%u/%zu", a->head.id, c->index, (size_t)c->reader.n_calls);
    return XXH3_64bits(text, (size_t)n);
}

static void on_call(void *ctx, const struct tool_call *call)
{
    struct choice_parts *p = ctx;
    struct openai_answer *a = p->answer;
    const struct answer_reader *r = &p->choice->reader;
    char id[32];
    call_name(id, sizeof id, call_draw(a, p->choice), r->rules.format->short_ids);
    struct openai_call told = {(uint32_t)r->n_calls - 1, id, call->name, call->arguments,
                               call->n_arguments};
    if (a->stream)
        a->head.dialect->call(http_stream_buffer(a->x), &a->head, p->choice->index, &told);
    else
        a->head.dialect->reply_call(&p->choice->calls, &told);
    a->told = true;
}

/* The prompt's text, which comes first. */
static void echo_tell(struct choice_parts *p, struct openai_choice *c)
{
    const struct openai_answer *a = p->answer;
    if (a->stream)
        a->head.dialect->text(http_stream_buffer(a->x), &a->head, c->index, c->echo, c->n_echo);
    else
        buffer_append(&c->said, c->echo, c->n_echo);
    p->answer->told = true;
    c->n_echo = 0;
}

/* The text that may be handed out, and with `over` all that is left, behind what waits to be
 * flushed. */
static void text_read(struct choice_parts *p, struct openai_choice *c, bool over)
{
    const struct answer_sink sink = {p, on_text, on_reasoning, on_call};
    size_t n;
    if (c->n_echo > 0)
        echo_tell(p, c);
    const char *text = completion_take(&c->text, &n);
    if (n > 0)
        answer_reader_push(&c->reader, text, n, &sink);
    completion_forget_given(&c->text);
    if (over)
        answer_reader_finish(&c->reader, &sink);
}

static void text_event(struct openai_answer *a, struct openai_choice *c, bool over)
{
    struct choice_parts parts = {.answer = a, .choice = c};
    head_turn(a, c);
    text_read(&parts, c, over);
    if (scores_wait(a, c)) /* of tokens without text */
        on_text(&parts, "", 0);
}

size_t answer_mark(struct openai_answer *a)
{
    a->told = false;
    return a->stream ? http_stream_buffer(a->x)->size : 0;
}

void answer_count(struct openai_answer *a, struct openai_choice *c)
{
    struct choice_parts p = {.answer = a, .choice = c};
    if (!a->head.dialect->repeats || !answer_may_reason(&c->reader))
        return;
    head_turn(a, c);
    text_read(&p, c, false);
    c->n_reasoned += answer_reasons(&c->reader);
}

void answer_settle(struct openai_answer *a, size_t mark, bool had)
{
    if (a->stream && had)
        events_drop(a, mark);
    else if (a->stream && a->told)
        events_mark(a, mark);
}

bool answer_push(struct openai_answer *a, struct openai_choice *c, size_t mark, bool had)
{
    text_event(a, c, false);
    answer_settle(a, mark, had);
    return had || !a->told || http_stream_flush(a->x);
}

static const char *finish_of(const struct openai_choice *c)
{
    return c->reader.n_calls > 0 && strcmp(c->finish, "stop") == 0 ? "tool_calls" : c->finish;
}

static void stream_end(struct openai_answer *a)
{
    http_stream_flush(a->x);
    http_stream_end(a->x);
}

static void choice_reply(struct openai_answer *a, struct openai_choice *c, uint32_t index,
                         struct buffer *out)
{
    struct choice_parts p = {.answer = a, .choice = c};
    head_turn(a, c);
    text_read(&p, c, true);
    struct openai_message m = {.text = buffer_cstr(&c->said),
                               .n = c->said.size,
                               .reasoning = buffer_cstr(&c->reasoned),
                               .n_reasoning = c->reasoned.size,
                               .calls = buffer_cstr(&c->calls),
                               .n_calls = c->calls.size,
                               .scores = &c->scores};
    a->head.dialect->reply_choice(out, &a->head, index, &m, finish_of(c));
    out->failed |= c->said.failed | c->reasoned.failed | c->calls.failed | c->reader.held.failed;
    buffer_free(&c->said);
    buffer_free(&c->reasoned);
    buffer_free(&c->calls);
}

/* How many of its prompt's choices go before it: those whose tokens were likelier, and of equals
 * those that were made before. */
static uint32_t choice_rank(const struct openai_answer *a, uint32_t index)
{
    uint32_t of_prompt = index % a->n_per_prompt, first = index - of_prompt, rank = 0;
    if (a->n_given == a->n_per_prompt)
        return of_prompt;
    double own = answer_scores_mean(&a->choices[index].scores);
    for (uint32_t i = first; i < first + a->n_per_prompt; i++) {
        double other = answer_scores_mean(&a->choices[i].scores);
        rank += other > own || (i < index && other >= own);
    }
    return rank;
}

static void whole_reply(struct openai_answer *a)
{
    struct buffer out = {0};
    const struct dialect *d = a->head.dialect;
    const struct openai_choice *first = &a->choices[0];
    uint32_t n_given = a->n_choices / a->n_per_prompt * a->n_given;
    d->reply_begin(&out, &a->head);
    for (uint32_t given = 0; given < n_given; given++) {
        uint32_t i = given / a->n_given * a->n_per_prompt;
        while (choice_rank(a, i) != given % a->n_given)
            i++;
        first = given ? first : &a->choices[i];
        choice_reply(a, &a->choices[i], given, &out);
    }
    d->reply_end(&out, &a->head, finish_of(first), &a->usage);
    if (out.failed)
        openai_error_as(d, a->x, 503, 1, "no memory for the answer", NULL, status_word(HP_ENOMEM));
    else if (out.size < LARGE_REPLY_BYTES)
        http_reply(a->x, 200, "application/json", out.data, out.size);
    else if (!http_reply_large(a->x, 200, "application/json", &out))
        openai_error_as(d, a->x, 503, 1,
                        "too many large answers wait for their clients: try again later", NULL,
                        status_word(HP_EBUSY));
    buffer_free(&out);
}

static void time_add(double *longest, double seconds)
{
    *longest = *longest > seconds ? *longest : seconds;
}

/* The choices of a prompt have one beginning, and it is the first one's. */
static void usage_add(struct openai_answer *a, const struct openai_choice *c,
                      const struct request_usage *u)
{
    struct request_usage *sum = &a->usage;
    sum->output_tokens += u->output_tokens;
    sum->reasoning_tokens += c->n_reasoned;
    time_add(&sum->decode_s, u->decode_s);
    if (c->index % a->n_per_prompt != 0)
        return;
    sum->prompt_tokens += u->prompt_tokens;
    sum->cached_tokens += u->cached_tokens;
    time_add(&sum->waited_s, u->waited_s);
    time_add(&sum->prefill_s, u->prefill_s);
    time_add(&sum->planned_s, u->planned_s);
}

bool answer_choice_end(struct openai_answer *a, struct openai_choice *c, const char *finish,
                       const struct request_usage *usage)
{
    const struct dialect *d = a->head.dialect;
    completion_finish(&c->text);
    c->request = 0;
    c->finish = finish;
    c->usage = *usage;
    usage_add(a, c, usage);
    bool last = --a->n_left == 0;
    if (a->stream) {
        size_t from = http_stream_buffer(a->x)->size;
        text_event(a, c, true);
        if (c->reader.held.failed)
            return false;
        if (d->finish)
            d->finish(http_stream_buffer(a->x), &a->head, c->index, finish_of(c));
        if (c->had_end)
            events_drop(a, from);
        else
            events_mark(a, from);
        if (!last)
            return http_stream_flush(a->x);
        d->end(http_stream_buffer(a->x), &a->head, finish_of(&a->choices[0]), &a->usage);
        stream_end(a);
    } else if (last) {
        whole_reply(a);
    }
    return true;
}

void answer_fail(struct openai_answer *a, int http_status, const struct err *why)
{
    for (uint32_t i = 0; i < a->n_choices; i++) {
        completion_finish(&a->choices[i].text); /* what was held back is a prefix of the answer */
        text_event(a, &a->choices[i], true);
    }
    a->head.dialect->fail(http_stream_buffer(a->x), &a->head, http_status, why->text,
                          status_word(why->code));
    stream_end(a);
}
