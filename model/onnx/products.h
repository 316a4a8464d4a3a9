/* Products of matrices. Of float32 they are summed in float32, of anything else in double or in
 * 64-bit integers. */
#ifndef HP_MODEL_ONNX_PRODUCTS_H
#define HP_MODEL_ONNX_PRODUCTS_H

#include "model/onnx/operator.h"

int onnx_run_matmul(struct onnx_call *c);
int onnx_run_gemm(struct onnx_call *c);
int onnx_run_einsum(struct onnx_call *c);

#endif
