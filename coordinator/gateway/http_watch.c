/* Is the client of a sleeping connection still there? And what happens to connections whose request
 * was answered before it was read. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "coordinator/gateway/http_int.h"

enum {
    LINGER_MS = 5000,
    LINGER_MAX_BYTES = 64 << 20,
    LINGER_READS = 16,
    LINGER_READ_BYTES = 65536
};

/* ---- a connection's socket on the loop ---- */

uv_poll_t *http_poll_open(struct http_server *s, struct MHD_Connection *connection, void *ctx)
{
    int fd = fcntl(http_connection_fd(connection), F_DUPFD_CLOEXEC, 0);
    uv_poll_t *poll = fd >= 0 ? malloc(sizeof *poll) : NULL;
    if (poll && uv_poll_init(s->loop, poll, fd) == 0) {
        poll->data = ctx;
        return poll;
    }
    free(poll);
    if (fd >= 0)
        close(fd);
    return NULL;
}

static void on_poll_closed(uv_handle_t *handle)
{
    close((int)(intptr_t)handle->data);
    free(handle);
}

void http_poll_close(uv_poll_t **poll)
{
    uv_poll_t *p = *poll;
    *poll = NULL;
    if (!p)
        return;
    uv_os_fd_t fd = -1;
    uv_fileno((uv_handle_t *)p, &fd);
    uv_poll_stop(p);
    p->data = (void *)(intptr_t)fd;
    uv_close((uv_handle_t *)p, on_poll_closed);
}

/* ---- watching ---- */

void http_watch_stop(struct http_exchange *x)
{
    http_poll_close(&x->watch);
}

void http_watch_gone(struct http_exchange *x)
{
    if (x->state == EXCHANGE_GONE || x->state == EXCHANGE_REPLIED || x->state == EXCHANGE_ENDED)
        return;
    x->state = EXCHANGE_GONE;
    if (x->gone)
        x->gone(x->gone_ctx);
    x->gone = NULL;
}

static void watched_is_gone(struct http_exchange *x)
{
    http_watch_stop(x);
    http_watch_gone(x);
    http_exchange_wake(x);
}

/* Its sending half is closed: either the client waits for the answer (`nc -N`), or it closed
 * everything. Only bytes tell: the host of a client that is gone answers them with a reset. They
 * are such as any client skips: a comment of an event stream, an interim reply of HTTP/1.1. */
static void client_probe(struct http_exchange *x)
{
    static const char interim[] = "HTTP/1.1 100 Continue\r\n\r\n", comment[] = ": still here\n\n";
    if (x->state == EXCHANGE_STREAMING) {
        buffer_append(&x->unsent, comment, sizeof comment - 1);
        http_stream_due(x);
    } else if (x->state == EXCHANGE_WAITING && x->interim) {
        http_connection_send(x->connection, interim, sizeof interim - 1);
    }
}

/* After the sending half is closed only errors and a full hang-up wake it; both come whatever is
 * asked for. */
static void on_watched(uv_poll_t *handle, int status, int events)
{
    struct http_exchange *x = handle->data;
    if (status < 0 || (x->half_closed && !(events & UV_WRITABLE))) {
        watched_is_gone(x);
    } else if (events & UV_DISCONNECT) {
        x->half_closed = true;
        http_watch_writable(x, x->blocked);
        client_probe(x);
    } else if (events & UV_WRITABLE && x->blocked) {
        x->server->writable(x);
    }
}

void http_watch_writable(struct http_exchange *x, bool wanted)
{
    int events = x->half_closed ? UV_PRIORITIZED : UV_DISCONNECT;
    if (x->watch)
        uv_poll_start(x->watch, events | (wanted ? UV_WRITABLE : 0), on_watched);
}

void http_watch_start(struct http_exchange *x)
{
    x->watch = http_poll_open(x->server, x->connection, x);
    if (!x->watch)
        return;
    uv_fileno((uv_handle_t *)x->watch, &x->watch_fd);
    http_watch_writable(x, false);
}

/* ---- lingering ---- */

struct lingering {
    uv_poll_t poll;
    uv_timer_t timer;
    struct http_server *server;
    struct lingering *next, **link;
    int fd, handles;
    size_t dropped;
};

static void on_linger_closed(uv_handle_t *handle)
{
    struct lingering *l = handle->data;
    if (--l->handles > 0)
        return;
    close(l->fd);
    free(l);
}

static void linger_end(struct lingering *l)
{
    if (uv_is_closing((uv_handle_t *)&l->poll))
        return;
    if (l->next)
        l->next->link = l->link;
    *l->link = l->next;
    l->server->n_lingering--;
    uv_close((uv_handle_t *)&l->poll, on_linger_closed);
    uv_close((uv_handle_t *)&l->timer, on_linger_closed);
}

static void on_linger_timer(uv_timer_t *timer)
{
    linger_end(timer->data);
}

static void on_linger_readable(uv_poll_t *poll, int status, int events)
{
    struct lingering *l = poll->data;
    char bytes[LINGER_READ_BYTES];
    (void)events;
    for (int i = 0; status == 0 && i < LINGER_READS; i++) {
        ssize_t n = recv(l->fd, bytes, sizeof bytes, MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        l->dropped += n > 0 ? (size_t)n : 0;
        if (n <= 0 || l->dropped > LINGER_MAX_BYTES)
            status = -1;
    }
    if (status < 0)
        linger_end(l);
}

void http_linger(struct http_server *s, struct MHD_Connection *connection)
{
    struct lingering *l =
        s->stopping || s->n_lingering >= HTTP_MAX_LINGERING ? NULL : calloc(1, sizeof *l);
    if (!l)
        return;
    *l = (struct lingering){
        .server = s, .fd = fcntl(http_connection_fd(connection), F_DUPFD_CLOEXEC, 0), .handles = 2};
    if (l->fd < 0 || uv_poll_init(s->loop, &l->poll, l->fd) < 0) {
        if (l->fd >= 0)
            close(l->fd);
        free(l);
        return;
    }
    uv_timer_init(s->loop, &l->timer);
    l->next = s->lingering;
    l->link = &s->lingering;
    l->poll.data = l->timer.data = l;
    if (l->next)
        l->next->link = &l->next;
    s->lingering = l;
    s->n_lingering++;
    shutdown(l->fd, SHUT_WR);
    uv_poll_start(&l->poll, UV_READABLE, on_linger_readable);
    uv_timer_start(&l->timer, on_linger_timer, LINGER_MS, 0);
}

void http_linger_stop(struct http_server *s)
{
    while (s->lingering)
        linger_end(s->lingering);
}
