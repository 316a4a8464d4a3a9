#include "coordinator/gateway/rpc_guard.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/env.h"
#include "common/thread_turns.h"
#include "coordinator/gateway/rpc_frames.h"

enum { EVENTS_A_TURN = 64, CHUNK_BYTES = 65536, TICK_MS = 20, LINGER_MS = 5000, STOP_MS = 1000 };
enum { TLS_HANDSHAKE = 22 }; /* the first byte that a client of TLS sends */

enum side { STRANGER, LIBRARY, SIDES };

struct pipe;

/* One of its two descriptors, as epoll knows it. */
struct pipe_end {
    struct pipe *pipe;
    int fd;
    uint32_t watched;
    bool full; /* what is for it waits until it takes more */
    bool left; /* by its peer, and watched no longer */
};

struct pipe {
    struct pipe_end ends[SIDES];
    int given; /* the other end of the library's */
    struct rpc_frames frames;
    uint64_t until_ns; /* one side has ended: what is left for the other may take until then */
    bool dead;
    struct pipe *next_dead;
    struct pipe *next, **link;
};

struct rpc_guard {
    int epoll, wake;
    pthread_t thread;
    pthread_mutex_t lock; /* of all below, but for what is the thread's own */
    struct pipe *pipes;
    struct pipe **by_given; /* [n_given] */
    int n_given;
    bool stopping;
    /* The thread's own. */
    struct pipe *dead;
    bool ticks; /* a pipe has to be looked at again without an event */
    struct rpc_turns resets;
    uint64_t now_ns;
    uint8_t chunk[CHUNK_BYTES];
};

static void end_watch(struct rpc_guard *g, struct pipe_end *end, uint32_t events)
{
    struct epoll_event ev = {.events = events, .data.ptr = end};
    if (events == end->watched || end->left)
        return;
    epoll_ctl(g->epoll, EPOLL_CTL_MOD, end->fd, &ev);
    end->watched = events;
}

static bool errno_passes(void)
{
    return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
}

/* ---- bytes: on the guard's thread ---- */

/* How many of the chunk's bytes may go; -1: none, and the connection ends. */
static ptrdiff_t bytes_pass(struct rpc_guard *g, struct pipe *p, enum side from, size_t n)
{
    return from == LIBRARY ? (ptrdiff_t)n
                           : rpc_frames_pass(&p->frames, &g->resets, g->now_ns, g->chunk, n);
}

/* What is for a library that has closed its end goes nowhere: its own last words are carried yet,
 * and their reader goes on talking meanwhile. */
static bool send_is_for_nobody(enum side from)
{
    return from == STRANGER && (errno == EPIPE || errno == ECONNRESET);
}

/* They are looked at first, and taken from the one side when the other has them. */
static bool chunk_move(struct rpc_guard *g, struct pipe *p, enum side from, size_t n)
{
    struct pipe_end *source = &p->ends[from], *sink = &p->ends[!from];
    const struct rpc_frames frames = p->frames;
    const struct rpc_turns resets = g->resets;
    ptrdiff_t may = bytes_pass(g, p, from, n);
    if (may <= 0)
        return may == 0;
    ptrdiff_t sent = send(sink->fd, g->chunk, (size_t)may, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && send_is_for_nobody(from))
        sent = may;
    if (sent < 0 && !errno_passes())
        return false;
    if (sent < may) {
        sink->full = true;
        p->frames = frames;
        g->resets = resets;
        may = sent > 0 ? bytes_pass(g, p, from, (size_t)sent) : 0;
    }
    return may == 0 || recv(source->fd, g->chunk, (size_t)may, MSG_DONTWAIT) == may;
}

/* HTTP/1 is told what this port is, and so is TLS, whose clients call plain words a "wrong version
 * number"; the library's own first words wait until it is known that the stranger speaks HTTP/2.
 * What came is taken, else the end of the connection would overtake what is told. */
static void stranger_tell(struct rpc_guard *g, const struct pipe *p, size_t n)
{
    static const char told[] =
        "HTTP/1.1 505 HTTP Version Not Supported\r\nContent-Type: text/plain\r\n"
        "Content-Length: 64\r\nConnection: close\r\n\r\n"
        "gRPC is spoken here, over HTTP/2; HTTP/1 is at --http's address\n";
    bool is_text = g->chunk[0] >= 'A' && g->chunk[0] <= 'Z', is_tls = g->chunk[0] == TLS_HANDSHAKE;
    if (p->frames.preface > 3 || n <= 4 || !(is_text || is_tls))
        return;
    (void)!send(p->ends[STRANGER].fd, told, sizeof told - 1, MSG_NOSIGNAL | MSG_DONTWAIT);
    (void)!recv(p->ends[STRANGER].fd, g->chunk, sizeof g->chunk, MSG_DONTWAIT);
}

