/* Expressions, evaluated. */
#ifndef HP_MODEL_TEMPLATE_EVAL_H
#define HP_MODEL_TEMPLATE_EVAL_H

#include "model/template/arguments.h"
#include "model/template/tree.h"

int run_evaluate(struct run *r, const struct node *n, struct value *out);
/* The arguments whose nodes begin with `first`. */
int run_arguments(struct run *r, const struct node *first, struct arguments *out);

#endif
