/* Embeddings from their body to their answer: POST /v1/embeddings.
 *
 *     parsing    the body becomes inputs, and these tokens (on a worker thread)
 *     open       each input is a request of the core, a few at a time, and gives one row; or all
 *                at once of pools, where these serve the model
 *     writing    the rows become JSON (on a worker thread)
 *
 * A client that goes away leaves an orphan while a worker has it, which is freed when it is back.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/env.h"
#include "coordinator/gateway/dialect.h"
#include "coordinator/gateway/embedding_body.h"
#include "coordinator/gateway/embedding_model.h"
#include "coordinator/gateway/openai.h"
#include "coordinator/gateway/patience.h"
#include "coordinator/gateway/pool_text.h"
#include "coordinator/gateway/served_model.h"

enum { INPUTS_AT_ONCE = 8 };

struct embedding;

/* One text of the body, in the core. */
struct embedding_input {
    struct embedding *owner;
    struct embedding_text *text;
    bool has_row;
    uint64_t id;                      /* of the core's request; 0 while there is none */
    struct pool_text_request *pooled; /* that of pools; NULL while there is none */
};

struct embedding {
    struct openai *openai;
    struct http_exchange *x; /* NULL: an orphan */
    struct embedding *next, **link;
    struct piece piece;
    bool working;     /* a worker has it */
    bool in_pools;    /* these serve its model */
    uint64_t came_ns; /* deadlines count from then */
    uint32_t retry_after_s;
    char client[REQUEST_CLIENT_BYTES];
    struct buffer raw, reply;
    struct embedding_body body;
    struct embedding_input *inputs; /* [body.n_texts] */
    size_t n_opened, n_done;
    /* While the core's queue is full and nothing of this request is in it. */
    struct patience patience;
    int rc; /* of the worker's part */
};

static struct embedding *embedding_of(struct piece *p)
{
    return (struct embedding *)(void *)((char *)p - offsetof(struct embedding, piece));
}

/* ---- its life ---- */

static void embedding_orphan(struct embedding *m)
{
    if (!m->x)
        return;
    if (m->next)
        m->next->link = m->link;
    *m->link = m->next;
    m->x = NULL;
}

/* The core hears that nobody waits for what is open. */
static void requests_cancel(struct embedding *m)
{
    const struct requests *r = m->openai->requests;
    for (size_t i = 0; i < m->n_opened; i++)
        if (m->inputs[i].id)
            r->cancel(r->ctx, m->inputs[i].id, false, NULL);
    for (size_t i = 0; i < m->n_opened; i++) {
        m->inputs[i].id = 0;
        pool_text_cancel(&m->inputs[i].pooled);
    }
}

static void embedding_destroy(struct embedding *m)
{
    embedding_orphan(m);
    patience_end(&m->patience);
    lanes_drop_tree(m->piece.lanes, &m->body.root, m->piece.bytes);
    embedding_body_fini(&m->body);
    free(m->inputs);
    buffer_free(&m->raw);
    buffer_free(&m->reply);
    free(m);
}

/* The exchange has its answer, or is gone. */
static void embedding_leave(struct embedding *m)
{
    requests_cancel(m);
    if (m->working)
        embedding_orphan(m);
    else
        embedding_destroy(m);
}

static void on_client_gone(void *ctx)
{
    embedding_leave(ctx);
}

static void embedding_refuse(struct embedding *m, int rc, const char *text, const char *param,
                             const char *code)
{
    const struct dialect *d =
        embedding_speaks_ollama(m->body.form) ? &dialect_ollama_chat : &dialect_openai;
    uint32_t again_s = openai_retry_after_s(m->openai->requests, m->client, m->body.name,
                                            m->retry_after_s ? m->retry_after_s : 1);
    openai_error_as(d, m->x, served_model_status(rc, m->in_pools), again_s, text, param,
                    code ? code : status_word(rc));
    embedding_leave(m);
}

void openai_embeddings_fail(struct openai *o, const struct err *why)
{
    while (o->embeddings)
        embedding_refuse(o->embeddings, why->code, why->text, NULL, NULL);
}

/* ---- on the loop ---- */

static void embedding_submit(struct embedding *m, void (*run)(struct piece *),
                             void (*done)(struct piece *, const struct err *), size_t bytes)
{
    struct err e = {0};
    m->piece = (struct piece){.run = run, .done = done};
    m->working = true;
    int rc = lanes_add(m->openai->lanes, &m->piece, bytes, &e);
    if (rc < 0) {
        m->working = false;
        embedding_refuse(m, rc, e.text, NULL, NULL);
    }
}

