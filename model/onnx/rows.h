/* Operators of a language model's graph (model/graph/kinds.h) as nodes of a network: those that
 * work row by row, whose weights stay as their file has them. They are of a domain of their own,
 * which no file has.
 *
 * Rows: inputs are an array of ND_OPERATOR, and then what the graph's operator takes: float32
 * [rows, width], of OP_EMBED int64 [rows]. One output, float32 [rows, width]. The plain loops have
 * products and tables; of other kinds they know the sizes alone.
 *
 * Causal: scores float32 [batch, heads, group * tokens, tokens], of which a token keeps those of
 * itself and of the tokens before it, of the last `window` where that is not 0; others become very
 * small. With sinks, float32 [heads * group], each row gets its head's as a last column.
 *
 * Scores: a product (OP_MATMUL of one input) of rows, float32 [rows, width], ids and whether a row
 * is wanted, int64 [rows] both. Of what the product gives of a row, times `scale` and within `cap`
 * where that is not 0, float32 [rows, 3]: the logarithm of its softmax at the row's id; the number
 * that is the largest; that one's logarithm. Rows that nobody wants get zeros. Engines never have
 * the product of all rows. */
#ifndef HP_MODEL_ONNX_ROWS_H
#define HP_MODEL_ONNX_ROWS_H

#include "model/graph/kinds.h"
#include "model/onnx/operator.h"

#define ONNX_ROWS_DOMAIN "hodgepodge"
#define ONNX_CAUSAL_HIDDEN (-1e9F) /* its exponential is 0 */

struct onnx_rows {
    const struct graph *graph;
    const struct graph_op *op;
};

/* NULL: the array is none of these. */
const struct onnx_rows *onnx_rows_of(const struct ndarray *a);
/* Bytes of its weights as they are kept. */
uint64_t onnx_rows_bytes(const struct onnx_rows *o);

int onnx_run_rows(struct onnx_call *c);
int onnx_run_causal(struct onnx_call *c);
int onnx_run_scores(struct onnx_call *c);

enum { ONNX_SCORE, ONNX_SCORE_BEST, ONNX_SCORE_OF_BEST, ONNX_SCORE_COLUMNS };
struct onnx_scoring {
    float scale, cap;
};
struct onnx_scoring onnx_scoring_of(const struct onnx_call *c);
/* Scaled and capped, where they lie. */
void onnx_scores_cap(const struct onnx_scoring *how, float *logits, int64_t n);
/* HP_EINVAL: an id is none of `n`. */
int onnx_scores_check(const int64_t *ids, int64_t rows, int64_t n, struct err *e);

/* Of a row of scores, the first that its token keeps; the last is its own. */
static inline int64_t onnx_causal_first(int64_t token, int64_t window)
{
    return window > 0 && token >= window ? token - window + 1 : 0;
}

#endif
