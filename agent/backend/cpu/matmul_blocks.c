/* Products of many rows with quantised weights (FORM_BLOCKS), by integers: a chunk of the inputs of
 * a few outputs after the other becomes panels (blocks.h), which serve all rows and are forgotten.
 * Rows are quantised in tiles before. */
#include <string.h>

#include "agent/backend/cpu/block_lanes.h"
#include "agent/backend/cpu/matmul_int.h"

enum {
    CHUNK_INPUTS = 2048, /* of a panel: with the panels beside it, it stays in a core's own cache */
    PANELS_TOGETHER = 2, /* that a tile of rows meets while it is in the first cache */
    BLOCK_MOST_BYTES = Q8_0_BYTES /* of BLOCK_RUN weights */
};

static size_t chunk_runs(const struct device_weight *w)
{
    return (w->columns < CHUNK_INPUTS ? w->columns : CHUNK_INPUTS) / BLOCK_RUN;
}

/* What one thread works with. */
struct panel_memory {
    uint8_t *panels;
    size_t panel_bytes;    /* of one */
    float *out;            /* [BLOCK_TILE, panel_outputs]: of a panel with fewer outputs */
    uint8_t *rows, *group; /* of rows that lie in no group */
};

/* Bytes of its pieces. */
struct panel_sizes {
    size_t panel, out, group;
};

static struct panel_sizes panel_sizes_of(const struct block_kernels *k,
                                         const struct device_weight *w)
{
    size_t runs = chunk_runs(w);
    return (struct panel_sizes){.panel =
                                    k->panel_outputs / k->lanes * k->panel_bytes(w->dtype) * runs,
                                .out = BLOCK_TILE * k->panel_outputs * sizeof(float),
                                .group = k->lanes * runs * BLOCK_MOST_BYTES};
}

static size_t panel_memory_bytes(const struct block_kernels *k, const struct device_weight *w)
{
    struct panel_sizes s = panel_sizes_of(k, w);
    return PANELS_TOGETHER * s.panel + s.out + 2 * s.group;
}

static struct panel_memory panel_memory_at(const struct block_kernels *k,
                                           const struct device_weight *w, uint8_t *memory)
{
    struct panel_sizes s = panel_sizes_of(k, w);
    uint8_t *out = memory + PANELS_TOGETHER * s.panel, *rows = out + s.out;
    return (struct panel_memory){memory, s.panel, (float *)(void *)out, rows, rows + s.group};
}

/* Rows from `first` on, fewer than lanes, as a group that has zeros beside them. */
static const uint8_t *group_of_rest(const struct matmul_job *job, const struct panel_memory *m,
                                    size_t first, size_t block, size_t n_blocks)
{
    const struct device_weight *w = job->w;
    size_t lanes = job->device->kernels->blocks->lanes,
           block_bytes = dtype_info(w->dtype)->block_bytes, bytes = n_blocks * block_bytes;
    memset(m->rows, 0, lanes * bytes);
    for (size_t r = first; r < w->rows && r < first + lanes; r++)
        memcpy(m->rows + (r - first) * bytes, w->data + r * w->row_bytes + block * block_bytes,
               bytes);
    block_lanes_put(w->dtype, lanes, m->rows, bytes, n_blocks, m->group);
    return m->group;
}

/* The panel of outputs from c on; what there is no output for is not written to. */
static void panel_fill(const struct matmul_job *job, const struct panel_memory *m, size_t c,
                       size_t k0, size_t n, uint8_t *panel)
{
    const struct device_weight *w = job->w;
    const struct block_kernels *k = job->device->kernels->blocks;
    const struct dtype_info *info = dtype_info(w->dtype);
    size_t block = k0 / info->block_elements, grouped = w->rows / k->lanes * k->lanes;
    for (size_t end = c + k->panel_outputs; c < end && c < w->rows; c += k->lanes) {
        const uint8_t *group =
            c < grouped ? w->data + c * w->row_bytes + block * k->lanes * info->block_bytes
                        : group_of_rest(job, m, c, block, n / info->block_elements);
        k->panel_make[w->dtype](group, n, panel);
        panel += n / BLOCK_RUN * k->panel_bytes(w->dtype);
    }
}

