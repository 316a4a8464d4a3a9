/* Resize and Upsample: nearest, linear and cubic, in every way that ONNX has to lay one grid over
 * another. */
#ifndef HP_MODEL_ONNX_RESIZE_H
#define HP_MODEL_ONNX_RESIZE_H

#include "model/onnx/operator.h"

int onnx_run_resize(struct onnx_call *c);

/* What the elements of one axis are made of: weights of elements [first, first + n) of the input,
 * whose ends repeat. */
struct onnx_taps {
    int64_t *first;
    double *weights; /* [out][n] */
    bool *outside;   /* has the extrapolation_value instead */
    int n;
};
/* The taps of axis d, whose output has `out` elements; axes are resized one after the other.
 * HP_ELIMIT, HP_ENOMEM, or as the node fails. */
int onnx_resize_taps(struct onnx_call *c, int d, struct onnx_taps *out);
void onnx_taps_free(struct onnx_taps *t);

#endif
