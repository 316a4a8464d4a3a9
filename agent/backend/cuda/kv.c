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

/* Tokens of a run that are worth a tile. */
enum { TILE_LEAST = 16 };

/* Where the parts of a table begin: rows of runs that go in tiles, other rows, tiles, pages. */
struct table_layout {
    uint32_t n_rows, n_tiled, n_tiles, n_pages;
    uint32_t n_seen; /* most that one of the other rows may see */
};

static bool run_is_tiled(const struct attention_run *r, bool tiles)
{
    return tiles && r->n_tokens >= TILE_LEAST;
}

static struct table_layout layout_of(const struct op_batch *b, bool tiles)
{
    struct table_layout t = {0};
    for (int i = 0; i < b->n_runs; i++) {
        const struct attention_run *r = &b->runs[i];
        t.n_rows += r->n_tokens;
        t.n_pages += run_pages(r);
        if (run_is_tiled(r, tiles)) {
            t.n_tiled += r->n_tokens;
            t.n_tiles += (r->n_tokens + GPU_TILE_ROWS - 1) / GPU_TILE_ROWS;
        } else if (r->first_position + r->n_tokens > t.n_seen) {
            t.n_seen = r->first_position + r->n_tokens;
        }
    }
    return t;
}

static size_t table_bytes(const struct table_layout *t)
{
    return t->n_rows * sizeof(struct gpu_attention_row) +
           t->n_tiles * sizeof(struct gpu_attention_tile) + t->n_pages * sizeof(uint32_t);
}

static void rows_write(const struct cuda_op *op, const struct op_batch *b,
                       const struct attention_run *r, uint32_t pages, struct gpu_attention_row *to)
{
    uint32_t window = b->kv[op->request.kv_group].layout.window;
    for (uint32_t t = 0; t < r->n_tokens; t++) {
        uint32_t at = r->first_position + t;
        to[t] = (struct gpu_attention_row){
            .row = r->first_row + t,
            .position = at,
            .first = kv_first_seen(window, at),
            .last = op->request.op->u.attention.whole ? r->first_position + r->n_tokens - 1 : at,
            .pages = pages};
    }
}

static void table_write(const struct cuda_op *op, const struct op_batch *b, bool tiles,
                        const struct table_layout *t, void *to)
{
    struct gpu_attention_row *rows = to;
    struct gpu_attention_tile *tile = (struct gpu_attention_tile *)(rows + t->n_rows);
    uint32_t *all = (uint32_t *)(tile + t->n_tiles), tiled = 0, other = t->n_tiled, pages = 0;
    for (int i = 0; i < b->n_runs; i++) {
        const struct attention_run *r = &b->runs[i];
        uint32_t *at = run_is_tiled(r, tiles) ? &tiled : &other;
        rows_write(op, b, r, pages, rows + *at);
        for (uint32_t k = 0; run_is_tiled(r, tiles) && k < r->n_tokens; k += GPU_TILE_ROWS) {
            uint32_t left = r->n_tokens - k;
            *tile++ =
                (struct gpu_attention_tile){*at + k, left < GPU_TILE_ROWS ? left : GPU_TILE_ROWS};
        }
        *at += r->n_tokens;
        memcpy(all + pages, r->pages[op->request.kv_group], run_pages(r) * sizeof *all);
        pages += run_pages(r);
    }
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
                                          const struct op_batch *b, bool tiles,
                                          const struct table_layout *layout)
{
    size_t bytes = table_bytes(layout);
    const struct cuda_table *last = &s->tables[s->table];
    struct cuda_table *t = &s->tables[(s->table + 1) % CUDA_TABLES];
    table_free(s, t);
    if (!cuda_room_want(s, &t->room, bytes, true))
        return NULL;
    table_write(op, b, tiles, layout, t->room.host);
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

/* Rows that are in no tile are split until each multiprocessor has some blocks, but for parts that
 * would be short, and while the room is enough. False: there is no room. */
static bool splits_choose(struct cuda_stream *s, struct gpu_attention *a, uint32_t n_seen)
{
    enum { BLOCKS_EACH = 4, PART_LEAST = 128 };
    uint32_t rows = a->n_rows - a->n_tiled, blocks = rows * a->kv_heads,
             wanted = BLOCKS_EACH * (uint32_t)s->device->facts.multiprocessors;
    if (rows == 0 || !gpu_split_knows(a))
        return true;
    uint32_t most = (n_seen + PART_LEAST - 1) / PART_LEAST, enough = (wanted + blocks - 1) / blocks;
    a->splits = most < enough ? most : enough;
    while (a->splits > 1 && gpu_split_bytes(a) > CUDA_SPLIT_BYTES)
        a->splits--;
    if (gpu_split_bytes(a) > CUDA_SPLIT_BYTES) {
        a->splits = 0;
        return true;
    }
    if (!cuda_room_take(s, &s->scratch, gpu_split_bytes(a)))
        return false;
    a->parts_found = s->scratch.device;
    return true;
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
    bool tiles = s->device->facts.major * 10 + s->device->facts.minor >= 75 &&
                 gpu_flash_knows(how.kv_format, how.head_dim, how.value_dim, how.parts);
    struct table_layout layout = layout_of(b, tiles);
    const struct cuda_table *t = table_put(s, op, b, tiles, &layout);
    if (!t)
        return;
    how.n_rows = layout.n_rows;
    how.n_tiled = layout.n_tiled;
    how.n_tiles = layout.n_tiles;
    how.rows = t->room.device;
    how.tiles = (const struct gpu_attention_tile *)(how.rows + how.n_rows);
    how.pages = (const uint32_t *)(how.tiles + how.n_tiles);
    if (!splits_choose(s, &how, layout.n_seen))
        return;
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
