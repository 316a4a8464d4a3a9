/* A request that has begun and finds the core's queue full: it asks again after a while, for a
 * minute. On the loop's thread. */
#ifndef HP_COORDINATOR_GATEWAY_PATIENCE_H
#define HP_COORDINATOR_GATEWAY_PATIENCE_H

#include <stdbool.h>
#include <uv.h>

struct patience { /* zero-initialised: it has not waited */
    uv_timer_t *timer;
    void (*again)(void *ctx);
    void *ctx;
    int tries;
};

/* Calls `again` in a moment; false when it waited a minute already, or memory ran out. */
bool patience_wait(struct patience *p, uv_loop_t *loop, void (*again)(void *ctx), void *ctx);
/* There was room: the minute begins anew. */
void patience_renew(struct patience *p);
/* `again` is not called any more. */
void patience_end(struct patience *p);

#endif
