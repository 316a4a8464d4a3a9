/* ONNX files: any bytes, through the checks of all nodes, what follows from constants, and a run on
 * inputs of ones as large as the file wants them, cut in two. */
#include <stdlib.h>

#include "model/onnx/network.h"

enum { SIZE_MOST = 8, LIMIT_BYTES = 1 << 16 };

static int input_make(const struct onnx_value *v, struct ndarray *a, struct err *e)
{
    int64_t dims[ND_DIMS_MAX] = {0};
    for (int d = 0; d < v->n_dims; d++)
        dims[d] = v->dims[d].size < 0           ? 2
                  : v->dims[d].size > SIZE_MOST ? SIZE_MOST
                                                : v->dims[d].size;
    enum ndarray_type type = ndarray_type_bytes(v->type) ? v->type : ND_F32;
    int rc = ndarray_make(a, type, v->n_dims < 0 ? 0 : v->n_dims, dims, LIMIT_BYTES, e);
    for (int64_t i = 0; rc == 0 && i < a->count; i++)
        ndarray_set_i64(a, i, 1);
    return rc;
}

static void network_use(const struct onnx_network *n, struct err *e)
{
    const struct onnx *o = network_onnx(n);
    struct ndarray *arrays = calloc((size_t)o->n_inputs + 1, sizeof *arrays);
    struct ndarray *outputs = calloc((size_t)o->n_outputs + 1, sizeof *outputs);
    const struct ndarray **inputs = calloc((size_t)o->n_inputs + 1, sizeof *inputs);
    int rc = arrays && outputs && inputs ? 0 : -1;
    for (int i = 0; rc == 0 && i < o->n_inputs; i++) {
        rc = input_make(&o->values[o->inputs[i]], &arrays[i], e);
        inputs[i] = &arrays[i];
    }
    if (rc == 0 && network_run(n, network_run_nodes(n) > 1 ? 2 : 1, inputs, outputs, e) == 0)
        for (int i = 0; i < o->n_outputs; i++)
            ndarray_free(&outputs[i]);
    for (int i = 0; arrays && i < o->n_inputs; i++)
        ndarray_free(&arrays[i]);
    free(arrays);
    free(outputs);
    free(inputs);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct onnx *o;
    struct onnx_network *n;
    struct err e = {0};
    if (onnx_parse("f.onnx", NULL, data, size, &o, &e) == 0 &&
        network_make("f.onnx", &o, LIMIT_BYTES, &n, &e) == 0) {
        network_use(n, &e);
        network_close(&n);
    }
    return 0;
}
