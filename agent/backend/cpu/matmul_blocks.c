/* Products of many rows with quantised weights (FORM_BLOCKS), by integers: a chunk of the inputs of
 * a few outputs after the other becomes panels (blocks.h), which serve all rows and are forgotten,
 * or serves them as it lies. Rows are quantised in tiles before. Where several tiles are multiplied
 * at once, rows go in passes: as many as stay in a core's own cache are joined, and meet all
 * outputs. */
#include <string.h>

#include "agent/backend/cpu/block_lanes.h"
#include "agent/backend/cpu/matmul_int.h"

enum {
    CHUNK_INPUTS_MOST = 3072, /* of a panel: with the panels beside it, and the weights that come
                                 next, it stays in a core's own cache */
    PANELS_TOGETHER = 3,      /* that a tile of rows meets while it is in the first cache */
    PANELS_OF_JOINED = 2,     /* the same of joined ones, which the first cache does not hold: what
                                 comes next is asked for while these are there, and is not gone again
                                 when it is wanted */
    JOINED_MOST = 1 << 20,    /* bytes of a pass's rows: half of the second cache of what has AMX */
    DIRECT_MADE_ROWS = 128,   /* beyond which panels cost less than superblocks as they lie */
    AHEAD_LINES_MOST = 4,     /* that are asked for with each run of a product */
};

/* Inputs of a chunk: of all of them as many as of the others, in whole blocks, but for the last. */
static size_t chunk_inputs(const struct device_weight *w)
{
    size_t chunks = (w->columns + CHUNK_INPUTS_MOST - 1) / CHUNK_INPUTS_MOST,
           n = (w->columns + chunks - 1) / chunks;
    n = (n + SUPERBLOCK_ELEMENTS - 1) / SUPERBLOCK_ELEMENTS * SUPERBLOCK_ELEMENTS;
    return n < w->columns ? n : w->columns;
}

/* Rows that meet a panel at once, a chunk of their inputs. */
struct chunk_rows {
    struct block_tile tiles[BLOCK_JOIN_MOST];
    size_t n, first, count;     /* tiles; rows */
    struct block_joined joined; /* where several are */
};

/* What one thread works with. */
struct panel_memory {
    uint8_t *panels;
    size_t panel_bytes; /* of one */
    float *out;         /* [rows of together_most tiles, panel_outputs]: of a panel with fewer */
    /* of tiles that are multiplied at once, NULL where none are: of a pass */
    struct chunk_rows *rows; /* [chunks of the inputs, joins] */
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
    return k->join ? PANELS_OF_JOINED : PANELS_TOGETHER;
}

static size_t chunks_of(const struct device_weight *w)
{
    return (w->columns + chunk_inputs(w) - 1) / chunk_inputs(w);
}

/* Tiles of a pass: of all nearly as many, in whole joins. */
static size_t pass_tiles(const struct block_kernels *k, const struct device_weight *w, size_t rows)
{
    size_t tiles = tiles_of(rows), together = together_of(k, rows);
    if (!k->join)
        return tiles;
    size_t bytes = w->columns / BLOCK_RUN * k->joined_bytes,
           most = bytes < JOINED_MOST ? JOINED_MOST / bytes : 1,
           joins = (tiles + together - 1) / together, passes = (joins + most - 1) / most;
    return (joins + passes - 1) / passes * together;
}

static size_t panel_out_bytes(const struct block_kernels *k)
{
    return together_most(k) * BLOCK_TILE * k->panel_outputs * sizeof(float);
}

/* Of a chunk of joined rows: their runs, what is apart, and one more of these, which is written and
 * forgotten. */
static size_t joined_runs_bytes(const struct block_kernels *k, const struct device_weight *w)
{
    return chunk_inputs(w) / BLOCK_RUN * k->joined_bytes;
}

static size_t joined_bytes(const struct block_kernels *k, const struct device_weight *w)
{
    size_t apart = block_joined_most_apart(w->columns, chunk_inputs(w)) + 1,
           bytes = joined_runs_bytes(k, w) + apart * sizeof(struct block_joined_apart);
    return (bytes + BLOCK_LINE - 1) / BLOCK_LINE * BLOCK_LINE;
}

static size_t pass_joins(const struct block_kernels *k, const struct device_weight *w, size_t rows)
{
    return k->join ? chunks_of(w) * (pass_tiles(k, w, rows) / together_of(k, rows)) : 0;
}

static size_t panel_memory_bytes(const struct block_kernels *k, const struct device_weight *w,
                                 size_t rows)
{
    return panels_together(k) * panel_bytes_of(k, w) + panel_out_bytes(k) +
           pass_joins(k, w, rows) * (joined_bytes(k, w) + sizeof(struct chunk_rows));
}

