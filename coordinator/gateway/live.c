#include "coordinator/gateway/live.h"

#include "coordinator/gateway/openai.h"

/* One event with the document; with an empty one where there is no memory for it. */
static void event_write(const struct live *l, struct buffer *out)
{
    struct err e = {0};
    buffer_printf(out, "data: ");
    if (l->requests->document(l->requests->ctx, DOCUMENT_CLUSTER, "", out, &e) < 0)
        buffer_printf(out, "{}");
    buffer_printf(out, "\n\n");
}

static void reader_drop(struct live_reader *r)
{
    r->x = NULL;
    if (--r->live->n_readers == 0)
        uv_timer_stop(&r->live->timer);
}

static void reader_gone(void *ctx)
{
    reader_drop(ctx);
}

static void reader_end(struct live_reader *r)
{
    struct http_exchange *x = r->x;
    reader_drop(r);
    http_stream_end(x);
}

static void reader_tell(struct live_reader *r, const struct buffer *event)
{
    struct buffer *unsent = http_stream_buffer(r->x);
    if (unsent->size > LIVE_UNSENT_BYTES)
        return; /* the next one, perhaps */
    buffer_append(unsent, event->data, event->size);
    if (!http_stream_flush(r->x))
        reader_end(r);
}

static void on_live_timer(uv_timer_t *timer)
{
    struct live *l = timer->data;
    struct buffer event = {0};
    event_write(l, &event);
    for (int i = 0; !event.failed && i < LIVE_READERS; i++)
        if (l->readers[i].x)
            reader_tell(&l->readers[i], &event);
    buffer_free(&event);
}

void live_init(struct live *l, uv_loop_t *loop, const struct requests *requests)
{
    l->requests = requests;
    uv_timer_init(loop, &l->timer);
    l->timer.data = l;
}

void live_open(struct live *l, struct http_exchange *x)
{
    struct buffer event = {0};
    if (l->n_readers == LIVE_READERS) {
        openai_error(x, 503, "too many look at live figures already: try again later", NULL,
                     "busy");
        return;
    }
    struct live_reader *r = l->readers;
    while (r->x)
        r++;
    *r = (struct live_reader){l, x};
    if (l->n_readers++ == 0)
        uv_timer_start(&l->timer, on_live_timer, LIVE_EVERY_MS, LIVE_EVERY_MS);
    http_stream_begin(x, "text/event-stream");
    http_on_gone(x, reader_gone, r);
    event_write(l, &event);
    if (!event.failed)
        reader_tell(r, &event);
    buffer_free(&event);
}

void live_end(struct live *l)
{
    for (int i = 0; i < LIVE_READERS; i++)
        if (l->readers[i].x)
            reader_end(&l->readers[i]);
}
