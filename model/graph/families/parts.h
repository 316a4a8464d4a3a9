/* What many families have in common. */
#ifndef HP_MODEL_GRAPH_FAMILIES_PARTS_H
#define HP_MODEL_GRAPH_FAMILIES_PARTS_H

#include "model/graph/builder.h"
#include "model/graph/facts_source.h"

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
    bool head_norms;   /* of q and k, before they rotate */
    const char *sinks; /* name of their weight; NULL: none */
};
/* Projections, rotation and attention of a row that is normed already: [tokens, heads * head_dim].
 */
int part_attention_mixed(struct graph_builder *b, int normed, int angles,
                         const struct part_attention *how);
/* Layer `mlp`: norm, silu(gate) * up, down, residual. */
int part_gated_mlp(struct graph_builder *b, int block, int x, enum bias_policy bias);
/* Layer `moe`: norm, router, what the row's experts make of it, residual; a shared expert where the
 * config has one, behind a gate where the family names its weight (NULL: none). In a block that the
 * config says is dense: layer `mlp`. */
int part_mixture(struct graph_builder *b, int block, int x, const char *shared_gate);
/* What a layer of experts works on: the normed rows, and which experts each of them takes. */
struct part_mixed {
    int normed, route;
};
/* What `make` says that experts make of it, added to `to`: group by group, of which the first is of
 * the layer that is there (graph_layer_part_begin) and each other a layer of its own. Sums are the
 * same to the bit, however many groups there are. */
int part_experts(struct graph_builder *b, int block, struct part_mixed in, int to,
                 int (*make)(struct graph_builder *b, struct part_mixed in));
/* Reads what kinds of files call it: counts and widths. HP_EPARSE where they make no sense. */
struct part_expert_keys {
    const char *n, *used, *width, *shared_width; /* of config.json; NULL: it has none */
};
int part_experts_read(const struct facts_source *s, const struct part_expert_keys *hub,
                      struct model_config *c);

/* Of GGUF files: dense[blocks] is true where a block has no router and a matrix instead. */
void part_dense_find(const struct facts_source *s, int blocks, bool *dense);

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
