/* Operators of networks on a GPU, on streams of parts of it. */
#include <stdlib.h>

#include "agent/backend/cuda/cuda_int.h"
#include "agent/backend/cuda/kernels.h"

/* Which parts a share of the device is: the device's own are cut further. */
static struct device_part part_of(const struct cuda_device *d, int part, int parts)
{
    const struct device_part whole = {1, 0, 1}, *own = d->cut.cut ? &d->cut : &whole;
    return (struct device_part){own->cut * parts, own->first * parts + part * own->count,
                                own->count};
}

/* What the driver lacks for now says nothing of what the device can do. */
static int parts_refuse(const struct cuda_device *d, int parts, int rc, struct err *e)
{
    if (rc == GPU_NO_MEMORY || rc == GPU_LOST)
        return cuda_fail(rc, d, "a stream on a part of it", e);
    return err_set(e, HP_EUNSUPPORTED, "device %s: no stream on 1/%d of its multiprocessors: %s",
                   d->title, parts, gpu_error_text(rc));
}

static int stream_create(struct device *device, int part, int parts, struct stream **out,
                         struct err *e)
{
    struct cuda_device *d = (struct cuda_device *)device;
    struct gpu_part *own = NULL;
    const struct device_part p = part_of(d, part, parts);
    int rc = gpu_use(d->ordinal);
    if (rc)
        return cuda_fail(rc, d, "a stream", e);
    if (parts > 1)
        rc = gpu_part_open(d->ordinal, p.cut, p.first, p.count, &own);
    return rc ? parts_refuse(d, parts, rc, e) : cuda_stream_open(d, own, out, e);
}

/* ---- operators ---- */

static struct cuda_stream *stream_of(struct stream *stream)
{
    struct cuda_stream *s = (struct cuda_stream *)stream;
    cuda_note(s, gpu_use(s->device->ordinal));
    return s;
}

static void elements_run(struct stream *stream, const struct array_elements *c)
{
    struct cuda_stream *s = stream_of(stream);
    gpu_array_elements(s->stream, c);
    cuda_note(s, gpu_launched());
}

static void reduce_run(struct stream *stream, const struct nn_reduction *r, float *out,
                       const float *x)
{
    struct cuda_stream *s = stream_of(stream);
    gpu_array_reduce(s->stream, r, out, x);
    cuda_note(s, gpu_launched());
}

static void softmax_run(struct stream *stream, const struct array_softmax *c)
{
    struct cuda_stream *s = stream_of(stream);
    gpu_array_softmax(s->stream, c);
    cuda_note(s, gpu_launched());
}

static void norm_run(struct stream *stream, const struct array_norm *c)
{
    struct cuda_stream *s = stream_of(stream);
    gpu_array_norm(s->stream, c);
    cuda_note(s, gpu_launched());
}

static void product_run(struct stream *stream, const struct array_product *p)
{
    struct cuda_stream *s = stream_of(stream);
    gpu_array_product(s->stream, p);
    cuda_note(s, gpu_launched());
}

static void causal_run(struct stream *stream, const struct array_causal *c)
{
    struct cuda_stream *s = stream_of(stream);
    gpu_array_causal(s->stream, c);
    cuda_note(s, gpu_launched());
}

static void scores_run(struct stream *stream, const struct array_scores *c)
{
    struct cuda_stream *s = stream_of(stream);
    gpu_array_scores(s->stream, c);
    cuda_note(s, gpu_launched());
}

static void conv_run(struct stream *stream, const struct array_conv *c)
{
    struct cuda_stream *s = stream_of(stream);
    gpu_array_conv(s->stream, c);
    cuda_note(s, gpu_launched());
}

static void resize_run(struct stream *stream, const struct array_resize *c)
{
    struct cuda_stream *s = stream_of(stream);
    gpu_array_resize(s->stream, c);
    cuda_note(s, gpu_launched());
}

static void pool_run(struct stream *stream, const struct nn_pool *p, float *out, const float *x)
{
    struct cuda_stream *s = stream_of(stream);
    gpu_array_pool(s->stream, p, out, x);
    cuda_note(s, gpu_launched());
}

/* ---- moments ---- */

struct array_clock {
    struct cuda_device *device;
    int n;
    struct CUevent_st *moments[];
};

static void clock_destroy(struct array_clock **clock)
{
    struct array_clock *c = *clock;
    *clock = NULL;
    if (!c)
        return;
    gpu_use(c->device->ordinal);
    for (int i = 0; i < c->n; i++)
        gpu_event_destroy(c->moments[i]);
    free(c);
}

static int clock_create(struct device *d, int n, struct array_clock **out, struct err *e)
{
    struct array_clock *c = malloc(sizeof *c + (size_t)n * sizeof *c->moments);
    if (!c)
        return err_set(e, HP_ENOMEM, "no memory for a clock");
    *c = (struct array_clock){.device = (struct cuda_device *)d};
    int rc = gpu_use(c->device->ordinal);
    for (; !rc && c->n < n; c->n++)
        if ((rc = gpu_moment_create(&c->moments[c->n])))
            break;
    *out = c;
    if (!rc)
        return 0;
    clock_destroy(out);
    return cuda_fail(rc, (struct cuda_device *)d, "a clock", e);
}

static void clock_mark(struct array_clock *c, int i, struct stream *stream)
{
    struct cuda_stream *s = stream_of(stream);
    cuda_note(s, gpu_event_record(c->moments[i], s->stream));
}

static int clock_between(const struct array_clock *c, int from, int to, double *seconds,
                         struct err *e)
{
    int rc = gpu_use(c->device->ordinal);
    rc = rc ? rc : gpu_moments_between(c->moments[from], c->moments[to], seconds);
    return rc ? cuda_fail(rc, c->device, "reading a clock", e) : 0;
}

const struct backend_arrays cuda_arrays = {
    .stream_create = stream_create,
    .elements = elements_run,
    .reduce = reduce_run,
    .softmax = softmax_run,
    .norm = norm_run,
    .product = product_run,
    .causal = causal_run,
    .scores = scores_run,
    .conv = conv_run,
    .resize = resize_run,
    .pool = pool_run,
    .clock_create = clock_create,
    .clock_destroy = clock_destroy,
    .clock_mark = clock_mark,
    .clock_between = clock_between,
};
