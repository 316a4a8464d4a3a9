/* UCX listens: the guard keeps the real socket, and UCX gets one end of a pair, over which proven
 * connections reach it. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "transport/ucx_guard_int.h"

/* ---- listeners ---- */

static pthread_mutex_t listeners_lock = PTHREAD_MUTEX_INITIALIZER;
static struct guard_listener *listeners;

static void listener_free(struct guard_listener *l)
{
    close(l->real);
    close(l->pair);
    free(l);
}

void guard_listener_remove(struct guard_listener *l)
{
    pthread_mutex_lock(&listeners_lock);
    struct guard_listener **at = &listeners;
    while (*at && *at != l)
        at = &(*at)->next;
    if (*at)
        *at = l->next;
    pthread_mutex_unlock(&listeners_lock);
    listener_free(l);
}

void guard_listeners_free(struct ucx_guard *g)
{
    pthread_mutex_lock(&listeners_lock);
    for (struct guard_listener **at = &listeners; *at;) {
        struct guard_listener *l = *at;
        if (l->guard != g) {
            at = &l->next;
            continue;
        }
        *at = l->next;
        listener_free(l);
    }
    pthread_mutex_unlock(&listeners_lock);
}

size_t guard_listeners_list(struct ucx_guard *g, struct guard_address out[GUARD_LIST_ADDRESSES])
{
    size_t n = 0;
    pthread_mutex_lock(&listeners_lock);
    for (const struct guard_listener *l = listeners; l && n < GUARD_LIST_ADDRESSES; l = l->next)
        if (l->guard == g)
            out[n++] = l->at;
    pthread_mutex_unlock(&listeners_lock);
    return n;
}

/* Under the lock: the listener that UCX means by this descriptor. */
static struct guard_listener *listener_find(int fd)
{
    struct guard_listener *l = listeners;
    while (l && l->stand_in != fd)
        l = l->next;
    return l && guard_inode_of(fd) == l->inode ? l : NULL;
}

/* Keeps the real socket, and puts one end of a pair in its place. */
static struct guard_listener *listener_create(struct ucx_guard *g, int fd)
{
    struct sockaddr_storage sa;
    socklen_t size = sizeof sa;
    int pair[2];
    struct guard_listener *l = calloc(1, sizeof *l);
    if (!l) {
        errno = ENOMEM;
        return NULL;
    }
    if (guard_real_getsockname(fd, (struct sockaddr *)&sa, &size) != 0 ||
        !guard_address_of((struct sockaddr *)&sa, size, &l->at) ||
        socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) != 0) {
        free(l);
        return NULL;
    }
    l->guard = g;
    l->stand_in = fd;
    l->pair = pair[1];
    l->real = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    bool replaced = l->real >= 0 && fcntl(l->real, F_SETFL, O_NONBLOCK) == 0 &&
                    dup3(pair[0], fd, O_CLOEXEC) == fd;
    close(pair[0]);
    if (!replaced) {
        close(pair[1]);
        if (l->real >= 0)
            close(l->real);
        free(l);
        return NULL;
    }
    l->inode = guard_inode_of(fd);
    return l;
}

/* A port is free again as soon as its process is gone. Where any port would do, it is the one that
 * the config names. UCX would try for ever if that were said to be in use. */
int guard_ucx_bind(struct ucx_guard *g, int fd, const struct sockaddr *address, socklen_t size)
{
    int yes = 1;
    struct guard_address at;
    struct sockaddr_storage fixed;
    bool any = g && g->config.port && guard_address_of(address, size, &at) && at.port == 0;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (!any)
        return guard_real_bind(fd, address, size);
    at.port = g->config.port;
    size = guard_address_to(&at, &fixed);
    int rc = guard_real_bind(fd, (struct sockaddr *)&fixed, size);
    if (rc != 0 && errno == EADDRINUSE) {
        g->listen_error = EADDRINUSE;
        errno = EADDRNOTAVAIL;
    }
    return rc;
}

int ucx_guard_listen_error(const struct ucx_guard *g)
{
    return g->listen_error;
}

int guard_ucx_listen(struct ucx_guard *g, int fd, int backlog)
{
    if (!g) {
        errno = EACCES;
        return -1;
    }
    struct guard_listener *l = guard_real_listen(fd, backlog) == 0 ? listener_create(g, fd) : NULL;
    if (!l) {
        g->listen_error = errno;
        return -1;
    }
    pthread_mutex_lock(&listeners_lock);
    l->next = listeners;
    listeners = l;
    pthread_mutex_unlock(&listeners_lock);
    if (guard_listener_watch(g, l) == 0)
        return 0;
    guard_listener_remove(l);
    return -1;
}

/* ---- from the guard to UCX ---- */

union fd_message {
    char bytes[CMSG_SPACE(sizeof(int))];
    struct cmsghdr align;
};

bool guard_listener_give(struct guard_listener *l, int fd, const uint8_t key[KEY_BYTES])
{
    union fd_message control = {.bytes = {0}};
    uint8_t own[KEY_BYTES];
    memcpy(own, key, KEY_BYTES);
    struct iovec part = {own, sizeof own};
    struct msghdr m = {.msg_iov = &part,
                       .msg_iovlen = 1,
                       .msg_control = control.bytes,
                       .msg_controllen = sizeof control.bytes};
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    *c = (struct cmsghdr){
        .cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
    memcpy(CMSG_DATA(c), &fd, sizeof fd);
    return guard_real_sendmsg(l->pair, &m, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)sizeof own;
}

/* The next proven connection in the pair; -1 when there is none. */
static int stand_in_receive(int stand_in, uint8_t key[KEY_BYTES])
{
    union fd_message control;
    struct iovec part = {key, KEY_BYTES};
    struct msghdr m = {.msg_iov = &part,
                       .msg_iovlen = 1,
                       .msg_control = control.bytes,
                       .msg_controllen = sizeof control.bytes};
    if (recvmsg(stand_in, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC) != KEY_BYTES)
        return -1;
    const struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    int fd = -1;
    if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
        memcpy(&fd, CMSG_DATA(c), sizeof fd);
    return fd;
}

/* A key may have left the set while its connection waited. */
static int stand_in_accept(struct guard_listener *l, struct sockaddr *address, socklen_t *size)
{
    uint8_t key[KEY_BYTES];
    int fd;
    while ((fd = stand_in_receive(l->stand_in, key)) >= 0) {
        struct ucx_guard *g = l->guard;
        bool good = guard_allows(g, key) &&
                    guard_admitted_add(&g->tables, fd, key, g->config.allowed(g->config.ctx, key));
        if (good && (!address || getpeername(fd, address, size) == 0))
            return fd;
        close(fd);
    }
    return -1;
}

int guard_ucx_accept(int fd, struct sockaddr *address, socklen_t *size)
{
    pthread_mutex_lock(&listeners_lock);
    struct guard_listener *l = listener_find(fd);
    int taken = l ? stand_in_accept(l, address, size) : -1;
    pthread_mutex_unlock(&listeners_lock);
    if (taken < 0)
        errno = EAGAIN;
    return taken;
}

int guard_ucx_getsockname(int fd, struct sockaddr *address, socklen_t *size)
{
    pthread_mutex_lock(&listeners_lock);
    const struct guard_listener *l = listener_find(fd);
    int rc = guard_real_getsockname(l ? l->real : fd, address, size);
    pthread_mutex_unlock(&listeners_lock);
    return rc;
}
