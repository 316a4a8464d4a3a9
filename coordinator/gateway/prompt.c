#include "coordinator/gateway/prompt.h"

#include <stdio.h>
#include <string.h>

#include "coordinator/gateway/infill_prompt.h"
#include "coordinator/gateway/literal.h"
#include "coordinator/gateway/openai_grammar.h"
#include "coordinator/gateway/tools_grammar.h"

enum {
    GRAMMARS_BYTES = 16 << 20, /* of the answers to one prompt together */
    LIKELY_TOKEN_BYTES = 3     /* a text of fewer for each token is worth making tokens of */
};

/* OpenAI's own sentence, and Anthropic's few words: frameworks look for one or the other, to
 * shorten the conversation. */
static int refuse_length(struct prompt *p, const struct openai_body *b, uint64_t context,
                         const char *about, size_t n)
{
    p->code = "context_length_exceeded";
    p->param = b->chat ? "messages" : "prompt";
    return err_set(p->failure, HP_EINVAL,
                   "This model's maximum context length is %llu tokens, of which at least one is "
                   "for the answer. However, your "
                   "%s resulted in %s%zu tokens: the prompt is too long. "
                   "Please reduce the length of the %s.",
                   (unsigned long long)context, p->param, about, n, p->param);
}

static int encode_text(struct prompt *p, const struct openai_body *b, const struct tokenizer *t,
                       uint64_t context, const char *text, size_t n,
                       const struct text_span *literal, size_t n_literal)
{
    size_t least =
        n / LIKELY_TOKEN_BYTES > context ? tokenizer_least_tokens(t, text, n, context) : 0;
    if (least > context)
        return refuse_length(p, b, context, "at least ", least);
    return tokenizer_encode_literal(t, text, n, literal, n_literal, b->adds_special, &p->ids,
                                    p->failure);
}

static int encode_plain(struct prompt *p, const struct openai_body *b, const struct tokenizer *t,
                        uint64_t context, const char *text)
{
    size_t n = strlen(text);
    struct text_span all = {0, n};
    return encode_text(p, b, t, context, text, n, &all, b->literal_specials ? 1 : 0);
}

/* What an answer takes, at most half of it, is no room for the gap. */
static int encode_infill(struct prompt *p, const struct openai_body *b, const struct tokenizer *t,
                         uint64_t context)
{
    uint64_t answer = b->max_tokens ? b->max_tokens : 1, most = context / 2;
    int rc = infill_prompt_make(b->root, t, context - (answer < most ? answer : most), &p->ids,
                                p->failure);
    p->param = rc == HP_EUNSUPPORTED ? "input_suffix" : rc == HP_EINVAL ? "input_prefix" : NULL;
    return rc;
}

/* ---- messages ---- */

/* One of Unicode's noncharacters, behind the last message: what the template writes from there on
 * is dropped. */
static const char turn_end[] = "\xEF\xB7\xAF";

static int last_content_mark(const struct openai_body *b, struct err *e)
{
    json_t *last = json_array_get(b->messages, json_array_size(b->messages) - 1);
    struct buffer marked = {0};
    buffer_printf(&marked, "%s%s", json_string_value(json_object_get(last, "content")), turn_end);
    bool fine = !marked.failed &&
                json_object_set_new(last, "content", json_string(buffer_cstr(&marked))) == 0;
    buffer_free(&marked);
    return fine ? 0 : err_set(e, HP_ENOMEM, "out of memory for a prompt");
}

static int text_cut_at_mark(struct buffer *text, struct err *e)
{
    const char *all = buffer_cstr(text), *last = NULL;
    for (const char *at = all; (at = strstr(at, turn_end)) != NULL; at++)
        last = at;
    if (!last)
        return err_set(e, HP_EUNSUPPORTED,
                       "continue_final_message: this model's chat template does not write the last "
                       "message as it is");
    text->size = (size_t)(last - all);
    return 0;
}

