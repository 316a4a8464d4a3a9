/* Arguments of a call, by place or by name. Each reader takes the argument at place `i` or the one
 * that is called `name`, and `fallback` where neither was given or it is none. */
#ifndef HP_MODEL_TEMPLATE_ARGUMENTS_H
#define HP_MODEL_TEMPLATE_ARGUMENTS_H

#include "model/template/run.h"

struct arguments {
    struct value *values; /* positional */
    size_t n;
    struct dict_pair *named; /* keys are strings */
    size_t n_named;
};

/* NULL when the argument was not given. */
const struct value *argument_get(const struct arguments *args, size_t i, const char *name);
bool argument_true(const struct arguments *args, size_t i, const char *name, bool fallback);
/* HP_EINVAL for an argument of another type. */
int argument_text(struct run *r, const struct arguments *args, size_t i, const char *name,
                  struct text fallback, struct text *out);
int argument_integer(struct run *r, const struct arguments *args, size_t i, const char *name,
                     int64_t fallback, int64_t *out);

#endif
