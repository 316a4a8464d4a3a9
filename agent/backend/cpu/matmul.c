/* How the CPU keeps matrices and multiplies by them.
 *
 * In place: the file's own rows, mapped, whatever their number format; products in float32, each
 * output summed in a fixed order (kernels.h), so that a result does not depend on the batch. This
 * is `--compute f32`, and `auto` on CPUs without bf16 arithmetic: no copy, and decode reads no more
 * bytes than the file has.
 *
 * Panels: bf16, packed at load as [outputs / 64][inputs / 2][64][2], inputs padded to 32 and both
 * ends with zeros: 64 outputs side by side, inputs in pairs. Few rows go through our own kernel,
 * which streams the panels once; more rows through oneDNN. */
#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "agent/backend/cpu/cpu_int.h"
#include "agent/backend/cpu/onednn.h"

enum {
    IN_PLACE_PANEL_ROWS =
        8, /* from so many rows on it pays to unpack weights first and use them for all rows */
    FEW_ROWS = 12, /* up to so many rows go through our own kernel: a panel is read from memory once
                      and from the cache again */
    ONEDNN_ROWS = 256,           /* rows of one call: their inputs stay in the second-level cache */
    BF16_LEAST_VALUES = 1 << 18, /* a smaller matrix stays in the cache: bf16 would save nothing
                                    there and round all the same */
    ROW_SPLIT = 16, /* threads share out rows rather than outputs when each gets so many */
    LINE_PAIRS =
        PANEL_INPUTS / 2, /* of a cache line: packing turns one line of each row at a time */
    PAIR_STRIDE =
        DOT_CHUNK +
        32, /* of rows while packing: a power of two would put them all into the same cache sets */
};

/* ---- loading
 * ------------------------------------------------------------------------------------------------
 */

static size_t round_up(size_t n, size_t unit)
{
    return (n + unit - 1) / unit * unit;
}

static size_t weight_rows(const struct weight *w)
{
    return w->n_dims < 2 ? 1 : (size_t)w->shape[0];
}
static size_t weight_columns(const struct weight *w)
{
    return (size_t)w->shape[w->n_dims < 2 ? 0 : 1];
}

static enum weight_form form_of(const struct cpu_device *d, const struct weight *w,
                                enum weight_use use, bool f32)
{
    if (use == WEIGHT_VECTOR)
        return FORM_F32;
    if (use == WEIGHT_ROWS || f32 || !d->onednn ||
        weight_rows(w) * weight_columns(w) < BF16_LEAST_VALUES)
        return FORM_IN_PLACE;
    return FORM_PANELS_BF16;
}

uint64_t cpu_weight_resident_bytes(const struct device *device, const struct weight *w,
                                   enum weight_use use, bool f32)
{
    const struct cpu_device *d = (const struct cpu_device *)device;
    size_t rows = weight_rows(w), columns = weight_columns(w);
    switch (form_of(d, w, use, f32)) {
    case FORM_IN_PLACE:
        return rows *
               (columns / dtype_info(w->dtype)->block_elements * dtype_info(w->dtype)->block_bytes);
    case FORM_F32: return rows * columns * sizeof(float);
    case FORM_PANELS_BF16:
        return round_up(rows, PANEL_OUTPUTS) * round_up(columns, PANEL_INPUTS) * sizeof(uint16_t);
    }
    return 0;
}

uint64_t cpu_matmul_scratch_bytes(const struct device *device, const struct weight *w, bool f32,
                                  uint32_t rows)
{
    const struct cpu_device *d = (const struct cpu_device *)device;
    bool panels = form_of(d, w, WEIGHT_MATMUL, f32) == FORM_PANELS_BF16;
    uint64_t bytes =
        panels ? rows * round_up(weight_columns(w), PANEL_INPUTS) * sizeof(uint16_t) : 0;
    return bytes > d->inputs.bytes ? bytes - d->inputs.bytes : 0;
}

/* The mapped pages that lie wholly in these bytes are clean and come back from the file when they
 * are needed again. */
static void release_pages(const struct weight *w, size_t offset, size_t bytes)
{
    if (w->file < 0) /* not of a file: memory of a test */
        return;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uintptr_t begin = round_up((uintptr_t)(w->data + offset), page),
              end = (uintptr_t)(w->data + offset + bytes) / page * page;
    if (end > begin)
        madvise((void *)begin, end - begin, MADV_DONTNEED);
}

/* The file's pages of a weight that is about to be used: read ahead of time, where they are not in
 * memory yet. */
