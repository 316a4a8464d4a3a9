/* Inside the making of a network of a language model: the graph's values as the network's.
 *
 * What the graph calls rows of tokens are rows of all texts of a batch here, one text behind the
 * other: [batch * tokens, width]. */
#ifndef HP_MODEL_TEXT_NETWORK_INT_H
#define HP_MODEL_TEXT_NETWORK_INT_H

#include "model/files/onnx_builder.h"
#include "model/onnx/rows.h"
#include "model/text_network.h"

enum { TEXT_TABLE_ROWS = 8192 /* of angles that are kept; no text is longer */ };

/* A weight of the model that is one of the network. */
struct text_weight {
    const struct weight *weight;
    int value;
};

/* A value of the graph. */
struct text_value {
    int value;    /* of the network: rows */
    int cos, sin; /* of angles: [tokens, pairs] */
    bool each;    /* [tokens, width]: the same for every text */
};

struct text_network {
    struct onnx_builder *b;
    const struct model *m;
    const struct graph *g;
    struct text_value *values; /* by value of the graph */
    struct text_weight *weights;
    int n_weights, room_weights;
    int ids, mask;
    int length;    /* [1] int64: tokens of a text */
    int positions; /* [tokens] int64 */
    int bias;      /* of scores of texts that see all of themselves: -big where the mask is 0 */
    const char *prefix; /* of the names of what is made */
    int n_names;
};

/* ---- text_values.c ---- */

int text_node(struct text_network *t, const char *op, const int *inputs, int n_inputs,
              const struct onnx_attribute *attributes, int n_attributes);
int text_one(struct text_network *t, const char *op, int x);
int text_two(struct text_network *t, const char *op, int x, int y);
int text_ints(struct text_network *t, const int64_t *list, int n);
/* 0, 1, .. n - 1. */
int text_count(struct text_network *t, int64_t n);
int text_number(struct text_network *t, float number);
/* Floats of its own, [rows, columns]; rows 0: a vector. The caller fills them in; NULL: no memory.
 */
float *text_floats(struct text_network *t, int64_t rows, int64_t columns, int *value);
/* Float32 in the file, where it may be read in place. */
bool text_weight_lies_ready(const struct weight *w);
/* A small weight, or one that lies ready, as float32: a matrix, or a vector (`plus` is added to its
 * elements). */
int text_weight(struct text_network *t, const struct weight *w, float plus);
/* An operator of the model's graph as a node that runs it as it is, on rows (model/onnx/rows.h). */
int text_graph_op(struct text_network *t, const struct graph_op *op);
/* Scores of rows at ids, of those that are wanted: [rows, ONNX_SCORE_COLUMNS]. */
int text_scores(struct text_network *t, const struct graph_op *product, float scale, float cap,
                int rows, int ids, int wanted);
/* Of scores [batch, heads, group * tokens, tokens] those that tokens see; `sinks` -1: none. */
int text_causal(struct text_network *t, int scores, int64_t window, int64_t group, int sinks);
/* x as [batch, tokens, dims ..]. */
int text_reshape(struct text_network *t, int x, const int64_t *dims, int n_dims);
/* As rows again. */
int text_rows(struct text_network *t, int x, int64_t width);
int text_transpose(struct text_network *t, int x, const int64_t *order, int n);
/* Elements [first, end) along an axis; `end` and `first` are counts. */
int text_slice(struct text_network *t, int x, int64_t axis, int64_t first, int64_t end);
int text_concat(struct text_network *t, const int *parts, int n, int64_t axis);
int text_softmax(struct text_network *t, const char *op, int x);
/* Rows [first, first + tokens) of a table: [tokens, columns]. */
int text_table_rows(struct text_network *t, int table, int64_t first);
int text_cast(struct text_network *t, int x, enum ndarray_type type);
int text_gather(struct text_network *t, int x, int indices, int64_t axis);

/* ---- text_operators.c ---- */

/* The operator's result, as a value of the network. HP_EUNSUPPORTED stands in the builder. */
void text_operator_add(struct text_network *t, const struct graph_op *op);

#endif
