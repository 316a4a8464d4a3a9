/* Operators that make one number of many, or many of all along an axis. */
#ifndef HP_MODEL_ONNX_REDUCE_H
#define HP_MODEL_ONNX_REDUCE_H

#include "model/onnx/operator.h"

/* `kind` of the reductions. */
enum onnx_reduction {
    REDUCE_SUM,
    REDUCE_MEAN,
    REDUCE_PROD,
    REDUCE_MAX,
    REDUCE_MIN,
    REDUCE_L1,
    REDUCE_L2,
    REDUCE_SUM_SQUARE,
    REDUCE_LOG_SUM,
    REDUCE_LOG_SUM_EXP
};

int onnx_run_reduce(struct onnx_call *c);
int onnx_run_arg(struct onnx_call *c); /* ArgMax; ArgMin where `kind` is 1 */
int onnx_run_cumsum(struct onnx_call *c);
int onnx_run_topk(struct onnx_call *c);
int onnx_run_softmax(struct onnx_call *c); /* LogSoftmax where `kind` is 1, Hardmax where it is 2 */

#endif
