/* Filters of templates: tables of names and functions. */
#ifndef HP_MODEL_TEMPLATE_FILTERS_H
#define HP_MODEL_TEMPLATE_FILTERS_H

#include "model/template/arguments.h"

/* HP_EUNSUPPORTED for a filter that is not known. */
int run_filter(struct run *r, struct text name, const struct value *in,
               const struct arguments *args, struct value *out);
bool template_has_filter(struct text name);

typedef int (*filter_fn)(struct run *r, const struct value *in, const struct arguments *args,
                         struct value *out);

struct filter {
    const char *name;
    filter_fn apply;
};

/* Each ends with a NULL name and lies in the file of its name. */
extern const struct filter template_value_filters[], template_number_filters[],
    template_text_filters[], template_list_filters[], template_sort_filters[],
    template_group_filters[];

/* sort_filters.c: items in the order of an attribute (`fallback` where it is missing; either may be
 * NULL), and what an item is compared by. */
int template_sorted(struct run *r, const struct list *items, const struct value *path,
                    const struct value *fallback, bool case_sensitive, struct value *out);
int template_sort_key(struct run *r, const struct value *item, const struct value *path,
                      const struct value *fallback, bool case_sensitive, struct value *out);

#endif
