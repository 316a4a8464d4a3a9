/* Products with the matrices of weights.c: in place in float32; panels with few rows by our own
 * kernel, which streams the panels once, with more rows by oneDNN. */
#include <assert.h>
#include <stdatomic.h>
#include <string.h>

#include "agent/backend/cpu/matmul_int.h"
#include "agent/backend/cpu/onednn.h"

enum {
    IN_PLACE_PANEL_ROWS =
        8, /* from so many rows on it pays to unpack weights first and use them for all rows */
    FEW_ROWS = 12, /* up to so many rows go through our own kernel: a panel is read from memory once
                      and from the cache again */
    ONEDNN_ROWS = 256, /* rows of one call: their inputs stay in the second-level cache */
    ROW_SPLIT = 16,    /* threads share out rows rather than outputs when each gets so many */
};

/* Outputs [begin, end) of all rows by floats of their weights, for inputs [k0, k0 + n). */
static void in_place_many(const struct matmul_job *job, size_t begin, size_t end, size_t k0,
                          size_t n, float *panel)
{
    matmul_in_place_unpack(job, begin, end - begin, k0, n, panel);
    for (size_t r = 0; r < job->rows; r += DOT_MAX_ROWS) {
        int rows = job->rows - r < DOT_MAX_ROWS ? (int)(job->rows - r) : DOT_MAX_ROWS;
        job->device->kernels->dot[DTYPE_F32](job->x + r * job->x_row + k0, job->x_row, rows,
                                             (const uint8_t *)panel, DOT_CHUNK * sizeof *panel,
                                             end - begin, n, NULL,
                                             job->out + r * job->w->rows + begin, job->w->rows);
    }
}

/* A group of rows side by side, of which the last may be short of some. */
static void in_place_side(const struct matmul_job *job, size_t begin, size_t end, size_t k0,
                          size_t n)
{
    const struct device_weight *w = job->w;
    const uint8_t *group = w->data + begin * w->row_bytes + matmul_in_place_at(w, k0) * w->lanes;
    for (size_t r = 0; r < job->rows; r += DOT_MAX_ROWS) {
        int rows = job->rows - r < DOT_MAX_ROWS ? (int)(job->rows - r) : DOT_MAX_ROWS;
        const float *x = job->x + r * job->x_row + k0;
        float *out = job->out + r * w->rows + begin, all[DOT_MAX_ROWS * SIDE_ROWS] = {0};
        if (end - begin == w->lanes) {
            job->device->kernels->dot_side[w->dtype](x, job->x_row, rows, group, n, out, w->rows);
            continue;
        }
        job->device->kernels->dot_side[w->dtype](x, job->x_row, rows, group, n, all, SIDE_ROWS);
        for (size_t i = 0; i < (size_t)rows; i++)
            for (size_t c = 0; c < end - begin; c++)
                out[i * w->rows + c] += all[i * SIDE_ROWS + c];
    }
}

/* Outputs [begin, end) of a group of outputs, all rows, for inputs [k0, k0 + n). */
static void in_place_few(const struct matmul_job *job, size_t begin, size_t end, size_t k0,
                         size_t n)
{
    const struct device_weight *w = job->w;
    size_t at = matmul_in_place_at(w, k0), stride = w->row_bytes;
    const uint8_t *weights = w->data + begin * stride + at, *next = NULL;
    if (end + (end - begin) <= w->rows) /* of the next group, in the order of memory */
        next = w->data + end * stride + at * (end - begin);
    for (size_t r = 0; r < job->rows; r += DOT_MAX_ROWS) {
        int rows = job->rows - r < DOT_MAX_ROWS ? (int)(job->rows - r) : DOT_MAX_ROWS;
        job->device->kernels->dot[w->dtype](job->x + r * job->x_row + k0, job->x_row, rows, weights,
                                            stride, end - begin, n, r == 0 ? next : NULL,
                                            job->out + r * w->rows + begin, w->rows);
    }
}

static void in_place_chunk(const struct matmul_job *job, size_t begin, size_t end, size_t k0,
                           size_t n, float *panel)
{
    if (panel)
        in_place_many(job, begin, end, k0, n, panel);
    else if (job->w->lanes)
        in_place_side(job, begin, end, k0, n);
    else
        in_place_few(job, begin, end, k0, n);
}

/* Whether weights are unpacked first: for many rows, and where no kernel reads the format. */
static bool in_place_unpacks(const struct cpu_device *d, const struct device_weight *w, size_t rows)
{
    return rows >= IN_PLACE_PANEL_ROWS || !d->kernels->dot[w->dtype];
}

/* Outputs that are computed together: for few rows a few, so that weights stream by once and what
 * is unpacked of them stays in the first cache; for many rows many, which serve all of these. */
