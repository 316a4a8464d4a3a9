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

bool matmul_inputs_are_there(const struct matmul_job *job, enum inputs_form form)
{
    struct inputs_made *made = &job->device->made,
                       now = {form, job->w->dtype, job->x, job->x_row, job->rows, job->w->columns};
    bool there = made->form == form && made->x == now.x && made->x_row == now.x_row &&
                 made->rows == now.rows && made->columns == now.columns &&
                 (form != INPUTS_TILES || made->format == now.format);
    *made = now;
    return there;
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
    if (matmul_inputs_are_there(job, INPUTS_BF16))
        return;
    job->parts = threads_parts(job->device->threads, job->rows, 1, 0);
    if (alone)
        to_bf16(job, 0, job->rows);
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
