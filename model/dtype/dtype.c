#include <assert.h>
#include <math.h>
#include <string.h>

#include "model/dtype/dtype_int.h"

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

static void f32_from_f32(const float *in, size_t n, void *dst)
{
    memcpy(dst, in, n * sizeof *in);
}

static void f16_from_f32(const float *in, size_t n, void *dst)
{
    uint8_t *p = dst;
    for (size_t i = 0; i < n; i++) {
        uint16_t h = dtype_f32_to_f16(in[i]);
        memcpy(p + 2 * i, &h, sizeof h);
    }
}

static void bf16_from_f32(const float *in, size_t n, void *dst)
{
    uint8_t *p = dst;
    for (size_t i = 0; i < n; i++) {
        uint16_t h = dtype_f32_to_bf16(in[i]);
        memcpy(p + 2 * i, &h, sizeof h);
    }
}

static const struct dtype_info formats[DTYPE_COUNT] = {
    [DTYPE_F32] = {"F32", "F32", 0, 1, 4, f32_to_f32, f32_from_f32, 0, 0},
    [DTYPE_F16] = {"F16", "F16", 1, 1, 2, f16_to_f32, f16_from_f32, 0, 0},
    [DTYPE_BF16] = {"BF16", "BF16", 30, 1, 2, bf16_to_f32, bf16_from_f32, 0, 0},
    [DTYPE_Q8_0] = {"Q8_0", NULL, 8, SMALL_BLOCK_ELEMENTS, Q8_0_BYTES, q8_0_to_f32, q8_0_from_f32,
                    0, 1},
    [DTYPE_Q4_0] = {"Q4_0", NULL, 2, SMALL_BLOCK_ELEMENTS, Q4_0_BYTES, q4_0_to_f32, q4_0_from_f32,
                    0, 1},
    [DTYPE_Q6_K] = {"Q6_K", NULL, 14, SUPERBLOCK_ELEMENTS, Q6_K_BYTES, q6_k_to_f32, q6_k_from_f32,
                    208, 1},
    [DTYPE_Q4_1] = {"Q4_1", NULL, 3, SMALL_BLOCK_ELEMENTS, Q4_1_BYTES, q4_1_to_f32, q4_1_from_f32,
                    0, 2},
    [DTYPE_Q5_0] = {"Q5_0", NULL, 6, SMALL_BLOCK_ELEMENTS, Q5_0_BYTES, q5_0_to_f32, q5_0_from_f32,
                    0, 1},
    [DTYPE_Q5_1] = {"Q5_1", NULL, 7, SMALL_BLOCK_ELEMENTS, Q5_1_BYTES, q5_1_to_f32, q5_1_from_f32,
                    0, 2},
    [DTYPE_Q2_K] = {"Q2_K", NULL, 10, SUPERBLOCK_ELEMENTS, Q2_K_BYTES, q2_k_to_f32, q2_k_from_f32,
                    80, 2},
    [DTYPE_Q3_K] = {"Q3_K", NULL, 11, SUPERBLOCK_ELEMENTS, Q3_K_BYTES, q3_k_to_f32, q3_k_from_f32,
                    108, 1},
    [DTYPE_Q4_K] = {"Q4_K", NULL, 12, SUPERBLOCK_ELEMENTS, Q4_K_BYTES, q4_k_to_f32, q4_k_from_f32,
                    0, 2},
    [DTYPE_Q5_K] = {"Q5_K", NULL, 13, SUPERBLOCK_ELEMENTS, Q5_K_BYTES, q5_k_to_f32, q5_k_from_f32,
                    0, 2},
    [DTYPE_IQ4_NL] = {"IQ4_NL", NULL, 20, SMALL_BLOCK_ELEMENTS, IQ4_NL_BYTES, iq4_nl_to_f32,
                      iq4_nl_from_f32, 0, 1},
    [DTYPE_IQ4_XS] = {"IQ4_XS", NULL, 23, SUPERBLOCK_ELEMENTS, IQ4_XS_BYTES, iq4_xs_to_f32,
                      iq4_xs_from_f32, 0, 1},
    [DTYPE_MXFP4] = {"MXFP4", NULL, 39, SMALL_BLOCK_ELEMENTS, MXFP4_BYTES, mxfp4_to_f32,
                     mxfp4_from_f32, 0, 0},
    [DTYPE_U32] = {"U32", NULL, 0, 1, 4, NULL, NULL, 0, 0},
    [DTYPE_Q8_WIRE] = {"Q8_WIRE", NULL, 0, Q8_WIRE_ELEMENTS, Q8_WIRE_BYTES, q8_wire_to_f32, NULL, 0,
                       0},
};

