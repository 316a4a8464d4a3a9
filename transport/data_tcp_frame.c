/* Frames that are sent, their queues, and what is kept of both for the next: in steady state a
 * frame allocates nothing at either end. */
#include <stdlib.h>

#include "transport/data_tcp_int.h"

enum { MAX_SPARE = 256 };

void tcp_queue_init(struct tcp_queue *q)
{
    *q = (struct tcp_queue){NULL, &q->head, 0};
}

void tcp_queue_put(struct tcp_queue *q, struct tcp_frame *f)
{
    f->next = NULL;
    *q->tail = f;
    q->tail = &f->next;
    q->count++;
}

void tcp_queue_remove(struct tcp_queue *q, struct tcp_frame *f)
{
    struct tcp_frame **at = &q->head;
    while (*at != f)
        at = &(*at)->next;
    *at = f->next;
    if (q->tail == &f->next)
        q->tail = at;
    q->count--;
}

struct tcp_frame *tcp_queue_take(struct tcp_queue *q)
{
    struct tcp_frame *f = q->head;
    if (f)
        tcp_queue_remove(q, f);
    return f;
}

void tcp_queue_fail(struct tcp_endpoint *d, struct tcp_queue *q, int status)
{
    for (struct tcp_frame *f; (f = tcp_queue_take(q));)
        tcp_frame_end(d, f, status);
}

/* Frames are used again: in steady state a post allocates nothing. */
struct tcp_frame *tcp_frame_get(struct tcp_endpoint *d)
{
    pthread_mutex_lock(&d->base.lock);
    struct tcp_frame *f = d->spare;
    if (f) {
        d->spare = f->next;
        d->n_spare--;
    }
    pthread_mutex_unlock(&d->base.lock);
    return f ? f : malloc(sizeof *f);
}

static void frame_put_back(struct tcp_endpoint *d, struct tcp_frame *f)
{
    pthread_mutex_lock(&d->base.lock);
    bool keep = d->n_spare < MAX_SPARE;
    if (keep) {
        f->next = d->spare;
        d->spare = f;
        d->n_spare++;
    }
    pthread_mutex_unlock(&d->base.lock);
    if (!keep)
        free(f);
}

void tcp_frame_end(struct tcp_endpoint *d, struct tcp_frame *f, int status)
{
    data_done_fn done = f->done;
    void *ctx = f->done_ctx;
    if (status == 0)
        data_count_sent(&d->base, f->payload ? f->payload->size : 0);
    data_buffer_release(&d->base, f->payload);
    frame_put_back(d, f);
    if (done)
        done(ctx, status);
}

void tcp_frame_deliver(struct tcp_endpoint *d, const struct frame_header *h,
                       struct data_buffer *payload)
{
    data_count_received(&d->base, h->payload_bytes);
    pthread_mutex_unlock(&d->awake);
    d->base.callbacks.frame(d->base.callbacks.ctx, h, payload);
    pthread_mutex_lock(&d->awake);
}

void tcp_frames_free(struct tcp_endpoint *d)
{
    while (d->spare) {
        struct tcp_frame *f = d->spare;
        d->spare = f->next;
        free(f);
    }
    while (d->spare_arrivals) {
        struct tcp_arrival *a = d->spare_arrivals;
        d->spare_arrivals = a->next;
        free(a);
    }
}

struct tcp_arrival *tcp_arrival_get(struct tcp_endpoint *d)
{
    struct tcp_arrival *a = d->spare_arrivals;
    if (!a)
        return malloc(sizeof *a);
    d->spare_arrivals = a->next;
    d->n_spare_arrivals--;
    return a;
}

void tcp_arrival_put_back(struct tcp_endpoint *d, struct tcp_arrival *a)
{
    if (d->n_spare_arrivals == MAX_SPARE) {
        free(a);
        return;
    }
    a->next = d->spare_arrivals;
    d->spare_arrivals = a;
    d->n_spare_arrivals++;
}
