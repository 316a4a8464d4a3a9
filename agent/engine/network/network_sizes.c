#include "agent/engine/network/network_sizes.h"

#include <string.h>

#include "model/onnx/network.h"

static int size_choose(const struct onnx_value *v, int d, int64_t batch,
                       const struct network_dim *dims, int n_dims, int64_t *size, struct err *e)
{
    const struct onnx_dim *dim = &v->dims[d];
    char wanted[NETWORK_INPUT_TEXT];
    *size = dim->size;
    if (dim->size >= 0)
        return 0;
    for (int i = 0; i < n_dims; i++)
        if (strcmp(dims[i].symbol, dim->symbol) == 0)
            *size = dims[i].size;
    if (d == 0)
        *size = batch;
    if (*size > 0)
        return 0;
    err_set(e, HP_EINVAL, "input %s: its dimension %d (%s) has no size", v->name, d,
            dim->symbol[0] ? dim->symbol : "without a name");
    err_hint(e, "the model wants %s; --dim NAME=SIZE says what is free",
             network_input_text(v, wanted));
    return HP_EINVAL;
}

int network_sizes_choose(const struct onnx_value *v, int64_t batch, const struct network_dim *dims,
                         int n_dims, struct ndarray *out, struct err *e)
{
    int64_t sizes[ND_DIMS_MAX] = {0};
    int rc = 0;
    if (v->n_dims < 0 || v->n_dims > ND_DIMS_MAX || !v->type)
        return err_set(e, HP_EUNSUPPORTED, "input %s: the file does not say its type and sizes",
                       v->name);
    for (int d = 0; d < v->n_dims && rc == 0; d++)
        rc = size_choose(v, d, batch, dims, n_dims, &sizes[d], e);
    return rc < 0 ? rc : ndarray_shape(out, v->type, v->n_dims, sizes, e);
}

int64_t network_sizes_batch(const struct onnx *o)
{
    int64_t fixed = 0;
    for (int i = 0; i < o->n_inputs; i++) {
        const struct onnx_value *v = &o->values[o->inputs[i]];
        if (v->n_dims > 0 && v->dims[0].size < 0)
            return 0;
        if (v->n_dims > 0 && fixed == 0)
            fixed = v->dims[0].size;
    }
    return fixed;
}

int network_sizes_batch_check(const struct onnx *o, int64_t batch, struct err *e)
{
    int64_t fixed = network_sizes_batch(o);
    return fixed && fixed != batch
               ? err_set(e, HP_EINVAL, "the network takes batches of %lld alone, not of %lld",
                         (long long)fixed, (long long)batch)
               : 0;
}
