/* Kinds of operators: one row a kind says how many values and weights it takes, how large its
 * result is, what it reads, computes and keeps. The sizes of symbols are handed in as
 * sizes[symbol].
 *
 * Adding a kind is a value of enum op_kind, a row here, and a function in each backend that can run
 * it. */
#ifndef HP_MODEL_GRAPH_KINDS_H
#define HP_MODEL_GRAPH_KINDS_H

#include "common/profile_parts.h"
#include "model/graph/graph.h"

/* How an operator reads a weight decides how a device keeps it. */
enum weight_use {
    WEIGHT_MATMUL,        /* a matrix to multiply by, [outputs, inputs] */
    WEIGHT_MATMUL_TURNED, /* the same as [inputs, outputs] */
    WEIGHT_ROWS,          /* a table of rows */
    WEIGHT_VECTOR,        /* norms and biases */
    WEIGHT_VECTOR_OF_ONE, /* a norm that is kept as what it differs from 1 */
};

enum { OP_INPUTS_MAX = 3, OP_WEIGHTS_MAX = 2, OP_DIMS_MAX = 4, OP_NO_INPUT = -1 };

struct op_kind_info {
    const char *name; /* "matmul" */
    int min_inputs, max_inputs, max_weights;
    enum weight_use weight_use[OP_WEIGHTS_MAX]; /* graph_op_weight_use knows of turned ones */
    int shares;   /* input in whose memory the result may lie; OP_NO_INPUT */
    bool is_view; /* the result is a part of the first input: no backend runs it */
    bool exact;   /* of the result (struct graph_value) */
    /* Dimensions of the result, from those of inputs and weights. Returns how many. */
    int (*shape)(const struct graph *g, const struct graph_op *op,
                 struct graph_dim out[OP_DIMS_MAX]);
    /* Multiplications and additions; NULL: none worth counting beside matrix products. */
    double (*flops)(const struct graph *g, const struct graph_op *op, const uint64_t *sizes);
    /* Of its weights that one run reads; NULL: all. */
    uint64_t (*weight_bytes_read)(const struct graph *g, const struct graph_op *op,
                                  const uint64_t *sizes);
    /* What it keeps of each token of a sequence, f16; NULL: nothing. */
    uint64_t (*state_bytes_per_token)(const struct graph_op *op);
};

/* The row of a kind. */
const struct op_kind_info *op_kind_info(enum op_kind kind);

/* The number among the operator's own matrices of an expert that a row takes; -1: another operator
 * has it. */
static inline int op_expert_own(const struct op_experts *x, int expert)
{
    if (x->count == 0)
        return expert;
    return expert >= x->first && expert < x->first + x->count ? expert - x->first : -1;
}

enum weight_use graph_op_weight_use(const struct graph_op *op, int weight);
/* Multiplications and additions of one run, with these sizes of the symbols. */
double graph_op_flops(const struct graph *g, const struct graph_op *op, const uint64_t *sizes);
/* Bytes of its weights in the file that one run of the operator reads. */
uint64_t graph_op_weight_bytes(const struct graph *g, const struct graph_op *op,
                               const uint64_t *sizes);

/* With these sizes of the symbols. */
uint64_t graph_value_elements(const struct graph_value *v, const uint64_t *sizes);
uint64_t graph_value_bytes(const struct graph_value *v, const uint64_t *sizes);
/* Elements of one row: all dimensions but the first. */
uint64_t graph_value_width(const struct graph_value *v);
/* Elements of a token that cross the border after a layer: of all values. */
uint64_t graph_border_width(const struct graph *g, int layer);
/* Those of them that cross as float32 whatever the others do. */
uint64_t graph_border_exact(const struct graph *g, int layer);
/* As what a value crosses where others do as `border`. */
enum dtype graph_value_border(const struct graph_value *v, enum dtype border);
/* Of so many tokens' values. */
uint64_t graph_border_bytes(const struct graph *g, int layer, enum dtype border, uint64_t tokens);
/* Of each layer, of which layer of the whole model it is what part: out[n_layers]. */
void graph_parts_list(const struct graph *g, struct profile_part *out);
/* Whether each token sees all of its text, so that a text is one run. */
bool graph_is_whole(const struct graph *g);
/* Elements of a row that the head gives: logits, or an encoder's. */
uint64_t graph_head_width(const struct graph *g);

#endif
