#include "coordinator/gateway/openai_prompts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "coordinator/gateway/body_fields.h"
#include "coordinator/gateway/tools_body.h"

#define PROMPT_TYPES "must be a text, a list of token ids, or a list of either"

enum { MAX_MESSAGES = 4096 };

/* ---- messages ---- */

static int refuse_part(const char *type, const char **param, struct err *e)
{
    char why[160];
    snprintf(why, sizeof why,
             "a content part is of type \"%.40s\"; this server reads text alone, which is of type "
             "\"text\"",
             type ? type : "");
    return body_field_refuse(param, "messages", e,
                             type && strcmp(type, "text") != 0 ? why
                                                               : "a content part has no \"text\"");
}

/* A list of text parts becomes one text. */
static int flatten_content(json_t *message, const char **param, struct err *e)
{
    json_t *content = json_object_get(message, "content"), *part;
    size_t i;
    if (json_is_string(content))
        return 0;
    const char *role = json_string_value(json_object_get(message, "role"));
    if (!content && strcmp(role, "assistant") != 0)
        return body_field_refuse(param, "messages", e,
                                 "every message but the assistant's needs a \"content\"");
    if (!content || json_is_null(content))
        return json_object_set_new(message, "content", json_string("")) == 0
                   ? 0
                   : err_set(e, HP_ENOMEM, "out of memory for a request");
    if (!json_is_array(content))
        return body_field_refuse(param, "messages", e,
                                 "a content must be a string or a list of text parts");
    struct buffer all = {0};
    int rc = 0;
    json_array_foreach(content, i, part)
    {
        const char *type = json_string_value(json_object_get(part, "type"));
        const char *text =
            json_string_value(json_is_string(part) ? part : json_object_get(part, "text"));
        if ((type && strcmp(type, "text") != 0) || !text) {
            rc = refuse_part(type, param, e);
            break;
        }
        buffer_append(&all, text, strlen(text));
    }
    if (rc == 0 && (all.failed ||
                    json_object_set_new(message, "content", json_string(buffer_cstr(&all))) != 0))
        rc = err_set(e, HP_ENOMEM, "out of memory for a request");
    buffer_free(&all);
    return rc;
}

