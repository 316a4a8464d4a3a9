/* UCX connects, where an introduction has led and after both ends proved themselves; and UCX sends
 * and receives on what was connected. */
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>

#include "transport/ucx_guard_int.h"

enum { CONNECT_DEADLINE_MS = 1500 };

/* ---- to connect ---- */

static bool socket_wait(int fd, short events, int64_t deadline_ms)
{
    for (;;) {
        int64_t left = deadline_ms - (int64_t)guard_now_ms();
        struct pollfd p = {fd, events, 0};
        int n = left > 0 ? poll(&p, 1, (int)left) : 0;
        if (n > 0)
            return true;
        if (n == 0 || errno != EINTR) {
            errno = ETIMEDOUT;
            return false;
        }
    }
}

static bool socket_connect(int fd, const struct sockaddr *address, socklen_t size,
                           int64_t deadline_ms)
{
    if (guard_real_connect(fd, address, size) == 0)
        return true;
    if (errno != EINPROGRESS || !socket_wait(fd, POLLOUT, deadline_ms))
        return false;
    int error = 0;
    socklen_t n = sizeof error;
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &n) == 0 && error != 0)
        errno = error;
    return error == 0;
}

static bool socket_prove(struct ucx_guard *g, int fd, const uint8_t key[KEY_BYTES],
                         int64_t deadline_ms)
{
    struct guard_talk talk;
    int yes = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    enum guard_turn turn =
        guard_talk_initiate(&talk, fd, &g->config.keys, key, GUARD_WISH_GIVE, NULL) == 0
            ? GUARD_WANTS_WRITE
            : GUARD_REFUSED;
    while (turn == GUARD_WANTS_WRITE || turn == GUARD_WANTS_READ) {
        turn = guard_talk_go(&talk, NULL, NULL);
        if (turn != GUARD_GIVE && turn != GUARD_REFUSED &&
            !socket_wait(fd, turn == GUARD_WANTS_READ ? POLLIN : POLLOUT, deadline_ms))
            turn = GUARD_REFUSED;
    }
    guard_talk_wipe(&talk);
    if (turn != GUARD_GIVE)
        errno = ECONNREFUSED;
    return turn == GUARD_GIVE;
}

/* The introduction has just gone the same way, so that this seldom waits longer than two round
 * trips. */
int guard_ucx_connect(struct ucx_guard *g, int fd, const struct sockaddr *address, socklen_t size)
{
    struct guard_address at;
    uint8_t key[KEY_BYTES];
    int flags = fcntl(fd, F_GETFL);
    if (!g || flags < 0 || !guard_address_of(address, size, &at) ||
        !guard_known_find(&g->tables, &at, key)) {
        errno = EACCES;
        return -1;
    }
    int64_t deadline_ms = (int64_t)guard_now_ms() + CONNECT_DEADLINE_MS;
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    fcntl(fd, F_SETFL, flags | O_NONBLOCK);
    bool proven = socket_connect(fd, address, size, deadline_ms) &&
                  socket_prove(g, fd, key, deadline_ms) &&
                  guard_admitted_add(&g->tables, fd, key, g->config.allowed(g->config.ctx, key));
    int error = errno;
    fcntl(fd, F_SETFL, flags);
    errno = proven ? EINPROGRESS : error;
    return proven && !(flags & O_NONBLOCK) ? 0 : -1; /* as the system answers for such a socket */
}

/* ---- to send and to receive ---- */

/* UCX 1.13 that learns from a failing send, in the middle of what it has read, that its connection
 * is gone, reads on all the same, and an acknowledgement among the rest ends the program by an
 * assertion (tcp_ep.c:939). So a send on a connection that is gone counts as one that left and was
 * lost on the way, and the next read, with nothing in hand, says that the connection has ended. */
static bool connection_has_ended(int fd, int error)
{
    bool ended = error == EPIPE || error == ECONNRESET || error == ETIMEDOUT ||
                 error == EHOSTUNREACH || error == ENETUNREACH || error == ENETDOWN;
    if (ended)
        shutdown(fd, SHUT_RDWR); /* reading comes to its end, whatever the reason was */
    return ended;
}

static size_t message_bytes(const struct msghdr *m)
{
    size_t bytes = 0;
    for (size_t i = 0; i < m->msg_iovlen; i++)
        bytes += m->msg_iov[i].iov_len;
    return bytes;
}

ssize_t guard_ucx_send(int fd, const void *bytes, size_t size, int flags)
{
    ssize_t sent = guard_real_send(fd, bytes, size, flags | MSG_NOSIGNAL);
    return sent < 0 && connection_has_ended(fd, errno) ? (ssize_t)size : sent;
}

ssize_t guard_ucx_sendmsg(int fd, const struct msghdr *message, int flags)
{
    ssize_t sent = guard_real_sendmsg(fd, message, flags | MSG_NOSIGNAL);
    return sent < 0 && connection_has_ended(fd, errno) ? (ssize_t)message_bytes(message) : sent;
}

ssize_t guard_ucx_recv(int fd, void *bytes, size_t size, int flags)
{
    return guard_real_recv(fd, bytes, size < GUARD_RECEIVE_BYTES ? size : GUARD_RECEIVE_BYTES,
                           flags);
}
