/* What the guard's thread watches, and by which clock; any thread may add a listener. */
#include <sys/epoll.h>

#include "common/env.h"
#include "transport/ucx_guard_int.h"

uint64_t guard_now_ms(void)
{
    return env_now_ns(&env_real) / 1000000;
}

int guard_watch_set(struct ucx_guard *g, int op, int fd, uint32_t events, const void *what,
                    enum guard_watched kind)
{
    struct epoll_event ev = {.events = events, .data.u64 = (uint64_t)(uintptr_t)what | kind};
    return epoll_ctl(g->epoll, op, fd, &ev);
}

int guard_listener_watch(struct ucx_guard *g, struct guard_listener *l)
{
    return guard_watch_set(g, EPOLL_CTL_ADD, l->pair, EPOLLRDHUP, l, WATCH_PAIR) |
           guard_watch_set(g, EPOLL_CTL_ADD, l->real, EPOLLIN, l, WATCH_REAL);
}
