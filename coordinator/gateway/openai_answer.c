#include "coordinator/gateway/openai_answer.h"

#include <stdlib.h>

#include "coordinator/gateway/dialect.h"
#include "coordinator/gateway/openai.h"

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

void answer_fini(struct openai_answer *a)
{
    for (uint32_t i = 0; i < a->n_choices; i++) {
        completion_fini(&a->choices[i].text);
        answer_scores_fini(&a->choices[i].scores);
    }
    free(a->choices);
    a->choices = NULL;
    a->n_choices = a->n_left = 0;
}

void answer_begin(struct openai_answer *a)
{
    const struct dialect *d = a->head.dialect;
    for (uint32_t i = 0; d->begin && i < a->n_choices; i++)
        d->begin(http_stream_buffer(a->x), &a->head, i);
    http_stream_flush(a->x);
}

/* The text that may be handed out, behind what waits to be flushed; false: there is none. */
static bool text_event(struct openai_answer *a, struct openai_choice *c)
{
    const struct dialect *d = a->head.dialect;
    struct buffer *out = http_stream_buffer(a->x);
    size_t n, echoed = c->n_echo;
    if (echoed)
        d->text(out, &a->head, c->index, c->echo, echoed);
    c->n_echo = 0;
    const char *text = completion_take(&c->text, &n);
    bool scored = d->scored && answer_scores_wait(&c->scores);
    if (scored)
        d->scored(out, &a->head, c->index, text, n, &c->scores);
    else if (n)
        d->text(out, &a->head, c->index, text, n);
    completion_forget_given(&c->text);
    return n || echoed || scored;
}

bool answer_push(struct openai_answer *a, struct openai_choice *c)
{
    return !text_event(a, c) || http_stream_flush(a->x);
}

static void stream_end(struct openai_answer *a)
{
    http_stream_flush(a->x);
    http_stream_end(a->x);
}

static void choice_reply(struct openai_answer *a, struct openai_choice *c, struct buffer *out)
{
    const struct dialect *d = a->head.dialect;
    size_t n;
    const char *text = completion_take(&c->text, &n);
    struct buffer all = {0};
    if (c->n_echo) {
        buffer_append(&all, c->echo, c->n_echo);
        buffer_append(&all, text, n);
        out->failed = out->failed || all.failed;
        text = buffer_cstr(&all);
        n = all.size;
    }
    if (d->reply_scored)
        d->reply_scored(out, &a->head, c->index, text, n, c->finish, &c->scores);
    else
        d->reply_choice(out, &a->head, c->index, text, n, c->finish);
    buffer_free(&all);
}

static void whole_reply(struct openai_answer *a)
{
    struct buffer out = {0};
    const struct dialect *d = a->head.dialect;
    d->reply_begin(&out, &a->head);
    for (uint32_t i = 0; i < a->n_choices; i++)
        choice_reply(a, &a->choices[i], &out);
    d->reply_end(&out, &a->head, a->choices[0].finish, &a->usage);
    if (out.failed)
        openai_error_as(d, a->x, 503, 1, "no memory for the answer", NULL, status_word(HP_ENOMEM));
    else
        http_reply(a->x, 200, "application/json", out.data, out.size);
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
    usage_add(a, c, usage);
    bool last = --a->n_left == 0;
    if (a->stream) {
        text_event(a, c);
        if (d->finish)
            d->finish(http_stream_buffer(a->x), &a->head, c->index, finish);
        if (!last)
            return http_stream_flush(a->x);
        d->end(http_stream_buffer(a->x), &a->head, a->choices[0].finish, &a->usage);
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
        text_event(a, &a->choices[i]);
    }
    a->head.dialect->fail(http_stream_buffer(a->x), http_status, why->text, status_word(why->code));
    stream_end(a);
}