/* False: the pipe ends. */
static bool bytes_carry(struct rpc_guard *g, struct pipe *p, enum side from)
{
    if (p->ends[!from].full || (from == LIBRARY && !rpc_frames_began(&p->frames)))
        return true;
    ptrdiff_t n = recv(p->ends[from].fd, g->chunk, sizeof g->chunk, MSG_PEEK | MSG_DONTWAIT);
    if (n <= 0)
        return n < 0 && errno_passes();
    if (chunk_move(g, p, from, (size_t)n))
        return true;
    if (from == STRANGER)
        stranger_tell(g, p, (size_t)n);
    return false;
}

static void pipe_finish(struct rpc_guard *g, struct pipe *p)
{
    if (p->dead)
        return;
    p->dead = true;
    p->next_dead = g->dead;
    g->dead = p;
}

static void pipe_watch(struct rpc_guard *g, struct pipe *p)
{
    g->ticks |= p->frames.waits || p->until_ns;
    for (enum side s = STRANGER; s < SIDES; s++) {
        bool waits = s == STRANGER ? p->frames.waits : !rpc_frames_began(&p->frames);
        end_watch(g, &p->ends[s],
                  (p->ends[!s].full || waits ? 0 : EPOLLIN) |
                      (p->ends[s].full || p->ends[!s].left ? EPOLLOUT : 0) |
                      (s == STRANGER ? EPOLLRDHUP : 0));
    }
}

/* Nothing more comes from this side, which is watched no longer; what it has left for the other is
 * carried yet, whenever that takes some of it. */
static void end_hung_up(struct rpc_guard *g, struct pipe *p, enum side s)
{
    if (s == STRANGER || !p->ends[STRANGER].full) {
        pipe_finish(g, p);
        return;
    }
    epoll_ctl(g->epoll, EPOLL_CTL_DEL, p->ends[s].fd, NULL);
    p->ends[s].left = true;
    p->until_ns = g->now_ns + LINGER_MS * 1000000ull;
}

static void end_event(struct rpc_guard *g, struct pipe_end *end, uint32_t events)
{
    struct pipe *p = end->pipe;
    enum side s = end == &p->ends[LIBRARY] ? LIBRARY : STRANGER;
    if (p->dead)
        return;
    if (events & EPOLLOUT)
        end->full = false;
    if (!bytes_carry(g, p, LIBRARY) || !bytes_carry(g, p, STRANGER))
        pipe_finish(g, p);
    else if (events & (EPOLLHUP | EPOLLERR) && !(events & EPOLLIN))
        end_hung_up(g, p, s);
    else if (events & EPOLLRDHUP && (p->frames.waits || p->ends[LIBRARY].full))
        pipe_finish(g, p); /* what waits is for nobody */
    if (!p->dead)
        pipe_watch(g, p);
}

/* ---- pipes ---- */

static void pipe_free(struct rpc_guard *g, struct pipe *p)
{
    if (p->next)
        p->next->link = p->link;
    *p->link = p->next;
    if (p->given < g->n_given && g->by_given[p->given] == p)
        g->by_given[p->given] = NULL;
    for (enum side s = STRANGER; s < SIDES; s++)
        if (p->ends[s].fd >= 0)
            close(p->ends[s].fd);
    free(p);
}

static void dead_free(struct rpc_guard *g)
{
    while (g->dead) {
        struct pipe *p = g->dead;
        g->dead = p->next_dead;
        pipe_free(g, p);
    }
}

/* Whose turn to send resets has come, and what has had its time. */
static void pipes_tend(struct rpc_guard *g)
{
    g->ticks = false;
    for (struct pipe *p = g->pipes; p; p = p->next) {
        if (p->dead || (!p->frames.waits && !p->until_ns))
            continue;
        if ((p->until_ns && g->now_ns >= p->until_ns) || !bytes_carry(g, p, STRANGER))
            pipe_finish(g, p);
        else
            pipe_watch(g, p);
    }
}

static void guard_turn(struct rpc_guard *g)
{
    struct epoll_event events[EVENTS_A_TURN];
    uint64_t woken;
    int n = epoll_wait(g->epoll, events, EVENTS_A_TURN, g->ticks ? TICK_MS : -1);
    g->now_ns = env_now_ns(&env_real);
    for (int i = 0; i < n; i++) {
        if (events[i].data.ptr)
            end_event(g, events[i].data.ptr, events[i].events);
        else
            (void)!read(g->wake, &woken, sizeof woken);
    }
}

