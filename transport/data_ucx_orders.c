/* The queue of orders: frames that are posted, links that end, answers to introductions. Any thread
 * leaves one; the endpoint's thread carries them out. What an order needs is kept for the next. */
#include <stdlib.h>

#include "transport/data_ucx_int.h"

void ucx_order_append(struct ucx_order_list *list, struct ucx_order *o)
{
    o->next = NULL;
    *list->tail = o;
    list->tail = &o->next;
}

/* Under the lock: an order for a link, of those that are kept, or a new one. */
static struct ucx_order *order_get(struct ucx_endpoint *d, struct ucx_link *link)
{
    struct ucx_order *o = d->spare_orders;
    if (link->queued == UCX_MAX_LINK_ORDERS)
        return NULL;
    if (o)
        d->spare_orders = o->next;
    else if (d->n_orders == UCX_MAX_ORDERS || !(o = malloc(sizeof *o)))
        return NULL;
    else
        d->n_orders++;
    link->queued++;
    return o;
}

struct ucx_order *ucx_order_take(struct ucx_endpoint *d, struct ucx_link *link)
{
    pthread_mutex_lock(&d->order_lock);
    struct ucx_order *o = order_get(d, link);
    pthread_mutex_unlock(&d->order_lock);
    return o;
}

void ucx_order_end(struct ucx_endpoint *d, struct ucx_order *o)
{
    data_done_fn done = o->done;
    void *ctx = o->done_ctx;
    int status = o->status;
    data_buffer_release(&d->base, o->payload);
    pthread_mutex_lock(&d->order_lock);
    o->link->queued--;
    o->next = d->spare_orders;
    d->spare_orders = o;
    pthread_mutex_unlock(&d->order_lock);
    if (done)
        done(ctx, status);
}

/* The thread sleeps only when it found the queue empty: one signal wakes it for all that follow,
 * and an awake one needs none. */
void ucx_order_give(struct ucx_endpoint *d, struct ucx_order *o)
{
    pthread_mutex_lock(&d->order_lock);
    bool sleeps = d->asleep;
    ucx_order_append(&d->orders, o);
    d->asleep = false;
    pthread_mutex_unlock(&d->order_lock);
    if (sleeps)
        ucp_worker_signal(d->worker);
}

struct ucx_order *ucx_order_next(struct ucx_endpoint *d)
{
    pthread_mutex_lock(&d->order_lock);
    struct ucx_order *o = d->orders.first;
    d->asleep = false;
    if (o && !(d->orders.first = o->next))
        d->orders.tail = &d->orders.first;
    pthread_mutex_unlock(&d->order_lock);
    return o;
}

bool ucx_orders_wait(struct ucx_endpoint *d)
{
    pthread_mutex_lock(&d->order_lock);
    bool any = d->orders.first != NULL;
    pthread_mutex_unlock(&d->order_lock);
    return any;
}

bool ucx_orders_may_sleep(struct ucx_endpoint *d)
{
    pthread_mutex_lock(&d->order_lock);
    d->asleep = d->orders.first == NULL;
    bool may = d->asleep;
    pthread_mutex_unlock(&d->order_lock);
    return may;
}

void ucx_orders_free(struct ucx_endpoint *d)
{
    for (struct ucx_order *o = d->spare_orders, *next; o; o = next) {
        next = o->next;
        free(o);
    }
}
