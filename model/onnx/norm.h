/* Normalizations. Means and variances are taken in two passes, in double. */
#ifndef HP_MODEL_ONNX_NORM_H
#define HP_MODEL_ONNX_NORM_H

#include "model/onnx/operator.h"

int onnx_run_batch_norm(struct onnx_call *c);
int onnx_run_layer_norm(struct onnx_call *c);
int onnx_run_group_norm(struct onnx_call *c); /* InstanceNormalization where `kind` is 1 */
int onnx_run_mean_variance_norm(struct onnx_call *c);
int onnx_run_lp_norm(struct onnx_call *c);
int onnx_run_lrn(struct onnx_call *c);

#endif
