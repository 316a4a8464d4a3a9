#include "coordinator/gateway/openai.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/env.h"
#include "common/log.h"
#include "coordinator/gateway/openai_body.h"
#include "model/model.h"

/* One completion on its way: from admission until its last byte is handed to the connection. */
struct completion {
    const struct requests *requests;
    struct http_exchange *x;
    uint64_t id;
    char name[40]; /* "chatcmpl-..." */
    char *model;
    int64_t created;
    bool chat, stream, include_usage;
    struct completion_text text;
};

/* ---- small replies ------------------------------------------------------------------------------------------------------------------ */

static void reply_json(struct http_exchange *x, int status, json_t *value, int retry_after_s)
{
    char *text = value ? json_dumps(value, JSON_COMPACT) : NULL;
    const char *body = text ? text : "{}";
    http_reply(x, text ? status : 500, "application/json", body, strlen(body), retry_after_s);
    free(text);
    json_decref(value);
}

static json_t *error_object(const char *message, const char *type, const char *param, const char *code)
{
    return json_pack("{s:{s:s, s:s, s:s?, s:s?}}", "error", "message", message, "type", type, "param", param, "code", code);
}

static const char *type_of_status(int status)
{
    switch (status) {
    case 401: return "authentication_error";
    case 404: return "not_found_error";
    case 429: return "rate_limit_error";
    default: return status >= 500 ? "server_error" : "invalid_request_error";
    }
}

void openai_error(struct http_exchange *x, int http_status, const char *message, const char *param, const char *code)
{
    int retry_after_s = http_status == 429 || http_status == 503 ? 1 : 0;
    reply_json(x, http_status, error_object(message, type_of_status(http_status), param, code), retry_after_s);
}

static int http_status_of(int rc)
{
    switch (rc) {
    case HP_ENOENT: return 404;
    case HP_EDENIED: return 403;
    case HP_EBUSY: return 429;
    case HP_EINVAL:
    case HP_EPARSE:
    case HP_EUNSUPPORTED:
    case HP_EUSAGE: return 400;
    case HP_ELINK:
    case HP_ESTALE:
    case HP_EDEVICE: return 503;
    case HP_ETIMEOUT: return 504;
    default: return 500;
    }
}

static json_t *model_row(const struct request_model *m)
{
    return json_pack("{s:s, s:s, s:I, s:s, s:I, s:s}", "id", m->name, "object", "model", "created", (json_int_t)m->created_s, "owned_by", "hodgepodge",
                     "max_model_len", (json_int_t)m->context, "state", m->state);
}

void openai_models(const struct requests *r, struct http_exchange *x, const char *name)
{
    struct request_model models[REQUEST_MAX_MODELS], one;
    struct err e = {0};
    if (name) {
        int rc = r->find(r->ctx, name, &one, &e);
        if (rc < 0)
            openai_error(x, http_status_of(rc), e.text, "model", "model_not_found");
        else
            reply_json(x, 200, model_row(&one), 0);
        return;
    }
    json_t *list = json_array();
    int n = r->models(r->ctx, models, REQUEST_MAX_MODELS);
    for (int i = 0; i < n && i < REQUEST_MAX_MODELS; i++)
        if (models[i].serving)
            json_array_append_new(list, model_row(&models[i]));
    reply_json(x, 200, json_pack("{s:s, s:o}", "object", "list", "data", list), 0);
}

/* ---- replies of a completion ------------------------------------------------------------------------------------------------------------ */

static json_t *usage_object(const struct request_usage *u)
{
    return json_pack("{s:I, s:I, s:I}", "prompt_tokens", (json_int_t)u->prompt_tokens, "completion_tokens", (json_int_t)u->output_tokens, "total_tokens",
                     (json_int_t)(u->prompt_tokens + u->output_tokens));
}

static json_t *timings_object(const struct request_usage *u)
{
    return json_pack("{s:f, s:f, s:f}", "waited_s", u->waited_s, "prefill_s", u->prefill_s, "decode_s", u->decode_s);
}

static json_t *envelope(const struct completion *c, const char *object, json_t *choices)
{
    return json_pack("{s:s, s:s, s:I, s:s, s:o}", "id", c->name, "object", object, "created", (json_int_t)c->created, "model", c->model, "choices", choices);
}

static bool write_event(struct completion *c, json_t *value)
{
    char *text = value ? json_dumps(value, JSON_COMPACT) : NULL;
    struct buffer event = {0};
    buffer_printf(&event, "data: %s\n\n", text ? text : "{}");
    bool ok = http_stream_write(c->x, event.data, event.size);
    buffer_free(&event);
    free(text);
    json_decref(value);
    return ok;
}