static void want_pages(const struct weight *w)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uintptr_t begin = (uintptr_t)w->data / page * page;
    if (w->file >= 0)
        madvise((void *)begin, (uintptr_t)w->data + w->bytes - begin, MADV_WILLNEED);
}

struct pack_job {
    struct cpu_device *device;
    const struct weight *source;
    struct device_weight *w;
    uint16_t *panels;
    struct parts parts; /* of the panels */
    atomic_bool failed;
};

/* Inputs [k0, k0 + n) of one panel's outputs, turned from rows of values into columns of pairs. */
static void pack_chunk(const struct pack_job *job, size_t panel, size_t k0, size_t n,
                       uint16_t *rows, float *values)
{
    const struct device_weight *w = job->w;
    const struct cpu_kernels *k = job->device->kernels;
    const struct dtype_info *info = dtype_info(w->dtype);
    size_t padded = round_up(n, PANEL_INPUTS), first = panel * PANEL_OUTPUTS;
    for (size_t c = 0; c < PANEL_OUTPUTS; c++) {
        uint16_t *row = rows + c * PAIR_STRIDE;
        memset(row, 0, padded * sizeof *row);
        if (first + c >= w->rows)
            continue;
        k->unpack[w->dtype](job->source->data + (first + c) * w->row_bytes +
                                k0 / info->block_elements * info->block_bytes,
                            n, values);
        k->f32_to_bf16(values, n, row);
    }
    uint32_t *out =
        (uint32_t *)(void *)(job->panels + (panel * w->padded_columns + k0) * PANEL_OUTPUTS);
    for (size_t pair = 0; pair < padded / 2; pair += LINE_PAIRS)
        for (size_t c = 0; c < PANEL_OUTPUTS; c++) {
            uint32_t line[LINE_PAIRS];
            memcpy(line, rows + c * PAIR_STRIDE + pair * 2, sizeof line);
            for (size_t i = 0; i < LINE_PAIRS; i++)
                out[(pair + i) * PANEL_OUTPUTS + c] = line[i];
        }
}

static void pack_part(void *ctx, int thread, uint32_t part)
{
    struct pack_job *job = ctx;
    const struct device_weight *w = job->w;
    uint16_t *rows =
        scratch_get(job->device, &job->device->private[thread],
                    (size_t)PANEL_OUTPUTS * PAIR_STRIDE * sizeof *rows + DOT_CHUNK * sizeof(float));
    if (!rows) {
        atomic_store(&job->failed, true);
        return;
    }
    float *values = (float *)(void *)(rows + (size_t)PANEL_OUTPUTS * PAIR_STRIDE);
    for (size_t panel = parts_begin(&job->parts, part); panel < parts_end(&job->parts, part);
         panel++) {
        for (size_t k0 = 0; k0 < w->columns; k0 += DOT_CHUNK)
            pack_chunk(job, panel, k0, w->columns - k0 < DOT_CHUNK ? w->columns - k0 : DOT_CHUNK,
                       rows, values);
        size_t first = panel * PANEL_OUTPUTS,
               n = w->rows - first < PANEL_OUTPUTS ? w->rows - first : PANEL_OUTPUTS;
        release_pages(job->source, first * w->row_bytes, n * w->row_bytes);
    }
}

static int load_panels(struct cpu_device *d, const struct weight *source, struct device_weight *w,
                       struct err *e)
{
    struct pack_job job = {.device = d, .source = source, .w = w};
    w->padded_columns = round_up(w->columns, PANEL_INPUTS);
    uint64_t bytes = round_up(w->rows, PANEL_OUTPUTS) * w->padded_columns * sizeof(uint16_t);
    void *memory;
    int rc = cpu_memory_alloc(d, bytes, source->name, &memory, e);
    if (rc < 0)
        return rc;
    w->data = memory;
    job.panels = memory;
    w->owned_bytes = bytes;
    job.parts = threads_parts(d->threads, round_up(w->rows, PANEL_OUTPUTS) / PANEL_OUTPUTS, 1, 0);
    threads_run(d->threads, job.parts.count, pack_part, &job);
    return atomic_load(&job.failed) ? err_set(e, HP_ENOMEM, "no memory to pack %s", source->name)
                                    : 0;
}

static int load_vector(struct cpu_device *d, const struct weight *source, struct device_weight *w,
                       struct err *e)
{
    void *memory;
    w->owned_bytes = w->rows * w->columns * sizeof(float);
    int rc = cpu_memory_alloc(d, w->owned_bytes, source->name, &memory, e);
    if (rc < 0) {
        w->owned_bytes = 0;
        return rc;
    }
    w->data = memory;
    d->kernels->unpack[w->dtype](source->data, w->rows * w->columns, memory);
    return 0;
}

