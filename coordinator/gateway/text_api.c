/* Texts, tokens and templates. The fields are vLLM's and llama-server's, whose clients differ in
 * the names: "prompt" and "content" are one, and replies have both. A body without "model" means
 * the only deployment there is.
 *
 *     parsing   the body becomes fields (at once when it is small, else on a worker thread)
 *     working   the reply is made (on a worker thread)
 *
 * A client that goes away meanwhile leaves an orphan, which its worker finishes. */
#include "coordinator/gateway/text_api.h"

#include <stdlib.h>
#include <string.h>

#include "coordinator/gateway/body_fields.h"
#include "coordinator/gateway/body_measure.h"
#include "coordinator/gateway/dialect.h"
#include "coordinator/gateway/json_write.h"
#include "coordinator/gateway/openai_prompts.h"
#include "coordinator/gateway/prompt.h"
#include "coordinator/gateway/tool_format.h"

enum {
    MAX_TEXT_IDS = 1 << 22,
    MAX_TEXT_BYTES = 8 << 20, /* that ids make: a few of them may stand for much */
};

struct text_call {
    struct openai *openai;
    struct http_exchange *x; /* NULL: an orphan */
    struct piece piece;
    bool working;
    enum text_task task;
    struct buffer raw, reply;
    struct openai_body *body;
    bool with_pieces; /* each token's text, too */
    bool empty;       /* the text is: it has no tokens */
    bool embeds;      /* the model makes rows */
    uint32_t *ids;    /* [n_ids]: of TEXT_DETOKENIZE */
    size_t n_ids;
    struct model *model; /* shared */
    uint64_t context;
    uint32_t vocabulary;
    int rc;
    const char *param, *code;
    struct err failure;
};

static struct text_call *call_of(struct piece *p)
{
    return (struct text_call *)(void *)((char *)p - offsetof(struct text_call, piece));
}

/* ---- its life ---- */

