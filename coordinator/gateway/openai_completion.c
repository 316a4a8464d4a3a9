/* A completion from its body to the last byte of its answer:
 *
 *     parsing    the body becomes fields (at once when it is small, else on a worker thread)
 *     encoding   the prompt becomes tokens (on a worker thread)
 *     open       the core has it: tokens come, until it is finished or failed
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
#include "coordinator/gateway/openai_json.h"
#include "coordinator/gateway/prompt.h"

struct completion {
    struct openai *openai;
    struct http_exchange *x; /* NULL: an orphan */
    struct completion *next, **link;
    struct piece piece;
    bool working; /* a worker has it */
    uint64_t id;  /* of the core's request; 0 while there is none */
    char client[REQUEST_CLIENT_BYTES];
    bool chat, stream;
    struct buffer raw;
    struct openai_body *body;
    int parsed;
    const char *param;
    struct err failure;
    struct model *model; /* shared */
    uint64_t context;
    uint32_t retry_after_s;
    struct prompt prompt;
    struct openai_head head;
    struct completion_text text;
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
    c->head = (struct openai_head){.chat = chat, .created_s = (int64_t)time(NULL)};
    snprintf(c->head.id, sizeof c->head.id, "%s-%016llx", chat ? "chatcmpl" : "cmpl",
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
    completion_fini(&c->text);
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

static void on_client_gone(void *ctx)
{
    struct completion *c = ctx;
    const struct requests *r = c->openai->requests;
    if (c->id)
        r->cancel(r->ctx, c->id, false, NULL);
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

/* The text that may be handed out goes out; false when the client does not take it. */
static bool stream_text(struct completion *c)
{
    size_t n;
    const char *text = completion_take(&c->text, &n);
    if (n == 0)
        return true;
    openai_event_text(http_stream_buffer(c->x), &c->head, text, n);
    completion_forget_given(&c->text);
    return http_stream_flush(c->x);
}

static void stream_end(struct completion *c)
{
    openai_event_done(http_stream_buffer(c->x));
    http_stream_flush(c->x);
    http_stream_end(c->x);
}

static void whole_reply(struct completion *c, const char *finish, const struct request_usage *usage)
{
    struct buffer out = {0};
    size_t n;
    const char *text = completion_take(&c->text, &n);
    openai_json_reply(&out, &c->head, text, n, finish, usage);
    if (out.failed)
        openai_error(c->x, 503, "no memory for the answer", NULL, status_word(HP_ENOMEM));
    else
        http_reply(c->x, 200, "application/json", out.data, out.size);
    buffer_free(&out);
}

static void completion_end(struct completion *c, const char *finish,
                           const struct request_usage *usage)
{
    completion_finish(&c->text);
    if (c->stream) {
        stream_text(c);
        openai_event_finish(http_stream_buffer(c->x), &c->head, finish);
        if (c->head.include_usage)
            openai_event_usage(http_stream_buffer(c->x), &c->head, usage);
        stream_end(c);
    } else {
        whole_reply(c, finish, usage);
    }
    completion_destroy(c);
}

static void completion_fail(struct completion *c, const struct err *why)
{
    int status = openai_status_of(why->code);
    if (c->stream && c->id) {
        completion_finish(&c->text); /* what was held back is still a prefix of the answer */
        stream_text(c);
        openai_event_error(http_stream_buffer(c->x), status, why->text, status_word(why->code));
        stream_end(c);
    } else {
        openai_error(c->x, status, why->text, NULL, status_word(why->code));
    }
    completion_leave(c);
}

void openai_fail_all(struct openai *o, const struct err *why)
{
    while (o->open) {
        struct completion *c = o->open;
        if (c->id)
            o->requests->cancel(o->requests->ctx, c->id, false, NULL);
        completion_fail(c, why);
    }
}

/* ---- what the core tells ---- */

static void on_tokens(void *ctx, uint64_t request, const uint32_t *ids, size_t n)
{
    struct completion *c = ctx;
    const struct requests *r = c->openai->requests;
    struct request_usage usage = {0};
    size_t read = 0; /* what was sampled behind a stop string is not used */
    while (read < n && !c->text.stopped)
        completion_push(&c->text, ids[read++]);
    if (c->text.text.failed) {
        struct err e = {0};
        err_set(&e, HP_ENOMEM, "no memory for the answer");
        r->cancel(r->ctx, request, false, NULL);
        completion_fail(c, &e);
    } else if (c->text.stopped) {
        r->cancel(r->ctx, request, true, &usage);
        usage.output_tokens -= usage.output_tokens > n - read ? n - read : 0;
        completion_end(c, "stop", &usage);
    } else if (c->stream && !stream_text(c)) {
        log_warn("gateway", "client_too_slow", "request=%s", c->head.id);
        r->cancel(r->ctx, request, false, NULL);
        http_stream_end(c->x);
        completion_destroy(c);
    }
}

static void on_finished(void *ctx, uint64_t request, enum request_finish finish,
                        const struct request_usage *usage)
{
    (void)request;
    completion_end(ctx, finish == REQUEST_STOP ? "stop" : "length", usage);
}

static void on_failed(void *ctx, uint64_t request, const struct err *why,
                      const struct request_usage *usage)
{
    (void)request, (void)usage;
    completion_fail(ctx, why);
}

/* ---- open ---- */

static void completion_open(struct completion *c)
{
    const struct requests *r = c->openai->requests;
    struct request_model m;
    struct err e = {0};
    struct request_spec request = {
        .model = c->body->model,
        .prompt = (const uint32_t *)(const void *)c->prompt.ids.data,
        .n_prompt = c->prompt.ids.size / sizeof(uint32_t),
        .max_tokens = c->body->max_tokens,
        .sampling = &c->body->sampling,
        .ignore_end = c->body->ignore_end,
        .client = c->client,
        .callbacks = {c, on_tokens, on_finished, on_failed, NULL},
    };
    int rc = r->find(r->ctx, c->body->model, &m, &e);
    c->retry_after_s = rc == 0 ? m.retry_after_s : 1;
    if (rc == 0 && !m.serving)
        rc = openai_not_serving(&m, &e);
    else if (rc == 0 && m.model != c->model)
        rc = err_set(&e, HP_ESTALE, "\"%s\" was deployed anew in this moment: try again",
                     c->body->model);
    if (rc == 0)
        rc = r->open(r->ctx, &request, &c->id, &e);
    buffer_free(&c->prompt.ids);
    if (rc < 0) {
        c->id = 0;
        completion_refuse(c, rc, e.text, rc == HP_EINVAL ? (c->chat ? "messages" : "prompt") : NULL,
                          rc == HP_ENOENT ? "model_not_found" : NULL);
    } else if (c->stream) {
        http_stream_begin(c->x, "text/event-stream; charset=utf-8");
        if (c->chat)
            openai_event_role(http_stream_buffer(c->x), &c->head);
        http_stream_flush(c->x);
    }
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
    c->stream = c->body->stream;
    c->head.include_usage = c->body->stream && c->body->include_usage;
    c->head.model = c->body->model;
    completion_init(&c->text, t, true);
    for (int i = 0; i < c->body->n_stops; i++)
        if (!completion_add_stop(&c->text, c->body->stops[i]))
            return err_set(e, HP_ENOMEM, "out of memory for a request");
    return 0;
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
    } else if (!m.serving) {
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
