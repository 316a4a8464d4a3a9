/* How the CPU keeps matrices.
 *
 * In place: the file's own rows, whatever their number format; products in float32, each output
 * summed in a fixed order (kernels.h), so that a result does not depend on the batch, and decode
 * reads no more bytes than the file has. This is `--compute f32`, where rows are mapped and never
 * copied, and `auto` of plain formats on CPUs without bf16 arithmetic, where large matrices move
 * into huge pages and some rows lie side by side there (kernels.h: the same bits come out).
 *
 * Blocks: the quantised rows of the file, in memory of our own and some of them side by side
 * (block_lanes.h). Decode multiplies them as integers (matmul_few.c); prefill makes panels of them
 * as it goes (matmul_blocks.c).
 *
 * Panels: bf16, packed at load as [outputs / 64][inputs / 2][64][2], inputs padded to 32 and both
 * ends with zeros: 64 outputs side by side, inputs in pairs. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "agent/backend/cpu/cpu_int.h"

enum {
    PAIR_STRIDE =
        DOT_CHUNK +
        32, /* of rows while packing: a power of two would put them all into the same cache sets */
};

static size_t round_up(size_t n, size_t unit)
{
    return (n + unit - 1) / unit * unit;
}

/* [outputs, inputs]; a vector has one row. */
static size_t weight_rows(const struct weight *w, enum weight_use use)
{
    return w->n_dims < 2 ? 1 : (size_t)w->shape[use == WEIGHT_MATMUL_TURNED ? 1 : 0];
}
static size_t weight_columns(const struct weight *w, enum weight_use use)
{
    return (size_t)w->shape[w->n_dims < 2 || use == WEIGHT_MATMUL_TURNED ? 0 : 1];
}

static enum weight_form form_of(const struct cpu_device *d, const struct weight *w,
                                enum weight_use use, bool f32)
{
    if (use == WEIGHT_VECTOR || use == WEIGHT_VECTOR_OF_ONE)
        return FORM_F32;
    if (use == WEIGHT_ROWS || f32 || weight_rows(w, use) * weight_columns(w, use) < d->least_values)
        return FORM_IN_PLACE;
    if (d->kernels->blocks->dot[w->dtype])
        return FORM_BLOCKS;
    return d->onednn ? FORM_PANELS_BF16 : FORM_IN_PLACE;
}

/* How many rows of a matrix lie side by side; 0: each for itself. */
static size_t lanes_of(const struct cpu_device *d, const struct weight *w, enum weight_use use,
                       bool f32)
{
    enum weight_form form = form_of(d, w, use, f32);
    if (form == FORM_BLOCKS)
        return d->kernels->blocks->lanes;
    bool own = form == FORM_IN_PLACE && !f32 && use == WEIGHT_MATMUL && w->stored == WEIGHT_PLAIN &&
               weight_rows(w, use) * weight_columns(w, use) >= d->least_values;
    return own && d->kernels->dot_side[w->dtype] &&
                   weight_columns(w, use) % d->kernels->side_values == 0
               ? SIDE_ROWS
               : 0;
}

static uint64_t parts_resident_bytes(const struct device *d, const struct weight *w,
                                     enum weight_use use, bool f32)
{
    uint64_t bytes = 0;
    for (int i = 0; i < w->n_parts; i++)
        bytes += cpu_weight_resident_bytes(d, w->parts[i], use, f32);
    return bytes;
}

uint64_t cpu_weight_resident_bytes(const struct device *device, const struct weight *w,
                                   enum weight_use use, bool f32)
{
    const struct cpu_device *d = (const struct cpu_device *)device;
    if (w->n_parts > 0)
        return parts_resident_bytes(device, w, use, f32);
    size_t rows = weight_rows(w, use), columns = weight_columns(w, use),
           lanes = lanes_of(d, w, use, f32);
    switch (form_of(d, w, use, f32)) {
    case FORM_BLOCKS:
    case FORM_IN_PLACE:
        return (lanes ? block_lanes_rows(lanes, rows) : rows) *
               (columns / dtype_info(w->dtype)->block_elements * dtype_info(w->dtype)->block_bytes);
    case FORM_F32: return rows * columns * sizeof(float);
    case FORM_PANELS_BF16:
        return round_up(rows, PANEL_OUTPUTS) * round_up(columns, PANEL_INPUTS) * sizeof(uint16_t);
    }
    return 0;
}

