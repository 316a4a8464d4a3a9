#include "coordinator/gateway/patience.h"

#include <stdlib.h>

enum {
    FULL_AGAIN_MS = 50,   /* how often a full queue is asked again */
    FULL_PATIENCE_S = 60, /* how long, before the request fails */
    FULL_TRIES = FULL_PATIENCE_S * 1000 / FULL_AGAIN_MS
};

static void on_again(uv_timer_t *timer)
{
    struct patience *p = timer->data;
    p->again(p->ctx);
}

bool patience_wait(struct patience *p, uv_loop_t *loop, void (*again)(void *ctx), void *ctx)
{
    if (!p->timer && (p->timer = malloc(sizeof *p->timer)) != NULL)
        uv_timer_init(loop, p->timer);
    if (!p->timer || p->tries++ >= FULL_TRIES)
        return false;
    p->again = again;
    p->ctx = ctx;
    p->timer->data = p;
    return uv_timer_start(p->timer, on_again, FULL_AGAIN_MS, 0) == 0;
}

void patience_renew(struct patience *p)
{
    p->tries = 0;
}

static void on_timer_closed(uv_handle_t *handle)
{
    free(handle);
}

void patience_end(struct patience *p)
{
    if (p->timer)
        uv_close((uv_handle_t *)p->timer, on_timer_closed);
    p->timer = NULL;
}
