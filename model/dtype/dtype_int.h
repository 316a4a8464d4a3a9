/* How blocks become float32 and are made of it, for the table of formats. */
#ifndef HP_MODEL_DTYPE_DTYPE_INT_H
#define HP_MODEL_DTYPE_DTYPE_INT_H

#include "model/dtype/dtype.h"

/* n elements, a whole number of blocks. */
void q8_0_to_f32(const void *src, size_t n, float *out);
void q4_0_to_f32(const void *src, size_t n, float *out);
void q4_1_to_f32(const void *src, size_t n, float *out);
void q5_0_to_f32(const void *src, size_t n, float *out);
void q5_1_to_f32(const void *src, size_t n, float *out);
void iq4_nl_to_f32(const void *src, size_t n, float *out);
void mxfp4_to_f32(const void *src, size_t n, float *out);
void q8_wire_to_f32(const void *src, size_t n, float *out);
void q2_k_to_f32(const void *src, size_t n, float *out);
void q3_k_to_f32(const void *src, size_t n, float *out);
void q4_k_to_f32(const void *src, size_t n, float *out);
void q5_k_to_f32(const void *src, size_t n, float *out);
void q6_k_to_f32(const void *src, size_t n, float *out);
void iq4_xs_to_f32(const void *src, size_t n, float *out);

void q8_0_from_f32(const float *in, size_t n, void *dst);
void q4_0_from_f32(const float *in, size_t n, void *dst);
void q4_1_from_f32(const float *in, size_t n, void *dst);
void q5_0_from_f32(const float *in, size_t n, void *dst);
void q5_1_from_f32(const float *in, size_t n, void *dst);
void iq4_nl_from_f32(const float *in, size_t n, void *dst);
void mxfp4_from_f32(const float *in, size_t n, void *dst);
void q2_k_from_f32(const float *in, size_t n, void *dst);
void q3_k_from_f32(const float *in, size_t n, void *dst);
void q4_k_from_f32(const float *in, size_t n, void *dst);
void q5_k_from_f32(const float *in, size_t n, void *dst);
void q6_k_from_f32(const float *in, size_t n, void *dst);
void iq4_xs_from_f32(const float *in, size_t n, void *dst);

#endif
