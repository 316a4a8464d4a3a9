/* Methods of strings that look for other strings, within a range of characters. */
#include <string.h>

#include "common/utf8.h"
#include "model/template/collections.h"
#include "model/template/methods.h"

struct byte_range {
    struct text part;
    int64_t start; /* in characters */
    bool beyond;   /* begins behind the end: not even nothing is found there */
};

static int64_t clip_index(int64_t i, int64_t n)
{
    i += i < 0 ? n : 0;
    return i < 0 ? 0 : i;
}

/* The arguments `start` and `end` behind the first, as Python clips them. */
static int range_of(struct run *r, const struct value *self, const struct arguments *args,
                    struct byte_range *out)
{
    int64_t start, end;
    *out = (struct byte_range){.part = self->string};
    int rc = argument_integer(r, args, 1, "start", 0, &start);
    rc = rc < 0 ? rc : argument_integer(r, args, 2, "end", INT64_MAX, &end);
    rc = rc < 0 ? rc : run_tick_text(r, self->string.size);
    if (rc < 0 || (start == 0 && end == INT64_MAX))
        return rc;
    int64_t n = (int64_t)text_length(self->string);
    start = clip_index(start, n);
    end = clip_index(end, n);
    end = end > n ? n : end;
    out->start = start;
    out->beyond = start > end;
    out->part =
        out->beyond ? (struct text){"", 0} : text_cut(self->string, (size_t)start, (size_t)end);
    return 0;
}

/* startswith, endswith: of a string or of any in a tuple. */
int method_has_end(struct run *r, const struct value *self, const struct arguments *args,
                   int at_end, struct value *out)
{
    const struct value *what = argument_get(args, 0, "prefix");
    bool tuple = what && what->type == VALUE_LIST && what->list->kind == LIST_TUPLE, is = false;
    size_t n = tuple ? what->list->n : 1;
    if (!what)
        return run_fail(r, HP_EINVAL, "%s needs an argument", at_end ? "endswith" : "startswith");
    struct byte_range in = {.part = self->string};
    int rc = args->n + args->n_named > 1 ? range_of(r, self, args, &in) : 0;
    for (size_t i = 0; i < n && !is && rc == 0; i++) {
        const struct value *v = tuple ? &what->list->items[i] : what;
        if (v->type != VALUE_STRING)
            return run_fail(r, HP_EINVAL, "%s first arg must be str or a tuple of str, not %s",
                            at_end ? "endswith" : "startswith", value_type_word(v));
        rc = run_tick(r, 1 + v->string.size / 64);
        is = rc == 0 && !in.beyond &&
             (at_end ? text_ends(in.part, v->string) : text_starts(in.part, v->string));
    }
    *out = value_bool(is);
    return rc;
}

/* find, rfind, index, rindex */
int method_find(struct run *r, const struct value *self, const struct arguments *args, int how,
                struct value *out)
{
    struct text what;
    struct byte_range in;
    int rc = argument_text(r, args, 0, "sub", (struct text){NULL, 0}, &what);
    rc = rc < 0 ? rc : range_of(r, self, args, &in);
    if (rc < 0)
        return rc;
    if (!what.data)
        return run_fail(r, HP_EINVAL, "must be str, not NoneType");
    int64_t at = in.beyond         ? -1
                 : how & FIND_LAST ? text_find_last(in.part, what)
                                   : text_find(in.part, what, 0);
    if (at == -2)
        return run_fail(r, HP_ENOMEM, "out of memory");
    if (at < 0 && how & FIND_OR_FAIL)
        return run_fail(r, HP_EINVAL, "substring not found");
    *out = value_integer(
        at < 0 ? -1 : in.start + (int64_t)text_length((struct text){in.part.data, (size_t)at}));
    return 0;
}

int method_count(struct run *r, const struct value *self, const struct arguments *args, int how,
                 struct value *out)
{
    (void)how;
    struct text what;
    struct byte_range in;
    int rc = argument_text(r, args, 0, "sub", (struct text){"", 0}, &what);
    rc = rc < 0 ? rc : range_of(r, self, args, &in);
    if (rc < 0)
        return rc;
    int64_t n = 0, at = 0;
    while (what.size > 0 && (at = text_find(in.part, what, (size_t)at)) >= 0) {
        at += (int64_t)what.size;
        n++;
    }
    *out = value_integer(what.size ? n : in.beyond ? 0 : (int64_t)text_length(in.part) + 1);
    return 0;
}

/* partition, rpartition: before, the separator, behind. */
int method_partition(struct run *r, const struct value *self, const struct arguments *args,
                     int last, struct value *out)
{
    struct text by, t = self->string, nothing = {"", 0};
    int rc = argument_text(r, args, 0, "sep", nothing, &by);
    rc = rc < 0 ? rc : run_tick_text(r, t.size);
    if (rc == 0 && by.size == 0)
        rc = run_fail(r, HP_EINVAL, "empty separator");
    rc = rc < 0 ? rc : value_new_list(r, LIST_TUPLE, 3, out);
    if (rc < 0)
        return rc;
    int64_t at = last ? text_find_last(t, by) : text_find(t, by, 0);
    if (at == -2)
        return run_fail(r, HP_ENOMEM, "out of memory");
    size_t cut = at < 0 ? 0 : (size_t)at, behind = cut + by.size;
    struct text whole[3] = {last ? nothing : t, nothing, last ? t : nothing};
    struct text parts[3] = {{t.data, cut}, by, {t.data + behind, at < 0 ? 0 : t.size - behind}};
    for (int i = 0; i < 3 && rc == 0; i++)
        rc = list_push(r, out->list, value_text(at < 0 ? whole[i] : parts[i]));
    return rc;
}
