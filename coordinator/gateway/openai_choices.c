/* A completion from its tokens on: its choices in the core, and their answer. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/env.h"
#include "common/log.h"
#include "coordinator/gateway/openai_completion_int.h"

enum { CHOICES_AT_ONCE = 32 }; /* the next prompt is opened while fewer are open */

/* ---- its life ---- */

static void on_client_gone(void *ctx);

struct completion *completion_create(struct openai *o, struct http_exchange *x,
                                     const struct dialect *d, bool chat, const char *client)
{
    struct completion *c = calloc(1, sizeof *c);
    struct err *failure = c ? calloc(1, sizeof *failure) : NULL;
    if (!failure) {
        free(c);
        return NULL;
    }
    *c = (struct completion){.openai = o,
                             .x = x,
                             .chat = chat,
                             .failure = failure,
                             .retry_after_s = 1,
                             .next = o->open,
                             .link = &o->open};
    snprintf(c->client, sizeof c->client, "%s", client);
    c->answer.x = x;
    c->answer.head = (struct openai_head){
        .dialect = d, .chat = chat, .created_s = (int64_t)time(NULL), .blocks = &c->answer.blocks};
    snprintf(c->answer.head.id, sizeof c->answer.head.id, "%s%016llx",
             d->id_prefix ? d->id_prefix
             : chat       ? "chatcmpl-"
                          : "cmpl-",
             (unsigned long long)env_random_u64(&env_real));
    if (c->next)
        c->next->link = &c->next;
    o->open = c;
    http_on_gone(x, on_client_gone, c);
    return c;
}

/* Nobody waits for it any more. */
static void completion_orphan(struct completion *c)
{
    if (!c->x)
        return;
    if (c->next)
        c->next->link = c->link;
    *c->link = c->next;
    c->openai->scores_bytes -= c->scores_bytes;
    c->scores_bytes = 0;
    completion_unkeep(c);
    c->x = NULL;
    c->openai = NULL;
}

void completion_destroy(struct completion *c)
{
    completion_orphan(c);
    answer_fini(&c->answer);
    openai_body_destroy(&c->body);
    buffer_free(&c->raw);
    prompt_free(&c->prompt);
    free(c->failure);
    patience_end(&c->patience);
    model_close(&c->model);
    free(c);
}

/* Its exchange has its answer, or is gone. */
static void completion_leave(struct completion *c)
{
    if (c->working)
        completion_orphan(c);
    else
        completion_destroy(c);
}

/* None of its choices goes on. The last ones end first: they may wait still, and are not to be let
 * in where the first ones make room. */
static void completion_cancel(struct completion *c)
{
    for (uint32_t i = c->answer.n_choices; i-- > 0;)
        completion_choice_leave(c, &c->answer.choices[i], false, NULL);
}

static void on_client_gone(void *ctx)
{
    struct completion *c = ctx;
    completion_cancel(c);
    completion_leave(c);
}

void completion_taken(void *ctx)
{
    struct completion *c = ctx;
    completion_cancel(c);
    c->kept = NULL;
    if (c->streams)
        http_stream_end(c->x);
    else
        openai_error_as(c->answer.head.dialect, c->x, 409, c->retry_after_s,
                        "this answer is read over another connection now, which asked for it "
                        "with the same Idempotency-Key",
                        NULL, "taken_over");
    completion_leave(c);
}

void completion_refuse(struct completion *c, int rc, const char *text, const char *param,
                       const char *code)
{
    openai_error_as(c->answer.head.dialect, c->x, openai_status_of(rc), c->retry_after_s, text,
                    param, code ? code : status_word(rc));
    completion_leave(c);
}

/* ---- the answer ---- */

/* The client does not take its stream. */
static void completion_give_up(struct completion *c)
{
    char id[HTTP_REQUEST_ID_BYTES];
    http_request_id(c->x, id);
    log_warn("gateway", "client_too_slow", "request=%s answer=%s", id, c->answer.head.id);
    completion_cancel(c);
    http_stream_end(c->x);
    completion_destroy(c);
}

/* A stream begins with the first token: until then a request that fails is answered with a status,
 * which clients understand better than an event (429 and 503 are tried again). */
static void stream_begin(struct completion *c)
{
    if (!c->answer.stream || c->streams)
        return;
    c->streams = c->spoke = true;
    http_stream_begin(c->x, c->answer.head.dialect->stream_type);
    answer_begin(&c->answer, c->last_event[0] != '\0');
}

