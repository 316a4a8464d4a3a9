/* Resize and Upsample: nearest, linear and cubic, in every way that ONNX has to lay one grid over
 * another. */
#ifndef HP_MODEL_ONNX_RESIZE_H
#define HP_MODEL_ONNX_RESIZE_H

#include "model/onnx/operator.h"

int onnx_run_resize(struct onnx_call *c);

#endif
