/* What many families have in common. */
#ifndef HP_MODEL_GRAPH_FAMILIES_PARTS_H
#define HP_MODEL_GRAPH_FAMILIES_PARTS_H

#include "model/graph/builder.h"

/* The keys of LLaMA and of most families since, and how their weights are named. */
extern const struct hub_keys hub_keys_usual;
extern const struct weight_name weight_names_usual[];

/* Angles of the two kinds of blocks, without a window and with one; the same where one rotation
 * serves both. */
struct part_angles {
    int global, window;
};
/* In the prelude. */
struct part_angles part_angles(struct graph_builder *b);
int part_angles_of(const struct graph_builder *b, const struct part_angles *a, int block);

/* Layer `embed`: rows of the embedding by token ids, times the config's factor. */
int part_embed(struct graph_builder *b);

struct part_attention {
    enum bias_policy qkv_bias, output_bias;
    bool head_norms; /* of q and k, before they rotate */
};
/* Projections, rotation and attention of a row that is normed already: [tokens, heads * head_dim].
 */
int part_attention_mixed(struct graph_builder *b, int normed, int angles,
                         const struct part_attention *how);
/* The whole graph of a decoder such as LLaMA: embedding, blocks of attention and MLP, head. */
struct part_decoder {
    struct part_attention attention;
    enum bias_policy mlp_bias;
    /* Layer `mlp` of a block; NULL: norm, silu(gate) * up,
       down, residual */
    int (*mlp)(struct graph_builder *b, int block, int x);
};
void part_decoder(struct graph_builder *b, const struct part_decoder *how);
/* Layer `head`: the rows that are wanted, RMS norm, vocabulary, the config's factor and cap. */
void part_head(struct graph_builder *b, int x);

#endif
