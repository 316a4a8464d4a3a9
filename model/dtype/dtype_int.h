/* How blocks become float32, for the table of formats. */
#ifndef HP_MODEL_DTYPE_DTYPE_INT_H
#define HP_MODEL_DTYPE_DTYPE_INT_H

#include "model/dtype/dtype.h"

void q8_0_to_f32(const void *src, size_t n, float *out);
void q4_0_to_f32(const void *src, size_t n, float *out);
void q6_k_to_f32(const void *src, size_t n, float *out);

#endif