static struct panel_memory panel_memory_at(const struct matmul_job *job, uint8_t *memory)
{
    const struct device_weight *w = job->w;
    const struct block_kernels *k = job->device->kernels->blocks;
    size_t bytes = panel_bytes_of(k, w), joins = pass_joins(k, w, job->rows);
    uint8_t *out = memory + panels_together(k) * bytes, *joined = out + panel_out_bytes(k);
    struct panel_memory m = {.panels = memory, .panel_bytes = bytes, .out = (float *)(void *)out};
    if (joins == 0)
        return m;
    m.rows = (struct chunk_rows *)(void *)(joined + joins * joined_bytes(k, w));
    for (size_t i = 0; i < joins; i++, joined += joined_bytes(k, w))
        m.rows[i].joined = (struct block_joined){
            .tiles = m.rows[i].tiles,
            .runs = joined,
            .apart = (struct block_joined_apart *)(void *)(joined + joined_runs_bytes(k, w))};
    return m;
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

/* Rows of tiles [tile, end) with outputs [outputs, outputs_end). */
struct pass {
    const struct panel_memory *m;
    size_t tile, end, outputs, outputs_end;
};

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
    a.lines = (outputs + w->lanes - 1) / w->lanes * a.group_bytes / BLOCK_LINE;
    return a;
}

/* Of what is read behind outputs [begin, end) and the chunk of inputs from k0 on: their next
 * inputs, the next outputs, the pass's first ones for the next pass, or the first of the product
 * that follows. */
static struct panels_ahead panels_ahead_find(const struct matmul_job *job, const struct pass *pass,
                                             size_t begin, size_t end, size_t k0)
{
    const struct device_weight *w = job->w;
    const struct block_kernels *k = job->device->kernels->blocks;
    size_t step = k->panel_outputs, most = chunk_inputs(w), tiles = pass->end - pass->tile,
           together = together_of(k, job->rows),
           calls = (tiles + together - 1) / together * ((end - begin + step - 1) / step);
    if (k0 + most < w->columns)
        return panels_ahead_of(w, begin, k0 + most, end - begin, calls);
    if (end == pass->outputs_end && pass->end < tiles_of(job->rows))
        return panels_ahead_of(w, pass->outputs, 0, panels_together(k) * step, calls);
    if (end < w->rows)
        return panels_ahead_of(w, end, 0, panels_together(k) * step, calls);
    return job->next ? panels_ahead_of(job->next, 0, 0, panels_together(k) * step, calls)
                     : (struct panels_ahead){0};
}

/* The share of the next product, which has so many tiles from `x` on. */
static void panels_ahead_ask(struct panels_ahead *a, struct block_tile *x, size_t tiles)
{
    size_t each = x->n_runs * a->calls, first = a->calls ? a->lines * a->done++ / a->calls : 0,
           at = first * BLOCK_LINE, most = tiles * AHEAD_LINES_MOST;
    x->ahead_lines = a->data ? (a->lines + each - 1) / each : 0;
    x->ahead_lines = x->ahead_lines < most ? x->ahead_lines : most;
    if (a->data)
        x->ahead = a->data + at / a->group_bytes * a->group_step + at % a->group_bytes;
}

/* ---- rows ---- */

/* Rows of n tiles, inputs [k0, k0 + n_inputs). */
static void chunk_rows_take(const struct matmul_job *job, size_t tile, size_t n, size_t k0,
                            size_t n_inputs, struct chunk_rows *x)
{
    x->n = n;
    x->first = tile * BLOCK_TILE;
    x->count = 0;
    for (size_t i = 0; i < n; i++) {
        x->tiles[i] = matmul_tile_chunk(job, tile + i, k0, n_inputs);
        x->count += (size_t)x->tiles[i].rows;
    }
}

static size_t inputs_left(const struct device_weight *w, size_t k0)
{
    size_t most = chunk_inputs(w), left = w->columns - k0;
    return left < most ? left : most;
}

static void pass_join(const struct matmul_job *job, const struct pass *pass)
{
    const struct block_kernels *k = job->device->kernels->blocks;
    struct chunk_rows *x = pass->m->rows;
    size_t together = together_of(k, job->rows);
    for (size_t k0 = 0; k0 < job->w->columns; k0 += chunk_inputs(job->w))
        for (size_t i = pass->tile; i < pass->end; i += together, x++) {
            size_t n = pass->end - i < together ? pass->end - i : together;
            chunk_rows_take(job, i, n, k0, inputs_left(job->w, k0), x);
            x->joined.n = (int)n;
            k->join(&x->joined);
        }
}

/* A chunk of the inputs of the outputs of panels_together panels. */
struct panels_chunk {
    const struct pass *pass;
    size_t begin, end; /* outputs */
    size_t k0, n;      /* inputs */
    struct panels_ahead ahead;
};

