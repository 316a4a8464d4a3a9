/* What a batch is to attention: its rows, tiles and pages on the device. */
#include <string.h>

#include "agent/backend/cuda/cuda_int.h"
#include "agent/backend/cuda/kernels.h"

static uint32_t run_pages(const struct attention_run *r)
{
    return (r->first_position + r->n_tokens + KV_PAGE_TOKENS - 1) / KV_PAGE_TOKENS;
}

static bool run_is_tiled(const struct attention_run *r, bool tiles)
{
    return tiles && r->n_tokens >= GPU_TILE_LEAST;
}

static struct cuda_layout layout_of(const struct op_batch *b, bool tiles)
{
    struct cuda_layout t = {.alone = true};
    for (int i = 0; i < b->n_runs; i++) {
        const struct attention_run *r = &b->runs[i];
        t.n_rows += r->n_tokens;
        t.n_pages += run_pages(r);
        t.alone = t.alone && r->n_tokens == 1;
        if (run_is_tiled(r, tiles)) {
            t.n_tiled += r->n_tokens;
            t.n_tiles += (r->n_tokens + GPU_TILE_ROWS - 1) / GPU_TILE_ROWS;
        } else if (r->first_position + r->n_tokens > t.n_seen) {
            t.n_seen = r->first_position + r->n_tokens;
        }
    }
    return t;
}

static size_t table_bytes(const struct cuda_layout *t)
{
    return t->n_rows * sizeof(struct gpu_attention_row) +
           t->n_tiles * sizeof(struct gpu_attention_tile) + t->n_pages * sizeof(uint32_t);
}

/* What a table says beside the batch: of which group the pages are, what tokens see. */
struct table_kind {
    int group;
    bool whole;
};

static void rows_write(const struct table_kind *k, const struct op_batch *b,
                       const struct attention_run *r, uint32_t pages, struct gpu_attention_row *to)
{
    uint32_t window = b->kv[k->group].layout.window;
    for (uint32_t t = 0; t < r->n_tokens; t++) {
        uint32_t at = r->first_position + t;
        to[t] =
            (struct gpu_attention_row){.row = r->first_row + t,
                                       .position = at,
                                       .first = kv_first_seen(window, at),
                                       .last = k->whole ? r->first_position + r->n_tokens - 1 : at,
                                       .pages = pages};
    }
}

/* Rows of runs that go in tiles, other rows, tiles, pages. */
static void table_write(const struct table_kind *k, const struct op_batch *b, bool tiles,
                        const struct cuda_layout *t, void *to)
{
    struct gpu_attention_row *rows = to;
    struct gpu_attention_tile *tile = (struct gpu_attention_tile *)(rows + t->n_rows);
    uint32_t *all = (uint32_t *)(tile + t->n_tiles), tiled = 0, other = t->n_tiled, pages = 0;
    for (int i = 0; i < b->n_runs; i++) {
        const struct attention_run *r = &b->runs[i];
        uint32_t *at = run_is_tiled(r, tiles) ? &tiled : &other;
        rows_write(k, b, r, pages, rows + *at);
        for (uint32_t n = 0; run_is_tiled(r, tiles) && n < r->n_tokens; n += GPU_TILE_ROWS) {
            uint32_t left = r->n_tokens - n;
            *tile++ =
                (struct gpu_attention_tile){*at + n, left < GPU_TILE_ROWS ? left : GPU_TILE_ROWS};
        }
        *at += r->n_tokens;
        memcpy(all + pages, r->pages[k->group], run_pages(r) * sizeof *all);
        pages += run_pages(r);
    }
}

/* The next room, once the GPU has read what it has, with the table in its host's part. NULL: noted
 * in the stream. */
