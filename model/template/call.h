/* Calls: the functions that every template has, methods and macros. */
#ifndef HP_MODEL_TEMPLATE_CALL_H
#define HP_MODEL_TEMPLATE_CALL_H

#include "model/template/arguments.h"

/* HP_EINVAL for what cannot be called. */
int run_call(struct run *r, const struct value *callee, const struct arguments *args,
             struct value *out);
bool template_has_function(struct text name);

#endif
