#include "agent/backend/plain/loops.h"

#include <math.h>
#include <string.h>

#include "model/graph/kinds.h"

void loop_dot(enum dtype dtype, const float *x, const void *w, size_t k, float *out)
{
    const struct dtype_info *t = dtype_info(dtype);
    for (size_t k0 = 0; k0 < k; k0 += LOOP_DOT_CHUNK) {
        float row[LOOP_DOT_CHUNK], sum = 0;
        size_t n = k - k0 < LOOP_DOT_CHUNK ? k - k0 : LOOP_DOT_CHUNK;
        t->to_f32((const uint8_t *)w + k0 / t->block_elements * t->block_bytes, n, row);
        for (size_t i = 0; i < n; i++)
            sum += x[k0 + i] * row[i];
        *out += sum;
    }
}

void loop_q8_0(const float *in, size_t n, uint8_t *out)
{
    for (size_t i = 0; i < n; i += Q8_0_ELEMENTS, out += Q8_0_BYTES) {
        float most = 0;
        for (size_t k = i; k < i + Q8_0_ELEMENTS; k++)
            most = fabsf(in[k]) > most ? fabsf(in[k]) : most;
        uint16_t half = dtype_f32_to_f16(most / 127);
        float scale = dtype_f16_to_f32(half), inverse = scale > 0 ? 1 / scale : 0;
        memcpy(out, &half, sizeof half);
        for (size_t k = 0; k < Q8_0_ELEMENTS; k++) {
            float x = rintf(in[i + k] * inverse);
            x = x < 127 ? x : 127;
            x = x > -127 ? x : -127;
            out[sizeof half + k] = (uint8_t)(int8_t)x;
        }
    }
}

void loop_rms_norm(const float *in, const float *weight, float epsilon, size_t width, float *out)
{
    float sum = 0;
    for (size_t i = 0; i < width; i++)
        sum += in[i] * in[i];
    float scale = 1.0f / sqrtf(sum / (float)width + epsilon);
    for (size_t i = 0; i < width; i++)
        out[i] = in[i] * scale * weight[i];
}

void loop_layer_norm(const float *in, const float *weight, const float *bias, float epsilon,
                     size_t width, float *out)
{
    float sum = 0, squares = 0;
    for (size_t i = 0; i < width; i++)
        sum += in[i];
    float mean = sum / (float)width;
    for (size_t i = 0; i < width; i++)
        squares += (in[i] - mean) * (in[i] - mean);
    float scale = 1.0f / sqrtf(squares / (float)width + epsilon);
    for (size_t i = 0; i < width; i++)
        out[i] = (in[i] - mean) * scale * weight[i] + bias[i];
}

void loop_gelu(const float *in, size_t n, float *out)
{
    const float root = 0.797884561f; /* sqrt(2 / pi) */
    for (size_t i = 0; i < n; i++)
        out[i] = 0.5f * in[i] * (1.0f + tanhf(root * (in[i] + 0.044715f * in[i] * in[i] * in[i])));
}

void loop_gelu_exact(const float *in, size_t n, float *out)
{
    const float root = 0.707106781f; /* sqrt(1 / 2) */
    for (size_t i = 0; i < n; i++)
        out[i] = 0.5f * in[i] * (1.0f + erff(root * in[i]));
}

void loop_soft_cap(const float *in, float cap, size_t n, float *out)
{
    for (size_t i = 0; i < n; i++)
        out[i] = cap * tanhf(in[i] / cap);
}

/* The greatest score that is not among those chosen; the first of equals. */
static size_t route_next(const float *scores, size_t n, const float *chosen, int n_chosen)
{
    size_t best = n;
    for (size_t i = 0; i < n; i++) {
        bool taken = false;
        for (int k = 0; k < n_chosen; k++)
            taken = taken || (size_t)chosen[k] == i;
        if (!taken && (best == n || scores[i] > scores[best]))
            best = i;
    }
    return best;
}

/* By number, so that what is added up in their order is the same whoever adds which of them. */
static void route_sort(float *out, int used)
{
    for (int k = 1; k < used; k++)
        for (int i = k; i > 0 && out[i] < out[i - 1]; i--) {
            float expert = out[i], weight = out[used + i];
            out[i] = out[i - 1];
            out[used + i] = out[used + i - 1];
            out[i - 1] = expert;
            out[used + i - 1] = weight;
        }
}

void loop_route(const struct op_route *how, const float *scores, size_t n, float *out)
{
    float *weights = out + how->used, total = 0, chosen = 0;
    for (int k = 0; k < how->used; k++)
        out[k] = (float)route_next(scores, n, out, k);
    float greatest = scores[(size_t)out[0]];
    for (size_t i = 0; i < n; i++)
        total += expf(scores[i] - greatest);
    for (int k = 0; k < how->used; k++) {
        weights[k] = expf(scores[(size_t)out[k]] - greatest) / total;
        chosen += weights[k];
    }
    float scale = (how->scale != 0 ? how->scale : 1) / (how->renormalised ? chosen : 1);
    for (int k = 0; k < how->used; k++)
        weights[k] *= scale;
    route_sort(out, how->used);
}

/* A number below `n` that follows from the other two alone (SplitMix64's mixing). */
static uint32_t lot_draw(uint64_t row, uint64_t turn, uint32_t n)
{
    uint64_t x = (row * MODEL_EXPERTS_USED_MAX + turn + 1) * UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (uint32_t)(((x ^ (x >> 31)) >> 32) * n >> 32);
}

