/* Weights on a GPU: matrices and tables with the bytes of their format, vectors as float32. Tables
 * of rows, of which a batch reads few, may lie in the host's memory, and so may small weights:
 * kernels read them there (direct host access: DeepPlan, EuroSys 2023, section 3.1). */
#include <stdlib.h>
#include <string.h>

#include "agent/backend/cuda/cuda_int.h"
#include "agent/backend/cuda/kernels.h"

enum { CHUNK_BYTES = 16 << 20 }; /* made on the host at a time */

static bool is_vector(enum weight_use use)
{
    return use == WEIGHT_VECTOR || use == WEIGHT_VECTOR_OF_ONE;
}

static uint64_t weight_elements(const struct weight *w)
{
    return weight_shape_rows(w) * weight_shape_columns(w);
}

/* With all of its parts. */
static uint64_t matrix_bytes(const struct weight *w)
{
    uint64_t bytes = 0;
    for (int i = 0; i < w->n_parts; i++)
        bytes += weight_dtype_bytes(w->parts[i]);
    return w->n_parts ? bytes : weight_dtype_bytes(w);
}

/* Of matrices up to the next multiple of what decode reads at a time. */
static uint64_t kept_bytes(const struct weight *w, enum weight_use use)
{
    return is_vector(use)
               ? weight_elements(w) * sizeof(float)
               : (matrix_bytes(w) + GPU_LOAD_BYTES - 1) / GPU_LOAD_BYTES * GPU_LOAD_BYTES;
}

static bool goes_to_host(const struct cuda_device *d, const struct weight *w, enum weight_use use)
{
    uint64_t bytes = kept_bytes(w, use);
    return (use == WEIGHT_ROWS || bytes <= d->small_bytes) && bytes <= cuda_host_free(d);
}

uint64_t cuda_weight_resident_bytes(const struct device *d, const struct weight *w,
                                    enum weight_use use, bool f32)
{
    (void)f32; /* small ones may find the host's room taken: they are counted */
    return use == WEIGHT_ROWS && goes_to_host((const struct cuda_device *)d, w, use)
               ? 0
               : cuda_steps_bytes(kept_bytes(w, use));
}

/* Where its weights lie. NULL of `from`: zeros. */
struct fill {
    struct cuda_device *device;
    bool on_host;
};
static int fill_put(const struct fill *f, void *to, const void *from, uint64_t bytes, struct err *e)
{
    if (!f->on_host)
        return cuda_upload(f->device, to, from, bytes, e);
    if (from)
        memcpy(to, from, bytes);
    else
        memset(to, 0, bytes);
    return 0;
}

static int vector_fill(const struct fill *f, const struct weight *source, bool of_one, void *to,
                       struct err *e)
{
    uint64_t n = weight_elements(source);
    float *values = malloc(n * sizeof *values + 1);
    if (!values)
        return err_set(e, HP_ENOMEM, "no memory for %s", source->name);
    dtype_info(source->dtype)->to_f32(source->data, n, values);
    for (uint64_t i = 0; of_one && i < n; i++)
        values[i] += 1;
    int rc = fill_put(f, to, values, n * sizeof *values, e);
    free(values);
    return rc;
}

/* Rows whose bytes are made of two tensors of the file. */
static int matrix_make(const struct fill *f, const struct weight *source, uint8_t *to,
                       struct err *e)
{
    uint64_t rows = weight_shape_rows(source), row_bytes = weight_dtype_bytes(source) / rows,
             most = row_bytes < CHUNK_BYTES ? CHUNK_BYTES / row_bytes : 1;
    uint8_t *chunk = malloc(most * row_bytes);
    int rc = chunk ? 0 : err_set(e, HP_ENOMEM, "no memory for %s", source->name);
    for (uint64_t r = 0; rc == 0 && r < rows; r += most) {
        uint64_t n = rows - r < most ? rows - r : most;
        weight_rows_make(source, r, n, chunk);
        rc = fill_put(f, to + r * row_bytes, chunk, n * row_bytes, e);
    }
    free(chunk);
    return rc;
}

