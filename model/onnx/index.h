/* Operators that take or put elements by indices. */
#ifndef HP_MODEL_ONNX_INDEX_H
#define HP_MODEL_ONNX_INDEX_H

#include "model/onnx/operator.h"

int onnx_run_gather(struct onnx_call *c);
int onnx_run_gather_elements(struct onnx_call *c);
int onnx_run_gather_nd(struct onnx_call *c);
int onnx_run_scatter_elements(struct onnx_call *c);
int onnx_run_scatter_nd(struct onnx_call *c);
int onnx_run_one_hot(struct onnx_call *c);
int onnx_run_non_zero(struct onnx_call *c);

#endif
