/* Products of many rows with quantised weights (FORM_BLOCKS), by integers: a chunk of the inputs of
 * a few outputs after the other becomes panels (blocks.h), which serve all rows and are forgotten,
 * or serves them as it lies. Rows are quantised in tiles before. */
#include <string.h>

#include "agent/backend/cpu/block_lanes.h"
#include "agent/backend/cpu/matmul_int.h"

enum {
    CHUNK_INPUTS_MOST = 3072, /* of a panel: with the panels beside it, and the weights that come
                                 next, it stays in a core's own cache */
    PANELS_TOGETHER = 3,      /* that a tile of rows meets while it is in the first cache */
    DIRECT_MADE_ROWS = 128,   /* beyond which panels cost less than superblocks as they lie */
    CACHE_LINE = 64,
    AHEAD_LINES_MOST = 4, /* that are asked for with each run of a product */
};

/* Inputs of a chunk: of all of them as many as of the others, in whole blocks, but for the last. */
static size_t chunk_inputs(const struct device_weight *w)
{
    size_t chunks = (w->columns + CHUNK_INPUTS_MOST - 1) / CHUNK_INPUTS_MOST,
           n = (w->columns + chunks - 1) / chunks;
    n = (n + SUPERBLOCK_ELEMENTS - 1) / SUPERBLOCK_ELEMENTS * SUPERBLOCK_ELEMENTS;
    return n < w->columns ? n : w->columns;
}

/* What one thread works with. */
struct panel_memory {
    uint8_t *panels;
    size_t panel_bytes; /* of one */
    float *out;         /* [rows of together_most tiles, panel_outputs]: of a panel with fewer */
    /* of tiles that are multiplied at once */
    uint8_t *runs;
    struct block_joined_apart *apart;
};

/* Tiles that meet a panel at once, and how many of so many rows do: of all nearly as many. */
static size_t together_most(const struct block_kernels *k)
{
    return k->join ? BLOCK_JOIN_MOST : 1;
}

static size_t tiles_of(size_t rows)
{
    return (rows + BLOCK_TILE - 1) / BLOCK_TILE;
}

static size_t together_of(const struct block_kernels *k, size_t rows)
{
    size_t tiles = tiles_of(rows), most = together_most(k), groups = (tiles + most - 1) / most;
    return (tiles + groups - 1) / groups;
}

/* 0: weights are taken as they lie. */
static size_t panel_bytes_of(const struct block_kernels *k, const struct device_weight *w)
{
    if (k->joined_lie[w->dtype])
        return 0;
    return k->panel_outputs / k->lanes * k->panel_bytes(w->dtype) * (chunk_inputs(w) / BLOCK_RUN);
}

static size_t panels_together(const struct block_kernels *k)
{
    return k->join ? BLOCK_JOIN_PANELS : PANELS_TOGETHER;
}

static size_t panel_out_bytes(const struct block_kernels *k)
{
    return together_most(k) * BLOCK_TILE * k->panel_outputs * sizeof(float);
}

static size_t joined_runs_bytes(const struct block_kernels *k, const struct device_weight *w)
{
    return chunk_inputs(w) / BLOCK_RUN * k->joined_bytes;
}

static size_t panel_memory_bytes(const struct block_kernels *k, const struct device_weight *w)
{
    size_t apart = k->join ? block_joined_most_apart(w->columns, chunk_inputs(w)) : 0;
    /* and one more, which is written and forgotten */
    return panels_together(k) * panel_bytes_of(k, w) + panel_out_bytes(k) +
           joined_runs_bytes(k, w) + (apart + 1) * sizeof(struct block_joined_apart);
}

static struct panel_memory panel_memory_at(const struct block_kernels *k,
                                           const struct device_weight *w, uint8_t *memory)
{
    size_t bytes = panel_bytes_of(k, w);
    uint8_t *out = memory + panels_together(k) * bytes;
    uint8_t *runs = out + panel_out_bytes(k);
    return (struct panel_memory){
        memory, bytes, (float *)(void *)out, runs,
        (struct block_joined_apart *)(void *)(runs + joined_runs_bytes(k, w))};
}