static size_t in_place_group(size_t rows)
{
    return rows >= IN_PLACE_PANEL_ROWS ? PANEL_OUTPUTS : SIDE_ROWS;
}

static void in_place_part(void *ctx, int thread, uint32_t part)
{
    struct matmul_job *job = ctx;
    const struct device_weight *w = job->w;
    size_t group = in_place_group(job->rows), begin = parts_begin(&job->parts, part),
           end = parts_end(&job->parts, part);
    float *panel =
        in_place_unpacks(job->device, w, job->rows) ? job->device->private[thread].data : NULL;
    for (size_t r = 0; r < job->rows && !job->accumulate; r++)
        memset(job->out + r * w->rows + begin, 0, (end - begin) * sizeof(float));
    for (size_t c = begin; c < end; c += group)
        for (size_t k0 = 0; k0 < w->columns; k0 += DOT_CHUNK)
            in_place_chunk(job, c, c + group < end ? c + group : end, k0,
                           w->columns - k0 < DOT_CHUNK ? w->columns - k0 : DOT_CHUNK, panel);
    matmul_add_bias(job, 0, job->rows, begin, end);
}

static void panels_few_rows(const struct matmul_job *job, size_t begin, size_t end)
{
    const struct device_weight *w = job->w;
    for (size_t c = begin; c < end; c += PANEL_OUTPUTS) {
        const uint16_t *panel = (const uint16_t *)(const void *)w->data + c * w->padded_columns;
        size_t n = end - c < PANEL_OUTPUTS ? end - c : PANEL_OUTPUTS;
        job->device->kernels->panel_dot(job->x_bf16, job->x_stride, (int)job->rows, panel,
                                        w->padded_columns, n, job->accumulate, job->out + c,
                                        w->rows);
    }
}

/* Rows [r, r + rows) with some of the outputs. oneDNN writes dense results: where these are not all
 * outputs, by way of scratch. */
static int panels_many_rows(const struct matmul_job *job, int thread, size_t r, size_t rows,
                            size_t begin, size_t end)
{
    const struct device_weight *w = job->w;
    const uint16_t *x = job->x_bf16 + r * job->x_stride,
                   *panels = (const uint16_t *)(const void *)w->data + begin * w->padded_columns;
    size_t n = end - begin;
    float *out = job->out + r * w->rows + begin;
    if (n == w->rows)
        return onednn_matmul(job->device->onednn, thread, x, rows, panels, w->columns, n,
                             job->accumulate, out);
    float *dense =
        scratch_get(job->device, &job->device->private[thread], rows * n * sizeof *dense);
    if (!dense || onednn_matmul(job->device->onednn, thread, x, rows, panels, w->columns, n, false,
                                dense) < 0)
        return -1;
    for (size_t i = 0; i < rows; i++)
        for (size_t c = 0; c < n; c++)
            out[i * w->rows + c] = dense[i * n + c] + (job->accumulate ? out[i * w->rows + c] : 0);
    return 0;
}

static void panels_part(void *ctx, int thread, uint32_t part)
{
    struct matmul_job *job = ctx;
    size_t first_row = 0, end_row = job->rows, begin = 0, end = job->w->rows;
    *(job->by_rows ? &first_row : &begin) = parts_begin(&job->parts, part);
    *(job->by_rows ? &end_row : &end) = parts_end(&job->parts, part);
    if (job->rows <= FEW_ROWS)
        panels_few_rows(job, begin, end);
    else if (panels_many_rows(job, thread, first_row, end_row - first_row, begin, end) < 0)
        atomic_store(&job->failed, true);
    matmul_add_bias(job, first_row, end_row, begin, end);
}

static bool panels_begin(struct matmul_job *job)
{
    struct cpu_device *d = job->device;
    size_t n_threads = (size_t)threads_count(d->threads);
    job->x_stride = job->rows <= FEW_ROWS ? job->w->padded_columns : job->w->columns;
    job->x_bf16 = scratch_get(d, &d->inputs, job->rows * job->x_stride * sizeof *job->x_bf16);
    if (!job->x_bf16)
        return false;
    job->by_rows = job->rows > FEW_ROWS && (n_threads == 1 || job->rows >= ROW_SPLIT * n_threads);
    matmul_fill_bf16(job, job->rows <= FEW_ROWS);
    job->parts = job->by_rows ? threads_parts(d->threads, job->rows, ROW_SPLIT, ONEDNN_ROWS)
                              : threads_parts(d->threads, job->w->rows, PANEL_OUTPUTS, 0);
    job->run = panels_part;
    return true;
}

static bool in_place_begin(struct matmul_job *job)
{
    struct cpu_device *d = job->device;
    d->made.form = INPUTS_NONE; /* its product may lie where the inputs were that are made now */
    if (in_place_unpacks(d, job->w, job->rows) &&
        !scratch_get_all(d, PANEL_OUTPUTS * DOT_CHUNK * sizeof(float)))
        return false;
    job->parts = threads_parts(d->threads, job->w->rows, in_place_group(job->rows), 0);
    job->run = in_place_part;
    return true;
}

