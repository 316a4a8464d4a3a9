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
    DTYPE_WEIGHT_COUNT, /* those before are formats of weights */

    DTYPE_U32 = DTYPE_WEIGHT_COUNT, /* token ids, positions */
    DTYPE_COUNT
};

/* Blocks of the quantised formats (blocks.c says what is in them). */
enum {
    Q8_0_ELEMENTS = 32,
    Q8_0_BYTES = 2 + 32,
    Q4_0_ELEMENTS = 32,
    Q4_0_BYTES = 2 + 16,
    Q6_K_ELEMENTS = 256,
    Q6_K_BYTES = 128 + 64 + 16 + 2
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
};

/* The row of a format. */
const struct dtype_info *dtype_info(enum dtype t);
/* -1 when unknown. */
int dtype_of_gguf(uint32_t gguf_type);
/* What GGUF calls that number, whether we compute with it or not ("Q6_K"); "unknown" otherwise. */
const char *dtype_gguf_name(uint32_t gguf_type);
/* Elements and bytes of a block of it; false where they are not known. */
bool dtype_gguf_block(uint32_t gguf_type, uint32_t *elements, uint32_t *bytes);
int dtype_of_safetensors(const char *name);
/* The names of all formats, for messages: "F32, F16, BF16, Q8_0" in out[size]; returns `out`. */
const char *dtype_known(char *out, size_t size);

/* Exact. */
float dtype_f16_to_f32(uint16_t h);
uint16_t dtype_f32_to_f16(float f); /* to nearest even; overflow gives infinity */
float dtype_bf16_to_f32(uint16_t h);
uint16_t dtype_f32_to_bf16(float f); /* to nearest even */

#endif
