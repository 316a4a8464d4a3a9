/* Filters that go through lists and dicts. */
#include <string.h>

#include "model/template_filters.h"

/* "a.b" or a number, one step after the other. */
static int attribute_path(struct run *r, const struct value *in, const struct value *path,
                          struct value *out)
{
    *out = *in;
    if (path->type != VALUE_STRING)
        return run_item(r, in, path, out);
    struct text rest = path->string;
    for (;;) {
        int64_t dot = text_find(rest, (struct text){".", 1}, 0);
        struct text name = {rest.data, dot < 0 ? rest.size : (size_t)dot};
        struct value of = *out, key = value_text(name);
        bool number = name.size > 0 && name.size < 10;
        int64_t index = 0;
        for (size_t i = 0; number && i < name.size; i++) {
            number = name.data[i] >= '0' && name.data[i] <= '9';
            index = index * 10 + (name.data[i] - '0');
        }
        if (number)
            key = value_integer(index);
        int rc = run_item(r, &of, &key, out);
        if (rc < 0 || dot < 0)
            return rc;
        rest = (struct text){rest.data + dot + 1, rest.size - (size_t)dot - 1};
    }
}

static struct arguments rest_of(const struct arguments *args, size_t from)
{
    struct arguments rest = *args;
    rest.values = from < args->n ? args->values + from : NULL;
    rest.n = from < args->n ? args->n - from : 0;
    return rest;
}

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

static int end_item(struct run *r, const struct value *in, bool last, struct value *out)
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
    return end_item(r, in, false, out);
}

static int filter_last(struct run *r, const struct value *in, const struct arguments *args,
                       struct value *out)
{
    (void)args;
    return end_item(r, in, true, out);
}

