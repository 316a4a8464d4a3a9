/* Replies about texts, tokens and templates. */
#include "common/utf8.h"
#include "coordinator/gateway/body_fields.h"
#include "coordinator/gateway/json_write.h"
#include "coordinator/gateway/ollama_model.h"
#include "coordinator/gateway/prompt.h"
#include "coordinator/gateway/text_api_int.h"
#include "coordinator/gateway/tool_format.h"

enum { MAX_TEXT_BYTES = 8 << 20 }; /* that ids make: a few of them may stand for much */

static void ids_write(struct buffer *out, const uint32_t *ids, size_t n)
{
    for (size_t i = 0; i < n; i++)
        buffer_printf(out, "%s%u", i ? "," : "", ids[i]);
}

static void strings_write(struct buffer *out, const struct tokenizer *t, const uint32_t *ids,
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

/* For llama-server's clients what is no text by itself (a part of a letter) is a list of bytes. */
static void piece_write(struct buffer *out, const struct tokenizer *t, uint32_t id)
{
    size_t n = 0;
    const char *bytes = tokenizer_token_bytes(t, id, &n);
    if (bytes && utf8_valid_prefix(bytes, n) < n) {
        for (size_t i = 0; i < n; i++)
            buffer_printf(out, "%s%u", i ? "," : "[", (unsigned char)bytes[i]);
        buffer_printf(out, "]");
    } else {
        json_write_string(out, bytes ? bytes : "", bytes ? n : 0);
    }
}

static void pieces_write(struct buffer *out, const struct tokenizer *t, const uint32_t *ids,
                         size_t n)
{
    for (size_t i = 0; i < n; i++) {
        buffer_printf(out, "%s{\"id\":%u,\"piece\":", i ? "," : "", ids[i]);
        piece_write(out, t, ids[i]);
        buffer_printf(out, "}");
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
    if (c->with_pieces)
        pieces_write(&c->reply, t, ids, n);
    else
        ids_write(&c->reply, ids, n);
    buffer_printf(&c->reply, "],\"token_strs\":%s", c->with_strings ? "[" : "null}");
    if (c->with_strings) {
        strings_write(&c->reply, t, ids, n);
        buffer_printf(&c->reply, "]}");
    }
}

/* Texts beyond the context are counted too, up to what a body may hold. */
static int text_tokenize(struct text_call *c, const struct tokenizer *t)
{
    struct prompt p = {0};
    if (!c->empty)
        prompt_make(c->body, c->model, UINT32_MAX, &p, &c->failure);
    if (p.rc == 0)
        tokens_write(c, t, &p);
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
    const char *source = model_chat_template(c->model);
    json_write_text(&c->reply, source ? source : "");
    buffer_printf(&c->reply, ",");
    ollama_details_write(&c->reply, c->model);
    buffer_printf(&c->reply, ",");
    ollama_info_write(&c->reply, c->model, c->context, c->vocabulary);
    buffer_printf(&c->reply, ",\"capabilities\":[\"%s\"%s%s]}",
                  c->embeds ? "embedding" : "completion",
                  tool_format_of(model_tool_template(c->model)) ? ",\"tools\"" : "",
                  template_knows_reasoning(source) ? ",\"thinking\"" : "");
}

int text_work_do(struct text_call *c)
{
    const struct tokenizer *t;
    struct buffer text = {0};
    int rc = model_tokenizer(c->model, &t, &c->failure);
    if (rc == 0 && (c->task == TEXT_TOKENIZE || c->task == TEXT_COUNT)) {
        rc = text_tokenize(c, t);
    } else if (rc == 0 && c->task == TEXT_SHOW) {
        show_write(c);
    } else if (rc == 0 && c->task == TEXT_PULL) {
        buffer_printf(&c->reply, "{\"status\":\"success\"}\n");
    } else if (rc == 0 && c->task == TEXT_DETOKENIZE) {
        rc = text_detokenize(c, t, &text);
    } else if (rc == 0) {
        rc = prompt_render(c->body, c->model, &text, &c->failure);
        text_write(c, &text, false);
    }
    if (rc == 0 && c->reply.failed)
        rc = err_set(&c->failure, HP_ENOMEM, "no memory for the answer");
    buffer_free(&text);
    return rc;
}
