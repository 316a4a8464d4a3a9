/* Faults of links that a local cluster's own `hpctl chaos` orders, as common/link_fault.h says
 * them. Only for agents that are told to take them. */
#ifndef HP_AGENT_CHAOS_ORDERS_H
#define HP_AGENT_CHAOS_ORDERS_H

#include <uv.h>

#include "common/link_fault.h"
#include "common/status.h"

typedef void (*chaos_order_fn)(void *ctx, struct link_fault fault);

struct chaos_orders {
    uv_poll_t poll;
    int fd;
    chaos_order_fn order;
    void *ctx;
};

/* From now on the signal waits until somebody reads it: before any thread is started, and before
 * anything that takes long. */
void chaos_orders_take(void);
/* Hears them on the loop's thread. HP_EIO. */
int chaos_orders_open(struct chaos_orders *o, uv_loop_t *loop, chaos_order_fn order, void *ctx,
                      struct err *e);
/* Its handle closes as the loop runs on. */
void chaos_orders_close(struct chaos_orders *o);

#endif
