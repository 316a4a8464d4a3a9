/* The plain backend's KV cache: a page is [block][part][token][kv head][head dim]. */
#include <math.h>
#include <string.h>

#include "agent/backend/plain/loops.h"
#include "agent/backend/plain/plain_int.h"

/* Of one token and part, all heads. */
static size_t row_bytes(const struct kv_layout *l)
{
    return (size_t)l->n_kv_heads * (size_t)kv_format_bytes(l->format, (uint64_t)l->head_dim);
}

uint64_t plain_kv_page_bytes(const struct device *d, const struct kv_layout *l)
{
    (void)d;
    return (uint64_t)l->n_blocks * (uint64_t)kv_layout_parts(l) * KV_PAGE_TOKENS * row_bytes(l);
}

/* All heads of the token at `position`; `part` 0: keys, 1: values that lie apart. */
static uint8_t *token_row(const struct kv_group *g, const uint32_t *pages, int block, int part,
                          uint32_t position)
{
    uint8_t *page = (uint8_t *)g->pool.data +
                    pages[position / KV_PAGE_TOKENS] * plain_kv_page_bytes(NULL, &g->layout);
    size_t before = (size_t)block * (size_t)kv_layout_parts(&g->layout) + (size_t)part;
    return page + (before * KV_PAGE_TOKENS + position % KV_PAGE_TOKENS) * row_bytes(&g->layout);
}

static void row_write(const struct kv_layout *l, const float *values, uint8_t *row)
{
    size_t n = (size_t)l->n_kv_heads * (size_t)l->head_dim;
    if (l->format == KV_Q8_0)
        loop_q8_0(values, n, row);
    else if (l->format == KV_F32)
        memcpy(row, values, n * sizeof *values);
    for (size_t i = 0; l->format == KV_F16 && i < n; i++) {
        uint16_t half = dtype_f32_to_f16(values[i]);
        memcpy(row + i * sizeof half, &half, sizeof half);
    }
}

struct head_of_run {
    const struct kv_group *group;
    const uint32_t *pages;
    int block, head;
};

static float cache_read(const struct head_of_run *h, int part, uint32_t position, size_t i)
{
    const struct kv_layout *l = &h->group->layout;
    static const enum dtype dtypes[] = {
        [KV_F16] = DTYPE_F16, [KV_F32] = DTYPE_F32, [KV_Q8_0] = DTYPE_Q8_0};
    const struct dtype_info *t = dtype_info(dtypes[l->format]);
    float block[KV_Q8_ELEMENTS];
    size_t element = (size_t)h->head * (size_t)l->head_dim + i, n = t->block_elements;
    t->to_f32(token_row(h->group, h->pages, h->block, part, position) +
                  element / n * t->block_bytes,
              n, block);
    return block[element % n];
}

static float cached_key(const void *ctx, uint32_t position, size_t i)
{
    return cache_read(ctx, 0, position, i);
}

static float cached_value(const void *ctx, uint32_t position, size_t i)
{
    const struct head_of_run *h = ctx;
    return cache_read(h, kv_layout_parts(&h->group->layout) - 1, position, i);
}

static void attend_token(const struct plain_op *op, const struct op_batch *b,
                         const struct attention_run *run, uint32_t t, const struct tensor *q,
                         const struct tensor *out)
{
    const struct op_attention *a = &op->request.op->u.attention;
    const struct kv_group *g = &b->kv[op->request.kv_group];
    size_t hd = (size_t)a->head_dim, vd = a->value_dim ? (size_t)a->value_dim : hd;
    uint32_t position = run->first_position + t,
             last = a->whole ? run->first_position + run->n_tokens - 1 : position;
    const struct plain_weight *sinks = (const struct plain_weight *)op->request.weights[0];
    for (int h = 0; h < a->heads; h++) {
        struct head_of_run head = {g, run->pages[op->request.kv_group], op->request.kv_block,
                                   h / (a->heads / a->kv_heads)};
        struct loop_cache cache = {.key = cached_key,
                                   .value = cached_value,
                                   .ctx = &head,
                                   .cap = a->cap,
                                   .sink = sinks ? sinks->vector + h : NULL};
        loop_attend(&cache, (const float *)tensor_row(q, run->first_row + t) + (size_t)h * hd,
                    kv_first_seen(g->layout.window, position), last, hd, vd,
                    a->scale != 0 ? a->scale : 1.0f / sqrtf((float)hd),
                    (float *)tensor_row(out, run->first_row + t) + (size_t)h * vd);
    }
}

void plain_attention(const struct plain_op *op, const struct tensor *in, const struct tensor *out,
                     const struct op_batch *b)
{
    const struct kv_group *g = &b->kv[op->request.kv_group];
    for (int i = 0; i < b->n_runs; i++) {
        const struct attention_run *run = &b->runs[i];
        for (uint32_t t = 0; t < run->n_tokens; t++)
            for (int part = 0; part < kv_layout_parts(&g->layout); part++)
                row_write(&g->layout, tensor_row(&in[1 + part], run->first_row + t),
                          token_row(g, run->pages[op->request.kv_group], op->request.kv_block, part,
                                    run->first_position + t));
        for (uint32_t t = 0; t < run->n_tokens; t++)
            attend_token(op, b, run, t, &in[0], out);
    }
}

/* Tokens that lie in one page, from position `at` on and at most `most`: they are contiguous. */
static uint32_t run_tokens(uint32_t at, uint32_t most)
{
    uint32_t left = KV_PAGE_TOKENS - at % KV_PAGE_TOKENS;
    return left < most ? left : most;
}

void plain_kv_export(struct stream *s, const struct kv_group *g, const uint32_t *pages,
                     const struct kv_part *part, void *out)
{
    size_t row = row_bytes(&g->layout);
    int parts = kv_layout_parts(&g->layout);
    uint8_t *to = out;
    (void)s;
    for (int i = 0; i < parts * part->n_blocks; i++)
        for (uint32_t t = 0, n; t < part->count; t += n, to += n * row) {
            n = run_tokens(part->first + t, part->count - t);
            memcpy(to,
                   token_row(g, pages, part->first_block + i / parts, i % parts, part->first + t),
                   n * row);
        }
}

void plain_kv_import(struct stream *s, const struct kv_group *g, const uint32_t *pages,
                     const struct kv_part *part, const void *data)
{
    size_t row = row_bytes(&g->layout);
    int parts = kv_layout_parts(&g->layout);
    const uint8_t *from = data;
    (void)s;
    for (int i = 0; i < parts * part->n_blocks; i++)
        for (uint32_t t = 0, n; t < part->count; t += n, from += n * row) {
            n = run_tokens(part->first + t, part->count - t);
            memcpy(token_row(g, pages, part->first_block + i / parts, i % parts, part->first + t),
                   from, n * row);
        }
}
