/* Loops over views of float32 (nn.h) that are made ready once: which axes can be walked as one, and
 * which of them is the innermost. Sizes are the output's; memory is the caller's. */
#ifndef HP_AGENT_BACKEND_CPU_NN_LOOPS_H
#define HP_AGENT_BACKEND_CPU_NN_LOOPS_H

#include "agent/backend/cpu/nn.h"
#include "agent/backend/cpu/nn_kernels.h"

/* Dense strides of sizes, in row-major order. */
void nn_view_dense(struct nn_view *v);
int64_t nn_view_count(const struct nn_view *v);
/* `v` as it broadcasts to the sizes of `to`: more axes, strides of 0. */
struct nn_view nn_view_broadcast(const struct nn_view *v, const struct nn_view *to);

/* Over the sizes of views[0]; the others have as many axes (strides of 0 where they broadcast). */
struct nn_loop nn_loop_make(const struct nn_view *const *views, int n);

/* Part `part` of `parts` of a walk, and where its views begin; what is cut is no sum. False: there
 * is nothing of it. */
bool nn_loop_part(const struct nn_loop *l, int part, int parts, struct nn_loop *out,
                  int64_t offsets[LOOP_VIEWS]);

/* `out` has the innermost stride of 1, as views do that are dense in any order of axes. */
void nn_loop_unary(const struct nn_kernels *k, const struct nn_loop *l, enum nn_unary f, float a,
                   float b, float *out, const float *x);
void nn_loop_binary(const struct nn_kernels *k, const struct nn_loop *l, enum nn_binary f,
                    float *out, const float *x, const float *y);
/* Elements of 4 bytes, whatever they are; any strides. */
void nn_loop_copy(const struct nn_kernels *k, const struct nn_loop *l, float *out, const float *x);

struct nn_reduction nn_reduction_make(const struct nn_view *x, const struct nn_view *out,
                                      const bool gone[NN_DIMS]);
void nn_reduce(const struct nn_kernels *k, const struct nn_reduction *r, float *out,
               const float *x);
/* One part of the output alone. */
void nn_reduce_part(const struct nn_kernels *k, const struct nn_reduction *r, int part, int parts,
                    float *out, const float *x);

/* Lines of the output (its innermost axis) of one part of so many. */
void nn_pool_part(const struct nn_kernels *k, const struct nn_pool *p, int part, int parts,
                  float *out, const float *x);

#endif
