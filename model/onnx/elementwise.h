/* Operators that take numbers one by one; which number becomes which is in the operators' table. */
#ifndef HP_MODEL_ONNX_ELEMENTWISE_H
#define HP_MODEL_ONNX_ELEMENTWISE_H

#include "model/onnx/operator.h"

int onnx_run_unary(struct onnx_call *c);
int onnx_run_not(struct onnx_call *c);
int onnx_run_is(struct onnx_call *c);         /* IsNaN, IsInf: `unary` gives 0 or 1 */
int onnx_run_arithmetic(struct onnx_call *c); /* two inputs of one type, which the output has */
int onnx_run_compare(struct onnx_call *c);    /* two inputs of one type to booleans */
int onnx_run_pow(struct onnx_call *c);        /* two inputs of two types */
int onnx_run_mod(struct onnx_call *c);
int onnx_run_bit_shift(struct onnx_call *c);
int onnx_run_variadic(struct onnx_call *c); /* Max, Min, Sum, and Mean where `kind` is 1 */
int onnx_run_where(struct onnx_call *c);
int onnx_run_clip(struct onnx_call *c);
int onnx_run_cast(struct onnx_call *c); /* CastLike where there are two inputs */
int onnx_run_identity(struct onnx_call *c);
int onnx_run_dropout(struct onnx_call *c);

#endif
