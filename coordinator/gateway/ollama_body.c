#include "coordinator/gateway/ollama_body.h"

#include <string.h>

#include "coordinator/gateway/body_fields.h"
#include "coordinator/gateway/dialect.h"
#include "coordinator/gateway/dialect_fields.h"

static const struct field_name option_names[] = {{"temperature", "temperature"},
                                                 {"top_k", "top_k"},
                                                 {"top_p", "top_p"},
                                                 {"min_p", "min_p"},
                                                 {"seed", "seed"},
                                                 {"stop", "stop"},
                                                 {"repeat_penalty", "repetition_penalty"},
                                                 {"presence_penalty", "presence_penalty"},
                                                 {"frequency_penalty", "frequency_penalty"},
                                                 {"mirostat", "mirostat"},
                                                 {"repeat_last_n", "repeat_last_n"},
                                                 {"typical_p", "typical_p"},
                                                 {"tfs_z", "tfs_z"},
                                                 {0}};
static const struct field_name body_names[] = {{"suffix", "suffix"},
                                               {"logprobs", "logprobs"},
                                               {"top_logprobs", "top_logprobs"},
                                               {"tools", "tools"},
                                               {0}};
static const struct field_name message_names[] = {
    {"thinking", "reasoning_content"}, {"tool_name", "name"}, {0}};

static int ollama_refuse(const json_t *root, const char *name, const char **param, struct err *e)
{
    return field_asks(root, name)
               ? body_field_refuse(param, name, e,
                                   "this server does not support it yet; leave it out")
               : 0;
}

/* "demo:latest" is what Ollama's clients make of "demo". */
static json_t *model_named(const json_t *model)
{
    static const char latest[] = ":latest";
    size_t n = json_string_length(model), tail = sizeof latest - 1;
    const char *name = json_string_value(model);
    if (name && n > tail && strcmp(name + n - tail, latest) == 0)
        n -= tail;
    return name ? json_stringn(name, n) : json_null();
}

int ollama_name_read(json_t *root)
{
    const json_t *model = json_object_get(root, "model");
    model = model ? model : json_object_get(root, "name");
    return !json_is_string(model) || json_object_set_new(root, "model", model_named(model)) == 0
               ? 0
               : HP_ENOMEM;
}

/* true and false are Qwen3's word, the others gpt-oss's. */
static bool think_move(json_t *to, json_t *think)
{
    const char *name = json_is_boolean(think) ? "enable_thinking" : "reasoning_effort";
    if (!think || json_is_null(think))
        return true;
    return json_object_set_new(to, "chat_template_kwargs", json_pack("{s:O}", name, think)) == 0;
}

/* "json", or a schema. */
static bool format_move(json_t *to, json_t *format)
{
    const char *word = json_string_value(format);
    if (!format || json_is_null(format) || (word && !*word))
        return true;
    json_t *made =
        word ? json_pack("{s:s}", "type", "json_object")
             : json_pack("{s:s, s:{s:O}}", "type", "json_schema", "json_schema", "schema", format);
    return json_object_set_new(to, "response_format", made) == 0;
}

/* What both paths share; `to` has the messages or the prompt already. */
static int ollama_fields(const json_t *from, json_t *to, const char **param, struct err *e)
{
    const json_t *options = json_object_get(from, "options");
    const json_t *most = json_object_get(options, "num_predict");
    json_t *stream = json_object_get(from, "stream");
    if (options && !json_is_null(options) && !json_is_object(options))
        return body_field_refuse(param, "options", e, "must be an object");
    const json_t *think = json_object_get(from, "think");
    if (think && !json_is_null(think) && !json_is_boolean(think) && !json_is_string(think))
        return body_field_refuse(param, "think", e, "must be true, false or a text");
    const char *format = json_string_value(json_object_get(from, "format"));
    if (format && *format && strcmp(format, "json") != 0)
        return body_field_refuse(param, "format", e, "must be \"json\" or a JSON schema");
    bool fine = json_object_set_new(to, "model", model_named(json_object_get(from, "model"))) == 0;
    fine = fine && json_object_set(to, "stream",
                                   stream && !json_is_null(stream) ? stream : json_true()) == 0;
    fine = fine && fields_move(to, options, option_names) && fields_move(to, from, body_names) &&
           think_move(to, json_object_get(from, "think")) &&
           format_move(to, json_object_get(from, "format"));
    /* Nothing, and the two numbers below it, mean as many as there is room for. */
    bool endless =
        !most || json_is_null(most) ||
        (json_is_integer(most) && json_integer_value(most) <= 0 && json_integer_value(most) >= -2);
    if (fine && !endless)
        fine = json_object_set(to, "max_tokens", (json_t *)most) == 0;
    return fine ? 0 : err_set(e, HP_ENOMEM, "out of memory for a request");
}