/* A product of one expert, and its rows side by side. */
static uint64_t parts_scratch_bytes(const struct device *device, const struct weight *w,
                                    enum weight_use use, bool f32, uint32_t rows)
{
    const struct cpu_device *d = (const struct cpu_device *)device;
    const struct weight *part = w->parts[0];
    uint64_t bytes = cpu_gather_bytes((uint64_t)w->n_parts, (uint64_t)w->n_parts_used, rows,
                                      part->shape[0], part->shape[1]);
    return cpu_matmul_scratch_bytes(device, part, use, f32, rows) +
           (bytes > d->gathered.bytes ? bytes - d->gathered.bytes : 0);
}

uint64_t cpu_matmul_scratch_bytes(const struct device *device, const struct weight *w,
                                  enum weight_use use, bool f32, uint32_t rows)
{
    const struct cpu_device *d = (const struct cpu_device *)device;
    if (w->n_parts > 0)
        return parts_scratch_bytes(device, w, use, f32, rows);
    enum weight_form form = form_of(d, w, use, f32);
    uint64_t columns = weight_columns(w, use),
             bf16 = rows * weight_padded(columns) * sizeof(uint16_t),
             bytes = form == FORM_PANELS_BF16 ? bf16 : 0;
    if (form == FORM_BLOCKS) { /* the greater of what few rows and many rows take */
        uint64_t most = matmul_panel_rows(d, w->dtype), few = rows < most ? rows : most - 1;
        bytes = matmul_few_bytes(few, columns);
        if (few < rows && matmul_tiles_bytes(rows, columns) > bytes)
            bytes = matmul_tiles_bytes(rows, columns);
    }
    if (form == FORM_IN_PLACE && matmul_by_words(d, lanes_of(d, w, use, f32), columns, rows))
        bytes = word_tiles_bytes(rows, columns);
    return bytes > d->inputs.bytes ? bytes - d->inputs.bytes : 0;
}

/* As many tiles as are multiplied at once; else two: slices of odd numbers of them take 0.5 %
 * longer (66 to 102 tokens), since attention goes by 24 tokens where eight heads share keys. Which
 * of a mixture's experts take how many rows is chance. */