void loop_route_by_lot(const struct op_route *how, uint64_t row, size_t n, float *out)
{
    uint32_t drawn[MODEL_EXPERTS_USED_MAX]; /* rising */
    for (int k = 0; k < how->used; k++) {
        uint32_t expert = lot_draw(row, (uint64_t)k, (uint32_t)n - (uint32_t)k);
        int at = 0;
        for (; at < k && drawn[at] <= expert; at++)
            expert++;
        memmove(drawn + at + 1, drawn + at, (size_t)(k - at) * sizeof *drawn);
        drawn[at] = expert;
        out[k] = (float)expert;
        out[how->used + k] = 1.0f / (float)how->used;
    }
}

void loop_expert_sum(const struct op_experts *how, const float *made, const float *route,
                     const float *base, size_t width, float *out)
{
    size_t used = (size_t)how->used;
    if (!base)
        memset(out, 0, width * sizeof *out);
    else if (base != out)
        memcpy(out, base, width * sizeof *out);
    for (size_t k = 0; k < used; k++)
        for (size_t i = 0; op_expert_own(how, (int)route[k]) >= 0 && i < width; i++)
            out[i] += route[used + k] * made[k * width + i];
}

void loop_gate_rows(const float *in, float gate, size_t n, float *out)
{
    float share = 1.0f / (1.0f + expf(-gate));
    for (size_t i = 0; i < n; i++)
        out[i] = in[i] * share;
}

void loop_clamped_swiglu(const struct op_swiglu *how, const float *gate, const float *up,
                         size_t step, size_t n, float *out)
{
    for (size_t i = 0; i < n; i++) {
        float g = fminf(gate[i * step], how->limit),
              u = fmaxf(fminf(up[i * step], how->limit), -how->limit);
        out[i] = (u + 1) * (g / (1.0f + expf(-how->alpha * g)));
    }
}

void loop_join_heads(const struct op_heads *how, const float *a, const float *b, float *out)
{
    const struct op_head_part *p = how->parts;
    for (int h = 0; h < how->heads; h++) {
        memcpy(out, a + h * p[0].stride + p[0].first, (size_t)p[0].count * sizeof *out);
        out += p[0].count;
        memcpy(out, b + h * p[1].stride + p[1].first, (size_t)p[1].count * sizeof *out);
        out += p[1].count;
    }
}

void loop_silu_mul(const float *gate, const float *up, size_t n, float *out)
{
    for (size_t i = 0; i < n; i++)
        out[i] = gate[i] / (1.0f + expf(-gate[i])) * up[i];
}

static double rope_frequency(const struct rope_config *rope, const float *factors, size_t pair)
{
    double frequency = pow(rope->base, -2.0 * (double)pair / rope->dims) / rope->scale;
    return factors ? frequency / (double)factors[pair] : frequency;
}

void loop_rope_angles(const struct rope_config *rope, const uint32_t *positions, size_t rows,
                      float *angles)
{
    size_t pairs = (size_t)rope->dims / 2;
    double magnitude = rope->magnitude != 0 ? (double)rope->magnitude : 1;
    for (size_t i = 0; i < pairs; i++) {
        double usual = rope_frequency(rope, rope->factors, i),
               of_long = rope->long_factors ? rope_frequency(rope, rope->long_factors, i) : usual;
        for (size_t r = 0; r < rows; r++) {
            double turn = (positions[r] & ~GRAPH_POSITION_LONG) *
                          (positions[r] & GRAPH_POSITION_LONG ? of_long : usual);
            angles[(r * pairs + i) * 2] = (float)(magnitude * cos(turn));
            angles[(r * pairs + i) * 2 + 1] = (float)(magnitude * sin(turn));
        }
    }
}

void loop_rope(const struct rope_config *rope, const float *angles, int heads, int head_dim,
               float *x)
{
    size_t pairs = (size_t)rope->dims / 2, step = rope->style == ROPE_PAIRS ? 2 : 1,
           partner = rope->style == ROPE_PAIRS ? 1 : pairs;
    for (int h = 0; h < heads; h++) {
        float *v = x + (size_t)h * (size_t)head_dim;
        for (size_t i = 0; i < pairs; i++) {
            float c = angles[i * 2], s = angles[i * 2 + 1];
            float a = v[i * step], b = v[i * step + partner];
            v[i * step] = a * c - b * s;
            v[i * step + partner] = a * s + b * c;
        }
    }
}

void loop_attend(const struct loop_cache *c, const float *q, uint32_t first, uint32_t position,
                 size_t head_dim, size_t value_dim, float scale, float *out)
{
    float greatest = -INFINITY, total = 0;
    memset(out, 0, value_dim * sizeof *out);
    for (uint32_t p = first; p <= position; p++) {
        float score = 0;
        for (size_t i = 0; i < head_dim; i++)
            score += q[i] * c->key(c->ctx, p, i);
        score *= scale;
        if (c->cap != 0)
            score = c->cap * tanhf(score / c->cap);
        float was = greatest;
        greatest = score > was ? score : was;
        float keep = was == greatest ? 1.0f : expf(was - greatest), weight = expf(score - greatest);
        total = total * keep + weight;
        for (size_t i = 0; i < value_dim; i++)
            out[i] = out[i] * keep + weight * c->value(c->ctx, p, i);
    }
    if (c->sink) {
        float most = greatest > *c->sink ? greatest : *c->sink, keep = expf(greatest - most);
        total = total * keep + expf(*c->sink - most);
        for (size_t i = 0; i < value_dim; i++)
            out[i] *= keep;
    }
    for (size_t i = 0; i < value_dim; i++)
        out[i] /= total;
}
