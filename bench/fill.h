/* Weights and inputs of benchmarks, without a model. */
#ifndef HP_BENCH_FILL_H
#define HP_BENCH_FILL_H

#include <stdint.h>
#include <string.h>

#include "model/dtype/dtype.h"

/* Random bytes with scales that are sound; small numbers where there are no scales. */
static inline void weights_fill(enum dtype t, uint8_t *data, uint64_t bytes)
{
    const struct dtype_info *info = dtype_info(t);
    const uint16_t small = t == DTYPE_F32 || t == DTYPE_BF16 ? 0x3c00 : 0x2000; /* 0.008 */
    uint32_t random = 1;
    for (uint64_t i = 0; i < bytes; i++, random = random * 1664525 + 1013904223)
        data[i] = (uint8_t)(random >> 24);
    for (uint64_t at = 0; at < bytes; at += info->block_bytes) {
        for (int i = 0; i < info->n_scales; i++)
            memcpy(data + at + info->scales_at + 2 * i, &small, sizeof small);
        if (t == DTYPE_MXFP4)
            data[at] = 120;
        if (info->block_elements == 1)
            memcpy(data + at + info->block_bytes - sizeof small, &small, sizeof small);
    }
}

/* Like a model's activations: one channel of 97 is twenty times as large as the others. */
static inline void inputs_fill(float *x, uint64_t n, uint64_t width)
{
    for (uint64_t i = 0; i < n; i++)
        x[i] =
            ((float)(i * 2654435761u >> 20 & 0xff) / 256 - 0.5f) * (i % width % 97 == 5 ? 20 : 1);
}

#endif
