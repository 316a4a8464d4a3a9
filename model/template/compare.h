/* Equality, order and membership of values, as Python has them. */
#ifndef HP_MODEL_TEMPLATE_COMPARE_H
#define HP_MODEL_TEMPLATE_COMPARE_H

#include "model/template/run.h"

/* `depth` is 0 but for parts of a value. Two values nested deeper than 200 are not equal. */
bool value_equal(struct run *r, const struct value *a, const struct value *b, int depth);
/* *order is less than 0, 0 or more; HP_EINVAL where the two have no order. */
int value_order(struct run *r, const struct value *a, const struct value *b, int *order);
/* `a op b` for '<', '>' and OP_EQ to OP_NOT_IN of tree.h. */
int run_compare(struct run *r, int op, const struct value *a, const struct value *b, bool *out);

#endif