/* More variables for the template, with the tools; NULL: no memory. */
static json_t *variables_with_tools(const struct openai_body *b)
{
    json_t *all = b->template_extra ? json_copy(b->template_extra) : json_object();
    if (all && json_object_set(all, "tools", b->tools) == 0)
        return all;
    json_decref(all);
    return NULL;
}

static int chat_render(const struct openai_body *b, struct model *model, struct buffer *out,
                       struct err *e)
{
    if (!b->tools)
        return model_chat_render(model, b->messages, b->opens_turn, b->template_extra, out, e);
    json_t *extra = variables_with_tools(b);
    int rc = extra ? model_chat_render(model, b->messages, b->opens_turn, extra, out, e)
                   : err_set(e, HP_ENOMEM, "out of memory for a prompt");
    json_decref(extra);
    return rc;
}

/* Whether the answer goes on with reasoning that the prompt has begun. */
static bool text_begins_reasoning(struct buffer *text)
{
    const char *all = buffer_cstr(text);
    size_t n = text->size, word = strlen(REASONING_BEGIN);
    while (n > 0 && strchr(" \t\r\n", all[n - 1]))
        n--;
    return n >= word && memcmp(all + n - word, REASONING_BEGIN, word) == 0;
}

/* Templates of channels know the reasoning of earlier turns under another name, and take it where
 * there is no text beside it. False: no memory. */
static bool thoughts_name(const struct openai_body *b, const char *source)
{
    const struct tool_format *f = tool_format_of(source);
    json_t *message;
    size_t i;
    bool good = true;
    if (!f || f->syntax != TOOL_CHANNELS)
        return true;
    json_array_foreach(b->messages, i, message)
    {
        json_t *thought = json_object_get(message, "reasoning_content");
        const char *content = json_string_value(json_object_get(message, "content"));
        if (json_is_string(thought) && !json_object_get(message, "thinking") &&
            (!content || !*content))
            good &= json_object_set(message, "thinking", thought) == 0;
    }
    return good;
}

int prompt_render(const struct openai_body *b, struct model *model, struct buffer *out,
                  struct err *e)
{
    if (!thoughts_name(b, model_chat_template(model)))
        return err_set(e, HP_ENOMEM, "out of memory for a prompt");
    int rc = b->continues ? last_content_mark(b, e) : 0;
    if (rc == 0)
        rc = chat_render(b, model, out, e);
    if (rc == 0 && out->failed)
        rc = err_set(e, HP_ENOMEM, "out of memory for a prompt");
    return rc == 0 && b->continues ? text_cut_at_mark(out, e) : rc;
}

static int encode_chat(struct prompt *p, const struct openai_body *b, struct model *model,
                       const struct tokenizer *t, uint64_t context)
{
    struct buffer text = {0}, spans = {0};
    struct literal_mark mark;
    int rc = b->literal_specials ? literal_mark(b->messages, t, &mark, p->failure) : 0;
    rc = rc < 0 ? rc : prompt_render(b, model, &text, p->failure);
    p->reasons = rc == 0 && text_begins_reasoning(&text);
    if (rc == 0 && b->literal_specials)
        rc = literal_unmark(&text, &mark, &spans, p->failure);
    if (rc == 0)
        rc = encode_text(p, b, t, context, buffer_cstr(&text), text.size,
                         (const struct text_span *)(const void *)spans.data,
                         spans.size / sizeof(struct text_span));
    buffer_free(&text);
    buffer_free(&spans);
    return rc;
}

/* ---- all ---- */

/* A text as it was given; of ids what they stand for. */
static int echo_add(struct prompt *p, const struct body_prompt *b, const struct tokenizer *t)
{
    int rc = 0;
    if (b->text)
        buffer_append(&p->echo, b->text, strlen(b->text));
    for (size_t i = 0; !b->text && i < b->n_ids; i++) {
        size_t n;
        const char *bytes = tokenizer_token_bytes(t, b->ids[i], &n);
        buffer_append(&p->echo, bytes, n);
    }
    buffer_append(&p->echo_ends, &p->echo.size, sizeof p->echo.size);
    if (p->echo.failed || p->echo_ends.failed)
        rc = err_set(p->failure, HP_ENOMEM, "out of memory for a prompt");
    return rc;
}

