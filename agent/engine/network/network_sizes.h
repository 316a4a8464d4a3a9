/* Sizes of a network's inputs for a batch: what the file says, what is chosen for the dimensions
 * that it leaves free, and the batch, which is the first dimension of every input that leaves it
 * free. Pure. */
#ifndef HP_AGENT_ENGINE_NETWORK_NETWORK_SIZES_H
#define HP_AGENT_ENGINE_NETWORK_NETWORK_SIZES_H

#include "common/status.h"
#include "model/files/onnx.h"

/* The size of a free dimension. */
struct network_dim {
    const char *symbol; /* "": of those without a name */
    int64_t size;
};

/* Fills in type and sizes of an input, without data. HP_EINVAL: a free dimension without a size
 * (named); HP_EUNSUPPORTED: the file does not say them. */
int network_sizes_choose(const struct onnx_value *input, int64_t batch,
                         const struct network_dim *dims, int n_dims, struct ndarray *out,
                         struct err *e);
/* The only batch that the model takes: what its first input has in front, where no input leaves
 * that free; 0: any. */
int64_t network_sizes_batch(const struct onnx *o);
/* HP_EINVAL: it takes another one alone. */
int network_sizes_batch_check(const struct onnx *o, int64_t batch, struct err *e);

#endif
