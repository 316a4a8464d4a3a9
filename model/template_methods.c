/* Methods of strings, dicts and lists. */
#include "model/template_int.h"

#include "common/utf8.h"

#include <string.h>
#include <utf8proc.h>

typedef int (*method_fn)(struct run *r, const struct value *self, const struct arguments *args, int how, struct value *out);

static int strip(struct run *r, const struct value *self, const struct arguments *args, int how, struct value *out)
{
    struct text set;
    int rc = argument_text(r, args, 0, "chars", (struct text){NULL, 0}, &set);
    *out = value_text(text_strip(self->string, set, how));
    return rc < 0 ? rc : run_tick_bytes(r, self->string.size);
}

static int change_case(struct run *r, const struct value *self, const struct arguments *args, int how, struct value *out)
{
    (void)args;
    struct buffer b = {0};
    text_case(self->string, (enum text_case)how, &b);
    int rc = value_copy_text(r, &b, out);
    buffer_free(&b);
    return rc;
}

/* startswith, endswith: of a string or of any in a tuple. */
static int has_end(struct run *r, const struct value *self, const struct arguments *args, int at_end, struct value *out)
{
    const struct value *what = argument(args, 0, "prefix");
    bool tuple = what && what->type == VALUE_LIST && what->list->kind == LIST_TUPLE, is = false;
    size_t n = tuple ? what->list->n : 1;
    if (!what)
        return run_fail(r, HP_EINVAL, "startswith and endswith need an argument");
    for (size_t i = 0; i < n && !is; i++) {
        const struct value *v = tuple ? &what->list->items[i] : what;
        if (v->type != VALUE_STRING)
            return run_fail(r, HP_EINVAL, "startswith first arg must be str or a tuple of str, not %s", value_type_word(v));
        is = at_end ? text_ends(self->string, v->string) : text_starts(self->string, v->string);
    }
    *out = value_bool(is);
    return run_tick(r, n);
}

static int split_at_space(struct run *r, struct text t, int64_t most, struct value *out)
{
    int rc = 0;
    struct text space = {NULL, 0};
    for (t = text_strip(t, space, STRIP_LEFT); rc == 0 && t.size > 0; t = text_strip(t, space, STRIP_LEFT)) {
        size_t end = 0;
        uint32_t c;
        bool whole = most >= 0 && (int64_t)out->list->n == most;
        for (int length; end < t.size && !whole && (length = utf8_decode(t.data + end, t.size - end, &c)) > 0 && !text_space(c);)
            end += (size_t)length;
        if (whole)
            t = text_strip(t, space, STRIP_RIGHT);
        end = whole ? t.size : end;
        rc = list_push(r, out->list, value_text((struct text){t.data, end}));
        t = (struct text){t.data + end, t.size - end};
    }
    return rc;
}

static int64_t find_last(struct text t, struct text what)
{
    for (size_t at = t.size >= what.size ? t.size - what.size + 1 : 0; at-- > 0;)
        if (memcmp(t.data + at, what.data, what.size) == 0)
            return (int64_t)at;
    return -1;
}

static int split_right(struct run *r, struct text t, struct text by, int64_t most, struct value *out)
{
    int64_t at;
    int rc = 0;
    while (rc == 0 && (most < 0 || (int64_t)out->list->n < most) && (at = find_last(t, by)) >= 0) {
        size_t behind = (size_t)at + by.size;
        rc = list_push(r, out->list, value_text((struct text){t.data + behind, t.size - behind}));
        t.size = (size_t)at;
    }
    if (rc == 0)
        rc = list_push(r, out->list, value_text(t));
    for (size_t i = 0, n = out->list->n; rc == 0 && i < n / 2; i++) {
        struct value swap = out->list->items[i];
        out->list->items[i] = out->list->items[n - 1 - i];
        out->list->items[n - 1 - i] = swap;
    }
    return rc;
}

