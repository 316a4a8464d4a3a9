#include "hpctl/model_convert.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/json.h"

/* ---- pieces of JSON ---- */

static json_t *ids_json(const struct buffer *ids)
{
    json_t *list = json_array();
    for (size_t i = 0; i + sizeof(uint32_t) <= ids->size; i += sizeof(uint32_t)) {
        uint32_t id;
        memcpy(&id, ids->data + i, sizeof id);
        json_array_append_new(list, json_integer(id));
    }
    return list;
}

/* {"text": …}, or an error where the text is not UTF-8. */
static int text_json(const struct buffer *text, json_t **out, struct err *e)
{
    if (text->failed)
        return err_no_memory(e, "the text");
    json_t *s = json_stringn(text->data ? (const char *)text->data : "", text->size);
    if (!s)
        return err_set(e, HP_EINVAL, "the text is not UTF-8");
    *out = json_object();
    json_object_set_new(*out, "text", s);
    return 0;
}

static int ids_from_json(const json_t *list, struct buffer *out, struct err *e)
{
    if (!json_is_array(list))
        return err_set(e, HP_EINVAL, "expected a list of token ids");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *v = json_array_get(list, i);
        json_int_t id = json_is_integer(v) ? json_integer_value(v) : -1;
        if (id < 0 || id > UINT32_MAX)
            return err_set(e, HP_EINVAL, "item %zu of the list is not a token id", i);
        uint32_t narrow = (uint32_t)id;
        buffer_append(out, &narrow, sizeof narrow);
    }
    return out->failed ? err_no_memory(e, "%zu ids", json_array_size(list)) : 0;
}

/* "1,2,3", as `model tokenize` prints them. */
int model_ids_from_text(const char *text, struct buffer *out, struct err *e)
{
    while (*text) {
        char *end;
        errno = 0;
        unsigned long long id = strtoull(text, &end, 10);
        if (end == text || *text == '-' || errno || id > UINT32_MAX || (*end && *end != ',') ||
            (*end == ',' && !end[1]))
            return err_set(e, HP_EUSAGE, "--ids: \"%.40s\" does not begin with a token id", text);
        uint32_t narrow = (uint32_t)id;
        buffer_append(out, &narrow, sizeof narrow);
        text = *end ? end + 1 : end;
    }
    return out->failed ? err_no_memory(e, "the ids") : 0;
}

/* ---- the three conversions ---- */

int model_tokenize_bytes(const struct model_conversion *c, const char *text, size_t size,
                         json_t **out, struct err *e)
{
    struct buffer ids = {0};
    int rc = tokenizer_encode(c->tokenizer, text, size, c->add_special, &ids, e);
    if (rc == 0 && ids.failed)
        rc = err_no_memory(e, "the ids");
    if (rc == 0) {
        *out = json_object();
        json_object_set_new(*out, "ids", ids_json(&ids));
    }
    buffer_free(&ids);
    return rc;
}

int model_tokenize(const struct model_conversion *c, const json_t *input, json_t **out,
                   struct err *e)
{
    if (!json_is_string(input))
        return err_set(e, HP_EINVAL, "expected a string");
    return model_tokenize_bytes(c, json_string_value(input), json_string_length(input), out, e);
}

int model_detokenize_ids(const struct model_conversion *c, const struct buffer *ids, json_t **out,
                         struct err *e)
{
    struct buffer text = {0};
    static const uint32_t none[1];
    const uint32_t *first = ids->data ? (const uint32_t *)(const void *)ids->data : none;
    int rc = tokenizer_decode(c->tokenizer, first, ids->size / sizeof(uint32_t), &text, e);
    if (rc == 0)
        rc = text_json(&text, out, e);
    buffer_free(&text);
    return rc;
}

int model_detokenize(const struct model_conversion *c, const json_t *input, json_t **out,
                     struct err *e)
{
    struct buffer ids = {0};
    int rc = ids_from_json(input, &ids, e);
    if (rc == 0)
        rc = model_detokenize_ids(c, &ids, out, e);
    buffer_free(&ids);
    return rc;
}

/* An object's members beside its messages are variables of the template, such as tools. */
static json_t *extra_variables(const json_t *input)
{
    if (!json_is_object(input))
        return NULL;
    json_t *extra = json_copy((json_t *)input);
    json_object_del(extra, "messages");
    json_object_del(extra, "add_generation_prompt");
    return extra;
}

static int render_text(const struct model_conversion *c, const json_t *input, struct buffer *text,
                       struct err *e)
{
    const json_t *messages = json_is_object(input) ? json_object_get(input, "messages") : input;
    if (!json_is_array(messages))
        return err_set(e, HP_EINVAL, "expected a list of messages, or an object with \"messages\"");
    const json_t *prompt =
        json_is_object(input) ? json_object_get(input, "add_generation_prompt") : NULL;
    if (prompt && !json_is_boolean(prompt))
        return err_set(e, HP_EINVAL, "\"add_generation_prompt\" is not true or false");
    json_t *extra = extra_variables(input);
    int rc =
        model_chat_render(c->model, messages,
                          prompt ? json_is_true(prompt) : c->add_generation_prompt, extra, text, e);
    json_decref(extra);
    return rc;
}

int model_render(const struct model_conversion *c, const json_t *input, json_t **out, struct err *e)
{
    struct buffer text = {0}, ids = {0};
    json_t *o = NULL;
    int rc = render_text(c, input, &text, e);
    if (rc == 0)
        rc = text_json(&text, &o, e);
    if (rc == 0)
        rc = tokenizer_encode(c->tokenizer, text.data ? (const char *)text.data : "", text.size,
                              false, &ids, e);
    if (rc == 0 && ids.failed)
        rc = err_no_memory(e, "the ids");
    if (rc == 0)
        json_object_set_new(o, "ids", ids_json(&ids));
    else
        json_decref(o);
    buffer_free(&text);
    buffer_free(&ids);
    if (rc == 0)
        *out = o;
    return rc;
}
