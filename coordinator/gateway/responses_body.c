#include "coordinator/gateway/responses_body.h"

#include <stdlib.h>
#include <string.h>

#include "common/bytes.h"
#include "coordinator/gateway/body_fields.h"
#include "coordinator/gateway/dialect_fields.h"

static const char *word_of(const json_t *of, const char *name)
{
    const char *word = json_string_value(json_object_get(of, name));
    return word ? word : "";
}

static bool type_is(const json_t *of, const char *type)
{
    return strcmp(word_of(of, "type"), type) == 0;
}

/* An item without a type is a message, if it has a role. */
static bool item_is_message(const json_t *item)
{
    return type_is(item, "message") || (!*word_of(item, "type") && *word_of(item, "role"));
}

/* ---- what is refused ---- */

static int input_check(const json_t *input, const char **param, struct err *e)
{
    const json_t *item;
    size_t i;
    if (!json_is_string(input) && !json_is_array(input))
        return body_field_refuse(param, "input", e, "must be a text or a list of items");
    json_array_foreach(input, i, item)
    {
        if (!item_is_message(item) && !type_is(item, "function_call") &&
            !type_is(item, "function_call_output") && !type_is(item, "reasoning"))
            return body_field_refuse(param, "input", e,
                                     "an item's \"type\" may be message, function_call, "
                                     "function_call_output or reasoning: nothing is kept here that "
                                     "others could name");
        bool said = field_asks(item, "content") || json_is_string(json_object_get(item, "content"));
        if (item_is_message(item) && !said)
            return body_field_refuse(param, "input", e, "a message has no \"content\"");
        if (type_is(item, "function_call_output") && !json_object_get(item, "output"))
            return body_field_refuse(param, "input", e, "a function_call_output has no \"output\"");
        if (type_is(item, "function_call") &&
            (!*word_of(item, "name") || !*word_of(item, "call_id")))
            return body_field_refuse(param, "input", e,
                                     "a function_call has no \"name\" or no \"call_id\"");
    }
    return 0;
}

static int tools_check(const json_t *root, const char **param, struct err *e)
{
    const json_t *tools = json_object_get(root, "tools"), *tool;
    const json_t *choice = json_object_get(root, "tool_choice");
    size_t i;
    if (tools && !json_is_null(tools) && !json_is_array(tools))
        return body_field_refuse(param, "tools", e, "must be a list");
    json_array_foreach(tools, i, tool)
    {
        if (!type_is(tool, "function") || !*word_of(tool, "name"))
            return body_field_refuse(param, "tools", e,
                                     "this server has no tools of its own: each must be of type "
                                     "\"function\" and have a \"name\"");
    }
    if (json_is_object(choice) && (!type_is(choice, "function") || !*word_of(choice, "name")))
        return body_field_refuse(param, "tool_choice", e,
                                 "may be \"auto\", \"none\", \"required\", or a function with its "
                                 "\"name\"");
    return 0;
}

/* What would be ignored, were it of another type. */
static int types_check(const json_t *root, const char **param, struct err *e)
{
    const json_t *text = json_object_get(root, "text"),
                 *reasoning = json_object_get(root, "reasoning"),
                 *include = json_object_get(root, "include");
    int rc = body_field_object(text, "text", param, e);
    rc = rc < 0 ? rc : body_field_object(reasoning, "reasoning", param, e);
    rc = rc < 0 ? rc : body_field_object(json_object_get(root, "metadata"), "metadata", param, e);
    rc = rc < 0
             ? rc
             : body_field_text(json_object_get(reasoning, "effort"), "reasoning.effort", param, e);
    rc = rc < 0 ? rc
                : body_field_text(json_object_get(text, "verbosity"), "text.verbosity", param, e);
    rc = rc < 0 ? rc : body_field_text(json_object_get(root, "truncation"), "truncation", param, e);
    rc = rc < 0
             ? rc
             : body_field_content(json_object_get(root, "instructions"), "instructions", param, e);
    return rc < 0 || !include || json_is_null(include) || json_is_array(include)
               ? rc
               : body_field_refuse(param, "include", e, "must be a list");
}

