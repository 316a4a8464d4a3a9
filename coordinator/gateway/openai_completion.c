/* A completion from its body to the last byte of its answer:
 *
 *     parsing    the body becomes fields (at once when it is small, else on a worker thread)
 *     encoding   the prompt becomes tokens (on a worker thread)
 *     open       the core has its choices: tokens come, until each is finished or one has failed
 *
 * A client that goes away during the first two leaves an orphan, which its worker finishes and
 * nobody hears of. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/env.h"
#include "common/log.h"
#include "coordinator/gateway/openai.h"
#include "coordinator/gateway/openai_answer.h"
#include "coordinator/gateway/prompt.h"

struct completion {
    struct openai *openai;
    struct http_exchange *x; /* NULL: an orphan */
    struct completion *next, **link;
    struct piece piece;
    bool working; /* a worker has it */
    bool streams; /* its stream has begun */
    bool spoke;   /* it has told something since the last pulse */
    char client[REQUEST_CLIENT_BYTES];
    bool chat;
    struct buffer raw;
    struct openai_body *body;
    int parsed;
    const char *param;
    struct err failure;
    struct model *model; /* shared */
    uint64_t context;
    uint32_t retry_after_s;
    struct prompt prompt;
    struct openai_answer answer;
};

/* ---- its life ---- */

static void on_client_gone(void *ctx);

