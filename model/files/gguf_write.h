/* The header of a GGUF file (version 3) in the making: keys, then tensors, each of which is given
 * its place. What fails for want of memory is told by gguf_header_finish. */
#ifndef HP_MODEL_FILES_GGUF_WRITE_H
#define HP_MODEL_FILES_GGUF_WRITE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/bytes.h"
#include "common/status.h"
#include "model/dtype/dtype.h"
#include "model/files/gguf.h"

struct gguf_header {
    struct buffer keys, tensors;
    uint64_t n_keys, n_tensors;
    uint64_t data_bytes; /* of the tensors so far, each rounded up to GGUF_ALIGNMENT */
    uint64_t array_left; /* elements that the array that was begun last lacks */
};

enum { GGUF_ALIGNMENT = 32 };

/* Keys, each once. */
void gguf_put_u32(struct gguf_header *h, const char *key, uint32_t v);
void gguf_put_f32(struct gguf_header *h, const char *key, float v);
void gguf_put_bool(struct gguf_header *h, const char *key, bool v);
void gguf_put_text(struct gguf_header *h, const char *key, const char *text);
/* As another file has it. */
void gguf_put_copy(struct gguf_header *h, const struct gguf_key *k);
/* An array of `n`, whose elements follow one by one. */
void gguf_put_array(struct gguf_header *h, const char *key, enum gguf_type element, uint64_t n);
void gguf_add_text(struct gguf_header *h, const char *text, size_t size);
void gguf_add_i32(struct gguf_header *h, int32_t v);
void gguf_add_f32(struct gguf_header *h, float v);
void gguf_add_bool(struct gguf_header *h, bool v);

/* A tensor, shape outermost first: where its bytes lie, counted from the first byte of data. */
uint64_t gguf_put_tensor(struct gguf_header *h, const char *name, int n_dims, const uint64_t *shape,
                         enum dtype dtype, uint64_t bytes);

/* Appends the whole header, up to the first byte of data. HP_ENOMEM. */
int gguf_header_finish(const struct gguf_header *h, struct buffer *out, struct err *e);
void gguf_header_free(struct gguf_header *h);

#endif
