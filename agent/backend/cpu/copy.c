/* Copies, row by row, from one number format to another by way of float32. */
#include <assert.h>
#include <string.h>

#include "agent/backend/cpu/cpu_int.h"

enum { COPY_CHUNK = 1024 };

static void from_f32(const struct cpu_kernels *k, enum dtype t, const float *src, size_t n,
                     void *out)
{
    uint16_t *half = out;
    if (t == DTYPE_F16)
        k->f32_to_f16(src, n, half);
    else if (k->f32_to_bf16)
        k->f32_to_bf16(src, n, half);
    else
        for (size_t i = 0; i < n; i++)
            half[i] = dtype_f32_to_bf16(src[i]);
}

static void row_convert(const struct cpu_kernels *k, const struct tensor *to,
                        const struct tensor *from, uint64_t r, size_t width)
{
    const struct dtype_info *source = dtype_info(from->dtype), *result = dtype_info(to->dtype);
    const uint8_t *src = tensor_row(from, r);
    uint8_t *dst = tensor_row(to, r);
    for (size_t i = 0; i < width; i += COPY_CHUNK) {
        size_t n = width - i < COPY_CHUNK ? width - i : COPY_CHUNK;
        float values[COPY_CHUNK],
            *exact = to->dtype == DTYPE_F32 ? (float *)(void *)dst + i : values;
        kernels_unpack(k, from->dtype, src + i * source->block_bytes, n, exact);
        if (to->dtype != DTYPE_F32)
            from_f32(k, to->dtype, exact, n, dst + i * result->block_bytes);
    }
}

void cpu_copy(struct stream *s, const struct tensor *to, const struct tensor *from)
{
    size_t width = tensor_width(to), bytes = width * dtype_info(to->dtype)->block_bytes;
    assert(to->shape[0] == from->shape[0] && width == tensor_width(from));
    bool same = to->dtype == from->dtype;
    if (same && to->strides[0] == width && from->strides[0] == width) {
        memcpy(tensor_row(to, 0), tensor_row(from, 0), bytes * to->shape[0]);
        return;
    }
    for (uint64_t r = 0; r < to->shape[0]; r++) {
        if (same)
            memcpy(tensor_row(to, r), tensor_row(from, r), bytes);
        else
            row_convert(s->device->kernels, to, from, r, width);
    }
}
