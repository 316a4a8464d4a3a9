/* What many families have in common. */
#ifndef HP_MODEL_GRAPH_FAMILIES_PARTS_H
#define HP_MODEL_GRAPH_FAMILIES_PARTS_H

#include "model/graph/builder.h"

/* The keys of LLaMA and of most families since, and the names of its weights. */
extern const struct hub_keys hub_keys_usual;
extern const struct weight_name weight_names_usual[];

/* Which matrices of a decoder have biases. */
struct part_biases {
    enum bias_policy qkv, output, mlp;
};
/* The whole graph of a decoder such as LLaMA: in each block RMS norm, q, k and v, rope, attention,
 * residual; RMS norm, gated MLP, residual; behind them RMS norm and vocabulary. */
void part_decoder(struct graph_builder *b, const struct part_biases *bias);

#endif
