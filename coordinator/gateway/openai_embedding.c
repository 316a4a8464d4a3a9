/* Embeddings from their body to their answer: POST /v1/embeddings.
 *
 *     parsing    the body becomes inputs, and these tokens (on a worker thread)
 *     open       each input is a request of the core, a few at a time, and gives one row
 *     writing    the rows become JSON (on a worker thread)
 *
 * A client that goes away leaves an orphan while a worker has it, which is freed when it is back.
 */
#include <math.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#include "coordinator/gateway/body_measure.h"
#include "coordinator/gateway/json_write.h"
#include "coordinator/gateway/openai.h"
#include "model/model.h"
#include "model/pooling.h"

enum { MAX_INPUTS = 2048, INPUTS_AT_ONCE = 8 };

struct embedding;

/* One text, or one list of ids. */
struct embedding_input {
    struct embedding *owner;
    struct buffer ids; /* u32 each; freed when they are in the core */
    size_t n_ids;
    float *row; /* [width] */
    bool has_row;
    uint64_t id; /* of the core's request; 0 while there is none */
};

struct embedding {
    struct openai *openai;
    struct http_exchange *x; /* NULL: an orphan */
    struct embedding *next, **link;
    struct piece piece;
    bool working; /* a worker has it */
    char client[REQUEST_CLIENT_BYTES];
    struct buffer raw, reply;
    json_t *root;
    char *name;          /* of the model */
    struct model *model; /* shared */
    bool base64, normalised;
    size_t width;
    uint64_t context;
    struct embedding_input *inputs; /* [n_inputs] */
    size_t n_inputs, n_opened, n_done;
    uint64_t prompt_tokens;
    int rc; /* of the worker's part */
    struct err failure;
    const char *param, *code;
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
    for (size_t i = 0; i < m->n_opened; i++)
        m->inputs[i].id = 0;
}

static void embedding_destroy(struct embedding *m)
{
    embedding_orphan(m);
    for (size_t i = 0; i < m->n_inputs; i++) {
        buffer_free(&m->inputs[i].ids);
        free(m->inputs[i].row);
    }
    free(m->inputs);
    json_decref(m->root);
    buffer_free(&m->raw);
    buffer_free(&m->reply);
    free(m->name);
    model_close(&m->model);
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
    openai_error(m->x, openai_status_of(rc), text, param, code ? code : status_word(rc));
    embedding_leave(m);
}

void openai_embeddings_fail(struct openai *o, const struct err *why)
{
    while (o->embeddings)
        embedding_refuse(o->embeddings, why->code, why->text, NULL, NULL);
}

/* ---- the body: on any thread ---- */

static int field_refuse(struct embedding *m, const char *name, const char *text)
{
    m->param = name;
    return err_set(&m->failure, HP_EINVAL, "%s: %s", name, text);
}

static int ids_take(struct embedding *m, struct embedding_input *in, const json_t *list)
{
    uint32_t vocabulary = (uint32_t)model_config(m->model)->vocabulary;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *v = json_array_get(list, i);
        if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) >= vocabulary)
            return field_refuse(m, "input", "has what is no token id of this model");
        uint32_t id = (uint32_t)json_integer_value(v);
        buffer_append(&in->ids, &id, sizeof id);
    }
    return 0;
}

static int input_take(struct embedding *m, struct embedding_input *in, const json_t *v)
{
    const struct tokenizer *t;
    int rc = model_tokenizer(m->model, &t, &m->failure);
    size_t longest = rc < 0 ? 1 : tokenizer_bytes_per_token(t), n = json_string_length(v);
    if (rc == 0 && json_is_string(v) && n / (longest ? longest : 1) <= m->context)
        rc = tokenizer_encode(t, json_string_value(v), n, true, &in->ids, &m->failure);
    else if (rc == 0 && json_is_array(v))
        rc = ids_take(m, in, v);
    else if (rc == 0 && !json_is_string(v))
        return field_refuse(m, "input", "must be a text, token ids, or a list of these");
    if (rc == 0 && in->ids.failed)
        rc = err_set(&m->failure, HP_ENOMEM, "out of memory for an input");
    in->n_ids = in->ids.size / sizeof(uint32_t);
    bool unread = json_is_string(v) && in->n_ids == 0 && n > 0;
    if (rc == 0 && (unread || in->n_ids > m->context)) {
        m->code = "context_length_exceeded";
        m->param = "input";
        return err_set(&m->failure, HP_EINVAL,
                       "This model's maximum context length is %llu tokens. However, input %zu "
                       "resulted in %zu %s. Please reduce the length of the input.",
                       (unsigned long long)m->context, (size_t)(in - m->inputs),
                       unread ? n : in->n_ids,
                       unread ? "bytes, more than so many tokens can hold" : "tokens");
    }
    return rc == 0 && in->n_ids == 0 ? field_refuse(m, "input", "is empty") : rc;
}

