/* What the guard's thread does: takes connections from the real listening sockets, leads the talk
 * with each, hands the proven ones to UCX, and introduces this process to others. One epoll, fixed
 * tables, no waiting for anybody. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "transport/ucx_guard_int.h"

enum {
    MAX_INTRODUCING = 64,
    VISITORS = GUARD_MAX_UNPROVEN + MAX_INTRODUCING,
    ACCEPTS_A_TURN = 64,
    EVENTS_A_TURN = 64,
    TICK_MS = 250,
    PAUSE_MS = 100
};

/* One connection that the thread talks on: a visitor at a listener, or an introduction of ours. */
struct visitor {
    int fd;                          /* -1: free */
    struct guard_listener *listener; /* NULL: an introduction */
    struct ucx_introduction *introduction;
    struct guard_address from; /* or to, of an introduction */
    bool connecting;
    uint64_t since_ms, deadline_ms;
    uint64_t turn; /* of the thread, in which it came */
    struct guard_talk talk;
};

struct guard_door {
    struct visitor visitors[VISITORS]; /* first GUARD_MAX_UNPROVEN for those who come */
    struct guard_listener *paused;     /* a list: no descriptors were left for them */
    uint64_t paused_until_ms;
    uint64_t turn;
};

struct guard_door *guard_door_create(void)
{
    struct guard_door *door = calloc(1, sizeof *door);
    for (int i = 0; door && i < VISITORS; i++)
        door->visitors[i].fd = -1;
    return door;
}

static uint64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

bool guard_allows(void *guard, const uint8_t key[KEY_BYTES])
{
    struct ucx_guard *g = guard;
    return g->config.allowed(g->config.ctx, key) || guard_known_is_chosen(&g->tables, key);
}

/* ---- the watch: what an epoll event is about
 * ------------------------------------------------------------------------------------------------
 */

enum watched { WATCH_WAKE, WATCH_REAL, WATCH_PAIR, WATCH_VISITOR };

/* The kind in the low bits of a pointer; all of them are aligned to 8. */
static int watch_set(struct ucx_guard *g, int op, int fd, uint32_t events, const void *what,
                     enum watched kind)
{
    struct epoll_event ev = {.events = events, .data.u64 = (uint64_t)(uintptr_t)what | kind};
    return epoll_ctl(g->epoll, op, fd, &ev);
}

int guard_listener_watch(struct ucx_guard *g, struct guard_listener *l)
{
    return watch_set(g, EPOLL_CTL_ADD, l->pair, EPOLLRDHUP, l, WATCH_PAIR) |
           watch_set(g, EPOLL_CTL_ADD, l->real, EPOLLIN, l, WATCH_REAL);
}

/* ---- visitors
 * ----------------------------------------------------------------------------------------------------------------------------------
 */

/* A whole network of IPv6 costs a stranger as little as one address of IPv4. */
static bool source_equal(const struct guard_address *a, const struct guard_address *b)
{
    static const uint8_t mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    return memcmp(a->ip, b->ip, memcmp(a->ip, mapped, sizeof mapped) == 0 ? 16 : 8) == 0;
}

static void refused_count(struct ucx_guard *g, const struct visitor *v, const char *why)
{
    char ip[INET6_ADDRSTRLEN];
    if (atomic_load(&g->testing)) {
        atomic_fetch_add(&g->tested, 1);
        return;
    }
    inet_ntop(AF_INET6, v->from.ip, ip, sizeof ip);
    g->config.refused(g->config.ctx, strncmp(ip, "::ffff:", 7) == 0 ? ip + 7 : ip, why);
}

static void visitor_end(struct visitor *v)
{
    if (v->fd >= 0)
        close(v->fd);
    guard_talk_wipe(&v->talk);
    v->fd = -1;
    v->introduction = NULL;
}

static void visitor_refuse(struct ucx_guard *g, struct visitor *v, const char *why)
{
    refused_count(g, v, why);
    visitor_end(v);
}

/* The oldest visitor of an address (NULL: of all), of those who have proven nothing if there is
 * one. */