/* Inputs from k0 on of the group of outputs from c on. */
static const uint8_t *panel_group(const struct device_weight *w, size_t c, size_t k0)
{
    const struct dtype_info *info = dtype_info(w->dtype);
    return w->data + c * w->row_bytes + k0 / info->block_elements * w->lanes * info->block_bytes;
}

/* The panel of outputs from c on, or where weights are read as they lie what is wanted beside them;
 * what there is no output for is not written to. */
static void panel_fill(const struct matmul_job *job, size_t c, size_t k0, size_t n, bool direct,
                       uint8_t *panel)
{
    const struct device_weight *w = job->w;
    const struct block_kernels *k = job->device->kernels->blocks;
    size_t run_bytes = direct ? k->direct_bytes : k->panel_bytes(w->dtype);
    for (size_t end = c + k->panel_outputs; c < end && c < w->rows; c += k->lanes) {
        (direct ? k->direct_make : k->panel_make)[w->dtype](panel_group(w, c, k0), n, panel);
        panel += n / BLOCK_RUN * run_bytes;
    }
}

/* ---- what comes next ---- */

/* Weights that the panels after these are made of, in the order in which they are read: of groups
 * of `lanes` outputs some bytes each. They are asked for while tiles are multiplied with the panels
 * before, or slices of few rows would wait for memory with every panel. */
struct panels_ahead {
    const uint8_t *data; /* NULL: none */
    size_t group_bytes, group_step, lines;
    size_t calls, done; /* products that ask for them */
};

/* Of outputs [c, c + outputs) and the chunk of inputs from k0 on, while `calls` products are made.
 */
static struct panels_ahead panels_ahead_of(const struct device_weight *w, size_t c, size_t k0,
                                           size_t outputs, size_t calls)
{
    const struct dtype_info *info = dtype_info(w->dtype);
    size_t left = w->columns - k0, most = chunk_inputs(w), n = left < most ? left : most;
    outputs = w->rows - c < outputs ? w->rows - c : outputs;
    struct panels_ahead a = {.data = panel_group(w, c, k0),
                             .group_bytes = n / info->block_elements * w->lanes * info->block_bytes,
                             .group_step = w->lanes * w->row_bytes,
                             .calls = calls};
    a.lines = (outputs + w->lanes - 1) / w->lanes * a.group_bytes / CACHE_LINE;
    return a;
}

/* Of what is read behind outputs [begin, end) and the chunk of inputs from k0 on: their next
 * inputs, the next outputs, or the first of the product that follows. */
static struct panels_ahead panels_ahead_find(const struct matmul_job *job, size_t begin, size_t end,
                                             size_t k0)
{
    const struct device_weight *w = job->w;
    const struct block_kernels *k = job->device->kernels->blocks;
    size_t step = k->panel_outputs, most = chunk_inputs(w), tiles = tiles_of(job->rows),
           together = together_of(k, job->rows),
           calls = (tiles + together - 1) / together * ((end - begin + step - 1) / step);
    if (k0 + most < w->columns)
        return panels_ahead_of(w, begin, k0 + most, end - begin, calls);
    if (end < w->rows)
        return panels_ahead_of(w, end, 0, panels_together(k) * step, calls);
    return job->next ? panels_ahead_of(job->next, 0, 0, panels_together(k) * step, calls)
                     : (struct panels_ahead){0};
}

/* The share of the next product, which has so many tiles from `x` on. */
static void panels_ahead_ask(struct panels_ahead *a, struct block_tile *x, size_t tiles)
{
    size_t each = x->n_runs * a->calls, first = a->calls ? a->lines * a->done++ / a->calls : 0,
           at = first * CACHE_LINE, most = tiles * AHEAD_LINES_MOST;
    x->ahead_lines = a->data ? (a->lines + each - 1) / each : 0;
    x->ahead_lines = x->ahead_lines < most ? x->ahead_lines : most;
    if (a->data)
        x->ahead = a->data + at / a->group_bytes * a->group_step + at % a->group_bytes;
}