/* A tile's rows from `row` on and the outputs of a panel, from c on. */
static void tile_panel(const struct matmul_job *job, const struct panel_memory *m, size_t row,
                       size_t c, size_t k0, size_t n, const uint8_t *panel)
{
    const struct device_weight *w = job->w;
    const struct block_kernels *k = job->device->kernels->blocks;
    const struct block_tile_run *x =
        job->x_tiles + (row / BLOCK_TILE * w->columns + k0) / BLOCK_RUN;
    int rows = job->rows - row < BLOCK_TILE ? (int)(job->rows - row) : BLOCK_TILE;
    bool add = job->accumulate || k0 > 0;
    float *out = job->out + row * w->rows + c;
    if (c + k->panel_outputs <= w->rows) {
        k->panel_dot[w->dtype](x, rows, panel, n / BLOCK_RUN, add, out, w->rows);
        return;
    }
    k->panel_dot[w->dtype](x, rows, panel, n / BLOCK_RUN, false, m->out, k->panel_outputs);
    for (size_t r = 0; r < (size_t)rows; r++)
        for (size_t i = 0; c + i < w->rows; i++)
            out[r * w->rows + i] =
                m->out[r * k->panel_outputs + i] + (add ? out[r * w->rows + i] : 0);
}

/* Outputs [begin, end), those of PANELS_TOGETHER panels, for all rows. */
static void panels_outputs(const struct matmul_job *job, const struct panel_memory *m, size_t begin,
                           size_t end)
{
    const struct device_weight *w = job->w;
    size_t step = job->device->kernels->blocks->panel_outputs;
    for (size_t k0 = 0; k0 < w->columns; k0 += CHUNK_INPUTS) {
        size_t n = w->columns - k0 < CHUNK_INPUTS ? w->columns - k0 : CHUNK_INPUTS;
        for (size_t c = begin; c < end; c += step)
            panel_fill(job, m, c, k0, n, m->panels + (c - begin) / step * m->panel_bytes);
        for (size_t row = 0; row < job->rows; row += BLOCK_TILE)
            for (size_t c = begin; c < end; c += step)
                tile_panel(job, m, row, c, k0, n, m->panels + (c - begin) / step * m->panel_bytes);
    }
}

static void panels_part(void *ctx, int thread, uint32_t part)
{
    struct matmul_job *job = ctx;
    const struct block_kernels *k = job->device->kernels->blocks;
    size_t begin = parts_begin(&job->parts, part), end = parts_end(&job->parts, part),
           step = PANELS_TOGETHER * k->panel_outputs;
    struct panel_memory m = panel_memory_at(k, job->w, job->device->private[thread].data);
    for (size_t c = begin; c < end; c += step)
        panels_outputs(job, &m, c, c + step < end ? c + step : end);
    matmul_add_bias(job, 0, job->rows, begin, end);
}

static void tiles_part(void *ctx, int thread, uint32_t part)
{
    const struct matmul_job *job = ctx;
    const struct block_kernels *k = job->device->kernels->blocks;
    size_t n = job->w->columns, end = parts_end(&job->parts, part);
    (void)thread;
    for (size_t r = parts_begin(&job->parts, part); r < end; r += BLOCK_TILE)
        k->tile_make(job->w->dtype, job->x + r * job->x_row, job->x_row,
                     end - r < BLOCK_TILE ? (int)(end - r) : BLOCK_TILE, n,
                     job->x_tiles + r / BLOCK_TILE * (n / BLOCK_RUN));
}

static bool tiles_make(struct matmul_job *job)
{
    struct cpu_device *d = job->device;
    job->x_tiles = scratch_get(d, &d->inputs, matmul_tiles_bytes(job->rows, job->w->columns));
    if (!job->x_tiles)
        return false;
    job->parts = threads_parts(d->threads, job->rows, BLOCK_TILE, 0);
    threads_run(d->threads, job->parts.count, tiles_part, job);
    return true;
}

void matmul_blocks(struct matmul_job *job)
{
    struct cpu_device *d = job->device;
    if (job->rows < BLOCKS_PANEL_ROWS) {
        matmul_blocks_few(job);
        return;
    }
    if (!tiles_make(job) || !scratch_get_all(d, panel_memory_bytes(d->kernels->blocks, job->w))) {
        atomic_store(&job->failed, true);
        return;
    }
    job->parts = threads_parts(d->threads, job->w->rows, d->kernels->blocks->panel_outputs, 0);
    threads_run(d->threads, job->parts.count, panels_part, job);
}
