/* What a device copies to fewer bits (rows that leave for a link): float32 to two bytes a value, to
 * the nearest, ties to even. What is beyond the largest f16 becomes the largest f16 of its sign, so
 * that one large value ends no sequence in infinities; NaN stays NaN. These plain loops are the
 * specification; faster kernels say the same to the bit. */
#ifndef HP_AGENT_BACKEND_PLAIN_NARROW_H
#define HP_AGENT_BACKEND_PLAIN_NARROW_H

#include <stddef.h>
#include <stdint.h>

struct narrow_kernels {
    void (*f16)(const float *src, size_t n, uint16_t *out);
    void (*bf16)(const float *src, size_t n, uint16_t *out);
};
extern const struct narrow_kernels narrow_plain;

#endif
