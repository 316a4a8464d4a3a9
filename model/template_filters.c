/* Filters on one value. Those that go through a list with a test or another filter are in
 * template_list_filters.c. */
#include "model/template_filters.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/utf8.h"

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
    out->safe = in->type == VALUE_STRING && in->safe;
    return rc;
}

static int filter_string(struct run *r, const struct value *in, const struct arguments *args,
                         struct value *out)
{
    (void)args;
    return as_text(r, in, out);
}

/* The string method of the same name, on the value as a string. */
static int by_method(struct run *r, const char *name, const struct value *in,
                     const struct arguments *args, struct value *out)
{
    struct method m = {.name = text_of(name)};
    int rc = as_text(r, in, &m.self);
    return rc < 0 ? rc : run_method(r, &m, args, out);
}

static int filter_trim(struct run *r, const struct value *in, const struct arguments *args,
                       struct value *out)
{
    return by_method(r, "strip", in, args, out);
}
static int filter_upper(struct run *r, const struct value *in, const struct arguments *args,
                        struct value *out)
{
    return by_method(r, "upper", in, args, out);
}
static int filter_lower(struct run *r, const struct value *in, const struct arguments *args,
                        struct value *out)
{
    return by_method(r, "lower", in, args, out);
}
static int filter_replace(struct run *r, const struct value *in, const struct arguments *args,
                          struct value *out)
{
    return by_method(r, "replace", in, args, out);
}

static int filter_capitalize(struct run *r, const struct value *in, const struct arguments *args,
                             struct value *out)
{
    return by_method(r, "capitalize", in, args, out);
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
    return finish(r, &b, rc, out);
}

static int filter_default(struct run *r, const struct value *in, const struct arguments *args,
                          struct value *out)
{
    (void)r;
    const struct value *fallback = argument(args, 0, "default_value");
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

/* A number spelled out, with white space around it allowed; false when it is none. */
static bool read_real(struct text t, struct value *out)
{
    char digits[64], *end;
    size_t n = 0;
    t = text_strip(t, (struct text){NULL, 0}, STRIP_LEFT | STRIP_RIGHT);
    if (t.size == 0 || t.size >= sizeof digits || memchr(t.data, 'x', t.size) ||
        memchr(t.data, 'X', t.size) || text_space((uint8_t)t.data[0]))
        return false;
    for (size_t i = 0; i < t.size; i++) {
        bool between = i > 0 && i + 1 < t.size && isdigit((uint8_t)t.data[i - 1]) &&
                       isdigit((uint8_t)t.data[i + 1]);
        if (t.data[i] != '_' || !between)
            digits[n++] = t.data[i];
    }
    digits[n] = 0;
    *out = value_real(strtod(digits, &end));
    return *end == 0 && end != digits;
}

/* A whole number in a base from 2 to 36, or 0 for the one that its prefix says, with "_" between
 * digits. *large: it is one, and beyond 64 bits. */
static bool read_whole(struct text t, int64_t base, struct value *out, bool *large)
{
    t = text_strip(t, (struct text){NULL, 0}, STRIP_LEFT | STRIP_RIGHT);
    bool negative = t.size > 0 && t.data[0] == '-', any = false, zero = false;
    size_t at = t.size > 0 && (negative || t.data[0] == '+');
    char letter = at + 1 < t.size && t.data[at] == '0' ? (char)(t.data[at + 1] | 0x20) : 0;
    int64_t said = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 0;
    bool prefixed = said && (base == 0 || base == said);
    base = base == 0 ? (said ? said : 10) : base;
    at += prefixed ? 2 : 0;
    uint64_t n = 0;
    for (bool after_bar = !prefixed; at < t.size; at++) {
        char c = t.data[at];
        if (c == '_' && (any || prefixed) && !after_bar) {
            after_bar = true;
            continue;
        }
        int digit = c >= '0' && c <= '9'                     ? c - '0'
                    : (c | 0x20) >= 'a' && (c | 0x20) <= 'z' ? (c | 0x20) - 'a' + 10
                                                             : 99;
        if (digit >= base)
            return false;
        *large |= __builtin_mul_overflow(n, (uint64_t)base, &n) ||
                  __builtin_add_overflow(n, (uint64_t)digit, &n) || n > INT64_MAX;
        any = true;
        after_bar = false;
    }
    zero = t.size > 0 && t.data[t.size - 1] == '_';
    *out = value_integer(negative ? -(int64_t)(n & INT64_MAX) : (int64_t)(n & INT64_MAX));
    return any && !zero;
}

static int filter_int(struct run *r, const struct value *in, const struct arguments *args,
                      struct value *out)
{
    const struct value *fallback = argument(args, 0, "default");
    struct value v = *in;
    if (v.type == VALUE_UNDEFINED)
        return run_fail(r, HP_EINVAL, "'%.*s' is undefined", (int)v.string.size, v.string.data);
    int64_t base;
    bool large = false;
    int rc = argument_integer(r, args, 1, "base", 10, &base);
    if (rc < 0)
        return rc;
    if (v.type == VALUE_STRING &&
        ((base != 0 && base < 2) || base > 36 || !read_whole(v.string, base, &v, &large)) &&
        !read_real(in->string, &v))
        v = value_none();
    if (large)
        return run_fail(r, HP_EUNSUPPORTED, "a whole number beyond 64 bits");
    if (v.type == VALUE_FLOAT && fabs(v.real) < 9.2e18)
        v = value_integer((int64_t)v.real);
    if (v.type == VALUE_INT || v.type == VALUE_BOOL)
        *out = value_integer(value_as_integer(&v));
    else
        *out = fallback ? *fallback : value_integer(0);
    return 0;
}

static int filter_float(struct run *r, const struct value *in, const struct arguments *args,
                        struct value *out)
{
    const struct value *fallback = argument(args, 0, "default");
    struct value v = *in;
    if (v.type == VALUE_UNDEFINED)
        return run_fail(r, HP_EINVAL, "'%.*s' is undefined", (int)v.string.size, v.string.data);
    if (v.type == VALUE_STRING && !read_real(v.string, &v))
        v = value_none();
    *out = value_is_number(&v) ? value_real(value_as_real(&v))
           : fallback          ? *fallback
                               : value_real(0);
    return 0;
}

static int filter_abs(struct run *r, const struct value *in, const struct arguments *args,
                      struct value *out)
{
    (void)args;
    if (!value_is_number(in))
        return run_fail(r, HP_EINVAL, "bad operand type for abs(): '%s'", value_type_word(in));
    *out =
        in->type == VALUE_FLOAT ? value_real(fabs(in->real)) : value_integer(value_as_integer(in));
    if (out->type == VALUE_INT && out->integer < 0)
        return run_binary(r, '-', &(struct value){.type = VALUE_INT}, out, out);
    return 0;
}

static int filter_round(struct run *r, const struct value *in, const struct arguments *args,
                        struct value *out)
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
        return run_fail(r, HP_EINVAL, "%s cannot be rounded to %lld places", value_type_word(in),
                        (long long)precision);
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

static int filter_indent(struct run *r, const struct value *in, const struct arguments *args,
                         struct value *out)
{
    const struct value *width = argument(args, 0, "width");
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
    return finish(r, &b, rc, out);
}

/* As chat templates have it: without escaping for HTML, and ", " and ": " between items on one
 * line. */
static int filter_tojson(struct run *r, const struct value *in, const struct arguments *args,
                         struct value *out)
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
        separators->list->items[0].type == VALUE_STRING &&
        separators->list->items[1].type == VALUE_STRING) {
        style.item = separators->list->items[0].string;
        style.key = separators->list->items[1].string;
    }
    struct buffer b = {0};
    rc = value_print_json(r, in, &style, 0, &b);
    return finish(r, &b, rc, out);
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
    rc = finish(r, &b, rc, out);
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
    if (in->type == VALUE_DICT && !template_has_method(VALUE_DICT, name)) {
        *out = value_undefined(name);
        return 0;
    }
    return run_attribute(r, in, name, out);
}

