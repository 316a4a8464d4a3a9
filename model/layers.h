/* The graph of a sequence model: operators over a few named values, grouped into layers that a
 * stage boundary may separate.
 *
 * Layers are finer than a transformer block: `embed`, then for each block `blk.N.attn` and
 * `blk.N.mlp`, and `head` (final norm and vocabulary projection). Between two layers only the
 * residual stream V_X travels: [tokens, width].
 *
 * Operators form a register machine: each reads one or two values and a weight, and writes one
 * value. A runtime executes the operators of its layers in order for a batch of tokens; nothing
 * else is needed to run any family that the table in architecture.c knows. */
#ifndef HP_MODEL_LAYERS_H
#define HP_MODEL_LAYERS_H

#include <stdbool.h>
#include <stdint.h>

#include "model/weights.h"

enum graph_value {
    V_IDS,    /* token ids, u32 [tokens] */
    V_X,      /* residual stream [tokens, width] */
    V_NORM,   /* normalised input of a half block [tokens, width] */
    V_Q,      /* [tokens, heads * head_dim] */
    V_K,      /* [tokens, kv_heads * head_dim] */
    V_V,      /* [tokens, kv_heads * head_dim] */
    V_ATTN,   /* [tokens, heads * head_dim] */
    V_GATE,   /* [tokens, mlp_width] */
    V_UP,     /* [tokens, mlp_width] */
    V_LOGITS, /* [tokens, vocabulary]; only rows that are asked for */
    V_COUNT
};

enum op_kind {
    OP_EMBED,    /* out = rows of weight [vocabulary, width] by ids */
    OP_RMS_NORM, /* out = in / rms(in) * weight [width]; epsilon from the config */
    OP_MATMUL,   /* out = in * weightᵀ (+ bias); `accumulate`: out += in * weightᵀ (+ bias) */
    OP_ROPE, /* rotates in place (in == out): V_Q or V_K, by config.rope and each token's position
              */
    OP_ATTENTION, /* appends V_K, V_V to the KV cache of `block`, then causal attention of V_Q over
                     it into out */
    OP_SILU_MUL,  /* out = silu(in) * in2 */
    OP_KIND_COUNT
};

struct graph_op {
    enum op_kind kind;
    enum graph_value in, in2, out;
    const struct weight *weight, *bias; /* NULL where the kind has none */
    bool accumulate;
    int block; /* transformer block; -1 outside */
};

struct graph_layer {
    const char *name;       /* "blk.3.attn" */
    const char *class_name; /* "embed", "attn", "mlp", "head": layers of one class cost the same */
    int first_op, n_ops;
    uint64_t param_bytes;            /* of its weights as the file has them */
    uint64_t state_bytes_per_token;  /* KV of one sequence, f16 */
    uint64_t output_bytes_per_token; /* activations on the wire, f32 */
    double
        flops_per_token; /* matrix products only; attention's growth with the prefix is not in it */
};

enum rope_style {
    ROPE_HALVES, /* element i pairs with i + dims/2 (Hugging Face files) */
    ROPE_PAIRS,  /* element 2i pairs with 2i + 1 (GGUF files of the llama family, whose rows are
                    permuted) */
};

struct rope_config {
    enum rope_style style;
    int dims; /* of each head that rotate */
    double base;
    double scale; /* positions are divided by it; 1: none (linear scaling) */
    /* Inverse frequency of pair i is base^(-2i/dims) / factors[i]; NULL: all 1. LLaMA 3's scaling
     * is given so, from either kind of file. [dims / 2], owned by the model. */
    const float *factors;
};

struct model_config {
    const char *architecture; /* "llama" */
    const char *name;         /* what the file calls itself, may be "" */
    int vocabulary, width, n_blocks, n_heads, n_kv_heads, head_dim, mlp_width, context;
    float norm_epsilon;
    bool tied_embeddings;
    struct rope_config rope;
};

struct graph {
    const struct graph_op *ops;
    int n_ops;
    const struct graph_layer *layers;
    int n_layers;
    int value_width[V_COUNT]; /* elements per token of each value; 1 for V_IDS */
};

#endif
