#include "agent/backend/cpu/cpu.h"

#include <assert.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "agent/backend/cpu/cpu_int.h"
#include "agent/backend/cpu/onednn.h"
#include "common/env.h"

enum { HUGE_PAGE_BYTES = 2 << 20 };

struct event {
    uint64_t at_ns;
};

/* ---- memory
 * -------------------------------------------------------------------------------------------------
 */

static uint64_t memory_free(const struct device *device)
{
    const struct cpu_device *d = (const struct cpu_device *)device;
    if (!d->limit_bytes)
        return UINT64_MAX;
    uint64_t scratch = atomic_load(&d->inputs_bytes) +
                       atomic_load(&d->private_bytes) * (unsigned)threads_count(d->threads);
    uint64_t used = atomic_load(&d->used_bytes) + scratch;
    return d->limit_bytes > used ? d->limit_bytes - used : 0;
}

int cpu_memory_reserve(struct cpu_device *d, uint64_t bytes, const char *what, struct err *e)
{
    uint64_t left = memory_free(&d->base);
    if (bytes > left)
        return err_set(
            e, HP_ENOMEM,
            "%s needs %llu bytes, and %llu of the limit of %llu are left: %llu bytes are missing",
            what, (unsigned long long)bytes, (unsigned long long)left,
            (unsigned long long)d->limit_bytes, (unsigned long long)(bytes - left));
    atomic_fetch_add(&d->used_bytes, bytes);
    return 0;
}

int cpu_memory_alloc(struct cpu_device *d, uint64_t bytes, const char *what, void **out,
                     struct err *e)
{
    int rc = cpu_memory_reserve(d, bytes, what, e);
    if (rc < 0)
        return rc;
    void *p =
        mmap(NULL, bytes ? bytes : 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) {
        atomic_fetch_sub(&d->used_bytes, bytes);
        return err_set(e, HP_ENOMEM, "%s: the system has no %llu bytes of memory left", what,
                       (unsigned long long)bytes);
    }
    if (bytes >= HUGE_PAGE_BYTES)
        madvise(p, bytes, MADV_HUGEPAGE);
    *out = p;
    return 0;
}

void cpu_memory_free(struct cpu_device *d, void *p, uint64_t bytes)
{
    munmap(p, bytes ? bytes : 1);
    atomic_fetch_sub(&d->used_bytes, bytes);
}

static void scratch_count(struct cpu_device *d, const struct scratch *s)
{
    unsigned long long most = atomic_load(&d->private_bytes);
    if (s == &d->inputs)
        atomic_store(&d->inputs_bytes, s->bytes);
    else
        while (s->bytes > most && !atomic_compare_exchange_weak(&d->private_bytes, &most, s->bytes))
            ;
}

void *scratch_get(struct cpu_device *d, struct scratch *s, size_t bytes)
{
    if (bytes <= s->bytes)
        return s->data;
    free(s->data);
    s->bytes = (bytes + 4095) / 4096 * 4096;
    s->data = aligned_alloc(4096, s->bytes);
    if (!s->data)
        s->bytes = 0;
    scratch_count(d, s);
    return s->data;
}

static int tensor_alloc(struct device *device, uint64_t bytes, struct tensor *out, struct err *e)
{
    struct tensor t = {.bytes = bytes};
    int rc = cpu_memory_alloc((struct cpu_device *)device, bytes, "a tensor", &t.data, e);
    if (rc == 0)
        *out = t;
    return rc;
}

static void tensor_free(struct device *device, struct tensor *t)
{
    if (t->data)
        cpu_memory_free((struct cpu_device *)device, t->data, t->bytes);
    *t = (struct tensor){0};
}

/* ---- the device
 * --------------------------------------------------------------------------------------------- */

static void close_device(struct device **device)
{
    struct cpu_device *d = (struct cpu_device *)*device;
    *device = NULL;
    if (!d)
        return;
    for (int i = 0; d->private && i <= threads_count(d->threads); i++)
        free(d->private[i].data);
    free(d->private);
    free(d->inputs.data);
    onednn_destroy(&d->onednn);
    threads_destroy(&d->threads);
    free(d);
}

