/* A completion from its beginning to its ends, whatever its answer is: made, refused, failed, given
 * up, left by its reader. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/env.h"
#include "common/log.h"
#include "coordinator/gateway/openai_completion_int.h"
#include "coordinator/gateway/served_model.h"

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
                             .came_ns = env_now_ns(&env_real),
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
    if (c->body) /* a tree is there only while its piece may be in the lanes */
        lanes_drop_tree(c->piece.lanes, &c->body->root, c->piece.bytes);
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
    openai_error_as(c->answer.head.dialect, c->x, served_model_status(rc, c->in_pools),
                    c->retry_after_s, text, param, code ? code : status_word(rc));
    completion_leave(c);
}

/* ---- ends before the answer is whole ---- */

void completion_give_up(struct completion *c)
{
    char id[HTTP_REQUEST_ID_BYTES];
    http_request_id(c->x, id);
    log_warn("gateway", "client_too_slow", "request=%s answer=%s", id, c->answer.head.id);
    completion_cancel(c);
    http_stream_end(c->x);
    completion_destroy(c);
}

/* When to come again, as it is now: it may have waited. */
static uint32_t completion_retry_after_s(const struct completion *c)
{
    return openai_retry_after_s(c->openai->requests, c->client, c->body ? c->body->model : NULL,
                                c->retry_after_s);
}

/* A grammar that cannot be gone on with is so on the last stage alone, which knows no fields. */
static const char *grammar_blame(const struct completion *c, struct err *why)
{
    const char *field = why->code == HP_ELIMIT && c->body ? c->body->held_by : NULL;
    const struct err told = *why;
    if (field)
        err_set(why, told.code, "%s: %s", field, told.text);
    return field;
}

void completion_fail(struct completion *c, const struct err *failure)
{
    struct err named = *failure, *why = &named;
    const char *param = grammar_blame(c, why);
    int status = served_model_status(why->code, c->in_pools);
    completion_cancel(c);
    if (c->streams)
        answer_fail(&c->answer, status, why);
    else
        openai_error_as(c->answer.head.dialect, c->x, status, completion_retry_after_s(c),
                        why->text, param, status_word(why->code));
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
