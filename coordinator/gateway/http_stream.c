/* A reply whose body comes in pieces. The first goes out through the daemon, behind the headers.
 * Once it has sent all that it was given, it sleeps, and the pieces that follow go to the socket
 * past it, in chunks as it would write them (RFC 9112, 7.1): waking it for each takes three times
 * as long. It is woken for the end. Streams to old clients, whose bodies have no chunks, and under
 * TLS go through the daemon all the way. */
#include <errno.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "coordinator/gateway/http_int.h"

enum { CHUNK_HEAD_BYTES = 20 };
static const char line_end[] = "\r\n";

static bool goes_past_daemon(const struct http_exchange *x)
{
    return x->interim && x->watch && !x->server->tls;
}

/* libmicrohttpd asks when all that it had has been sent. */
ssize_t http_stream_read(void *ctx, uint64_t position, char *out, size_t max)
{
    static const int on = 1;
    struct http_exchange *x = ctx;
    (void)position;
    size_t n = x->unsent.size - x->sent;
    if (x->state == EXCHANGE_GONE)
        return MHD_CONTENT_READER_END_WITH_ERROR;
    if (n == 0) {
        if (x->state == EXCHANGE_ENDED)
            return MHD_CONTENT_READER_END_OF_STREAM;
        x->suspended = true;
        x->asleep = goes_past_daemon(x);
        if (x->asleep)
            setsockopt(x->watch_fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        MHD_suspend_connection(x->connection);
        return 0;
    }
    if (n > max)
        n = max;
    memcpy(out, x->unsent.data + x->sent, n);
    x->sent += n;
    if (x->sent == x->unsent.size)
        x->sent = x->unsent.size = 0;
    return (ssize_t)n;
}

struct buffer *http_stream_buffer(struct http_exchange *x)
{
    return &x->unsent;
}

bool http_stream_flush(struct http_exchange *x)
{
    http_stream_due(x);
    return !x->unsent.failed && !x->rest.failed &&
           x->unsent.size - x->sent + x->rest.size - x->rest_sent <= HTTP_MAX_UNSENT_BYTES;
}

void http_stream_end(struct http_exchange *x)
{
    if (x->state != EXCHANGE_STREAMING)
        return;
    x->state = EXCHANGE_ENDED;
    x->gone = NULL;
    if (!x->blocked)
        http_exchange_wake(x);
}

void http_stream_forget(struct http_exchange *x)
{
    http_stream_undue(x);
    buffer_free(&x->unsent);
    buffer_free(&x->rest);
}

/* ---- past the daemon ---- */

static void stream_broke(struct http_exchange *x)
{
    http_watch_stop(x);
    http_watch_gone(x);
    x->blocked = false;
    http_exchange_wake(x);
}

/* The reader takes no more for now: what it has of a chunk goes on when it does, all else waits. */
static void stream_block(struct http_exchange *x)
{
    x->blocked = true;
    http_deadline_idle(x);
    http_watch_writable(x, true);
}

/* What a chunk has left behind its first `n` bytes. */
static void rest_keep(struct http_exchange *x, const struct iovec *parts, int n_parts, size_t n)
{
    x->rest.size = x->rest_sent = 0;
    for (int i = 0; i < n_parts; i++) {
        size_t skip = n < parts[i].iov_len ? n : parts[i].iov_len;
        buffer_append(&x->rest, (const char *)parts[i].iov_base + skip, parts[i].iov_len - skip);
        n -= skip;
    }
}

/* All that waits, as one chunk. */
static void chunk_send(struct http_exchange *x)
{
    static const char digits[] = "0123456789abcdef";
    char head[CHUNK_HEAD_BYTES], *at = head + sizeof head;
    size_t size = x->unsent.size - x->sent;
    *--at = '\n';
    *--at = '\r';
    for (size_t left = size; left; left >>= 4)
        *--at = digits[left & 15];
    struct iovec parts[] = {{at, (size_t)(head + sizeof head - at)},
                            {x->unsent.data + x->sent, size},
                            {(void *)(uintptr_t)line_end, 2}};
    struct msghdr m = {.msg_iov = parts, .msg_iovlen = 3};
    size_t whole = parts[0].iov_len + size + 2;
    ssize_t n = sendmsg(x->watch_fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno != EAGAIN && errno != EINTR) {
        stream_broke(x);
        return;
    }
    if (n > 0) {
        if ((size_t)n < whole)
            rest_keep(x, parts, 3, (size_t)n);
        x->sent = x->unsent.size = 0;
    }
    if (n < (ssize_t)whole)
        stream_block(x);
}

void http_streams_send(struct http_server *s)
{
    struct http_exchange *x;
    while ((x = s->due) != NULL) {
        http_stream_undue(x);
        if (x->asleep && !x->blocked && x->unsent.size > x->sent)
            chunk_send(x);
    }
}

void http_stream_writable(struct http_exchange *x)
{
    size_t left = x->rest.size - x->rest_sent;
    ssize_t n =
        left ? send(x->watch_fd, x->rest.data + x->rest_sent, left, MSG_NOSIGNAL | MSG_DONTWAIT)
             : 0;
    if (n < 0 && errno != EAGAIN && errno != EINTR) {
        stream_broke(x);
        return;
    }
    x->rest_sent += n > 0 ? (size_t)n : 0;
    if (n > 0)
        http_deadline_idle(x);
    if (x->rest_sent < x->rest.size)
        return;
    buffer_free(&x->rest);
    x->rest_sent = 0;
    x->blocked = false;
    http_deadline_none(x);
    http_watch_writable(x, false);
    if (x->state == EXCHANGE_ENDED)
        http_exchange_wake(x);
    else if (x->unsent.size > x->sent)
        http_stream_due(x);
}
