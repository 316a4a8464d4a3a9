/* Filters that put the items of a list into groups. */
#include "model/template/collections.h"
#include "model/template/compare.h"
#include "model/template/filters.h"

static int push_group(struct run *r, struct value *groups, size_t capacity, struct value *group)
{
    int rc = value_new_list(r, LIST_PLAIN, capacity, group);
    return rc < 0 ? rc : list_push(r, groups->list, *group);
}

/* Columns: as many lists as asked for, the first ones longer. */
static int filter_slice(struct run *r, const struct value *in, const struct arguments *args,
                        struct value *out)
{
    const struct value *fill = argument_get(args, 1, "fill_with");
    struct list *items = NULL;
    struct value group;
    int64_t n, at = 0;
    int rc = argument_integer(r, args, 0, "slices", 0, &n);
    rc = rc < 0 ? rc : value_items(r, in, &items);
    if (rc == 0 && n < 1)
        rc = run_fail(r, HP_EINVAL, "slice needs a number of slices");
    rc = rc < 0 ? rc : value_new_list(r, LIST_LAZY, 0, out);
    for (int64_t i = 0; rc == 0 && i < n; i++) {
        int64_t total = (int64_t)items->n, length = total / n + (i < total % n);
        rc = push_group(r, out, 0, &group);
        for (int64_t k = 0; rc == 0 && k < length; k++)
            rc = list_push(r, group.list, items->items[at++]);
        if (rc == 0 && fill && fill->type != VALUE_NONE && i >= total % n)
            rc = list_push(r, group.list, *fill);
    }
    return rc;
}

/* Rows of so many items. */
static int filter_batch(struct run *r, const struct value *in, const struct arguments *args,
                        struct value *out)
{
    const struct value *fill = argument_get(args, 1, "fill_with");
    struct list *items = NULL;
    struct value group = value_none();
    int64_t n;
    int rc = argument_integer(r, args, 0, "linecount", 0, &n);
    rc = rc < 0 ? rc : value_items(r, in, &items);
    if (rc == 0 && n < 1)
        rc = run_fail(r, HP_EINVAL, "batch needs a number of items");
    rc = rc < 0 ? rc : value_new_list(r, LIST_LAZY, 0, out);
    for (size_t i = 0; rc == 0 && i < items->n; i++) {
        if ((int64_t)i % n == 0)
            rc = push_group(r, out, 0, &group);
        rc = rc < 0 ? rc : list_push(r, group.list, items->items[i]);
    }
    while (rc == 0 && group.type == VALUE_LIST && fill && fill->type != VALUE_NONE &&
           (int64_t)group.list->n < n)
        rc = list_push(r, group.list, *fill);
    return rc;
}

/* Pairs of what the items have in common and the items, sorted by it. */
static int filter_groupby(struct run *r, const struct value *in, const struct arguments *args,
                          struct value *out)
{
    const struct value *path = argument_get(args, 0, "attribute"),
                       *fallback = argument_get(args, 1, "default");
    bool sensitive = argument_true(args, 2, "case_sensitive", false), same;
    struct list *items = NULL;
    struct value all, key, last = value_none(), group = value_none(), shown, pair;
    if (!path)
        return run_fail(r, HP_EINVAL, "groupby needs an attribute");
    int rc = value_items(r, in, &items);
    rc = rc < 0 ? rc : template_sorted(r, items, path, fallback, sensitive, &all);
    rc = rc < 0 ? rc : value_new_list(r, LIST_PLAIN, 0, out);
    for (size_t i = 0; rc == 0 && i < all.list->n; i++) {
        rc = template_sort_key(r, &all.list->items[i], path, fallback, sensitive, &key);
        same = rc == 0 && i > 0 && value_equal(r, &key, &last, 0);
        if (rc == 0 && !same) {
            rc = value_new_list(r, LIST_TUPLE, 2, &pair);
            rc = rc < 0 ? rc
                        : template_sort_key(r, &all.list->items[i], path, fallback, true, &shown);
            rc = rc < 0 ? rc : list_push(r, pair.list, shown);
            rc = rc < 0 ? rc : push_group(r, &pair, 0, &group);
            rc = rc < 0 ? rc : list_push(r, out->list, pair);
            if (rc == 0)
                pair.list->group = true;
        }
        last = key;
        rc = rc < 0 ? rc : list_push(r, group.list, all.list->items[i]);
    }
    return rc;
}

const struct filter template_group_filters[] = {
    {"slice", filter_slice},
    {"batch", filter_batch},
    {"groupby", filter_groupby},
    {NULL, NULL},
};