static struct visitor *visitor_oldest(struct guard_door *door, const struct guard_address *from)
{
    struct visitor *oldest = NULL;
    for (int i = 0; i < GUARD_MAX_UNPROVEN; i++) {
        struct visitor *v = &door->visitors[i];
        if (v->fd < 0 || (from && !source_equal(&v->from, from)))
            continue;
        bool better =
            oldest && guard_talk_has_begun(&v->talk) < guard_talk_has_begun(&oldest->talk);
        bool same = oldest && guard_talk_has_begun(&v->talk) == guard_talk_has_begun(&oldest->talk);
        if (!oldest || better || (same && v->since_ms < oldest->since_ms))
            oldest = v;
    }
    return oldest;
}

static struct visitor *visitor_place(struct ucx_guard *g, const struct guard_address *from)
{
    struct visitor *free_one = NULL;
    int of_address = 0;
    for (int i = 0; i < GUARD_MAX_UNPROVEN; i++) {
        struct visitor *v = &g->door->visitors[i];
        if (v->fd < 0)
            free_one = v;
        else
            of_address += source_equal(&v->from, from);
    }
    if (free_one && of_address < GUARD_MAX_OF_ONE_ADDRESS)
        return free_one;
    struct visitor *out =
        visitor_oldest(g->door, of_address >= GUARD_MAX_OF_ONE_ADDRESS ? from : NULL);
    visitor_refuse(g, out, "its place was taken by a newcomer");
    return out;
}

static void visitor_give(struct ucx_guard *g, struct visitor *v)
{
    watch_set(g, EPOLL_CTL_DEL, v->fd, 0, v, WATCH_VISITOR);
    if (guard_listener_give(v->listener, v->fd, handshake_peer(&v->talk.handshake)))
        visitor_end(v);
    else
        visitor_refuse(g, v, "UCX has not taken the members that came before it");
}

/* Where the other listens, as it says. */
static bool list_remember(struct ucx_guard *g, const struct guard_talk *t,
                          const uint8_t key[KEY_BYTES], bool chosen)
{
    struct guard_address list[GUARD_LIST_ADDRESSES];
    size_t n = guard_talk_list(t, list);
    bool all = true;
    struct guard_known k = {.chosen = chosen, .watched = g->config.allowed(g->config.ctx, key)};
    memcpy(k.key, key, KEY_BYTES);
    for (size_t i = 0; i < n; i++) {
        k.at = list[i];
        all &= guard_known_set(&g->tables, &k);
    }
    return all;
}

static void list_tell(struct ucx_guard *g, struct guard_talk *t)
{
    struct guard_address list[GUARD_LIST_ADDRESSES];
    guard_talk_tell(t, list, guard_listeners_list(g, list));
}

static void visitor_go(struct ucx_guard *g, struct visitor *v)
{
    enum guard_turn turn = guard_talk_go(&v->talk, guard_allows, g);
    if (turn == GUARD_ANSWER) {
        list_remember(g, &v->talk, handshake_peer(&v->talk.handshake), false);
        list_tell(g, &v->talk);
        turn = guard_talk_go(&v->talk, guard_allows, g);
    }
    switch (turn) {
    case GUARD_WANTS_READ: watch_set(g, EPOLL_CTL_MOD, v->fd, EPOLLIN, v, WATCH_VISITOR); break;
    case GUARD_WANTS_WRITE: watch_set(g, EPOLL_CTL_MOD, v->fd, EPOLLOUT, v, WATCH_VISITOR); break;
    case GUARD_HELD: /* the news that this key is allowed may be on its way */
        watch_set(g, EPOLL_CTL_MOD, v->fd, 0, v, WATCH_VISITOR);
        v->deadline_ms = v->since_ms + GUARD_HOLD_MS;
        break;
    case GUARD_GIVE: visitor_give(g, v); break;
    case GUARD_DONE: visitor_end(v); break;
    case GUARD_ANSWER:
    case GUARD_REFUSED: visitor_refuse(g, v, v->talk.why.text); break;
    }
}

static void visitor_welcome(struct ucx_guard *g, struct guard_listener *l, int fd,
                            const struct guard_address *from)
{
    struct visitor *v = visitor_place(g, from);
    int yes = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    uint64_t now = now_ms();
    *v = (struct visitor){.fd = fd,
                          .listener = l,
                          .from = *from,
                          .since_ms = now,
                          .deadline_ms = now + GUARD_DEADLINE_MS,
                          .turn = g->door->turn};
    if (guard_talk_respond(&v->talk, fd, &g->config.keys, NULL) < 0 ||
        watch_set(g, EPOLL_CTL_ADD, fd, 0, v, WATCH_VISITOR) != 0) {
        visitor_refuse(g, v, "no room to hear it");
        return;
    }
    visitor_go(g, v);
}

