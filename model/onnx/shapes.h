/* Operators that are about shapes: they ask for one, give another to the same elements, or make an
 * array of it. */
#ifndef HP_MODEL_ONNX_SHAPES_H
#define HP_MODEL_ONNX_SHAPES_H

#include "model/onnx/operator.h"

int onnx_run_shape(struct onnx_call *c);
int onnx_run_size(struct onnx_call *c);
int onnx_run_reshape(struct onnx_call *c);
int onnx_run_flatten(struct onnx_call *c);
int onnx_run_squeeze(struct onnx_call *c);
int onnx_run_unsqueeze(struct onnx_call *c);
int onnx_run_constant(struct onnx_call *c);
int onnx_run_constant_of_shape(struct onnx_call *c);
int onnx_run_range(struct onnx_call *c);
int onnx_run_expand(struct onnx_call *c);
int onnx_run_tile(struct onnx_call *c);

#endif