/* ---- rows ---- */

/* Tile `i`, all of its inputs; how much it has apart is filled in later. */
static struct block_tile tile_at(const struct matmul_job *job, size_t i)
{
    size_t runs = job->w->columns / BLOCK_RUN, left = job->rows - i * BLOCK_TILE;
    uint8_t *memory = job->x_tiles + i * matmul_tile_bytes(job->w->columns);
    return (struct block_tile){
        .runs = (struct block_tile_run *)(void *)memory,
        .apart = (struct block_apart *)(void *)(memory + runs * sizeof(struct block_tile_run)),
        .n_runs = runs,
        .rows = left < BLOCK_TILE ? (int)left : BLOCK_TILE};
}

/* The first of what is apart whose column is k or greater. */
static size_t tile_apart_from(const struct block_tile *tile, size_t k)
{
    size_t low = 0, high = tile->n_apart;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (tile->apart[middle].column < k)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Inputs [k0, k0 + n) of a tile. */
static struct block_tile tile_chunk(const struct matmul_job *job, size_t i, size_t k0, size_t n)
{
    struct block_tile tile = tile_at(job, i);
    tile.n_apart = job->tiles_apart[i];
    size_t begin = tile_apart_from(&tile, k0), end = tile_apart_from(&tile, k0 + n);
    tile.runs += k0 / BLOCK_RUN;
    tile.n_runs = n / BLOCK_RUN;
    tile.apart += begin;
    tile.n_apart = end - begin;
    tile.first = k0;
    return tile;
}

/* A chunk of the inputs of the outputs of panels_together panels. */
struct panels_chunk {
    const struct panel_memory *m;
    size_t begin, end; /* outputs */
    size_t k0, n;      /* inputs */
    struct panels_ahead ahead;
};

/* Rows that meet a panel at once. */
struct chunk_rows {
    struct block_tile tiles[BLOCK_JOIN_MOST];
    size_t n, first, count;     /* tiles; rows */
    struct block_joined joined; /* where several are */
};

static void chunk_rows_take(const struct matmul_job *job, const struct panels_chunk *h, size_t tile,
                            size_t n, struct chunk_rows *x)
{
    const struct block_kernels *k = job->device->kernels->blocks;
    x->n = n;
    x->first = tile * BLOCK_TILE;
    x->count = 0;
    for (size_t i = 0; i < n; i++) {
        x->tiles[i] = tile_chunk(job, tile + i, h->k0, h->n);
        x->count += (size_t)x->tiles[i].rows;
    }
    x->joined = (struct block_joined){x->tiles, (int)n, h->m->runs, h->m->apart, 0};
    if (k->join)
        k->join(&x->joined);
}

/* With a panel of which each group lies `step` bytes behind the one before. */
static void rows_multiply(const struct matmul_job *job, const struct chunk_rows *x,
                          const uint8_t *panel, size_t step, bool add, float *out,
                          size_t out_stride)
{
    const struct block_kernels *k = job->device->kernels->blocks;
    const enum dtype t = job->w->dtype;
    if (!k->joined_dot[t]) {
        k->panel_dot[t](x->tiles, panel, add, out, out_stride);
        return;
    }
    k->joined_dot[t](&x->joined, panel, step, add, out, out_stride);
}

/* Outputs of a panel, from c on, of which some may be none; `add`: to what is there. */
static void rows_panel(const struct matmul_job *job, const struct panels_chunk *h,
                       const struct chunk_rows *x, size_t c, bool add, const uint8_t *panel,
                       size_t step)
{
    const struct device_weight *w = job->w;
    size_t outputs = job->device->kernels->blocks->panel_outputs;
    float *out = job->out + x->first * w->rows + c;
    if (c + outputs <= w->rows) {
        rows_multiply(job, x, panel, step, add, out, w->rows);
        return;
    }
    rows_multiply(job, x, panel, step, false, h->m->out, outputs);
    for (size_t r = 0; r < x->count; r++)
        for (size_t i = 0; c + i < w->rows; i++)
            out[r * w->rows + i] = h->m->out[r * outputs + i] + (add ? out[r * w->rows + i] : 0);
}

static uint8_t *chunk_panel(const struct matmul_job *job, const struct panels_chunk *h, size_t c)
{
    size_t step = job->device->kernels->blocks->panel_outputs;
    return h->m->panels + (c - h->begin) / step * h->m->panel_bytes;
}

/* Whether weights are read as they lie: same bits, other time. */
static bool chunk_is_direct(const struct matmul_job *job)
{
    const struct block_kernels *k = job->device->kernels->blocks;
    return k->direct_dot[job->w->dtype] &&
           (!k->direct_make[job->w->dtype] || job->rows <= DIRECT_MADE_ROWS);
}

/* Rows with the outputs of a panel, from c on: of weights as they lie, or by the panel, which the
 * first rows make. */
static void chunk_outputs(const struct matmul_job *job, const struct panels_chunk *h,
                          const struct chunk_rows *x, size_t c)
{
    const struct device_weight *w = job->w;
    const struct block_kernels *k = job->device->kernels->blocks;
    const enum dtype t = w->dtype;
    bool add = job->accumulate || h->k0 > 0, whole = c + k->panel_outputs <= w->rows,
         makes = x->first == 0 && x->count == BLOCK_TILE && whole && k->panel_begin[t];
    uint8_t *panel = chunk_panel(job, h, c);
    const uint8_t *group = panel_group(w, c, h->k0);
    size_t step = k->lanes * w->row_bytes;
    float *out = job->out + x->first * w->rows + c;
    if (k->joined_lie[t]) { /* a group that is none is the one before again */
        rows_panel(job, h, x, c, add, group, c + k->lanes < w->rows ? step : 0);
        return;
    }
    if (whole && chunk_is_direct(job)) {
        if (x->first == 0 && k->direct_make[t])
            panel_fill(job, c, h->k0, h->n, true, panel);
        k->direct_dot[t](x->tiles, group, step, panel, add, out, w->rows);
        return;
    }
    if (makes) {
        k->panel_begin[t](x->tiles, group, step, panel, add, out, w->rows);
        return;
    }
    if (x->first == 0)
        panel_fill(job, c, h->k0, h->n, false, panel);
    rows_panel(job, h, x, c, add, panel, h->n / BLOCK_RUN * k->panel_bytes(t));
}

/* Rows of n tiles, from `tile` on, with all panels. */
static void chunk_tiles(const struct matmul_job *job, struct panels_chunk *h, size_t tile, size_t n)
{
    struct chunk_rows x;
    chunk_rows_take(job, h, tile, n, &x);
    size_t step = job->device->kernels->blocks->panel_outputs;
    for (size_t c = h->begin; c < h->end; c += step) {
        panels_ahead_ask(&h->ahead, x.tiles, n);
        chunk_outputs(job, h, &x, c);
    }
}

/* Outputs [begin, end), those of panels_together panels, for all rows. */
static void panels_outputs(const struct matmul_job *job, const struct panel_memory *m, size_t begin,
                           size_t end)
{
    const struct device_weight *w = job->w;
    size_t most = chunk_inputs(w), tiles = tiles_of(job->rows),
           together = together_of(job->device->kernels->blocks, job->rows);
    for (size_t k0 = 0; k0 < w->columns; k0 += most) {
        size_t n = w->columns - k0 < most ? w->columns - k0 : most;
        struct panels_chunk chunk = {m, begin, end, k0, n, panels_ahead_find(job, begin, end, k0)};
        for (size_t i = 0; i < tiles; i += together)
            chunk_tiles(job, &chunk, i, tiles - i < together ? tiles - i : together);
    }
}

static void panels_part(void *ctx, int thread, uint32_t part)
{
    struct matmul_job *job = ctx;
    const struct block_kernels *k = job->device->kernels->blocks;
    size_t begin = parts_begin(&job->parts, part), end = parts_end(&job->parts, part),
           step = panels_together(k) * k->panel_outputs;
    struct panel_memory m = panel_memory_at(k, job->w, job->device->private[thread].data);
    for (size_t c = begin; c < end; c += step)
        panels_outputs(job, &m, c, c + step < end ? c + step : end);
    matmul_add_bias(job, 0, job->rows, begin, end);
}

static void tiles_part(void *ctx, int thread, uint32_t part)
{
    const struct matmul_job *job = ctx;
    const struct block_kernels *k = job->device->kernels->blocks;
    size_t end = parts_end(&job->parts, part);
    for (size_t r = parts_begin(&job->parts, part); r < end; r += BLOCK_TILE) {
        struct block_tile tile = tile_at(job, r / BLOCK_TILE);
        struct matmul_rows rows = matmul_rows_now(job, thread, r, (size_t)tile.rows);
        k->tile_make(job->w->dtype, rows.at, rows.stride, &tile);
        job->tiles_apart[r / BLOCK_TILE] = tile.n_apart;
    }
}

/* Tiles that were made for weights of another format. */
static void tiles_turn_part(void *ctx, int thread, uint32_t part)
{
    const struct matmul_job *job = ctx;
    size_t end = parts_end(&job->parts, part);
    (void)thread;
    for (size_t r = parts_begin(&job->parts, part); r < end; r += BLOCK_TILE) {
        struct block_tile tile = tile_at(job, r / BLOCK_TILE);
        tile.n_apart = job->tiles_apart[r / BLOCK_TILE];
        job->device->kernels->blocks->tile_turn(job->w->dtype, &tile);
    }
}

static bool tiles_make(struct matmul_job *job)
{
    struct cpu_device *d = job->device;
    job->tiles_apart = scratch_get(d, &d->inputs, matmul_tiles_bytes(job->rows, job->w->columns));
    if (!job->tiles_apart)
        return false;
    job->x_tiles = (uint8_t *)(job->tiles_apart + (job->rows + BLOCK_TILE - 1) / BLOCK_TILE);
    enum inputs_there there = matmul_inputs_find(job, INPUTS_TILES);
    job->parts = threads_parts(d->threads, job->rows, BLOCK_TILE, 0);
    if (there != INPUTS_THERE)
        threads_run(d->threads, job->parts.count,
                    there == INPUTS_OF_OTHERS ? tiles_turn_part : tiles_part, job);
    return true;
}

size_t matmul_panel_rows(const struct cpu_device *d, enum dtype t)
{
    static const uint8_t avx512
        [DTYPE_COUNT] =
            {[DTYPE_Q3_K] = 8,    [DTYPE_Q6_K] = 8,  [DTYPE_Q2_K] = 12, [DTYPE_Q5_K] = 12,
             [DTYPE_Q4_0] = 12,   [DTYPE_Q5_0] = 12, [DTYPE_Q5_1] = 12, [DTYPE_IQ4_NL] = 12,
             [DTYPE_IQ4_XS] = 12, [DTYPE_MXFP4] = 12},
  avx2[DTYPE_COUNT] = {
      [DTYPE_Q3_K] = 8, [DTYPE_Q5_K] = 8,  [DTYPE_Q6_K] = 8,  [DTYPE_Q4_0] = 8, [DTYPE_Q5_0] = 8,
      [DTYPE_Q5_1] = 8, [DTYPE_MXFP4] = 8, [DTYPE_Q4_K] = 12, [DTYPE_Q4_1] = 12};
    size_t rows = (d->kernels->blocks->lanes == BLOCK_LANES_MAX ? avx512 : avx2)[t];
    return rows ? rows : BLOCKS_PANEL_ROWS_MOST;
}

bool matmul_blocks_begin(struct matmul_job *job)
{
    struct cpu_device *d = job->device;
    if (job->rows < matmul_panel_rows(d, job->w->dtype))
        return matmul_few_begin(job);
    if (!tiles_make(job) || !scratch_get_all(d, panel_memory_bytes(d->kernels->blocks, job->w)))
        return false;
    job->parts = threads_parts(d->threads, job->w->rows, d->kernels->blocks->panel_outputs, 0);
    job->run = panels_part;
    return true;
}
