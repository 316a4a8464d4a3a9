/* How a graph is made, inside this folder. */
#ifndef HP_MODEL_LAYERS_INT_H
#define HP_MODEL_LAYERS_INT_H

#include "model/architecture.h"
#include "model/layers.h"
#include "model/weight_table.h"

/* Follows the family's recipes; takes every weight from the table with its shape checked, and
 * refuses weights that are left. All in the arena. */
int graph_build(const struct model_facts *f, struct weight_table *t, struct arena *arena,
                struct graph *out, struct err *e);

#endif
