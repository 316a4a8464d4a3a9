/* Values as text: Python's str and repr, and JSON. */
#include "model/template/print.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "common/utf8.h"
#include "model/template/collections.h"
#include "model/template/tree.h"

enum { PRINT_MAX_DEPTH = 200 };

/* The shortest digits that read back as the same number; an exponent below 1e-4 and from 1e16 on.
 */
void value_print_real(double d, struct buffer *out)
{
    char digits[40];
    if (isnan(d) || isinf(d)) {
        buffer_printf(out, "%s", isnan(d) ? "nan" : d > 0 ? "inf" : "-inf");
        return;
    }
    int precision = 0;
    do
        snprintf(digits, sizeof digits, "%.*e", precision, d);
    while (strtod(digits, NULL) != d && ++precision < 17);
    const char *e = strchr(digits, 'e');
    int exponent = e ? atoi(e + 1) : 0;
    if (exponent >= -4 && exponent < 16) {
        int decimals = precision - exponent;
        buffer_printf(out, "%.*f", decimals > 1 ? decimals : 1, d);
        return;
    }
    buffer_append(out, digits, (size_t)(e - digits));
    buffer_printf(out, "e%c%02d", exponent < 0 ? '-' : '+', abs(exponent));
}

static bool char_printable(uint32_t c)
{
    if (c < 0x7F)
        return c >= 0x20;
    switch (utf8proc_category((utf8proc_int32_t)c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP: return false;
    default: return true;
    }
}

static void print_repr_char(uint32_t c, char quote, struct buffer *out)
{
    if (c == '\n' || c == '\r' || c == '\t')
        buffer_printf(out, "\\%c", c == '\n' ? 'n' : c == '\r' ? 'r' : 't');
    else if (c == '\\' || c == (uint32_t)quote)
        buffer_printf(out, "\\%c", (char)c);
    else if (char_printable(c))
        utf8_append(out, c);
    else if (c < 0x100)
        buffer_printf(out, "\\x%02x", c);
    else
        buffer_printf(out, c < 0x10000 ? "\\u%04x" : "\\U%08x", c);
}

static void print_repr(struct text t, struct buffer *out)
{
    bool single = t.size && memchr(t.data, '\'', t.size),
         both = single && memchr(t.data, '"', t.size);
    char quote = single && !both ? '"' : '\'';
    buffer_append(out, &quote, 1);
    for (size_t at = 0; at < t.size;) {
        uint32_t c = 0;
        int length = utf8_decode(t.data + at, t.size - at, &c);
        print_repr_char(length > 0 ? c : UTF8_REPLACEMENT, quote, out);
        at += length > 0 ? (size_t)length : 1;
    }
    buffer_append(out, &quote, 1);
}

static int print_range(const struct list *l, struct buffer *out)
{
    buffer_printf(out, "range(%lld, %lld", (long long)l->start, (long long)l->stop);
    if (l->step != 1)
        buffer_printf(out, ", %lld", (long long)l->step);
    buffer_append(out, ")", 1);
    return 0;
}

static int print_list(struct run *r, const struct list *l, int depth, struct buffer *out)
{
    if (l->kind == LIST_RANGE)
        return print_range(l, out);
    bool tuple = l->kind == LIST_TUPLE;
    int rc = 0;
    buffer_append(out, tuple ? "(" : "[", 1);
    for (size_t i = 0; rc == 0 && i < l->n; i++) {
        if (i)
            buffer_append(out, ", ", 2);
        rc = value_print(r, &l->items[i], true, depth + 1, out);
    }
    if (tuple && l->n == 1)
        buffer_append(out, ",", 1);
    buffer_append(out, tuple ? ")" : "]", 1);
    return rc;
}

static int print_dict(struct run *r, const struct dict *d, int depth, struct buffer *out)
{
    int rc = 0;
    buffer_append(out, "{", 1);
    for (size_t i = 0; rc == 0 && i < d->n; i++) {
        if (i)
            buffer_append(out, ", ", 2);
        rc = value_print(r, &d->pairs[i].key, true, depth + 1, out);
        buffer_append(out, ": ", 2);
        if (rc == 0)
            rc = value_print(r, &d->pairs[i].value, true, depth + 1, out);
    }
    buffer_append(out, "}", 1);
    return rc;
}

int value_print(struct run *r, const struct value *v, bool quoted, int depth, struct buffer *out)
{
    if (depth > PRINT_MAX_DEPTH)
        return run_fail(r, HP_ELIMIT, "a value is nested deeper than %d", PRINT_MAX_DEPTH);
    if (out->size > r->max_output)
        return run_fail(r, HP_ELIMIT, "a text is longer than %zu bytes", r->max_output);
    int rc = run_tick(r, 1);
    if (rc < 0)
        return rc;
    switch (v->type) {
    case VALUE_UNDEFINED: buffer_printf(out, "%s", quoted ? "Undefined" : ""); return 0;
    case VALUE_NONE: buffer_printf(out, "None"); return 0;
    case VALUE_BOOL: buffer_printf(out, "%s", v->boolean ? "True" : "False"); return 0;
    case VALUE_INT: buffer_printf(out, "%lld", (long long)v->integer); return 0;
    case VALUE_FLOAT: value_print_real(v->real, out); return 0;
    case VALUE_STRING:
        if (quoted && v->safe)
            buffer_append(out, "Markup(", 7);
        if (quoted)
            print_repr(v->string, out);
        else
            buffer_append(out, v->string.data, v->string.size);
        if (quoted && v->safe)
            buffer_append(out, ")", 1);
        return run_tick_bytes(r, v->string.size);
    case VALUE_NAMESPACE:
        buffer_printf(out, "<Namespace ");
        rc = print_dict(r, v->dict, depth, out);
        buffer_append(out, ">", 1);
        return rc;
    case VALUE_MACRO:
        buffer_printf(out, "<Macro ");
        print_repr(v->macro->node->text, out);
        buffer_append(out, ">", 1);
        return 0;
    case VALUE_LIST: return print_list(r, v->list, depth, out);
    case VALUE_DICT: return print_dict(r, v->dict, depth, out);
    default: buffer_printf(out, "<%s>", value_type_word(v)); return 0;
    }
}

static int by_key(const void *pa, const void *pb);

/* A copy whose dicts have their keys in order. */
static int sorted_copy(struct run *r, const struct value *v, int depth, struct value *out)
{
    *out = *v;
    int rc = depth > PRINT_MAX_DEPTH
                 ? run_fail(r, HP_ELIMIT, "a value is nested deeper than %d", PRINT_MAX_DEPTH)
                 : run_tick(r, 1);
    if (rc == 0 && v->type == VALUE_LIST && v->list->kind != LIST_RANGE) {
        rc = value_new_list(r, v->list->kind, v->list->n, out);
        for (size_t i = 0; rc == 0 && i < v->list->n; i++) {
            struct value item;
            rc = sorted_copy(r, &v->list->items[i], depth + 1, &item);
            rc = rc < 0 ? rc : list_push(r, out->list, item);
        }
    }
    if (rc < 0 || v->type != VALUE_DICT)
        return rc;
    const struct dict_pair **order = run_alloc(r, v->dict->n + 1, sizeof *order);
    rc = order ? value_new_dict(r, VALUE_DICT, out) : HP_ELIMIT;
    for (size_t i = 0; rc == 0 && i < v->dict->n; i++)
        order[i] = &v->dict->pairs[i];
    if (rc == 0)
        qsort(order, v->dict->n, sizeof *order, by_key);
    for (size_t i = 0; rc == 0 && i < v->dict->n; i++) {
        struct value item;
        rc = sorted_copy(r, &order[i]->value, depth + 1, &item);
        rc = rc < 0 ? rc : dict_set(r, out->dict, order[i]->key, item);
    }
    return rc;
}

int value_print_sorted(struct run *r, const struct value *v, struct buffer *out)
{
    struct value copy;
    int rc = sorted_copy(r, v, 0, &copy);
    return rc < 0 ? rc : value_print(r, &copy, true, 0, out);
}

void value_print_escaped(struct text t, struct buffer *out)
{
    static const char from[] = "&<>'\"", *const to[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
    for (size_t i = 0; i < t.size; i++) {
        const char *hit = t.data[i] ? strchr(from, t.data[i]) : NULL;
        if (hit)
            buffer_append(out, to[hit - from], strlen(to[hit - from]));
        else
            buffer_append(out, t.data + i, 1);
    }
}

int value_to_text(struct run *r, const struct value *v, struct text *out)
{
    if (v->type == VALUE_STRING) {
        *out = v->string;
        return 0;
    }
    struct buffer b = {0};
    struct value copy = value_none();
    int rc = value_print(r, v, false, 0, &b);
    if (rc == 0)
        rc = value_copy_text(r, &b, &copy);
    if (rc == 0)
        *out = copy.string;
    buffer_free(&b);
    return rc;
}

/* ---- JSON ---- */

static void print_json_char(uint32_t c, bool ascii, struct buffer *out)
{
    static const char plain[] = "\"\\\n\r\t\b\f", letter[] = "\"\\nrtbf";
    const char *simple = c && c < 0x80 ? strchr(plain, (int)c) : NULL;
    if (simple)
        buffer_printf(out, "\\%c", letter[simple - plain]);
    else if (c < 0x20 || (ascii && c > 0x7E && c < 0x10000))
        buffer_printf(out, "\\u%04x", c);
    else if (ascii && c >= 0x10000)
        buffer_printf(out, "\\u%04x\\u%04x", 0xD800 + ((c - 0x10000) >> 10),
                      0xDC00 + ((c - 0x10000) & 0x3FF));
    else
        utf8_append(out, c);
}

static void print_json_text(struct text t, bool ascii, struct buffer *out)
{
    buffer_append(out, "\"", 1);
    for (size_t at = 0; at < t.size;) {
        uint32_t c = 0;
        int length = utf8_decode(t.data + at, t.size - at, &c);
        print_json_char(length > 0 ? c : UTF8_REPLACEMENT, ascii, out);
        at += length > 0 ? (size_t)length : 1;
    }
    buffer_append(out, "\"", 1);
}

static void break_line(const struct json_style *style, int depth, struct buffer *out)
{
    if (style->indent < 0)
        return;
    buffer_append(out, "\n", 1);
    for (int i = 0; i < style->indent * depth; i++)
        buffer_append(out, " ", 1);
}

static int print_json_list(struct run *r, const struct list *l, const struct json_style *style,
                           int depth, struct buffer *out)
{
    int rc = 0;
    buffer_append(out, "[", 1);
    for (size_t i = 0; rc == 0 && i < l->n; i++) {
        if (i)
            buffer_append(out, style->item.data, style->item.size);
        break_line(style, depth + 1, out);
        rc = value_print_json(r, &l->items[i], style, depth + 1, out);
    }
    if (l->n)
        break_line(style, depth, out);
    buffer_append(out, "]", 1);
    return rc;
}

static int by_key(const void *pa, const void *pb)
{
    const struct dict_pair *a = *(const struct dict_pair *const *)pa,
                           *b = *(const struct dict_pair *const *)pb;
    if (a->key.type != VALUE_STRING || b->key.type != VALUE_STRING)
        return 0;
    struct text x = a->key.string, y = b->key.string;
    int c = memcmp(x.data, y.data, x.size < y.size ? x.size : y.size);
    return c ? c : (x.size > y.size) - (x.size < y.size);
}

static int print_json_key(struct run *r, const struct value *key, const struct json_style *style,
                          struct buffer *out)
{
    if (key->type == VALUE_STRING) {
        print_json_text(key->string, style->ascii, out);
        return 0;
    }
    buffer_append(out, "\"", 1);
    int rc = value_print_json(r, key, style, 0, out);
    buffer_append(out, "\"", 1);
    return rc;
}

static int print_json_dict(struct run *r, const struct dict *d, const struct json_style *style,
                           int depth, struct buffer *out)
{
    const struct dict_pair **order = run_alloc(r, d->n + 1, sizeof *order);
    if (!order)
        return HP_ELIMIT;
    for (size_t i = 0; i < d->n; i++)
        order[i] = &d->pairs[i];
    if (style->sorted)
        qsort(order, d->n, sizeof *order, by_key);
    int rc = 0;
    buffer_append(out, "{", 1);
    for (size_t i = 0; rc == 0 && i < d->n; i++) {
        if (i)
            buffer_append(out, style->item.data, style->item.size);
        break_line(style, depth + 1, out);
        rc = print_json_key(r, &order[i]->key, style, out);
        buffer_append(out, style->key.data, style->key.size);
        if (rc == 0)
            rc = value_print_json(r, &order[i]->value, style, depth + 1, out);
    }
    if (d->n)
        break_line(style, depth, out);
    buffer_append(out, "}", 1);
    return rc;
}

int value_print_json(struct run *r, const struct value *v, const struct json_style *style,
                     int depth, struct buffer *out)
{
    if (depth > PRINT_MAX_DEPTH)
        return run_fail(r, HP_ELIMIT, "a value is nested deeper than %d", PRINT_MAX_DEPTH);
    if (out->size > r->max_output)
        return run_fail(r, HP_ELIMIT, "a text is longer than %zu bytes", r->max_output);
    int rc = run_tick(r, 1);
    if (rc < 0)
        return rc;
    switch (v->type) {
    case VALUE_NONE: buffer_printf(out, "null"); return 0;
    case VALUE_BOOL: buffer_printf(out, "%s", v->boolean ? "true" : "false"); return 0;
    case VALUE_INT: buffer_printf(out, "%lld", (long long)v->integer); return 0;
    case VALUE_FLOAT:
        if (isnan(v->real) || isinf(v->real))
            buffer_printf(out, "%s",
                          isnan(v->real) ? "NaN"
                          : v->real > 0  ? "Infinity"
                                         : "-Infinity");
        else
            value_print_real(v->real, out);
        return 0;
    case VALUE_STRING:
        print_json_text(v->string, style->ascii, out);
        return run_tick_bytes(r, v->string.size);
    case VALUE_LIST:
        if (v->list->kind == LIST_RANGE)
            return run_fail(r, HP_EINVAL, "Object of type range is not JSON serializable");
        return print_json_list(r, v->list, style, depth, out);
    case VALUE_DICT: return print_json_dict(r, v->dict, style, depth, out);
    default:
        return run_fail(r, HP_EINVAL, "Object of type %s is not JSON serializable",
                        value_type_word(v));
    }
}
