/* Filters that shape text. Source: the Jinja documentation's list of built-in filters. */
#include <stdlib.h>
#include <string.h>

#include "common/utf8.h"
#include "model/template/collections.h"
#include "model/template/filters.h"
#include "model/template/methods.h"
#include "model/template/print.h"

static int text_input(struct run *r, const struct value *in, struct text *out)
{
    *out = (struct text){"", 0};
    int rc = value_to_text(r, in, out);
    return rc < 0 ? rc : run_tick_text(r, out->size);
}

static int filter_truncate(struct run *r, const struct value *in, const struct arguments *args,
                           struct value *out)
{
    int64_t length, leeway;
    struct text t, end;
    int rc = argument_integer(r, args, 0, "length", 255, &length);
    rc = rc < 0 ? rc : argument_text(r, args, 2, "end", text_of("..."), &end);
    rc = rc < 0 ? rc : argument_integer(r, args, 3, "leeway", 5, &leeway);
    rc = rc < 0 ? rc : text_input(r, in, &t);
    if (rc < 0)
        return rc;
    int64_t end_length = (int64_t)text_length(end);
    if (length < end_length || leeway < 0)
        return run_fail(r, HP_EINVAL, "expected length >= %lld and leeway >= 0",
                        (long long)end_length);
    if ((int64_t)text_length(t) - leeway <= length) {
        *out = value_text(t);
        return 0;
    }
    t = text_cut(t, 0, (size_t)(length - end_length));
    int64_t space =
        argument_true(args, 1, "killwords", false) ? -1 : text_find_last(t, text_of(" "));
    t.size = space >= 0 ? (size_t)space : t.size;
    struct buffer b = {0};
    buffer_append(&b, t.data, t.size);
    buffer_append(&b, end.data, end.size);
    return value_of_buffer(r, &b, 0, out);
}

static int filter_center(struct run *r, const struct value *in, const struct arguments *args,
                         struct value *out)
{
    struct value text = *in, width = value_integer(80);
    const struct value *given = argument_get(args, 0, "width");
    struct text t;
    int rc = text_input(r, in, &t);
    if (in->type != VALUE_STRING)
        text = value_text(t);
    struct arguments only = {.values = &width, .n = 1};
    width = given ? *given : width;
    rc = rc < 0 ? rc : method_justify(r, &text, &only, JUSTIFY_CENTER, out);
    out->safe |= rc == 0 && text.safe;
    return rc;
}

/* ---- wordwrap ---- */

struct wrap {
    int64_t width;
    bool break_long;
    struct text by;
    struct buffer *out;
    bool any; /* a line was written */
};

static void put_line(struct wrap *w, struct text line)
{
    if (w->any)
        buffer_append(w->out, w->by.data, w->by.size);
    buffer_append(w->out, line.data, line.size);
    w->any = true;
}

