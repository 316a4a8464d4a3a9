/* Streams and events of the CPU: work is done when it is put on a stream. */
#include <stdlib.h>

#include "agent/backend/cpu/cpu_int.h"

struct event {
    struct err failure; /* of the work before it */
};

int cpu_stream_create(struct device *d, struct stream **out, struct err *e)
{
    struct stream *s = calloc(1, sizeof *s);
    if (!s)
        return err_set(e, HP_ENOMEM, "no memory for a stream");
    s->device = (struct cpu_device *)d;
    *out = s;
    return 0;
}

void cpu_stream_destroy(struct stream **s)
{
    free(*s);
    *s = NULL;
}

void cpu_stream_fail(struct stream *s, int code, const char *text)
{
    if (s->failure.code == 0)
        err_set(&s->failure, code, "%s", text);
}

/* Who waits for work, or records that it is done, has put no more there for now. */
static void stream_rest(const struct stream *s)
{
    threads_rest(s->device->threads);
}

int cpu_stream_wait(struct stream *s, struct err *e)
{
    stream_rest(s);
    int rc = s->failure.code;
    if (rc < 0 && e)
        *e = s->failure;
    s->failure = (struct err){0};
    return rc;
}

int cpu_event_create(struct device *d, struct event **out, struct err *e)
{
    (void)d;
    *out = calloc(1, sizeof **out);
    return *out ? 0 : err_set(e, HP_ENOMEM, "no memory for an event");
}

void cpu_event_destroy(struct event **v)
{
    free(*v);
    *v = NULL;
}

void cpu_event_record(struct event *v, struct stream *s)
{
    stream_rest(s);
    v->failure = s->failure;
    s->failure = (struct err){0};
}

int cpu_event_wait(struct event *v, struct err *e)
{
    if (v->failure.code < 0 && e)
        *e = v->failure;
    return v->failure.code;
}

/* Work is done when its event is recorded. */
bool cpu_event_pending(struct event *v, void (*over)(void *ctx), void *ctx)
{
    (void)v, (void)over, (void)ctx;
    return false;
}
