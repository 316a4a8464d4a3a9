/* What builder.c (tables, weights) gives operators.c (one function a kind). */
#ifndef HP_MODEL_GRAPH_BUILDER_INT_H
#define HP_MODEL_GRAPH_BUILDER_INT_H

#include "model/graph/builder.h"

enum { BUILDER_NAME_BYTES = 192 };

/* An operator in the making. */
struct op_made {
    struct graph_op op;
    const char *name; /* of its value */
    int inputs[OP_INPUTS_MAX];
    const struct weight *weights[OP_WEIGHTS_MAX];
};

/* Keeps the first error. */
void builder_fail(struct graph_builder *b, int rc);
/* The tensor's name in this kind of file: that of GGUF, or the one beside it in the family's list.
 */
void builder_weight_name(const struct graph_builder *b, const char *name, const char *ending,
                         char out[BUILDER_NAME_BYTES]);
/* A matrix, or a vector where `rows` is 0. NULL: the builder has failed. */
const struct weight *builder_weight_take(struct graph_builder *b, const char *name, uint64_t rows,
                                         uint64_t columns);
/* NULL where there is none, too. */
const struct weight *builder_bias_take(struct graph_builder *b, const char *name,
                                       enum bias_policy policy, uint64_t width);
/* Experts' matrices, each rows x columns: of one tensor, or of one for each where the name in this
 * kind of file has a `*`, which stands for the expert's number. */
const struct weight *builder_experts_take(struct graph_builder *b, const char *name, uint64_t rows,
                                          uint64_t columns);
/* Whether the file has it as MXFP4 in two tensors, whose matrices never lie turned. */
bool builder_is_apart(const struct graph_builder *b, const char *name);
const struct weight *builder_heads_take(struct graph_builder *b, const char *name,
                                        const struct head_matrices *m);
/* Puts a value into the table that no operator makes, under a name of the arena's: its number; 0
 * when the builder has failed. A value of fixed shape that enters with the first layer is
 * VALUE_INPUT with the size of each dimension. */
int builder_value_add(struct graph_builder *b, const char *name, enum dtype dtype,
                      enum graph_origin origin, const struct graph_dim *dims, int n_dims);
/* Puts the operator into the table; the number of its value, 0 when the builder has failed. */
int builder_op_add(struct graph_builder *b, struct op_made m);

/* borders.c: fills in the layers' outputs, from what later layers read. HP_ENOMEM. */
int graph_borders_find(const struct graph *g, struct graph_layer *layers, struct arena *arena);

#endif