int responses_body_check(const json_t *root, const char **param, struct err *e)
{
    static const struct {
        const char *name, *why;
    } refused[] = {
        {"previous_response_id", "no response is kept here: send its items as input"},
        {"conversation", "no conversation is kept here: send its items as input"},
        {"prompt", "no prompts are kept here: send instructions and input"},
        {"background", "a response is made while its client waits for it"},
        {"top_logprobs", "ask /v1/chat/completions for log-probabilities"},
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        const json_t *v = json_object_get(root, refused[i].name);
        if (field_asks(root, refused[i].name) && !(json_is_number(v) && json_number_value(v) <= 0))
            return body_field_refuse(param, refused[i].name, e, refused[i].why);
    }
    const char *truncation = word_of(root, "truncation");
    if (*truncation && strcmp(truncation, "disabled") != 0)
        return body_field_refuse(param, "truncation", e,
                                 "nothing is left out of an input: only \"disabled\" is there");
    const char *verbosity = word_of(json_object_get(root, "text"), "verbosity");
    if (*verbosity && strcmp(verbosity, "medium") != 0)
        return body_field_refuse(param, "text", e,
                                 "no model here is told of a \"verbosity\": say so in a message, "
                                 "and leave it out");
    const json_t *more;
    size_t k;
    json_array_foreach(json_object_get(root, "include"), k, more)
    {
        if (json_is_string(more) &&
            strcmp(json_string_value(more), "message.output_text.logprobs") == 0)
            return body_field_refuse(param, "include", e,
                                     "ask /v1/chat/completions for log-probabilities");
    }
    int rc = types_check(root, param, e);
    rc = rc < 0 ? rc : tools_check(root, param, e);
    return rc < 0 ? rc : input_check(json_object_get(root, "input"), param, e);
}

/* ---- input ---- */

/* Parts of text are as chats have them, under another name; others are refused as those are. */
static json_t *content_of(json_t *content)
{
    json_t *all, *part;
    size_t i;
    if (!json_is_array(content))
        return content ? json_incref(content) : json_null();
    all = json_array();
    json_array_foreach(content, i, part)
    {
        bool text =
            type_is(part, "input_text") || type_is(part, "output_text") || type_is(part, "refusal");
        const char *key = type_is(part, "refusal") ? "refusal" : "text";
        json_t *own =
            text ? json_pack("{s:s, s:O*}", "type", "text", "text", json_object_get(part, key))
                 : json_incref(part);
        if (json_array_append_new(all, own) < 0) {
            json_decref(all);
            return NULL;
        }
    }
    return all;
}

static bool item_message_add(json_t *all, const json_t *item)
{
    const char *role = word_of(item, "role");
    json_t *content = content_of(json_object_get(item, "content"));
    bool fine =
        content && message_add(all, strcmp(role, "developer") == 0 ? "system" : role, content);
    json_decref(content);
    return fine;
}

/* Calls that follow each other are of one turn. */
static bool item_call_add(json_t *all, const json_t *item)
{
    json_t *last = json_array_get(all, json_array_size(all) - 1),
           *calls = json_object_get(last, "tool_calls");
    json_t *given = json_object_get(item, "arguments");
    json_t *arguments = given && !json_is_null(given) ? json_incref(given) : json_string("");
    json_t *call =
        json_pack("{s:s, s:s, s:{s:s, s:o}}", "id", word_of(item, "call_id"), "type", "function",
                  "function", "name", word_of(item, "name"), "arguments", arguments);
    if (calls)
        return json_array_append_new(calls, call) == 0;
    json_t *turn = call ? json_pack("{s:s, s:[o]}", "role", "assistant", "tool_calls", call) : NULL;
    return turn && json_array_append_new(all, turn) == 0;
}

static bool item_output_add(json_t *all, const json_t *item)
{
    json_t *content = content_of(json_object_get(item, "output"));
    json_t *turn = json_pack("{s:s, s:s, s:o}", "role", "tool", "tool_call_id",
                             word_of(item, "call_id"), "content", content);
    return turn && json_array_append_new(all, turn) == 0;
}

static bool item_add(json_t *all, const json_t *item)
{
    if (type_is(item, "reasoning")) /* of an earlier answer: templates leave it out */
        return true;
    return type_is(item, "function_call")          ? item_call_add(all, item)
           : type_is(item, "function_call_output") ? item_output_add(all, item)
                                                   : item_message_add(all, item);
}

bool responses_input_move(json_t *to, const json_t *from)
{
    json_t *input = json_object_get(from, "input"), *all = json_array(), *item;
    size_t i;
    bool fine = all && json_object_set(to, "messages", all) == 0;
    if (fine && field_asks(from, "instructions"))
        fine = message_add(all, "system", json_object_get(from, "instructions"));
    if (fine && json_is_string(input))
        fine = message_add(all, "user", input);
    json_array_foreach(input, i, item)
    {
        fine = fine && item_add(all, item);
    }
    json_decref(all);
    return fine;
}