static int filter_join(struct run *r, const struct value *in, const struct arguments *args,
                       struct value *out)
{
    struct text by;
    const struct value *path = argument(args, 1, "attribute");
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
            rc = attribute_path(r, &items->items[i], path, &v);
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

/* map and select take whatever is false for an empty list, none too. */
static int items_if_true(struct run *r, const struct value *in, struct list **items)
{
    struct value nothing = value_undefined(text_of("nothing"));
    return value_items(r, value_true(in) ? in : &nothing, items);
}

static int filter_map(struct run *r, const struct value *in, const struct arguments *args,
                      struct value *out)
{
    const struct value *path = args->n == 0 ? argument(args, 0, "attribute") : NULL,
                       *fallback = args->n == 0 ? argument(args, 1, "default") : NULL;
    if (!path && (args->n == 0 || args->values[0].type != VALUE_STRING))
        return run_fail(r, HP_EINVAL, "map requires a filter argument");
    struct list *items = NULL;
    struct arguments rest = rest_of(args, 1);
    int rc = items_if_true(r, in, &items);
    if (rc == 0)
        rc = value_new_list(r, LIST_LAZY, items->n, out);
    for (size_t i = 0; rc == 0 && i < items->n; i++) {
        struct value v;
        rc = path ? attribute_path(r, &items->items[i], path, &v)
                  : run_filter(r, args->values[0].string, &items->items[i], &rest, &v);
        if (rc == 0 && path && fallback && v.type == VALUE_UNDEFINED)
            v = *fallback;
        if (rc == 0)
            rc = list_push(r, out->list, v);
    }
    return rc;
}

/* select, reject, selectattr, rejectattr: those that pass a test, or that are true. */
static int choose(struct run *r, const struct value *in, const struct arguments *args,
                  bool by_attribute, bool wanted, struct value *out)
{
    struct list *items = NULL;
    size_t at = by_attribute ? 1 : 0;
    if (args->n < at)
        return run_fail(r, HP_EINVAL, "Missing parameter for attribute name");
    if (args->n > at && args->values[at].type != VALUE_STRING)
        return run_fail(r, HP_EINVAL, "a test is called by its name");
    struct arguments rest = rest_of(args, at + 1);
    int rc = items_if_true(r, in, &items);
    if (rc == 0)
        rc = value_new_list(r, LIST_LAZY, 0, out);
    for (size_t i = 0; rc == 0 && i < items->n; i++) {
        struct value v = items->items[i];
        rc = run_tick(r, 1);
        if (rc == 0 && by_attribute)
            rc = attribute_path(r, &items->items[i], &args->values[0], &v);
        bool passes = rc == 0 && value_true(&v);
        if (rc == 0 && args->n > at)
            rc = run_test(r, args->values[at].string, &v, &rest, &passes);
        if (rc == 0 && passes == wanted)
            rc = list_push(r, out->list, items->items[i]);
    }
    return rc;
}

static int filter_select(struct run *r, const struct value *in, const struct arguments *args,
                         struct value *out)
{
    return choose(r, in, args, false, true, out);
}
static int filter_reject(struct run *r, const struct value *in, const struct arguments *args,
                         struct value *out)
{
    return choose(r, in, args, false, false, out);
}
static int filter_selectattr(struct run *r, const struct value *in, const struct arguments *args,
                             struct value *out)
{
    return choose(r, in, args, true, true, out);
}
static int filter_rejectattr(struct run *r, const struct value *in, const struct arguments *args,
                             struct value *out)
{
    return choose(r, in, args, true, false, out);
}

/* What an item is compared by: itself or an attribute, in small letters unless case matters. */
int template_sort_key(struct run *r, const struct value *item, const struct value *path,
                      const struct value *fallback, bool case_sensitive, struct value *out)
{
    *out = *item;
    int rc = path && path->type != VALUE_NONE ? attribute_path(r, item, path, out) : 0;
    if (rc == 0 && path && fallback && out->type == VALUE_UNDEFINED)
        *out = *fallback;
    if (rc < 0 || case_sensitive || out->type != VALUE_STRING)
        return rc;
    struct buffer b = {0};
    text_case(out->string, CASE_LOWER, &b);
    rc = value_copy_text(r, &b, out);
    buffer_free(&b);
    return rc;
}

/* Merge sort of pairs (key to compare by, item): stable, and errors of comparing stop it. */
static int merge_sort(struct run *r, struct pair *pairs, struct pair *spare, size_t n, bool reverse)
{
    if (n < 2)
        return 0;
    size_t half = n / 2, i = 0, j = half;
    int rc = merge_sort(r, pairs, spare, half, reverse);
    if (rc == 0)
        rc = merge_sort(r, pairs + half, spare, n - half, reverse);
    for (size_t k = 0; rc == 0 && k < n; k++) {
        int order = i == half ? 1 : -1;
        if (i < half && j < n)
            rc = value_order(r, &pairs[i].key, &pairs[j].key, &order);
        bool right = i == half || (j < n && (reverse ? order < 0 : order > 0));
        spare[k] = right ? pairs[j++] : pairs[i++];
        rc = rc < 0 ? rc : run_tick(r, 1);
    }
    if (rc == 0)
        memcpy(pairs, spare, n * sizeof *pairs);
    return rc;
}

static int sorted(struct run *r, const struct list *items, const struct value *path,
                  const struct value *fallback, bool case_sensitive, bool reverse,
                  struct value *out)
{
    struct pair *pairs = run_alloc(r, items->n + 1, sizeof *pairs),
                *spare = run_alloc(r, items->n + 1, sizeof *spare);
    if (!pairs || !spare)
        return HP_ELIMIT;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < items->n; i++) {
        pairs[i].value = items->items[i];
        rc = template_sort_key(r, &items->items[i], path, fallback, case_sensitive, &pairs[i].key);
    }
    if (rc == 0)
        rc = merge_sort(r, pairs, spare, items->n, reverse);
    if (rc == 0)
        rc = value_new_list(r, LIST_PLAIN, items->n, out);
    for (size_t i = 0; rc == 0 && i < items->n; i++)
        rc = list_push(r, out->list, pairs[i].value);
    return rc;
}

int template_sorted(struct run *r, const struct list *items, const struct value *path,
                    const struct value *fallback, bool case_sensitive, struct value *out)
{
    return sorted(r, items, path, fallback, case_sensitive, false, out);
}

static int filter_sort(struct run *r, const struct value *in, const struct arguments *args,
                       struct value *out)
{
    struct list *items = NULL;
    int rc = value_items(r, in, &items);
    if (rc < 0)
        return rc;
    bool reverse = argument_true(args, 0, "reverse", false),
         sensitive = argument_true(args, 1, "case_sensitive", false);
    return sorted(r, items, argument(args, 2, "attribute"), NULL, sensitive, reverse, out);
}

