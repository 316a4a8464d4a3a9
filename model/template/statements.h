/* Statements, run: text, output, if, for, set, with, filter, macro and call. */
#ifndef HP_MODEL_TEMPLATE_STATEMENTS_H
#define HP_MODEL_TEMPLATE_STATEMENTS_H

#include "model/template/run.h"
#include "model/template/tree.h"

/* The statements from `first` on, in the scope that is there. */
int run_body(struct run *r, const struct node *first);
/* What the statements from `first` on write, as a string, in a scope of their own. */
int run_capture(struct run *r, const struct node *first, struct value *out);

#endif