static int split(struct run *r, const struct value *self, const struct arguments *args, int from_right, struct value *out)
{
    struct text by, t = self->string;
    int64_t most, at;
    int rc = argument_text(r, args, 0, "sep", (struct text){NULL, 0}, &by);
    if (rc == 0)
        rc = argument_integer(r, args, 1, "maxsplit", -1, &most);
    if (rc == 0)
        rc = value_new_list(r, LIST_PLAIN, 0, out);
    if (rc == 0)
        rc = run_tick_bytes(r, t.size);
    if (rc < 0)
        return rc;
    if (!by.data)
        return from_right && most >= 0 ? run_fail(r, HP_EUNSUPPORTED, "rsplit at white space with a limit is not supported")
                                       : split_at_space(r, t, most, out);
    if (by.size == 0)
        return run_fail(r, HP_EINVAL, "empty separator");
    if (from_right)
        return split_right(r, t, by, most, out);
    while (rc == 0 && (most < 0 || (int64_t)out->list->n < most) && (at = text_find(t, by, 0)) >= 0) {
        rc = list_push(r, out->list, value_text((struct text){t.data, (size_t)at}));
        t = (struct text){t.data + at + by.size, t.size - (size_t)at - by.size};
    }
    return rc < 0 ? rc : list_push(r, out->list, value_text(t));
}

static int splitlines(struct run *r, const struct value *self, const struct arguments *args, int how, struct value *out)
{
    (void)how;
    struct text t = self->string;
    bool keep = argument_true(args, 0, "keepends", false);
    int rc = value_new_list(r, LIST_PLAIN, 0, out);
    while (rc == 0 && t.size > 0) {
        size_t end = 0;
        while (end < t.size && t.data[end] != '\n' && t.data[end] != '\r')
            end++;
        size_t next = end < t.size ? end + 1 : end;
        if (next < t.size && t.data[end] == '\r' && t.data[next] == '\n')
            next++;
        rc = list_push(r, out->list, value_text((struct text){t.data, keep ? next : end}));
        t = (struct text){t.data + next, t.size - next};
    }
    return rc < 0 ? rc : run_tick_bytes(r, self->string.size);
}

static int replace(struct run *r, const struct value *self, const struct arguments *args, int how, struct value *out)
{
    (void)how;
    struct text what, with, t = self->string;
    int64_t most;
    int rc = argument_text(r, args, 0, "old", (struct text){"", 0}, &what);
    if (rc == 0)
        rc = argument_text(r, args, 1, "new", (struct text){"", 0}, &with);
    if (rc == 0)
        rc = argument_integer(r, args, 2, "count", -1, &most);
    if (rc < 0)
        return rc;
    struct buffer b = {0};
    size_t at = 0;
    while (most != 0 && at <= t.size && b.size <= r->max_output) {
        int64_t hit = text_find(t, what, at);
        if (hit < 0)
            break;
        buffer_append(&b, t.data + at, (size_t)hit - at);
        buffer_append(&b, with.data, with.size);
        at = (size_t)hit + what.size;
        /* An empty text is found before each character and at the end. */
        uint32_t c;
        int length = what.size == 0 && at < t.size ? utf8_decode(t.data + at, t.size - at, &c) : 0;
        if (what.size == 0 && at == t.size) {
            at++;
            break;
        }
        buffer_append(&b, t.data + at, length > 0 ? (size_t)length : 0);
        at += length > 0 ? (size_t)length : 0;
        most -= most > 0;
    }
    if (at < t.size)
        buffer_append(&b, t.data + at, t.size - at);
    rc = b.size > r->max_output ? run_fail(r, HP_ELIMIT, "a text is longer than %zu bytes", r->max_output)
                                : value_copy_text(r, &b, out);
    buffer_free(&b);
    return rc;
}

static int find(struct run *r, const struct value *self, const struct arguments *args, int last, struct value *out)
{
    struct text what;
    int rc = argument_text(r, args, 0, "sub", (struct text){"", 0}, &what);
    if (rc < 0)
        return rc;
    int64_t at = last ? find_last(self->string, what) : text_find(self->string, what, 0);
    *out = value_integer(at < 0 ? -1 : (int64_t)text_length((struct text){self->string.data, (size_t)at}));
    return run_tick_bytes(r, self->string.size);
}

static int count(struct run *r, const struct value *self, const struct arguments *args, int how, struct value *out)
{
    (void)how;
    struct text what;
    int rc = argument_text(r, args, 0, "sub", (struct text){"", 0}, &what);
    if (rc < 0)
        return rc;
    int64_t n = 0, at = 0;
    while (what.size > 0 && (at = text_find(self->string, what, (size_t)at)) >= 0) {
        at += (int64_t)what.size;
        n++;
    }
    *out = value_integer(what.size ? n : (int64_t)text_length(self->string) + 1);
    return run_tick_bytes(r, self->string.size);
}

