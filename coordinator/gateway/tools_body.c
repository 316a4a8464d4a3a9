#include "coordinator/gateway/tools_body.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "coordinator/gateway/body_fields.h"
#include "coordinator/gateway/body_measure.h"
#include "coordinator/gateway/openai_grammar.h"

enum {
    MAX_TOOLS = 1024,
    MAX_NAME_BYTES = 256,
    MAX_ARGUMENTS_BYTES = 2 << 20, /* of all calls of a body */
};

static int no_memory(struct err *e)
{
    return err_set(e, HP_ENOMEM, "out of memory for a request");
}

static bool is_word(const json_t *v, const char *word)
{
    return json_is_string(v) && strcmp(json_string_value(v), word) == 0;
}

/* ---- what is offered ---- */

static int read_tool(struct openai_body *b, const json_t *tool, const char **param, struct err *e)
{
    const json_t *function = json_object_get(tool, "function");
    const json_t *parameters = json_object_get(function, "parameters");
    const json_t *strict = json_object_get(function, "strict");
    const char *name = json_string_value(json_object_get(function, "name"));
    if (!is_word(json_object_get(tool, "type"), "function") || !json_is_object(function))
        return body_field_refuse(param, "tools", e,
                                 "each must be {\"type\": \"function\", \"function\": {..}}");
    if (!name || !*name || strlen(name) > MAX_NAME_BYTES)
        return body_field_refuse(param, "tools", e,
                                 "a function's \"name\" must be a text of 1 to 256 bytes");
    if (parameters && !json_is_null(parameters) && !json_is_object(parameters))
        return body_field_refuse(param, "tools", e,
                                 "a function's \"parameters\" must be an object");
    if (strict && !json_is_null(strict) && !json_is_boolean(strict))
        return body_field_refuse(param, "tools", e,
                                 "a function's \"strict\" must be true or false");
    b->holds_calls |= json_is_true(strict);
    if (!(b->tool_names.items[b->tool_names.n] = strdup(name)))
        return no_memory(e);
    b->tool_names.n++;
    return 0;
}

static int read_tools(struct openai_body *b, json_t *tools, const char **param, struct err *e)
{
    size_t n = json_array_size(tools);
    int rc = 0;
    if (!json_is_array(tools) || n > MAX_TOOLS)
        return body_field_refuse(param, "tools", e, "must be a list of at most 1024 functions");
    b->tool_names.items = calloc(n + 1, sizeof *b->tool_names.items);
    if (!b->tool_names.items)
        return no_memory(e);
    for (size_t i = 0; i < n && rc == 0; i++)
        rc = read_tool(b, json_array_get(tools, i), param, e);
    b->tools = n ? tools : NULL;
    return rc;
}

/* Which one has to be called. */
static int read_forced(struct openai_body *b, const json_t *choice, const char **param,
                       struct err *e)
{
    const char *name =
        json_string_value(json_object_get(json_object_get(choice, "function"), "name"));
    b->must_call = b->holds_calls = true;
    if (!b->tools)
        return body_field_refuse(param, "tool_choice", e,
                                 "nothing can be called: \"tools\" are missing");
    for (size_t i = 0; name && i < b->tool_names.n; i++)
        if (strcmp(b->tool_names.items[i], name) == 0)
            b->forced_name = b->tool_names.items[i];
    return b->forced_name || !name ? 0
                                   : body_field_refuse(param, "tool_choice", e,
                                                       "names a function that \"tools\" do not "
                                                       "have");
}

/* What cannot be had together. */
static int check_offer(struct openai_body *b, const char **param, struct err *e)
{
    if (b->structured && !openai_grammar_formats(b->root))
        return body_field_refuse(
            param, "tools", e,
            "beside functions an answer can be held to \"response_format\", and "
            "to nothing else");
    if (b->structured) { /* one grammar has both */
        b->formats_text = b->holds_calls = true;
        b->structured = false;
    }
    if (b->holds_calls && b->ignore_end)
        return body_field_refuse(param, "ignore_eos", e,
                                 "an answer whose calls are held to a grammar ends with it");
    return 0;
}

/* "required", or one function: {"type": "function", "function": {"name": ..}}. */
static bool forces_call(const json_t *choice)
{
    const json_t *name = json_object_get(json_object_get(choice, "function"), "name");
    return is_word(choice, "required") ||
           (is_word(json_object_get(choice, "type"), "function") && json_is_string(name));
}