static struct cuda_table *table_stage(struct cuda_stream *s, const struct table_kind *k,
                                      const struct op_batch *b, bool tiles,
                                      const struct cuda_layout *layout)
{
    struct cuda_table *t = &s->tables[(s->table + 1) % CUDA_TABLES];
    if (t->under_way)
        cuda_note(s, gpu_event_wait(t->read));
    t->under_way = false;
    if (!cuda_room_want(s, &t->room, table_bytes(layout), true))
        return NULL;
    table_write(k, b, tiles, layout, t->room.host);
    return t;
}

/* Of the table that was staged. */
static void table_send(struct cuda_stream *s, struct cuda_table *t, void *to, size_t bytes)
{
    cuda_note(s, gpu_copy(s->stream, GPU_TO_DEVICE, to, bytes, t->room.host, bytes, bytes, 1));
    cuda_note(s, gpu_event_record(t->read, s->stream));
    t->under_way = true;
    s->table = (s->table + 1) % CUDA_TABLES;
}

/* ---- tables of steps that come again ---- */

/* The slot of a kind, which the steps take from now on; NULL: there are too many. */
static struct cuda_slot *slot_find(struct cuda_stream *s, const struct table_kind *k)
{
    for (int i = 0; i < CUDA_SLOTS; i++) {
        struct cuda_slot *slot = &s->slots[i];
        if (slot->taken && (slot->group != k->group || slot->whole != k->whole))
            continue;
        slot->taken = true;
        slot->group = k->group;
        slot->whole = k->whole;
        s->steps->slots |= 1u << i;
        return slot;
    }
    return NULL;
}

bool cuda_slots_want(struct cuda_stream *s, unsigned slots, const struct op_batch *b)
{
    for (int i = 0; i < CUDA_SLOTS; i++) {
        struct cuda_slot *slot = &s->slots[i];
        if (!(slots >> i & 1))
            continue;
        struct cuda_layout layout = layout_of(b, false);
        size_t bytes = table_bytes(&layout), more = bytes * 2;
        more = more < CUDA_SLOT_BYTES ? CUDA_SLOT_BYTES : more;
        if (bytes > slot->room.bytes && !cuda_room_take(s, &slot->room, more))
            return false;
        if (slot->pool != b->kv[slot->group].pool.data)
            s->moved++;
        slot->pool = b->kv[slot->group].pool.data;
    }
    return true;
}

bool cuda_slots_fill(struct cuda_stream *s, unsigned slots, const struct op_batch *b)
{
    for (int i = 0; i < CUDA_SLOTS; i++) {
        struct cuda_slot *slot = &s->slots[i];
        if (!(slots >> i & 1))
            continue;
        const struct table_kind kind = {slot->group, slot->whole};
        struct cuda_layout layout = layout_of(b, false);
        struct cuda_table *t = table_stage(s, &kind, b, false, &layout);
        if (!t)
            return false;
        t->bytes = 0; /* its own room has no table */
        table_send(s, t, slot->room.device, table_bytes(&layout));
    }
    return true;
}

/* ---- tables ---- */

/* The same as before is there already. */
const struct gpu_attention_row *cuda_table_put(struct cuda_stream *s, const struct cuda_op *op,
                                               const struct op_batch *b, bool tiles,
                                               struct cuda_layout *out)
{
    const struct table_kind kind = {op->request.kv_group, op->request.op->u.attention.whole};
    struct cuda_slot *slot = s->steps ? slot_find(s, &kind) : NULL;
    *out = layout_of(b, tiles);
    if (s->keeps) {
        cuda_note(s, slot ? 0 : GPU_NO_MEMORY);
        return slot ? slot->room.device : NULL;
    }
    size_t bytes = table_bytes(out);
    const struct cuda_table *last = &s->tables[s->table];
    struct cuda_table *t = table_stage(s, &kind, b, tiles, out);
    if (!t)
        return NULL;
    if (last->bytes == bytes && memcmp(last->room.host, t->room.host, bytes) == 0)
        return last->room.device;
    t->bytes = bytes;
    table_send(s, t, t->room.device, bytes);
    return t->room.device;
}
