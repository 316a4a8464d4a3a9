/* Operators on numbers, strings and lists, as Python has them; whole numbers have 64 bits. */
#ifndef HP_MODEL_TEMPLATE_ARITHMETIC_H
#define HP_MODEL_TEMPLATE_ARITHMETIC_H

#include "model/template/run.h"

/* `a op b` for '+', '-', '*', '/', '%', '~', OP_FLOOR and OP_POWER of tree.h. HP_EINVAL for types
 * that do not go together, HP_EUNSUPPORTED beyond 64 bits. */
int run_binary(struct run *r, int op, const struct value *a, const struct value *b,
               struct value *out);

#endif