static int prompt_add(struct prompt *p, const struct openai_body *b, struct model *model,
                      const struct tokenizer *t, uint64_t context, size_t i)
{
    size_t before = p->ids.size / sizeof(uint32_t);
    int rc = 0;
    if (b->chat)
        rc = encode_chat(p, b, model, t, context);
    else if (b->fills)
        rc = encode_infill(p, b, t, context);
    else if (b->prompts[i].text)
        rc = encode_plain(p, b, t, context, b->prompts[i].text);
    else
        buffer_append(&p->ids, b->prompts[i].ids, b->prompts[i].n_ids * sizeof(uint32_t));
    if (rc == 0 && b->echo)
        rc = echo_add(p, &b->prompts[i], t);
    size_t end = p->ids.size / sizeof(uint32_t);
    buffer_append(&p->ends, &end, sizeof end);
    if (rc == 0 && (p->ids.failed || p->ends.failed))
        rc = err_set(p->failure, HP_ENOMEM, "out of memory for a prompt");
    return rc == 0 && end - before >= context ? refuse_length(p, b, context, "", end - before) : rc;
}

static int prompt_fill(struct prompt *p, const struct openai_body *b, struct model *model,
                       uint64_t context)
{
    const struct tokenizer *t;
    int rc = model_tokenizer(model, &t, p->failure);
    for (size_t i = 0; i < b->n_prompts && rc == 0; i++)
        rc = prompt_add(p, b, model, t, context, i);
    return rc;
}

void prompt_free(struct prompt *p)
{
    buffer_free(&p->ids);
    buffer_free(&p->ends);
    buffer_free(&p->echo);
    buffer_free(&p->echo_ends);
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

/* Each answer's sequence brings its grammar along. */
static int grammar_bound(struct prompt *p, const struct openai_body *b)
{
    size_t bytes = b->sampling.grammar.size;
    if (bytes * b->n_choices <= GRAMMARS_BYTES)
        return 0;
    p->param = "n";
    return err_set(p->failure, HP_EINVAL,
                   "n: %u answers that are held to a grammar of %zu bytes are too many; at most "
                   "%zu are allowed",
                   b->n_choices, bytes, GRAMMARS_BYTES / bytes);
}

static int grammar_fill(struct prompt *p, struct openai_body *b)
{
    int rc = openai_grammar_make(b->root, &b->sampling.grammar, &p->param, p->failure);
    if (rc < 0)
        return rc;
    b->held_by = p->param;
    p->param = NULL;
    return grammar_bound(p, b);
}

/* Behind the prompt: whether its end has begun the reasoning is known then. */
static int calls_hold(struct prompt *p, struct openai_body *b, const struct model *model)
{
    const char *source = model_tool_template(model);
    int rc = tools_grammar_make(b, tool_format_of(source), template_knows_reasoning(source),
                                p->reasons, &b->sampling.grammar, &p->param, p->failure);
    b->held_by = "tools";
    return rc < 0 ? rc : grammar_bound(p, b);
}

void prompt_make(struct openai_body *b, struct model *model, uint64_t context, struct prompt *out,
                 struct err *why)
{
    *out = (struct prompt){.failure = why};
    if (b->structured)
        out->rc = grammar_fill(out, b);
    bool prompted = out->rc == 0;
    if (prompted)
        out->rc = prompt_fill(out, b, model, context);
    if (prompted && out->rc == 0 && b->holds_calls)
        out->rc = calls_hold(out, b, model);
    if (prompted && out->rc < 0)
        failure_tell(out->failure, model, b->model);
    if (prompted && out->rc == HP_EINVAL && !out->param)
        out->param = b->chat ? "messages" : "prompt";
    openai_body_drop_prompt(b);
}