static const struct filter filters[] = {
    {"string", filter_string},       {"trim", filter_trim},       {"upper", filter_upper},
    {"lower", filter_lower},         {"replace", filter_replace}, {"capitalize", filter_capitalize},
    {"title", filter_title},         {"default", filter_default}, {"d", filter_default},
    {"length", filter_length},       {"count", filter_length},    {"int", filter_int},
    {"float", filter_float},         {"abs", filter_abs},         {"round", filter_round},
    {"indent", filter_indent},       {"tojson", filter_tojson},   {"safe", filter_safe},
    {"escape", filter_escape_once},  {"e", filter_escape_once},   {"forceescape", filter_escape},
    {"wordcount", filter_wordcount}, {"format", filter_format},   {"attr", filter_attr},
};

static filter_fn find(struct text name)
{
    for (size_t i = 0; i < sizeof filters / sizeof *filters; i++)
        if (text_is(name, filters[i].name))
            return filters[i].apply;
    static const struct filter *const others[] = {template_list_filters, template_text_filters,
                                                  template_group_filters};
    for (size_t k = 0; k < sizeof others / sizeof *others; k++)
        for (const struct filter *f = others[k]; f->name; f++)
            if (text_is(name, f->name))
                return f->apply;
    return NULL;
}

bool template_has_filter(struct text name)
{
    return find(name) != NULL;
}

int run_filter(struct run *r, struct text name, const struct value *in,
               const struct arguments *args, struct value *out)
{
    filter_fn apply = find(name);
    return apply ? apply(r, in, args, out)
                 : run_fail(r, HP_EUNSUPPORTED, "the filter \"%.*s\" is not known", (int)name.size,
                            name.data);
}