/* A piece came back: is there still something to do for it? */
static bool embedding_returned(struct embedding *m, const struct err *why)
{
    m->working = false;
    if (!m->x)
        embedding_destroy(m);
    else if (why)
        embedding_refuse(m, why->code, why->text, NULL, NULL);
    else
        return true;
    return false;
}

static void write_run(struct piece *p)
{
    struct embedding *m = embedding_of(p);
    embedding_body_write(&m->body, &m->reply);
}

static void write_done(struct piece *p, const struct err *why)
{
    struct embedding *m = embedding_of(p);
    if (!embedding_returned(m, why))
        return;
    if (m->reply.failed)
        openai_error(m->x, 503, "no memory for the answer", NULL, status_word(HP_ENOMEM));
    else if (!http_reply_large(m->x, 200, "application/json", &m->reply))
        openai_error(m->x, 503, "too many large answers wait for their clients: try again later",
                     NULL, status_word(HP_EBUSY));
    embedding_destroy(m);
}

static void inputs_open(struct embedding *m);

static void row_take(struct embedding_input *in, const float *values, size_t n)
{
    in->has_row = n == in->owner->body.width;
    for (size_t i = 0; i < n && in->has_row; i++) {
        in->text->row[i] = values[i];
        in->has_row = isfinite(values[i]);
    }
}

static void on_row(void *ctx, uint64_t request, const float *values, size_t n)
{
    (void)request;
    row_take(ctx, values, n);
}

static void input_end(struct embedding_input *in)
{
    struct embedding *m = in->owner;
    m->n_done++;
    if (!in->has_row)
        embedding_refuse(m, HP_EBUG, "the model made no numbers of this text",
                         embedding_body_field(&m->body), NULL);
    else if (m->n_done == m->body.n_texts)
        embedding_submit(m, write_run, write_done, m->body.n_texts * m->body.width * sizeof(float));
    else
        inputs_open(m);
}

static void on_finished(void *ctx, uint64_t request, enum request_finish finish,
                        const struct request_usage *usage)
{
    struct embedding_input *in = ctx;
    (void)request, (void)finish, (void)usage;
    in->id = 0;
    input_end(in);
}

static void on_failed(void *ctx, uint64_t request, const struct err *why,
                      const struct request_usage *usage)
{
    struct embedding_input *in = ctx;
    (void)request, (void)usage;
    in->id = 0;
    embedding_refuse(in->owner, why->code, why->text, NULL, NULL);
}

static void on_pools_answered(void *ctx, const struct ndarray *outputs)
{
    struct embedding_input *in = ctx;
    in->pooled = NULL;
    row_take(in, outputs[0].data, (size_t)outputs[0].count);
    input_end(in);
}

static void on_pools_failed(void *ctx, const struct err *why)
{
    struct embedding_input *in = ctx;
    in->pooled = NULL;
    embedding_refuse(in->owner, why->code, why->text, NULL, NULL);
}

static void on_again(void *ctx)
{
    inputs_open(ctx);
}

/* The core's queue is full, and what it had of this request is done: it is asked again after a
 * while. False: not so, or no longer. */
static bool embedding_waits(struct embedding *m, int rc)
{
    if ((rc != HP_EBUSY && rc != HP_ERATE) || m->n_opened == 0 || m->in_pools)
        return false;
    if (m->n_opened > m->n_done)
        return true; /* whatever ends next asks again */
    return patience_wait(&m->patience, m->openai->loop, on_again, m);
}

static int pools_open(struct embedding_input *in, struct err *e)
{
    struct embedding *m = in->owner;
    const struct pool_text_ask ask = {.client = m->client,
                                      .name = m->body.name,
                                      .model = m->body.model,
                                      .ids = (const uint32_t *)(const void *)in->text->ids.data,
                                      .n = in->text->n_ids,
                                      .waited_ns = env_now_ns(&env_real) - m->came_ns,
                                      .ctx = in,
                                      .answered = on_pools_answered,
                                      .failed = on_pools_failed};
    return pool_text_open(m->openai->pools, &ask, &in->pooled, &m->retry_after_s, e);
}