static int weight_check(const struct weight *source, struct err *e)
{
    const struct dtype_info *info = dtype_info(source->dtype);
    if (source->n_dims < 1 || source->n_dims > 2)
        return err_set(e, HP_EUNSUPPORTED,
                       "%s has %d dimensions; the CPU runs vectors and matrices", source->name,
                       source->n_dims);
    if (weight_columns(source) == 0 || weight_rows(source) == 0 ||
        weight_columns(source) % info->block_elements)
        return err_set(e, HP_EUNSUPPORTED, "%s: rows of %zu values are no whole blocks of %s",
                       source->name, weight_columns(source), info->name);
    return 0;
}

int cpu_weight_load(struct device *device, const struct weight *source, enum weight_use use,
                    bool f32, struct device_weight **out, struct err *e)
{
    struct cpu_device *d = (struct cpu_device *)device;
    int rc = weight_check(source, e);
    if (rc < 0)
        return rc;
    struct device_weight *w = calloc(1, sizeof *w);
    if (!w)
        return err_set(e, HP_ENOMEM, "no memory for %s", source->name);
    const struct dtype_info *info = dtype_info(source->dtype);
    want_pages(source);
    w->form = form_of(d, source, use, f32);
    w->dtype = source->dtype;
    w->rows = weight_rows(source);
    w->columns = weight_columns(source);
    w->row_bytes = w->columns / info->block_elements * info->block_bytes;
    if (w->form == FORM_IN_PLACE) {
        w->data = source->data;
        rc = cpu_memory_reserve(d, w->rows * w->row_bytes, source->name, e);
        if (rc < 0)
            w->row_bytes = 0;
    } else if (w->form == FORM_F32) {
        rc = load_vector(d, source, w, e);
    } else {
        rc = load_panels(d, source, w, e);
    }
    if (rc < 0)
        cpu_weight_free(device, &w);
    else
        *out = w;
    return rc;
}

void cpu_weight_free(struct device *device, struct device_weight **weight)
{
    struct cpu_device *d = (struct cpu_device *)device;
    struct device_weight *w = *weight;
    *weight = NULL;
    if (!w)
        return;
    if (w->owned_bytes)
        cpu_memory_free(d, (void *)(uintptr_t)w->data, w->owned_bytes);
    else if (w->form == FORM_IN_PLACE)
        atomic_fetch_sub(&d->used_bytes, w->rows * w->row_bytes);
    free(w);
}

/* ---- products
 * -----------------------------------------------------------------------------------------------
 */

struct matmul_job {
    struct cpu_device *device;
    const struct device_weight *w;
    const float *bias; /* [outputs] or NULL */
    const float *x;    /* [rows, inputs] */
    uint16_t *x_bf16;  /* [rows, x_stride] */
    size_t x_stride;   /* inputs as our kernel has them padded, or as oneDNN has them not */
    float *out;        /* [rows, outputs] */
    size_t rows;
    bool accumulate, by_rows;
    struct parts parts; /* of the rows, or of the outputs */
    atomic_bool failed;
};

/* Outputs [begin, end) of a group of outputs, all rows, for inputs [k0, k0 + n). */
static void in_place_chunk(const struct matmul_job *job, size_t begin, size_t end, size_t k0,
                           size_t n, float *panel)
{
    const struct device_weight *w = job->w;
    const struct cpu_kernels *k = job->device->kernels;
    const struct dtype_info *info = dtype_info(w->dtype);
    const uint8_t *weights =
        w->data + begin * w->row_bytes + k0 / info->block_elements * info->block_bytes;
    size_t stride = w->row_bytes;
    enum dtype t = w->dtype;
    if (panel) {
        for (size_t c = begin; c < end; c++)
            k->unpack[t](weights + (c - begin) * stride, n, panel + (c - begin) * DOT_CHUNK);
        weights = (const uint8_t *)panel;
        stride = DOT_CHUNK * sizeof(float);
        t = DTYPE_F32;
    }
    for (size_t r = 0; r < job->rows; r += DOT_MAX_ROWS) {
        int rows = job->rows - r < DOT_MAX_ROWS ? (int)(job->rows - r) : DOT_MAX_ROWS;
        k->dot[t](job->x + r * w->columns + k0, w->columns, rows, weights, stride, end - begin, n,
                  job->out + r * w->rows + begin, w->rows);
    }
}

