/* What every operator means on rows of numbers, in plain loops: the specification that faster
 * kernels are compared with. Single-threaded, no state. */
#ifndef HP_AGENT_BACKEND_PLAIN_LOOPS_H
#define HP_AGENT_BACKEND_PLAIN_LOOPS_H

#include <stddef.h>
#include <stdint.h>

#include "model/dtype/dtype.h"
#include "model/graph/config.h"
#include "model/graph/graph.h"

/* out += sum over k of x[k] * w[k], w a row of `dtype`, in runs of LOOP_DOT_CHUNK inputs. */
enum { LOOP_DOT_CHUNK = 512 };
void loop_dot(enum dtype dtype, const float *x, const void *w, size_t k, float *out);

/* n values, whole blocks, as GGUF's Q8_0: the scale is the f16 that lies nearest to a 127th of the
 * block's largest value, and numbers are to the nearest, ties to even. */
void loop_q8_0(const float *in, size_t n, uint8_t *out);

/* out[width] = in / sqrt(mean(in²) + epsilon) * weight */
void loop_rms_norm(const float *in, const float *weight, float epsilon, size_t width, float *out);
/* out[width] = (in - mean(in)) / sqrt(variance(in) + epsilon) * weight + bias */
void loop_layer_norm(const float *in, const float *weight, const float *bias, float epsilon,
                     size_t width, float *out);
/* out[n] = in / 2 * (1 + tanh(sqrt(2 / pi) * (in + 0.044715 in³))) */
void loop_gelu(const float *in, size_t n, float *out);
void loop_gelu_exact(const float *in, size_t n, float *out);
/* out[n] = cap * tanh(in / cap) */
void loop_soft_cap(const float *in, float cap, size_t n, float *out);
/* The `used` experts of the greatest scores, as numbers, which rise, and then their weights:
 * out[2 * used]. */
void loop_route(const struct op_route *how, const float *scores, size_t n, float *out);
/* The same by lot, whatever the scores: each row its own experts, of even weight. */
void loop_route_by_lot(const struct op_route *how, uint64_t row, size_t n, float *out);
/* What experts made of a row, side by side, each times its weight, one after the other, added to
 * `base` (NULL: 0), which may be `out`; experts that the operator does not have are left out. */
void loop_expert_sum(const struct op_experts *how, const float *made, const float *route,
                     const float *base, size_t width, float *out);
/* out[n] = in * sigmoid(gate) */
void loop_gate_rows(const float *in, float gate, size_t n, float *out);
/* out[n] = (up + 1) * gate * sigmoid(alpha * gate), clamped; gate[i] and up[i] lie `step` apart. */
void loop_clamped_swiglu(const struct op_swiglu *how, const float *gate, const float *up,
                         size_t step, size_t n, float *out);
/* Head by head a part of a, then one of b. */
void loop_join_heads(const struct op_heads *how, const float *a, const float *b, float *out);
/* out[n] = silu(gate) * up */
void loop_silu_mul(const float *gate, const float *up, size_t n, float *out);

/* angles[rows, dims / 2, (cos, sin)] of positions, times the rotation's magnitude. */
void loop_rope_angles(const struct rope_config *rope, const uint32_t *positions, size_t rows,
                      float *angles);
/* Rotates one row's heads x[heads, head_dim] in place by the row's angles. */
void loop_rope(const struct rope_config *rope, const float *angles, int heads, int head_dim,
               float *x);

/* Keys and values of one head, in whatever order they are kept. */
struct loop_cache {
    float (*key)(const void *ctx, uint32_t position, size_t i);
    float (*value)(const void *ctx, uint32_t position, size_t i);
    const void *ctx;
    float cap;         /* of scores: cap * tanh(score / cap); 0: none */
    const float *sink; /* a score that no value stands for; NULL: none */
};
/* One query's softmax(q · K · scale) · V over positions [first, position], carrying the greatest
 * score and the sum of weights from one to the next (online softmax): out[value_dim]. */
void loop_attend(const struct loop_cache *c, const float *q, uint32_t first, uint32_t position,
                 size_t head_dim, size_t value_dim, float scale, float *out);

#endif