static int matrix_fill(const struct fill *f, const struct weight *source, void *to, struct err *e)
{
    return source->stored != WEIGHT_PLAIN
               ? matrix_make(f, source, to, e)
               : fill_put(f, to, source->data, weight_dtype_bytes(source), e);
}

static int weight_check(const struct weight *w, enum weight_use use, struct err *e)
{
    for (int i = 0; i < w->n_parts; i++)
        if (w->parts[i]->dtype != w->dtype)
            return err_set(e, HP_EUNSUPPORTED, "%s: the cuda backend wants all parts in one format",
                           w->name);
    if (!is_vector(use) && !gpu_product_knows((int)w->dtype))
        return err_set(e, HP_EUNSUPPORTED, "%s: the cuda backend has no kernel for %s", w->name,
                       w->format);
    return backend_weight_check(w, use, e);
}

void cuda_weight_free(struct device *d, struct device_weight **weight)
{
    struct cuda_weight *w = (struct cuda_weight *)*weight;
    *weight = NULL;
    if (!w)
        return;
    if (w->on_host)
        cuda_host_give((struct cuda_device *)d, w->data, w->counted_bytes);
    else
        cuda_give((struct cuda_device *)d, w->data, w->counted_bytes);
    free(w);
}

static int weight_fill(struct cuda_device *d, struct cuda_weight *w, const struct weight *source,
                       struct err *e)
{
    uint64_t bytes = matrix_bytes(source);
    w->on_host = goes_to_host(d, source, w->use) && cuda_host_take(d, w->counted_bytes, &w->data);
    const struct fill f = {d, w->on_host};
    int rc = w->on_host ? 0 : cuda_take(d, w->counted_bytes, source->name, &w->data, e);
    if (rc == 0 && is_vector(w->use))
        rc = vector_fill(&f, source, w->use == WEIGHT_VECTOR_OF_ONE, w->data, e);
    for (int i = 0; rc == 0 && i < source->n_parts; i++)
        rc = matrix_fill(&f, source->parts[i], (uint8_t *)w->data + (uint64_t)i * w->part_bytes, e);
    if (rc == 0 && !is_vector(w->use) && source->n_parts == 0)
        rc = matrix_fill(&f, source, w->data, e);
    if (rc == 0 && !is_vector(w->use) && w->counted_bytes > bytes)
        rc = fill_put(&f, (uint8_t *)w->data + bytes, NULL, w->counted_bytes - bytes, e);
    return rc;
}

int cuda_weight_load(struct device *device, const struct weight *source, enum weight_use use,
                     bool f32, struct device_weight **out, struct err *e)
{
    struct cuda_device *d = (struct cuda_device *)device;
    int rc = weight_check(source, use, e);
    struct cuda_weight *w = rc == 0 ? calloc(1, sizeof *w) : NULL;
    if (!w)
        return rc < 0 ? rc : err_set(e, HP_ENOMEM, "no memory for %s", source->name);
    w->dtype = source->dtype;
    w->use = use;
    const struct weight *one = source->n_parts ? source->parts[0] : source;
    w->shape[0] = one->shape[0];
    w->shape[1] = one->n_dims > 1 ? one->shape[1] : 1;
    w->part_bytes = source->n_parts ? weight_dtype_bytes(one) : 0;
    w->parts = (uint32_t)source->n_parts;
    w->counted_bytes = kept_bytes(source, use);
    w->f32 = f32;
    w->row_bytes = is_vector(use) ? 0 : weight_dtype_bytes(one) / w->shape[0];
    rc = weight_fill(d, w, source, e);
    struct device_weight *made = (struct device_weight *)w;
    if (rc < 0)
        cuda_weight_free(device, &made);
    else
        *out = made;
    return rc;
}
