/* Filters by name, and those that call filters and tests by name themselves: map, select and
 * reject.
 */
#include "model/template/filters.h"

#include <string.h>

#include "model/template/access.h"
#include "model/template/collections.h"
#include "model/template/tests.h"

static struct arguments arguments_after(const struct arguments *args, size_t from)
{
    struct arguments rest = *args;
    rest.values = from < args->n ? args->values + from : NULL;
    rest.n = from < args->n ? args->n - from : 0;
    return rest;
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
    const struct value *path = args->n == 0 ? argument_get(args, 0, "attribute") : NULL,
                       *fallback = args->n == 0 ? argument_get(args, 1, "default") : NULL;
    if (!path && (args->n == 0 || args->values[0].type != VALUE_STRING))
        return run_fail(r, HP_EINVAL, "map requires a filter argument");
    struct list *items = NULL;
    struct arguments rest = arguments_after(args, 1);
    int rc = items_if_true(r, in, &items);
    if (rc == 0)
        rc = value_new_list(r, LIST_LAZY, items->n, out);
    for (size_t i = 0; rc == 0 && i < items->n; i++) {
        struct value v;
        rc = path ? run_attribute_path(r, &items->items[i], path, &v)
                  : run_filter(r, args->values[0].string, &items->items[i], &rest, &v);
        if (rc == 0 && path && fallback && v.type == VALUE_UNDEFINED)
            v = *fallback;
        if (rc == 0)
            rc = list_push(r, out->list, v);
    }
    return rc;
}

/* select, reject, selectattr, rejectattr: those that pass a test, or that are true. */
static int filter_by_test(struct run *r, const struct value *in, const struct arguments *args,
                          bool by_attribute, bool wanted, struct value *out)
{
    struct list *items = NULL;
    size_t at = by_attribute ? 1 : 0;
    if (args->n < at)
        return run_fail(r, HP_EINVAL, "Missing parameter for attribute name");
    if (args->n > at && args->values[at].type != VALUE_STRING)
        return run_fail(r, HP_EINVAL, "a test is called by its name");
    struct arguments rest = arguments_after(args, at + 1);
    int rc = items_if_true(r, in, &items);
    if (rc == 0)
        rc = value_new_list(r, LIST_LAZY, 0, out);
    for (size_t i = 0; rc == 0 && i < items->n; i++) {
        struct value v = items->items[i];
        rc = run_tick(r, 1);
        if (rc == 0 && by_attribute)
            rc = run_attribute_path(r, &items->items[i], &args->values[0], &v);
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
    return filter_by_test(r, in, args, false, true, out);
}

static int filter_reject(struct run *r, const struct value *in, const struct arguments *args,
                         struct value *out)
{
    return filter_by_test(r, in, args, false, false, out);
}

static int filter_selectattr(struct run *r, const struct value *in, const struct arguments *args,
                             struct value *out)
{
    return filter_by_test(r, in, args, true, true, out);
}

static int filter_rejectattr(struct run *r, const struct value *in, const struct arguments *args,
                             struct value *out)
{
    return filter_by_test(r, in, args, true, false, out);
}

static const struct filter calling_filters[] = {
    {"map", filter_map},
    {"select", filter_select},
    {"reject", filter_reject},
    {"selectattr", filter_selectattr},
    {"rejectattr", filter_rejectattr},
    {NULL, NULL},
};

static filter_fn filter_find(struct text name)
{
    static const struct filter *const tables[] = {calling_filters,         template_value_filters,
                                                  template_number_filters, template_text_filters,
                                                  template_list_filters,   template_sort_filters,
                                                  template_group_filters};
    for (size_t k = 0; k < sizeof tables / sizeof *tables; k++)
        for (const struct filter *f = tables[k]; f->name; f++)
            if (text_is(name, f->name))
                return f->apply;
    return NULL;
}

bool template_has_filter(struct text name)
{
    return filter_find(name) != NULL;
}

int run_filter(struct run *r, struct text name, const struct value *in,
               const struct arguments *args, struct value *out)
{
    filter_fn apply = filter_find(name);
    return apply ? apply(r, in, args, out)
                 : run_fail(r, HP_EUNSUPPORTED, "the filter \"%.*s\" is not known", (int)name.size,
                            name.data);
}
