/* What a model knows of text: its tokenizer and its chat templates, made when they are first asked
 * for. */
#include <string.h>

#include "common/utf8.h"
#include "model/files/gguf.h"
#include "model/model_int.h"
#include "model/template/template.h"

/* What a file's family alone knows of its special tokens; NULL: nothing. */
static const char *const *gguf_keeping_marks(const struct model *m)
{
    struct gguf_string name;
    const struct family *family;
    bool known = gguf_get_string(&m->gguf, m->path, "general.architecture", &name, NULL) == 0 &&
                 name.data &&
                 family_find(FORM_GGUF, m->path, name.data, name.size, &family, NULL) == 0;
    return known ? family->keeping_marks : NULL;
}

int model_tokenizer(struct model *m, const struct tokenizer **out, struct err *e)
{
    int rc = 0;
    if (!m->tokenizer)
        rc = m->form == FORM_HUB
                 ? tokenizer_from_hub(m->path, &m->tokenizer, e)
                 : tokenizer_from_gguf(&m->gguf, m->path, gguf_keeping_marks(m), &m->tokenizer, e);
    *out = rc < 0 ? NULL : m->tokenizer;
    return rc;
}

static int compile_template(const struct model *m, struct model_template *t, struct err *e)
{
    if (t->compiled)
        return 0;
    if (!t->source) {
        err_set(e, HP_EUNSUPPORTED, "%s: the model has no chat template", m->path);
        err_hint(e, "complete a text as it stands: /v1/completions, or `hpctl run --raw`");
        return HP_EUNSUPPORTED;
    }
    if (!t->failed) {
        int rc = template_compile(t->source, strlen(t->source), &t->compiled, &t->failure);
        if (rc == 0)
            return 0;
        err_at(&t->failure, "%s: chat template", m->path);
        t->failed = rc != HP_ENOMEM; /* which may be had next time */
    }
    if (e)
        *e = t->failure;
    return t->failure.code;
}

int model_text_prepare(struct model *m, struct err *e)
{
    const struct tokenizer *t;
    compile_template(m, &m->chat, NULL);
    compile_template(m, &m->tool_chat, NULL);
    return model_tokenizer(m, &t, e);
}

/* A new object with everything that the template sees; NULL when memory ran out or a token's text
 * is not UTF-8. */
static json_t *template_variables(const json_t *messages, bool add_generation_prompt,
                                  const struct tokenizer *t, const json_t *extra)
{
    json_t *v = json_object();
    bool bad = json_object_set(v, "messages", (json_t *)messages) < 0;
    bad |= json_object_set_new(v, "add_generation_prompt", json_boolean(add_generation_prompt)) < 0;
    /* Templates are written for a caller that always hands these in: "tools is not none" must be
     * false without them. */
    bad |= json_object_set_new(v, "tools", json_null()) < 0;
    bad |= json_object_set_new(v, "documents", json_null()) < 0;
    bad |= json_object_set_new(v, "bos_token", json_string(tokenizer_bos_text(t))) < 0;
    bad |= json_object_set_new(v, "eos_token", json_string(tokenizer_eos_text(t))) < 0;
    if (*tokenizer_pad_text(t))
        bad |= json_object_set_new(v, "pad_token", json_string(tokenizer_pad_text(t))) < 0;
    if (*tokenizer_unknown_text(t))
        bad |= json_object_set_new(v, "unk_token", json_string(tokenizer_unknown_text(t))) < 0;
    bad |= extra && json_object_update(v, (json_t *)extra) < 0;
    if (!bad)
        return v;
    json_decref(v);
    return NULL;
}

/* What is not UTF-8 cannot be a variable; everything else that fails is want of memory. */
static int variables_failed(const struct model *m, const struct tokenizer *t, struct err *e)
{
    const char *texts[] = {tokenizer_bos_text(t), tokenizer_eos_text(t), tokenizer_pad_text(t),
                           tokenizer_unknown_text(t)};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (utf8_valid_prefix(texts[i], strlen(texts[i])) < strlen(texts[i]))
            return err_set(e, HP_EINVAL, "%s: a token that templates are given is not UTF-8",
                           m->path);
    return err_set(e, HP_ENOMEM, "%s: no memory for the template's variables", m->path);
}

int model_chat_render(struct model *m, const json_t *messages, bool add_generation_prompt,
                      const json_t *extra, struct buffer *out, struct err *e)
{
    const struct tokenizer *t;
    const json_t *tools = extra ? json_object_get(extra, "tools") : NULL;
    bool with_tools = m->tool_chat.source && ((tools && !json_is_null(tools)) || !m->chat.source);
    struct model_template *chosen = with_tools ? &m->tool_chat : &m->chat;
    int rc = compile_template(m, chosen, e);
    rc = rc < 0 ? rc : model_tokenizer(m, &t, e);
    if (rc < 0)
        return rc;
    json_t *variables = template_variables(messages, add_generation_prompt, t, extra);
    if (!variables)
        return variables_failed(m, t, e);
    rc = template_render(chosen->compiled, variables, NULL, out, e);
    json_decref(variables);
    return rc;
}
