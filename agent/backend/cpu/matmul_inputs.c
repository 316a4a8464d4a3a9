/* What is done to inputs and outputs of a matrix product beside the product. */
#include <string.h>

#include "agent/backend/cpu/matmul_int.h"

void matmul_add_bias(const struct matmul_job *job, size_t first_row, size_t end_row, size_t begin,
                     size_t end)
{
    for (size_t r = first_row; r < end_row && job->bias; r++)
        for (size_t c = begin; c < end; c++)
            job->out[r * job->w->rows + c] += job->bias[c];
}

static void to_bf16(const struct matmul_job *job, size_t begin, size_t end)
{
    size_t columns = job->w->columns;
    for (size_t r = begin; r < end; r++) {
        uint16_t *row = job->x_bf16 + r * job->x_stride;
        job->device->kernels->f32_to_bf16(job->x + r * job->x_row, columns, row);
        memset(row + columns, 0, (job->x_stride - columns) * sizeof *row);
    }
}

static void to_bf16_part(void *ctx, int thread, uint32_t part)
{
    const struct matmul_job *job = ctx;
    (void)thread;
    to_bf16(job, parts_begin(&job->parts, part), parts_end(&job->parts, part));
}

void matmul_fill_bf16(struct matmul_job *job, bool alone)
{
    job->parts = threads_parts(job->device->threads, job->rows, 1, 0);
    if (alone)
        to_bf16(job, 0, job->rows);
    else
        threads_run(job->device->threads, job->parts.count, to_bf16_part, job);
}
