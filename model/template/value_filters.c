/* Filters on one value: its text, its length, its JSON. */
#include <string.h>

#include "common/utf8.h"
#include "model/template/access.h"
#include "model/template/arithmetic.h"
#include "model/template/collections.h"
#include "model/template/filters.h"
#include "model/template/methods.h"
#include "model/template/print.h"

static int as_text(struct run *r, const struct value *in, struct value *out)
{
    struct text t = {"", 0};
    int rc = value_to_text(r, in, &t);
    *out = value_text(t);
    out->safe = in->type == VALUE_STRING && in->safe;
    return rc;
}

static int filter_string(struct run *r, const struct value *in, const struct arguments *args,
                         struct value *out)
{
    (void)args;
    return as_text(r, in, out);
}

/* A method of strings, on the value as a string. */
static int text_method(struct run *r, enum method_id id, const struct value *in,
                       const struct arguments *args, struct value *out)
{
    struct method m = {.id = id};
    int rc = as_text(r, in, &m.self);
    return rc < 0 ? rc : run_method(r, &m, args, out);
}

static int filter_trim(struct run *r, const struct value *in, const struct arguments *args,
                       struct value *out)
{
    return text_method(r, METHOD_STRIP, in, args, out);
}

static int filter_upper(struct run *r, const struct value *in, const struct arguments *args,
                        struct value *out)
{
    return text_method(r, METHOD_UPPER, in, args, out);
}

static int filter_lower(struct run *r, const struct value *in, const struct arguments *args,
                        struct value *out)
{
    return text_method(r, METHOD_LOWER, in, args, out);
}

static int filter_replace(struct run *r, const struct value *in, const struct arguments *args,
                          struct value *out)
{
    return text_method(r, METHOD_REPLACE, in, args, out);
}

static int filter_capitalize(struct run *r, const struct value *in, const struct arguments *args,
                             struct value *out)
{
    return text_method(r, METHOD_CAPITALIZE, in, args, out);
}

