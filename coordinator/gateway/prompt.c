#include "coordinator/gateway/prompt.h"

#include <stdio.h>
#include <string.h>

#include "coordinator/gateway/literal.h"

/* OpenAI's own sentence: frameworks look for it, to shorten the conversation. */
static int refuse_length(struct prompt *p, const struct openai_body *b, uint64_t context, size_t n,
                         const char *unit)
{
    p->code = "context_length_exceeded";
    p->param = b->chat ? "messages" : "prompt";
    return err_set(&p->failure, HP_EINVAL,
                   "This model's maximum context length is %llu tokens, of which at least one is "
                   "for the answer. However, your "
                   "%s resulted in %zu %s. "
                   "Please reduce the length of the %s.",
                   (unsigned long long)context, p->param, n, unit, p->param);
}

static int encode_text(struct prompt *p, const struct openai_body *b, const struct tokenizer *t,
                       uint64_t context, const char *text, size_t n,
                       const struct text_span *literal, size_t n_literal)
{
    size_t longest = tokenizer_bytes_per_token(t);
    if (n / (longest ? longest : 1) > context)
        return refuse_length(p, b, context, n, "bytes, more than so many tokens can hold");
    return tokenizer_encode_literal(t, text, n, literal, n_literal, !b->chat, &p->ids, &p->failure);
}

static int encode_plain(struct prompt *p, const struct openai_body *b, const struct tokenizer *t,
                        uint64_t context)
{
    size_t n = strlen(b->text);
    struct text_span all = {0, n};
    return encode_text(p, b, t, context, b->text, n, &all, b->literal_specials ? 1 : 0);
}

static int encode_chat(struct prompt *p, const struct openai_body *b, struct model *model,
                       const struct tokenizer *t, uint64_t context)
{
    struct buffer text = {0}, spans = {0};
    struct literal_mark mark;
    int rc = b->literal_specials ? literal_mark(b->messages, t, &mark, &p->failure) : 0;
    rc = rc < 0 ? rc : model_chat_render(model, b->messages, true, NULL, &text, &p->failure);
    if (rc == 0 && text.failed)
        rc = err_set(&p->failure, HP_ENOMEM, "out of memory for a prompt");
    if (rc == 0 && b->literal_specials)
        rc = literal_unmark(&text, &mark, &spans, &p->failure);
    if (rc == 0)
        rc = encode_text(p, b, t, context, buffer_cstr(&text), text.size,
                         (const struct text_span *)(const void *)spans.data,
                         spans.size / sizeof(struct text_span));
    buffer_free(&text);
    buffer_free(&spans);
    return rc;
}

static int prompt_fill(struct prompt *p, const struct openai_body *b, struct model *model,
                       uint64_t context)
{
    const struct tokenizer *t;
    int rc = model_tokenizer(model, &t, &p->failure);
    if (rc < 0)
        return rc;
    if (b->ids)
        buffer_append(&p->ids, b->ids, b->n_ids * sizeof *b->ids);
    else
        rc = b->chat ? encode_chat(p, b, model, t, context) : encode_plain(p, b, t, context);
    if (rc == 0 && p->ids.failed)
        rc = err_set(&p->failure, HP_ENOMEM, "out of memory for a prompt");
    size_t n = p->ids.size / sizeof(uint32_t);
    return rc == 0 && n >= context ? refuse_length(p, b, context, n, "tokens") : rc;
}

/* In a client's words: by the name that it knows, since where the model lies here is nobody's
 * business, and with what to do next. */
static void failure_tell(struct err *e, const struct model *model, const char *called)
{
    char name[100];
    snprintf(name, sizeof name, "model \"%.80s\"", called);
    err_rename(e, model_path(model), name);
    size_t n = strlen(e->text);
    if (e->hint[0])
        snprintf(e->text + n, sizeof e->text - n, "; %s", e->hint);
}

void prompt_make(struct openai_body *b, struct model *model, uint64_t context, struct prompt *out)
{
    *out = (struct prompt){0};
    out->rc = prompt_fill(out, b, model, context);
    if (out->rc < 0)
        failure_tell(&out->failure, model, b->model);
    if (out->rc == HP_EINVAL && !out->param)
        out->param = b->chat ? "messages" : "prompt";
    openai_body_drop_prompt(b);
}