const struct dtype_info *dtype_info(enum dtype t)
{
    assert((unsigned)t < DTYPE_COUNT);
    return &formats[t];
}

static bool scale_is_sound(const uint8_t *at)
{
    float scale;
    memcpy(&scale, at, sizeof scale);
    return isfinite(scale) && scale >= 0;
}

/* Scales of a block; MXFP4's is a byte, of which one value stands for no number. */
static bool block_is_sound(enum dtype t, const uint8_t *block)
{
    const struct dtype_info *info = &formats[t];
    if (t == DTYPE_Q8_WIRE)
        return scale_is_sound(block);
    for (int i = 0; i < info->n_scales; i++) {
        const uint8_t *half = block + info->scales_at + 2 * i;
        if ((half[1] & 0x7c) == 0x7c)
            return false;
    }
    return t != DTYPE_MXFP4 || block[0] != 0xff;
}

/* An exponent of ones is infinite or not a number. */
static uint32_t exponent_of(enum dtype t)
{
    return t == DTYPE_F32 ? 0x7f800000 : t == DTYPE_F16 ? 0x7c00 : t == DTYPE_BF16 ? 0x7f80 : 0;
}

enum { PLAIN_CHUNK_BYTES = 2048 };

/* Whole chunks, wherever they lie: loops of a fixed length are what compilers make vectors of. */
static bool chunk_is_sound(const uint8_t *at, uint32_t exponent, size_t size)
{
    uint32_t bad = 0;
    if (size == 4) {
        uint32_t values[PLAIN_CHUNK_BYTES / 4];
        memcpy(values, at, sizeof values);
        for (size_t i = 0; i < PLAIN_CHUNK_BYTES / 4; i++)
            bad |= (values[i] & exponent) == exponent;
        return !bad;
    }
    uint16_t values[PLAIN_CHUNK_BYTES / 2], found = 0, ones = (uint16_t)exponent;
    memcpy(values, at, sizeof values);
    for (size_t i = 0; i < PLAIN_CHUNK_BYTES / 2; i++)
        found |= (uint16_t)((values[i] & ones) == ones);
    return !found;
}

static int64_t plain_bad(enum dtype t, const uint8_t *src, size_t n)
{
    uint32_t exponent = exponent_of(t);
    size_t size = formats[t].block_bytes, step = PLAIN_CHUNK_BYTES / size, i = 0;
    while (exponent && n - i >= step && chunk_is_sound(src + i * size, exponent, size))
        i += step;
    for (; exponent && i < n; i++) {
        uint32_t value = 0;
        memcpy(&value, src + i * size, size);
        if ((value & exponent) == exponent)
            return (int64_t)i;
    }
    return -1;
}

int64_t dtype_bad_block(enum dtype t, const void *src, size_t n)
{
    const struct dtype_info *info = dtype_info(t);
    const uint8_t *block = src;
    if (info->block_elements == 1)
        return plain_bad(t, src, n);
    for (size_t i = 0; i < n / info->block_elements; i++, block += info->block_bytes)
        if (!block_is_sound(t, block))
            return (int64_t)i;
    return -1;
}