static void choice_end(struct completion *c, struct openai_choice *choice, const char *finish,
                       const struct request_usage *usage)
{
    stream_begin(c);
    if (!c->again)
        latency_note(&c->openai->latency, c->body->model, usage);
    if (!answer_choice_end(&c->answer, choice, finish, usage))
        completion_give_up(c);
    else if (!c->answer.n_left)
        completion_destroy(c);
    else
        completion_open(c);
}

/* When to come again, as it is now: it may have waited. */
static uint32_t completion_retry_after_s(const struct completion *c)
{
    const struct requests *r = c->openai->requests;
    struct request_model m;
    struct err ignored;
    bool known = c->body && r->find(r->ctx, c->client, c->body->model, &m, &ignored) == 0;
    return known ? m.retry_after_s : c->retry_after_s;
}

static void completion_fail(struct completion *c, const struct err *why)
{
    int status = openai_status_of(why->code);
    completion_cancel(c);
    if (c->streams)
        answer_fail(&c->answer, status, why);
    else
        openai_error_as(c->answer.head.dialect, c->x, status, completion_retry_after_s(c),
                        why->text, NULL, status_word(why->code));
    completion_leave(c);
}

void openai_fail_all(struct openai *o, const struct err *why)
{
    while (o->open)
        completion_fail(o->open, why);
}

void openai_pulse(struct openai *o)
{
    for (struct completion *c = o->open, *next; c; c = next) {
        next = c->next;
        const char *pulse = c->answer.head.dialect->pulse;
        bool silent = c->streams && !c->spoke && pulse;
        c->spoke = false;
        if (!silent)
            continue;
        buffer_append(http_stream_buffer(c->x), pulse, strlen(pulse));
        if (!http_stream_flush(c->x))
            completion_give_up(c);
    }
}

/* ---- what the core tells ---- */

static bool body_stops_at(const struct openai_body *b, uint32_t id)
{
    for (int i = 0; i < b->n_stop_ids; i++)
        if (b->stop_ids[i] == id)
            return true;
    return false;
}

/* The ids of a choice's prompt, which are there as long as they are told of. */
static const uint32_t *prompt_of(const struct completion *c, const struct openai_choice *choice,
                                 size_t *n)
{
    const size_t *ends = (const size_t *)(const void *)c->prompt.ends.data;
    size_t i = choice->index / c->body->n_choices, from = i ? ends[i - 1] : 0;
    *n = ends[i] - from;
    return (const uint32_t *)(const void *)c->prompt.ids.data + from;
}

/* The first token of a prompt follows nothing. */
static void prompt_scores_begin(const struct completion *c, struct openai_choice *choice)
{
    size_t n;
    if (choice->scores.prompt_width && !choice->scores.n_prompt)
        answer_scores_prompt(&choice->scores, prompt_of(c, choice, &n)[0], NULL, c->body->echo);
}

/* Counts what a choice holds now. False: that is too much, and the completion has failed. */
static bool scores_count(struct completion *c, struct openai_choice *choice)
{
    struct err e = {0};
    size_t bytes = answer_scores_bytes(&choice->scores), before = choice->scores.counted_bytes;
    choice->scores.counted_bytes = bytes;
    c->scores_bytes += bytes - before;
    c->openai->scores_bytes += bytes - before;
    if (answer_scores_failed(&choice->scores))
        err_set(&e, HP_ENOMEM, "no memory for the answer's logprobs");
    else if (c->scores_bytes > ANSWER_SCORES_BYTES)
        err_set(&e, HP_ELIMIT,
                "the answer would have more than %d MiB of logprobs: ask for fewer of them, or for "
                "fewer prompts at once",
                ANSWER_SCORES_BYTES >> 20);
    else if (bytes > before && c->openai->scores_bytes > ANSWER_SCORES_ALL_BYTES)
        err_set(&e, HP_EBUSY,
                "answers with logprobs that are being made have more than %d MiB together: try "
                "again later",
                ANSWER_SCORES_ALL_BYTES >> 20);
    if (e.code == 0)
        return true;
    completion_fail(c, &e);
    return false;
}

