#include "coordinator/gateway/tool_call.h"

#include <jansson.h>
#include <string.h>

#include "common/json.h"

/* ---- where values lie in a text that was found to be JSON ---- */

static size_t space_skip(const char *text, size_t at)
{
    return at + strspn(text + at, " \t\r\n");
}

static size_t string_skip(const char *text, size_t at)
{
    for (at++; text[at] && text[at] != '"'; at++)
        at += text[at] == '\\' && text[at + 1];
    return at + (text[at] == '"');
}

static size_t value_skip(const char *text, size_t at)
{
    size_t depth = 0;
    if (text[at] != '"' && text[at] != '{' && text[at] != '[')
        return at + strcspn(text + at, ",]} \t\r\n");
    do {
        depth += text[at] == '{' || text[at] == '[';
        depth -= text[at] == '}' || text[at] == ']';
        at = text[at] == '"' ? string_skip(text, at) : at + 1;
    } while (depth > 0 && text[at]);
    return at;
}

/* The value of a member of the object at `at`; false where its name is not spelled out so. */
static bool member_find(const char *text, size_t at, const char *name, size_t *from, size_t *end)
{
    size_t n = strlen(name);
    at = space_skip(text, at + 1);
    while (text[at] == '"') {
        size_t key = at + 1;
        at = string_skip(text, at);
        bool same = at - key == n + 1 && memcmp(text + key, name, n) == 0;
        at = space_skip(text, at);
        *from = space_skip(text, at + 1); /* behind the colon */
        *end = value_skip(text, *from);
        if (same)
            return true;
        at = space_skip(text, *end);
        at = space_skip(text, at + (text[at] == ','));
    }
    return false;
}

/* ---- calls ---- */

static bool name_known(const struct tool_names *names, const char *name)
{
    for (size_t i = 0; name && i < names->n; i++)
        if (strcmp(names->items[i], name) == 0)
            return true;
    return false;
}

/* One that stands alone, without a mark before it, is a call only if it has arguments. */
static bool is_call(const struct tool_format *f, const struct tool_names *names, const json_t *v)
{
    const json_t *arguments = json_object_get(v, f->arguments);
    return name_known(names, json_string_value(json_object_get(v, "name"))) &&
           (arguments ? json_is_object(arguments) : !f->whole);
}

/* False: its arguments are there, but not under a name that is spelled out. */
static bool call_at(const struct tool_format *f, const json_t *v, const char *text, size_t at,
                    struct tool_call *out)
{
    size_t from, end;
    bool found = member_find(text, at, f->arguments, &from, &end);
    out->name = json_string_value(json_object_get(v, "name"));
    out->arguments = found ? text + from : "{}";
    out->n_arguments = found ? end - from : 2;
    return found || !json_object_get(v, f->arguments);
}

/* All calls of the value: checked, and with `each` told. */
static bool calls_walk(const struct tool_format *f, const struct tool_names *names,
                       const json_t *root, const char *text,
                       void (*each)(void *ctx, const struct tool_call *call), void *ctx)
{
    size_t n = f->list ? json_array_size(root) : 1, at = space_skip(text, 0);
    at = f->list ? space_skip(text, at + 1) : at;
    for (size_t i = 0; i < n; i++) {
        const json_t *v = f->list ? json_array_get(root, i) : root;
        struct tool_call call;
        if (!is_call(f, names, v) || !call_at(f, v, text, at, &call))
            return false;
        if (each)
            each(ctx, &call);
        at = space_skip(text, value_skip(text, at));
        at = space_skip(text, at + (text[at] == ','));
    }
    return n > 0;
}

bool tool_arguments_are(const char *text, size_t size)
{
    json_t *root = NULL;
    struct json_at at;
    struct err ignored = {0};
    bool good =
        json_parse_wide_at("a call", text, size, &root, &at, &ignored) == 0 && json_is_object(root);
    json_decref(root);
    return good;
}

size_t tool_calls_read(const struct tool_format *f, const struct tool_names *names,
                       const char *text, size_t size,
                       void (*each)(void *ctx, const struct tool_call *call), void *ctx)
{
    json_t *root = NULL;
    struct json_at at;
    struct err ignored = {0};
    if (json_parse_wide_at("a call", text, size, &root, &at, &ignored) < 0)
        return 0;
    size_t n = f->list ? json_array_size(root) : 1;
    if (json_is_array(root) == f->list && calls_walk(f, names, root, text, NULL, NULL))
        calls_walk(f, names, root, text, each, ctx);
    else
        n = 0;
    json_decref(root);
    return n;
}