static int filter_dictsort(struct run *r, const struct value *in, const struct arguments *args,
                           struct value *out)
{
    struct value pairs, place = value_integer(0);
    struct text by;
    if (in->type != VALUE_DICT)
        return run_fail(r, HP_EINVAL, "dictsort of a %s", value_type_word(in));
    int rc = argument_text(r, args, 1, "by", text_of("key"), &by);
    if (rc == 0)
        rc = value_pair_list(r, in->dict, &pairs);
    if (rc < 0)
        return rc;
    place.integer = text_is(by, "value");
    return sorted(r, pairs.list, &place, NULL, argument_true(args, 0, "case_sensitive", false),
                  argument_true(args, 2, "reverse", false), out);
}

static int filter_unique(struct run *r, const struct value *in, const struct arguments *args,
                         struct value *out)
{
    bool sensitive = argument_true(args, 0, "case_sensitive", false);
    const struct value *path = argument(args, 1, "attribute");
    struct list *items = NULL;
    struct value seen;
    int rc = value_items(r, in, &items);
    if (rc == 0)
        rc = value_new_list(r, LIST_LAZY, 0, out);
    if (rc == 0)
        rc = value_new_list(r, LIST_PLAIN, 0, &seen);
    for (size_t i = 0; rc == 0 && i < items->n; i++) {
        struct value key;
        bool known = false;
        rc = template_sort_key(r, &items->items[i], path, NULL, sensitive, &key);
        if (rc == 0)
            rc = run_compare(r, 'i', &key, &seen, &known);
        if (rc == 0 && !known)
            rc = list_push(r, seen.list, key);
        if (rc == 0 && !known)
            rc = list_push(r, out->list, items->items[i]);
    }
    return rc;
}

static int extreme(struct run *r, const struct value *in, const struct arguments *args,
                   bool largest, struct value *out)
{
    bool sensitive = argument_true(args, 0, "case_sensitive", false);
    struct list *items = NULL;
    int rc = value_items(r, in, &items);
    if (rc < 0)
        return rc;
    struct value all, end = value_integer(0);
    rc = sorted(r, items, argument(args, 1, "attribute"), NULL, sensitive, largest, &all);
    *out = value_undefined(text_of(largest ? "the maximum of nothing" : "the minimum of nothing"));
    return rc < 0 || all.list->n == 0 ? rc : run_item(r, &all, &end, out);
}

static int filter_min(struct run *r, const struct value *in, const struct arguments *args,
                      struct value *out)
{
    return extreme(r, in, args, false, out);
}
static int filter_max(struct run *r, const struct value *in, const struct arguments *args,
                      struct value *out)
{
    return extreme(r, in, args, true, out);
}

static int filter_sum(struct run *r, const struct value *in, const struct arguments *args,
                      struct value *out)
{
    const struct value *path = argument(args, 0, "attribute"), *start = argument(args, 1, "start");
    struct list *items = NULL;
    int rc = value_items(r, in, &items);
    *out = start ? *start : value_integer(0);
    for (size_t i = 0; rc == 0 && i < items->n; i++) {
        struct value v = items->items[i], before = *out;
        if (path && path->type != VALUE_NONE)
            rc = attribute_path(r, &items->items[i], path, &v);
        if (rc == 0)
            rc = run_binary(r, '+', &before, &v, out);
    }
    return rc;
}

const struct filter template_list_filters[] = {
    {"list", filter_list},
    {"first", filter_first},
    {"last", filter_last},
    {"join", filter_join},
    {"reverse", filter_reverse},
    {"items", filter_items},
    {"map", filter_map},
    {"select", filter_select},
    {"reject", filter_reject},
    {"selectattr", filter_selectattr},
    {"rejectattr", filter_rejectattr},
    {"sort", filter_sort},
    {"dictsort", filter_dictsort},
    {"unique", filter_unique},
    {"min", filter_min},
    {"max", filter_max},
    {"sum", filter_sum},
    {NULL, NULL},
};