static void on_scores(void *ctx, uint64_t request, bool of_prompt, const struct score *scores,
                      size_t n)
{
    struct openai_choice *choice = ctx;
    struct completion *c = choice->owner;
    struct answer_scores *s = &choice->scores;
    size_t n_prompt;
    (void)request;
    prompt_scores_begin(c, choice);
    if (!of_prompt)
        answer_scores_come(s, scores, n);
    const uint32_t *ids = of_prompt ? prompt_of(c, choice, &n_prompt) : NULL;
    for (size_t i = 0; of_prompt && i + s->prompt_width <= n && s->n_prompt < n_prompt;
         i += s->prompt_width)
        answer_scores_prompt(s, ids[s->n_prompt], scores + i, c->body->echo);
    scores_count(c, choice);
}

/* False: nothing more is to be told of the choice, and the completion may be gone. `had`: its
 * reader has them from before. `behind`: tokens that came with these and are not read. */
static bool choice_read(struct openai_choice *choice, const uint32_t *ids, size_t n, size_t behind,
                        bool had)
{
    struct completion *c = choice->owner;
    struct request_usage usage = {0};
    size_t read = 0; /* what was sampled behind the end is not used */
    while (read < n && !choice->text.stopped) {
        uint32_t id = ids[read++];
        if (body_stops_at(c->body, id))
            completion_finish(&choice->text), answer_scores_end(&choice->scores, id);
        else
            completion_push(&choice->text, id), answer_scores_token(&choice->scores, id);
    }
    choice->n_read += (uint32_t)read;
    if (!scores_count(c, choice))
        return false;
    if (choice->text.text.failed || choice->reader.held.failed) {
        struct err e = {0};
        err_set(&e, HP_ENOMEM, "no memory for the answer");
        completion_fail(c, &e);
        return false;
    }
    if (choice->text.stopped) {
        completion_choice_leave(c, choice, true, &usage);
        size_t unread = n - read + behind;
        usage.output_tokens -= usage.output_tokens > unread ? unread : 0;
        if (c->kept)
            usage.output_tokens = choice->n_read;
        choice_end(c, choice, c->answer.head.dialect->stopped, &usage);
        return false;
    }
    if (c->answer.stream && !answer_push(&c->answer, choice, had)) {
        completion_give_up(c);
        return false;
    }
    c->spoke |= c->answer.told && !had; /* a call that grows tells nothing */
    return true;
}

static void on_tokens(void *ctx, uint64_t request, const uint32_t *ids, size_t n)
{
    struct openai_choice *choice = ctx;
    struct completion *c = choice->owner;
    (void)request;
    if (c->body->no_answer)
        return;
    prompt_scores_begin(c, choice);
    stream_begin(c);
    size_t had = choice->n_had > choice->n_read ? choice->n_had - choice->n_read : 0;
    had = had < n ? had : n;
    if (!had || choice_read(choice, ids, had, n - had, true))
        if (n > had)
            choice_read(choice, ids + had, n - had, 0, false);
}

static void on_finished(void *ctx, uint64_t request, enum request_finish finish,
                        const struct request_usage *usage)
{
    struct openai_choice *choice = ctx;
    struct completion *c = choice->owner;
    struct request_usage told = *usage;
    (void)request;
    if (c->body->no_answer)
        told.output_tokens = 0;
    prompt_scores_begin(c, choice);
    if (finish == REQUEST_STOP && !c->body->no_answer) {
        answer_scores_end(&choice->scores, usage->end_token);
        choice->request = 0;
        if (!scores_count(c, choice))
            return;
    }
    choice_end(c, choice, finish == REQUEST_STOP ? "stop" : "length", &told);
}

static void on_failed(void *ctx, uint64_t request, const struct err *why,
                      const struct request_usage *usage)
{
    struct openai_choice *choice = ctx;
    (void)request, (void)usage;
    choice->request = 0;
    completion_fail(choice->owner, why);
}

/* ---- open ---- */

/* What is to be said of its tokens, and the text that stands before them. */
static void choice_score(const struct completion *c, struct openai_choice *choice,
                         uint32_t said_width, uint32_t prompt_width)
{
    const struct openai_body *b = c->body;
    const size_t *ends = (const size_t *)(const void *)c->prompt.echo_ends.data;
    size_t i = choice->index / b->n_choices, from = b->echo && i ? ends[i - 1] : 0;
    choice->scores.tokenizer = choice->text.stream.tokenizer;
    choice->scores.chat = c->answer.head.chat || c->answer.head.dialect != &dialect_openai;
    choice->scores.tells = b->logprobs;
    choice->scores.all = b->prompt_logprobs;
    choice->scores.top = b->top;
    choice->scores.prompt_top = b->prompt_top;
    choice->scores.said_width = said_width;
    choice->scores.prompt_width = prompt_width;
    choice->n_echo = b->echo ? ends[i] - from : 0;
    choice->echo = b->echo ? (const char *)c->prompt.echo.data + from : NULL;
}