/* One chunk of a stream: a piece of text, or the end with its reason. */
static bool write_chunk(struct completion *c, const char *text, size_t n, bool with_role, const char *finish)
{
    json_t *choice = json_pack("{s:i}", "index", 0), *delta = json_object();
    if (c->chat) {
        if (with_role)
            json_object_set_new(delta, "role", json_string("assistant"));
        if (text)
            json_object_set_new(delta, "content", json_stringn(text, n));
        json_object_set(choice, "delta", delta);
    } else {
        json_object_set_new(choice, "text", json_stringn(text ? text : "", n));
    }
    json_decref(delta);
    json_object_set_new(choice, "logprobs", json_null());
    json_object_set_new(choice, "finish_reason", finish ? json_string(finish) : json_null());
    json_t *value = envelope(c, c->chat ? "chat.completion.chunk" : "text_completion", json_pack("[o]", choice));
    if (c->include_usage)
        json_object_set_new(value, "usage", json_null());
    return write_event(c, value);
}

static void completion_destroy(struct completion *c)
{
    completion_fini(&c->text);
    free(c->model);
    free(c);
}

static void end_stream(struct completion *c, const char *finish, const struct request_usage *usage)
{
    size_t n;
    const char *text = completion_take(&c->text, &n);
    if (n > 0)
        write_chunk(c, text, n, false, NULL);
    write_chunk(c, NULL, 0, false, finish);
    if (c->include_usage) {
        json_t *value = envelope(c, c->chat ? "chat.completion.chunk" : "text_completion", json_array());
        json_object_set_new(value, "usage", usage_object(usage));
        json_object_set_new(value, "timings", timings_object(usage));
        write_event(c, value);
    }
    http_stream_write(c->x, "data: [DONE]\n\n", 14);
    http_stream_end(c->x);
}

static void whole_reply(struct completion *c, const char *finish, const struct request_usage *usage)
{
    size_t n;
    const char *text = completion_take(&c->text, &n);
    json_t *choice = json_pack("{s:i}", "index", 0);
    if (c->chat)
        json_object_set_new(choice, "message", json_pack("{s:s, s:s%}", "role", "assistant", "content", text, n));
    else
        json_object_set_new(choice, "text", json_stringn(text, n));
    json_object_set_new(choice, "logprobs", json_null());
    json_object_set_new(choice, "finish_reason", json_string(finish));
    json_t *value = envelope(c, c->chat ? "chat.completion" : "text_completion", json_pack("[o]", choice));
    json_object_set_new(value, "usage", usage_object(usage));
    json_object_set_new(value, "timings", timings_object(usage));
    reply_json(c->x, 200, value, 0);
}

static void end_completion(struct completion *c, const char *finish, const struct request_usage *usage)
{
    completion_finish(&c->text);
    if (c->stream)
        end_stream(c, finish, usage);
    else
        whole_reply(c, finish, usage);
    completion_destroy(c);
}

/* ---- what the core tells --------------------------------------------------------------------------------------------------------------------- */

static void on_tokens(void *ctx, uint64_t request, const uint32_t *ids, size_t n)
{
    struct completion *c = ctx;
    struct request_usage usage = {0};
    for (size_t i = 0; i < n && !c->text.stopped; i++)
        completion_push(&c->text, ids[i]);
    if (c->text.stopped) {
        c->requests->cancel(c->requests->ctx, request, true, &usage);
        end_completion(c, "stop", &usage);
        return;
    }
    if (!c->stream)
        return;
    size_t bytes;
    const char *text = completion_take(&c->text, &bytes);
    if (bytes > 0 && !write_chunk(c, text, bytes, false, NULL)) {
        log_warn("gateway", "client_too_slow", "request=%s", c->name);
        c->requests->cancel(c->requests->ctx, request, false, NULL);
        http_stream_end(c->x);
        completion_destroy(c);
    }
}

static void on_finished(void *ctx, uint64_t request, enum request_finish finish, const struct request_usage *usage)
{
    (void)request;
    end_completion(ctx, finish == REQUEST_STOP ? "stop" : "length", usage);
}

static void on_failed(void *ctx, uint64_t request, const struct err *why, const struct request_usage *usage)
{
    struct completion *c = ctx;
    (void)request, (void)usage;
    int status = http_status_of(why->code);
    if (c->stream) {
        /* What was held back is still a prefix of the answer. */
        completion_finish(&c->text);
        size_t n;
        const char *text = completion_take(&c->text, &n);
        if (n > 0)
            write_chunk(c, text, n, false, NULL);
        write_event(c, error_object(why->text, type_of_status(status), NULL, status_word(why->code)));
        http_stream_write(c->x, "data: [DONE]\n\n", 14);
        http_stream_end(c->x);
    } else {
        openai_error(c->x, status, why->text, NULL, status_word(why->code));
    }
    completion_destroy(c);
}