static struct completion *completion_create(struct openai *o, struct http_exchange *x, bool chat,
                                            const char *client)
{
    struct completion *c = calloc(1, sizeof *c);
    if (!c)
        return NULL;
    *c = (struct completion){
        .openai = o, .x = x, .chat = chat, .retry_after_s = 1, .next = o->open, .link = &o->open};
    snprintf(c->client, sizeof c->client, "%s", client);
    c->answer.x = x;
    c->answer.head = (struct openai_head){.chat = chat, .created_s = (int64_t)time(NULL)};
    snprintf(c->answer.head.id, sizeof c->answer.head.id, "%s-%016llx", chat ? "chatcmpl" : "cmpl",
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
    c->x = NULL;
    c->openai = NULL;
}

static void completion_destroy(struct completion *c)
{
    completion_orphan(c);
    answer_fini(&c->answer);
    openai_body_destroy(&c->body);
    buffer_free(&c->raw);
    buffer_free(&c->prompt.ids);
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
    const struct requests *r = c->openai->requests;
    for (uint32_t i = c->answer.n_choices; i-- > 0;) {
        if (c->answer.choices[i].request)
            r->cancel(r->ctx, c->answer.choices[i].request, false, NULL);
        c->answer.choices[i].request = 0;
    }
}

static void on_client_gone(void *ctx)
{
    struct completion *c = ctx;
    completion_cancel(c);
    completion_leave(c);
}

static void completion_refuse(struct completion *c, int rc, const char *text, const char *param,
                              const char *code)
{
    openai_error_for(c->x, openai_status_of(rc), c->retry_after_s, text, param,
                     code ? code : status_word(rc));
    completion_leave(c);
}

/* ---- the answer ---- */

/* The client does not take its stream. */
static void completion_give_up(struct completion *c)
{
    log_warn("gateway", "client_too_slow", "request=%s", c->answer.head.id);
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
    http_stream_begin(c->x, "text/event-stream; charset=utf-8");
    answer_begin(&c->answer);
}

static void choice_end(struct completion *c, struct openai_choice *choice, const char *finish,
                       const struct request_usage *usage)
{
    stream_begin(c);
    if (!answer_choice_end(&c->answer, choice, finish, usage))
        completion_give_up(c);
    else if (!c->answer.n_left)
        completion_destroy(c);
}

/* When to come again, as it is now: it may have waited. */
static uint32_t completion_retry_after_s(const struct completion *c)
{
    const struct requests *r = c->openai->requests;
    struct request_model m;
    struct err ignored;
    bool known = c->body && r->find(r->ctx, c->body->model, &m, &ignored) == 0;
    return known ? m.retry_after_s : c->retry_after_s;
}

static void completion_fail(struct completion *c, const struct err *why)
{
    int status = openai_status_of(why->code);
    completion_cancel(c);
    if (c->streams)
        answer_fail(&c->answer, status, why);
    else
        openai_error_for(c->x, status, completion_retry_after_s(c), why->text, NULL,
                         status_word(why->code));
    completion_leave(c);
}

void openai_fail_all(struct openai *o, const struct err *why)
{
    while (o->open)
        completion_fail(o->open, why);
}

void openai_pulse(struct openai *o)
{
    static const char comment[] = ": the answer goes on in a moment\n\n";
    for (struct completion *c = o->open, *next; c; c = next) {
        next = c->next;
        bool silent = c->streams && !c->spoke;
        c->spoke = false;
        if (!silent)
            continue;
        buffer_append(http_stream_buffer(c->x), comment, sizeof comment - 1);
        if (!http_stream_flush(c->x))
            completion_give_up(c);
    }
}

/* ---- what the core tells ---- */

static void on_tokens(void *ctx, uint64_t request, const uint32_t *ids, size_t n)
{
    struct openai_choice *choice = ctx;
    struct completion *c = choice->owner;
    const struct requests *r = c->openai->requests;
    struct request_usage usage = {0};
    stream_begin(c);
    c->spoke = true;
    size_t read = 0; /* what was sampled behind a stop string is not used */
    while (read < n && !choice->text.stopped)
        completion_push(&choice->text, ids[read++]);
    if (choice->text.text.failed) {
        struct err e = {0};
        err_set(&e, HP_ENOMEM, "no memory for the answer");
        completion_fail(c, &e);
    } else if (choice->text.stopped) {
        r->cancel(r->ctx, request, true, &usage);
        usage.output_tokens -= usage.output_tokens > n - read ? n - read : 0;
        choice_end(c, choice, "stop", &usage);
    } else if (c->answer.stream && !answer_push(&c->answer, choice)) {
        completion_give_up(c);
    }
}

static void on_finished(void *ctx, uint64_t request, enum request_finish finish,
                        const struct request_usage *usage)
{
    struct openai_choice *choice = ctx;
    (void)request;
    choice_end(choice->owner, choice, finish == REQUEST_STOP ? "stop" : "length", usage);
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

/* All choices or none: the first one's prompt is everybody's, each draws with a seed of its own. */
static int choices_open(struct completion *c, struct err *e)
{
    const struct requests *r = c->openai->requests;
    struct sampling_params sampling = c->body->sampling;
    struct request_spec request = {
        .model = c->body->model,
        .prompt = (const uint32_t *)(const void *)c->prompt.ids.data,
        .n_prompt = c->prompt.ids.size / sizeof(uint32_t),
        .max_tokens = c->body->max_tokens,
        .sampling = &sampling,
        .n_forks = c->answer.n_choices - 1,
        .ignore_end = c->body->ignore_end,
        .priority = c->body->priority,
        .client = c->client,
    };
    int rc = 0;
    for (uint32_t i = 0; i < c->answer.n_choices && rc == 0; i++) {
        struct openai_choice *choice = &c->answer.choices[i];
        request.callbacks =
            (struct request_callbacks){choice, on_tokens, on_finished, on_failed, NULL};
        rc = r->open(r->ctx, &request, &choice->request, e);
        choice->request = rc < 0 ? 0 : choice->request;
        request.fork_of = c->answer.choices[0].request;
        request.n_forks = 0;
        sampling.seed++;
    }
    if (rc < 0)
        completion_cancel(c);
    return rc;
}

static void completion_open(struct completion *c)
{
    const struct requests *r = c->openai->requests;
    struct request_model m;
    struct err e = {0};
    int rc = r->find(r->ctx, c->body->model, &m, &e);
    c->retry_after_s = rc == 0 ? m.retry_after_s : 1;
    if (rc == 0 && !m.serving && !m.waits)
        rc = openai_not_serving(&m, &e);
    else if (rc == 0 && m.model != c->model)
        rc = err_set(&e, HP_ESTALE, "\"%s\" was deployed anew in this moment: try again",
                     c->body->model);
    if (rc == 0)
        rc = choices_open(c, &e);
    buffer_free(&c->prompt.ids);
    if (rc < 0)
        completion_refuse(c, rc, e.text, rc == HP_EINVAL ? (c->chat ? "messages" : "prompt") : NULL,
                          rc == HP_ENOENT ? "model_not_found" : NULL);
}

/* ---- encoding ---- */

static struct completion *completion_of(struct piece *p)
{
    return (struct completion *)(void *)((char *)p - offsetof(struct completion, piece));
}

static void encode_run(struct piece *p)
{
    struct completion *c = completion_of(p);
    prompt_make(c->body, c->model, c->context, &c->prompt);
}

/* A piece came back: is there still something to do for it? */
static bool completion_returned(struct completion *c, const struct err *why)
{
    c->working = false;
    if (!c->x)
        completion_destroy(c);
    else if (why)
        completion_refuse(c, why->code, why->text, NULL, NULL);
    else
        return true;
    return false;
}

static void encode_done(struct piece *p, const struct err *why)
{
    struct completion *c = completion_of(p);
    if (!completion_returned(c, why))
        return;
    if (c->prompt.rc < 0)
        completion_refuse(c, c->prompt.rc, c->prompt.failure.text, c->prompt.param, c->prompt.code);
    else
        completion_open(c);
}

static void completion_submit(struct completion *c, void (*run)(struct piece *),
                              void (*done)(struct piece *, const struct err *), size_t bytes)
{
    struct err e = {0};
    c->piece = (struct piece){.run = run, .done = done};
    c->working = true;
    int rc = lanes_add(c->openai->lanes, &c->piece, bytes, &e);
    if (rc < 0) {
        c->working = false;
        completion_refuse(c, rc, e.text, NULL, NULL);
    }
}

/* What an answer needs of the model and the body, on the loop. */
static int completion_prepare(struct completion *c, const struct request_model *m, struct err *e)
{
    const struct tokenizer *t;
    int rc = model_text_prepare(m->model, e);
    rc = rc < 0 ? rc : model_tokenizer(m->model, &t, e);
    if (rc < 0)
        return rc;
    c->model = model_share(m->model);
    c->context = m->context;
    c->answer.stream = c->body->stream;
    c->answer.head.include_usage = c->body->stream && c->body->include_usage;
    c->answer.head.model = c->body->model;
    return answer_init(&c->answer, c->body->n_choices, c, t, c->body->stops, c->body->n_stops, e);
}

static void completion_parsed(struct completion *c, size_t bytes)
{
    const struct requests *r = c->openai->requests;
    struct request_model m;
    struct err e = {0};
    int rc;
    if (c->parsed < 0) {
        completion_refuse(c, c->parsed, c->failure.text, c->param, NULL);
    } else if ((rc = r->find(r->ctx, c->body->model, &m, &e)) < 0) {
        completion_refuse(c, rc, e.text, "model", rc == HP_ENOENT ? "model_not_found" : NULL);
    } else if (!m.serving && !m.waits) {
        c->retry_after_s = m.retry_after_s;
        completion_refuse(c, openai_not_serving(&m, &e), e.text, "model", m.state);
    } else if ((rc = openai_body_check(c->body, m.vocabulary, &e)) < 0) {
        completion_refuse(c, rc, e.text, "logit_bias", NULL);
    } else if ((rc = completion_prepare(c, &m, &e)) < 0) {
        completion_refuse(c, rc, e.text, NULL, NULL);
    } else {
        completion_submit(c, encode_run, encode_done, bytes);
    }
}

/* ---- parsing ---- */

static void parse_run(struct piece *p)
{
    struct completion *c = completion_of(p);
    c->parsed = openai_body_parse(buffer_cstr(&c->raw), c->raw.size, c->chat, &c->body, &c->param,
                                  &c->failure);
    buffer_free(&c->raw);
}

static void parse_done(struct piece *p, const struct err *why)
{
    struct completion *c = completion_of(p);
    if (completion_returned(c, why))
        completion_parsed(c, p->bytes);
}

void openai_complete(struct openai *o, struct http_exchange *x, bool chat, const char *client)
{
    struct completion *c = completion_create(o, x, chat, client);
    if (!c) {
        openai_error(x, 503, "out of memory for a request", NULL, status_word(HP_ENOMEM));
        return;
    }
    c->raw = http_take_body(x);
    size_t bytes = c->raw.size;
    if (bytes >= LANES_LARGE_BYTES) {
        completion_submit(c, parse_run, parse_done, bytes);
    } else {
        parse_run(&c->piece);
        completion_parsed(c, bytes);
    }
}
