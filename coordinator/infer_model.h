/* A model of fixed shape as those see it who ask it: its tensors' names, types and sizes. */
#ifndef HP_COORDINATOR_INFER_MODEL_H
#define HP_COORDINATOR_INFER_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "model/ndarray.h"

/* A tensor as a model says it. */
struct infer_tensor {
    const char *name;
    enum ndarray_type type;    /* 0: not said */
    int n_dims;                /* -1: not said */
    int64_t dims[ND_DIMS_MAX]; /* -1: any */
};

struct infer_model {
    const char *name;
    const struct infer_tensor *inputs, *outputs;
    int n_inputs, n_outputs;
    uint64_t limit_bytes; /* of all inputs of a request together */
    bool copies_inputs;   /* whoever computes it copies its inputs as bytes first: a request's may
                             lie at any address */
};

/* Whether what is read and written for one of them is so for the other: their tensors have the same
 * names, types and sizes, in the same order. */
bool infer_model_is_like(const struct infer_model *a, const struct infer_model *b);

#endif