static void on_client_gone(void *ctx)
{
    struct completion *c = ctx;
    c->requests->cancel(c->requests->ctx, c->id, false, NULL);
    completion_destroy(c);
}

/* ---- from body to request ----------------------------------------------------------------------------------------------------------------------- */

static int make_prompt(const struct openai_body *b, struct model *model, const struct tokenizer *t, struct buffer *ids, struct err *e)
{
    if (b->ids) {
        buffer_append(ids, b->ids, b->n_ids * sizeof *b->ids);
        return 0;
    }
    if (!b->chat)
        return tokenizer_encode(t, b->text, strlen(b->text), true, ids, e);
    struct buffer text = {0};
    int rc = model_chat_render(model, b->messages, true, NULL, &text, e);
    if (rc == 0)
        rc = tokenizer_encode(t, buffer_cstr(&text), text.size, false, ids, e);
    buffer_free(&text);
    return rc;
}

static struct completion *completion_create(const struct requests *r, struct http_exchange *x, const struct openai_body *b, const struct tokenizer *t)
{
    struct completion *c = calloc(1, sizeof *c);
    if (!c || !(c->model = strdup(b->model))) {
        free(c);
        return NULL;
    }
    c->requests = r;
    c->x = x;
    c->chat = b->chat;
    c->stream = b->stream;
    c->include_usage = b->stream && b->include_usage;
    c->created = (int64_t)time(NULL);
    snprintf(c->name, sizeof c->name, "%s-%016llx", b->chat ? "chatcmpl" : "cmpl", (unsigned long long)env_random_u64(&env_real));
    completion_init(&c->text, t, true);
    for (int i = 0; i < b->n_stops; i++)
        completion_add_stop(&c->text, b->stops[i]);
    return c;
}

static int start(const struct requests *r, struct http_exchange *x, const struct openai_body *b, const struct request_model *m, struct err *e)
{
    const struct tokenizer *t;
    struct buffer ids = {0};
    struct completion *c = NULL;
    int rc = model_tokenizer(m->model, &t, e);
    if (rc == 0)
        rc = make_prompt(b, m->model, t, &ids, e);
    if (rc == 0 && (ids.failed || !(c = completion_create(r, x, b, t))))
        rc = err_set(e, HP_ENOMEM, "out of memory for a request");
    if (rc == 0) {
        struct request request = {
            .model = b->model,
            .prompt = (const uint32_t *)(const void *)ids.data,
            .n_prompt = ids.size / sizeof(uint32_t),
            .max_tokens = b->max_tokens,
            .sampling = &b->sampling,
            .ignore_end = b->ignore_end,
            .callbacks = {c, on_tokens, on_finished, on_failed},
        };
        rc = r->open(r->ctx, &request, &c->id, e);
    }
    buffer_free(&ids);
    if (rc < 0) {
        if (c)
            completion_destroy(c);
        return rc;
    }
    http_on_gone(x, on_client_gone, c);
    if (c->stream) {
        http_stream_begin(x, "text/event-stream; charset=utf-8");
        if (c->chat)
            write_chunk(c, "", 0, true, NULL);
    }
    return 0;
}

void openai_complete(const struct requests *r, struct http_exchange *x, bool chat, const char *body, size_t n)
{
    struct openai_body *b = NULL;
    struct request_model m;
    struct err e = {0};
    const char *param = NULL;
    int rc = openai_body_parse(body, n, chat, &b, &param, &e);
    if (rc == 0 && (rc = r->find(r->ctx, b->model, &m, &e)) < 0)
        param = "model";
    if (rc < 0) {
        openai_error(x, http_status_of(rc), e.text, param, param && strcmp(param, "model") == 0 && rc == HP_ENOENT ? "model_not_found" : NULL);
    } else if (!m.serving) {
        char text[600];
        snprintf(text, sizeof text, "model \"%s\" does not serve now (%s)%s%s", m.name, m.state, m.state_text && *m.state_text ? ": " : "",
                 m.state_text ? m.state_text : "");
        openai_error(x, 503, text, "model", m.state);
    } else if ((rc = start(r, x, b, &m, &e)) < 0) {
        bool prompt = rc == HP_EINVAL;
        openai_error(x, http_status_of(rc), e.text, prompt ? (chat ? "messages" : "prompt") : NULL, status_word(rc));
    }
    openai_body_destroy(&b);
}