static int join(struct run *r, const struct value *self, const struct arguments *args, int how, struct value *out)
{
    (void)how;
    const struct value *what = argument(args, 0, "iterable");
    struct list *items = NULL;
    struct buffer b = {0};
    int rc = what ? value_items(r, what, &items) : run_fail(r, HP_EINVAL, "join needs an argument");
    for (size_t i = 0; rc == 0 && i < items->n; i++) {
        const struct value *v = &items->items[i];
        if (v->type != VALUE_STRING)
            rc = run_fail(r, HP_EINVAL, "sequence item %zu: expected str instance, %s found", i, value_type_word(v));
        else if (b.size > r->max_output)
            rc = run_fail(r, HP_ELIMIT, "a text is longer than %zu bytes", r->max_output);
        if (rc < 0)
            break;
        if (i)
            buffer_append(&b, self->string.data, self->string.size);
        buffer_append(&b, v->string.data, v->string.size);
    }
    if (rc == 0)
        rc = value_copy_text(r, &b, out);
    buffer_free(&b);
    return rc;
}

enum { IS_DIGIT = 1, IS_ALPHA = 2, IS_SPACE = 4, IS_UPPER = 8, IS_LOWER = 16 };

static int kinds_of(uint32_t c)
{
    int kinds = text_space(c) ? IS_SPACE : 0;
    switch (utf8proc_category((utf8proc_int32_t)c)) {
    case UTF8PROC_CATEGORY_ND: return kinds | IS_DIGIT;
    case UTF8PROC_CATEGORY_LU: return kinds | IS_ALPHA | IS_UPPER;
    case UTF8PROC_CATEGORY_LL: return kinds | IS_ALPHA | IS_LOWER;
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO: return kinds | IS_ALPHA;
    default: return kinds;
    }
}

/* isdigit and the like: every character is of one of the kinds. */
static int is_all(struct run *r, const struct value *self, const struct arguments *args, int kinds, struct value *out)
{
    (void)args;
    bool all = self->string.size > 0;
    for (size_t at = 0; at < self->string.size && all;) {
        uint32_t c = 0;
        int length = utf8_decode(self->string.data + at, self->string.size - at, &c);
        at += length > 0 ? (size_t)length : 1;
        all = (kinds_of(c) & kinds) != 0;
    }
    *out = value_bool(all);
    return run_tick_bytes(r, self->string.size);
}

/* isupper, islower: there are letters of that case and none of the other. */
static int is_case(struct run *r, const struct value *self, const struct arguments *args, int kind, struct value *out)
{
    (void)args;
    int seen = 0;
    for (size_t at = 0; at < self->string.size;) {
        uint32_t c = 0;
        int length = utf8_decode(self->string.data + at, self->string.size - at, &c);
        at += length > 0 ? (size_t)length : 1;
        seen |= kinds_of(c) & (IS_UPPER | IS_LOWER);
    }
    *out = value_bool(seen == kind);
    return run_tick_bytes(r, self->string.size);
}

static int remove_end(struct run *r, const struct value *self, const struct arguments *args, int at_end, struct value *out)
{
    struct text what, t = self->string;
    int rc = argument_text(r, args, 0, "prefix", (struct text){"", 0}, &what);
    if (at_end ? text_ends(t, what) : text_starts(t, what))
        t = (struct text){at_end ? t.data : t.data + what.size, t.size - what.size};
    *out = value_text(t);
    return rc;
}

/* ---- dicts and lists ---------------------------------------------------------------------------------------- */

static int dict_items(struct run *r, const struct value *self, const struct arguments *args, int how, struct value *out)
{
    (void)args, (void)how;
    return value_pair_list(r, self->dict, out);
}

static int dict_part(struct run *r, const struct value *self, const struct arguments *args, int values, struct value *out)
{
    (void)args;
    int rc = value_new_list(r, LIST_PLAIN, self->dict->n, out);
    for (size_t i = 0; rc == 0 && i < self->dict->n; i++)
        rc = list_push(r, out->list, values ? self->dict->pairs[i].value : self->dict->pairs[i].key);
    return rc;
}