int tools_body_read(struct openai_body *b, const char **param, struct err *e)
{
    json_t *tools = json_object_get(b->root, "tools");
    const json_t *choice = json_object_get(b->root, "tool_choice");
    const json_t *parallel = json_object_get(b->root, "parallel_tool_calls");
    bool forces = forces_call(choice);
    if (choice && !json_is_null(choice) && !is_word(choice, "auto") && !is_word(choice, "none") &&
        !forces)
        return body_field_refuse(param, "tool_choice", e,
                                 "may be \"auto\", \"none\", \"required\" or a function: "
                                 "{\"type\": \"function\", \"function\": {\"name\": ..}}");
    if (parallel && !json_is_null(parallel) && !json_is_boolean(parallel))
        return body_field_refuse(param, "parallel_tool_calls", e, "must be true or false");
    b->one_call = json_is_false(parallel);
    if (!b->chat && json_array_size(tools))
        return body_field_refuse(param, "tools", e, "only chats have tools");
    int rc = tools && !json_is_null(tools) ? read_tools(b, tools, param, e) : 0;
    if (is_word(choice, "none"))
        b->tools = NULL;
    b->offers_tools = b->tools != NULL;
    b->holds_calls &= b->offers_tools;
    rc = rc == 0 && forces ? read_forced(b, choice, param, e) : rc;
    return rc == 0 && b->offers_tools ? check_offer(b, param, e) : rc;
}

/* ---- calls in messages ---- */

/* What the text that a model wrote once has that no arguments may have. */
static int arguments_refuse(const char *why, const char **param, struct err *e)
{
    char text[400];
    snprintf(text, sizeof text, "a call's \"arguments\" are not a JSON object%s%s",
             *why ? ": " : "", why);
    return body_field_refuse(param, "messages", e, text);
}

/* Their texts become trees, which cost as much as the body's own. */
static int read_arguments(struct openai_body *b, json_t *function, size_t *bytes,
                          const char **param, struct err *e)
{
    json_t *arguments = json_object_get(function, "arguments"), *tree = NULL;
    struct err why = {0};
    size_t n = json_string_length(arguments);
    if (json_is_object(arguments))
        return 0;
    if (!json_is_string(arguments))
        return body_field_refuse(param, "messages", e,
                                 "a call's \"arguments\" must be a JSON object as a text");
    if ((*bytes += n) > MAX_ARGUMENTS_BYTES)
        return body_field_refuse(param, "messages", e,
                                 "calls have more than 2 MiB of arguments together");
    int rc = n ? body_measure_load_within(json_string_value(arguments), n, NULL, &b->values_left,
                                          &tree, NULL, &why)
               : 0;
    if (rc == HP_ENOMEM || (!n && !(tree = json_object())))
        return no_memory(e);
    if (rc < 0 || !json_is_object(tree)) {
        json_decref(tree);
        return arguments_refuse(why.text, param, e);
    }
    return json_object_set_new(function, "arguments", tree) == 0 ? 0 : no_memory(e);
}

static int read_calls(struct openai_body *b, const json_t *calls, size_t *bytes, const char **param,
                      struct err *e)
{
    int rc = 0;
    for (size_t i = 0; i < json_array_size(calls) && rc == 0; i++) {
        json_t *function = json_object_get(json_array_get(calls, i), "function");
        const char *name = json_string_value(json_object_get(function, "name"));
        rc = name && *name ? read_arguments(b, function, bytes, param, e)
                           : body_field_refuse(param, "messages", e,
                                               "a call in \"tool_calls\" needs a \"function\" "
                                               "with a \"name\"");
    }
    return rc;
}

int tools_body_messages(struct openai_body *b, const char **param, struct err *e)
{
    json_t *message;
    size_t i, bytes = 0;
    int rc = 0;
    json_array_foreach(b->messages, i, message)
    {
        const json_t *calls = json_object_get(message, "tool_calls");
        if (rc == 0 && calls && !json_is_null(calls) && !json_is_array(calls))
            rc = body_field_refuse(param, "messages", e, "\"tool_calls\" must be a list");
        if (rc == 0 && json_array_size(calls) == 0)
            json_object_del(message, "tool_calls");
        else if (rc == 0)
            rc = read_calls(b, calls, &bytes, param, e);
    }
    return rc;
}

void tools_body_free(struct openai_body *b)
{
    for (size_t i = 0; i < b->tool_names.n; i++)
        free(b->tool_names.items[i]);
    free(b->tool_names.items);
    b->tool_names = (struct tool_names){0};
}
