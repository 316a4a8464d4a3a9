/* Streams and events of the cuda backend. */
#include <stdlib.h>

#include "agent/backend/cuda/cuda_int.h"
#include "agent/backend/cuda/kernels.h"

int cuda_handle_create(struct gpu_part *part, struct CUstream_st **out)
{
    return part ? gpu_part_stream_create(part, out) : gpu_stream_create(out);
}

void cuda_stream_destroy(struct stream **stream)
{
    struct cuda_stream *s = (struct cuda_stream *)*stream;
    *stream = NULL;
    if (!s)
        return;
    gpu_use(s->device->ordinal);
    if (s->stream)
        gpu_stream_wait(s->stream); /* what it reads and writes goes next */
    cuda_steps_forget(s);
    if (s->stream)
        gpu_stream_destroy(s->stream);
    for (int i = 0; i < CUDA_TABLES; i++) {
        cuda_room_free(&s->tables[i].room);
        if (s->tables[i].read)
            gpu_event_destroy(s->tables[i].read);
    }
    cuda_room_free(&s->narrow);
    cuda_room_free(&s->wide);
    cuda_room_give(s, &s->scratch);
    cuda_staged_free(s);
    gpu_blas_close(s->blas);
    if (s->part)
        gpu_part_close(s->part);
    free(s);
}

int cuda_stream_open(struct cuda_device *d, struct gpu_part *part, struct stream **out,
                     struct err *e)
{
    struct cuda_stream *s = calloc(1, sizeof *s);
    if (!s) {
        if (part)
            gpu_part_close(part);
        return err_set(e, HP_ENOMEM, "no memory for a stream");
    }
    s->device = d;
    s->part = part;
    int rc = gpu_use(d->ordinal);
    rc = rc ? rc : cuda_handle_create(part ? part : d->part, &s->stream);
    for (int i = 0; !rc && i < CUDA_TABLES; i++)
        rc = gpu_event_create(&s->tables[i].read);
    s->blas = !rc && d->has_blas ? gpu_blas_open() : NULL;
    *out = (struct stream *)s;
    if (!rc)
        return 0;
    cuda_stream_destroy(out);
    return cuda_fail(rc, d, "a stream", e);
}

int cuda_stream_create(struct device *device, struct stream **out, struct err *e)
{
    return cuda_stream_open((struct cuda_device *)device, NULL, out, e);
}

int cuda_stream_wait(struct stream *stream, struct err *e)
{
    struct cuda_stream *s = (struct cuda_stream *)stream;
    int failed = s->failed, rc = gpu_use(s->device->ordinal);
    s->failed = 0;
    rc = rc ? rc : gpu_stream_wait(s->stream);
    rc = failed ? failed : rc;
    cuda_staged_land(s, UINT64_MAX, rc == 0);
    return rc ? cuda_fail(rc, s->device, "computing", e) : 0;
}

void cuda_event_destroy(struct event **event)
{
    struct cuda_event *v = (struct cuda_event *)*event;
    *event = NULL;
    if (!v)
        return;
    cuda_watch_leave(v);
    gpu_use(v->device->ordinal);
    if (v->event)
        gpu_event_destroy(v->event);
    free(v);
}

int cuda_event_create(struct device *device, struct event **out, struct err *e)
{
    struct cuda_device *d = (struct cuda_device *)device;
    struct cuda_event *v = calloc(1, sizeof *v);
    if (!v)
        return err_set(e, HP_ENOMEM, "no memory for an event");
    v->device = d;
    int rc = gpu_use(d->ordinal);
    rc = rc ? rc : gpu_event_create(&v->event);
    *out = (struct event *)v;
    if (!rc)
        return 0;
    cuda_event_destroy(out);
    return cuda_fail(rc, d, "an event", e);
}

void cuda_event_record(struct event *event, struct stream *stream)
{
    struct cuda_event *v = (struct cuda_event *)event;
    struct cuda_stream *s = (struct cuda_stream *)stream;
    int rc = gpu_use(v->device->ordinal);
    cuda_note(s, rc ? rc : gpu_event_record(v->event, s->stream));
    v->failed = s->failed;
    v->stream = s;
    v->landings = s->landings;
    s->failed = 0;
}

int cuda_event_wait(struct event *event, struct err *e)
{
    struct cuda_event *v = (struct cuda_event *)event;
    int rc = gpu_use(v->device->ordinal);
    rc = rc ? rc : gpu_event_wait(v->event);
    rc = v->failed ? v->failed : rc;
    if (v->stream)
        cuda_staged_land(v->stream, v->landings, rc == 0);
    return rc ? cuda_fail(rc, v->device, "computing", e) : 0;
}
