#include "model/dtype.h"

#include <assert.h>
#include <string.h>

float dtype_f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, exponent = (h >> 10) & 0x1fu, mantissa = h & 0x3ffu, bits;
    if (exponent == 31) {
        bits = sign | 0x7f800000u | mantissa << 13;
    } else if (exponent) {
        bits = sign | (exponent + 112) << 23 | mantissa << 13;
    } else {
        /* Subnormal halves are whole multiples of 2^-24, exact in float32. */
        float magnitude = (float)mantissa * 0x1p-24f;
        return sign ? -magnitude : magnitude;
    }
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

uint16_t dtype_f32_to_f16(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    uint32_t sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00u | (magnitude >> 13 & 0x3ffu));
    if (magnitude >= 0x477ff000u) /* 65520 and more round to infinity */
        return (uint16_t)(sign | 0x7c00u);
    if (magnitude >= 0x38800000u) { /* a normal half: round the 13 bits that go */
        uint32_t rounded = magnitude + 0xfffu + (magnitude >> 13 & 1u);
        return (uint16_t)(sign | (rounded - 0x38000000u) >> 13);
    }
    /* A subnormal half: adding 0.5 aligns the mantissa so that float32's own rounding is the one wanted. */
    float aligned;
    memcpy(&aligned, &magnitude, sizeof aligned);
    aligned += 0.5f;
    uint32_t result;
    memcpy(&result, &aligned, sizeof result);
    return (uint16_t)(sign | (result - 0x3f000000u));
}

float dtype_bf16_to_f32(uint16_t h)
{
    uint32_t bits = (uint32_t)h << 16;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

uint16_t dtype_f32_to_bf16(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)(bits >> 16 | 0x40u); /* stays a NaN */
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

static void f32_to_f32(const void *src, size_t n, float *out)
{
    memcpy(out, src, n * sizeof *out);
}

static void f16_to_f32(const void *src, size_t n, float *out)
{
    const uint8_t *p = src;
    for (size_t i = 0; i < n; i++) {
        uint16_t h;
        memcpy(&h, p + 2 * i, sizeof h);
        out[i] = dtype_f16_to_f32(h);
    }
}

static void bf16_to_f32(const void *src, size_t n, float *out)
{
    const uint8_t *p = src;
    for (size_t i = 0; i < n; i++) {
        uint16_t h;
        memcpy(&h, p + 2 * i, sizeof h);
        out[i] = dtype_bf16_to_f32(h);
    }
}

/* A block of Q8_0: the scale as a half, then 32 signed bytes; an element is scale * byte. */
enum { Q8_0_ELEMENTS = 32, Q8_0_BYTES = 2 + Q8_0_ELEMENTS };

static void q8_0_to_f32(const void *src, size_t n, float *out)
{
    assert(n % Q8_0_ELEMENTS == 0);
    const uint8_t *block = src;
    for (size_t at = 0; at < n; at += Q8_0_ELEMENTS, block += Q8_0_BYTES) {
        uint16_t h;
        memcpy(&h, block, sizeof h);
        float scale = dtype_f16_to_f32(h);
        const int8_t *values = (const int8_t *)(block + sizeof h);
        for (size_t i = 0; i < Q8_0_ELEMENTS; i++)
            out[at + i] = scale * (float)values[i];
    }
}

static const struct dtype_info formats[DTYPE_COUNT] = {
    [DTYPE_F32] = {"F32", "F32", 0, 1, 4, f32_to_f32},
    [DTYPE_F16] = {"F16", "F16", 1, 1, 2, f16_to_f32},
    [DTYPE_BF16] = {"BF16", "BF16", 30, 1, 2, bf16_to_f32},
    [DTYPE_Q8_0] = {"Q8_0", NULL, 8, Q8_0_ELEMENTS, Q8_0_BYTES, q8_0_to_f32},
};

const struct dtype_info *dtype_info(enum dtype t)
{
    assert((unsigned)t < DTYPE_COUNT);
    return &formats[t];
}

int dtype_of_gguf(uint32_t gguf_type)
{
    for (int t = 0; t < DTYPE_COUNT; t++)
        if (formats[t].gguf_type == gguf_type)
            return t;
    return -1;
}

int dtype_of_safetensors(const char *name)
{
    for (int t = 0; t < DTYPE_COUNT; t++)
        if (formats[t].safetensors && strcmp(formats[t].safetensors, name) == 0)
            return t;
    return -1;
}

const char *dtype_gguf_name(uint32_t gguf_type)
{
    static const char *const names[] = {
        "F32",   "F16",    "Q4_0", "Q4_1", "unknown", "unknown", "Q5_0",   "Q5_1",    "Q8_0",  "Q8_1",   "Q2_K",
        "Q3_K",  "Q4_K",   "Q5_K", "Q6_K", "Q8_K",    "IQ2_XXS", "IQ2_XS", "IQ3_XXS", "IQ1_S", "IQ4_NL", "IQ3_S",
        "IQ2_S", "IQ4_XS", "I8",   "I16",  "I32",     "I64",     "F64",    "IQ1_M",   "BF16",
    };
    return gguf_type < sizeof names / sizeof *names ? names[gguf_type] : "unknown";
}

const char *dtype_known(char *out, size_t size)
{
    size_t at = 0;
    out[0] = '\0';
    for (int t = 0; t < DTYPE_COUNT; t++) {
        size_t n = strlen(formats[t].name), comma = t ? 2 : 0;
        if (at + comma + n + 1 > size)
            break;
        memcpy(out + at, ", ", comma);
        memcpy(out + at + comma, formats[t].name, n + 1);
        at += comma + n;
    }
    return out;
}
