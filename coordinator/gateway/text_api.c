/* Texts, tokens and templates. The fields are vLLM's and llama-server's, whose clients differ in
 * the names: "prompt" and "content" are one, and replies have both. A body without "model" means
 * the only deployment there is.
 *
 *     parsing   the body becomes fields (at once when it is small, else on a worker thread)
 *     working   the reply is made (on a worker thread)
 *
 * A client that goes away meanwhile leaves an orphan, which its worker finishes. What the body says
 * is read in text_body.c, the reply made in text_work.c. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "coordinator/gateway/dialect.h"
#include "coordinator/gateway/json_write.h"
#include "coordinator/gateway/llama_settings.h"
#include "coordinator/gateway/served_model.h"
#include "coordinator/gateway/text_api_int.h"

static struct text_call *call_of(struct piece *p)
{
    return (struct text_call *)(void *)((char *)p - offsetof(struct text_call, piece));
}

/* ---- its life ---- */

static void call_destroy(struct text_call *c)
{
    if (c->body)
        lanes_drop_tree(c->piece.lanes, &c->body->root, c->piece.bytes);
    openai_body_destroy(&c->body);
    buffer_free(&c->raw);
    buffer_free(&c->reply);
    model_close(&c->model);
    free(c->ids);
    free(c);
}

static void on_client_gone(void *ctx)
{
    struct text_call *c = ctx;
    c->x = NULL;
    if (!c->working)
        call_destroy(c);
}

static const struct dialect *dialect_of(const struct text_call *c)
{
    return c->task == TEXT_COUNT   ? &dialect_messages
           : text_speaks_ollama(c) ? &dialect_ollama_chat
                                   : &dialect_openai;
}

static void call_refuse(struct text_call *c, int rc, const struct err *why)
{
    openai_error_as(dialect_of(c), c->x, openai_status_of(rc), 1, why->text, c->param,
                    c->code ? c->code : status_word(rc));
    call_destroy(c);
}

static void call_submit(struct text_call *c, void (*run)(struct piece *),
                        void (*done)(struct piece *, const struct err *), size_t bytes)
{
    struct err e = {0};
    c->piece = (struct piece){.run = run, .done = done};
    c->working = true;
    int rc = lanes_add(c->openai->lanes, &c->piece, bytes, &e);
    c->working = rc == 0;
    if (rc < 0)
        call_refuse(c, rc, &e);
}

/* A piece came back: is there still something to do for it? */
static bool call_returned(struct text_call *c, const struct err *why)
{
    c->working = false;
    if (!c->x)
        call_destroy(c);
    else if (why)
        call_refuse(c, why->code, why);
    else
        return true;
    return false;
}

/* ---- working ---- */

static void work_run(struct piece *piece)
{
    struct text_call *c = call_of(piece);
    c->rc = text_work_do(c);
}

static void work_done(struct piece *piece, const struct err *why)
{
    struct text_call *c = call_of(piece);
    if (!call_returned(c, why))
        return;
    if (c->rc < 0) {
        call_refuse(c, c->rc, &c->failure);
        return;
    }
    if (!http_reply_large(c->x, 200, "application/json", &c->reply))
        openai_error(c->x, 503, "too many large answers wait for their clients: try again later",
                     NULL, status_word(HP_EBUSY));
    call_destroy(c);
}

/* ---- which model ---- */

/* The model of that name, or the only one. `code` is there on failure, or NULL. */
static int model_pick(const struct openai *o, const char *client, const char *name,
                      struct served_model *out, const char **code, struct err *e)
{
    int rc =
        name ? served_model_find(o, client, name, out, e) : served_model_only(o, client, out, e);
    *code = name && rc < 0 ? openai_model_code(rc) : NULL;
    if (rc < 0)
        return rc;
    return out->row.serving || out->row.waits ? 0 : openai_not_serving(&out->row, e);
}

/* ---- parsing ---- */

static void parse_run(struct piece *p)
{
    struct text_call *c = call_of(p);
    c->rc = text_body_read(c, &c->failure);
    buffer_free(&c->raw);
}

static int model_take(struct text_call *c, struct err *e)
{
    struct served_model found;
    int rc = model_pick(c->openai, c->client, c->body->model, &found, &c->code, e);
    const struct request_model m = found.row;
    c->param = rc < 0 ? "model" : NULL;
    if (rc == 0 && !c->body->model && !(c->body->model = strdup(m.name)))
        rc = err_set(e, HP_ENOMEM, "out of memory for a request");
    rc = rc < 0 ? rc : model_text_prepare(m.model, e);
    if (rc < 0)
        return rc;
    c->model = model_share(m.model);
    c->context = m.context;
    c->vocabulary = m.vocabulary;
    c->embeds = m.embeds;
    return 0;
}