static int dict_get_or(struct run *r, const struct value *self, const struct arguments *args, int how, struct value *out)
{
    (void)how;
    const struct value *key = argument(args, 0, "key"), *fallback = argument(args, 1, "default");
    if (key && !value_is_key(key))
        return run_fail(r, HP_EINVAL, "unhashable type: '%s'", value_type_word(key));
    const struct value *found = key ? dict_get(self->dict, key) : NULL;
    *out = found ? *found : fallback ? *fallback : value_none();
    return key ? run_tick(r, 1 + self->dict->n / 8) : run_fail(r, HP_EINVAL, "get expected at least 1 argument, got 0");
}

/* index, count */
static int list_search(struct run *r, const struct value *self, const struct arguments *args, int counting, struct value *out)
{
    const struct value *what = argument(args, 0, "value");
    int64_t n = 0;
    for (size_t i = 0; what && i < self->list->n; i++) {
        int rc = run_tick(r, 1);
        if (rc < 0)
            return rc;
        if (!value_equal(r, &self->list->items[i], what, 0))
            continue;
        n++;
        if (!counting) {
            *out = value_integer((int64_t)i);
            return 0;
        }
    }
    *out = value_integer(n);
    return counting ? 0 : run_fail(r, HP_EINVAL, "a value that index looks for is not in the list");
}

static int loop_cycle(struct run *r, const struct value *self, const struct arguments *args, int how, struct value *out)
{
    (void)how;
    if (args->n == 0)
        return run_fail(r, HP_EINVAL, "no items for cycling given");
    *out = args->values[(size_t)self->integer % args->n];
    return 0;
}

static const struct {
    enum value_type type;
    const char *name;
    method_fn call;
    int how;
} methods[] = {
    {VALUE_STRING, "strip", strip, STRIP_LEFT | STRIP_RIGHT},
    {VALUE_STRING, "lstrip", strip, STRIP_LEFT},
    {VALUE_STRING, "rstrip", strip, STRIP_RIGHT},
    {VALUE_STRING, "upper", change_case, CASE_UPPER},
    {VALUE_STRING, "lower", change_case, CASE_LOWER},
    {VALUE_STRING, "title", change_case, CASE_TITLE},
    {VALUE_STRING, "capitalize", change_case, CASE_CAPITAL},
    {VALUE_STRING, "startswith", has_end, 0},
    {VALUE_STRING, "endswith", has_end, 1},
    {VALUE_STRING, "split", split, 0},
    {VALUE_STRING, "rsplit", split, 1},
    {VALUE_STRING, "splitlines", splitlines, 0},
    {VALUE_STRING, "replace", replace, 0},
    {VALUE_STRING, "find", find, 0},
    {VALUE_STRING, "rfind", find, 1},
    {VALUE_STRING, "count", count, 0},
    {VALUE_STRING, "join", join, 0},
    {VALUE_STRING, "isdigit", is_all, IS_DIGIT},
    {VALUE_STRING, "isalpha", is_all, IS_ALPHA},
    {VALUE_STRING, "isalnum", is_all, IS_ALPHA | IS_DIGIT},
    {VALUE_STRING, "isspace", is_all, IS_SPACE},
    {VALUE_STRING, "isupper", is_case, IS_UPPER},
    {VALUE_STRING, "islower", is_case, IS_LOWER},
    {VALUE_STRING, "removeprefix", remove_end, 0},
    {VALUE_STRING, "removesuffix", remove_end, 1},
    {VALUE_DICT, "items", dict_items, 0},
    {VALUE_DICT, "keys", dict_part, 0},
    {VALUE_DICT, "values", dict_part, 1},
    {VALUE_DICT, "get", dict_get_or, 0},
    {VALUE_LIST, "index", list_search, 0},
    {VALUE_LIST, "count", list_search, 1},
    {VALUE_INT, "cycle", loop_cycle, 0}, /* of a loop: the number of its turn stands for it */
};

enum { N_METHODS = sizeof methods / sizeof *methods };

static int method_of(enum value_type type, struct text name)
{
    for (int i = 0; i < N_METHODS; i++)
        if (methods[i].type == type && text_is(name, methods[i].name))
            return i;
    return -1;
}

bool template_has_method(enum value_type type, struct text name)
{
    return type != VALUE_INT && method_of(type, name) >= 0;
}

int run_method(struct run *r, const struct method *m, const struct arguments *args, struct value *out)
{
    int i = method_of(m->self.type, m->name);
    return i < 0 ? run_fail(r, HP_EBUG, "no method") : methods[i].call(r, &m->self, args, methods[i].how, out);
}
