/* Filters on one value. Those that go through a list with a test or another filter are in template_list_filters.c. */
#include "model/template_filters.h"

#include "common/utf8.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int finish(struct run *r, struct buffer *b, int rc, struct value *out)
{
    if (rc == 0)
        rc = value_copy_text(r, b, out);
    buffer_free(b);
    return rc;
}

static int as_text(struct run *r, const struct value *in, struct value *out)
{
    struct text t = {"", 0};
    int rc = value_to_text(r, in, &t);
    *out = value_text(t);
    return rc;
}

static int filter_string(struct run *r, const struct value *in, const struct arguments *args, struct value *out)
{
    (void)args;
    return as_text(r, in, out);
}

/* The string method of the same name, on the value as a string. */
static int by_method(struct run *r, const char *name, const struct value *in, const struct arguments *args, struct value *out)
{
    struct method m = {.name = text_of(name)};
    int rc = as_text(r, in, &m.self);
    return rc < 0 ? rc : run_method(r, &m, args, out);
}

static int filter_trim(struct run *r, const struct value *in, const struct arguments *args, struct value *out)
{
    return by_method(r, "strip", in, args, out);
}
static int filter_upper(struct run *r, const struct value *in, const struct arguments *args, struct value *out)
{
    return by_method(r, "upper", in, args, out);
}
static int filter_lower(struct run *r, const struct value *in, const struct arguments *args, struct value *out)
{
    return by_method(r, "lower", in, args, out);
}
static int filter_replace(struct run *r, const struct value *in, const struct arguments *args, struct value *out)
{
    return by_method(r, "replace", in, args, out);
}

static int filter_capitalize(struct run *r, const struct value *in, const struct arguments *args, struct value *out)
{
    return by_method(r, "capitalize", in, args, out);
}

/* A capital after white space, a hyphen or an opening bracket, unlike str.title. */
static int filter_title(struct run *r, const struct value *in, const struct arguments *args, struct value *out)
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
    return finish(r, &b, rc, out);
}

static int filter_default(struct run *r, const struct value *in, const struct arguments *args, struct value *out)
{
    (void)r;
    const struct value *fallback = argument(args, 0, "default_value");
    bool missing = in->type == VALUE_UNDEFINED || (argument_true(args, 1, "boolean", false) && !value_true(in));
    *out = !missing ? *in : fallback ? *fallback : value_text((struct text){"", 0});
    return 0;
}