/* All choices of the next prompt or none: the first one's prompt is everybody's, each draws with a
 * seed of its own. */
static int choices_open(struct completion *c, struct err *e)
{
    const struct openai_body *b = c->body;
    bool echoes = b->echo && b->logprobs;
    uint32_t echo_top = echoes ? b->top : 0;
    uint32_t prompt_top = echo_top > b->prompt_top ? echo_top : b->prompt_top;
    uint32_t prompt_width = echoes || b->prompt_logprobs ? 1 + prompt_top : 0,
             said_width = b->logprobs && !b->no_answer ? 1 + b->top : 0;
    uint32_t n = c->body->n_choices, first = c->n_opened;
    const size_t *ends = (const size_t *)(const void *)c->prompt.ends.data;
    size_t from = first ? ends[first / n - 1] : 0;
    struct sampling_params sampling = c->body->sampling;
    struct request_spec request = {
        .model = c->body->model,
        .prompt = (const uint32_t *)(const void *)c->prompt.ids.data + from,
        .n_prompt = ends[first / n] - from,
        .max_tokens = c->body->max_tokens,
        .sampling = &sampling,
        .n_forks = prompt_width ? 0 : n - 1,
        .said_scores = said_width,
        .prompt_scores = prompt_width,
        .ignore_end = c->body->ignore_end,
        .priority = c->body->priority,
        .client = c->client,
    };
    int rc = 0;
    for (uint32_t i = first; i < first + n && rc == 0; i++) {
        struct openai_choice *choice = &c->answer.choices[i];
        request.callbacks = (struct request_callbacks){.ctx = choice,
                                                       .tokens = on_tokens,
                                                       .finished = on_finished,
                                                       .failed = on_failed,
                                                       .scores = on_scores};
        choice_score(c, choice, said_width, prompt_width);
        rc = completion_choice_open(c, choice, &request, e);
        request.fork_of = prompt_width ? 0 : c->answer.choices[first].request;
        request.n_forks = 0;
        sampling.seed++;
    }
    if (rc == 0) {
        c->n_opened += n;
        patience_renew(&c->patience);
        return 0;
    }
    for (uint32_t i = first + n; i-- > first;) /* as completion_cancel */
        completion_choice_leave(c, &c->answer.choices[i], false, NULL);
    return rc;
}

static int prompt_open(struct completion *c, struct err *e)
{
    const struct requests *r = c->openai->requests;
    struct request_model m;
    int rc = r->find(r->ctx, c->client, c->body->model, &m, e);
    c->retry_after_s = rc == 0 ? m.retry_after_s : 1;
    if (rc == 0 && !m.serving && !m.waits)
        rc = openai_not_serving(&m, e);
    else if (rc == 0 && m.model != c->model)
        rc = err_set(e, HP_ESTALE, "\"%s\" was deployed anew in this moment: try again",
                     c->body->model);
    return rc < 0 ? rc : choices_open(c, e);
}

static void on_again(void *ctx)
{
    completion_open(ctx);
}

static uint32_t choices_running(const struct completion *c)
{
    return c->n_opened - (c->answer.n_choices - c->answer.n_left);
}

/* As many more as may be in the core at once. A full queue, or its key's rate, refuses a request
 * that has not begun; one that has waits for its turn. */
void completion_open(struct completion *c)
{
    struct err e = {0};
    int rc = 0;
    while (rc == 0 && c->n_opened < c->answer.n_choices && choices_running(c) < CHOICES_AT_ONCE)
        rc = prompt_open(c, &e);
    if (c->n_opened == c->answer.n_choices && !c->body->echo && !c->body->prompt_logprobs)
        prompt_free(&c->prompt);
    if (rc == 0 ||
        ((rc == HP_EBUSY || rc == HP_ERATE) && c->n_opened > 0 &&
         (choices_running(c) > 0 || patience_wait(&c->patience, c->openai->loop, on_again, c))))
        return;
    if (c->n_opened > 0)
        completion_fail(c, &e);
    else
        completion_refuse(c, rc, e.text, rc == HP_EINVAL ? (c->chat ? "messages" : "prompt") : NULL,
                          openai_model_code(rc));
}