/* ---- listeners
 * ----------------------------------------------------------------------------------------------------------------------------------
 */

static void listener_pause(struct ucx_guard *g, struct guard_listener *l)
{
    watch_set(g, EPOLL_CTL_MOD, l->real, 0, l, WATCH_REAL);
    l->next_paused = g->door->paused;
    g->door->paused = l;
    g->door->paused_until_ms = now_ms() + PAUSE_MS;
}

static void listener_accept(struct ucx_guard *g, struct guard_listener *l)
{
    for (int i = 0; i < ACCEPTS_A_TURN; i++) {
        struct sockaddr_storage sa;
        socklen_t size = sizeof sa;
        struct guard_address from;
        int fd = accept4(l->real, (struct sockaddr *)&sa, &size, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM))
            listener_pause(g, l);
        if (fd < 0)
            return;
        if (guard_address_of((struct sockaddr *)&sa, size, &from))
            visitor_welcome(g, l, fd, &from);
        else
            close(fd);
    }
}

/* UCX closed its end. */
static void listener_end(struct ucx_guard *g, struct guard_listener *l)
{
    for (int i = 0; i < GUARD_MAX_UNPROVEN; i++)
        if (g->door->visitors[i].fd >= 0 && g->door->visitors[i].listener == l)
            visitor_end(&g->door->visitors[i]);
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
        watch_set(g, EPOLL_CTL_MOD, l->real, EPOLLIN, l, WATCH_REAL);
    }
}

/* ---- introductions
 * --------------------------------------------------------------------------------------------------------------------------------
 */

static void introduction_end(struct visitor *v, const struct err *why)
{
    struct ucx_introduction *i = v->introduction;
    visitor_end(v);
    i->done(i, why);
}

static void introduction_fail(struct visitor *v, const char *why)
{
    struct err e = {0};
    const struct data_address *to = &v->introduction->to;
    err_set(&e, HP_ELINK, "no data connection to %s port %u: %s", to->host, to->port, why);
    err_hint(&e, "is the agent running there, and is the port open in its firewall?");
    introduction_end(v, &e);
}

