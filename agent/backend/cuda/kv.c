/* The cuda backend's KV cache: a page is [block][part][token][kv head][head dim], as it crosses
 * links, so that whole runs of tokens are copied as bytes. */
#include <math.h>
#include <string.h>

#include "agent/backend/cuda/cuda_int.h"
#include "agent/backend/cuda/kernels.h"

/* Of one token and part, all heads. */
static uint64_t token_bytes(const struct kv_layout *l)
{
    return (uint64_t)l->n_kv_heads * kv_format_bytes(l->format, (uint64_t)l->head_dim);
}

uint64_t cuda_kv_page_bytes(const struct device *d, const struct kv_layout *l)
{
    (void)d;
    return (uint64_t)l->n_blocks * (uint64_t)kv_layout_parts(l) * KV_PAGE_TOKENS * token_bytes(l);
}

/* ---- what a batch is ---- */

static uint32_t run_pages(const struct attention_run *r)
{
    return (r->first_position + r->n_tokens + KV_PAGE_TOKENS - 1) / KV_PAGE_TOKENS;
}

/* Rows, then all sequences' pages; returns bytes. `to` NULL: only these. */
static size_t table_write(const struct cuda_op *op, const struct op_batch *b, void *to,
                          uint32_t *n_rows)
{
    const struct op_attention *a = &op->request.op->u.attention;
    int group = op->request.kv_group;
    struct gpu_attention_row *rows = to;
    uint32_t n = 0, pages = 0;
    for (int i = 0; i < b->n_runs; i++)
        n += b->runs[i].n_tokens;
    *n_rows = n;
    uint32_t *all = to ? (uint32_t *)(rows + n) : NULL;
    n = 0;
    for (int i = 0; i < b->n_runs; i++) {
        const struct attention_run *r = &b->runs[i];
        for (uint32_t t = 0; to && t < r->n_tokens; t++) {
            uint32_t at = r->first_position + t;
            rows[n++] = (struct gpu_attention_row){
                .row = r->first_row + t,
                .position = at,
                .first = kv_first_seen(b->kv[group].layout.window, at),
                .last = a->whole ? r->first_position + r->n_tokens - 1 : at,
                .pages = pages};
        }
        if (to)
            memcpy(all + pages, r->pages[group], run_pages(r) * sizeof *all);
        pages += run_pages(r);
    }
    return *n_rows * sizeof *rows + pages * sizeof(uint32_t);
}

/* Until the GPU has read what it has. */
static void table_free(struct cuda_stream *s, struct cuda_table *t)
{
    if (t->under_way)
        cuda_note(s, gpu_event_wait(t->read));
    t->under_way = false;
}

/* The batch on the device; the same as before is there already. NULL: noted in the stream. */
static const struct cuda_table *table_put(struct cuda_stream *s, const struct cuda_op *op,
                                          const struct op_batch *b, uint32_t *n_rows)
{
    size_t bytes = table_write(op, b, NULL, n_rows);
    const struct cuda_table *last = &s->tables[s->table];
    struct cuda_table *t = &s->tables[(s->table + 1) % CUDA_TABLES];
    table_free(s, t);
    if (!cuda_room_want(s, &t->room, bytes, true))
        return NULL;
    table_write(op, b, t->room.host, n_rows);
    if (last->bytes == bytes && memcmp(last->room.host, t->room.host, bytes) == 0)
        return last;
    t->bytes = bytes;
    cuda_note(s, gpu_copy(s->stream, GPU_TO_DEVICE, t->room.device, bytes, t->room.host, bytes,
                          bytes, 1));
    cuda_note(s, gpu_event_record(t->read, s->stream));
    t->under_way = true;
    s->table = (s->table + 1) % CUDA_TABLES;
    return t;
}

/* ---- attention ---- */

static struct gpu_rows rows_of(const struct tensor *t)
{
    return (struct gpu_rows){tensor_row(t, 0), t->strides[0]};
}

void cuda_attention_run(struct cuda_stream *s, const struct cuda_op *op, const struct tensor *in,
                        const struct tensor *out, const struct op_batch *b)
{
    const struct op_attention *a = &op->request.op->u.attention;
    const struct kv_group *g = &b->kv[op->request.kv_group];
    const struct cuda_weight *sinks = (const struct cuda_weight *)op->request.weights[0];
    struct gpu_attention how = {
        .kv_format = (int)g->layout.format,
        .pool = g->pool.data,
        .page_bytes = cuda_kv_page_bytes(NULL, &g->layout),
        .token_bytes = token_bytes(&g->layout),
        .head_bytes = kv_format_bytes(g->layout.format, (uint64_t)g->layout.head_dim),
        .block = (uint32_t)op->request.kv_block,
        .parts = (uint32_t)kv_layout_parts(&g->layout),
        .page_tokens = KV_PAGE_TOKENS,
        .heads = (uint32_t)a->heads,
        .kv_heads = (uint32_t)a->kv_heads,
        .head_dim = (uint32_t)a->head_dim,
        .value_dim = (uint32_t)(a->value_dim ? a->value_dim : a->head_dim),
        .scale = a->scale != 0 ? a->scale : 1.0f / sqrtf((float)a->head_dim),
        .cap = a->cap,
        .sinks = sinks ? sinks->data : NULL,
        .q = rows_of(&in[0]),
        .k = rows_of(&in[1]),
        .v = op->request.op->n_inputs > 2 ? rows_of(&in[2]) : (struct gpu_rows){0},
        .out = rows_of(out),
    };
    const struct cuda_table *t = table_put(s, op, b, &how.n_rows);
    if (!t)
        return;
    how.rows = t->room.device;
    how.pages = (const uint32_t *)(how.rows + how.n_rows);
    gpu_attend(s->stream, &how);
}

/* ---- to and from host memory ---- */

static void kv_move(struct stream *stream, const struct kv_group *g, const uint32_t *pages,
                    const struct kv_part *part, uint8_t *host, bool in)
{
    struct cuda_stream *s = (struct cuda_stream *)stream;
    uint64_t row = token_bytes(&g->layout), page_bytes = cuda_kv_page_bytes(NULL, &g->layout);
    uint32_t parts = (uint32_t)kv_layout_parts(&g->layout);
    cuda_note(s, gpu_use(s->device->ordinal));
    for (uint32_t i = 0; i < parts * (uint32_t)part->n_blocks; i++)
        for (uint32_t t = 0, n; t < part->count; t += n, host += n * row) {
            uint32_t at = part->first + t, left = KV_PAGE_TOKENS - at % KV_PAGE_TOKENS;
            uint64_t before = (uint64_t)part->first_block * parts + i;
            uint8_t *there = (uint8_t *)g->pool.data + pages[at / KV_PAGE_TOKENS] * page_bytes +
                             (before * KV_PAGE_TOKENS + at % KV_PAGE_TOKENS) * row;
            n = left < part->count - t ? left : part->count - t;
            cuda_note(s, gpu_copy(s->stream, in ? GPU_TO_DEVICE : GPU_TO_HOST, in ? there : host,
                                  n * row, in ? host : there, n * row, n * row, 1));
        }
}

void cuda_kv_export(struct stream *s, const struct kv_group *g, const uint32_t *pages,
                    const struct kv_part *part, void *out)
{
    kv_move(s, g, pages, part, out, false);
}

void cuda_kv_import(struct stream *s, const struct kv_group *g, const uint32_t *pages,
                    const struct kv_part *part, const void *data)
{
    kv_move(s, g, pages, part, (uint8_t *)(uintptr_t)data, true);
}
