#include "hpctl/sse.h"

#include <stdio.h>
#include <string.h>

static void id_take(struct sse *s, const char *text, size_t n)
{
    if (n < SSE_ID_BYTES && !memchr(text, '\0', n))
        snprintf(s->coming, sizeof s->coming, "%.*s", (int)n, text);
}

/* "data: X", "data:X" and "data" add a line; "id: X" names the event; comments and other fields say
 * nothing to us. */
static void line_take(struct sse *s, const char *line, size_t n)
{
    if (n > 4 && memcmp(line, "id: ", 4) == 0)
        id_take(s, line + 4, n - 4);
    if (n < 4 || memcmp(line, "data", 4) != 0 || (n > 4 && line[4] != ':'))
        return;
    size_t skip = n > 5 && line[5] == ' ' ? 6 : n > 4 ? 5 : 4;
    if (s->any)
        buffer_append(&s->data, "\n", 1);
    s->any = true;
    buffer_append(&s->data, line + skip, n - skip);
}

static int event_end(struct sse *s, sse_event_fn on_event, void *ctx, struct err *e)
{
    int rc = s->any ? on_event(ctx, buffer_cstr(&s->data), s->data.size, e) : 0;
    if (s->coming[0])
        memcpy(s->id, s->coming, sizeof s->id);
    s->coming[0] = '\0';
    s->data.size = 0;
    s->any = false;
    return rc;
}

int sse_take(struct sse *s, const char *bytes, size_t n, sse_event_fn on_event, void *ctx,
             struct err *e)
{
    int rc = 0;
    while (rc == 0 && n > 0) {
        const char *end = memchr(bytes, '\n', n);
        size_t piece = end ? (size_t)(end - bytes) : n;
        buffer_append(&s->line, bytes, piece);
        bytes += piece + (end != NULL);
        n -= piece + (end != NULL);
        if (s->line.size + s->data.size > SSE_EVENT_BYTES)
            return err_set(e, HP_ELIMIT, "the gateway sent an event of more than %d MiB",
                           SSE_EVENT_BYTES >> 20);
        if (!end)
            break;
        size_t length = s->line.size;
        if (length > 0 && s->line.data[length - 1] == '\r')
            length--;
        if (length == 0)
            rc = event_end(s, on_event, ctx, e);
        else
            line_take(s, (const char *)s->line.data, length);
        s->line.size = 0;
    }
    return rc == 0 && (s->line.failed || s->data.failed) ? err_no_memory(e, "an event") : rc;
}

void sse_free(struct sse *s)
{
    buffer_free(&s->line);
    buffer_free(&s->data);
}
