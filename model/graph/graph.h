/* The graph of a model: three tables. Values are rows (name, number format, dimensions); operators
 * are rows (kind, attributes, the values that an operator reads and writes, its weights); layers
 * are runs of operators that a stage boundary may separate, with the values that cross each border.
 *
 * Every value is written by one operator, or given. A dimension is a number or a symbol (tokens of
 * a batch, ...): the graph has a table of its symbols' names, and whoever runs or measures it says
 * how large each is.
 *
 * A sequence model's layers are finer than a transformer block: `embed`, then for each block
 * `blk.N.attn` and `blk.N.mlp`, and `head` (final norm and vocabulary projection). Operators before
 * the first layer (the prelude) follow from the batch alone: every stage that reads their values
 * runs them itself, and these values cross no border.
 *
 * What a kind of operator means, its shapes, bytes and flops: model/graph/kinds.h. Plain data,
 * owned by the model. */
#ifndef HP_MODEL_GRAPH_GRAPH_H
#define HP_MODEL_GRAPH_GRAPH_H

#include <stdint.h>

#include "model/graph/config.h"
#include "model/weights.h"

struct graph_dim {
    uint64_t size; /* 0: as large as the symbol */
    int symbol;    /* row of the graph's table of symbols */
};

/* The first symbols of a sequence model's graph. */
enum graph_symbol {
    GRAPH_TOKENS, /* rows of a batch */
    GRAPH_WANTED, /* those of them whose logits are asked for */
    GRAPH_SEQUENCE_SYMBOLS
};

/* Added to positions of a sequence that may become longer than a rotation's `long_from`. */
#define GRAPH_POSITION_LONG 0x80000000u

enum graph_origin {
    VALUE_MADE,  /* by an operator */
    VALUE_INPUT, /* enters with the first layer: token ids */
    VALUE_BATCH, /* follows from the batch, so every stage has it: positions, rows that are wanted
                  */
};

struct graph_value {
    const char *name; /* "blk.3.attn.attn_q" */
    enum dtype dtype;
    enum graph_origin origin;
    int n_dims;
    const struct graph_dim *dims; /* [n_dims], outermost first */
    bool exact;                   /* rounding would change what it means: it crosses between stages
                                     as float32, whatever others do */
};

enum op_kind {
    OP_EMBED,         /* out = rows of the weight by ids, or for each of them one and the same */
    OP_ROWS,          /* out = rows of the input by indices */
    OP_RMS_NORM,      /* out = in / rms(in) * weight; each part of a row that is as long as the
                         weight by itself */
    OP_LAYER_NORM,    /* out = (in - mean(in)) / deviation(in) * weight + bias */
    OP_MATMUL,        /* out = in * weightᵀ (+ bias) (+ second input) */
    OP_ROPE_ANGLES,   /* out = cos and sin by position; GRAPH_POSITION_LONG: of a long sequence */
    OP_ROPE,          /* out = in, each head rotated by its token's angles */
    OP_ATTENTION,     /* appends k and v (or k, of which v is a part) to the KV cache, then out =
                         attention of q over it: causal, or over all that the run appends */
    OP_SILU_MUL,      /* out = silu(gate) * up */
    OP_GELU,          /* out = gelu(in), the form with tanh or the exact one */
    OP_ADD,           /* out = in + second input */
    OP_MUL,           /* out = in * second input */
    OP_SCALE,         /* out = in * number */
    OP_SOFT_CAP,      /* out = number * tanh(in / number) */
    OP_ROUTE,         /* out = of each row the numbers of the experts with the greatest scores,
                         rising, then their weights (softmax over all experts) */
    OP_EXPERT_MATMUL, /* out = for each expert that the row takes its input * weightᵀ (+ bias), side
                         by side; the input is the row's, or one for each of them side by side */
    OP_HEAD_MATMUL,   /* out = of each head a part of the input * that head's weightᵀ */
    OP_JOIN_HEADS,    /* out = head by head a part of the input, then one of the second */
    OP_EXPERT_SUM,    /* out = (third input +) what the row's experts made, each by its weight */
    OP_GATE_ROWS,     /* out = in * sigmoid(second input), which has one column */
    OP_CLAMPED_SWIGLU, /* out = (up + 1) * gate * sigmoid(alpha * gate), gate at most `limit`, up
                          within it; of two inputs, or of one with gate and up by turns */
    OP_SLICE,          /* out = some columns of the input: a view, nothing is run */
    OP_KIND_COUNT
};

