/* Products of many rows with quantised weights where they lie (FORM_BLOCKS): 64 outputs at a time
 * become a bf16 panel, a chunk of inputs after the other, that serves all rows and is forgotten;
 * without bf16 arithmetic, and for few rows, matmul_few.c does it. */
#include "agent/backend/cpu/matmul_int.h"

enum { PANEL_BYTES = PANEL_OUTPUTS * DOT_CHUNK * (int)sizeof(uint16_t) };

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
    uint8_t *memory = job->device->private[thread].data;
    for (size_t c = begin; c < end; c += PANEL_OUTPUTS)
        blocks_many_rows(job, c, end - c < PANEL_OUTPUTS ? end - c : PANEL_OUTPUTS,
                         (uint16_t *)(void *)memory, (uint16_t *)(void *)(memory + PANEL_BYTES));
    matmul_add_bias(job, 0, job->rows, begin, end);
}

void matmul_blocks(struct matmul_job *job)
{
    struct cpu_device *d = job->device;
    if (!d->kernels->panel_dot || job->rows < BLOCKS_PANEL_ROWS) {
        matmul_blocks_few(job);
        return;
    }
    if (!matmul_inputs_to_bf16(job) ||
        !scratch_get_all(d, PANEL_BYTES + weight_panel_scratch_bytes())) {
        atomic_store(&job->failed, true);
        return;
    }
    job->parts = threads_parts(d->threads, job->w->rows, PANEL_OUTPUTS, 0);
    threads_run(d->threads, job->parts.count, blocks_part, job);
}