static int read_messages(struct openai_body *b, const char **param, struct err *e)
{
    json_t *message;
    size_t i;
    b->messages = json_object_get(b->root, "messages");
    if (!json_is_array(b->messages) || json_array_size(b->messages) == 0 ||
        json_array_size(b->messages) > MAX_MESSAGES)
        return body_field_refuse(param, "messages", e, "must be a list of 1 to 4096 messages");
    json_array_foreach(b->messages, i, message)
    {
        const char *role = json_string_value(json_object_get(message, "role"));
        if (!role || !*role)
            return body_field_refuse(param, "messages", e, "every message needs a \"role\"");
        int rc = flatten_content(message, param, e);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* How long to reason is told to the template, in gpt-oss' word and in Qwen3's, unless it is told
 * by "chat_template_kwargs" already. */
static int read_effort(struct openai_body *b, const char **param, struct err *e)
{
    json_t *effort = json_object_get(b->root, "reasoning_effort");
    const char *word = json_string_value(effort);
    if (!effort || json_is_null(effort) || (word && !*word))
        return 0;
    if (!word)
        return body_field_refuse(param, "reasoning_effort", e,
                                 "must be a text: none, minimal, low, medium or high");
    json_t *told = json_pack("{s:O, s:b}", "reasoning_effort", effort, "enable_thinking",
                             strcmp(word, "none") != 0);
    bool fine = told && (!b->template_extra || json_object_update(told, b->template_extra) == 0) &&
                json_object_set(b->root, "chat_template_kwargs", told) == 0;
    json_decref(told);
    b->template_extra = fine ? told : b->template_extra;
    return fine ? 0 : err_no_memory(e, "a request");
}

/* What the template is told beside the messages. Its own variables have fields of their own. */
static int read_template_fields(struct openai_body *b, const char **param, struct err *e)
{
    static const char *const own[] = {"messages", "tools", "documents", "add_generation_prompt"};
    const json_t *turn = json_object_get(b->root, "add_generation_prompt"),
                 *template = json_object_get(b->root, "chat_template");
    bool opens_turn;
    int rc = body_field_flag(b->root, "add_generation_prompt", &opens_turn, param, e);
    rc = rc < 0 ? rc : body_field_flag(b->root, "continue_final_message", &b->continues, param, e);
    if (rc < 0)
        return rc;
    if (template && !json_is_null(template))
        return body_field_refuse(param, "chat_template", e,
                                 "the model's own is run, and no other; its variables are set by "
                                 "\"chat_template_kwargs\"");
    if (b->continues && opens_turn)
        return body_field_refuse(param, "continue_final_message", e,
                                 "the answer either continues the last message or begins a turn of "
                                 "its own (add_generation_prompt)");
    b->opens_turn = !b->continues && (opens_turn || !turn || json_is_null(turn));
    b->template_extra = json_object_get(b->root, "chat_template_kwargs");
    if (json_is_null(b->template_extra))
        b->template_extra = NULL;
    if (b->template_extra && !json_is_object(b->template_extra))
        return body_field_refuse(param, "chat_template_kwargs", e, "must be an object");
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (json_object_get(b->template_extra, own[i]))
            return body_field_refuse(param, "chat_template_kwargs", e,
                                     "may not have messages, tools, documents or "
                                     "add_generation_prompt");
    rc = read_effort(b, param, e);
    if (rc < 0)
        return rc;
    const json_t *last = json_array_get(b->messages, json_array_size(b->messages) - 1);
    const char *role = json_string_value(json_object_get(last, "role"));
    if (b->continues && strcmp(role, "assistant") != 0)
        return body_field_refuse(param, "continue_final_message", e,
                                 "the last message is not the assistant's");
    return 0;
}

/* ---- prompts ---- */

static int read_prompt_ids(struct openai_body *b, size_t item, const json_t *list,
                           struct body_prompt *out, const char **param, struct err *e)
{
    int rc = body_ids_take(&b->ids, item, list, &out->ids, &out->n_ids);
    if (rc == HP_ENOMEM)
        return err_set(e, rc, "out of memory for the prompt");
    return rc < 0        ? body_field_refuse(param, "prompt", e, PROMPT_TYPES)
           : !out->n_ids ? body_field_refuse(param, "prompt", e, "is empty")
                         : 0;
}

/* `item`: of the list of prompts, or BODY_IDS_WHOLE. */
static int read_prompt(struct openai_body *b, size_t item, const json_t *v, struct body_prompt *out,
                       const char **param, struct err *e)
{
    if (json_is_array(v))
        return read_prompt_ids(b, item, v, out, param, e);
    if (!json_is_string(v) || !*json_string_value(v))
        return body_field_refuse(param, "prompt", e, json_is_string(v) ? "is empty" : PROMPT_TYPES);
    out->text = json_string_value(v);
    return 0;
}

/* One text, one list of ids, or a list of either. */
static int read_prompts(struct openai_body *b, const char **param, struct err *e)
{
    const json_t *prompt = json_object_get(b->root, "prompt");
    bool one = !json_is_array(prompt) || body_ids_whole(&b->ids) ||
               json_is_number(json_array_get(prompt, 0));
    size_t n = one ? 1 : json_array_size(prompt);
    int rc = 0;
    if (!prompt || n == 0)
        return body_field_refuse(param, "prompt", e, prompt ? "is empty" : "is missing");
    if (n > OPENAI_MAX_ANSWERS)
        return body_field_refuse(param, "prompt", e, "holds more than 512 prompts");
    b->prompts = calloc(n, sizeof *b->prompts);
    if (!b->prompts)
        return err_set(e, HP_ENOMEM, "out of memory for %zu prompts", n);
    b->n_prompts = n;
    for (size_t i = 0; i < n && rc == 0; i++)
        rc = read_prompt(b, one ? BODY_IDS_WHOLE : i, one ? prompt : json_array_get(prompt, i),
                         &b->prompts[i], param, e);
    return rc;
}

int openai_prompts_read(struct openai_body *b, const char **param, struct err *e)
{
    int rc = tools_body_read(b, param, e);
    if (rc < 0 || !b->chat)
        return rc < 0 ? rc : read_prompts(b, param, e);
    b->n_prompts = 1;
    rc = read_messages(b, param, e);
    rc = rc < 0 ? rc : tools_body_messages(b, param, e);
    return rc < 0 ? rc : read_template_fields(b, param, e);
}

void openai_prompts_free(struct openai_body *b)
{
    for (size_t i = 0; b->prompts && i < b->n_prompts; i++)
        free(b->prompts[i].ids);
    free(b->prompts);
    body_ids_free(&b->ids);
    json_decref(b->root);
    b->root = b->messages = b->tools = b->template_extra = NULL;
    b->prompts = NULL;
}
