/* Operators that move elements about and change none. */
#ifndef HP_MODEL_ONNX_MOVE_H
#define HP_MODEL_ONNX_MOVE_H

#include "model/onnx/operator.h"

int onnx_run_transpose(struct onnx_call *c);
int onnx_run_concat(struct onnx_call *c);
int onnx_run_split(struct onnx_call *c);
int onnx_run_slice(struct onnx_call *c);
int onnx_run_pad(struct onnx_call *c);
int onnx_run_depth_to_space(struct onnx_call *c);
int onnx_run_space_to_depth(struct onnx_call *c);
int onnx_run_trilu(struct onnx_call *c);

#endif
