/* Filters that go through lists and dicts. */
#include <string.h>

#include "model/template/access.h"
#include "model/template/arithmetic.h"
#include "model/template/collections.h"
#include "model/template/filters.h"
#include "model/template/print.h"

static int filter_list(struct run *r, const struct value *in, const struct arguments *args,
                       struct value *out)
{
    (void)args;
    struct list *items = NULL;
    int rc = value_items(r, in, &items);
    if (rc == 0)
        rc = value_new_list(r, LIST_PLAIN, items->n, out);
    for (size_t i = 0; rc == 0 && i < items->n; i++)
        rc = list_push(r, out->list, items->items[i]);
    return rc;
}

static int list_end(struct run *r, const struct value *in, bool last, struct value *out)
{
    struct list *items = NULL;
    int rc = value_items(r, in, &items);
    if (rc < 0)
        return rc;
    *out = items->n ? items->items[last ? items->n - 1 : 0]
                    : value_undefined(text_of(last ? "the last item" : "the first item"));
    return 0;
}

static int filter_first(struct run *r, const struct value *in, const struct arguments *args,
                        struct value *out)
{
    (void)args;
    return list_end(r, in, false, out);
}

static int filter_last(struct run *r, const struct value *in, const struct arguments *args,
                       struct value *out)
{
    (void)args;
    return list_end(r, in, true, out);
}

static int filter_join(struct run *r, const struct value *in, const struct arguments *args,
                       struct value *out)
{
    struct text by;
    const struct value *path = argument_get(args, 1, "attribute");
    struct list *items = NULL;
    struct buffer b = {0};
    int rc = argument_text(r, args, 0, "d", (struct text){"", 0}, &by);
    if (rc == 0)
        rc = value_items(r, in, &items);
    for (size_t i = 0; rc == 0 && i < items->n; i++) {
        struct value v = items->items[i];
        if (i)
            buffer_append(&b, by.data, by.size);
        if (path)
            rc = run_attribute_path(r, &items->items[i], path, &v);
        if (rc == 0)
            rc = value_print(r, &v, false, 0, &b);
    }
    if (rc == 0)
        rc = value_copy_text(r, &b, out);
    buffer_free(&b);
    return rc;
}

static int filter_reverse(struct run *r, const struct value *in, const struct arguments *args,
                          struct value *out)
{
    (void)args;
    struct value minus = value_integer(-1), plain = *in;
    struct list *items = NULL;
    int rc = 0;
    if (in->type != VALUE_STRING) {
        rc = value_items(r, in, &items);
        struct value copy = {.type = VALUE_LIST, .list = items};
        rc = rc < 0 ? rc : filter_list(r, &copy, args, &plain);
    }
    if (rc == 0)
        rc = run_slice(r, &plain, NULL, NULL, &minus, out);
    if (rc == 0 && out->type == VALUE_LIST)
        out->list->kind = LIST_LAZY;
    return rc;
}

static int filter_items(struct run *r, const struct value *in, const struct arguments *args,
                        struct value *out)
{
    (void)args;
    if (in->type == VALUE_UNDEFINED)
        return value_new_list(r, LIST_LAZY, 0, out);
    if (in->type != VALUE_DICT)
        return run_fail(r, HP_EINVAL, "Can only get item pairs from a mapping.");
    int rc = value_pair_list(r, in->dict, out);
    if (rc == 0)
        out->list->kind = LIST_LAZY;
    return rc;
}

static int filter_sum(struct run *r, const struct value *in, const struct arguments *args,
                      struct value *out)
{
    const struct value *path = argument_get(args, 0, "attribute"),
                       *start = argument_get(args, 1, "start");
    struct list *items = NULL;
    int rc = value_items(r, in, &items);
    *out = start ? *start : value_integer(0);
    for (size_t i = 0; rc == 0 && i < items->n; i++) {
        struct value v = items->items[i], before = *out;
        if (path && path->type != VALUE_NONE)
            rc = run_attribute_path(r, &items->items[i], path, &v);
        if (rc == 0)
            rc = run_binary(r, '+', &before, &v, out);
    }
    return rc;
}

const struct filter template_list_filters[] = {
    {"list", filter_list},       {"first", filter_first},
    {"last", filter_last},       {"join", filter_join},
    {"reverse", filter_reverse}, {"items", filter_items},
    {"sum", filter_sum},         {NULL, NULL},
};