static void call_destroy(struct text_call *c)
{
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

static bool call_speaks_ollama(const struct text_call *c)
{
    return c->task == TEXT_SHOW || c->task == TEXT_PULL;
}

static const struct dialect *dialect_of(const struct text_call *c)
{
    return c->task == TEXT_COUNT   ? &dialect_messages
           : call_speaks_ollama(c) ? &dialect_ollama_chat
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

static void ids_write(struct buffer *out, const uint32_t *ids, size_t n)
{
    for (size_t i = 0; i < n; i++)
        buffer_printf(out, "%s%u", i ? "," : "", ids[i]);
}

static void pieces_write(struct buffer *out, const struct tokenizer *t, const uint32_t *ids,
                         size_t n)
{
    struct err e = {0};
    for (size_t i = 0; i < n; i++) {
        struct buffer text = {0};
        if (tokenizer_decode(t, ids + i, 1, &text, &e) < 0 || text.failed)
            out->failed = true;
        buffer_printf(out, "%s", i ? "," : "");
        json_write_string(out, buffer_cstr(&text), text.size);
        buffer_free(&text);
    }
}

static void tokens_write(struct text_call *c, const struct tokenizer *t, const struct prompt *p)
{
    const uint32_t *ids = (const uint32_t *)(const void *)p->ids.data;
    size_t n = p->ids.size / sizeof *ids;
    if (c->task == TEXT_COUNT) {
        buffer_printf(&c->reply, "{\"input_tokens\":%zu}", n);
        return;
    }
    buffer_printf(&c->reply, "{\"count\":%zu,\"max_model_len\":%llu,\"tokens\":[", n,
                  (unsigned long long)c->context);
    ids_write(&c->reply, ids, n);
    buffer_printf(&c->reply, "],\"token_strs\":%s", c->with_pieces ? "[" : "null}");
    if (c->with_pieces) {
        pieces_write(&c->reply, t, ids, n);
        buffer_printf(&c->reply, "]}");
    }
}

/* Texts beyond the context are counted too, up to what a body may hold. */
static int text_tokenize(struct text_call *c, const struct tokenizer *t)
{
    struct prompt p = {0};
    if (!c->empty)
        prompt_make(c->body, c->model, UINT32_MAX, &p);
    if (p.rc == 0)
        tokens_write(c, t, &p);
    c->failure = p.failure;
    c->param = p.param;
    c->code = p.code;
    prompt_free(&p);
    return p.rc;
}

static void text_write(struct text_call *c, const struct buffer *text, bool twice)
{
    const char *bytes = text->data ? (const char *)text->data : "";
    buffer_printf(&c->reply, "{\"prompt\":");
    json_write_string(&c->reply, bytes, text->size);
    if (twice) {
        buffer_printf(&c->reply, ",\"content\":");
        json_write_string(&c->reply, bytes, text->size);
    }
    buffer_printf(&c->reply, "}");
    c->reply.failed |= text->failed;
}

static int text_detokenize(struct text_call *c, const struct tokenizer *t, struct buffer *text)
{
    struct token_stream s;
    for (size_t i = 0; i < c->n_ids; i++)
        if (c->ids[i] >= c->vocabulary) {
            c->param = "tokens";
            return err_set(&c->failure, HP_EINVAL, "tokens: %u is beyond the vocabulary of %u",
                           c->ids[i], c->vocabulary);
        }
    token_stream_init(&s, t, false);
    for (size_t i = 0; i < c->n_ids && text->size <= MAX_TEXT_BYTES; i++)
        token_stream_push(&s, c->ids[i], text);
    token_stream_finish(&s, text);
    if (text->size > MAX_TEXT_BYTES)
        return body_field_refuse(&c->param, "tokens", &c->failure, "make more than 8 MiB of text");
    text_write(c, text, true);
    return 0;
}

/* What Ollama's clients look for: the template, what the model can do and how long its context is.
 */
static void show_write(struct text_call *c)
{
    buffer_printf(&c->reply, "{\"modelfile\":\"\",\"parameters\":\"\",\"template\":");
    json_write_text(&c->reply, model_chat_template(c->model));
    buffer_printf(
        &c->reply,
        ",\"details\":{\"parent_model\":\"\",\"format\":\"\",\"family\":\"\",\"families\":"
        "null,\"parameter_size\":\"\",\"quantization_level\":\"\"},\"model_info\":{"
        "\"hodgepodge.context_length\":%llu,\"hodgepodge.vocab_size\":%u},"
        "\"capabilities\":[\"%s\"%s%s]}",
        (unsigned long long)c->context, c->vocabulary, c->embeds ? "embedding" : "completion",
        tool_format_of(model_tool_template(c->model)) ? ",\"tools\"" : "",
        template_knows_reasoning(model_chat_template(c->model)) ? ",\"thinking\"" : "");
}

static void work_run(struct piece *piece)
{
    struct text_call *c = call_of(piece);
    const struct tokenizer *t;
    struct buffer text = {0};
    c->rc = model_tokenizer(c->model, &t, &c->failure);
    if (c->rc == 0 && (c->task == TEXT_TOKENIZE || c->task == TEXT_COUNT)) {
        c->rc = text_tokenize(c, t);
    } else if (c->rc == 0 && c->task == TEXT_SHOW) {
        show_write(c);
    } else if (c->rc == 0 && c->task == TEXT_PULL) {
        buffer_printf(&c->reply, "{\"status\":\"success\"}\n");
    } else if (c->rc == 0 && c->task == TEXT_DETOKENIZE) {
        c->rc = text_detokenize(c, t, &text);
    } else if (c->rc == 0) {
        c->rc = prompt_render(c->body, c->model, &text, &c->failure);
        text_write(c, &text, false);
    }
    if (c->rc == 0 && c->reply.failed)
        c->rc = err_set(&c->failure, HP_ENOMEM, "no memory for the answer");
    buffer_free(&text);
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

/* ---- parsing ---- */

/* The deployment of that name, or the only one. */
static int model_pick(const struct requests *r, const char *name, struct request_model *out,
                      const char **code, struct err *e)
{
    if (!name) {
        struct request_model first[2];
        int n = r->models(r->ctx, first, 2);
        if (n != 1)
            return err_set(e, n ? HP_EINVAL : HP_ENOENT,
                           n ? "model: there are several deployments: say which one"
                             : "model: nothing is deployed here");
        *out = first[0];
    } else if (r->find(r->ctx, name, out, e) < 0) {
        *code = e->code == HP_ENOENT ? "model_not_found" : NULL;
        return e->code;
    }
    return out->serving || out->waits ? 0 : openai_not_serving(out, e);
}

static int read_ids(struct text_call *c, struct err *e)
{
    const json_t *list = json_object_get(c->body->root, "tokens");
    size_t n = json_array_size(list);
    if (!json_is_array(list) || n > MAX_TEXT_IDS)
        return body_field_refuse(&c->param, "tokens", e, "must be a list of token ids");
    c->ids = calloc(n + 1, sizeof *c->ids);
    if (!c->ids)
        return err_set(e, HP_ENOMEM, "out of memory for a request");
    for (size_t i = 0; i < n; i++) {
        const json_t *v = json_array_get(list, i);
        if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) > UINT32_MAX)
            return body_field_refuse(&c->param, "tokens", e, "must be a list of token ids");
        c->ids[c->n_ids++] = (uint32_t)json_integer_value(v);
    }
    return 0;
}

/* vLLM adds the tokenizer's own tokens unless it is told not to, llama-server the other way round:
 * each with a field of its own. */
static int read_tokenize(struct text_call *c, struct err *e)
{
    struct openai_body *b = c->body;
    json_t *content = json_object_get(b->root, "content");
    const char *adds = content ? "add_special" : "add_special_tokens";
    bool asked, strings;
    int rc = 0;
    if (content && !json_object_get(b->root, "prompt") &&
        json_object_set(b->root, "prompt", content) < 0)
        return err_set(e, HP_ENOMEM, "out of memory for a request");
    if ((rc = body_field_flag(b->root, adds, &asked, &c->param, e)) < 0 ||
        (rc = body_field_flag(b->root, "return_token_strs", &strings, &c->param, e)) < 0 ||
        (rc = body_field_flag(b->root, "with_pieces", &c->with_pieces, &c->param, e)) < 0)
        return rc;
    c->with_pieces |= strings;
    const json_t *said = json_object_get(b->root, adds);
    b->bare = content ? !asked : said && !json_is_null(said) && !asked;
    b->chat = json_object_get(b->root, "messages") != NULL;
    const json_t *text = json_object_get(b->root, "prompt");
    c->empty = !b->chat && json_is_string(text) && !json_string_length(text);
    if (c->empty)
        return 0;
    rc = openai_prompts_read(b, &c->param, e);
    return rc == 0 && b->n_prompts > 1
               ? body_field_refuse(&c->param, "prompt", e, "is one text here, not several")
               : rc;
}

static int call_read(struct text_call *c, struct err *e)
{
    struct openai_body *b = c->body = calloc(1, sizeof *b);
    if (!b)
        return err_set(e, HP_ENOMEM, "out of memory for a request");
    int rc = body_measure_load(buffer_cstr(&c->raw), c->raw.size, &b->root, e);
    if (rc < 0)
        return rc;
    if (!json_is_object(b->root))
        return err_set(e, HP_EINVAL, "the body is not a JSON object");
    bool chat = true;
    if (c->task == TEXT_COUNT &&
        (rc = dialect_messages.translate(&b->root, &chat, &c->param, e)) < 0)
        return rc;
    if (call_speaks_ollama(c) && ollama_name_read(b->root) < 0)
        return err_set(e, HP_ENOMEM, "out of memory for a request");
    const json_t *model = json_object_get(b->root, "model");
    if (model && !json_is_null(model) && !json_is_string(model))
        return body_field_refuse(&c->param, "model", e, "is not a text");
    if (json_is_string(model) && !(b->model = strdup(json_string_value(model))))
        return err_set(e, HP_ENOMEM, "out of memory for a request");
    b->chat = c->task == TEXT_TEMPLATE || c->task == TEXT_COUNT;
    return call_speaks_ollama(c)        ? 0
           : c->task == TEXT_DETOKENIZE ? read_ids(c, e)
           : c->task == TEXT_TOKENIZE   ? read_tokenize(c, e)
                                        : openai_prompts_read(b, &c->param, e);
}

static void parse_run(struct piece *p)
{
    struct text_call *c = call_of(p);
    c->rc = call_read(c, &c->failure);
    buffer_free(&c->raw);
}

static int model_take(struct text_call *c, struct err *e)
{
    struct request_model m;
    int rc = model_pick(c->openai->requests, c->body->model, &m, &c->code, e);
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

void text_api_post(struct openai *o, struct http_exchange *x, enum text_task task)
{
    struct text_call *c = calloc(1, sizeof *c);
    if (!c) {
        openai_error(x, 503, "out of memory for a request", NULL, status_word(HP_ENOMEM));
        return;
    }
    *c = (struct text_call){.openai = o, .x = x, .task = task};
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

/* ---- GET /props ---- */

static int props_write(struct buffer *out, const struct request_model *m, struct err *e)
{
    const struct tokenizer *t;
    int rc = model_tokenizer(m->model, &t, e);
    if (rc < 0)
        return rc;
    buffer_printf(out, "{\"default_generation_settings\":{\"n_ctx\":%llu},\"model_alias\":",
                  (unsigned long long)m->context);
    json_write_text(out, m->name);
    buffer_printf(out, ",\"chat_template\":");
    json_write_text(out, model_chat_template(m->model));
    buffer_printf(out, ",\"bos_token\":");
    json_write_text(out, tokenizer_bos_text(t));
    buffer_printf(out, ",\"eos_token\":");
    json_write_text(out, tokenizer_eos_text(t));
    buffer_printf(out, ",\"vocabulary\":%u,\"build_info\":\"hodgepodge %s\"}", m->vocabulary,
                  HP_VERSION);
    return out->failed ? err_set(e, HP_ENOMEM, "no memory for the answer") : 0;
}

void text_api_props(const struct requests *r, struct http_exchange *x, const char *name)
{
    struct request_model m;
    struct err e = {0};
    struct buffer out = {0};
    const char *code = NULL;
    int rc = model_pick(r, name, &m, &code, &e);
    rc = rc < 0 ? rc : props_write(&out, &m, &e);
    if (rc < 0)
        openai_error(x, openai_status_of(rc), e.text, "model", code ? code : status_word(rc));
    else
        http_reply(x, 200, "application/json", out.data, out.size);
    buffer_free(&out);
}
