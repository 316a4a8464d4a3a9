/* Methods of strings: cutting, joining and replacing. */
#include <string.h>

#include "common/utf8.h"
#include "model/template/collections.h"
#include "model/template/methods.h"

static int split_at_space(struct run *r, struct text t, int64_t most, struct value *out)
{
    int rc = 0;
    struct text space = {NULL, 0};
    for (t = text_strip(t, space, STRIP_LEFT); rc == 0 && t.size > 0;
         t = text_strip(t, space, STRIP_LEFT)) {
        size_t end = 0;
        uint32_t c;
        bool whole = most >= 0 && (int64_t)out->list->n == most;
        for (int length; end < t.size && !whole &&
                         (length = utf8_decode(t.data + end, t.size - end, &c)) > 0 &&
                         !text_space(c);)
            end += (size_t)length;
        end = whole ? t.size : end;
        rc = list_push(r, out->list, value_text((struct text){t.data, end}));
        t = (struct text){t.data + end, t.size - end};
    }
    return rc;
}

static void list_turn(struct list *l)
{
    for (size_t i = 0, n = l->n; i < n / 2; i++) {
        struct value swap = l->items[i];
        l->items[i] = l->items[n - 1 - i];
        l->items[n - 1 - i] = swap;
    }
}

static int split_right_at_space(struct run *r, struct text t, int64_t most, struct value *out)
{
    int rc = 0;
    struct text space = {NULL, 0};
    for (t = text_strip(t, space, STRIP_RIGHT); rc == 0 && t.size > 0;
         t = text_strip(t, space, STRIP_RIGHT)) {
        size_t start = t.size;
        uint32_t c;
        while (start > 0 && most != (int64_t)out->list->n) {
            size_t before = utf8_previous(t.data, start);
            if (utf8_decode(t.data + before, start - before, &c) <= 0 || text_space(c))
                break;
            start = before;
        }
        start = most == (int64_t)out->list->n ? 0 : start;
        rc = list_push(r, out->list, value_text((struct text){t.data + start, t.size - start}));
        t.size = start;
    }
    list_turn(out->list);
    return rc;
}

static int split_right(struct run *r, struct text t, struct text by, int64_t most,
                       struct value *out)
{
    int64_t at = 0;
    int rc = 0;
    while (rc == 0 && (most < 0 || (int64_t)out->list->n < most) &&
           (at = text_find_last(t, by)) >= 0) {
        size_t behind = (size_t)at + by.size;
        rc = list_push(r, out->list, value_text((struct text){t.data + behind, t.size - behind}));
        t.size = (size_t)at;
    }
    if (at == -2)
        return run_fail(r, HP_ENOMEM, "out of memory");
    if (rc == 0)
        rc = list_push(r, out->list, value_text(t));
    list_turn(out->list);
    return rc;
}

int method_split(struct run *r, const struct value *self, const struct arguments *args,
                 int from_right, struct value *out)
{
    struct text by, t = self->string;
    int64_t most, at;
    int rc = argument_text(r, args, 0, "sep", (struct text){NULL, 0}, &by);
    if (rc == 0)
        rc = argument_integer(r, args, 1, "maxsplit", -1, &most);
    if (rc == 0)
        rc = value_new_list(r, LIST_PLAIN, 0, out);
    if (rc == 0)
        rc = run_tick_text(r, t.size);
    if (rc < 0)
        return rc;
    if (!by.data)
        return from_right ? split_right_at_space(r, t, most, out) : split_at_space(r, t, most, out);
    if (by.size == 0)
        return run_fail(r, HP_EINVAL, "empty separator");
    if (from_right)
        return split_right(r, t, by, most, out);
    while (rc == 0 && (most < 0 || (int64_t)out->list->n < most) &&
           (at = text_find(t, by, 0)) >= 0) {
        rc = list_push(r, out->list, value_text((struct text){t.data, (size_t)at}));
        t = (struct text){t.data + at + by.size, t.size - (size_t)at - by.size};
    }
    return rc < 0 ? rc : list_push(r, out->list, value_text(t));
}

int method_splitlines(struct run *r, const struct value *self, const struct arguments *args,
                      int how, struct value *out)
{
    (void)how;
    struct text t = self->string;
    bool keep = argument_true(args, 0, "keepends", false);
    int rc = run_tick_text(r, t.size);
    rc = rc < 0 ? rc : value_new_list(r, LIST_PLAIN, 0, out);
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
    return rc;
}

int method_replace(struct run *r, const struct value *self, const struct arguments *args, int how,
                   struct value *out)
{
    (void)how;
    struct text what, with, t = self->string;
    int64_t most;
    int rc = argument_text(r, args, 0, "old", (struct text){"", 0}, &what);
    if (rc == 0)
        rc = argument_text(r, args, 1, "new", (struct text){"", 0}, &with);
    if (rc == 0)
        rc = argument_integer(r, args, 2, "count", -1, &most);
    rc = rc < 0 ? rc : run_tick_text(r, t.size);
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
    rc = b.size > r->max_output
             ? run_fail(r, HP_ELIMIT, "a text is longer than %zu bytes", r->max_output)
             : value_copy_text(r, &b, out);
    buffer_free(&b);
    return rc;
}

int method_join(struct run *r, const struct value *self, const struct arguments *args, int how,
                struct value *out)
{
    (void)how;
    const struct value *what = argument_get(args, 0, "iterable");
    struct list *items = NULL;
    struct buffer b = {0};
    int rc = what ? value_items(r, what, &items) : run_fail(r, HP_EINVAL, "join needs an argument");
    for (size_t i = 0; rc == 0 && i < items->n; i++) {
        const struct value *v = &items->items[i];
        if (v->type != VALUE_STRING)
            rc = run_fail(r, HP_EINVAL, "sequence item %zu: expected str instance, %s found", i,
                          value_type_word(v));
        else if (b.size > r->max_output)
            rc = run_fail(r, HP_ELIMIT, "a text is longer than %zu bytes", r->max_output);
        rc = rc < 0 ? rc : run_tick_bytes(r, v->string.size + self->string.size);
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