/* What the product is added to lies where the product goes. */
static void addend_place(const struct tensor *addend, const struct tensor *out)
{
    for (uint64_t r = 0; r < out->shape[0]; r++)
        if (tensor_row(addend, r) != tensor_row(out, r))
            memcpy(tensor_row(out, r), tensor_row(addend, r), tensor_width(out) * sizeof(float));
}

static void job_init(struct matmul_job *job, struct stream *s, const struct device_op *op,
                     const struct tensor *in, const struct tensor *out)
{
    const struct device_weight *weight = op->weights[0], *bias = op->weights[1];
    assert(weight->form != FORM_F32 && tensor_width(&in[0]) == weight->columns &&
           tensor_width(out) == weight->rows && out->strides[0] == weight->rows);
    memset(job, 0, sizeof *job);
    job->device = s->device;
    job->w = weight;
    job->bias = bias ? (const float *)(const void *)bias->data : NULL;
    job->x = tensor_row(&in[0], 0);
    job->x_row = in[0].strides[0];
    job->out = tensor_row(out, 0);
    job->rows = out->shape[0];
    job->accumulate = op->op->n_inputs > 1;
}

enum inputs_form cpu_matmul_form(const struct cpu_device *d, const struct device_weight *w,
                                 size_t rows)
{
    if (w->form == FORM_PANELS_BF16)
        return INPUTS_BF16;
    if (w->form == FORM_BLOCKS)
        return rows < matmul_panel_rows(d, w->dtype) ? INPUTS_FEW : INPUTS_TILES;
    return matmul_by_words(d, w->lanes, w->columns, rows) ? INPUTS_WORDS : INPUTS_NONE;
}

static bool job_begin(struct matmul_job *job)
{
    const struct matmul_maker *maker = job->maker;
    if (maker && !maker->kept &&
        !scratch_get_all(job->device, MAKER_ROWS * job->w->columns * sizeof(float)))
        return false;
    switch (cpu_matmul_form(job->device, job->w, job->rows)) {
    case INPUTS_BF16: return panels_begin(job);
    case INPUTS_WORDS: return matmul_words_begin(job);
    case INPUTS_NONE: assert(!maker); return in_place_begin(job);
    default: return matmul_blocks_begin(job);
    }
}

static void job_end(struct stream *s, const struct matmul_job *job, bool begun)
{
    if (!begun || atomic_load(&job->failed))
        cpu_stream_fail(s, HP_ENOMEM,
                        "a matrix product failed: out of memory, or refused by oneDNN");
}

void cpu_matmul(struct stream *s, const struct device_op *op, const struct tensor *in,
                const struct tensor *out, const struct op_batch *batch)
{
    struct matmul_job job;
    (void)batch;
    job_init(&job, s, op, in, out);
    bool begun = job_begin(&job);
    if (begun && job.accumulate)
        addend_place(&in[1], out);
    if (begun)
        threads_run(s->device->threads, job.parts.count, job.run, &job);
    job_end(s, &job, begun);
}

/* ---- several products of the same rows ---- */

struct matmul_group {
    struct matmul_job jobs[MATMULS_TOGETHER];
};

/* Parts of one product after those of the other. */
static void group_part(void *ctx, int thread, uint32_t part)
{
    struct matmul_group *g = ctx;
    int i = 0;
    while (part >= g->jobs[i].parts.count)
        part -= g->jobs[i++].parts.count;
    g->jobs[i].run(&g->jobs[i], thread, part);
}

void cpu_matmuls(struct stream *s, const struct op_call *const *products, int n,
                 const struct matmul_maker *maker, const struct device_weight *next)
{
    struct matmul_group g; /* of which as much is written as there are products */
    uint32_t parts = 0;
    bool begun = true;
    if (maker) /* what was made of the rows that were there before */
        s->device->made.form = INPUTS_NONE;
    for (int i = 0; i < n; i++)
        job_init(&g.jobs[i], s, products[i]->op, products[i]->inputs, &products[i]->out);
    for (int i = 0; i < n; i++)
        g.jobs[i].next = i + 1 < n ? g.jobs[i + 1].w : next;
    g.jobs[0].maker = maker;
    for (int i = 0; i < n && begun; i++) {
        begun = job_begin(&g.jobs[i]);
        parts += g.jobs[i].parts.count;
    }
    for (int i = 0; i < n && begun; i++)
        if (g.jobs[i].accumulate)
            addend_place(&products[i]->inputs[1], &products[i]->out);
    if (begun)
        threads_run(s->device->threads, parts, group_part, &g);
    for (int i = 0; i < n; i++)
        job_end(s, &g.jobs[i], begun);
}
