/* Expressions, evaluated. */
#ifndef HP_MODEL_TEMPLATE_EVAL_H
#define HP_MODEL_TEMPLATE_EVAL_H

#include "model/template/arguments.h"
#include "model/template/tree.h"

/* The value of an expression. HP_EINVAL, HP_EUNSUPPORTED, HP_ELIMIT, HP_ENOMEM, with the line of
 * the template. */
int run_evaluate(struct run *r, const struct node *n, struct value *out);
/* The arguments whose nodes begin with `first`. */
int run_arguments(struct run *r, const struct node *first, struct arguments *out);

#endif
