/* Products of many rows with quantised weights (FORM_BLOCKS), by integers: a chunk of the inputs of
 * a few outputs after the other becomes panels (blocks.h), which serve all rows and are forgotten,
 * or serves them as it lies. Rows are quantised in tiles before. Where several tiles are multiplied
 * at once, rows go in passes: as many as stay in a core's own cache, joined once, meet all outputs
 * of a part. */
#include <assert.h>
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
    JOINED_MOST = 1 << 20,    /* bytes of a pass's runs: half of the second cache of what has AMX */
    PART_PANELS = 4,          /* of a part at least: to join rows for it takes as long as one */
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

/* Of the chunk that begins with input k0. */
static size_t inputs_left(const struct device_weight *w, size_t k0)
{
    size_t most = chunk_inputs(w), left = w->columns - k0;
    return left < most ? left : most;
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
    struct chunk_rows *joins; /* of a pass; NULL where no tiles are multiplied at once */
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

/* Tiles of a pass: of all nearly as many, in whole joins. */
static size_t pass_tiles(const struct block_kernels *k, const struct device_weight *w, size_t rows)
{
    size_t tiles = tiles_of(rows), together = together_of(k, rows);
    if (!k->join)
        return tiles;
    size_t bytes = chunk_inputs(w) / BLOCK_RUN * k->joined_bytes,
           most = bytes < JOINED_MOST ? JOINED_MOST / bytes : 1,
           joins = (tiles + together - 1) / together, passes = (joins + most - 1) / most;
    return (joins + passes - 1) / passes * together;
}

static size_t panel_out_bytes(const struct block_kernels *k)
{
    return together_most(k) * BLOCK_TILE * k->panel_outputs * sizeof(float);
}

static size_t joined_runs_bytes(const struct block_kernels *k, const struct device_weight *w)
{
    return chunk_inputs(w) / BLOCK_RUN * k->joined_bytes;
}

/* Runs, what is apart, and one more of these, which is written and forgotten. */
static size_t joined_bytes(const struct block_kernels *k, const struct device_weight *w)
{
    size_t apart = block_joined_most_apart(w->columns, chunk_inputs(w)) + 1,
           bytes = joined_runs_bytes(k, w) + apart * sizeof(struct block_joined_apart);
    return (bytes + BLOCK_LINE - 1) / BLOCK_LINE * BLOCK_LINE;
}

static size_t pass_joins(const struct block_kernels *k, const struct device_weight *w, size_t rows)
{
    return k->join ? pass_tiles(k, w, rows) / together_of(k, rows) : 0;
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
    m.joins = (struct chunk_rows *)(void *)(joined + joins * joined_bytes(k, w));
    for (size_t i = 0; i < joins; i++, joined += joined_bytes(k, w))
        m.joins[i].joined = (struct block_joined){
            .tiles = m.joins[i].tiles,
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

/* Rows of tiles [tile, end), so many together, with outputs [outputs, outputs_end), by inputs
 * [k0, k_end): of one chunk where tiles are joined, else of all. */
struct pass {
    const struct panel_memory *m;
    size_t tile, end, together, outputs, outputs_end, k0, k_end;
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
    size_t n = inputs_left(w, k0);
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
    size_t step = k->panel_outputs, next = k0 + chunk_inputs(w), tiles = pass->end - pass->tile,
           calls =
               (tiles + pass->together - 1) / pass->together * ((end - begin + step - 1) / step);
    if (next < pass->k_end)
        return panels_ahead_of(w, begin, next, end - begin, calls);
    if (end < pass->outputs_end)
        return panels_ahead_of(w, end, pass->k0, panels_together(k) * step, calls);
    if (pass->end < tiles_of(job->rows))
        return panels_ahead_of(w, pass->outputs, pass->k0, panels_together(k) * step, calls);
    if (pass->k_end < w->columns)
        return panels_ahead_of(w, pass->outputs, pass->k_end, panels_together(k) * step, calls);
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

static void pass_join(const struct matmul_job *job, const struct pass *pass)
{
    const struct block_kernels *k = job->device->kernels->blocks;
    struct chunk_rows *x = pass->m->joins;
    for (size_t i = pass->tile; i < pass->end; i += pass->together, x++) {
        size_t n = pass->end - i < pass->together ? pass->end - i : pass->together;
        chunk_rows_take(job, i, n, pass->k0, pass->k_end - pass->k0, x);
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
        assert(x->n == 1);
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
    for (size_t i = h->pass->tile; i < h->pass->end; i += h->pass->together) {
        struct chunk_rows alone, *x = joined ? joined++ : &alone;
        if (x == &alone)
            chunk_rows_take(job, i, 1, h->k0, h->n, x);
        chunk_panels(job, h, x);
    }
}

/* Outputs [begin, end), those of panels_together panels, for the pass's rows. */
static void panels_outputs(const struct matmul_job *job, const struct pass *pass, size_t begin,
                           size_t end)
{
    const struct device_weight *w = job->w;
    for (size_t k0 = pass->k0; k0 < pass->k_end; k0 += chunk_inputs(w)) {
        struct panels_chunk chunk = {
            pass, begin, end, k0, inputs_left(w, k0), panels_ahead_find(job, pass, begin, end, k0)};
        chunk_tiles(job, &chunk, pass->m->joins);
    }
}

static void pass_run(const struct matmul_job *job, const struct pass *pass)
{
    const struct block_kernels *k = job->device->kernels->blocks;
    size_t step = panels_together(k) * k->panel_outputs, end = pass->outputs_end;
    if (pass->m->joins)
        pass_join(job, pass);
    for (size_t c = pass->outputs; c < end; c += step)
        panels_outputs(job, pass, c, c + step < end ? c + step : end);
}

static void panels_part(void *ctx, int thread, uint32_t part)
{
    struct matmul_job *job = ctx;
    const struct block_kernels *k = job->device->kernels->blocks;
    const struct panel_memory m = panel_memory_at(job, job->device->private[thread].data);
    const size_t tiles = tiles_of(job->rows), most = pass_tiles(k, job->w, job->rows),
                 columns = job->w->columns, inputs = m.joins ? chunk_inputs(job->w) : columns,
                 begin = parts_begin(&job->parts, part), end = parts_end(&job->parts, part);
    struct pass pass = {
        .m = &m, .together = together_of(k, job->rows), .outputs = begin, .outputs_end = end};
    for (pass.k0 = 0; pass.k0 < columns; pass.k0 = pass.k_end) {
        pass.k_end = columns - pass.k0 < inputs ? columns : pass.k0 + inputs;
        for (pass.tile = 0; pass.tile < tiles; pass.tile = pass.end) {
            pass.end = tiles - pass.tile < most ? tiles : pass.tile + most;
            pass_run(job, &pass);
        }
    }
    matmul_add_bias(job, 0, job->rows, begin, end);
}

bool matmul_blocks_begin(struct matmul_job *job)
{
    struct cpu_device *d = job->device;
    if (job->rows < matmul_panel_rows(d, job->w->dtype))
        return matmul_few_begin(job);
    if (!matmul_tiles_make(job) ||
        !scratch_get_all(d, panel_memory_bytes(d->kernels->blocks, job->w, job->rows)))
        return false;
    const struct block_kernels *k = d->kernels->blocks;
    job->parts =
        threads_parts(d->threads, job->w->rows, k->panel_outputs * (k->join ? PART_PANELS : 1), 0);
    job->run = panels_part;
    return true;
}