static int inputs_take(struct embedding *m)
{
    const json_t *input = json_object_get(m->root, "input");
    bool one = json_is_string(input) || json_is_integer(json_array_get(input, 0));
    size_t n = one ? 1 : json_array_size(input);
    if (!input || n == 0)
        return field_refuse(m, "input", input ? "is empty" : "is missing");
    if (n > MAX_INPUTS)
        return field_refuse(m, "input", "has more than 2048 texts");
    m->inputs = calloc(n, sizeof *m->inputs);
    if (!m->inputs)
        return err_set(&m->failure, HP_ENOMEM, "out of memory for %zu inputs", n);
    m->n_inputs = n;
    int rc = 0;
    for (size_t i = 0; i < n && rc == 0; i++) {
        m->inputs[i].owner = m;
        m->inputs[i].row = calloc(m->width, sizeof(float));
        rc = m->inputs[i].row ? input_take(m, &m->inputs[i], one ? input : json_array_get(input, i))
                              : err_set(&m->failure, HP_ENOMEM, "out of memory for a row");
        m->prompt_tokens += m->inputs[i].n_ids;
    }
    return rc;
}

/* What the body says beside its inputs. */
static int fields_take(struct embedding *m)
{
    if (!json_is_object(m->root))
        return err_set(&m->failure, HP_EINVAL, "the body is not a JSON object");
    const char *name = json_string_value(json_object_get(m->root, "model"));
    const json_t *form = json_object_get(m->root, "encoding_format");
    const char *word = form && !json_is_null(form) ? json_string_value(form) : "float";
    if (!name)
        return field_refuse(m, "model", "is missing or not a text");
    if (!word || (strcmp(word, "float") != 0 && strcmp(word, "base64") != 0))
        return field_refuse(m, "encoding_format", "must be \"float\" or \"base64\"");
    m->base64 = strcmp(word, "base64") == 0;
    m->name = strdup(name);
    return m->name ? 0 : err_set(&m->failure, HP_ENOMEM, "out of memory for a request");
}

static int dimensions_check(struct embedding *m)
{
    const json_t *v = json_object_get(m->root, "dimensions");
    if (!v || json_is_null(v) ||
        (json_is_integer(v) && json_integer_value(v) == (json_int_t)m->width))
        return 0;
    m->param = "dimensions";
    return err_set(&m->failure, HP_EINVAL,
                   "dimensions: this model's rows have %zu numbers, and cannot be shortened",
                   m->width);
}

/* ---- writing: on any thread ---- */

static void row_write(const struct embedding *m, const struct embedding_input *in,
                      struct buffer *out)
{
    if (m->base64) {
        size_t bytes = m->width * sizeof(float),
               room = sodium_base64_encoded_len(bytes, sodium_base64_VARIANT_ORIGINAL);
        char *text = malloc(room);
        if (!text) {
            out->failed = true;
            return;
        }
        sodium_bin2base64(text, room, (const uint8_t *)in->row, bytes,
                          sodium_base64_VARIANT_ORIGINAL);
        buffer_printf(out, "\"%s\"", text);
        free(text);
        return;
    }
    buffer_append(out, "[", 1);
    for (size_t i = 0; i < m->width; i++)
        buffer_printf(out, i ? ",%.9g" : "%.9g", (double)in->row[i]);
    buffer_append(out, "]", 1);
}

