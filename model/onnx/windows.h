/* Operators that slide a window over the last one to three axes of [batch, channels, ...]:
 * convolutions and poolings. */
#ifndef HP_MODEL_ONNX_WINDOWS_H
#define HP_MODEL_ONNX_WINDOWS_H

#include "model/onnx/operator.h"

int onnx_run_conv(struct onnx_call *c);
int onnx_run_conv_transpose(struct onnx_call *c);
int onnx_run_max_pool(struct onnx_call *c);
int onnx_run_average_pool(struct onnx_call *c);
int onnx_run_lp_pool(struct onnx_call *c);
/* The average; the largest where `kind` is 1, a norm where it is 2. */
int onnx_run_global_pool(struct onnx_call *c);

#endif