static int filter_length(struct run *r, const struct value *in, const struct arguments *args, struct value *out)
{
    (void)args;
    switch (in->type) {
    case VALUE_STRING: *out = value_integer((int64_t)text_length(in->string)); return run_tick_text(r, in->string.size);
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

/* A number spelled out, with white space around it allowed; false when it is none. */
static bool read_number(struct text t, bool whole, struct value *out)
{
    char digits[64], *end;
    t = text_strip(t, (struct text){NULL, 0}, STRIP_LEFT | STRIP_RIGHT);
    if (t.size == 0 || t.size >= sizeof digits || memchr(t.data, 'x', t.size) || memchr(t.data, 'X', t.size) ||
        text_space((uint8_t)t.data[0]))
        return false;
    memcpy(digits, t.data, t.size);
    digits[t.size] = 0;
    if (whole)
        *out = value_integer(strtoll(digits, &end, 10));
    else
        *out = value_real(strtod(digits, &end));
    return *end == 0 && end != digits;
}

static int filter_int(struct run *r, const struct value *in, const struct arguments *args, struct value *out)
{
    const struct value *fallback = argument(args, 0, "default");
    struct value v = *in;
    if (v.type == VALUE_UNDEFINED)
        return run_fail(r, HP_EINVAL, "'%.*s' is undefined", (int)v.string.size, v.string.data);
    if (v.type == VALUE_STRING && !read_number(v.string, true, &v) && !read_number(in->string, false, &v))
        v = value_none();
    if (v.type == VALUE_FLOAT && fabs(v.real) < 9.2e18)
        v = value_integer((int64_t)v.real);
    if (v.type == VALUE_INT || v.type == VALUE_BOOL)
        *out = value_integer(value_as_integer(&v));
    else
        *out = fallback ? *fallback : value_integer(0);
    return 0;
}

static int filter_float(struct run *r, const struct value *in, const struct arguments *args, struct value *out)
{
    const struct value *fallback = argument(args, 0, "default");
    struct value v = *in;
    if (v.type == VALUE_UNDEFINED)
        return run_fail(r, HP_EINVAL, "'%.*s' is undefined", (int)v.string.size, v.string.data);
    if (v.type == VALUE_STRING && !read_number(v.string, false, &v))
        v = value_none();
    *out = value_is_number(&v) ? value_real(value_as_real(&v)) : fallback ? *fallback : value_real(0);
    return 0;
}

static int filter_abs(struct run *r, const struct value *in, const struct arguments *args, struct value *out)
{
    (void)args;
    if (!value_is_number(in))
        return run_fail(r, HP_EINVAL, "bad operand type for abs(): '%s'", value_type_word(in));
    *out = in->type == VALUE_FLOAT ? value_real(fabs(in->real)) : value_integer(value_as_integer(in));
    if (out->type == VALUE_INT && out->integer < 0)
        return run_binary(r, '-', &(struct value){.type = VALUE_INT}, out, out);
    return 0;
}

static int filter_round(struct run *r, const struct value *in, const struct arguments *args, struct value *out)
{
    int64_t precision;
    struct text method;
    char digits[400];
    int rc = argument_integer(r, args, 0, "precision", 0, &precision);
    if (rc == 0)
        rc = argument_text(r, args, 1, "method", text_of("common"), &method);
    if (rc < 0)
        return rc;
    if (!value_is_number(in) || precision < 0 || precision > 20)
        return run_fail(r, HP_EINVAL, "%s cannot be rounded to %lld places", value_type_word(in), (long long)precision);
    double d = value_as_real(in), scale = pow(10, (double)precision);
    if (text_is(method, "ceil") || text_is(method, "floor")) {
        *out = value_real((text_is(method, "ceil") ? ceil(d * scale) : floor(d * scale)) / scale);
        return 0;
    }
    *out = in->type == VALUE_FLOAT ? *in : value_integer(value_as_integer(in));
    if (in->type == VALUE_FLOAT && isfinite(d)) {
        snprintf(digits, sizeof digits, "%.*f", (int)precision, d);
        *out = value_real(strtod(digits, NULL));
    }
    return 0;
}

static int filter_indent(struct run *r, const struct value *in, const struct arguments *args, struct value *out)
{
    const struct value *width = argument(args, 0, "width");
    bool first = argument_true(args, 1, "first", false), blank = argument_true(args, 2, "blank", false);
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
    return finish(r, &b, rc, out);
}

/* As chat templates have it: without escaping for HTML, and ", " and ": " between items on one line. */
static int filter_tojson(struct run *r, const struct value *in, const struct arguments *args, struct value *out)
{
    int64_t indent;
    const struct value *separators = argument(args, 2, "separators");
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
        separators->list->items[0].type == VALUE_STRING && separators->list->items[1].type == VALUE_STRING) {
        style.item = separators->list->items[0].string;
        style.key = separators->list->items[1].string;
    }
    struct buffer b = {0};
    rc = value_print_json(r, in, &style, 0, &b);
    return finish(r, &b, rc, out);
}

static int filter_safe(struct run *r, const struct value *in, const struct arguments *args, struct value *out)
{
    (void)r, (void)args;
    *out = *in;
    return 0;
}

static int filter_escape(struct run *r, const struct value *in, const struct arguments *args, struct value *out)
{
    static const char from[] = "&<>'\"", *const to[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
    (void)args;
    struct value text;
    int rc = as_text(r, in, &text);
    struct buffer b = {0};
    for (size_t i = 0; rc == 0 && i < text.string.size; i++) {
        const char *hit = text.string.data[i] ? strchr(from, text.string.data[i]) : NULL;
        if (hit)
            buffer_printf(&b, "%s", to[hit - from]);
        else
            buffer_append(&b, text.string.data + i, 1);
    }
    return finish(r, &b, rc, out);
}

static int filter_wordcount(struct run *r, const struct value *in, const struct arguments *args, struct value *out)
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

static int filter_format(struct run *r, const struct value *in, const struct arguments *args, struct value *out)
{
    struct value tuple, text;
    int rc = as_text(r, in, &text);
    if (rc == 0)
        rc = value_new_list(r, LIST_TUPLE, args->n, &tuple);
    for (size_t i = 0; rc == 0 && i < args->n; i++)
        rc = list_push(r, tuple.list, args->values[i]);
    return rc < 0 ? rc : run_binary(r, '%', &text, &tuple, out);
}

static int filter_attr(struct run *r, const struct value *in, const struct arguments *args, struct value *out)
{
    struct text name;
    int rc = argument_text(r, args, 0, "name", (struct text){"", 0}, &name);
    return rc < 0 ? rc : run_attribute(r, in, name, out);
}

static const struct filter filters[] = {
    {"string", filter_string},       {"trim", filter_trim},       {"upper", filter_upper},
    {"lower", filter_lower},         {"replace", filter_replace}, {"capitalize", filter_capitalize},
    {"title", filter_title},         {"default", filter_default}, {"d", filter_default},
    {"length", filter_length},       {"count", filter_length},    {"int", filter_int},
    {"float", filter_float},         {"abs", filter_abs},         {"round", filter_round},
    {"indent", filter_indent},       {"tojson", filter_tojson},   {"safe", filter_safe},
    {"escape", filter_escape},       {"e", filter_escape},        {"forceescape", filter_escape},
    {"wordcount", filter_wordcount}, {"format", filter_format},   {"attr", filter_attr},
};

static filter_fn find(struct text name)
{
    for (size_t i = 0; i < sizeof filters / sizeof *filters; i++)
        if (text_is(name, filters[i].name))
            return filters[i].apply;
    for (size_t i = 0; template_list_filters[i].name; i++)
        if (text_is(name, template_list_filters[i].name))
            return template_list_filters[i].apply;
    return NULL;
}

bool template_has_filter(struct text name)
{
    return find(name) != NULL;
}

int run_filter(struct run *r, struct text name, const struct value *in, const struct arguments *args, struct value *out)
{
    filter_fn apply = find(name);
    return apply ? apply(r, in, args, out)
                 : run_fail(r, HP_EUNSUPPORTED, "the filter \"%.*s\" is not known", (int)name.size, name.data);
}
