/* The cuda backend's KV cache: a page is [block][part][token][kv head][head dim], as it crosses
 * links, so that whole runs of tokens are copied as bytes. */
#include <math.h>

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

/* ---- attention ---- */

static struct gpu_rows rows_of(const struct tensor *t)
{
    return (struct gpu_rows){tensor_row(t, 0), t->strides[0]};
}

/* Whether rows are best not split, since they are alone and see little: heads that share keys go
 * one after the other then, which takes longer where blocks are few. */
static bool alone_fits(const struct gpu_attention *a, uint32_t n_seen, uint32_t multiprocessors)
{
    return a->alone && n_seen <= CUDA_BRIEF_TOKENS && gpu_alone_knows(a) &&
           (a->heads == a->kv_heads || a->n_rows * a->kv_heads >= multiprocessors);
}

/* Rows that are in no tile are split until each multiprocessor has some blocks, but for parts that
 * would be short, and while the room is enough; in steps that come again all that may ever be
 * needed. */
static void splits_choose(const struct cuda_stream *s, struct gpu_attention *a, uint32_t n_seen,
                          uint64_t most_bytes)
{
    enum { BLOCKS_EACH = 4 };
    uint32_t rows = a->n_rows - a->n_tiled, blocks = rows * a->kv_heads,
             wanted = BLOCKS_EACH * (uint32_t)s->device->facts.multiprocessors;
    if (rows == 0 || !gpu_split_knows(a))
        return;
    if (alone_fits(a, n_seen, wanted / BLOCKS_EACH)) {
        a->splits = 1;
        return;
    }
    uint32_t most = (n_seen + GPU_SPLIT_LEAST - 1) / GPU_SPLIT_LEAST,
             enough = (wanted + blocks - 1) / blocks;
    a->splits = most < enough && !s->steps ? most : enough;
    while (a->splits > 1 && gpu_split_bytes(a) > most_bytes)
        a->splits--;
    if (gpu_split_bytes(a) > most_bytes)
        a->splits = 0;
}

/* Room for what parts find, behind the rows that are made ready for the product after it where the
 * kernel that ends attention can make them: all rows are split, heads are whole blocks. Where all
 * rows are in tiles their kernel makes f16 or bf16. */
static bool splits_place(struct cuda_stream *s, struct gpu_attention *a, uint32_t n_seen)
{
    enum { BLOCK = 32, HALF = 2 };
    bool halves = s->making.form == GPU_FORM_F16 || s->making.form == GPU_FORM_BF16;
    if (a->n_tiled == a->n_rows) {
        if (halves)
            a->formed = s->making;
        return true;
    }
    uint32_t width = a->heads * a->head_dim;
    uint64_t made = s->making.form == GPU_FORM_NONE ? 0
                    : halves                        ? (uint64_t)width * s->making.rows * HALF
                                                    : gpu_decode_input_bytes(width, s->making.rows);
    made = cuda_steps_bytes(made);
    if (made > CUDA_SPLIT_BYTES / 2) {
        s->making.form = GPU_FORM_NONE;
        made = 0;
    }
    splits_choose(s, a, n_seen, CUDA_SPLIT_BYTES - made);
    if (a->splits == 0 || a->n_tiled > 0 || a->head_dim % BLOCK != 0)
        s->making.form = GPU_FORM_NONE;
    if (a->splits == 0)
        return true;
    uint8_t *room = cuda_scratch_take(s, made + gpu_split_bytes(a));
    if (!room)
        return false;
    s->making.to = room;
    a->formed = s->making;
    a->parts_found = (float *)(void *)(room + made);
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
    int capability = s->device->facts.major * 10 + s->device->facts.minor;
    bool tiles =
        capability >= 75 && gpu_flash_knows(how.kv_format, how.head_dim, how.value_dim, how.parts);
    how.wide_turns = s->device->facts.shared_bytes >= GPU_FLASH_ROOMY && capability < 100;
    how.hopper = capability == 90 && gpu_hopper_knows(how.head_dim);
    struct cuda_layout layout;
    how.rows = cuda_table_put(s, op, b, tiles, &layout);
    if (!how.rows)
        return;
    how.n_rows = layout.n_rows;
    how.n_tiled = layout.n_tiled;
    how.n_tiles = layout.n_tiles;
    how.alone = layout.alone;
    how.tiles = (const struct gpu_attention_tile *)(how.rows + how.n_rows);
    how.pages = (const uint32_t *)(how.tiles + how.n_tiles);
    if (!splits_place(s, &how, layout.n_seen))
        return;
    gpu_attend(s->stream, &how, s->rotates);
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
