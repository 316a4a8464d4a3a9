/* Products with quantised weights where they lie (FORM_BLOCKS).
 *
 * A few rows: inputs are quantised and integers multiplied (blocks.h), so that a step of decode
 * reads what the file has and no more. Many rows: 64 outputs at a time become a bf16 panel, a chunk
 * of inputs after the other, that serves all rows and is forgotten; without bf16 arithmetic the
 * integer kernels do that too, a few outputs for all rows after the other. */
#include <string.h>

#include "agent/backend/cpu/matmul_int.h"

enum {
    OUTPUTS_IN_CACHE = 8, /* that are done for all rows before the next */
    PANEL_BYTES = PANEL_OUTPUTS * DOT_CHUNK * (int)sizeof(uint16_t)
};

static void blocks_few_rows(const struct matmul_job *job, size_t begin, size_t end)
{
    const struct device_weight *w = job->w;
    block_dot_fn dot = job->device->kernels->blocks->dot[w->dtype];
    size_t row_bytes = block_row_bytes(w->columns);
    for (size_t c = begin; c < end; c += OUTPUTS_IN_CACHE) {
        size_t cols = end - c < OUTPUTS_IN_CACHE ? end - c : OUTPUTS_IN_CACHE;
        for (size_t r = 0; r < job->rows; r += BLOCK_MAX_ROWS) {
            struct block_row x[BLOCK_MAX_ROWS];
            size_t rows = job->rows - r < BLOCK_MAX_ROWS ? job->rows - r : BLOCK_MAX_ROWS;
            for (size_t i = 0; i < rows; i++)
                x[i] = block_row_at(job->x_blocks + (r + i) * row_bytes, w->columns);
            dot(x, (int)rows, w->data + c * w->row_bytes, w->row_bytes, cols, w->columns,
                job->accumulate, job->out + r * w->rows + c, w->rows);
        }
    }
}

/* Outputs [c, c + cols), at most PANEL_OUTPUTS: as panels of DOT_CHUNK inputs. */
static void blocks_many_rows(const struct matmul_job *job, size_t c, size_t cols, uint16_t *panel,
                             uint16_t *scratch)
{
    const struct device_weight *w = job->w;
    for (size_t k0 = 0; k0 < w->columns; k0 += DOT_CHUNK) {
        size_t n = w->columns - k0 < DOT_CHUNK ? w->columns - k0 : DOT_CHUNK;
        weight_panel_make(job->device, w, w->data, c, k0, n, scratch, panel);
        job->device->kernels->panel_dot(job->x_bf16 + k0, job->x_stride, (int)job->rows, panel,
                                        weight_padded(n), cols, job->accumulate || k0 > 0,
                                        job->out + c, w->rows);
    }
}

static void blocks_part(void *ctx, int thread, uint32_t part)
{
    struct matmul_job *job = ctx;
    size_t begin = parts_begin(&job->parts, part), end = parts_end(&job->parts, part);
    if (!job->x_bf16) {
        blocks_few_rows(job, begin, end);
        matmul_add_bias(job, 0, job->rows, begin, end);
        return;
    }
    uint8_t *memory = job->device->private[thread].data;
    for (size_t c = begin; c < end; c += PANEL_OUTPUTS)
        blocks_many_rows(job, c, end - c < PANEL_OUTPUTS ? end - c : PANEL_OUTPUTS,
                         (uint16_t *)(void *)memory, (uint16_t *)(void *)(memory + PANEL_BYTES));
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

void matmul_blocks(struct matmul_job *job)
{
    struct cpu_device *d = job->device;
    bool panels = d->kernels->panel_dot && job->rows >= BLOCKS_PANEL_ROWS;
    bool ready = panels ? matmul_inputs_to_bf16(job) &&
                              scratch_get_all(d, PANEL_BYTES + weight_panel_scratch_bytes())
                        : inputs_quantise(job);
    if (!ready) {
        atomic_store(&job->failed, true);
        return;
    }
    job->parts =
        threads_parts(d->threads, job->w->rows, panels ? PANEL_OUTPUTS : OUTPUTS_IN_CACHE, 0);
    threads_run(d->threads, job->parts.count, blocks_part, job);
}