static void *guard_run(void *ctx)
{
    struct rpc_guard *g = ctx;
    uint64_t end_ns = UINT64_MAX;
    bool stopping = false;
    thread_turns_short();
    while (!stopping || (g->pipes && g->now_ns < end_ns)) {
        guard_turn(g);
        pthread_mutex_lock(&g->lock);
        pipes_tend(g);
        dead_free(g);
        if (g->stopping && !stopping)
            end_ns = g->now_ns + STOP_MS * 1000000ull;
        stopping = g->stopping;
        g->ticks |= stopping;
        pthread_mutex_unlock(&g->lock);
    }
    return NULL;
}

/* ---- the owner's ---- */

static bool given_keep(struct rpc_guard *g, struct pipe *p)
{
    if (p->given >= g->n_given) {
        int n = p->given * 2 + 64;
        struct pipe **more = realloc(g->by_given, (size_t)n * sizeof *more);
        if (!more)
            return false;
        memset(more + g->n_given, 0, (size_t)(n - g->n_given) * sizeof *more);
        g->by_given = more;
        g->n_given = n;
    }
    g->by_given[p->given] = p;
    return true;
}

static bool end_add(struct rpc_guard *g, struct pipe_end *end, uint32_t events)
{
    struct epoll_event ev = {.events = events, .data.ptr = end};
    end->watched = events;
    return epoll_ctl(g->epoll, EPOLL_CTL_ADD, end->fd, &ev) == 0;
}

/* The stranger's end is the last that is watched: until then nothing can happen to the pipe. */
static bool pipe_add(struct rpc_guard *g, struct pipe *p)
{
    p->next = g->pipes;
    p->link = &g->pipes;
    if (p->next)
        p->next->link = &p->next;
    g->pipes = p;
    return given_keep(g, p) && end_add(g, &p->ends[LIBRARY], 0) &&
           end_add(g, &p->ends[STRANGER], EPOLLIN | EPOLLRDHUP);
}

int rpc_guard_take(struct rpc_guard *g, int connection)
{
    struct pipe *p = calloc(1, sizeof *p);
    int pair[2];
    if (!p || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) != 0) {
        free(p);
        close(connection);
        return -1;
    }
    p->ends[STRANGER] = (struct pipe_end){.pipe = p, .fd = connection};
    p->ends[LIBRARY] = (struct pipe_end){.pipe = p, .fd = pair[0]};
    p->given = pair[1];
    pthread_mutex_lock(&g->lock);
    bool kept = pipe_add(g, p);
    if (!kept)
        pipe_free(g, p);
    pthread_mutex_unlock(&g->lock);
    if (kept)
        return pair[1];
    close(pair[1]);
    return -1;
}

int rpc_guard_connection(struct rpc_guard *g, int given)
{
    pthread_mutex_lock(&g->lock);
    struct pipe *p = given >= 0 && given < g->n_given ? g->by_given[given] : NULL;
    int connection = p ? p->ends[STRANGER].fd : -1;
    pthread_mutex_unlock(&g->lock);
    return connection;
}

static void guard_free(struct rpc_guard *g)
{
    for (struct pipe *p = g->pipes, *next; p; p = next) {
        next = p->next;
        pipe_free(g, p);
    }
    if (g->epoll >= 0)
        close(g->epoll);
    if (g->wake >= 0)
        close(g->wake);
    pthread_mutex_destroy(&g->lock);
    free(g->by_given);
    free(g);
}

/* Signals are the owner's. -1: errno says why not. */
static int thread_start(struct rpc_guard *g)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(&g->thread, NULL, guard_run, g);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = rc;
    return rc ? -1 : 0;
}

int rpc_guard_start(struct rpc_guard **out, struct err *e)
{
    struct epoll_event ev = {.events = EPOLLIN};
    struct rpc_guard *g = calloc(1, sizeof *g);
    if (!g)
        return err_no_memory(e, "gRPC's connections");
    pthread_mutex_init(&g->lock, NULL);
    g->epoll = epoll_create1(EPOLL_CLOEXEC);
    g->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (g->epoll < 0 || g->wake < 0 || epoll_ctl(g->epoll, EPOLL_CTL_ADD, g->wake, &ev) != 0 ||
        thread_start(g) != 0) {
        err_set(e, HP_EIO, "cannot watch gRPC's connections: %s", strerror(errno));
        guard_free(g);
        return HP_EIO;
    }
    *out = g;
    return 0;
}

void rpc_guard_stop(struct rpc_guard **out)
{
    struct rpc_guard *g = *out;
    uint64_t one = 1;
    *out = NULL;
    if (!g)
        return;
    pthread_mutex_lock(&g->lock);
    g->stopping = true;
    pthread_mutex_unlock(&g->lock);
    (void)!write(g->wake, &one, sizeof one);
    pthread_join(g->thread, NULL);
    guard_free(g);
}
