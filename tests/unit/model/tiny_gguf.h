/* Small GGUF files for tests, byte by byte: `gguf_file` writes whatever it is told, true or not;
 * `tiny_llama` is a whole valid model that a test may spoil in one place. */
#ifndef HP_TESTS_TINY_GGUF_H
#define HP_TESTS_TINY_GGUF_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/bytes.h"
#include "model/files/gguf.h"
#include "tests/test.h"

struct gguf_file {
    struct buffer keys, tensors, data;
    uint64_t n_keys, n_tensors;
    uint32_t version; /* 0: 3 */
};

static inline void put_u32(struct buffer *b, uint32_t v)
{
    buffer_append(b, &v, sizeof v);
}
static inline void put_u64(struct buffer *b, uint64_t v)
{
    buffer_append(b, &v, sizeof v);
}

static inline void put_string(struct buffer *b, const char *s)
{
    put_u64(b, strlen(s));
    buffer_append(b, s, strlen(s));
}

static inline void put_key(struct gguf_file *f, const char *name, uint32_t type)
{
    f->n_keys++;
    put_string(&f->keys, name);
    put_u32(&f->keys, type);
}

static inline void put_key_u32(struct gguf_file *f, const char *name, uint32_t v)
{
    put_key(f, name, GGUF_U32);
    put_u32(&f->keys, v);
}

static inline void put_key_f32(struct gguf_file *f, const char *name, float v)
{
    put_key(f, name, GGUF_F32);
    buffer_append(&f->keys, &v, sizeof v);
}

static inline void put_key_string(struct gguf_file *f, const char *name, const char *v)
{
    put_key(f, name, GGUF_STRING);
    put_string(&f->keys, v);
}

/* The entry of a tensor alone; dims innermost first, as the file has them. */
static inline void put_tensor_entry(struct gguf_file *f, const char *name, uint32_t n_dims,
                                    const uint64_t *dims, uint32_t type, uint64_t offset)
{
    f->n_tensors++;
    put_string(&f->tensors, name);
    put_u32(&f->tensors, n_dims);
    for (uint32_t d = 0; d < n_dims; d++)
        put_u64(&f->tensors, dims[d]);
    put_u32(&f->tensors, type);
    put_u64(&f->tensors, offset);
}

static inline void pad(struct buffer *b, size_t alignment)
{
    while (b->size % alignment)
        buffer_append(b, "", 1);
}

/* A tensor with data: rows 0 for a vector; zeros, and every format's block of zeros is zeros. */
static inline void put_tensor(struct gguf_file *f, const char *name, uint64_t rows,
                              uint64_t columns, enum dtype t)
{
    const struct dtype_info *info = dtype_info(t);
    pad(&f->data, 32);
    put_tensor_entry(f, name, rows ? 2 : 1, (const uint64_t[]){columns, rows}, info->gguf_type,
                     f->data.size);
    size_t bytes = (size_t)(columns * (rows ? rows : 1)) / info->block_elements * info->block_bytes;
    memset(buffer_extend(&f->data, bytes), 0, bytes);
}

/* Joins the parts into `out`, of exactly the file's size, and frees them. */
static inline void gguf_file_finish(struct gguf_file *f, struct buffer *out)
{
    buffer_append(out, "GGUF", 4);
    put_u32(out, f->version ? f->version : 3);
    put_u64(out, f->n_tensors);
    put_u64(out, f->n_keys);
    buffer_append(out, f->keys.data, f->keys.size);
    buffer_append(out, f->tensors.data, f->tensors.size);
    pad(out, 32);
    buffer_append(out, f->data.data, f->data.size);
    buffer_free(&f->keys);
    buffer_free(&f->tensors);
    buffer_free(&f->data);
}

/* How one model differs from the valid one; zero-initialised: not at all. */
struct tiny_llama {
    const char *architecture; /* NULL: llama */
    const char *without;      /* a key or tensor that is missing */
    const char *key;          /* a key whose value is `value` instead */
    uint32_t value;
    const char *wrong_shape; /* a tensor with one column more */
    const char *extra_tensor, *extra_key, *extra_text;
    int rope_factors;     /* with rope_freqs.weight, all 2 */
    const char *repeated; /* a tensor that is there twice */
    enum dtype dtype;     /* of matrices */
};

enum {
    TINY_WIDTH = 32,
    TINY_BLOCKS = 2,
    TINY_HEADS = 4,
    TINY_KV_HEADS = 2,
    TINY_HEAD_DIM = 8,
    TINY_MLP = 64,
    TINY_VOCABULARY = 8
};

static inline int tiny_is(const char *a, const char *b)
{
    return a && strcmp(a, b) == 0;
}