int dtype_of_gguf(uint32_t gguf_type)
{
    for (int t = 0; t < DTYPE_WEIGHT_COUNT; t++)
        if (formats[t].gguf_type == gguf_type)
            return t;
    return -1;
}

int dtype_of_safetensors(const char *name)
{
    for (int t = 0; t < DTYPE_WEIGHT_COUNT; t++)
        if (formats[t].safetensors && strcmp(formats[t].safetensors, name) == 0)
            return t;
    return -1;
}

/* Every format of GGUF, by its number: name, elements and bytes of a block. Source: ggml.h and
 * ggml-common.h of llama.cpp. */
static const struct {
    const char *name;
    uint16_t elements, bytes;
} gguf_formats[] = {
    [0] = {"F32", 1, 4},           [1] = {"F16", 1, 2},           [2] = {"Q4_0", 32, 18},
    [3] = {"Q4_1", 32, 20},        [6] = {"Q5_0", 32, 22},        [7] = {"Q5_1", 32, 24},
    [8] = {"Q8_0", 32, 34},        [9] = {"Q8_1", 32, 36},        [10] = {"Q2_K", 256, 84},
    [11] = {"Q3_K", 256, 110},     [12] = {"Q4_K", 256, 144},     [13] = {"Q5_K", 256, 176},
    [14] = {"Q6_K", 256, 210},     [15] = {"Q8_K", 256, 292},     [16] = {"IQ2_XXS", 256, 66},
    [17] = {"IQ2_XS", 256, 74},    [18] = {"IQ3_XXS", 256, 98},   [19] = {"IQ1_S", 256, 50},
    [20] = {"IQ4_NL", 32, 18},     [21] = {"IQ3_S", 256, 110},    [22] = {"IQ2_S", 256, 82},
    [23] = {"IQ4_XS", 256, 136},   [24] = {"I8", 1, 1},           [25] = {"I16", 1, 2},
    [26] = {"I32", 1, 4},          [27] = {"I64", 1, 8},          [28] = {"F64", 1, 8},
    [29] = {"IQ1_M", 256, 56},     [30] = {"BF16", 1, 2},         [31] = {"Q4_0_4_4", 32, 18},
    [32] = {"Q4_0_4_8", 32, 18},   [33] = {"Q4_0_8_8", 32, 18},   [34] = {"TQ1_0", 256, 54},
    [35] = {"TQ2_0", 256, 66},     [36] = {"IQ4_NL_4_4", 32, 18}, [37] = {"IQ4_NL_4_8", 32, 18},
    [38] = {"IQ4_NL_8_8", 32, 18}, [39] = {"MXFP4", 32, 17},      [40] = {"NVFP4", 64, 36},
};
enum { N_GGUF_FORMATS = sizeof gguf_formats / sizeof *gguf_formats };

const char *dtype_gguf_name(uint32_t gguf_type)
{
    return gguf_type < N_GGUF_FORMATS && gguf_formats[gguf_type].name ? gguf_formats[gguf_type].name
                                                                      : "unknown";
}

bool dtype_gguf_block(uint32_t gguf_type, uint32_t *elements, uint32_t *bytes)
{
    if (gguf_type >= N_GGUF_FORMATS || !gguf_formats[gguf_type].name)
        return false;
    *elements = gguf_formats[gguf_type].elements;
    *bytes = gguf_formats[gguf_type].bytes;
    return true;
}

const char *dtype_known(char *out, size_t size)
{
    size_t at = 0;
    out[0] = '\0';
    for (int t = 0; t < DTYPE_WEIGHT_COUNT; t++) {
        size_t n = strlen(formats[t].name), comma = t ? 2 : 0;
        if (at + comma + n + 1 > size)
            break;
        memcpy(out + at, ", ", comma);
        memcpy(out + at + comma, formats[t].name, n + 1);
        at += comma + n;
    }
    return out;
}