struct op_norm {
    float epsilon;
    bool one_more; /* the weight is kept as what it differs from 1 */
};
struct op_number {
    float value;
};
struct op_embed {
    int first; /* row of id 0 */
    bool same; /* each id takes that row */
};
struct op_gelu {
    bool exact; /* by the error function */
};
struct op_route {
    int used; /* experts that a row takes */
    bool renormalised;
    float scale; /* 0 as 1 */
};
struct op_experts {
    int used;
    bool turned; /* matrices lie as [inputs, outputs] */
    /* It has experts [first, first + count) of `all`, and leaves zeros, or adds nothing, where a
     * row takes another; count 0: it has all. */
    int first, count, all;
};
/* Elements [first, first + count) of each head, which are `stride` apart. */
struct op_head_part {
    int first, count, stride;
};
struct op_heads {
    int heads;
    struct op_head_part parts[2]; /* of the inputs */
    bool turned;                  /* matrices lie as [inputs, outputs] */
};
struct op_swiglu {
    float alpha, limit;
};
struct op_rope {
    const struct rope_config *config;
    int head_dim;
    int first; /* of each head's elements, from which on they rotate */
};
struct op_matmul {
    bool turned; /* the weight lies as [inputs, outputs] */
};
struct op_slice {
    uint64_t first, count; /* columns */
};
struct op_attention {
    int heads, kv_heads, head_dim;
    int value_dim; /* values are the first so many elements of their keys and kept with them alone;
                      0: they come apart, as long as keys */
    int block;     /* number of this operator's keys and values among the graph's */
    uint32_t window; /* a token sees itself and the window - 1 before it; 0: all before it */
    float scale;     /* of scores; 0: 1 / sqrt(head_dim) */
    float cap;       /* of scores; 0: none */
    bool whole;      /* every token of a run sees the run's last one: the run is all of its text */
};

struct graph_op {
    enum op_kind kind;
    int n_inputs, n_outputs, n_weights;
    const int *inputs, *outputs;         /* values */
    const struct weight *const *weights; /* [n_weights]; NULL where an optional one is not there */
    union {
        struct op_norm norm;           /* OP_RMS_NORM, OP_LAYER_NORM */
        struct op_matmul matmul;       /* OP_MATMUL */
        struct op_rope rope;           /* OP_ROPE_ANGLES, OP_ROPE */
        struct op_attention attention; /* OP_ATTENTION */
        struct op_slice slice;         /* OP_SLICE */
        struct op_number number;       /* OP_SCALE, OP_SOFT_CAP */
        struct op_gelu gelu;           /* OP_GELU */
        struct op_embed embed;         /* OP_EMBED */
        struct op_route route;         /* OP_ROUTE */
        struct op_experts experts;     /* OP_EXPERT_MATMUL, OP_EXPERT_SUM */
        struct op_heads heads;         /* OP_HEAD_MATMUL, OP_JOIN_HEADS */
        struct op_swiglu swiglu;       /* OP_CLAMPED_SWIGLU */
    } u;
};

struct graph_layer {
    const char *name;       /* "blk.3.attn" */
    const char *class_name; /* "embed", "attn", "mlp", "head": layers of one class cost the same */
    int first_op, n_ops;
    int n_outputs; /* values that cross the border after the layer; after the last, the graph's */
    const int *outputs;
    uint64_t param_bytes;            /* of its weights as the file has them */
    uint64_t expert_bytes;           /* of these: matrices of which a token reads those of the
                                        experts that it takes */
    int experts, experts_used;       /* of a mixture, of which it may have some; 0: none */
    const char *whole_class;         /* of the layer of which it is a part, since its experts are
                                        in groups; NULL: it is whole */
    int part, n_parts;               /* which part of how many */
    uint64_t state_bytes_per_token;  /* KV of one sequence, f16 */
    uint64_t output_bytes_per_token; /* activations on the wire, f32 */
    double flops_per_token; /* matrix products only; attention's growth with the prefix is not in
                               it */
};

struct graph {
    const char *const *symbols; /* [n_symbols]: "tokens", "wanted" */
    int n_symbols;
    const struct graph_value *values;
    int n_values;
    const struct graph_op *ops;
    int n_ops, n_prelude_ops; /* the prelude's come first */
    const struct graph_layer *layers;
    int n_layers;
    const struct weight *const *weight_uses; /* the operators' `weights`, one after the other */
    int n_weight_uses;
};

/* Calls `each` once for every distinct weight of layers [first, end), in the order of their first
 * use. `previous_use` is of graph_weights_index. */
void graph_layers_weights(const struct graph *g, const int *previous_use, int first, int end,
                          void (*each)(void *ctx, const struct weight *w), void *ctx);
/* For each use the one before it of the same weight, or -1: previous_use[n_weight_uses]. `scratch`
 * has a place for each of the weights that lie in one array from `all` on. */
void graph_weights_index(const struct graph *g, const struct weight *all, size_t n_all,
                         int *scratch, int *previous_use);

#endif
