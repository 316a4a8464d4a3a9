#include "agent/backend/plain/narrow.h"

#include <string.h>

#include "model/dtype/dtype.h"

static const float most_f16 = 65504;

static void to_f16(const float *src, size_t n, uint16_t *out)
{
    for (size_t i = 0; i < n; i++) {
        float v = src[i];
        v = v > most_f16 ? most_f16 : v;
        v = v < -most_f16 ? -most_f16 : v;
        out[i] = dtype_f32_to_f16(v);
    }
}

/* The upper half, plus one where the lower is more than half of it, or half and the upper is odd.
 */
static void to_bf16(const float *src, size_t n, uint16_t *out)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &src[i], sizeof bits);
        bool nan = (bits & 0x7fffffff) > 0x7f800000;
        out[i] = nan ? (uint16_t)(bits >> 16 | 0x40)
                     : (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    }
}

const struct narrow_kernels narrow_plain = {to_f16, to_bf16};