static bool is_blank(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* A word, or a run of blanks. */
static size_t chunk_at(struct text t, size_t at)
{
    size_t end = at;
    bool blank = is_blank(t.data[at]);
    while (end < t.size && is_blank(t.data[end]) == blank)
        end++;
    return end;
}

/* One line of the text, as Python's textwrap cuts it: blanks go away where a line begins or ends,
 * but not at the very start. */
static void wrap_line(struct wrap *w, struct text t)
{
    struct text line = {t.data, 0};
    int64_t used = 0;
    bool first = true, open = false;
    for (size_t at = 0; at < t.size;) {
        size_t end = chunk_at(t, at);
        struct text chunk = {t.data + at, end - at};
        bool blank = is_blank(chunk.data[0]);
        int64_t length = (int64_t)text_length(chunk);
        if (blank && !open && !first) {
            at = end;
            continue;
        }
        if (!open)
            line = (struct text){chunk.data, 0};
        if (used + length <= w->width) {
            line.size = (size_t)(chunk.data + chunk.size - line.data);
            used += length;
            open = true;
            at = end;
            continue;
        }
        /* Where no part of a long word fits, Python drops that nothing instead of the blanks before
         * it. */
        bool keeps_blanks = length > w->width && w->break_long && used >= w->width;
        if (length > w->width && (w->break_long || !open)) {
            int64_t room = w->break_long ? w->width - used : length;
            struct text part = text_cut(chunk, 0, (size_t)(room > 0 ? room : 0));
            if (part.size > 0)
                line.size = (size_t)(part.data + part.size - line.data);
            at += part.size;
        }
        struct text whole =
            keeps_blanks ? line : text_strip(line, text_of("\t\n\x0b\x0c\r "), STRIP_RIGHT);
        if (whole.size > 0) {
            put_line(w, whole);
            first = false;
        }
        used = 0;
        open = false;
    }
    line = open ? text_strip(line, text_of("\t\n\x0b\x0c\r "), STRIP_RIGHT) : line;
    if (open && line.size > 0)
        put_line(w, line);
}

static int filter_wordwrap(struct run *r, const struct value *in, const struct arguments *args,
                           struct value *out)
{
    struct buffer b = {0};
    struct wrap w = {.out = &b, .break_long = argument_true(args, 1, "break_long_words", true)};
    struct text t;
    int rc = argument_integer(r, args, 0, "width", 79, &w.width);
    rc = rc < 0 ? rc : argument_text(r, args, 2, "wrapstring", text_of("\n"), &w.by);
    rc = rc < 0 ? rc : text_input(r, in, &t);
    if (rc == 0 && w.width < 1)
        rc = run_fail(r, HP_EINVAL, "invalid width %lld (must be > 0)", (long long)w.width);
    if (rc == 0 && argument_true(args, 3, "break_on_hyphens", true) && memchr(t.data, '-', t.size))
        rc = run_fail(r, HP_EUNSUPPORTED,
                      "wordwrap of words with hyphens, unless break_on_hyphens is false");
    struct value lines, text = rc < 0 ? value_none() : value_text(t);
    rc = rc < 0 ? rc : method_splitlines(r, &text, &(struct arguments){0}, 0, &lines);
    for (size_t i = 0; rc == 0 && i < lines.list->n; i++) {
        struct text line = lines.list->items[i].string;
        size_t before = b.size;
        bool any = w.any;
        rc = run_tick_text(r, line.size);
        wrap_line(&w, line);
        if (b.size == before && w.any == any) /* nothing of it is left: an empty line */
            put_line(&w, (struct text){"", 0});
    }
    return value_of_buffer(r, &b, rc, out);
}

/* ---- for the web ---- */

static void url_quote(struct text t, bool query, struct buffer *out)
{
    for (size_t i = 0; i < t.size; i++) {
        uint8_t c = (uint8_t)t.data[i];
        bool plain = (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') ||
                     (c && strchr("_.-~", c)) || (c == '/' && !query);
        if (plain)
            buffer_append(out, &c, 1);
        else if (query && c == ' ')
            buffer_append(out, "+", 1);
        else
            buffer_printf(out, "%%%02X", c);
    }
}

static int filter_urlencode(struct run *r, const struct value *in, const struct arguments *args,
                            struct value *out)
{
    (void)args;
    struct buffer b = {0};
    struct value pairs = *in;
    struct text t;
    int rc = 0;
    if (in->type != VALUE_DICT && in->type != VALUE_LIST) {
        rc = text_input(r, in, &t);
        if (rc == 0)
            url_quote(t, false, &b);
        return value_of_buffer(r, &b, rc, out);
    }
    if (in->type == VALUE_DICT)
        rc = value_pair_list(r, in->dict, &pairs);
    for (size_t i = 0; rc == 0 && i < pairs.list->n; i++) {
        const struct value *pair = &pairs.list->items[i];
        if (pair->type != VALUE_LIST || pair->list->n != 2)
            rc = run_fail(r, HP_EINVAL, "urlencode of a list that is not one of pairs");
        for (int k = 0; k < 2 && rc == 0; k++) {
            rc = text_input(r, &pair->list->items[k], &t);
            buffer_append(&b, k ? "=" : "&", k || i);
            if (rc == 0)
                url_quote(t, true, &b);
        }
    }
    return value_of_buffer(r, &b, rc, out);
}

/* "&amp;" and the like at `at`; 0 where there is none that is known, -1 where there is one that is
 * not. */
static int entity_at(struct text t, size_t at, struct buffer *out)
{
    static const struct {
        const char *name, *text;
    } known[] = {{"amp;", "&"},   {"lt;", "<"},   {"gt;", ">"},
                 {"quot;", "\""}, {"apos;", "'"}, {"nbsp;", "\xC2\xA0"}};
    const char *s = t.data + at + 1, *end = memchr(s, ';', t.size - at - 1);
    size_t n = end ? (size_t)(end - s) + 1 : 0;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (n == strlen(known[i].name) && memcmp(s, known[i].name, n) == 0) {
            buffer_append(out, known[i].text, strlen(known[i].text));
            return (int)n + 1;
        }
    if (n > 2 && n < 10 && s[0] == '#') {
        char digits[12];
        bool hex = (s[1] | 0x20) == 'x';
        memcpy(digits, s + 1 + hex, n - 2 - hex);
        digits[n - 2 - hex] = 0;
        char *rest;
        unsigned long c = strtoul(digits, &rest, hex ? 16 : 10);
        if (!*rest && *digits && c >= 0x20 && c < 0x110000 && (c < 0x7f || c > 0x9f) &&
            !(c >= 0xD800 && c < 0xE000)) {
            utf8_append(out, (uint32_t)c);
            return (int)n + 1;
        }
    }
    bool letter = t.size - at > 1 && (((*s | 0x20) >= 'a' && (*s | 0x20) <= 'z') || *s == '#');
    return letter ? -1 : 0;
}

static int entities_unescape(struct run *r, struct text t, struct buffer *out)
{
    for (size_t at = 0; at < t.size;) {
        int n = t.data[at] == '&' ? entity_at(t, at, out) : 0;
        if (n < 0)
            return run_fail(r, HP_EUNSUPPORTED,
                            "striptags of text with entities other than amp, lt, gt, quot, apos, "
                            "nbsp and numbers");
        if (n == 0)
            buffer_append(out, t.data + at, 1);
        at += n > 0 ? (size_t)n : 1;
    }
    return 0;
}

/* Without what stands between `open` and `close`; an open one without an end stays. */
static void drop_between(struct text t, const char *open, const char *close, struct buffer *out)
{
    size_t at = 0;
    for (;;) {
        int64_t start = text_find(t, text_of(open), at);
        int64_t end = start < 0 ? -1
                                : text_find(t, text_of(close),
                                            (size_t)start + strlen(open) - (strlen(open) == 1));
        if (end < 0)
            break;
        buffer_append(out, t.data + at, (size_t)start - at);
        at = (size_t)end + strlen(close);
    }
    buffer_append(out, t.data + at, t.size - at);
}

static int filter_striptags(struct run *r, const struct value *in, const struct arguments *args,
                            struct value *out)
{
    (void)args;
    struct buffer comments = {0}, tags = {0}, b = {0};
    struct text t;
    struct value words, joined = value_none();
    int rc = text_input(r, in, &t);
    if (rc == 0) {
        drop_between(t, "<!--", "-->", &comments);
        drop_between((struct text){buffer_cstr(&comments), comments.size}, "<", ">", &tags);
        struct value text = value_text((struct text){buffer_cstr(&tags), tags.size}),
                     space = value_text(text_of(" "));
        rc = method_split(r, &text, &(struct arguments){0}, 0, &words);
        struct arguments list = {.values = &words, .n = 1};
        rc = rc < 0 ? rc : method_join(r, &space, &list, 0, &joined);
    }
    rc = rc < 0 ? rc : entities_unescape(r, joined.string, &b);
    buffer_free(&comments);
    buffer_free(&tags);
    return value_of_buffer(r, &b, rc, out);
}

/* As pprint has it where the value fits one line; keys in order. */
static int filter_pprint(struct run *r, const struct value *in, const struct arguments *args,
                         struct value *out)
{
    (void)args;
    enum { LINE = 80 };
    struct buffer b = {0};
    bool nested = in->type == VALUE_DICT || in->type == VALUE_LIST;
    int rc = value_print_sorted(r, in, &b);
    if (rc == 0 && nested && text_length((struct text){buffer_cstr(&b), b.size}) > LINE)
        rc = run_fail(r, HP_EUNSUPPORTED, "pprint of a value that is wider than %d characters",
                      LINE);
    if (rc == 0 && in->type == VALUE_STRING &&
        text_length((struct text){buffer_cstr(&b), b.size}) > LINE)
        rc = run_fail(r, HP_EUNSUPPORTED, "pprint of a string that is wider than %d characters",
                      LINE);
    return value_of_buffer(r, &b, rc, out);
}

const struct filter template_text_filters[] = {
    {"truncate", filter_truncate},
    {"center", filter_center},
    {"wordwrap", filter_wordwrap},
    {"urlencode", filter_urlencode},
    {"striptags", filter_striptags},
    {"pprint", filter_pprint},
    {NULL, NULL},
};
