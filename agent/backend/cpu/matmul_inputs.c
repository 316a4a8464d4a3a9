/* What is done to weights, inputs and outputs of a matrix product beside the product. */
#include <string.h>

#include "agent/backend/cpu/matmul_int.h"

void matmul_add_bias(const struct matmul_job *job, size_t first_row, size_t end_row, size_t begin,
                     size_t end)
{
    for (size_t r = first_row; r < end_row && job->bias; r++)
        for (size_t c = begin; c < end; c++)
            job->out[r * job->w->rows + c] += job->bias[c];
}

enum inputs_there matmul_inputs_find(const struct matmul_job *job, enum inputs_form form)
{
    struct inputs_made *made = &job->device->made,
                       now = {form, job->w->dtype, job->x, job->x_row, job->rows, job->w->columns};
    bool there = made->form == form && made->x == now.x && made->x_row == now.x_row &&
                 made->rows == now.rows && made->columns == now.columns,
         of_others = form == INPUTS_TILES && made->format != now.format;
    *made = now;
    return !there ? INPUTS_MISSING : of_others ? INPUTS_OF_OTHERS : INPUTS_THERE;
}

struct matmul_rows matmul_rows_now(const struct matmul_job *job, int thread, size_t r, size_t n)
{
    const struct matmul_maker *maker = job->maker;
    struct matmul_rows rows = {job->x + r * job->x_row, job->x_row};
    if (!maker)
        return rows;
    float *to = (float *)(uintptr_t)rows.at;
    if (!maker->kept) {
        to = job->device->private[thread].data;
        rows = (struct matmul_rows){to, job->w->columns};
    }
    maker->make(maker->ctx, r, n, to, rows.stride);
    return rows;
}

static void to_bf16(const struct matmul_job *job, int thread, size_t begin, size_t end)
{
    size_t columns = job->w->columns;
    for (size_t r = begin; r < end; r++) {
        uint16_t *row = job->x_bf16 + r * job->x_stride;
        job->device->kernels->f32_to_bf16(matmul_rows_now(job, thread, r, 1).at, columns, row);
        memset(row + columns, 0, (job->x_stride - columns) * sizeof *row);
    }
}

static void to_bf16_part(void *ctx, int thread, uint32_t part)
{
    const struct matmul_job *job = ctx;
    to_bf16(job, thread, parts_begin(&job->parts, part), parts_end(&job->parts, part));
}

void matmul_fill_bf16(struct matmul_job *job, bool alone)
{
    if (matmul_inputs_find(job, INPUTS_BF16) == INPUTS_THERE)
        return;
    job->parts = threads_parts(job->device->threads, job->rows, 1, 0);
    if (alone)
        to_bf16(job, 0, 0, job->rows);
    else
        threads_run(job->device->threads, job->parts.count, to_bf16_part, job);
}

void matmul_in_place_unpack(const struct matmul_job *job, size_t c, size_t n_rows, size_t k0,
                            size_t n, float *panel)
{
    const struct device_weight *w = job->w;
    const struct cpu_kernels *k = job->device->kernels;
    size_t at = matmul_in_place_at(w, k0), side = w->lanes ? w->lanes : 1;
    for (size_t i = 0; i < n_rows; i += side) {
        const uint8_t *rows = w->data + (c + i) * w->row_bytes + at * side;
        if (w->lanes)
            k->unpack_side[w->dtype](rows, n, panel + i * DOT_CHUNK, DOT_CHUNK);
        else
            kernels_unpack(k, w->dtype, rows, n, panel + i * DOT_CHUNK);
    }
}
