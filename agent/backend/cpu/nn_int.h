/* Inside the operators of networks: what oneDNN is told (nn_wish.c), made (nn_make.c)
 * and run (nn.c). */
#ifndef HP_AGENT_BACKEND_CPU_NN_INT_H
#define HP_AGENT_BACKEND_CPU_NN_INT_H

#include <oneapi/dnnl/dnnl.h>

#include "agent/backend/cpu/nn_task.h"

struct nn {
    dnnl_engine_t engine;
    dnnl_stream_t *streams;  /* by thread */
    struct threads *threads; /* NULL: the caller alone */
    int n_threads;
    double least_work; /* of a part */
    void (*set_openmp_threads)(int n);
};

/* A primitive and its arrays. */
struct nn_piece {
    dnnl_primitive_t primitive;
    dnnl_exec_arg_t args[NN_SLOTS];
    int slots[NN_SLOTS]; /* of args */
    int n_args;
    ptrdiff_t offsets[NN_SLOTS]; /* bytes, by slot: where its arrays begin in the operator's */
};

/* Pieces make one output together; they share packed weights. */
struct nn_op {
    struct nn_piece *pieces;
    int n_pieces;
    bool has_weights;
    dnnl_memory_desc_t given, packed; /* weights */
    size_t scratch_bytes;             /* of a piece */
};

/* What a primitive is asked for as: of one operation, and with what weights. */
struct nn_wish {
    union {
        dnnl_convolution_desc_t conv;
        dnnl_deconvolution_desc_t turned;
        dnnl_matmul_desc_t matmul;
        dnnl_softmax_v2_desc_t softmax;
        dnnl_eltwise_desc_t elements;
    } u;
    const struct nn_posts *posts;
    bool has_weights, is_depthwise;
    dnnl_memory_desc_t given; /* weights, dense */
};

/* `packed`: how weights lie that are packed already; NULL: as oneDNN likes. */
dnnl_status_t nn_wish_make(const struct nn_task *t, const dnnl_memory_desc_t *packed,
                           struct nn_wish *out);
dnnl_status_t nn_view_describe(const struct nn_view *v, dnnl_memory_desc_t *out);
dnnl_alg_kind_t nn_function_kind(enum nn_function f);

void nn_piece_free(struct nn_piece *p);

#endif
