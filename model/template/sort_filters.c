/* Filters that compare the items of a list. */
#include <string.h>

#include "model/template/access.h"
#include "model/template/collections.h"
#include "model/template/compare.h"
#include "model/template/filters.h"
#include "model/template/tree.h"

/* What an item is compared by: itself or an attribute, in small letters unless case matters. */
int template_sort_key(struct run *r, const struct value *item, const struct value *path,
                      const struct value *fallback, bool case_sensitive, struct value *out)
{
    *out = *item;
    int rc = path && path->type != VALUE_NONE ? run_attribute_path(r, item, path, out) : 0;
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
static int pairs_sort(struct run *r, struct dict_pair *pairs, struct dict_pair *spare, size_t n,
                      bool reverse)
{
    if (n < 2)
        return 0;
    size_t half = n / 2, i = 0, j = half;
    int rc = pairs_sort(r, pairs, spare, half, reverse);
    if (rc == 0)
        rc = pairs_sort(r, pairs + half, spare, n - half, reverse);
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

static int items_sort(struct run *r, const struct list *items, const struct value *path,
                      const struct value *fallback, bool case_sensitive, bool reverse,
                      struct value *out)
{
    struct dict_pair *pairs = run_alloc(r, items->n + 1, sizeof *pairs),
                     *spare = run_alloc(r, items->n + 1, sizeof *spare);
    if (!pairs || !spare)
        return HP_ELIMIT;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < items->n; i++) {
        pairs[i].value = items->items[i];
        rc = template_sort_key(r, &items->items[i], path, fallback, case_sensitive, &pairs[i].key);
    }
    if (rc == 0)
        rc = pairs_sort(r, pairs, spare, items->n, reverse);
    if (rc == 0)
        rc = value_new_list(r, LIST_PLAIN, items->n, out);
    for (size_t i = 0; rc == 0 && i < items->n; i++)
        rc = list_push(r, out->list, pairs[i].value);
    return rc;
}

int template_sorted(struct run *r, const struct list *items, const struct value *path,
                    const struct value *fallback, bool case_sensitive, struct value *out)
{
    return items_sort(r, items, path, fallback, case_sensitive, false, out);
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
    return items_sort(r, items, argument_get(args, 2, "attribute"), NULL, sensitive, reverse, out);
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
    return items_sort(r, pairs.list, &place, NULL, argument_true(args, 0, "case_sensitive", false),
                      argument_true(args, 2, "reverse", false), out);
}

static int filter_unique(struct run *r, const struct value *in, const struct arguments *args,
                         struct value *out)
{
    bool sensitive = argument_true(args, 0, "case_sensitive", false);
    const struct value *path = argument_get(args, 1, "attribute");
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
            rc = run_compare(r, OP_IN, &key, &seen, &known);
        if (rc == 0 && !known)
            rc = list_push(r, seen.list, key);
        if (rc == 0 && !known)
            rc = list_push(r, out->list, items->items[i]);
    }
    return rc;
}

static int end_of_sorted(struct run *r, const struct value *in, const struct arguments *args,
                         bool largest, struct value *out)
{
    bool sensitive = argument_true(args, 0, "case_sensitive", false);
    struct list *items = NULL;
    int rc = value_items(r, in, &items);
    if (rc < 0)
        return rc;
    struct value all, end = value_integer(0);
    rc = items_sort(r, items, argument_get(args, 1, "attribute"), NULL, sensitive, largest, &all);
    *out = value_undefined(text_of(largest ? "the maximum of nothing" : "the minimum of nothing"));
    return rc < 0 || all.list->n == 0 ? rc : run_item(r, &all, &end, out);
}

static int filter_min(struct run *r, const struct value *in, const struct arguments *args,
                      struct value *out)
{
    return end_of_sorted(r, in, args, false, out);
}

static int filter_max(struct run *r, const struct value *in, const struct arguments *args,
                      struct value *out)
{
    return end_of_sorted(r, in, args, true, out);
}

const struct filter template_sort_filters[] = {
    {"sort", filter_sort}, {"dictsort", filter_dictsort}, {"unique", filter_unique},
    {"min", filter_min},   {"max", filter_max},           {NULL, NULL},
};
