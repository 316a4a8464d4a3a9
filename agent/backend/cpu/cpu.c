#include "agent/backend/cpu/cpu.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include "agent/backend/cpu/cpu_int.h"
#include "agent/backend/cpu/onednn.h"

/* ---- the device ---- */

static void close_device(struct device **device)
{
    struct cpu_device *d = (struct cpu_device *)*device;
    *device = NULL;
    if (!d)
        return;
    for (int i = 0; d->private && i < threads_count(d->threads); i++)
        free(d->private[i].data);
    free(d->private);
    free(d->inputs.data);
    free(d->gathered.data);
    onednn_destroy(&d->onednn);
    threads_destroy(&d->threads);
    numa_destroy(&d->numa);
    free(d);
}

static int count_threads(const struct device_config *c)
{
    if (c->n_threads > 0)
        return c->n_threads;
    return c->cores && c->n_cores > 0 ? c->n_cores : threads_possible();
}

/* Each thread of the device's own on the cores of one node. */
static void threads_place(struct cpu_device *d, int n)
{
    for (int i = 1; d->numa && i < n; i++) {
        cpu_set_t cores;
        numa_thread_cores(d->numa, i, n, &cores);
        threads_keep(d->threads, i, &cores);
    }
}

/* A smaller matrix stays in the cache: other numbers would save nothing there and round all the
 * same. Tests have small models computed as large ones are. */
static size_t least_values(void)
{
    const char *tested = getenv("HP_TEST_LEAST_VALUES");
    return tested ? strtoul(tested, NULL, 10) : (size_t)1 << 18;
}

static int open_device(const struct device_config *c, struct device **out, struct err *e)
{
    if (c->n_threads < 0)
        return err_set(e, HP_EINVAL, "%d threads make no device", c->n_threads);
    struct cpu_device *d = calloc(1, sizeof *d);
    if (!d)
        return err_set(e, HP_ENOMEM, "no memory for a device");
    d->base.backend = &cpu_backend;
    d->limit_bytes = c->memory_bytes;
    d->least_values = least_values();
    int n = count_threads(c), rc = kernels_choose(c->kernels, &d->kernels, e);
    if (rc == 0)
        rc = numa_create(c->box, c->cores, c->n_cores, &d->numa, e);
    if (rc == 0)
        rc = threads_create(n, c->cores, c->n_cores, &d->threads, e);
    if (rc == 0)
        threads_place(d, n);
    if (rc == 0 && d->kernels->panel_dot)
        rc = onednn_create(n, &d->onednn, e);
    if (rc == 0 && !(d->private = calloc((size_t)n, sizeof *d->private)))
        rc = err_set(e, HP_ENOMEM, "no memory for a device");
    struct device *device = &d->base;
    if (rc < 0) {
        close_device(&device);
        return rc;
    }
    snprintf(d->description, sizeof d->description, "cpu %s, %d thread%s", d->kernels->name, n,
             n == 1 ? "" : "s");
    *out = device;
    return 0;
}

static const char *cpu_describe(const struct device *d)
{
    return ((const struct cpu_device *)d)->description;
}

struct spread {
    void (*work)(void *ctx, uint32_t part);
    void *ctx;
};

static void spread_part(void *ctx, int thread, uint32_t part)
{
    const struct spread *s = ctx;
    (void)thread;
    s->work(s->ctx, part);
}

static void host_spread(struct device *device, uint32_t n, void (*work)(void *ctx, uint32_t part),
                        void *ctx)
{
    struct spread s = {work, ctx};
    threads_run(((struct cpu_device *)device)->threads, n, spread_part, &s);
}

static void loader_enter(struct device *device)
{
    threads_guest_enter(((struct cpu_device *)device)->threads);
}

const struct backend cpu_backend = {
    .name = "cpu",
    .device_open = open_device,
    .device_close = close_device,
    .device_describe = cpu_describe,
    .choices = cpu_choices,
    .libraries = onednn_version,
    .memory_free = cpu_memory_left,
    .memory_reserve = cpu_device_memory_reserve,
    .memory_unreserve = cpu_device_memory_unreserve,
    .host_spread = host_spread,
    .loader_enter = loader_enter,
    .weight_resident_bytes = cpu_weight_resident_bytes,
    .matmul_scratch_bytes = cpu_matmul_scratch_bytes,
    .matmul_row_step = cpu_matmul_row_step,
    .weight_load = cpu_weight_load,
    .weight_free = cpu_weight_free,
    .memory_alloc = cpu_device_memory_alloc,
    .memory_release = cpu_device_memory_release,
    .stream_create = cpu_stream_create,
    .stream_destroy = cpu_stream_destroy,
    .stream_wait = cpu_stream_wait,
    .event_create = cpu_event_create,
    .event_destroy = cpu_event_destroy,
    .event_record = cpu_event_record,
    .event_wait = cpu_event_wait,
    .event_pending = cpu_event_pending,
    .copy = cpu_copy,
    .op_supports = cpu_op_supports,
    .op_prepare = cpu_op_prepare,
    .op_release = cpu_op_release,
    .op_run = cpu_op_run,
    .ops_run = cpu_ops_run,
    .kv_page_bytes = cpu_kv_page_bytes,
    .kv_export = cpu_kv_export,
    .kv_import = cpu_kv_import,
};