/* A capital after white space, a hyphen or an opening bracket, unlike str.title. */
static int filter_title(struct run *r, const struct value *in, const struct arguments *args,
                        struct value *out)
{
    (void)args;
    struct value text;
    int rc = as_text(r, in, &text);
    struct buffer b = {0};
    struct text t = rc < 0 ? (struct text){"", 0} : text.string;
    bool first = true;
    for (size_t at = 0; at < t.size;) {
        uint32_t c = 0;
        int length = utf8_decode(t.data + at, t.size - at, &c);
        size_t n = length > 0 ? (size_t)length : 1;
        bool separator = text_space(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
        text_case((struct text){t.data + at, n}, first && !separator ? CASE_UPPER : CASE_LOWER, &b);
        first = separator;
        at += n;
    }
    return value_of_buffer(r, &b, rc, out);
}

static int filter_default(struct run *r, const struct value *in, const struct arguments *args,
                          struct value *out)
{
    (void)r;
    const struct value *fallback = argument_get(args, 0, "default_value");
    bool missing = in->type == VALUE_UNDEFINED ||
                   (argument_true(args, 1, "boolean", false) && !value_true(in));
    *out = !missing ? *in : fallback ? *fallback : value_text((struct text){"", 0});
    return 0;
}

static int filter_length(struct run *r, const struct value *in, const struct arguments *args,
                         struct value *out)
{
    (void)args;
    switch (in->type) {
    case VALUE_STRING:
        *out = value_integer((int64_t)text_length(in->string));
        return run_tick_text(r, in->string.size);
    case VALUE_LIST:
        if (in->list->kind == LIST_LAZY)
            break;
        *out = value_integer((int64_t)in->list->n);
        return 0;
    case VALUE_DICT: *out = value_integer((int64_t)in->dict->n); return 0;
    case VALUE_UNDEFINED: *out = value_integer(0); return 0;
    default: break;
    }
    return run_fail(r, HP_EINVAL, "object of type '%s' has no len()", value_type_word(in));
}

static int filter_indent(struct run *r, const struct value *in, const struct arguments *args,
                         struct value *out)
{
    const struct value *width = argument_get(args, 0, "width");
    bool first = argument_true(args, 1, "first", false),
         blank = argument_true(args, 2, "blank", false);
    int64_t spaces = 4;
    struct text by = {NULL, 0}, t = {"", 0};
    int rc = value_to_text(r, in, &t);
    if (width && width->type == VALUE_STRING)
        by = width->string;
    else if (rc == 0)
        rc = argument_integer(r, args, 0, "width", 4, &spaces);
    if (rc < 0 || spaces > 1000)
        return rc < 0 ? rc : run_fail(r, HP_ELIMIT, "an indentation of %lld", (long long)spaces);
    struct buffer b = {0};
    /* A line end at the very end stays: what is behind it is an empty line, indented like one. */
    for (size_t at = 0, line = 0; at <= t.size && b.size <= r->max_output; line++) {
        const char *end = memchr(t.data + at, '\n', t.size - at);
        size_t stop = end ? (size_t)(end - t.data) : t.size;
        size_t size = stop > at && t.data[stop - 1] == '\r' && end ? stop - 1 - at : stop - at;
        if (line)
            buffer_append(&b, "\n", 1);
        bool wanted = line == 0 ? first : blank || size > 0;
        if (wanted && by.data)
            buffer_append(&b, by.data, by.size);
        for (int64_t i = 0; wanted && !by.data && i < spaces; i++)
            buffer_append(&b, " ", 1);
        buffer_append(&b, t.data + at, size);
        at = stop + 1;
    }
    if (b.size > r->max_output)
        rc = run_fail(r, HP_ELIMIT, "a text is longer than %zu bytes", r->max_output);
    return value_of_buffer(r, &b, rc, out);
}

/* As chat templates have it: without escaping for HTML, and ", " and ": " between items on one
 * line. */
static int filter_tojson(struct run *r, const struct value *in, const struct arguments *args,
                         struct value *out)
{
    int64_t indent;
    const struct value *separators = argument_get(args, 2, "separators");
    int rc = argument_integer(r, args, 1, "indent", -1, &indent);
    if (rc == 0 && indent > 100)
        rc = run_fail(r, HP_ELIMIT, "an indentation of %lld", (long long)indent);
    if (rc < 0)
        return rc;
    struct json_style style = {.indent = (int)indent,
                               .item = text_of(indent < 0 ? ", " : ","),
                               .key = text_of(": "),
                               .ascii = argument_true(args, 0, "ensure_ascii", false),
                               .sorted = argument_true(args, 3, "sort_keys", false)};
    if (separators && separators->type == VALUE_LIST && separators->list->n == 2 &&
        separators->list->items[0].type == VALUE_STRING &&
        separators->list->items[1].type == VALUE_STRING) {
        style.item = separators->list->items[0].string;
        style.key = separators->list->items[1].string;
    }
    struct buffer b = {0};
    rc = value_print_json(r, in, &style, 0, &b);
    return value_of_buffer(r, &b, rc, out);
}

static int filter_safe(struct run *r, const struct value *in, const struct arguments *args,
                       struct value *out)
{
    (void)args;
    int rc = as_text(r, in, out);
    out->safe = rc == 0;
    return rc;
}

static int filter_escape(struct run *r, const struct value *in, const struct arguments *args,
                         struct value *out)
{
    (void)args;
    struct value text;
    int rc = as_text(r, in, &text);
    rc = rc < 0 ? rc : run_tick_text(r, text.string.size);
    struct buffer b = {0};
    if (rc == 0)
        value_print_escaped(text.string, &b);
    rc = value_of_buffer(r, &b, rc, out);
    out->safe = rc == 0;
    return rc;
}

/* What is marked already stays as it is. */
static int filter_escape_once(struct run *r, const struct value *in, const struct arguments *args,
                              struct value *out)
{
    if (in->type != VALUE_STRING || !in->safe)
        return filter_escape(r, in, args, out);
    *out = *in;
    return 0;
}

static int filter_wordcount(struct run *r, const struct value *in, const struct arguments *args,
                            struct value *out)
{
    struct value text;
    (void)args;
    int rc = as_text(r, in, &text);
    int64_t words = 0;
    bool inside = false;
    for (size_t at = 0; rc == 0 && at < text.string.size;) {
        uint32_t c = 0;
        int length = utf8_decode(text.string.data + at, text.string.size - at, &c);
        at += length > 0 ? (size_t)length : 1;
        bool is = text_word(c);
        words += is && !inside;
        inside = is;
    }
    *out = value_integer(words);
    return rc;
}

static int filter_format(struct run *r, const struct value *in, const struct arguments *args,
                         struct value *out)
{
    struct value tuple, text;
    int rc = as_text(r, in, &text);
    if (rc == 0)
        rc = value_new_list(r, LIST_TUPLE, args->n, &tuple);
    for (size_t i = 0; rc == 0 && i < args->n; i++)
        rc = list_push(r, tuple.list, args->values[i]);
    if (rc == 0 && args->n_named > 0)
        rc = value_new_dict(r, VALUE_DICT, &tuple);
    for (size_t i = 0; rc == 0 && i < args->n_named; i++)
        rc = dict_set(r, tuple.dict, args->named[i].key, args->named[i].value);
    return rc < 0 ? rc : run_binary(r, '%', &text, &tuple, out);
}

static int filter_attr(struct run *r, const struct value *in, const struct arguments *args,
                       struct value *out)
{
    struct text name;
    int rc = argument_text(r, args, 0, "name", (struct text){"", 0}, &name);
    if (rc < 0)
        return rc;
    /* Items of a dict are no attributes. */
    if (in->type == VALUE_DICT && method_named(VALUE_DICT, name) == METHOD_NONE) {
        *out = value_undefined(name);
        return 0;
    }
    return run_attribute(r, in, name, out);
}

const struct filter template_value_filters[] = {
    {"string", filter_string}, {"trim", filter_trim},          {"upper", filter_upper},
    {"lower", filter_lower},   {"replace", filter_replace},    {"capitalize", filter_capitalize},
    {"title", filter_title},   {"default", filter_default},    {"d", filter_default},
    {"length", filter_length}, {"count", filter_length},       {"indent", filter_indent},
    {"tojson", filter_tojson}, {"safe", filter_safe},          {"escape", filter_escape_once},
    {"e", filter_escape_once}, {"forceescape", filter_escape}, {"wordcount", filter_wordcount},
    {"format", filter_format}, {"attr", filter_attr},          {NULL, NULL},
};