static void call_parsed(struct text_call *c, size_t bytes)
{
    struct err e = {0};
    int rc = c->rc;
    if (rc < 0)
        e = c->failure;
    else
        rc = model_take(c, &e);
    if (rc < 0)
        call_refuse(c, rc, &e);
    else
        call_submit(c, work_run, work_done, bytes);
}

static void parse_done(struct piece *p, const struct err *why)
{
    struct text_call *c = call_of(p);
    if (call_returned(c, why))
        call_parsed(c, p->bytes);
}

void text_api_post(struct openai *o, struct http_exchange *x, enum text_task task,
                   const char *client)
{
    struct text_call *c = calloc(1, sizeof *c);
    if (!c) {
        openai_error(x, 503, "out of memory for a request", NULL, status_word(HP_ENOMEM));
        return;
    }
    *c = (struct text_call){.openai = o, .x = x, .task = task};
    snprintf(c->client, sizeof c->client, "%s", client);
    http_on_gone(x, on_client_gone, c);
    c->raw = http_take_body(x);
    size_t bytes = c->raw.size;
    if (bytes >= LANES_LARGE_BYTES) {
        call_submit(c, parse_run, parse_done, bytes);
    } else {
        parse_run(&c->piece);
        call_parsed(c, bytes);
    }
}

/* ---- GET /props and /tokenizer_info ---- */

typedef void (*model_write_fn)(struct buffer *out, const struct request_model *m,
                               const struct tokenizer *t);

static void props_write(struct buffer *out, const struct request_model *m,
                        const struct tokenizer *t)
{
    buffer_printf(out,
                  "{\"default_generation_settings\":{\"id\":0,\"id_task\":-1,\"n_ctx\":%llu,"
                  "\"speculative\":false,\"is_processing\":false,\"params\":",
                  (unsigned long long)m->context);
    llama_settings_write(NULL, out);
    buffer_printf(out, "},\"total_slots\":%u,\"model_alias\":", m->slots);
    json_write_text(out, m->name);
    buffer_printf(out, ",\"model_path\":");
    json_write_text(out, m->name);
    buffer_printf(out, ",\"modalities\":{\"vision\":false,\"audio\":false},"
                       "\"endpoint_slots\":true,\"endpoint_props\":false,"
                       "\"endpoint_metrics\":true,\"is_sleeping\":false");
    buffer_printf(out, ",\"chat_template\":");
    json_write_text(out, model_chat_template(m->model));
    buffer_printf(out, ",\"bos_token\":");
    json_write_text(out, tokenizer_bos_text(t));
    buffer_printf(out, ",\"eos_token\":");
    json_write_text(out, tokenizer_eos_text(t));
    buffer_printf(out, ",\"vocabulary\":%u,\"build_info\":\"hodgepodge %s\"}", m->vocabulary,
                  HP_VERSION);
}

static void text_or_null(struct buffer *out, const char *text)
{
    if (text && *text)
        json_write_text(out, text);
    else
        buffer_printf(out, "null");
}

/* As vLLM tells it of a tokenizer's configuration: lm-eval takes texts apart by it. */
static void tokenizer_info_write(struct buffer *out, const struct request_model *m,
                                 const struct tokenizer *t)
{
    const struct {
        const char *key, *text;
    } rows[] = {{"bos_token", tokenizer_bos_text(t)},
                {"eos_token", tokenizer_eos_text(t)},
                {"pad_token", tokenizer_pad_text(t)},
                {"unk_token", tokenizer_unknown_text(t)},
                {"chat_template", model_chat_template(m->model)}};
    buffer_printf(out, "{");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        buffer_printf(out, "\"%s\":", rows[i].key);
        text_or_null(out, rows[i].text);
        buffer_printf(out, ",");
    }
    buffer_printf(out, "\"model_max_length\":%llu,\"vocab_size\":%u}",
                  (unsigned long long)m->context, m->vocabulary);
}

static void model_tell(const struct openai *o, struct http_exchange *x, const char *client,
                       const char *name, model_write_fn write)
{
    struct served_model found = {0};
    const struct tokenizer *t;
    struct err e = {0};
    struct buffer out = {0};
    const char *code;
    int rc = model_pick(o, client, name, &found, &code, &e);
    rc = rc < 0 ? rc : model_tokenizer(found.row.model, &t, &e);
    if (rc < 0) {
        openai_error(x, openai_status_of(rc), e.text, "model", code ? code : status_word(rc));
        return;
    }
    write(&out, &found.row, t);
    openai_reply_json(x, 200, &out);
}

void text_api_props(const struct openai *o, struct http_exchange *x, const char *client,
                    const char *name)
{
    model_tell(o, x, client, name, props_write);
}

void text_api_tokenizer_info(const struct openai *o, struct http_exchange *x, const char *client,
                             const char *name)
{
    model_tell(o, x, client, name, tokenizer_info_write);
}
