/* What epoll watches for an endpoint, and its clock. What has died in a turn is freed at its end,
 * since later events of the same turn may name it. */
#include <sys/epoll.h>

#include "transport/data_tcp_int.h"

uint64_t tcp_ms(const struct tcp_endpoint *d, uint64_t ms)
{
    return (uint64_t)((double)ms * d->time_scale);
}

bool tcp_watch_add(struct tcp_endpoint *d, int fd, struct tcp_watch *w, uint32_t events)
{
    struct epoll_event ev = {.events = events, .data.ptr = w};
    return epoll_ctl(d->epoll, EPOLL_CTL_ADD, fd, &ev) == 0;
}

void tcp_watch_ignore(struct tcp_watch *w, uint32_t events)
{
    (void)w, (void)events;
}

void tcp_watch_bury(struct tcp_endpoint *d, struct tcp_watch *w,
                    void (*free_watch)(struct tcp_watch *w))
{
    w->ready = tcp_watch_ignore;
    w->free = free_watch;
    w->next_dead = d->dead;
    d->dead = w;
}

void tcp_watches_free(struct tcp_endpoint *d)
{
    while (d->dead) {
        struct tcp_watch *w = d->dead;
        d->dead = w->next_dead;
        w->free(w);
    }
}
