/* Copies, from one number format to another by way of float32, in pieces that the device's threads
 * share. */
#include <assert.h>
#include <string.h>

#include "agent/backend/cpu/cpu_int.h"

enum { COPY_CHUNK = 1024, COPY_PIECE = 1 << 16 };

/* Lines of elements that lie one after the other: rows, or pieces of what has no gaps at all. */
struct copy_job {
    const struct cpu_kernels *kernels;
    const struct tensor *to, *from;
    size_t n, line;            /* elements of all lines; of one, the last may have fewer */
    size_t to_step, from_step; /* bytes from one line to the next */
    size_t lines_a_part;
};

static void values_narrow(const struct cpu_kernels *k, enum dtype t, const float *src, size_t n,
                          void *out)
{
    if (t == DTYPE_Q8_WIRE)
        k->narrow->q8(src, n, out);
    else
        (t == DTYPE_F16 ? k->narrow->f16 : k->narrow->bf16)(src, n, out);
}

static void values_widen(const struct cpu_kernels *k, enum dtype t, const uint8_t *src, size_t n,
                         float *out)
{
    if (t == DTYPE_Q8_WIRE)
        k->narrow->q8_back(src, n, out);
    else
        kernels_unpack(k, t, src, n, out);
}

static void values_convert(const struct copy_job *j, const uint8_t *src, size_t n, uint8_t *dst)
{
    enum dtype to = j->to->dtype, from = j->from->dtype;
    float values[COPY_CHUNK];
    if (to == from) {
        memcpy(dst, src, dtype_bytes(to, n));
    } else if (to == DTYPE_F32) {
        values_widen(j->kernels, from, src, n, (float *)(void *)dst);
    } else if (from == DTYPE_F32) {
        values_narrow(j->kernels, to, (const float *)(const void *)src, n, dst);
    } else {
        for (size_t i = 0; i < n; i += COPY_CHUNK) {
            size_t some = n - i < COPY_CHUNK ? n - i : COPY_CHUNK;
            values_widen(j->kernels, from, src + dtype_bytes(from, i), some, values);
            values_narrow(j->kernels, to, values, some, dst + dtype_bytes(to, i));
        }
    }
}

static void copy_part(void *ctx, int thread, uint32_t part)
{
    const struct copy_job *j = ctx;
    (void)thread;
    for (size_t i = part * j->lines_a_part; i < (part + 1) * j->lines_a_part; i++) {
        size_t first = i * j->line;
        if (first >= j->n)
            return;
        values_convert(j, (const uint8_t *)tensor_row(j->from, 0) + i * j->from_step,
                       j->n - first < j->line ? j->n - first : j->line,
                       (uint8_t *)tensor_row(j->to, 0) + i * j->to_step);
    }
}

void cpu_copy(struct stream *s, const struct tensor *to, const struct tensor *from)
{
    size_t width = tensor_width(to);
    assert(to->shape[0] == from->shape[0] && width == tensor_width(from));
    bool dense = to->strides[0] == width && from->strides[0] == width;
    size_t line = dense ? COPY_PIECE : width;
    struct copy_job j = {.kernels = s->device->kernels,
                         .to = to,
                         .from = from,
                         .n = width * to->shape[0],
                         .line = line,
                         .to_step = dtype_bytes(to->dtype, dense ? line : to->strides[0]),
                         .from_step = dtype_bytes(from->dtype, dense ? line : from->strides[0]),
                         .lines_a_part = line < COPY_PIECE ? COPY_PIECE / (line ? line : 1) : 1};
    size_t elements = j.lines_a_part * line;
    s->device->made.form = INPUTS_NONE;
    if (j.n)
        threads_run(s->device->threads, (uint32_t)((j.n + elements - 1) / elements), copy_part, &j);
}
