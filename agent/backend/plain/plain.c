/* Device, memory, streams, weights and copies of the plain backend. Work is done when it is put on
 * a stream. */
#include "agent/backend/plain/plain.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/backend/plain/narrow.h"
#include "agent/backend/plain/plain_int.h"

/* Work is done at once: a stream and an event hold nothing. */
struct plain_mark {
    char nothing;
};

/* ---- memory ---- */

static uint64_t memory_left(const struct device *device)
{
    const struct plain_device *d = (const struct plain_device *)device;
    uint64_t used = atomic_load(&d->used_bytes);
    return !d->limit_bytes ? UINT64_MAX : d->limit_bytes > used ? d->limit_bytes - used : 0;
}

static int memory_count(struct plain_device *d, uint64_t bytes, const char *what, struct err *e)
{
    uint64_t left = memory_left(&d->base);
    if (bytes > left)
        return err_set(
            e, HP_ENOMEM,
            "%s needs %llu bytes, and %llu of the limit of %llu are left: %llu bytes are missing",
            what, (unsigned long long)bytes, (unsigned long long)left,
            (unsigned long long)d->limit_bytes, (unsigned long long)(bytes - left));
    atomic_fetch_add(&d->used_bytes, bytes);
    return 0;
}

static int memory_alloc(struct device *device, uint64_t bytes, struct memory *out, struct err *e)
{
    struct plain_device *d = (struct plain_device *)device;
    int rc = memory_count(d, bytes, "a tensor", e);
    if (rc < 0)
        return rc;
    void *data = calloc(bytes ? bytes : 1, 1);
    if (!data) {
        atomic_fetch_sub(&d->used_bytes, bytes);
        return err_set(e, HP_ENOMEM, "a tensor: the system has no %llu bytes of memory left",
                       (unsigned long long)bytes);
    }
    *out = (struct memory){data, bytes};
    return 0;
}

static void memory_release(struct device *device, struct memory *m)
{
    if (m->data)
        atomic_fetch_sub(&((struct plain_device *)device)->used_bytes, m->bytes);
    free(m->data);
    *m = (struct memory){0};
}

/* ---- the device ---- */

static int open_device(const struct device_config *c, struct device **out, struct err *e)
{
    if (c->n_threads < 0)
        return err_set(e, HP_EINVAL, "%d threads make no device", c->n_threads);
    struct plain_device *d = calloc(1, sizeof *d);
    if (!d)
        return err_set(e, HP_ENOMEM, "no memory for a device");
    d->base.backend = &plain_backend;
    d->limit_bytes = c->memory_bytes;
    *out = &d->base;
    return 0;
}

static void close_device(struct device **d)
{
    free(*d);
    *d = NULL;
}

static const char *device_text(const struct device *d)
{
    (void)d;
    return "plain loops, 1 thread";
}

static int device_choices(const struct device *d, struct device_choice *out, int room)
{
    static const struct device_choice row = {"instructions", "plain loops", ""};
    (void)d;
    __builtin_cpu_init();
    if (room < 1)
        return 0;
    *out = row;
    snprintf(out->why, sizeof out->why, "%s",
             __builtin_cpu_supports("avx2") ? "--kernels asks for it: the reference, on one thread"
                                            : "this CPU has neither AVX2 nor AVX-512");
    return 1;
}

static void loader_enter(struct device *d)
{
    (void)d; /* loading takes nothing that computing needs */
}

static void host_spread(struct device *d, uint32_t n, void (*work)(void *ctx, uint32_t part),
                        void *ctx)
{
    (void)d;
    for (uint32_t i = 0; i < n; i++)
        work(ctx, i);
}

/* ---- weights ---- */

static uint64_t weight_elements(const struct weight *w)
{
    uint64_t n = 1;
    for (int i = 0; i < w->n_dims; i++)
        n *= w->shape[i];
    return n;
}

static uint64_t resident_bytes(const struct device *d, const struct weight *w, enum weight_use use,
                               bool f32)
{
    (void)d, (void)f32; /* all arithmetic is float32 */
    bool vector = use == WEIGHT_VECTOR || use == WEIGHT_VECTOR_OF_ONE;
    uint64_t bytes = 0;
    for (int i = 0; i < w->n_parts; i++)
        bytes += weight_dtype_bytes(w->parts[i]);
    return vector ? weight_elements(w) * sizeof(float) : bytes ? bytes : weight_dtype_bytes(w);
}