static int count_threads(const struct device_config *c)
{
    cpu_set_t allowed;
    if (c->n_threads > 0)
        return c->n_threads;
    if (c->cores && c->n_cores > 0)
        return c->n_cores;
    return sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? CPU_COUNT(&allowed) : 1;
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
    int n = count_threads(c), rc = kernels_choose(c->kernels, &d->kernels, e);
    if (rc == 0)
        rc = threads_create(n, c->cores, c->n_cores, &d->threads, e);
    if (rc == 0 && d->kernels->panel_dot)
        rc = onednn_create(n, &d->onednn, e);
    if (rc == 0 && !(d->private = calloc((size_t)n + 1, sizeof *d->private)))
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

static const char *describe(const struct device *d)
{
    return ((const struct cpu_device *)d)->description;
}

/* ---- streams: operators run when they are called
 * ---------------------------------------------------------------- */

static int stream_create(struct device *d, struct stream **out, struct err *e)
{
    struct stream *s = calloc(1, sizeof *s);
    if (!s)
        return err_set(e, HP_ENOMEM, "no memory for a stream");
    s->device = (struct cpu_device *)d;
    *out = s;
    return 0;
}

static void stream_destroy(struct stream **s)
{
    free(*s);
    *s = NULL;
}

void cpu_stream_fail(struct stream *s, int code, const char *text)
{
    if (s->failure.code == 0)
        err_set(&s->failure, code, "%s", text);
}

static int stream_wait(struct stream *s, struct err *e)
{
    int rc = s->failure.code;
    if (rc < 0 && e)
        *e = s->failure;
    s->failure = (struct err){0};
    return rc;
}

static int event_create(struct device *d, struct event **out, struct err *e)
{
    (void)d;
    *out = calloc(1, sizeof **out);
    return *out ? 0 : err_set(e, HP_ENOMEM, "no memory for an event");
}

static void event_destroy(struct event **v)
{
    free(*v);
    *v = NULL;
}

static void event_record(struct event *v, struct stream *s)
{
    (void)s;
    v->at_ns = env_now_ns(&env_real);
}

static void event_wait(struct event *v)
{
    (void)v;
}

static double event_seconds(const struct event *from, const struct event *to)
{
    return (double)(to->at_ns - from->at_ns) * 1e-9;
}

static void tensor_write(struct stream *s, struct tensor t, uint64_t offset, const void *src,
                         uint64_t bytes)
{
    (void)s;
    assert(offset + bytes <= t.bytes);
    memcpy((uint8_t *)t.data + offset, src, bytes);
}

static void tensor_read(struct stream *s, struct tensor t, uint64_t offset, void *dst,
                        uint64_t bytes)
{
    (void)s;
    assert(offset + bytes <= t.bytes);
    memcpy(dst, (const uint8_t *)t.data + offset, bytes);
}

/* ---- operators that go row by row
 * ------------------------------------------------------------------------------- */

struct rows_job {
    struct cpu_device *device;
    void (*run)(const struct rows_job *job, size_t begin, size_t end);
    struct parts parts;
    size_t n; /* rows, or elements */
    size_t grain;
    const float *in, *in2;
    float *out;
    const struct device_weight *weight;
    const struct rope_config *rope;
    size_t width, heads;
    float epsilon;
};

static void rows_part(void *ctx, int thread, uint32_t part)
{
    const struct rows_job *job = ctx;
    (void)thread;
    job->run(job, parts_begin(&job->parts, part), parts_end(&job->parts, part));
}

/* Small work is done by the caller: waking the others would take longer. */
static void rows_run(struct rows_job *job)
{
    enum { SMALL_ELEMENTS = 16384 };
    if (job->n * job->width <= SMALL_ELEMENTS) {
        job->run(job, 0, job->n);
        return;
    }
    job->parts = threads_parts(job->device->threads, job->n, job->grain, 0);
    threads_run(job->device->threads, job->parts.count, rows_part, job);
}

static void embed(struct stream *s, const struct device_weight *table, struct tensor ids,
                  uint32_t rows, struct tensor out)
{
    assert(table->form == FORM_IN_PLACE &&
           (uint64_t)rows * table->columns * sizeof(float) <= out.bytes);
    const uint32_t *id = ids.data;
    for (uint32_t r = 0; r < rows; r++) {
        assert(id[r] < table->rows);
        s->device->kernels->unpack[table->dtype](table->data + id[r] * table->row_bytes,
                                                 table->columns,
                                                 (float *)out.data + r * table->columns);
    }
}

static void rms_norm_rows(const struct rows_job *job, size_t begin, size_t end)
{
    for (size_t r = begin; r < end; r++)
        job->device->kernels->rms_norm(job->in + r * job->width, job->in2, job->epsilon, job->width,
                                       job->out + r * job->width);
}

static void rms_norm(struct stream *s, struct tensor in, const struct device_weight *weight,
                     float epsilon, uint32_t rows, struct tensor out)
{
    assert(weight->form == FORM_F32);
    rows_run(&(struct rows_job){.device = s->device,
                                .run = rms_norm_rows,
                                .n = rows,
                                .grain = 1,
                                .in = in.data,
                                .in2 = (const float *)(const void *)weight->data,
                                .out = out.data,
                                .width = weight->rows * weight->columns,
                                .epsilon = epsilon});
}

static void rope_angles(struct stream *s, const struct rope_config *rope, const uint32_t *positions,
                        uint32_t rows, struct tensor angles)
{
    (void)s;
    assert((uint64_t)rows * (uint64_t)rope->dims * sizeof(float) <= angles.bytes);
    reference_rope_angles(rope, positions, rows, angles.data);
}

static void rope_rows(const struct rows_job *job, size_t begin, size_t end)
{
    reference_rope(job->rope, job->in + begin * (size_t)job->rope->dims, end - begin,
                   (int)job->heads, (int)(job->width / job->heads), job->out + begin * job->width);
}

static void rope(struct stream *s, const struct rope_config *config, struct tensor angles,
                 uint32_t rows, int heads, int head_dim, struct tensor x)
{
    rows_run(&(struct rows_job){.device = s->device,
                                .run = rope_rows,
                                .n = rows,
                                .grain = 1,
                                .in = angles.data,
                                .out = x.data,
                                .rope = config,
                                .width = (size_t)heads * (size_t)head_dim,
                                .heads = (size_t)heads});
}

static void silu_rows(const struct rows_job *job, size_t begin, size_t end)
{
    job->device->kernels->silu_mul(job->in + begin, job->in2 + begin, end - begin,
                                   job->out + begin);
}

static void silu_mul(struct stream *s, struct tensor gate, struct tensor up, uint64_t n,
                     struct tensor out)
{
    /* A grain of whole vectors, so that an element's vector lane does not depend on the number of
     * threads. */
    rows_run(&(struct rows_job){.device = s->device,
                                .run = silu_rows,
                                .n = n,
                                .grain = 64,
                                .in = gate.data,
                                .in2 = up.data,
                                .out = out.data,
                                .width = 1});
}

static void gather_rows(struct stream *s, struct tensor in, const uint32_t *rows, uint32_t n_rows,
                        uint32_t width, struct tensor out)
{
    (void)s;
    for (uint32_t i = 0; i < n_rows; i++)
        memcpy((float *)out.data + (size_t)i * width,
               (const float *)in.data + (size_t)rows[i] * width, width * sizeof(float));
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
    .device_describe = describe,
    .libraries = onednn_version,
    .memory_free = memory_free,
    .host_spread = host_spread,
    .loader_enter = loader_enter,
    .weight_resident_bytes = cpu_weight_resident_bytes,
    .matmul_scratch_bytes = cpu_matmul_scratch_bytes,
    .weight_load = cpu_weight_load,
    .weight_free = cpu_weight_free,
    .tensor_alloc = tensor_alloc,
    .tensor_free = tensor_free,
    .stream_create = stream_create,
    .stream_destroy = stream_destroy,
    .stream_wait = stream_wait,
    .event_create = event_create,
    .event_destroy = event_destroy,
    .event_record = event_record,
    .event_wait = event_wait,
    .event_seconds = event_seconds,
    .tensor_write = tensor_write,
    .tensor_read = tensor_read,
    .embed = embed,
    .rms_norm = rms_norm,
    .matmul = cpu_matmul,
    .rope_angles = rope_angles,
    .rope = rope,
    .silu_mul = silu_mul,
    .gather_rows = gather_rows,
    .kv_page_bytes = cpu_kv_page_bytes,
    .kv_append = cpu_kv_append,
    .attention = cpu_attention,
    .kv_export = cpu_kv_export,
    .kv_import = cpu_kv_import,
};