static void write_run(struct piece *p)
{
    struct embedding *m = embedding_of(p);
    struct buffer *out = &m->reply;
    buffer_printf(out, "{\"object\":\"list\",\"data\":[");
    for (size_t i = 0; i < m->n_inputs; i++) {
        if (m->normalised)
            pooling_normalise(m->inputs[i].row, m->width);
        buffer_printf(out, "%s{\"object\":\"embedding\",\"index\":%zu,\"embedding\":", i ? "," : "",
                      i);
        row_write(m, &m->inputs[i], out);
        buffer_append(out, "}", 1);
    }
    buffer_printf(out, "],\"model\":");
    json_write_text(out, m->name);
    buffer_printf(out, ",\"usage\":{\"prompt_tokens\":%llu,\"total_tokens\":%llu}}",
                  (unsigned long long)m->prompt_tokens, (unsigned long long)m->prompt_tokens);
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

static void write_done(struct piece *p, const struct err *why)
{
    struct embedding *m = embedding_of(p);
    if (!embedding_returned(m, why))
        return;
    if (m->reply.failed)
        openai_error(m->x, 503, "no memory for the answer", NULL, status_word(HP_ENOMEM));
    else
        http_reply(m->x, 200, "application/json", m->reply.data, m->reply.size);
    embedding_destroy(m);
}

static void inputs_open(struct embedding *m);

static void on_row(void *ctx, uint64_t request, const float *values, size_t n)
{
    struct embedding_input *in = ctx;
    (void)request;
    in->has_row = n == in->owner->width;
    for (size_t i = 0; i < n && in->has_row; i++) {
        in->row[i] = values[i];
        in->has_row = isfinite(values[i]);
    }
}

static void on_finished(void *ctx, uint64_t request, enum request_finish finish,
                        const struct request_usage *usage)
{
    struct embedding_input *in = ctx;
    struct embedding *m = in->owner;
    (void)request, (void)finish, (void)usage;
    in->id = 0;
    m->n_done++;
    if (!in->has_row)
        embedding_refuse(m, HP_EBUG, "the model made no numbers of this text", "input", NULL);
    else if (m->n_done == m->n_inputs)
        embedding_submit(m, write_run, write_done, m->n_inputs * m->width * sizeof(float));
    else
        inputs_open(m);
}

static void on_failed(void *ctx, uint64_t request, const struct err *why,
                      const struct request_usage *usage)
{
    struct embedding_input *in = ctx;
    (void)request, (void)usage;
    in->id = 0;
    embedding_refuse(in->owner, why->code, why->text, NULL, NULL);
}

/* As many more as may be in the core at once. */
static void inputs_open(struct embedding *m)
{
    const struct requests *r = m->openai->requests;
    struct err e = {0};
    while (m->n_opened < m->n_inputs && m->n_opened - m->n_done < INPUTS_AT_ONCE) {
        struct embedding_input *in = &m->inputs[m->n_opened];
        struct request_spec request = {.model = m->name,
                                       .prompt = (const uint32_t *)(const void *)in->ids.data,
                                       .n_prompt = in->n_ids,
                                       .embed = true,
                                       .client = m->client,
                                       .callbacks = {in, NULL, on_finished, on_failed, on_row}};
        int rc = r->open(r->ctx, &request, &in->id, &e);
        buffer_free(&in->ids);
        if (rc < 0) {
            in->id = 0;
            embedding_refuse(m, rc, e.text, rc == HP_EINVAL ? "input" : NULL,
                             rc == HP_ENOENT ? "model_not_found" : NULL);
            return;
        }
        m->n_opened++;
    }
}

static void encode_run(struct piece *p)
{
    struct embedding *m = embedding_of(p);
    m->rc = dimensions_check(m);
    m->rc = m->rc < 0 ? m->rc : inputs_take(m);
    json_decref(m->root);
    m->root = NULL;
}

static void encode_done(struct piece *p, const struct err *why)
{
    struct embedding *m = embedding_of(p);
    if (!embedding_returned(m, why))
        return;
    if (m->rc < 0)
        embedding_refuse(m, m->rc, m->failure.text, m->param, m->code);
    else
        inputs_open(m);
}

/* The model that the body names, ready to tokenize. */
static int model_take(struct embedding *m, struct err *e)
{
    const struct requests *r = m->openai->requests;
    struct request_model found;
    int rc = r->find(r->ctx, m->name, &found, e);
    m->param = "model";
    m->code = rc == HP_ENOENT ? "model_not_found" : NULL;
    if (rc < 0)
        return rc;
    if (!found.serving)
        return err_set(e, HP_ESTALE, "model \"%s\" does not serve now (%s)", m->name, found.state);
    const struct model_config *c = model_config(found.model);
    if (c->pooling == POOLING_NONE)
        return err_set(e, HP_EINVAL,
                       "\"%s\" is a model that writes text: embeddings are made by encoders (BERT "
                       "and its likes)",
                       m->name);
    m->param = NULL;
    rc = model_text_prepare(found.model, e);
    if (rc < 0)
        return rc;
    m->model = model_share(found.model);
    m->width = (size_t)c->width;
    m->context = found.context;
    m->normalised = !c->unnormalised;
    return 0;
}

static void embedding_parsed(struct embedding *m, size_t bytes)
{
    struct err e = {0};
    int rc = m->rc;
    if (rc < 0) {
        embedding_refuse(m, rc, m->failure.text, m->param, NULL);
        return;
    }
    rc = model_take(m, &e);
    if (rc < 0)
        embedding_refuse(m, rc, e.text, m->param, m->code);
    else
        embedding_submit(m, encode_run, encode_done, bytes);
}

static void parse_run(struct piece *p)
{
    struct embedding *m = embedding_of(p);
    m->rc = body_measure_load(buffer_cstr(&m->raw), m->raw.size, &m->root, &m->failure);
    m->rc = m->rc < 0 ? m->rc : fields_take(m);
    buffer_free(&m->raw);
}

static void parse_done(struct piece *p, const struct err *why)
{
    struct embedding *m = embedding_of(p);
    if (embedding_returned(m, why))
        embedding_parsed(m, p->bytes);
}

void openai_embed(struct openai *o, struct http_exchange *x, const char *client)
{
    struct embedding *m = calloc(1, sizeof *m);
    if (!m) {
        openai_error(x, 503, "out of memory for a request", NULL, status_word(HP_ENOMEM));
        return;
    }
    *m = (struct embedding){.openai = o, .x = x, .next = o->embeddings, .link = &o->embeddings};
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
