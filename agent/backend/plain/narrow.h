/* What a device copies to fewer bits (rows that leave for a link): float32 to the nearest value,
 * ties to even. As f16, what is beyond the largest becomes the largest of its sign, so that one
 * large value ends no sequence in infinities; NaN stays NaN. As Q8_WIRE, the first of the largest
 * magnitudes of each block is kept as it is (NaN counts as the largest, then infinity) and the
 * others become signed bytes whose scale is the largest of them / 127 (where that is less than
 * 1e-30: all 0); what is more than 3e38 among those others, or no number, counts as that. These
 * plain loops are the specification; faster kernels say the same to the bit. */
#ifndef HP_AGENT_BACKEND_PLAIN_NARROW_H
#define HP_AGENT_BACKEND_PLAIN_NARROW_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "model/dtype/dtype.h"

struct narrow_kernels {
    void (*f16)(const float *src, size_t n, uint16_t *out);
    void (*bf16)(const float *src, size_t n, uint16_t *out);
    /* A whole number of blocks of Q8_WIRE, and back. */
    void (*q8)(const float *src, size_t n, uint8_t *out);
    void (*q8_back)(const uint8_t *src, size_t n, float *out);
};
/* A block's others are all 0 where the largest of them is smaller. */
#define NARROW_Q8_LEAST 1e-30f
#define NARROW_Q8_MOST 3e38f

struct q8_scale {
    float most, scale, inverse;
};
/* Of a block whose largest magnitude but the kept value's is a float of these bits. */
static inline struct q8_scale q8_scale_of(uint32_t magnitude_bits)
{
    float most;
    memcpy(&most, &magnitude_bits, sizeof most);
    most = most < NARROW_Q8_MOST ? most : NARROW_Q8_MOST; /* also of NaN */
    if (most < NARROW_Q8_LEAST)
        return (struct q8_scale){most, 0, 0};
    return (struct q8_scale){most, most / 127, 127 / most};
}
extern const struct narrow_kernels narrow_plain;

#endif
