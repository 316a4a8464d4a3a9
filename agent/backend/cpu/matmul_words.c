/* Products of many rows with plain formats that lie side by side, by 16-bit integers (words.h):
 * a chunk of the inputs of a few outputs after the other becomes a panel, which serves all rows and
 * is forgotten. Rows become integers before, in tiles. */
#include <string.h>

#include "agent/backend/cpu/matmul_int.h"

enum {
    WORD_LEAST_ROWS = 40 /* with fewer, making panels takes longer than they save */
};

bool matmul_by_words(const struct cpu_device *d, size_t lanes, size_t columns, size_t rows)
{
    return d->kernels->words && lanes > 0 && columns % WORD_RUN == 0 && rows >= WORD_LEAST_ROWS;
}

static size_t private_bytes(const struct cpu_device *d)
{
    size_t outputs = d->kernels->words->outputs;
    return outputs * DOT_CHUNK * sizeof(float) + word_panel_bytes(outputs, DOT_CHUNK) +
           WORD_TILE * outputs * sizeof(float);
}

/* What one thread works with. */
struct word_memory {
    float *values;  /* [outputs, DOT_CHUNK] */
    uint8_t *panel; /* of DOT_CHUNK inputs */
    float *out;     /* [WORD_TILE, outputs]: of a panel with fewer outputs */
};

static struct word_memory word_memory_at(const struct word_kernels *k, uint8_t *memory)
{
    struct word_memory m = {.values = (float *)(void *)memory};
    m.panel = memory + k->outputs * DOT_CHUNK * sizeof(float);
    m.out = (float *)(void *)(m.panel + word_panel_bytes(k->outputs, DOT_CHUNK));
    return m;
}

/* A tile's rows, from `row` on, and the outputs of a panel, from c on. */
static void tile_panel(const struct matmul_job *job, const struct word_memory *m,
                       const struct word_run *x, size_t row, size_t c, size_t n, bool add)
{
    const struct word_kernels *k = job->device->kernels->words;
    size_t outputs = job->w->rows, left = job->rows - row;
    int rows = left < WORD_TILE ? (int)left : WORD_TILE;
    float *out = job->out + row * outputs + c;
    if (c + k->outputs <= outputs) {
        k->panel_dot(x, rows, n, m->panel, add, out, outputs);
        return;
    }
    k->panel_dot(x, rows, n, m->panel, false, m->out, k->outputs);
    for (size_t r = 0; r < (size_t)rows; r++)
        for (size_t i = 0; c + i < outputs; i++)
            out[r * outputs + i] = m->out[r * k->outputs + i] + (add ? out[r * outputs + i] : 0);
}

/* Weights of the panel of outputs from c on, inputs [k0, k0 + n); what there is no output for is 0.
 */
static void panel_fill(const struct matmul_job *job, const struct word_memory *m, size_t c,
                       size_t k0, size_t n)
{
    const struct word_kernels *k = job->device->kernels->words;
    size_t left = job->w->rows - c, outputs = left < k->outputs ? left : k->outputs;
    matmul_in_place_unpack(job, c, outputs, k0, n, m->values);
    for (size_t o = outputs; o < k->outputs; o++)
        memset(m->values + o * DOT_CHUNK, 0, n * sizeof *m->values);
    k->panel_make(m->values, DOT_CHUNK, n, m->panel);
}

/* Outputs of a panel, from c on, for all rows and inputs [k0, k0 + n). */
static void panel_rows(const struct matmul_job *job, const struct word_memory *m, size_t c,
                       size_t k0, size_t n)
{
    size_t runs = job->w->columns / WORD_RUN;
    const struct word_run *x = job->x_words + k0 / WORD_RUN;
    panel_fill(job, m, c, k0, n);
    for (size_t row = 0; row < job->rows; row += WORD_TILE, x += runs)
        tile_panel(job, m, x, row, c, n, job->accumulate || k0 > 0);
}

static void words_part(void *ctx, int thread, uint32_t part)
{
    struct matmul_job *job = ctx;
    const struct word_kernels *k = job->device->kernels->words;
    size_t begin = parts_begin(&job->parts, part), end = parts_end(&job->parts, part);
    struct word_memory m = word_memory_at(k, job->device->private[thread].data);
    for (size_t c = begin; c < end; c += k->outputs)
        for (size_t k0 = 0; k0 < job->w->columns; k0 += DOT_CHUNK)
            panel_rows(job, &m, c, k0,
                       job->w->columns - k0 < DOT_CHUNK ? job->w->columns - k0 : DOT_CHUNK);
    matmul_add_bias(job, 0, job->rows, begin, end);
}

static void tiles_part(void *ctx, int thread, uint32_t part)
{
    const struct matmul_job *job = ctx;
    size_t end = parts_end(&job->parts, part), runs = job->w->columns / WORD_RUN;
    for (size_t r = parts_begin(&job->parts, part); r < end; r += WORD_TILE) {
        size_t left = job->rows - r, n = left < WORD_TILE ? left : WORD_TILE;
        struct matmul_rows rows = matmul_rows_now(job, thread, r, n);
        job->device->kernels->words->tile_make(rows.at, rows.stride, (int)n, job->w->columns,
                                               job->x_words + r / WORD_TILE * runs);
    }
}

bool matmul_words_begin(struct matmul_job *job)
{
    struct cpu_device *d = job->device;
    job->x_words = scratch_get(d, &d->inputs, word_tiles_bytes(job->rows, job->w->columns));
    if (!job->x_words || !scratch_get_all(d, private_bytes(d)))
        return false;
    if (matmul_inputs_find(job, INPUTS_WORDS) != INPUTS_THERE) {
        job->parts = threads_parts(d->threads, job->rows, WORD_TILE, 0);
        threads_run(d->threads, job->parts.count, tiles_part, job);
    }
    job->parts = threads_parts(d->threads, job->w->rows, d->kernels->words->outputs, 0);
    job->run = words_part;
    return true;
}