static int ollama_replace(json_t **root, json_t *to, const char **param, struct err *e)
{
    int rc = to ? ollama_fields(*root, to, param, e)
                : err_set(e, HP_ENOMEM, "out of memory for a request");
    if (rc < 0) {
        json_decref(to);
        return rc;
    }
    json_decref(*root);
    *root = to;
    return 0;
}

/* Without anything to answer a model is asked to be there, or may go: what is deployed stays either
 * way. The fields are checked as those of others, with a stand-in for the prompt. */
static int load_translate(json_t **root, const char **param, struct err *e)
{
    const json_t *keep = json_object_get(*root, "keep_alive");
    const char *text = json_string_value(keep);
    bool leaves = (json_is_number(keep) && json_number_value(keep) == 0) ||
                  (text && *text && strspn(text, "0hms") == strlen(text));
    json_t *to = json_pack("{s:[{s:s, s:s}]}", "messages", "role", "user", "content", "-");
    int rc = ollama_replace(root, to, param, e);
    return rc < 0 ? rc : leaves ? DIALECT_UNLOAD : DIALECT_LOAD;
}

int ollama_chat_translate(json_t **root, bool *chat, const char **param, struct err *e)
{
    json_t *messages = json_object_get(*root, "messages"), *message;
    size_t i;
    *chat = true;
    if (!field_asks(*root, "messages"))
        return load_translate(root, param, e);
    json_array_foreach(messages, i, message)
    {
        if (field_asks(message, "images"))
            return body_field_refuse(param, "messages", e, "images are not supported");
        if (json_is_object(message) && !fields_move(message, message, message_names))
            return err_set(e, HP_ENOMEM, "out of memory for a request");
    }
    return ollama_replace(root, json_pack("{s:O?}", "messages", messages), param, e);
}

int ollama_generate_translate(json_t **root, bool *chat, const char **param, struct err *e)
{
    static const char *const unbuilt[] = {"images", "template", "tools", "context"};
    json_t *prompt = json_object_get(*root, "prompt"), *system = json_object_get(*root, "system");
    *chat = !json_is_true(json_object_get(*root, "raw"));
    for (size_t i = 0; i < sizeof unbuilt / sizeof *unbuilt; i++) {
        int refused = ollama_refuse(*root, unbuilt[i], param, e);
        if (refused < 0)
            return refused;
    }
    if (!field_asks(*root, "prompt")) {
        *chat = true;
        return load_translate(root, param, e);
    }
    if (!json_is_string(prompt))
        return body_field_refuse(param, "prompt", e, "must be a text");
    int rc = body_field_content(system, "system", param, e);
    if (rc < 0)
        return rc;
    if (!*chat)
        return ollama_replace(root, json_pack("{s:O}", "prompt", prompt), param, e);
    json_t *messages = json_array();
    bool fine = !field_asks(*root, "system") || message_add(messages, "system", system);
    fine = message_add(messages, "user", prompt) && fine;
    json_t *to = fine ? json_pack("{s:O}", "messages", messages) : NULL;
    json_decref(messages);
    return ollama_replace(root, to, param, e);
}
