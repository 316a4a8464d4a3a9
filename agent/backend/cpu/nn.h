/* Operators of networks in float32 as oneDNN's primitives, made ready once for given sizes and run
 * as often as wanted: convolutions, products of matrices, softmax, functions of one number.
 *
 * Arrays are views of memory: sizes and strides, so that channels may lie last. Memory is the
 * caller's; a primitive is told where its arrays are (nn_op_bind) and keeps no other memory than
 * the packed weights that the caller gives it. One thread at a time calls, and has others help
 * where it was given some: an operator of enough work is cut into parts (nn_task.h), which give the
 * bits that the whole gives. oneDNN's own OpenMP is set to one thread for each. */
#ifndef HP_AGENT_BACKEND_CPU_NN_H
#define HP_AGENT_BACKEND_CPU_NN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/backend/arrays.h"
#include "common/status.h"

enum { NN_POSTS = 6 };

/* What is done to every element of an output before it is written, in order. */
enum nn_post_kind { NN_POST_FUNCTION, NN_POST_ADD, NN_POST_MUL };
struct nn_post {
    enum nn_post_kind kind;
    enum nn_function function;
    float a, b;
    struct nn_view other; /* of add and mul: broadcasts to the output */
};
struct nn_posts {
    int n;
    struct nn_post list[NN_POSTS];
};

/* A convolution over the last n_axes of x [batch, channels, ..] and y; weights are [outputs, inputs
 * of a group, kernel ..], turned (transposed) [inputs, outputs of a group, kernel ..]. */
struct nn_conv {
    struct nn_view x, y;
    int n_axes;
    int64_t groups, kernel[NN_AXES], stride[NN_AXES], dilation[NN_AXES];
    int64_t before[NN_AXES], after[NN_AXES]; /* pads */
    bool turned, has_bias;                   /* of [outputs] */
    struct nn_posts posts;
};

/* y = x * w (+ bias [1, .., columns]), stacks of matrices that broadcast; `packs` says that w is
 * given once and for all. */
struct nn_matmul {
    struct nn_view x, w, y;
    bool packs, has_bias;
    struct nn_posts posts;
};

struct nn;
struct nn_op;

struct threads;
/* `threads` (NULL: none but the caller's) outlive it. HP_ENOMEM, HP_EDEVICE. */
int nn_create(struct threads *threads, struct nn **out, struct err *e);
void nn_destroy(struct nn **n);

/* HP_EUNSUPPORTED: oneDNN has no such primitive, or none but its plain loops; HP_ENOMEM. Freed by
 * nn_op_free, before the nn that made it. */
int nn_conv_make(struct nn *n, const struct nn_conv *c, struct nn_op **out, struct err *e);
int nn_matmul_make(struct nn *n, const struct nn_matmul *m, struct nn_op **out, struct err *e);
int nn_softmax_make(struct nn *n, const struct nn_view *x, int axis, bool is_log,
                    struct nn_op **out, struct err *e);
int nn_function_make(struct nn *n, const struct nn_view *x, enum nn_function f, float a, float b,
                     struct nn_op **out, struct err *e);
void nn_op_free(struct nn_op **op);

/* Bytes of the weights as the primitive wants them. */
size_t nn_op_weight_bytes(const struct nn_op *op);
/* Dense weights into `out` of that many bytes, aligned to 64. */
int nn_op_pack(struct nn *n, const struct nn_op *op, const float *weights, void *out,
               struct err *e);
/* Parts that it is cut into; 1: one thread does it. */
int nn_op_pieces(const struct nn_op *op);
/* Memory that a run scratches in. */
size_t nn_op_scratch_bytes(const struct nn_op *op);

/* NN_OTHER + k is what post k adds or multiplies by. */
enum nn_slot { NN_X, NN_WEIGHTS, NN_BIAS, NN_Y, NN_SCRATCH, NN_OTHER };
void nn_op_bind(struct nn_op *op, int slot, const void *data);
/* All slots that it has are bound. HP_EDEVICE. Allocates nothing of ours. */
int nn_op_run(struct nn *n, const struct nn_op *op, struct err *e);
/* y [rows, outputs] += x [rows, inputs] * w [outputs, inputs] turned; strides count elements from
 * one row to the next. HP_EDEVICE. On any thread that has begun, and that alone. */
struct nn_product {
    const float *x, *w;
    float *y;
    int64_t rows, inputs, outputs, x_stride, w_stride, y_stride;
};
int nn_product_run(const struct nn_product *p);
/* That compute together. */
int nn_threads(const struct nn *n);
/* The calling thread's OpenMP is set to one thread: once before runs. */
void nn_begin(const struct nn *n);

/* Calls fn(ctx, part, parts) for every part below `parts`, as many as there are threads where so
 * many elements pay for that, else for the only one. */
void nn_parts_run(const struct nn *n, int64_t elements, void (*fn)(void *ctx, int part, int parts),
                  void *ctx);

#endif