static void add_bias(const struct matmul_job *job, size_t first_row, size_t end_row, size_t begin,
                     size_t end)
{
    for (size_t r = first_row; r < end_row && job->bias; r++)
        for (size_t c = begin; c < end; c++)
            job->out[r * job->w->rows + c] += job->bias[c];
}

/* Outputs that are computed together: a few, so that weights stream by once; many, where they are
 * unpacked for many rows. */
static size_t in_place_group(size_t rows)
{
    return rows >= IN_PLACE_PANEL_ROWS ? PANEL_OUTPUTS : 4;
}

static void in_place_part(void *ctx, int thread, uint32_t part)
{
    struct matmul_job *job = ctx;
    const struct device_weight *w = job->w;
    size_t group = in_place_group(job->rows), begin = parts_begin(&job->parts, part),
           end = parts_end(&job->parts, part);
    float *panel = NULL;
    if (job->rows >= IN_PLACE_PANEL_ROWS &&
        !(panel = scratch_get(job->device, &job->device->private[thread],
                              (size_t)PANEL_OUTPUTS * DOT_CHUNK * sizeof *panel))) {
        atomic_store(&job->failed, true);
        return;
    }
    for (size_t r = 0; r < job->rows && !job->accumulate; r++)
        memset(job->out + r * w->rows + begin, 0, (end - begin) * sizeof(float));
    for (size_t c = begin; c < end; c += group)
        for (size_t k0 = 0; k0 < w->columns; k0 += DOT_CHUNK)
            in_place_chunk(job, c, c + group < end ? c + group : end, k0,
                           w->columns - k0 < DOT_CHUNK ? w->columns - k0 : DOT_CHUNK, panel);
    add_bias(job, 0, job->rows, begin, end);
}

static void to_bf16(const struct matmul_job *job, size_t begin, size_t end)
{
    size_t columns = job->w->columns;
    for (size_t r = begin; r < end; r++) {
        uint16_t *row = job->x_bf16 + r * job->x_stride;
        job->device->kernels->f32_to_bf16(job->x + r * columns, columns, row);
        memset(row + columns, 0, (job->x_stride - columns) * sizeof *row);
    }
}

static void to_bf16_part(void *ctx, int thread, uint32_t part)
{
    const struct matmul_job *job = ctx;
    (void)thread;
    to_bf16(job, parts_begin(&job->parts, part), parts_end(&job->parts, part));
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
    add_bias(job, first_row, end_row, begin, end);
}

static void multiply_panels(struct matmul_job *job)
{
    struct cpu_device *d = job->device;
    size_t n_threads = (size_t)threads_count(d->threads);
    job->x_stride = job->rows <= FEW_ROWS ? job->w->padded_columns : job->w->columns;
    job->x_bf16 = scratch_get(d, &d->inputs, job->rows * job->x_stride * sizeof *job->x_bf16);
    if (!job->x_bf16) {
        atomic_store(&job->failed, true);
        return;
    }
    job->by_rows = job->rows > FEW_ROWS && (n_threads == 1 || job->rows >= ROW_SPLIT * n_threads);
    job->parts = threads_parts(d->threads, job->rows, 1, 0);
    if (job->rows <= FEW_ROWS)
        to_bf16(job, 0, job->rows);
    else
        threads_run(d->threads, job->parts.count, to_bf16_part, job);
    job->parts = job->by_rows ? threads_parts(d->threads, job->rows, ROW_SPLIT, ONEDNN_ROWS)
                              : threads_parts(d->threads, job->w->rows, PANEL_OUTPUTS, 0);
    threads_run(d->threads, job->parts.count, panels_part, job);
}

void cpu_matmul(struct stream *s, struct tensor in, const struct device_weight *weight,
                const struct device_weight *bias, uint32_t rows, bool accumulate, struct tensor out)
{
    assert(weight->form != FORM_F32 &&
           (uint64_t)rows * weight->columns * sizeof(float) <= in.bytes &&
           (uint64_t)rows * weight->rows * sizeof(float) <= out.bytes);
    struct matmul_job job = {.device = s->device,
                             .w = weight,
                             .bias = bias ? (const float *)(const void *)bias->data : NULL,
                             .x = in.data,
                             .out = out.data,
                             .rows = rows,
                             .accumulate = accumulate};
    if (weight->form == FORM_PANELS_BF16) {
        multiply_panels(&job);
    } else {
        job.parts = threads_parts(s->device->threads, weight->rows, in_place_group(rows), 0);
        threads_run(s->device->threads, job.parts.count, in_place_part, &job);
    }
    if (atomic_load(&job.failed))
        cpu_stream_fail(s, HP_EDEVICE,
                        "a matrix product failed: out of memory, or refused by oneDNN");
}