/* ---- tools, format, reasoning ---- */

static json_t *function_of(const json_t *tool)
{
    return json_pack("{s:s, s:{s:O*, s:O*, s:O*, s:O*}}", "type", "function", "function", "name",
                     json_object_get(tool, "name"), "description",
                     json_object_get(tool, "description"), "parameters",
                     json_object_get(tool, "parameters"), "strict",
                     json_object_get(tool, "strict"));
}

bool responses_tools_move(json_t *to, const json_t *from)
{
    const json_t *tools = json_object_get(from, "tools"), *tool;
    json_t *choice = json_object_get(from, "tool_choice");
    size_t i;
    bool fine = true;
    if (json_array_size(tools)) {
        json_t *all = json_array();
        fine = all && json_object_set_new(to, "tools", all) == 0;
        json_array_foreach(tools, i, tool)
        {
            fine = fine && json_array_append_new(all, function_of(tool)) == 0;
        }
    }
    if (!fine || !choice || json_is_null(choice) || !json_array_size(tools))
        return fine;
    json_t *own = json_is_object(choice) ? json_pack("{s:s, s:{s:s}}", "type", "function",
                                                     "function", "name", word_of(choice, "name"))
                                         : json_incref(choice);
    return json_object_set_new(to, "tool_choice", own) == 0;
}

bool responses_format_move(json_t *to, const json_t *from)
{
    json_t *format = json_object_get(json_object_get(from, "text"), "format");
    if (!format || json_is_null(format))
        return true;
    if (!type_is(format, "json_schema"))
        return json_object_set(to, "response_format", format) == 0;
    json_t *own =
        json_pack("{s:s, s:{s:O*, s:O*, s:O*}}", "type", "json_schema", "json_schema", "name",
                  json_object_get(format, "name"), "schema", json_object_get(format, "schema"),
                  "strict", json_object_get(format, "strict"));
    return own && json_object_set_new(to, "response_format", own) == 0;
}

bool responses_reasoning_move(json_t *to, const json_t *from)
{
    const char *effort = word_of(json_object_get(from, "reasoning"), "effort");
    if (!*effort)
        return true;
    json_t *own = json_pack("{s:s, s:b}", "reasoning_effort", effort, "enable_thinking",
                            strcmp(effort, "none") != 0);
    return own && json_object_set_new(to, "chat_template_kwargs", own) == 0;
}

/* ---- what an answer says of it ---- */

enum { ASKED_MEMBER_MAX_BYTES = 16 << 10 };

/* `usual`, JSON, where it is not there, null, or too long to be said again. */
static void asked_write(struct buffer *out, const char *name, const json_t *v, const char *usual)
{
    bool given = v && !json_is_null(v);
    char *text = given ? json_dumps(v, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
    bool fits = text && strlen(text) <= ASKED_MEMBER_MAX_BYTES;
    buffer_printf(out, ",\"%s\":%s", name, fits ? text : usual);
    out->failed |= given && !text;
    free(text);
}

bool responses_asked_add(json_t *to, const json_t *from)
{
    static const char *const members[][2] = {{"instructions", "null"},
                                             {"max_output_tokens", "null"},
                                             {"metadata", "{}"},
                                             {"temperature", "null"},
                                             {"parallel_tool_calls", "true"},
                                             {"tool_choice", "\"auto\""},
                                             {"tools", "[]"},
                                             {"top_p", "null"}};
    const json_t *reasoning = json_object_get(from, "reasoning");
    const json_t *format = json_object_get(json_object_get(from, "text"), "format");
    struct buffer out = {0};
    for (size_t i = 0; i < sizeof members / sizeof *members; i++)
        asked_write(&out, members[i][0], json_object_get(from, members[i][0]), members[i][1]);
    buffer_printf(&out, ",\"reasoning\":{\"summary\":null");
    asked_write(&out, "effort", json_object_get(reasoning, "effort"), "null");
    buffer_printf(&out, "},\"text\":{\"verbosity\":\"medium\"");
    asked_write(&out, "format", format, "{\"type\":\"text\"}");
    buffer_printf(&out, "}");
    bool fine = !out.failed &&
                json_object_set_new(to, "asked", json_stringn(buffer_cstr(&out), out.size)) == 0;
    buffer_free(&out);
    return fine;
}
