/* A completion from its body to the last byte of its answer:
 *
 *     parsing    the body becomes fields (at once when it is small, else on a worker thread)
 *     encoding   the prompt becomes tokens, and what the answer is held to a grammar (on a worker
 *                thread)
 *     open       the core has its choices: tokens come, until each is finished or one has failed
 *
 * A client that goes away during the first two leaves an orphan, which its worker finishes and
 * nobody hears of. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/digest.h"
#include "common/vector.h"
#include "coordinator/gateway/body_fields.h"
#include "coordinator/gateway/openai_completion_int.h"
#include "coordinator/gateway/pool_scores.h"
#include "coordinator/gateway/served_model.h"

/* ---- encoding ---- */

static struct completion *completion_of(struct piece *p)
{
    return (struct completion *)(void *)((char *)p - offsetof(struct completion, piece));
}

static void encode_run(struct piece *p)
{
    struct completion *c = completion_of(p);
    prompt_make(c->body, c->model, c->context, &c->prompt, c->failure);
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

/* What is to be looked for in the answer. */
static int answer_expected(struct completion *c, struct err *e)
{
    const struct openai_body *b = c->body;
    const char *source =
        b->offers_tools ? model_tool_template(c->model) : model_chat_template(c->model);
    /* Where answers are messages on channels, calls or not, they are taken apart. */
    const struct tool_format *f = b->chat && !b->structured ? tool_format_of(source) : NULL;
    static const struct tool_names none = {0};
    bool taken_apart = f && (b->offers_tools || f->syntax == TOOL_CHANNELS);
    struct answer_rules rules = {.format = taken_apart ? f : NULL,
                                 .names = b->offers_tools ? &b->tool_names : &none,
                                 .one_call = b->one_call,
                                 .reasons = b->chat && b->splits_reasoning && !b->structured &&
                                            c->answer.head.dialect->reasoning &&
                                            template_knows_reasoning(source),
                                 .begun = c->prompt.reasons};
    return answer_expect(&c->answer, &rules, e);
}

static void encode_done(struct piece *p, const struct err *why)
{
    struct completion *c = completion_of(p);
    struct err e = {0};
    if (!completion_returned(c, why))
        return;
    if (c->prompt.rc < 0) {
        completion_refuse(c, c->prompt.rc, c->failure->text, c->prompt.param, c->prompt.code);
    } else if (answer_expected(c, &e) < 0) {
        completion_refuse(c, e.code, e.text, NULL, NULL);
    } else {
        free(c->failure);
        c->failure = NULL;
        c->answer.head.prompt_tokens = c->prompt.ids.size / sizeof(uint32_t);
        completion_open(c);
    }
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

/* What would end an answer: its end tokens, and those that the body names. */
static int late_ids_make(struct openai_body *b, const struct tokenizer *t, struct err *e)
{
    int n_ends = 0, most = SAMPLING_MAX_LATE_IDS - OPENAI_MAX_STOP_IDS;
    const uint32_t *ends = tokenizer_end_ids(t, &n_ends);
    n_ends = n_ends < most ? n_ends : most;
    size_t n = (size_t)n_ends + (size_t)b->n_stop_ids;
    if (!b->sampling.min_tokens || !n)
        return 0;
    uint32_t *ids = calloc(n, sizeof *ids);
    if (!ids)
        return err_set(e, HP_ENOMEM, "out of memory for a request");
    for (int i = 0; i < n_ends; i++)
        ids[i] = ends[i];
    for (int i = 0; i < b->n_stop_ids; i++)
        ids[n_ends + i] = b->stop_ids[i];
    b->sampling.late_ids = (struct pack_u32s){ids, n};
    return 0;
}

/* What fills a gap ends where the model begins another file. */
static int infill_ends_add(struct openai_body *b, const struct tokenizer *t, struct err *e)
{
    uint32_t ends[TOKENIZER_MAX_INFILL_ENDS];
    int n = b->fills && !b->ignore_end ? tokenizer_infill_ends(t, ends) : 0;
    for (int i = 0; i < n; i++)
        if (!vector_push(b->stop_ids, b->n_stop_ids, b->room_stop_ids, ends[i]))
            return err_no_memory(e, "a request");
    return 0;
}

/* What an answer needs of the model and the body, on the loop. */
static int completion_prepare(struct completion *c, const struct request_model *m, struct err *e)
{
    const struct tokenizer *t;
    int rc = model_text_prepare(m->model, e);
    rc = rc < 0 ? rc : model_tokenizer(m->model, &t, e);
    if (rc == 0 && c->body->offers_tools && !tool_format_of(model_tool_template(m->model)))
        rc = body_field_refuse(&c->param, "tools", e,
                               "this model's chat template has no calls in a form that this server "
                               "reads (Hermes', LLaMA 3's, Mistral's or gpt-oss')");
    if (rc < 0)
        return rc;
    c->model = model_share(m->model);
    c->context = m->context;
    c->answer.stream = c->body->stream;
    c->answer.head.include_usage = c->body->stream && c->body->include_usage;
    c->answer.head.model = c->body->model;
    c->answer.head.chat = c->body->chat;
    c->answer.head.body = c->body;
    c->answer.head.tells_usage = c->body->tells_usage;
    c->answer.head.tells_timings = c->body->stream && c->body->tells_timings && !c->kept;
    c->answer.n_per_prompt = c->body->n_choices;
    c->answer.n_given = c->body->n_given;
    if ((rc = late_ids_make(c->body, t, e)) < 0 || (rc = infill_ends_add(c->body, t, e)) < 0)
        return rc;
    rc = answer_init(&c->answer, (uint32_t)c->body->n_prompts * c->body->n_choices, c, t,
                     c->body->stops, c->body->n_stops, e);
    for (uint32_t i = 0; rc == 0 && i < c->answer.n_choices; i++)
        c->answer.choices[i].text.least_indent = c->body->least_indent;
    if (rc == 0)
        completion_position_read(c);
    return rc;
}

/* There was no prompt: the model is there, which is all that the answer says. */
static void completion_loaded(struct completion *c)
{
    const struct dialect *d = c->answer.head.dialect;
    const char *reason = c->body->loads == DIALECT_UNLOAD ? "unload" : "load";
    struct answer_scores none = {0};
    struct openai_message empty = {.text = "", .scores = &none};
    struct request_usage nothing = {0};
    struct buffer out = {0};
    c->answer.head.model = c->body->model;
    d->reply_begin(&out, &c->answer.head);
    d->reply_choice(&out, &c->answer.head, 0, &empty, reason);
    d->reply_end(&out, &c->answer.head, reason, &nothing);
    openai_reply_json(c->x, 200, &out);
    completion_destroy(c);
}

/* A model that gives rows writes no answers, and has no template for chats. Pools say how likely a
 * prompt is, and write no answers either. */
static int answer_check(struct completion *c, const struct served_model *found, struct err *e)
{
    const char *name = c->body->model;
    c->param = "model";
    if (found->row.embeds)
        return err_set(e, HP_EINVAL,
                       "\"%s\" makes embeddings and writes no text: POST /v1/embeddings asks it",
                       name);
    c->param = c->body->most_ms ? "t_max_predict_ms" : c->body->least_indent ? "n_indent" : NULL;
    if (c->param && c->kept)
        return err_set(
            e, HP_EINVAL,
            "%s: what is kept under an Idempotency-Key is read again as it was, and does "
            "not end by this; leave one of them out",
            c->param);
    c->param = NULL;
    if (!found->in_pools)
        return 0;
    if (c->body->no_answer && c->body->echo && !c->body->prompt_logprobs && !c->kept)
        return 0;
    c->param = !c->body->no_answer ? "max_tokens" : c->kept ? NULL : "prompt_logprobs";
    return err_set(e, HP_EINVAL,
                   "pools serve \"%s\", and say how likely a prompt is: with \"echo\": true, "
                   "\"max_tokens\": 0 and \"logprobs\" of at most %d, without an "
                   "Idempotency-Key; `hpctl deploy` serves a model that answers",
                   name, POOL_SCORES_TOP);
}

/* By its name, or the only one where the body names none; it names it as it is called here from
 * then on. */
static int model_choose(struct completion *c, struct served_model *found, struct err *e)
{
    *found = (struct served_model){0};
    int rc = *c->body->model ? served_model_find(c->openai, c->client, c->body->model, found, e)
                             : served_model_only(c->openai, c->client, found, e);
    if (rc < 0 || strcmp(found->row.name, c->body->model) == 0)
        return rc;
    char *name = strdup(found->row.name);
    if (!name)
        return err_no_memory(e, "a request");
    free(c->body->model);
    c->body->model = name;
    if (found->in_pools) /* it was the body's */
        found->row.name = name;
    return 0;
}

static void completion_parsed(struct completion *c, size_t bytes)
{
    struct served_model found;
    struct err e = {0};
    int rc = c->parsed;
    if (rc < 0) {
        completion_refuse(c, rc, c->failure->text, c->param, NULL);
        return;
    }
    rc = model_choose(c, &found, &e);
    c->in_pools = found.in_pools;
    const struct request_model m = found.row;
    if (rc < 0) {
        completion_refuse(c, rc, e.text, "model", openai_model_code(rc));
    } else if (!m.serving && !m.waits) {
        c->retry_after_s = m.retry_after_s;
        completion_refuse(c, openai_not_serving(&m, &e), e.text, "model", m.state);
    } else if ((rc = answer_check(c, &found, &e)) < 0) {
        completion_refuse(c, rc, e.text, c->param, NULL);
    } else if (c->body->loads) {
        completion_loaded(c);
    } else if ((rc = openai_body_check(c->body, m.vocabulary, &c->param, &e)) < 0) {
        completion_refuse(c, rc, e.text, c->param, NULL);
    } else if ((rc = completion_prepare(c, &m, &e)) < 0) {
        completion_refuse(c, rc, e.text, c->param, NULL);
    } else {
        /* A grammar takes long to make, whatever its body's size. */
        bool is_large = (c->body->structured || c->body->holds_calls) && bytes < LANES_LARGE_BYTES;
        completion_submit(c, encode_run, encode_done, is_large ? LANES_LARGE_BYTES : bytes);
    }
}

/* ---- parsing ---- */

static void parse_run(struct piece *p)
{
    struct completion *c = completion_of(p);
    c->parsed =
        openai_body_read(buffer_cstr(&c->raw), c->raw.size, c->answer.head.dialect->translate,
                         c->chat, &c->body, &c->param, c->failure);
    c->chat = c->body ? c->body->chat : c->chat;
    if (c->body)
        c->body->fills = c->answer.head.dialect->fills;
    if (c->parsed == 0)
        c->parsed = openai_body_check_told(
            c->body, c->answer.head.dialect->shape == SCORES_OF_LLAMA, &c->param, c->failure);
    if (c->parsed == 0 && c->answer.head.dialect->repeats)
        c->parsed = openai_body_keep_asked(c->body, c->failure);
    if (c->parsed == 0 && c->answer.head.dialect->selects)
        c->parsed = response_fields_read(c->body->root, &c->body->fields, &c->param, c->failure);
    buffer_free(&c->raw);
}

static void parse_done(struct piece *p, const struct err *why)
{
    struct completion *c = completion_of(p);
    if (completion_returned(c, why))
        completion_parsed(c, p->bytes);
}

static void completion_parse(struct completion *c)
{
    size_t bytes = c->raw.size;
    if (bytes >= LANES_LARGE_BYTES) {
        completion_submit(c, parse_run, parse_done, bytes);
    } else {
        parse_run(&c->piece);
        completion_parsed(c, bytes);
    }
}

/* ---- answers that are kept ---- */

struct kept_scope {
    char text[DIGEST_HEX];
};

/* Keys are told apart by API keys, and these by their content: one that is made anew under the name
 * of another finds nothing of its. Who has none shares with all who have none. */
static struct kept_scope scope_of(const struct http_exchange *x, const char *client)
{
    struct kept_scope scope = {""};
    const char *key = http_request_of(x)->bearer;
    if (!key || strncmp(client, "key ", 4) != 0)
        return scope;
    struct digest d = digest_of(key, strlen(key));
    digest_hex(&d, scope.text);
    return scope;
}

/* It reads this stream, from where its reader is. */
static void completion_hold_as(struct completion *c, struct kept_stream *s, bool again)
{
    kept_stream_read(s, c, completion_taken);
    c->kept = s;
    c->again = again;
    snprintf(c->answer.head.id, sizeof c->answer.head.id, "%s", s->id);
    c->answer.head.created_s = s->created_s;
    http_header(c->x, "Stream-Id", s->id);
}

static bool key_is_good(const char *key)
{
    size_t n = strlen(key);
    for (size_t i = 0; i < n; i++)
        if (key[i] < ' ' || key[i] > '~')
            return false;
    return n > 0 && n < KEPT_KEY_BYTES;
}

/* One that asks with a key. False: it has been refused. */
static bool completion_hold(struct completion *c)
{
    const char *key = http_request_of(c->x)->idempotency_key;
    struct kept_stream *s, asked = {.dialect = c->answer.head.dialect,
                                    .chat = c->chat,
                                    .created_s = c->answer.head.created_s,
                                    .body = c->raw};
    struct err e = {0};
    bool found;
    if (!key)
        return true;
    if (!key_is_good(key)) {
        completion_refuse(c, HP_EINVAL, "Idempotency-Key: 1 to 255 printable characters", NULL,
                          "bad_idempotency_key");
        return false;
    }
    snprintf(asked.key, sizeof asked.key, "%s", key);
    snprintf(asked.id, sizeof asked.id, "%s", c->answer.head.id);
    snprintf(asked.scope, sizeof asked.scope, "%s", scope_of(c->x, c->client).text);
    snprintf(asked.client, sizeof asked.client, "%s", c->client);
    int rc = kept_stream_find(c->openai->kept, &asked, &s, &found, &e);
    if (rc < 0) {
        completion_refuse(c, rc, e.text, NULL, rc == HP_EEXIST ? "idempotency_key_reused" : NULL);
        return false;
    }
    completion_hold_as(c, s, found);
    return true;
}

void openai_complete(struct openai *o, struct http_exchange *x, const struct dialect *d, bool chat,
                     const char *client)
{
    struct completion *c = completion_create(o, x, d, chat, client);
    if (!c) {
        openai_error_as(d, x, 503, 1, "out of memory for a request", NULL, status_word(HP_ENOMEM));
        return;
    }
    c->raw = http_take_body(x);
    if (completion_hold(c))
        completion_parse(c);
}

void openai_resume(struct openai *o, struct http_exchange *x, const char *id, const char *client)
{
    struct kept_stream *s = kept_stream_of_id(o->kept, scope_of(x, client).text, id);
    struct completion *c = s ? completion_create(o, x, s->dialect, s->chat, client) : NULL;
    if (!s) {
        openai_error(x, 404,
                     "there is no such answer: only those of requests with an Idempotency-Key are "
                     "kept, for this key's client alone, and for a while",
                     NULL, "stream_not_found");
        return;
    }
    if (c)
        buffer_append(&c->raw, s->body.data, s->body.size);
    if (!c || c->raw.failed) {
        openai_error(x, 503, "out of memory for a request", NULL, status_word(HP_ENOMEM));
        if (c)
            completion_destroy(c);
        return;
    }
    completion_hold_as(c, s, true);
    completion_parse(c);
}
