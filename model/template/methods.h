/* Methods of templates' values: one function each, with what its names differ in as `how`. */
#ifndef HP_MODEL_TEMPLATE_METHODS_H
#define HP_MODEL_TEMPLATE_METHODS_H

#include "model/template/arguments.h"
#include "model/template/names.h"

/* Calls the method; what is put into a string that is fit for HTML is escaped first. */
int run_method(struct run *r, const struct method *m, const struct arguments *args,
               struct value *out);

typedef int (*method_fn)(struct run *r, const struct value *self, const struct arguments *args,
                         int how, struct value *out);

#define METHOD(name)                                                                               \
    int method_##name(struct run *r, const struct value *self, const struct arguments *args,       \
                      int how, struct value *out)

/* string_methods.c; split: 1 from the right */
METHOD(split);
METHOD(splitlines);
METHOD(replace);
METHOD(join);

/* char_methods.c */
enum {
    IS_DIGIT = 1,
    IS_ALPHA = 2,
    IS_SPACE = 4,
    IS_UPPER = 8,
    IS_LOWER = 16,
    IS_DECIMAL = 32,
    IS_NUMERIC = 64,
    IS_ASCII = 128
};
enum { JUSTIFY_LEFT, JUSTIFY_RIGHT, JUSTIFY_CENTER };
METHOD(strip);      /* STRIP_* */
METHOD(case);       /* CASE_* */
METHOD(is_all);     /* every character is of one of the kinds */
METHOD(is_case);    /* there are letters of that case and none of the other */
METHOD(remove_end); /* 1: the suffix */
METHOD(justify);    /* JUSTIFY_* */
METHOD(zfill);

/* search_methods.c */
enum { FIND_LAST = 1, FIND_OR_FAIL = 2 };
METHOD(has_end); /* 1: endswith */
METHOD(find);    /* FIND_* */
METHOD(count);
METHOD(partition); /* 1: the last one */

/* format.c: str.format */
METHOD(format);

#undef METHOD

#endif
