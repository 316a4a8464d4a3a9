#include "model/files/gguf_write.h"

#include <assert.h>
#include <string.h>

static void put_u32(struct buffer *b, uint32_t v)
{
    buffer_append(b, &v, sizeof v);
}

static void put_u64(struct buffer *b, uint64_t v)
{
    buffer_append(b, &v, sizeof v);
}

static void put_string(struct buffer *b, const char *text, size_t size)
{
    put_u64(b, size);
    buffer_append(b, text, size);
}

/* ---- keys ---- */

static void key_begin(struct gguf_header *h, const char *key, size_t size, enum gguf_type type)
{
    assert(h->array_left == 0);
    put_string(&h->keys, key, size);
    put_u32(&h->keys, type);
    h->n_keys++;
}

static void value_put(struct gguf_header *h, const char *key, enum gguf_type type, const void *v,
                      size_t bytes)
{
    key_begin(h, key, strlen(key), type);
    buffer_append(&h->keys, v, bytes);
}

void gguf_put_u32(struct gguf_header *h, const char *key, uint32_t v)
{
    value_put(h, key, GGUF_U32, &v, sizeof v);
}

void gguf_put_f32(struct gguf_header *h, const char *key, float v)
{
    value_put(h, key, GGUF_F32, &v, sizeof v);
}

void gguf_put_bool(struct gguf_header *h, const char *key, bool v)
{
    uint8_t byte = v;
    value_put(h, key, GGUF_BOOL, &byte, sizeof byte);
}

void gguf_put_text(struct gguf_header *h, const char *key, const char *text)
{
    key_begin(h, key, strlen(key), GGUF_STRING);
    put_string(&h->keys, text, strlen(text));
}

void gguf_put_copy(struct gguf_header *h, const struct gguf_key *k)
{
    static const uint8_t bytes[] = {[GGUF_U8] = 1,  [GGUF_I8] = 1,  [GGUF_U16] = 2, [GGUF_I16] = 2,
                                    [GGUF_U32] = 4, [GGUF_I32] = 4, [GGUF_F32] = 4, [GGUF_BOOL] = 1,
                                    [GGUF_U64] = 8, [GGUF_I64] = 8, [GGUF_F64] = 8};
    enum gguf_type element = k->type == GGUF_ARRAY ? k->element_type : k->type;
    key_begin(h, k->name.data, k->name.size, k->type);
    if (k->type == GGUF_ARRAY) {
        put_u32(&h->keys, element);
        put_u64(&h->keys, k->count);
    }
    if (element != GGUF_STRING) {
        buffer_append(&h->keys, k->data, (size_t)k->count * bytes[element]);
        return;
    }
    for (uint64_t i = 0; i < k->count; i++)
        put_string(&h->keys, k->strings[i].data, k->strings[i].size);
}

void gguf_put_array(struct gguf_header *h, const char *key, enum gguf_type element, uint64_t n)
{
    key_begin(h, key, strlen(key), GGUF_ARRAY);
    put_u32(&h->keys, element);
    put_u64(&h->keys, n);
    h->array_left = n;
}

static void element_count(struct gguf_header *h)
{
    assert(h->array_left > 0);
    h->array_left--;
}

void gguf_add_text(struct gguf_header *h, const char *text, size_t size)
{
    element_count(h);
    put_string(&h->keys, text, size);
}

void gguf_add_i32(struct gguf_header *h, int32_t v)
{
    element_count(h);
    buffer_append(&h->keys, &v, sizeof v);
}

void gguf_add_f32(struct gguf_header *h, float v)
{
    element_count(h);
    buffer_append(&h->keys, &v, sizeof v);
}

void gguf_add_bool(struct gguf_header *h, bool v)
{
    uint8_t byte = v;
    element_count(h);
    buffer_append(&h->keys, &byte, sizeof byte);
}

/* ---- tensors ---- */

static uint64_t bytes_aligned(uint64_t bytes)
{
    return (bytes + GGUF_ALIGNMENT - 1) / GGUF_ALIGNMENT * GGUF_ALIGNMENT;
}

uint64_t gguf_put_tensor(struct gguf_header *h, const char *name, int n_dims, const uint64_t *shape,
                         enum dtype dtype, uint64_t bytes)
{
    uint64_t at = h->data_bytes;
    put_string(&h->tensors, name, strlen(name));
    put_u32(&h->tensors, (uint32_t)n_dims);
    for (int d = n_dims - 1; d >= 0; d--)
        put_u64(&h->tensors, shape[d]);
    put_u32(&h->tensors, dtype_info(dtype)->gguf_type);
    put_u64(&h->tensors, at);
    h->n_tensors++;
    h->data_bytes += bytes_aligned(bytes);
    return at;
}

/* ---- the whole ---- */

int gguf_header_finish(const struct gguf_header *h, struct buffer *out, struct err *e)
{
    enum { VERSION = 3 };
    assert(h->array_left == 0);
    buffer_append(out, "GGUF", 4);
    put_u32(out, VERSION);
    put_u64(out, h->n_tensors);
    put_u64(out, h->n_keys);
    buffer_append(out, h->keys.data, h->keys.size);
    buffer_append(out, h->tensors.data, h->tensors.size);
    size_t filling = bytes_aligned(out->size) - out->size;
    uint8_t *zeros = filling ? buffer_extend(out, filling) : NULL;
    if (zeros)
        memset(zeros, 0, filling);
    return out->failed || h->keys.failed || h->tensors.failed
               ? err_no_memory(e, "the header of a GGUF file")
               : 0;
}

void gguf_header_free(struct gguf_header *h)
{
    buffer_free(&h->keys);
    buffer_free(&h->tensors);
    *h = (struct gguf_header){0};
}
