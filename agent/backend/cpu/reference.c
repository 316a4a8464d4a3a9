/* What every operator means, in plain loops: the specification, and what runs on a CPU that has
 * nothing better. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "agent/backend/cpu/kernels.h"

#define PLAIN_DTYPE(name, type)                                                                    \
    static void unpack_##name(const uint8_t *src, size_t n, float *out)                            \
    {                                                                                              \
        dtype_info(type)->to_f32(src, n, out);                                                     \
    }                                                                                              \
    static void dot_##name(const float *x, size_t x_stride, int rows, const uint8_t *w,            \
                           size_t w_stride, size_t cols, size_t k, float *out, size_t out_stride)  \
    {                                                                                              \
        dot_plain(type, x, x_stride, rows, w, w_stride, cols, k, out, out_stride);                 \
    }

static void dot_plain(enum dtype t, const float *x, size_t x_stride, int rows, const uint8_t *w,
                      size_t w_stride, size_t cols, size_t k, float *out, size_t out_stride)
{
    assert(rows <= DOT_MAX_ROWS && k <= DOT_CHUNK);
    for (size_t c = 0; c < cols; c++) {
        float row[DOT_CHUNK];
        dtype_info(t)->to_f32(w + c * w_stride, k, row);
        for (int r = 0; r < rows; r++) {
            float sum = 0;
            for (size_t i = 0; i < k; i++)
                sum += x[(size_t)r * x_stride + i] * row[i];
            out[(size_t)r * out_stride + c] += sum;
        }
    }
}

PLAIN_DTYPE(f32, DTYPE_F32)
PLAIN_DTYPE(f16, DTYPE_F16)
PLAIN_DTYPE(bf16, DTYPE_BF16)
PLAIN_DTYPE(q8_0, DTYPE_Q8_0)

static void f32_to_f16(const float *src, size_t n, uint16_t *out)
{
    for (size_t i = 0; i < n; i++)
        out[i] = dtype_f32_to_f16(src[i]);
}

static void rms_norm(const float *in, const float *weight, float epsilon, size_t width, float *out)
{
    float sum = 0;
    for (size_t i = 0; i < width; i++)
        sum += in[i] * in[i];
    float scale = 1.0f / sqrtf(sum / (float)width + epsilon);
    for (size_t i = 0; i < width; i++)
        out[i] = in[i] * scale * weight[i];
}

static void silu_mul(const float *gate, const float *up, size_t n, float *out)
{
    for (size_t i = 0; i < n; i++)
        out[i] = gate[i] / (1.0f + expf(-gate[i])) * up[i];
}

static float page_value(const struct attend_task *t, const uint8_t *base, size_t i)
{
    if (t->f32) {
        float v;
        memcpy(&v, base + i * sizeof v, sizeof v);
        return v;
    }
    uint16_t h;
    memcpy(&h, base + i * sizeof h, sizeof h);
    return dtype_f16_to_f32(h);
}

/* One query row: softmax(q · K) · V, a page at a time, carrying the greatest score and the sum of
 * weights (online softmax). */
static void attend_row(const struct attend_task *t, uint32_t row)
{
    size_t hd = (size_t)t->head_dim, at = (size_t)(row / (uint32_t)t->group) * t->row_stride +
                                          (size_t)(row % (uint32_t)t->group) * hd;
    const float *q = t->q + at;
    float *out = t->out + at;
    uint32_t position = t->first_position + row / (uint32_t)t->group;
    float greatest = -INFINITY, total = 0;
    memset(out, 0, hd * sizeof *out);
    for (uint32_t p = 0; p <= position; p++) {
        const uint8_t *keys = t->head + t->pages[p / KV_PAGE_TOKENS] * t->page_stride;
        const uint8_t *values =
            keys + hd * KV_PAGE_TOKENS * (t->f32 ? sizeof(float) : sizeof(uint16_t));
        size_t j = p % KV_PAGE_TOKENS;
        float score = 0;
        for (size_t i = 0; i < hd; i++)
            score += q[i] * page_value(t, keys, i * KV_PAGE_TOKENS + j);
        score *= t->scale;
        float was = greatest;
        greatest = score > was ? score : was;
        float keep = was == greatest ? 1.0f : expf(was - greatest), weight = expf(score - greatest);
        total = total * keep + weight;
        for (size_t i = 0; i < hd; i++)
            out[i] = out[i] * keep + weight * page_value(t, values, j * hd + i);
    }
    for (size_t i = 0; i < hd; i++)
        out[i] /= total;
}

static void attend(const struct attend_task *t)
{
    for (uint32_t r = t->row_begin; r < t->row_end; r++)
        attend_row(t, r);
}

void reference_rope_angles(const struct rope_config *rope, const uint32_t *positions, size_t rows,
                           float *angles)
{
    size_t pairs = (size_t)rope->dims / 2;
    for (size_t i = 0; i < pairs; i++) {
        double frequency = pow(rope->base, -2.0 * (double)i / rope->dims) / rope->scale;
        if (rope->factors)
            frequency /= (double)rope->factors[i];
        for (size_t r = 0; r < rows; r++) {
            angles[(r * pairs + i) * 2] = (float)cos(positions[r] * frequency);
            angles[(r * pairs + i) * 2 + 1] = (float)sin(positions[r] * frequency);
        }
    }
}

void reference_rope(const struct rope_config *rope, const float *angles, size_t rows, int heads,
                    int head_dim, float *x)
{
    size_t pairs = (size_t)rope->dims / 2, step = rope->style == ROPE_PAIRS ? 2 : 1,
           partner = rope->style == ROPE_PAIRS ? 1 : pairs;
    for (size_t r = 0; r < rows; r++)
        for (int h = 0; h < heads; h++) {
            float *v = x + (r * (size_t)heads + (size_t)h) * (size_t)head_dim;
            for (size_t i = 0; i < pairs; i++) {
                float c = angles[(r * pairs + i) * 2], s = angles[(r * pairs + i) * 2 + 1];
                float a = v[i * step], b = v[i * step + partner];
                v[i * step] = a * c - b * s;
                v[i * step + partner] = a * s + b * c;
            }
        }
}

const struct cpu_kernels kernels_plain = {
    .name = "plain",
    .unpack = {[DTYPE_F32] = unpack_f32,
               [DTYPE_F16] = unpack_f16,
               [DTYPE_BF16] = unpack_bf16,
               [DTYPE_Q8_0] = unpack_q8_0},
    .f32_to_f16 = f32_to_f16,
    .dot = {[DTYPE_F32] = dot_f32,
            [DTYPE_F16] = dot_f16,
            [DTYPE_BF16] = dot_bf16,
            [DTYPE_Q8_0] = dot_q8_0},
    .rms_norm = rms_norm,
    .silu_mul = silu_mul,
    .attend = attend,
};