/* The first rows make what the others find. */
static bool chunk_begins(const struct panels_chunk *h, const struct chunk_rows *x)
{
    return x->first == h->pass->tile * BLOCK_TILE;
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
    rows_multiply(job, x, panel, step, false, h->pass->m->out, outputs);
    for (size_t r = 0; r < x->count; r++)
        for (size_t i = 0; c + i < w->rows; i++)
            out[r * w->rows + i] =
                h->pass->m->out[r * outputs + i] + (add ? out[r * w->rows + i] : 0);
}

static uint8_t *chunk_panel(const struct matmul_job *job, const struct panels_chunk *h, size_t c)
{
    size_t step = job->device->kernels->blocks->panel_outputs;
    return h->pass->m->panels + (c - h->begin) / step * h->pass->m->panel_bytes;
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
         makes = chunk_begins(h, x) && x->count == BLOCK_TILE && whole && k->panel_begin[t];
    uint8_t *panel = chunk_panel(job, h, c);
    const uint8_t *group = panel_group(w, c, h->k0);
    size_t step = k->lanes * w->row_bytes;
    float *out = job->out + x->first * w->rows + c;
    if (k->joined_lie[t]) { /* a group that is none is the one before again */
        rows_panel(job, h, x, c, add, group, c + k->lanes < w->rows ? step : 0);
        return;
    }
    if (whole && chunk_is_direct(job)) {
        if (chunk_begins(h, x) && k->direct_make[t])
            panel_fill(job, c, h->k0, h->n, true, panel);
        k->direct_dot[t](x->tiles, group, step, panel, add, out, w->rows);
        return;
    }
    if (makes) {
        k->panel_begin[t](x->tiles, group, step, panel, add, out, w->rows);
        return;
    }
    if (chunk_begins(h, x))
        panel_fill(job, c, h->k0, h->n, false, panel);
    rows_panel(job, h, x, c, add, panel, h->n / BLOCK_RUN * k->panel_bytes(t));
}

static void chunk_panels(const struct matmul_job *job, struct panels_chunk *h, struct chunk_rows *x)
{
    size_t step = job->device->kernels->blocks->panel_outputs;
    for (size_t c = h->begin; c < h->end; c += step) {
        panels_ahead_ask(&h->ahead, x->tiles, x->n);
        chunk_outputs(job, h, x, c);
    }
}

/* All rows of the pass, which begin with `joined` where they are. */
static void chunk_tiles(const struct matmul_job *job, struct panels_chunk *h,
                        struct chunk_rows *joined)
{
    size_t together = together_of(job->device->kernels->blocks, job->rows);
    for (size_t i = h->pass->tile; i < h->pass->end; i += together) {
        struct chunk_rows alone;
        if (!joined)
            chunk_rows_take(job, i, 1, h->k0, h->n, &alone);
        chunk_panels(job, h, joined ? joined++ : &alone);
    }
}

/* Outputs [begin, end), those of panels_together panels, for the pass's rows. */
static void panels_outputs(const struct matmul_job *job, const struct pass *pass, size_t begin,
                           size_t end)
{
    const struct device_weight *w = job->w;
    size_t together = together_of(job->device->kernels->blocks, job->rows),
           joins = (pass->end - pass->tile + together - 1) / together;
    for (size_t k0 = 0, i = 0; k0 < w->columns; k0 += chunk_inputs(w), i += joins) {
        struct panels_chunk chunk = {
            pass, begin, end, k0, inputs_left(w, k0), panels_ahead_find(job, pass, begin, end, k0)};
        chunk_tiles(job, &chunk, pass->m->rows ? pass->m->rows + i : NULL);
    }
}

static void panels_part(void *ctx, int thread, uint32_t part)
{
    struct matmul_job *job = ctx;
    const struct block_kernels *k = job->device->kernels->blocks;
    size_t begin = parts_begin(&job->parts, part), end = parts_end(&job->parts, part),
           step = panels_together(k) * k->panel_outputs, tiles = tiles_of(job->rows),
           most = pass_tiles(k, job->w, job->rows);
    struct panel_memory m = panel_memory_at(job, job->device->private[thread].data);
    for (size_t i = 0; i < tiles; i += most) {
        struct pass pass = {&m, i, tiles - i < most ? tiles : i + most, begin, end};
        if (m.rows)
            pass_join(job, &pass);
        for (size_t c = begin; c < end; c += step)
            panels_outputs(job, &pass, c, c + step < end ? c + step : end);
    }
    matmul_add_bias(job, 0, job->rows, begin, end);
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
    if (!matmul_tiles_make(job) ||
        !scratch_get_all(d, panel_memory_bytes(d->kernels->blocks, job->w, job->rows)))
        return false;
    job->parts = threads_parts(d->threads, job->w->rows, d->kernels->blocks->panel_outputs, 0);
    job->run = panels_part;
    return true;
}
