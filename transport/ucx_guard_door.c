/* What the guard's thread does: takes connections from the real listening sockets, leads the talk
 * with each (ucx_guard_visitors.c), and introduces this process to others (ucx_guard_introduce.c).
 * One epoll, fixed tables, no waiting for anybody. */
#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "transport/ucx_guard_int.h"

enum { ACCEPTS_A_TURN = 64, EVENTS_A_TURN = 64, TICK_MS = 250, PAUSE_MS = 100 };

struct guard_door *guard_door_create(void)
{
    struct guard_door *door = calloc(1, sizeof *door);
    for (int i = 0; door && i < GUARD_VISITORS; i++)
        door->visitors[i].fd = -1;
    return door;
}

/* ---- listeners ---- */

static void listener_pause(struct ucx_guard *g, struct guard_listener *l)
{
    guard_watch_set(g, EPOLL_CTL_MOD, l->real, 0, l, WATCH_REAL);
    l->next_paused = g->door->paused;
    g->door->paused = l;
    g->door->paused_until_ms = guard_now_ms() + PAUSE_MS;
    g->config.refused(g->config.ctx, "somebody", "this process has no descriptor left");
}

static void listener_accept(struct ucx_guard *g, struct guard_listener *l)
{
    for (int i = 0; i < ACCEPTS_A_TURN; i++) {
        struct sockaddr_storage sa;
        socklen_t size = sizeof sa;
        struct guard_address from;
        int fd = guard_real_accept4(l->real, (struct sockaddr *)&sa, &size,
                                    SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM))
            listener_pause(g, l);
        if (fd < 0)
            return;
        if (guard_address_of((struct sockaddr *)&sa, size, &from))
            guard_visitor_welcome(g, l, fd, &from);
        else
            close(fd);
    }
}

/* UCX closed its end. */
static void listener_end(struct ucx_guard *g, struct guard_listener *l)
{
    for (int i = 0; i < GUARD_MAX_UNPROVEN; i++)
        if (g->door->visitors[i].fd >= 0 && g->door->visitors[i].listener == l)
            guard_visitor_end(&g->door->visitors[i]);
    struct guard_listener **at = &g->door->paused;
    while (*at && *at != l)
        at = &(*at)->next_paused;
    if (*at)
        *at = l->next_paused;
    guard_listener_remove(l);
}

static void listeners_resume(struct ucx_guard *g, uint64_t now)
{
    while (g->door->paused && now >= g->door->paused_until_ms) {
        struct guard_listener *l = g->door->paused;
        g->door->paused = l->next_paused;
        guard_watch_set(g, EPOLL_CTL_MOD, l->real, EPOLLIN, l, WATCH_REAL);
    }
}

/* ---- the thread ---- */

static void visitors_expire(struct ucx_guard *g, uint64_t now)
{
    for (int i = 0; i < GUARD_VISITORS; i++) {
        struct guard_visitor *v = &g->door->visitors[i];
        if (v->introduction && now >= v->deadline_ms)
            guard_introduction_expire(v);
        else if (v->fd >= 0 && !v->introduction && now >= v->deadline_ms)
            guard_visitor_refuse(g, v,
                                 handshake_state(&v->talk.handshake) == HANDSHAKE_ASK
                                     ? "its key is no member's"
                                     : "no proof within 2 s");
    }
}

static void peers_look_again(struct ucx_guard *g)
{
    if (!atomic_exchange(&g->peers_changed, false))
        return;
    guard_tables_check(&g->tables, g->config.allowed, g->config.ctx);
    for (int i = 0; i < GUARD_MAX_UNPROVEN; i++)
        if (g->door->visitors[i].fd >= 0)
            guard_visitor_go(g, &g->door->visitors[i]);
}

static void event_handle(struct ucx_guard *g, const struct epoll_event *ev)
{
    void *what = (void *)(uintptr_t)(ev->data.u64 & ~(uint64_t)7);
    struct guard_visitor *v = what;
    uint64_t n;
    switch ((enum guard_watched)(ev->data.u64 & 7)) {
    case WATCH_WAKE: (void)!read(g->wake, &n, sizeof n); break;
    case WATCH_REAL: listener_accept(g, what); break;
    case WATCH_PAIR: break; /* last, see below: nothing may refer to it then */
    case WATCH_VISITOR:
        if (v->turn ==
            g->door->turn) /* it came in this turn: the event is of the one whose place it took */
            break;
        if (v->introduction)
            guard_introduction_go(g, v);
        else if (v->fd >= 0 && ev->events & (EPOLLHUP | EPOLLERR))
            guard_visitor_refuse(g, v, "it hung up");
        else if (v->fd >= 0)
            guard_visitor_go(g, v);
        break;
    }
}

static bool door_has_deadlines(const struct guard_door *door)
{
    bool any = door->paused;
    for (int i = 0; i < GUARD_VISITORS && !any; i++)
        any = door->visitors[i].fd >= 0 || door->visitors[i].introduction;
    return any;
}

void *guard_door_run(void *ctx)
{
    struct ucx_guard *g = ctx;
    struct epoll_event events[EVENTS_A_TURN];
    while (!atomic_load(&g->stopping)) {
        g->door->turn++;
        int n =
            epoll_wait(g->epoll, events, EVENTS_A_TURN, door_has_deadlines(g->door) ? TICK_MS : -1);
        for (int i = 0; i < n; i++)
            event_handle(g, &events[i]);
        for (int i = 0; i < n; i++)
            if ((events[i].data.u64 & 7) == WATCH_PAIR)
                listener_end(
                    g, (struct guard_listener *)(uintptr_t)(events[i].data.u64 & ~(uint64_t)7));
        uint64_t now = guard_now_ms();
        peers_look_again(g);
        guard_introductions_start(g);
        visitors_expire(g, now);
        listeners_resume(g, now);
    }
    return NULL;
}

void guard_door_destroy(struct guard_door *door)
{
    for (int i = 0; i < GUARD_VISITORS; i++)
        if (door->visitors[i].fd >= 0)
            guard_visitor_end(&door->visitors[i]);
    free(door);
}

int guard_door_open(struct ucx_guard *g)
{
    g->epoll = epoll_create1(EPOLL_CLOEXEC);
    g->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return g->epoll < 0 || g->wake < 0
               ? -1
               : guard_watch_set(g, EPOLL_CTL_ADD, g->wake, EPOLLIN, NULL, WATCH_WAKE);
}