static inline void tiny_tensor(struct gguf_file *f, const struct tiny_llama *t, const char *name,
                               uint64_t rows, uint64_t columns)
{
    if (tiny_is(t->without, name))
        return;
    enum dtype dtype = rows ? t->dtype : DTYPE_F32;
    if (tiny_is(t->wrong_shape, name))
        put_tensor(f, name, rows, columns + 32, dtype);
    else
        put_tensor(f, name, rows, columns, dtype);
    if (tiny_is(t->repeated, name))
        put_tensor(f, name, rows, columns, dtype);
}

static inline void tiny_keys(struct gguf_file *f, const struct tiny_llama *t)
{
    static const struct {
        const char *name;
        uint32_t value;
    } keys[] = {
        {"llama.block_count", TINY_BLOCKS},
        {"llama.context_length", 128},
        {"llama.embedding_length", TINY_WIDTH},
        {"llama.feed_forward_length", TINY_MLP},
        {"llama.attention.head_count", TINY_HEADS},
        {"llama.attention.head_count_kv", TINY_KV_HEADS},
        {"llama.vocab_size", TINY_VOCABULARY},
        {"llama.rope.dimension_count", TINY_HEAD_DIM},
    };
    if (!tiny_is(t->without, "general.architecture"))
        put_key_string(f, "general.architecture", t->architecture ? t->architecture : "llama");
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (!tiny_is(t->without, keys[i].name))
            put_key_u32(f, keys[i].name, tiny_is(t->key, keys[i].name) ? t->value : keys[i].value);
    if (!tiny_is(t->without, "llama.attention.layer_norm_rms_epsilon"))
        put_key_f32(f, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
    if (t->extra_key && t->extra_text)
        put_key_string(f, t->extra_key, t->extra_text);
    else if (t->extra_key)
        put_key_u32(f, t->extra_key, t->value);
}

static inline void tiny_llama_make(const struct tiny_llama *t, struct buffer *out)
{
    struct gguf_file f = {0};
    tiny_keys(&f, t);
    tiny_tensor(&f, t, "token_embd.weight", TINY_VOCABULARY, TINY_WIDTH);
    for (int block = 0; block < TINY_BLOCKS; block++) {
        static const struct {
            const char *name;
            uint64_t rows, columns;
        } tensors[] = {
            {"attn_norm", 0, TINY_WIDTH},
            {"attn_q", TINY_HEADS * TINY_HEAD_DIM, TINY_WIDTH},
            {"attn_k", TINY_KV_HEADS * TINY_HEAD_DIM, TINY_WIDTH},
            {"attn_v", TINY_KV_HEADS * TINY_HEAD_DIM, TINY_WIDTH},
            {"attn_output", TINY_WIDTH, TINY_HEADS * TINY_HEAD_DIM},
            {"ffn_norm", 0, TINY_WIDTH},
            {"ffn_gate", TINY_MLP, TINY_WIDTH},
            {"ffn_up", TINY_MLP, TINY_WIDTH},
            {"ffn_down", TINY_WIDTH, TINY_MLP},
        };
        for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) {
            char name[64];
            snprintf(name, sizeof name, "blk.%d.%s.weight", block, tensors[i].name);
            tiny_tensor(&f, t, name, tensors[i].rows, tensors[i].columns);
        }
    }
    tiny_tensor(&f, t, "output_norm.weight", 0, TINY_WIDTH);
    tiny_tensor(&f, t, "output.weight", TINY_VOCABULARY, TINY_WIDTH);
    if (t->extra_tensor)
        tiny_tensor(&f, t, t->extra_tensor, 0, TINY_HEAD_DIM / 2);
    if (t->rope_factors) {
        put_tensor(&f, "rope_freqs.weight", 0, TINY_HEAD_DIM / 2, DTYPE_F32);
        for (int i = 0; i < TINY_HEAD_DIM / 2; i++)
            memcpy(f.data.data + f.data.size - 4 * (size_t)(i + 1), &(float){2}, 4);
    }
    gguf_file_finish(&f, out);
}

/* Such a file of this process, whose name holds until the next call; whoever asks unlinks it. */
static inline const char *tiny_llama_write(enum dtype matrices)
{
    static char path[64];
    struct buffer b = {0};
    tiny_llama_make(&(struct tiny_llama){.dtype = matrices}, &b);
    snprintf(path, sizeof path, "/tmp/hp-tiny-%ld.gguf", (long)getpid());
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(b.data, 1, b.size, f), b.size);
    assert_int_equal(fclose(f), 0);
    buffer_free(&b);
    return path;
}

#endif