static int core_open(struct embedding_input *in, struct err *e)
{
    struct embedding *m = in->owner;
    const struct requests *r = m->openai->requests;
    struct request_model now;
    struct request_spec request = {
        .model = m->body.name,
        .prompt = (const uint32_t *)(const void *)in->text->ids.data,
        .n_prompt = in->text->n_ids,
        .embed = true,
        .client = m->client,
        .number = http_request_number(m->x),
        .callbacks = {.ctx = in, .finished = on_finished, .failed = on_failed, .row = on_row}};
    int rc = r->find(r->ctx, m->client, m->body.name, &now, e);
    if (rc == 0 && now.serving && now.model != m->body.model)
        rc = err_set(e, HP_ESTALE, "\"%s\" was deployed anew in this moment: try again",
                     m->body.name);
    rc = rc < 0 ? rc : r->open(r->ctx, &request, &in->id, e);
    if (rc < 0)
        in->id = 0;
    return rc;
}

static int input_open(struct embedding_input *in, struct err *e)
{
    struct embedding *m = in->owner;
    int rc = m->in_pools ? pools_open(in, e) : core_open(in, e);
    if (rc < 0)
        return rc;
    buffer_free(&in->text->ids);
    m->n_opened++;
    patience_renew(&m->patience);
    return 0;
}

/* As many more as may be in the core at once. */
static void inputs_open(struct embedding *m)
{
    struct err e = {0};
    int rc = 0;
    size_t most = m->in_pools ? m->body.n_texts : INPUTS_AT_ONCE;
    while (rc == 0 && m->n_opened < m->body.n_texts && m->n_opened - m->n_done < most)
        rc = input_open(&m->inputs[m->n_opened], &e);
    if (rc < 0 && !embedding_waits(m, rc))
        embedding_refuse(m, rc, e.text, rc == HP_EINVAL ? embedding_body_field(&m->body) : NULL,
                         openai_model_code(rc));
}

static void encode_run(struct piece *p)
{
    struct embedding *m = embedding_of(p);
    m->rc = embedding_body_encode(&m->body);
}

static void encode_done(struct piece *p, const struct err *why)
{
    struct embedding *m = embedding_of(p);
    if (!embedding_returned(m, why))
        return;
    if (m->rc < 0) {
        embedding_refuse(m, m->rc, m->body.failure.text, m->body.param, m->body.code);
        return;
    }
    m->inputs = calloc(m->body.n_texts, sizeof *m->inputs);
    if (!m->inputs) {
        embedding_refuse(m, HP_ENOMEM, "out of memory for a request", NULL, NULL);
        return;
    }
    for (size_t i = 0; i < m->body.n_texts; i++)
        m->inputs[i] = (struct embedding_input){.owner = m, .text = &m->body.texts[i]};
    inputs_open(m);
}

static void embedding_parsed(struct embedding *m, size_t bytes)
{
    struct err e = {0};
    int rc = m->rc;
    if (rc < 0) {
        embedding_refuse(m, rc, m->body.failure.text, m->body.param, NULL);
        return;
    }
    rc = embedding_model_take(m->openai, m->client, &m->body, &m->in_pools, &e);
    if (rc < 0)
        embedding_refuse(m, rc, e.text, m->body.param, m->body.code);
    else
        embedding_submit(m, encode_run, encode_done, bytes);
}

static void parse_run(struct piece *p)
{
    struct embedding *m = embedding_of(p);
    m->rc = embedding_body_parse(&m->body, buffer_cstr(&m->raw), m->raw.size);
    buffer_free(&m->raw);
}

static void parse_done(struct piece *p, const struct err *why)
{
    struct embedding *m = embedding_of(p);
    if (embedding_returned(m, why))
        embedding_parsed(m, p->bytes);
}

void openai_embed(struct openai *o, struct http_exchange *x, enum embedding_form form,
                  const char *client)
{
    struct embedding *m = calloc(1, sizeof *m);
    if (!m) {
        openai_error(x, 503, "out of memory for a request", NULL, status_word(HP_ENOMEM));
        return;
    }
    *m = (struct embedding){.openai = o, .x = x, .next = o->embeddings, .link = &o->embeddings};
    m->body.form = form;
    m->came_ns = env_now_ns(&env_real);
    strncpy(m->client, client, sizeof m->client - 1);
    if (m->next)
        m->next->link = &m->next;
    o->embeddings = m;
    http_on_gone(x, on_client_gone, m);
    m->raw = http_take_body(x);
    size_t bytes = m->raw.size;
    if (bytes >= LANES_LARGE_BYTES) {
        embedding_submit(m, parse_run, parse_done, bytes);
    } else {
        parse_run(&m->piece);
        embedding_parsed(m, bytes);
    }
}
