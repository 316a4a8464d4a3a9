/* Server-sent events (https://html.spec.whatwg.org/multipage/server-sent-events.html), the part
 * that OpenAI's API uses: the data of each event, whatever pieces the bytes come in. */
#ifndef HP_HPCTL_SSE_H
#define HP_HPCTL_SSE_H

#include "common/bytes.h"
#include "common/status.h"

enum { SSE_EVENT_BYTES = 16 << 20, SSE_ID_BYTES = 1024 };

/* All zero: nothing has come. */
struct sse {
    struct buffer line, data;  /* what has come of a line, and of an event */
    bool any;                  /* the event has data, though it may be empty */
    char coming[SSE_ID_BYTES], /* the id of the event that comes, */
        id[SSE_ID_BYTES];      /* and of the last one that was whole and had one; longer ones are
                                  none */
};

/* One event's data, NUL-terminated. A negative return ends the reading with that code. */
typedef int (*sse_event_fn)(void *ctx, const char *data, size_t size, struct err *e);

/* Takes the bytes that came and hands out every event that they end. HP_ELIMIT: an event of more
 * than SSE_EVENT_BYTES; HP_ENOMEM. */
int sse_take(struct sse *s, const char *bytes, size_t n, sse_event_fn on_event, void *ctx,
             struct err *e);
void sse_free(struct sse *s);

#endif