static uint64_t scratch_bytes(const struct device *d, const struct weight *w, enum weight_use use,
                              bool f32, uint32_t rows)
{
    (void)d, (void)w, (void)use, (void)f32, (void)rows;
    return 0;
}

static void made_free(struct weight *w)
{
    for (int i = 0; w && i < w->n_parts; i++)
        made_free((struct weight *)(uintptr_t)w->parts[i]);
    if (w && w->n_parts)
        free((void *)(uintptr_t)w->parts);
    else if (w)
        free((void *)(uintptr_t)w->data);
    free(w);
}

/* Whether the file keeps it, or one of its parts, otherwise than its format says. */
static bool is_kept_otherwise(const struct weight *w)
{
    for (int i = 0; i < w->n_parts; i++)
        if (w->parts[i]->stored != WEIGHT_PLAIN)
            return true;
    return w->n_parts == 0 && w->stored != WEIGHT_PLAIN;
}

/* The weight and its parts with the bytes of their format. NULL: want of memory. */
static struct weight *made_make(const struct weight *w)
{
    struct weight *made = calloc(1, sizeof *made);
    const struct weight **parts = NULL;
    if (!made)
        return NULL;
    *made = *w;
    made->stored = WEIGHT_PLAIN;
    made->data = NULL;
    made->n_parts = 0;
    if (w->n_parts == 0) {
        uint8_t *data = malloc(weight_dtype_bytes(w) + 1);
        made->bytes = weight_dtype_bytes(w);
        made->data = data;
        if (data)
            weight_rows_make(w, 0, weight_shape_rows(w), data);
        else
            made_free(made);
        return data ? made : NULL;
    }
    made->parts = parts = calloc((size_t)w->n_parts, sizeof *parts);
    while (parts && made->n_parts < w->n_parts &&
           (parts[made->n_parts] = made_make(w->parts[made->n_parts])))
        made->n_parts++;
    if (parts && made->n_parts == w->n_parts)
        return made;
    if (made->n_parts == 0)
        free(parts);
    made_free(made);
    return NULL;
}

static void weight_free(struct device *d, struct device_weight **weight)
{
    struct plain_weight *w = (struct plain_weight *)*weight;
    *weight = NULL;
    if (!w)
        return;
    atomic_fetch_sub(&((struct plain_device *)d)->used_bytes, w->counted_bytes);
    made_free(w->made);
    free(w->vector);
    free(w);
}

static int weight_load(struct device *d, const struct weight *source, enum weight_use use, bool f32,
                       struct device_weight **out, struct err *e)
{
    uint64_t bytes = resident_bytes(d, source, use, f32);
    struct plain_weight *w = calloc(1, sizeof *w);
    if (!w)
        return err_set(e, HP_ENOMEM, "no memory for %s", source->name);
    w->source = source;
    w->use = use;
    int rc = backend_weight_check(source, use, e);
    rc = rc < 0 ? rc : memory_count((struct plain_device *)d, bytes, source->name, e);
    if (rc == 0)
        w->counted_bytes = bytes;
    if (rc == 0 && (use == WEIGHT_VECTOR || use == WEIGHT_VECTOR_OF_ONE)) {
        w->vector = malloc(bytes ? bytes : 1);
        if (!w->vector)
            rc = err_set(e, HP_ENOMEM, "no memory for %s", source->name);
        else
            dtype_info(source->dtype)->to_f32(source->data, weight_elements(source), w->vector);
        for (uint64_t i = 0; rc == 0 && use == WEIGHT_VECTOR_OF_ONE && i < weight_elements(source);
             i++)
            w->vector[i] += 1;
    }
    if (rc == 0 && !w->vector && is_kept_otherwise(source)) {
        w->source = w->made = made_make(source);
        rc = w->made ? 0 : err_set(e, HP_ENOMEM, "no memory for %s", source->name);
    }
    struct device_weight *made = (struct device_weight *)w;
    if (rc < 0)
        weight_free(d, &made);
    else
        *out = made;
    return rc;
}

