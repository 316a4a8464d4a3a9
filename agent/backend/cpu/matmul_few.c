/* Products of few rows with quantised weights (FORM_BLOCKS): inputs are quantised and integers
 * multiplied (blocks.h), so that a step of decode reads what the file has and no more. A group of
 * outputs that lie side by side serves all rows before the next is read. */
#include "agent/backend/cpu/matmul_int.h"

/* Rows from r on, at most BLOCK_MAX_ROWS. */
static struct block_rows rows_from(const struct matmul_job *job, size_t r)
{
    size_t columns = job->w->columns,
           n = job->rows - r < BLOCK_MAX_ROWS ? job->rows - r : BLOCK_MAX_ROWS;
    return block_rows_at(job->x_blocks +
                             r / BLOCK_MAX_ROWS * block_rows_bytes(BLOCK_MAX_ROWS, columns),
                         (int)n, columns);
}

/* Outputs of the group that begins with output c, for all rows. */
static void few_outputs(const struct matmul_job *job, size_t c)
{
    const struct device_weight *w = job->w;
    block_dot_fn dot = job->device->kernels->blocks->dot[w->dtype];
    const uint8_t *group = w->data + c * w->row_bytes;
    for (size_t r = 0; r < job->rows; r += BLOCK_MAX_ROWS) {
        struct block_rows x = rows_from(job, r);
        float *out = job->out + r * w->rows + c, all[BLOCK_MAX_ROWS * BLOCK_LANES_MAX];
        if (c + w->lanes <= w->rows) {
            dot(&x, group, w->row_bytes, w->lanes, w->columns, job->accumulate, out, w->rows);
            continue;
        }
        dot(&x, group, w->row_bytes, w->lanes, w->columns, false, all, w->lanes);
        for (size_t i = 0; i < (size_t)x.rows; i++)
            for (size_t j = 0; c + j < w->rows; j++)
                out[i * w->rows + j] =
                    all[i * w->lanes + j] + (job->accumulate ? out[i * w->rows + j] : 0);
    }
}

static void few_part(void *ctx, int thread, uint32_t part)
{
    struct matmul_job *job = ctx;
    size_t begin = parts_begin(&job->parts, part), end = parts_end(&job->parts, part);
    (void)thread;
    for (size_t c = begin; c < end; c += job->w->lanes)
        few_outputs(job, c);
    matmul_add_bias(job, 0, job->rows, begin, end);
}

static void quantise_part(void *ctx, int thread, uint32_t part)
{
    const struct matmul_job *job = ctx;
    for (size_t r = parts_begin(&job->parts, part); r < parts_end(&job->parts, part);
         r += BLOCK_MAX_ROWS) {
        struct block_rows x = rows_from(job, r);
        struct matmul_rows rows = matmul_rows_now(job, thread, r, (size_t)x.rows);
        job->device->kernels->blocks->quantise(rows.at, rows.stride, job->w->columns, &x);
    }
}

static bool inputs_quantise(struct matmul_job *job)
{
    struct cpu_device *d = job->device;
    job->x_blocks = scratch_get(d, &d->inputs, matmul_few_bytes(job->rows, job->w->columns));
    if (!job->x_blocks)
        return false;
    if (matmul_inputs_find(job, INPUTS_FEW) == INPUTS_THERE)
        return true;
    job->parts = threads_parts(d->threads, job->rows, BLOCK_MAX_ROWS, 0);
    if (job->rows <= BLOCK_MAX_ROWS)
        quantise_part(job, 0, 0);
    else
        threads_run(d->threads, job->parts.count, quantise_part, job);
    return true;
}

bool matmul_few_begin(struct matmul_job *job)
{
    if (!inputs_quantise(job))
        return false;
    job->parts = threads_parts(job->device->threads, job->w->rows, job->w->lanes, 0);
    job->run = few_part;
    return true;
}
