/* Products of few rows with quantised weights (FORM_BLOCKS): inputs are quantised and integers
 * multiplied (blocks.h), so that a step of decode reads what the file has and no more. A group of
 * outputs that lie side by side serves all rows before the next is read; outputs that are left over
 * are multiplied as the file has them. */
#include "agent/backend/cpu/matmul_int.h"

/* Inputs of rows [r, r + n) at most BLOCK_MAX_ROWS. */
static int rows_quantised(const struct matmul_job *job, size_t r, struct block_row *x)
{
    size_t columns = job->w->columns,
           n = job->rows - r < BLOCK_MAX_ROWS ? job->rows - r : BLOCK_MAX_ROWS;
    for (size_t i = 0; i < n; i++)
        x[i] = block_row_at(job->x_blocks + (r + i) * block_row_bytes(columns), columns);
    return (int)n;
}

/* Outputs [begin, end), all side by side or none, for all rows. */
static void few_outputs(const struct matmul_job *job, block_dot_fn dot, size_t begin, size_t end)
{
    const struct device_weight *w = job->w;
    for (size_t r = 0; r < job->rows; r += BLOCK_MAX_ROWS) {
        struct block_row x[BLOCK_MAX_ROWS];
        int rows = rows_quantised(job, r, x);
        dot(x, rows, w->data + begin * w->row_bytes, w->row_bytes, end - begin, w->columns,
            job->accumulate, job->out + r * w->rows + begin, w->rows);
    }
}

static void few_part(void *ctx, int thread, uint32_t part)
{
    struct matmul_job *job = ctx;
    const struct device_weight *w = job->w;
    const struct block_kernels *k = job->device->kernels->blocks;
    size_t begin = parts_begin(&job->parts, part), end = parts_end(&job->parts, part), c = begin;
    (void)thread;
    for (; c + w->lanes <= end; c += w->lanes)
        few_outputs(job, k->lanes_dot[w->dtype], c, c + w->lanes);
    if (c < end)
        few_outputs(job, k->dot[w->dtype], c, end);
    matmul_add_bias(job, 0, job->rows, begin, end);
}

static void quantise_part(void *ctx, int thread, uint32_t part)
{
    const struct matmul_job *job = ctx;
    size_t n = job->w->columns;
    (void)thread;
    for (size_t r = parts_begin(&job->parts, part); r < parts_end(&job->parts, part); r++)
        job->device->kernels->blocks->quantise(job->x + r * job->x_row, n,
                                               job->x_blocks + r * block_row_bytes(n));
}

static bool inputs_quantise(struct matmul_job *job)
{
    struct cpu_device *d = job->device;
    job->x_blocks = scratch_get(d, &d->inputs, job->rows * block_row_bytes(job->w->columns));
    if (!job->x_blocks)
        return false;
    job->parts = threads_parts(d->threads, job->rows, 1, 0);
    if (job->rows <= BLOCK_MAX_ROWS)
        for (uint32_t part = 0; part < job->parts.count; part++)
            quantise_part(job, 0, part);
    else
        threads_run(d->threads, job->parts.count, quantise_part, job);
    return true;
}

void matmul_blocks_few(struct matmul_job *job)
{
    struct cpu_device *d = job->device;
    if (!inputs_quantise(job)) {
        atomic_store(&job->failed, true);
        return;
    }
    job->parts = threads_parts(d->threads, job->w->rows, job->w->lanes, 0);
    threads_run(d->threads, job->parts.count, few_part, job);
}
