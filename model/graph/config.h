/* What a file says of its model: sizes and settings. Plain data; strings and factors are the
 * model's. */
#ifndef HP_MODEL_GRAPH_CONFIG_H
#define HP_MODEL_GRAPH_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

enum rope_style {
    ROPE_HALVES, /* element i pairs with i + dims/2 (Hugging Face files) */
    ROPE_PAIRS,  /* element 2i pairs with 2i + 1 (GGUF files of the llama family, whose rows are
                    permuted) */
    ROPE_NONE,   /* positions are learned, or of no account */
};

/* YaRN's own numbers (rope.h says what they do). */
struct rope_yarn {
    double factor, beta_fast, beta_slow, original_context;
    bool truncate;
};

struct rope_config {
    enum rope_style style;
    int dims; /* of each head that rotate; 0: the family has no rotation */
    double base;
    double scale; /* positions are divided by it; 1: none (linear scaling) */
    /* Inverse frequency of pair i is base^(-2i/dims) / factors[i]; NULL: all 1. LLaMA 3's scaling
     * is given so, from either kind of file. [dims / 2], owned by the model. */
    const float *factors;
    const struct rope_yarn *yarn; /* of which the factors were made; NULL: of something else */
    float magnitude;              /* cosine and sine are multiplied by it; 0 as 1 */
    /* Sequences that may reach more than `long_from` tokens take these factors for every position;
     * NULL: all take the first. */
    const float *long_factors;
    int long_from;
    int reach; /* tokens to which the scaling stretches the context; 0: as far as the file says */
};

/* Mixtures of experts. */
enum { MODEL_EXPERTS_MAX = 1 << 12, MODEL_EXPERTS_USED_MAX = 64 };
struct expert_config {
    int n, used;             /* 0: none; a token takes so many of them */
    int width, shared_width; /* of an expert's MLP; of one that every token takes too, 0: none */
    bool renormalised;       /* weights of those that are taken sum to 1 */
    float scale;             /* of the weights; 0 as 1 */
    const bool *dense; /* [n_blocks]: blocks without experts; NULL: none; owned by the model */
};

/* Attention over a latent (DeepSeek-V2): keys and values of all heads are products of one row,
 * which is what the KV cache keeps; a part of each head apart rotates. */
struct latent_config {
    int rank, query_rank; /* of the row; of that which queries are made of, 0: none */
    int plain, rotated;   /* elements of a query's head */
    int value;            /* elements of a value's head */
};

/* What a model of embeddings makes of its last layer's rows: one row for a text. An encoder has
 * one, a decoder where its files name one. */
enum model_pooling {
    POOLING_NONE, /* its head gives logits */
    POOLING_MEAN,
    POOLING_FIRST, /* the first token's row ([CLS]) */
    POOLING_LAST,
};

struct model_config {
    const char *architecture; /* "llama" */
    const char *name;         /* what the file calls itself, may be "" */
    int vocabulary, width, n_blocks, n_heads, n_kv_heads, head_dim, mlp_width, context;
    /* In block i a token sees itself and the windows[i] - 1 before it; 0: all before it. NULL: no
     * block has a window. [n_blocks], owned by the model. */
    const uint32_t *windows;
    float norm_epsilon;
    bool tied_embeddings;
    struct rope_config rope;
    struct rope_config window_rope; /* of blocks with a window, where `has_window_rope` */
    bool has_window_rope;
    struct expert_config experts;
    struct latent_config latent;
    /* 0: as is. Scores are multiplied by the first (0: 1 / sqrt(head size)); what a cap c bounds
     * becomes c * tanh(x / c). */
    float score_scale, score_cap, logit_cap;
    float embedding_scale, residual_scale, logit_scale;
    enum model_pooling pooling;
    bool unnormalised;  /* a pooled row keeps its length; else it is scaled to length 1 */
    int token_types;    /* rows of the table of token types, of which the first alone is used; 0:
                           there is none */
    int first_position; /* row of the table of positions for a text's first token */
};

#endif
