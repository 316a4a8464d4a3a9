/* Devices of the cuda backend, and its table. */
#include "agent/backend/cuda/cuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/backend/cuda/cuda_int.h"
#include "agent/backend/cuda/kernels.h"

/* ---- devices ---- */

static int versions_check(struct err *e)
{
    int driver = 0, runtime = 0;
    gpu_versions(&driver, &runtime);
    if (driver == 0) {
        err_set(e, HP_EDEVICE, "this box has no NVIDIA driver");
        return err_hint(e, "nvidia-smi says what it has; without a GPU leave --device cuda out");
    }
    if (driver / 1000 < runtime / 1000) {
        err_set(e, HP_EDEVICE,
                "the NVIDIA driver knows CUDA %d.%d, and libhp-cuda.so was built with %d.%d",
                driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
        return err_hint(e, "update the driver, or build the plugin with an older CUDA");
    }
    return 0;
}

/* Makes the device the calling thread's. */
static int ordinal_enter(int ordinal, const struct device_part *part, struct cuda_part_facts *facts,
                         struct err *e)
{
    int n = 0, rc = versions_check(e);
    rc = rc < 0 ? rc : cuda_part_enter(ordinal, part, facts, e);
    if (rc < 0)
        return rc;
    rc = gpu_count(&n);
    if (rc)
        return err_set(e, HP_EDEVICE, "no GPU can be used: %s (CUDA error %d)", gpu_error_text(rc),
                       rc);
    if (ordinal < 0 || ordinal >= n)
        return err_set(e, HP_EDEVICE, "there is no device cuda:%d: this box has %d GPUs", ordinal,
                       n);
    rc = gpu_use(ordinal);
    return rc ? err_set(e, HP_EDEVICE, "device cuda:%d: %s (CUDA error %d)", ordinal,
                        gpu_error_text(rc), rc)
              : 0;
}

static int facts_find(int ordinal, const struct device_part *part, struct plugin_facts *out,
                      struct err *e)
{
    struct gpu_facts f;
    struct cuda_part_facts own;
    int rc = ordinal_enter(ordinal, part, &own, e);
    if (rc < 0)
        return rc;
    rc = gpu_facts_read(ordinal, &f);
    if (rc)
        return err_set(e, HP_EDEVICE, "device cuda:%d: %s (CUDA error %d)", ordinal,
                       gpu_error_text(rc), rc);
    snprintf(out->name, sizeof out->name, "%s", f.name);
    out->total_bytes = f.total_bytes;
    out->free_bytes = f.free_bytes;
    out->multiprocessors = own.all ? own.multiprocessors : f.multiprocessors;
    out->all_multiprocessors = own.kept_by ? own.all : f.multiprocessors;
    out->kept_by = own.kept_by;
    return 0;
}

static void close_device(struct device **device)
{
    struct cuda_device *d = (struct cuda_device *)*device;
    *device = NULL;
    cuda_watch_fini(&d->watch);
    gpu_use(d->ordinal);
    if (d->load_stream)
        gpu_stream_destroy(d->load_stream);
    cuda_tuning_fini(&d->tuning);
    cuda_arena_fini(&d->arena);
    if (d->part)
        gpu_part_close(d->part);
    pthread_mutex_destroy(&d->load_lock);
    free(d);
}

static void device_text_write(struct cuda_device *d, const struct cuda_part_facts *part)
{
    int n = snprintf(d->text, sizeof d->text, "%s %.100s, compute capability %d.%d, ", d->title,
                     d->facts.name, d->facts.major, d->facts.minor);
    if (part->all)
        d->facts.multiprocessors = part->multiprocessors;
    snprintf(d->text + n, sizeof d->text - (size_t)n, "%d%s%.0d multiprocessors",
             d->facts.multiprocessors, part->all ? " of " : "", part->all);
}

/* What it needs of the GPU: its part, a stream, memory: as much as it may have, or nine tenths of
 * what is free. */
static int device_take(struct cuda_device *d, const struct device_config *c,
                       const struct cuda_part_facts *part, struct err *e)
{
    int rc = gpu_facts_read(d->ordinal, &d->facts);
    if (!rc && part->all)
        rc = gpu_part_open(d->ordinal, c->part.cut, c->part.first, c->part.count, &d->part);
    rc = rc ? rc : cuda_handle_create(d->part, &d->load_stream);
    if (rc)
        return cuda_fail(rc, d, "opening it", e);
    d->limit_bytes = c->memory_bytes ? c->memory_bytes : d->facts.free_bytes / 10 * 9;
    d->host_limit_bytes = c->host_bytes;
    d->small_bytes = c->small_bytes;
    return cuda_memory_open(d, e);
}

static int open_device(const struct device_config *c, struct device **out, struct err *e)
{
    struct cuda_part_facts part;
    int rc = ordinal_enter(c->ordinal, &c->part, &part, e);
    struct cuda_device *d = rc == 0 ? calloc(1, sizeof *d) : NULL;
    if (!d)
        return rc < 0 ? rc : err_set(e, HP_ENOMEM, "no memory for a device");
    d->base.backend = &cuda_backend;
    d->ordinal = c->ordinal;
    d->cut = c->part;
    cuda_title_write(c->ordinal, &c->part, d->title);
    pthread_mutex_init(&d->load_lock, NULL);
    cuda_arena_init(&d->arena);
    cuda_watch_init(&d->watch);
    cuda_tuning_init(&d->tuning);
    struct device *made = &d->base;
    rc = device_take(d, c, &part, e);
    if (rc < 0) {
        close_device(&made);
        return rc;
    }
    struct gpu_blas *blas = gpu_blas_open(); /* streams have one each */
    d->has_blas = blas != NULL;
    gpu_blas_close(blas);
    device_text_write(d, &part);
    *out = made;
    return 0;
}

static const char *device_text(const struct device *d)
{
    return ((const struct cuda_device *)d)->text;
}

static int device_choices(const struct device *device, struct device_choice *out, int room)
{
    struct cuda_device *d = (struct cuda_device *)(uintptr_t)device; /* for its locks */
    const char *half = d->facts.major >= 8 ? "bf16" : "f16";
    struct device_choice measured,
        all[6] = {{"instructions", "", ""},
                  {"products, at most 8 rows", "weights read in place",
                   "quantised ones multiplied as 8-bit integers"},
                  {"products, more rows", "", ""},
                  {"sampling", "on the device",
                   "the host picks where a sum is in doubt, under a grammar, and "
                   "where more than the token is asked for"},
                  {"tables of embeddings", "in the host's memory",
                   "as much as host=BYTES has room for; rows are gathered there"}};
    if (d->facts.major >= 8)
        snprintf(all[1].why, sizeof all[1].why,
                 "quantised ones multiplied as 8-bit integers, 2 rows and more by tensor cores");
    snprintf(all[0].how, sizeof all[0].how, "cuda %d.%d", d->facts.major, d->facts.minor);
    snprintf(all[0].why, sizeof all[0].why, "%s", d->facts.name);
    snprintf(all[2].how, sizeof all[2].how, "%s", d->has_blas ? "cuBLASLt" : "float32");
    snprintf(all[2].why, sizeof all[2].why, "%s%s", d->has_blas ? half : "there is no libcublasLt",
             d->has_blas ? " with float32 sums; F16 weights as they are" : "");
    int rows = d->host_limit_bytes ? 5 : 4;
    if (cuda_tuning_say(&d->tuning, &measured))
        all[rows++] = measured;
    int n = room < rows ? room : rows;
    for (int i = 0; i < n; i++)
        out[i] = all[i];
    return n;
}

/* Makes the GPU the calling thread's. */
static void thread_enter(struct device *d)
{
    gpu_use(((struct cuda_device *)d)->ordinal);
}

static void host_spread(struct device *d, uint32_t n, void (*work)(void *ctx, uint32_t part),
                        void *ctx)
{
    (void)d;
    for (uint32_t i = 0; i < n; i++)
        work(ctx, i);
}

const struct backend cuda_backend = {
    .name = "cuda",
    .device_open = open_device,
    .device_close = close_device,
    .device_describe = device_text,
    .choices = device_choices,
    .own_memory = true,
    .memory_free = cuda_memory_free,
    .memory_kind = MEMORY_CUDA,
    .memory_enter = thread_enter,
    .loader_enter = thread_enter,
    .host_spread = host_spread,
    .weight_resident_bytes = cuda_weight_resident_bytes,
    .matmul_scratch_bytes = cuda_matmul_scratch_bytes,
    .stream_reserve = cuda_stream_reserve,
    .op_bytes = cuda_op_bytes,
    .weight_load = cuda_weight_load,
    .weight_free = cuda_weight_free,
    .memory_step = CUDA_STEP,
    .memory_alloc = cuda_memory_alloc,
    .memory_release = cuda_memory_release,
    .stream_create = cuda_stream_create,
    .stream_destroy = cuda_stream_destroy,
    .stream_wait = cuda_stream_wait,
    .event_create = cuda_event_create,
    .event_destroy = cuda_event_destroy,
    .event_record = cuda_event_record,
    .event_wait = cuda_event_wait,
    .event_pending = cuda_event_pending,
    .copy = cuda_copy,
    .sample = cuda_sample,
    .op_supports = cuda_op_supports,
    .op_prepare = cuda_op_prepare,
    .op_release = cuda_op_release,
    .op_run = cuda_op_run,
    .ops_run = cuda_ops_run,
    .steps_begin = cuda_steps_begin,
    .steps_end = cuda_steps_end,
    .kv_page_bytes = cuda_kv_page_bytes,
    .kv_export = cuda_kv_export,
    .kv_import = cuda_kv_import,
    .arrays = &cuda_arrays,
};

const struct plugin hp_backend_plugin = {PLUGIN_MAGIC,     sizeof(struct plugin), HP_VERSION,
                                         plugin_interface, &cuda_backend,         facts_find};
