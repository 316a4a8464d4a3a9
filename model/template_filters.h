/* Filters of templates: tables of names and functions. */
#ifndef HP_MODEL_TEMPLATE_FILTERS_H
#define HP_MODEL_TEMPLATE_FILTERS_H

#include "model/template_int.h"

typedef int (*filter_fn)(struct run *r, const struct value *in, const struct arguments *args, struct value *out);

struct filter {
    const char *name;
    filter_fn apply;
};

extern const struct filter template_list_filters[]; /* ends with a NULL name */

#endif
