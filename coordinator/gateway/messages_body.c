#include "coordinator/gateway/messages_body.h"

#include <string.h>

#include "common/bytes.h"
#include "coordinator/gateway/body_fields.h"

static const char *word_of(const json_t *of, const char *name)
{
    const char *word = json_string_value(json_object_get(of, name));
    return word ? word : "";
}

static bool type_is(const json_t *of, const char *type)
{
    return strcmp(word_of(of, "type"), type) == 0;
}

/* ---- tools ---- */

int message_tools_check(const json_t *root, const char **param, struct err *e)
{
    const json_t *tools = json_object_get(root, "tools"), *tool;
    const json_t *choice = json_object_get(root, "tool_choice");
    size_t i;
    if (tools && !json_is_null(tools) && !json_is_array(tools))
        return body_field_refuse(param, "tools", e, "must be a list");
    json_array_foreach(tools, i, tool)
    {
        if (*word_of(tool, "type") && !type_is(tool, "custom"))
            return body_field_refuse(param, "tools", e,
                                     "this server has no tools of its own: each must have \"name\" "
                                     "and \"input_schema\"");
    }
    if (!choice || json_is_null(choice) || type_is(choice, "auto") || type_is(choice, "any") ||
        type_is(choice, "none") || (type_is(choice, "tool") && *word_of(choice, "name")))
        return 0;
    return body_field_refuse(param, "tool_choice", e,
                             "its \"type\" may be \"auto\", \"any\", \"none\", or \"tool\" with "
                             "a \"name\"");
}

static bool tools_move(json_t *to, const json_t *tools)
{
    json_t *all = json_array(), *tool;
    bool fine = all && json_object_set(to, "tools", all) == 0;
    size_t i;
    json_array_foreach(tools, i, tool)
    {
        json_t *function = json_pack(
            "{s:O*, s:O*, s:O*, s:O*}", "name", json_object_get(tool, "name"), "description",
            json_object_get(tool, "description"), "parameters",
            json_object_get(tool, "input_schema"), "strict", json_object_get(tool, "strict"));
        fine = fine && function &&
               json_array_append_new(
                   all, json_pack("{s:s, s:O}", "type", "function", "function", function)) == 0;
        json_decref(function);
    }
    json_decref(all);
    return fine;
}

bool message_tools_move(json_t *to, const json_t *from)
{
    const json_t *tools = json_object_get(from, "tools");
    const json_t *choice = json_object_get(from, "tool_choice");
    bool fine = json_array_size(tools) == 0 || tools_move(to, tools);
    if (!fine || !choice || json_is_null(choice))
        return fine;
    if (json_is_true(json_object_get(choice, "disable_parallel_tool_use")))
        fine = json_object_set_new(to, "parallel_tool_calls", json_false()) == 0;
    json_t *here = type_is(choice, "tool")
                       ? json_pack("{s:s, s:{s:s}}", "type", "function", "function", "name",
                                   word_of(choice, "name"))
                       : json_string(type_is(choice, "any") ? "required" : word_of(choice, "type"));
    return json_object_set_new(to, "tool_choice", here) == 0 && fine;
}

/* ---- turns ---- */

static bool call_append(json_t *calls, const json_t *block)
{
    json_t *input = json_object_get(block, "input");
    json_t *call = json_pack("{s:s, s:s, s:{s:s, s:o}}", "id", word_of(block, "id"), "type",
                             "function", "function", "name", word_of(block, "name"), "arguments",
                             input && !json_is_null(input) ? json_incref(input) : json_object());
    return json_array_append_new(calls, call) == 0;
}

static bool result_append(json_t *all, const json_t *block)
{
    json_t *content = json_object_get(block, "content");
    json_t *message =
        json_pack("{s:s, s:s, s:o}", "role", "tool", "tool_call_id", word_of(block, "tool_use_id"),
                  "content", content ? json_incref(content) : json_string(""));
    return json_array_append_new(all, message) == 0;
}

struct turn_parts {
    json_t *content, *calls;
    struct buffer reasoning;
};

static bool block_sort(json_t *all, struct turn_parts *p, json_t *block)
{
    const char *thinking = word_of(block, "thinking");
    if (type_is(block, "tool_use"))
        return call_append(p->calls, block);
    if (type_is(block, "tool_result"))
        return result_append(all, block);
    if (type_is(block, "thinking"))
        buffer_append(&p->reasoning, thinking, strlen(thinking));
    else if (!type_is(block, "redacted_thinking"))
        return json_array_append(p->content, block) == 0;
    return !p->reasoning.failed;
}

/* What is left of a turn behind its results. */
static bool turn_finish(json_t *all, const json_t *turn, const struct turn_parts *p,
                        const char *reasoning)
{
    size_t n_calls = json_array_size(p->calls), n_content = json_array_size(p->content);
    bool left = n_calls + n_content + p->reasoning.size > 0;
    json_t *message = left ? json_pack("{s:s}", "role", word_of(turn, "role")) : NULL;
    bool fine = !left || message;
    if (left && fine && (n_content || !n_calls))
        fine = json_object_set(message, "content", p->content) == 0;
    if (left && fine && n_calls)
        fine = json_object_set(message, "tool_calls", p->calls) == 0;
    if (left && fine && p->reasoning.size)
        fine = json_object_set_new(message, "reasoning_content", json_string(reasoning)) == 0;
    if (left && fine)
        fine = json_array_append(all, message) == 0;
    json_decref(message);
    return fine;
}

bool message_turn_add(json_t *all, json_t *turn)
{
    json_t *blocks = json_object_get(turn, "content"), *block;
    struct turn_parts p = {0};
    size_t i;
    if (json_array_size(blocks) == 0)
        return json_array_append(all, turn) == 0;
    p.content = json_array();
    p.calls = json_array();
    bool fine = p.content && p.calls;
    json_array_foreach(blocks, i, block)
    {
        fine = fine && block_sort(all, &p, block);
    }
    fine = fine && turn_finish(all, turn, &p, buffer_cstr(&p.reasoning));
    json_decref(p.content);
    json_decref(p.calls);
    buffer_free(&p.reasoning);
    return fine;
}
