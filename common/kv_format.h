/* As what numbers keys and values are kept and sent: two kinds of floating point, or blocks of
 * KV_Q8_ELEMENTS 8-bit integers with one f16 scale before them (Q8_0 of GGUF). */
#ifndef HP_COMMON_KV_FORMAT_H
#define HP_COMMON_KV_FORMAT_H

#include <stdbool.h>
#include <stdint.h>

enum kv_format { KV_F16, KV_F32, KV_Q8_0 };
enum { KV_Q8_ELEMENTS = 32, KV_Q8_BYTES = 2 + KV_Q8_ELEMENTS };

/* Bytes of so many elements; of KV_Q8_0 whole blocks. */
static inline uint64_t kv_format_bytes(enum kv_format f, uint64_t elements)
{
    return f == KV_Q8_0  ? elements / KV_Q8_ELEMENTS * KV_Q8_BYTES
           : f == KV_F32 ? elements * sizeof(float)
                         : elements * sizeof(uint16_t);
}

/* Elements of so many bytes, which are whole blocks. */
static inline uint64_t kv_format_elements(enum kv_format f, uint64_t bytes)
{
    return f == KV_Q8_0  ? bytes / KV_Q8_BYTES * KV_Q8_ELEMENTS
           : f == KV_F32 ? bytes / sizeof(float)
                         : bytes / sizeof(uint16_t);
}

/* "f16", "f32", "q8_0", and back. "auto" (also "" and NULL) follows the arithmetic: f32 where that
 * is float32 throughout, else f16. False: the text is none of them. */
const char *kv_format_word(enum kv_format f);
bool kv_format_of_word(const char *word, bool f32, enum kv_format *out);

#endif
