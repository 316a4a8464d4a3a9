/* The plain backend's KV cache: a page is [block][k or v][token][kv head][head dim]. */
#include <math.h>
#include <string.h>

#include "agent/backend/plain/loops.h"
#include "agent/backend/plain/plain_int.h"

static size_t element_bytes(const struct kv_layout *l)
{
    return l->f32 ? sizeof(float) : sizeof(uint16_t);
}

/* Of one token, k or v, all heads. */
static size_t row_bytes(const struct kv_layout *l)
{
    return (size_t)l->n_kv_heads * (size_t)l->head_dim * element_bytes(l);
}

uint64_t plain_kv_page_bytes(const struct device *d, const struct kv_layout *l)
{
    (void)d;
    return (uint64_t)l->n_blocks * 2 * KV_PAGE_TOKENS * row_bytes(l);
}

/* All heads of the token at `position`; `part` 0: keys, 1: values. */
static uint8_t *token_row(const struct kv_layout *l, struct memory pool, const uint32_t *pages,
                          int block, int part, uint32_t position)
{
    uint8_t *page =
        (uint8_t *)pool.data + pages[position / KV_PAGE_TOKENS] * plain_kv_page_bytes(NULL, l);
    return page +
           (((size_t)block * 2 + (size_t)part) * KV_PAGE_TOKENS + position % KV_PAGE_TOKENS) *
               row_bytes(l);
}

static void row_write(const struct kv_layout *l, const float *values, uint8_t *row)
{
    for (size_t i = 0; i < (size_t)l->n_kv_heads * (size_t)l->head_dim; i++) {
        uint16_t half = dtype_f32_to_f16(values[i]);
        memcpy(row + i * element_bytes(l), l->f32 ? (const void *)&values[i] : (const void *)&half,
               element_bytes(l));
    }
}

struct head_of_run {
    const struct kv_layout *layout;
    struct memory pool;
    const uint32_t *pages;
    int block, head;
};

static float cache_read(const struct head_of_run *h, int part, uint32_t position, size_t i)
{
    const struct kv_layout *l = h->layout;
    float value;
    const uint8_t *at = token_row(l, h->pool, h->pages, h->block, part, position) +
                        ((size_t)h->head * (size_t)l->head_dim + i) * element_bytes(l);
    dtype_info(l->f32 ? DTYPE_F32 : DTYPE_F16)->to_f32(at, 1, &value);
    return value;
}

static float cached_key(const void *ctx, uint32_t position, size_t i)
{
    return cache_read(ctx, 0, position, i);
}

static float cached_value(const void *ctx, uint32_t position, size_t i)
{
    return cache_read(ctx, 1, position, i);
}

static void attend_token(const struct plain_op *op, const struct op_batch *b,
                         const struct attention_run *run, uint32_t t, const struct tensor *q,
                         const struct tensor *out)
{
    const struct op_attention *a = &op->request.op->u.attention;
    size_t hd = (size_t)a->head_dim;
    for (int h = 0; h < a->heads; h++) {
        struct head_of_run head = {b->kv, b->kv_pool, run->pages, op->request.kv_block,
                                   h / (a->heads / a->kv_heads)};
        struct loop_cache cache = {cached_key, cached_value, &head};
        loop_attend(&cache, (const float *)tensor_row(q, run->first_row + t) + (size_t)h * hd,
                    run->first_position + t, hd, 1.0f / sqrtf((float)hd),
                    (float *)tensor_row(out, run->first_row + t) + (size_t)h * hd);
    }
}

void plain_attention(const struct plain_op *op, const struct tensor *in, const struct tensor *out,
                     const struct op_batch *b)
{
    for (int i = 0; i < b->n_runs; i++) {
        const struct attention_run *run = &b->runs[i];
        for (uint32_t t = 0; t < run->n_tokens; t++)
            for (int part = 0; part < 2; part++)
                row_write(b->kv, tensor_row(&in[1 + part], run->first_row + t),
                          token_row(b->kv, b->kv_pool, run->pages, op->request.kv_block, part,
                                    run->first_position + t));
        for (uint32_t t = 0; t < run->n_tokens; t++)
            attend_token(op, b, run, t, &in[0], out);
    }
}

void plain_kv_export(struct stream *s, const struct kv_layout *l, struct memory pool,
                     const uint32_t *pages, uint32_t first, uint32_t count, void *out)
{
    uint8_t *to = out;
    (void)s;
    for (int block = 0; block < l->n_blocks; block++)
        for (int part = 0; part < 2; part++)
            for (uint32_t t = 0; t < count; t++, to += row_bytes(l))
                memcpy(to, token_row(l, pool, pages, block, part, first + t), row_bytes(l));
}

void plain_kv_import(struct stream *s, const struct kv_layout *l, struct memory pool,
                     const uint32_t *pages, uint32_t first, uint32_t count, const void *block_data)
{
    const uint8_t *from = block_data;
    (void)s;
    for (int block = 0; block < l->n_blocks; block++)
        for (int part = 0; part < 2; part++)
            for (uint32_t t = 0; t < count; t++, from += row_bytes(l))
                memcpy(token_row(l, pool, pages, block, part, first + t), from, row_bytes(l));
}