static void introduction_connect(struct ucx_guard *g, struct visitor *v)
{
    struct err e = {0};
    struct sockaddr_storage sa;
    socklen_t size = guard_address_to(&v->from, &sa);
    int yes = 1;
    v->fd = socket(sa.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (v->fd < 0 || setsockopt(v->fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes) != 0 ||
        (guard_real_connect(v->fd, (struct sockaddr *)&sa, size) != 0 && errno != EINPROGRESS) ||
        watch_set(g, EPOLL_CTL_ADD, v->fd, EPOLLOUT, v, WATCH_VISITOR) != 0) {
        introduction_fail(v, strerror(errno));
        return;
    }
    v->connecting = true;
    if (guard_talk_initiate(&v->talk, v->fd, &g->config.keys, v->introduction->to.key,
                            GUARD_WISH_INTRODUCE, &e) < 0)
        introduction_fail(v, e.text);
    else
        list_tell(g, &v->talk);
}

/* UCX may connect there now, and be connected from there. */
static void introduction_succeed(struct ucx_guard *g, struct visitor *v)
{
    struct guard_known k = {.at = v->from,
                            .chosen = true,
                            .watched = g->config.allowed(g->config.ctx, v->introduction->to.key)};
    memcpy(k.key, v->introduction->to.key, KEY_BYTES);
    if (list_remember(g, &v->talk, k.key, true) && guard_known_set(&g->tables, &k))
        introduction_end(v, NULL);
    else
        introduction_fail(v, "no memory to remember its addresses");
}

/* The connection stands, or why it does not. */
static bool introduction_is_connected(struct visitor *v)
{
    int error = 0;
    socklen_t size = sizeof error;
    if (!v->connecting)
        return true;
    v->connecting = false;
    if (getsockopt(v->fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0 || error != 0) {
        introduction_fail(v, strerror(error ? error : errno));
        return false;
    }
    return true;
}

static void introduction_go(struct ucx_guard *g, struct visitor *v)
{
    if (!introduction_is_connected(v))
        return;
    switch (guard_talk_go(&v->talk, NULL, NULL)) {
    case GUARD_WANTS_READ: watch_set(g, EPOLL_CTL_MOD, v->fd, EPOLLIN, v, WATCH_VISITOR); break;
    case GUARD_WANTS_WRITE: watch_set(g, EPOLL_CTL_MOD, v->fd, EPOLLOUT, v, WATCH_VISITOR); break;
    case GUARD_DONE: introduction_succeed(g, v); break;
    default: introduction_fail(v, v->talk.why.text); break;
    }
}

static void introduction_start(struct ucx_guard *g, struct visitor *v, struct ucx_introduction *i)
{
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(i->to.port)};
    struct sockaddr_in6 in6 = {.sin6_family = AF_INET6, .sin6_port = htons(i->to.port)};
    *v = (struct visitor){.fd = -1, .introduction = i, .deadline_ms = now_ms() + GUARD_DEADLINE_MS};
    bool good = inet_pton(AF_INET, i->to.host, &in.sin_addr) == 1
                    ? guard_address_of((struct sockaddr *)&in, sizeof in, &v->from)
                    : inet_pton(AF_INET6, i->to.host, &in6.sin6_addr) == 1 &&
                          guard_address_of((struct sockaddr *)&in6, sizeof in6, &v->from);
    if (good)
        introduction_connect(g, v);
    else
        introduction_fail(v, "this is no numeric address");
}

static void introductions_start(struct ucx_guard *g)
{
    for (int n = GUARD_MAX_UNPROVEN; n < VISITORS; n++) {
        if (g->door->visitors[n].introduction)
            continue;
        pthread_mutex_lock(&g->lock);
        struct ucx_introduction *i = g->first;
        if (i && !(g->first = i->next))
            g->tail = &g->first;
        pthread_mutex_unlock(&g->lock);
        if (!i)
            return;
        introduction_start(g, &g->door->visitors[n], i);
    }
}

/* ---- the thread
 * --------------------------------------------------------------------------------------------------------------------------------------
 */

static void visitors_expire(struct ucx_guard *g, uint64_t now)
{
    for (int i = 0; i < VISITORS; i++) {
        struct visitor *v = &g->door->visitors[i];
        if (v->introduction && now >= v->deadline_ms)
            introduction_fail(v, v->connecting
                                     ? "no answer within 2 s"
                                     : "no proof within 2 s (is this agent still a member there?)");
        else if (v->fd >= 0 && !v->introduction && now >= v->deadline_ms)
            visitor_refuse(g, v,
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
            visitor_go(g, &g->door->visitors[i]);
}

static void event_handle(struct ucx_guard *g, const struct epoll_event *ev)
{
    void *what = (void *)(uintptr_t)(ev->data.u64 & ~(uint64_t)7);
    struct visitor *v = what;
    uint64_t n;
    switch ((enum watched)(ev->data.u64 & 7)) {
    case WATCH_WAKE: (void)!read(g->wake, &n, sizeof n); break;
    case WATCH_REAL: listener_accept(g, what); break;
    case WATCH_PAIR: break; /* last, see below: nothing may refer to it then */
    case WATCH_VISITOR:
        if (v->turn ==
            g->door->turn) /* it came in this turn: the event is of the one whose place it took */
            break;
        if (v->introduction)
            introduction_go(g, v);
        else if (v->fd >= 0 && ev->events & (EPOLLHUP | EPOLLERR))
            visitor_refuse(g, v, "it hung up");
        else if (v->fd >= 0)
            visitor_go(g, v);
        break;
    }
}

static bool door_has_deadlines(const struct guard_door *door)
{
    bool any = door->paused;
    for (int i = 0; i < VISITORS && !any; i++)
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
        uint64_t now = now_ms();
        peers_look_again(g);
        introductions_start(g);
        visitors_expire(g, now);
        listeners_resume(g, now);
    }
    return NULL;
}

void guard_door_destroy(struct guard_door *door)
{
    for (int i = 0; i < VISITORS; i++)
        if (door->visitors[i].fd >= 0)
            visitor_end(&door->visitors[i]);
    free(door);
}

int guard_door_open(struct ucx_guard *g)
{
    g->epoll = epoll_create1(EPOLL_CLOEXEC);
    g->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return g->epoll < 0 || g->wake < 0
               ? -1
               : watch_set(g, EPOLL_CTL_ADD, g->wake, EPOLLIN, NULL, WATCH_WAKE);
}
