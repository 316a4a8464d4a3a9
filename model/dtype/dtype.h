/* Number formats: one row a format, with its block layout and how to turn it into float32. A new
 * format is a new row: devices multiply by what they have no kernel for by way of float32. */
#ifndef HP_MODEL_DTYPE_DTYPE_H
#define HP_MODEL_DTYPE_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum dtype {
    DTYPE_F32,
    DTYPE_F16,
    DTYPE_BF16,
    DTYPE_Q8_0,
    DTYPE_Q4_0,
    DTYPE_Q6_K,
    DTYPE_Q4_1,
    DTYPE_Q5_0,
    DTYPE_Q5_1,
    DTYPE_Q2_K,
    DTYPE_Q3_K,
    DTYPE_Q4_K,
    DTYPE_Q5_K,
    DTYPE_IQ4_NL,
    DTYPE_IQ4_XS,
    DTYPE_MXFP4,
    DTYPE_WEIGHT_COUNT, /* those before are formats of weights */

    DTYPE_U32 = DTYPE_WEIGHT_COUNT, /* token ids, positions */
    DTYPE_Q8_WIRE,                  /* rows on their way between devices */
    DTYPE_COUNT
};

/* Blocks of the quantised formats (blocks.c and superblocks.c say what is in them). */
enum {
    SMALL_BLOCK_ELEMENTS = 32,
    Q8_0_ELEMENTS = SMALL_BLOCK_ELEMENTS,
    Q8_0_BYTES = 2 + 32,
    Q4_0_ELEMENTS = SMALL_BLOCK_ELEMENTS,
    Q4_0_BYTES = 2 + 16,
    Q4_1_BYTES = 4 + 16,
    Q5_0_BYTES = 2 + 4 + 16,
    Q5_1_BYTES = 4 + 4 + 16,
    IQ4_NL_BYTES = 2 + 16,
    MXFP4_BYTES = 1 + 16,

    SUPERBLOCK_ELEMENTS = 256,
    Q2_K_BYTES = 16 + 64 + 4,
    Q3_K_BYTES = 32 + 64 + 12 + 2,
    Q4_K_BYTES = 4 + 12 + 128,
    Q5_K_BYTES = 4 + 12 + 32 + 128,
    Q6_K_BYTES = 128 + 64 + 16 + 2,
    IQ4_XS_BYTES = 2 + 2 + 4 + 128,

    Q8_WIRE_ELEMENTS = 64,
    Q8_WIRE_BYTES = 4 + 4 + 64,
    Q8_WIRE_KEPT = -128 /* the code that stands for the block's kept value */
};

struct dtype_info {
    const char *name;        /* "Q8_0" */
    const char *safetensors; /* its name in a safetensors header ("BF16"), or NULL */
    uint32_t gguf_type;      /* its number in GGUF */
    size_t block_elements;   /* elements of one block; 1 for plain formats */
    size_t block_bytes;
    /* n elements, a whole number of blocks, from `src` (no alignment assumed) to out[n];
     * NULL: not a format of weights. */
    void (*to_f32)(const void *src, size_t n, float *out);
    /* The other way: n finite values, a whole number of blocks, with the scales that leave the
     * least squares of differences (quantise.h). What is beyond the format's range becomes
     * infinite. The same values give the same bytes. */
    void (*from_f32)(const float *in, size_t n, void *dst);
    uint8_t scales_at, n_scales; /* halves of a block that scale it: first byte, and how many */
};

/* The row of a format. */
const struct dtype_info *dtype_info(enum dtype t);
/* Bytes of n elements, a whole number of blocks. */
static inline uint64_t dtype_bytes(enum dtype t, uint64_t n)
{
    const struct dtype_info *info = dtype_info(t);
    return n / info->block_elements * info->block_bytes;
}
/* -1 when unknown. */
int dtype_of_gguf(uint32_t gguf_type);
/* What GGUF calls that number, whether we compute with it or not ("Q6_K"); "unknown" otherwise. */
const char *dtype_gguf_name(uint32_t gguf_type);
/* Elements and bytes of a block of it; false where they are not known. */
bool dtype_gguf_block(uint32_t gguf_type, uint32_t *elements, uint32_t *bytes);
int dtype_of_safetensors(const char *name);
/* The names of all formats, for messages: "F32, F16, BF16, Q8_0" in out[size]; returns `out`. */
const char *dtype_known(char *out, size_t size);

/* The first of n elements' blocks (`src` as above) whose scale is infinite or not a number (of
 * Q8_WIRE: or below 0), or -1: such a block makes every product of its row worthless. Of F32, F16
 * and BF16 the first such value. */
int64_t dtype_bad_block(enum dtype t, const void *src, size_t n);

/* ---- what is inside blocks, for kernels ---- */

/* What four bits stand for: IQ4_NL and IQ4_XS, and twice that in MXFP4. */
extern const int8_t dtype_iq4_values[16], dtype_mxfp4_values[16];
/* Half of MXFP4's scale: 2^(e - 128). */
float dtype_e8m0_half(uint8_t e);
/* A half at any address. */
float dtype_half_at(const uint8_t *p);

/* Exact. */
float dtype_f16_to_f32(uint16_t h);
uint16_t dtype_f32_to_f16(float f); /* to nearest even; overflow gives infinity */
float dtype_bf16_to_f32(uint16_t h);
uint16_t dtype_f32_to_bf16(float f); /* to nearest even */

#endif
