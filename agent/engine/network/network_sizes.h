/* Sizes of a network's inputs for a batch: what the file says, what is chosen for the dimensions
 * that it leaves free, and the batch, which is the first dimension of every input. Pure. */
#ifndef HP_AGENT_ENGINE_NETWORK_NETWORK_SIZES_H
#define HP_AGENT_ENGINE_NETWORK_NETWORK_SIZES_H

#include "common/status.h"
#include "model/files/onnx.h"

/* The size of a free dimension. */
struct network_dim {
    const char *symbol; /* "": of those without a name */
    int64_t size;
};

/* Fills in type and sizes of an input, without data. HP_EINVAL: a batch that the model does not
 * take, a free dimension without a size (named); HP_EUNSUPPORTED: the file does not say them. */
int network_sizes_choose(const struct onnx_value *input, int64_t batch,
                         const struct network_dim *dims, int n_dims, struct ndarray *out,
                         struct err *e);
/* The only batch that the model takes; 0: any. */
int64_t network_sizes_batch(const struct onnx *o);

#endif
