/* Rows of inputs as tiles of 8-bit integers, for products of many rows with weights in blocks
 * (matmul_blocks.c). */
#include "agent/backend/cpu/matmul_int.h"

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

struct block_tile matmul_tile_chunk(const struct matmul_job *job, size_t i, size_t k0, size_t n)
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

bool matmul_tiles_make(struct matmul_job *job)
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
