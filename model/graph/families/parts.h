/* What many families have in common. */
#ifndef HP_MODEL_GRAPH_FAMILIES_PARTS_H
#define HP_MODEL_GRAPH_FAMILIES_PARTS_H

#include "model/graph/builder.h"

/* The keys of LLaMA and of most families since. */
extern const struct hub_keys hub_keys_usual;

/* Layer `embed`: rows of the embedding by token ids. */
int part_embed(struct graph_builder *b);
/* Layer `mlp`: norm, silu(gate) * up, down, residual. */
int part_gated_mlp(struct graph_builder *b, int block, int x, enum bias_policy bias);
/* Layer `head`: the rows that are wanted, RMS norm, vocabulary. */
void part_head(struct graph_builder *b, int x);

#endif