/* ---- streams ---- */

static int stream_create(struct device *d, struct stream **out, struct err *e)
{
    (void)d;
    struct plain_mark *mark = calloc(1, sizeof *mark);
    *out = (struct stream *)mark;
    return mark ? 0 : err_set(e, HP_ENOMEM, "no memory for a stream");
}

static void stream_destroy(struct stream **s)
{
    free(*s);
    *s = NULL;
}

static int stream_wait(struct stream *s, struct err *e)
{
    (void)s, (void)e;
    return 0;
}

static int event_create(struct device *d, struct event **out, struct err *e)
{
    (void)d;
    struct plain_mark *mark = calloc(1, sizeof *mark);
    *out = (struct event *)mark;
    return mark ? 0 : err_set(e, HP_ENOMEM, "no memory for an event");
}

static void event_destroy(struct event **v)
{
    free(*v);
    *v = NULL;
}

static void event_record(struct event *v, struct stream *s)
{
    (void)v, (void)s;
}

static int event_wait(struct event *v, struct err *e)
{
    (void)v, (void)e;
    return 0;
}

static bool event_pending(struct event *v, void (*over)(void *ctx), void *ctx)
{
    (void)v, (void)over, (void)ctx;
    return false;
}

/* ---- copies ---- */

/* n elements, whole blocks of both formats. */
static void values_copy(enum dtype to, uint8_t *dst, enum dtype from, const uint8_t *src, size_t n)
{
    float values[Q8_WIRE_ELEMENTS];
    uint16_t halves[Q8_WIRE_ELEMENTS];
    assert(n <= Q8_WIRE_ELEMENTS);
    if (to == from) {
        memcpy(dst, src, dtype_bytes(to, n));
        return;
    }
    dtype_info(from)->to_f32(src, n, values);
    if (to == DTYPE_F32) {
        memcpy(dst, values, n * sizeof *values);
    } else if (to == DTYPE_Q8_WIRE) {
        narrow_plain.q8(values, n, dst);
    } else {
        (to == DTYPE_F16 ? narrow_plain.f16 : narrow_plain.bf16)(values, n, halves);
        memcpy(dst, halves, n * sizeof *halves);
    }
}

static void tensors_copy(struct stream *s, const struct tensor *to, const struct tensor *from)
{
    size_t width = tensor_width(to);
    (void)s;
    assert(to->shape[0] == from->shape[0] && width == tensor_width(from));
    for (uint64_t r = 0; r < to->shape[0]; r++) {
        uint8_t *dst = tensor_row(to, r);
        const uint8_t *src = tensor_row(from, r);
        for (size_t i = 0; i < width; i += Q8_WIRE_ELEMENTS)
            values_copy(to->dtype, dst + dtype_bytes(to->dtype, i), from->dtype,
                        src + dtype_bytes(from->dtype, i),
                        width - i < Q8_WIRE_ELEMENTS ? width - i : Q8_WIRE_ELEMENTS);
    }
}

const struct backend plain_backend = {
    .name = "plain",
    .device_open = open_device,
    .device_close = close_device,
    .device_describe = device_text,
    .choices = device_choices,
    .memory_free = memory_left,
    .host_spread = host_spread,
    .loader_enter = loader_enter,
    .weight_resident_bytes = resident_bytes,
    .matmul_scratch_bytes = scratch_bytes,
    .weight_load = weight_load,
    .weight_free = weight_free,
    .memory_alloc = memory_alloc,
    .memory_release = memory_release,
    .stream_create = stream_create,
    .stream_destroy = stream_destroy,
    .stream_wait = stream_wait,
    .event_create = event_create,
    .event_destroy = event_destroy,
    .event_record = event_record,
    .event_wait = event_wait,
    .event_pending = event_pending,
    .copy = tensors_copy,
    .op_supports = plain_op_supports,
    .op_prepare = plain_op_prepare,
    .op_release = plain_op_release,
    .op_run = plain_op_run,
    .kv_page_bytes = plain_kv_page_bytes,
    .kv_export = plain_kv_export,
    .kv_import = plain_kv_import,
};
