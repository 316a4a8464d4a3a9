/* Writes a graph operator by operator. A family's file calls these functions from top to bottom, so
 * that it reads like the model: norm, q/k/v, rope, attention, residual.
 *
 * Functions that make a value return its number. Weights are taken by GGUF's name ("attn_q") below
 * the block that the layer is of; their shapes are checked. The first error stays in the builder,
 * and what follows does nothing: a family's function need not look. */
#ifndef HP_MODEL_GRAPH_BUILDER_H
#define HP_MODEL_GRAPH_BUILDER_H

#include "common/arena.h"
#include "model/graph/family.h"
#include "model/graph/graph.h"
#include "model/graph/kinds.h"
#include "model/weight_table.h"

struct graph_builder {
    const struct family_facts *facts;
    struct weight_table *table;
    struct arena *arena;
    struct err *e;
    int rc; /* the first error */
    struct graph_value *values;
    struct graph_op *ops;
    struct graph_layer *layers;
    const struct weight **uses;
    int n_values, n_ops, n_layers, n_uses;
    int room_values, room_ops, room_layers, room_uses;
    int n_prelude_ops, n_attention, block;
    int expert_groups;              /* layers that share a block's experts; 0: one */
    struct op_experts experts_here; /* which of them the operators that follow have */
    int ids, positions, wanted;     /* given values; -1 until they are asked for */
};

/* What the batch gives: token ids u32 [tokens], their positions u32 [tokens], the rows whose logits
 * are asked for u32 [wanted]. */
int graph_ids(struct graph_builder *b);
int graph_positions(struct graph_builder *b);
int graph_wanted(struct graph_builder *b);

/* What follows belongs to a new layer: "blk.3.attn", or the class alone where `block` is -1.
 * Operators before the first layer are the prelude. */
void graph_layer_begin(struct graph_builder *b, int block, const char *class_name);
/* The same, as part `part` of `n_parts` of it: "blk.3.moe.1", of the class "moe.first/4" or, from
 * the second on, "moe/4". */
void graph_layer_part_begin(struct graph_builder *b, int block, const char *class_name, int part,
                            int n_parts);
/* What the last layer gives; a graph of fixed shape may give several values, in this order. */
void graph_output(struct graph_builder *b, int value);

/* [tokens, width]: rows of the weight [rows, width]. */
int graph_embed(struct graph_builder *b, int ids, const char *weight, int rows, int width);
/* Row `first` of the weight for id 0, and so on; with `same` that row for every id. */
int graph_embed_from(struct graph_builder *b, int ids, const char *weight, int rows, int width,
                     struct op_embed how);
/* Rows of x by indices. */
int graph_rows(struct graph_builder *b, int x, int indices);
int graph_rms_norm(struct graph_builder *b, int x, const char *weight);
/* Each head of x by itself. */
int graph_head_norm(struct graph_builder *b, int x, const char *weight);
/* With the weight's bias. */
int graph_layer_norm(struct graph_builder *b, int x, const char *weight);
/* x * weightᵀ, [tokens, outputs]; with `bias` as the policy says. */
int graph_matmul(struct graph_builder *b, int x, const char *weight, int outputs,
                 enum bias_policy bias);
/* The same added to `to`, whose width it has. */
int graph_matmul_add(struct graph_builder *b, int x, const char *weight, enum bias_policy bias,
                     int to);
/* The vocabulary projection: by the embedding's weight where embeddings are tied. */
int graph_logits(struct graph_builder *b, int x, const char *weight, const char *embedding);
/* `rope` lives as long as the model. */
int graph_rope_angles(struct graph_builder *b, int positions, const struct rope_config *rope);
int graph_rope(struct graph_builder *b, int x, int angles);
/* `sinks` names the weight with a score of each head that no value stands for; NULL: none. */
int graph_attention(struct graph_builder *b, int q, int k, int v, const char *sinks);
/* Values are the first `value_dim` elements of their keys, and nothing else is kept of a token. */
int graph_latent_attention(struct graph_builder *b, int q, int k, int value_dim);
/* Every token sees all of its text, which runs at once. */
int graph_attention_whole(struct graph_builder *b, int q, int k, int v);
int graph_silu_mul(struct graph_builder *b, int gate, int up);
int graph_gelu(struct graph_builder *b, int x);
int graph_gelu_exact(struct graph_builder *b, int x);
int graph_add(struct graph_builder *b, int x, int y);
int graph_mul(struct graph_builder *b, int x, int y);
/* x itself where the number is 0. */
int graph_scale(struct graph_builder *b, int x, float factor);
int graph_soft_cap(struct graph_builder *b, int x, float cap);
/* Each head of `head_dim` elements from `first` on. */
int graph_rope_part(struct graph_builder *b, int x, int angles, int head_dim, int first);
/* A matrix of each head: rows [first, first + rows) of every `stride` rows of one matrix with
 * `columns`; stride 0: of a tensor [heads, rows, columns]. */
struct head_matrices {
    uint64_t heads, first, rows, stride, columns;
};
/* A part of each head by the head's own matrix. */
int graph_head_matmul(struct graph_builder *b, int x, struct op_head_part part, const char *weight,
                      const struct head_matrices *matrices, bool turned);
/* Head by head a part of x, then one of y. */
int graph_join_heads(struct graph_builder *b, int x, int y, int heads, struct op_head_part of_x,
                     struct op_head_part of_y);
/* Mixtures: which experts each row takes, and what these make of it, as the config says. */
int graph_route(struct graph_builder *b, int scores);
struct expert_shape {
    int inputs, outputs;
};
/* `bias` names the weight [experts, outputs]; NULL: none. */
int graph_expert_matmul(struct graph_builder *b, int x, int route, const char *weight,
                        struct expert_shape shape, const char *bias);
/* Added to `to`, whose width it has. */
int graph_expert_sum(struct graph_builder *b, int x, int route, int to);
/* How many groups a block's experts are in, and that what follows has those of group `group`. */
int graph_expert_groups(const struct graph_builder *b);
void graph_expert_group_begin(struct graph_builder *b, int group);
int graph_gate_rows(struct graph_builder *b, int x, int gate);
/* `up` is `gate` itself where one value has both by turns. */
int graph_clamped_swiglu(struct graph_builder *b, int gate, int up, struct op_swiglu how);
/* Columns [first, first + count) of x. */
int graph_slice(struct graph_builder *b, int x, int first, int count);

/* Follows the family; takes every weight from the table with its shape checked, and refuses weights
 * that are left. Each block's experts are in so many groups of neighbours, fewer where there are
 * fewer experts, and each group is a layer; 0 as 1. All in the arena. HP_EPARSE, HP_EUNSUPPORTED,
 * HP_ENOMEM. */
int graph_build(const struct family_facts *f, struct weight_table *t, int expert_groups,
                struct arena *arena, struct graph *out, struct err *e);

#endif