uint32_t cpu_matmul_row_step(const struct device *device, const struct weight *w,
                             enum weight_use use, bool f32)
{
    const struct cpu_device *d = (const struct cpu_device *)device;
    if (w->n_parts != 0 || form_of(d, w, use, f32) != FORM_BLOCKS)
        return 0;
    return (d->kernels->blocks->joined_dot[w->dtype] ? BLOCK_JOIN_MOST : 2) * BLOCK_TILE;
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

struct pack_job {
    struct cpu_device *device;
    const struct weight *source;
    struct device_weight *w;
    uint16_t *panels;
    struct parts parts; /* of the panels */
    uint8_t *scratch;   /* [threads, and the guest]: of panel_scratch_bytes */
};

static size_t panel_scratch_bytes(void)
{
    return (size_t)PANEL_TURN_ROWS * PAIR_STRIDE * sizeof(uint16_t) + DOT_CHUNK * sizeof(float);
}

/* Inputs [k0, k0 + n), n at most DOT_CHUNK, of outputs [first, first + PANEL_OUTPUTS) of the rows
 * at `data`, as a panel of weight_padded(n) inputs: turned from rows of values into columns of
 * pairs. What there is no output for becomes zeros. */
static void panel_make(const struct cpu_device *d, const struct device_weight *w,
                       const uint8_t *data, size_t first, size_t k0, size_t n, uint16_t *scratch,
                       uint16_t *panel)
{
    const struct cpu_kernels *k = d->kernels;
    const struct dtype_info *info = dtype_info(w->dtype);
    uint16_t *rows = scratch;
    float *values = (float *)(void *)(rows + (size_t)PANEL_TURN_ROWS * PAIR_STRIDE);
    size_t padded = weight_padded(n);
    for (size_t c = 0; c < PANEL_OUTPUTS; c++) {
        uint16_t *row = rows + c % PANEL_TURN_ROWS * PAIR_STRIDE;
        memset(row + n, 0, (padded - n) * sizeof *row);
        if (first + c < w->rows) {
            kernels_unpack(k, w->dtype,
                           data + (first + c) * w->row_bytes +
                               k0 / info->block_elements * info->block_bytes,
                           n, values);
            k->f32_to_bf16(values, n, row);
        } else {
            memset(row, 0, n * sizeof *row);
        }
        if (c % PANEL_TURN_ROWS == PANEL_TURN_ROWS - 1)
            k->panel_turn(rows, PAIR_STRIDE, padded, panel + (c + 1 - PANEL_TURN_ROWS) * 2);
    }
}

static void pack_part(void *ctx, int thread, uint32_t part)
{
    struct pack_job *job = ctx;
    const struct device_weight *w = job->w;
    uint16_t *scratch = (uint16_t *)(void *)(job->scratch + (size_t)thread * panel_scratch_bytes());
    for (size_t panel = parts_begin(&job->parts, part); panel < parts_end(&job->parts, part);
         panel++) {
        for (size_t k0 = 0; k0 < w->columns; k0 += DOT_CHUNK)
            panel_make(job->device, w, job->source->data, panel * PANEL_OUTPUTS, k0,
                       w->columns - k0 < DOT_CHUNK ? w->columns - k0 : DOT_CHUNK, scratch,
                       job->panels + (panel * w->padded_columns + k0) * PANEL_OUTPUTS);
        size_t first = panel * PANEL_OUTPUTS,
               n = w->rows - first < PANEL_OUTPUTS ? w->rows - first : PANEL_OUTPUTS;
        release_pages(job->source, first * w->row_bytes, n * w->row_bytes);
    }
}

static int load_panels(struct cpu_device *d, const struct weight *source, struct device_weight *w,
                       struct err *e)
{
    struct pack_job job = {.device = d, .source = source, .w = w};
    w->padded_columns = weight_padded(w->columns);
    uint64_t bytes = round_up(w->rows, PANEL_OUTPUTS) * w->padded_columns * sizeof(uint16_t);
    void *memory;
    int rc = cpu_memory_alloc(d, bytes, source->name, &memory, e);
    if (rc < 0)
        return rc;
    w->data = memory;
    job.panels = memory;
    w->owned_bytes = bytes;
    job.parts = threads_parts(d->threads, round_up(w->rows, PANEL_OUTPUTS) / PANEL_OUTPUTS, 1, 0);
    job.scratch = malloc(((size_t)threads_count(d->threads) + 1) * panel_scratch_bytes());
    if (!job.scratch)
        return err_set(e, HP_ENOMEM, "no memory to pack %s", source->name);
    threads_run(d->threads, job.parts.count, pack_part, &job);
    free(job.scratch);
    return 0;
}

/* n rows from r on, at most a group, side by side. */
static void group_put(const struct pack_job *job, size_t r, size_t n)
{
    const struct device_weight *w = job->w;
    const struct dtype_info *info = dtype_info(w->dtype);
    const uint8_t *rows = job->source->data + r * w->row_bytes;
    uint8_t *to = (uint8_t *)(void *)job->panels + r * w->row_bytes;
    if (w->form == FORM_BLOCKS)
        block_lanes_put(w->dtype, w->lanes, rows, n, w->row_bytes, w->row_bytes / info->block_bytes,
                        to);
    else
        plain_side_put(job->device->kernels->side_values * info->block_bytes, w->lanes, rows, n,
                       w->row_bytes, to);
}

/* `panels` gets the rows of the source, in groups side by side where they lie so. */
static void rows_part(void *ctx, int thread, uint32_t part)
{
    struct pack_job *job = ctx;
    const struct device_weight *w = job->w;
    size_t r = parts_begin(&job->parts, part), end = parts_end(&job->parts, part),
           begin = r * w->row_bytes, bytes = end * w->row_bytes - begin;
    (void)thread;
    for (; w->lanes && r < end; r += w->lanes)
        group_put(job, r, end - r < w->lanes ? end - r : w->lanes);
    if (!w->lanes)
        memcpy((uint8_t *)(void *)job->panels + begin, job->source->data + begin, bytes);
    release_pages(job->source, begin, bytes);
}

/* In memory of our own: huge pages, which decode reads 1.5 times as fast. */
static int load_rows(struct cpu_device *d, const struct weight *source, struct device_weight *w,
                     struct err *e)
{
    struct pack_job job = {.device = d, .source = source, .w = w};
    size_t lanes = w->lanes;
    uint64_t bytes = (lanes ? block_lanes_rows(lanes, w->rows) : w->rows) * w->row_bytes;
    void *memory;
    int rc = cpu_memory_alloc(d, bytes, source->name, &memory, e);
    if (rc < 0)
        return rc;
    w->data = memory;
    w->owned_bytes = bytes;
    job.panels = memory;
    job.parts = threads_parts(d->threads, w->rows, lanes ? lanes : 1, 0);
    threads_run(d->threads, job.parts.count, rows_part, &job);
    return 0;
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
    kernels_unpack(d->kernels, w->dtype, source->data, w->rows * w->columns, memory);
    return 0;
}

/* What was kept as what it differs from 1. */
static void vector_one_more(struct device_weight *w)
{
    float *values = (float *)(uintptr_t)w->data;
    for (size_t i = 0; i < w->columns; i++)
        values[i] += 1;
}

/* The source with rows and columns exchanged, in memory of our own. */
static int turned_make(struct cpu_device *d, const struct weight *source, struct weight *out,
                       struct err *e)
{
    size_t size = dtype_info(source->dtype)->block_bytes, rows = (size_t)source->shape[0],
           columns = (size_t)source->shape[1];
    void *memory;
    int rc = cpu_memory_alloc(d, source->bytes, source->name, &memory, e);
    if (rc < 0)
        return rc;
    for (size_t r = 0; r < rows; r++)
        for (size_t c = 0; c < columns; c++)
            memcpy((uint8_t *)memory + (c * rows + r) * size,
                   source->data + (r * columns + c) * size, size);
    release_pages(source, 0, source->bytes);
    *out = *source;
    out->shape[0] = columns;
    out->shape[1] = rows;
    out->data = memory;
    out->file = -1;
    return 0;
}

/* Rows as the format has them, where the file keeps them otherwise. */
static void made_part(void *ctx, int thread, uint32_t part)
{
    struct pack_job *job = ctx;
    size_t begin = parts_begin(&job->parts, part), end = parts_end(&job->parts, part);
    (void)thread;
    weight_rows_make(job->source, begin, end - begin,
                     (uint8_t *)(void *)job->panels + begin * job->w->row_bytes);
}

/* The source with the bytes of its format, in memory of our own. */
static int made_make(struct cpu_device *d, const struct weight *source, struct device_weight *w,
                     struct weight *out, struct err *e)
{
    struct pack_job job = {.device = d, .source = source, .w = w};
    void *memory;
    *out = *source;
    out->bytes = weight_dtype_bytes(source);
    int rc = cpu_memory_alloc(d, out->bytes, source->name, &memory, e);
    if (rc < 0)
        return rc;
    job.panels = memory;
    job.parts = threads_parts(d->threads, weight_shape_rows(source), 1, 0);
    threads_run(d->threads, job.parts.count, made_part, &job);
    release_pages(source, 0, source->bytes);
    out->stored = WEIGHT_PLAIN;
    out->data = memory;
    out->file = -1;
    return 0;
}

/* `own`: whether what stays as the file has it does so in memory of our own. */
static int load_in_form(struct cpu_device *d, const struct weight *source, struct device_weight *w,
                        bool own, struct err *e)
{
    if (w->form == FORM_F32)
        return load_vector(d, source, w, e);
    if (w->form == FORM_PANELS_BF16)
        return load_panels(d, source, w, e);
    if (w->form == FORM_BLOCKS)
        return load_rows(d, source, w, e);
    if (own)
        return load_rows(d, source, w, e);
    w->data = source->data;
    if (w->of_rows) /* few of them are ever read: those come back */
        release_pages(source, 0, source->bytes);
    int rc = cpu_memory_reserve(d, w->rows * w->row_bytes, source->name, e);
    if (rc < 0)
        w->row_bytes = 0;
    return rc;
}

/* Made or turned first: that copy is what stays in place, or what panels are packed from. */
static int load_copied(struct cpu_device *d, const struct weight *source, struct device_weight *w,
                       struct err *e)
{
    struct weight turned;
    int rc = source->stored != WEIGHT_PLAIN ? made_make(d, source, w, &turned, e)
                                            : turned_make(d, source, &turned, e);
    if (rc < 0)
        return rc;
    if (w->form == FORM_IN_PLACE) {
        w->data = turned.data;
        w->owned_bytes = turned.bytes;
        return 0;
    }
    rc = load_in_form(d, &turned, w, false, e);
    cpu_memory_free(d, (void *)(uintptr_t)turned.data, turned.bytes);
    return rc;
}

/* Experts: each matrix as any other. */
static int parts_load(struct device *d, const struct weight *source, enum weight_use use, bool f32,
                      struct device_weight *w, struct err *e)
{
    w->parts = calloc((size_t)source->n_parts, sizeof *w->parts);
    if (!w->parts)
        return err_set(e, HP_ENOMEM, "no memory for %s", source->name);
    for (int i = 0; i < source->n_parts; i++) {
        int rc = cpu_weight_load(d, source->parts[i], use, f32, &w->parts[i], e);
        if (rc < 0)
            return rc;
        w->n_parts++;
    }
    return 0;
}

int cpu_weight_load(struct device *device, const struct weight *source, enum weight_use use,
                    bool f32, struct device_weight **out, struct err *e)
{
    struct cpu_device *d = (struct cpu_device *)device;
    /* Each of many experts is looked at when its turn comes: reading all first would read twice. */
    int rc = source->n_parts > 0 ? 0 : backend_weight_check(source, use, e);
    if (rc < 0)
        return rc;
    struct device_weight *w = calloc(1, sizeof *w);
    if (!w)
        return err_set(e, HP_ENOMEM, "no memory for %s", source->name);
    if (source->n_parts > 0) {
        rc = parts_load(device, source, use, f32, w, e);
        if (rc < 0)
            cpu_weight_free(device, &w);
        *out = w;
        return rc;
    }
    const struct dtype_info *info = dtype_info(source->dtype);
    w->form = form_of(d, source, use, f32);
    w->dtype = source->dtype;
    w->of_rows = use == WEIGHT_ROWS;
    w->rows = weight_rows(source, use);
    w->columns = weight_columns(source, use);
    w->row_bytes = w->columns / info->block_elements * info->block_bytes;
    w->lanes = lanes_of(d, source, use, f32);
    bool own = !f32 && use == WEIGHT_MATMUL && w->rows * w->columns >= d->least_values;
    rc = use == WEIGHT_MATMUL_TURNED || source->stored != WEIGHT_PLAIN
             ? load_copied(d, source, w, e)
             : load_in_form(d, source, w, own, e);
    if (rc == 0 && use == WEIGHT_VECTOR_OF_ONE)
        vector_one_more(w);
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
    for (int i = 0; i < w->n_parts; i++)
        cpu_weight_free(device, &w->parts[i]);
    free(w->parts);
    if (w->owned_bytes)
        cpu_memory_free(d, (void *)(uintptr_t)w->data, w->owned_bytes);
    else if (w->form == FORM_IN_PLACE)
        atomic_fetch_sub(&d->used_bytes, w->rows * w->row_bytes);
    free(w);
}
