/* The calls of UCX that the guard answers. They are this program's definitions of the system's
 * functions: the dynamic linker finds them before the C library's. Whoever else calls them is
 * passed through untouched. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/env.h"
#include "transport/ucx_guard_int.h"

enum { MAX_RANGES = 32, CONNECT_DEADLINE_MS = 1500 };

int bind(int fd, const struct sockaddr *address, socklen_t size);
int listen(int fd, int backlog);
int accept(int fd, struct sockaddr *restrict address, socklen_t *restrict size);
int accept4(int fd, struct sockaddr *restrict address, socklen_t *restrict size, int flags);
int getsockname(int fd, struct sockaddr *restrict address, socklen_t *restrict size);
int connect(int fd, const struct sockaddr *address, socklen_t size);

/* ---- who calls
 * ---------------------------------------------------------------------------------------------------------------------------------
 */

static struct range {
    uintptr_t from, to;
} ranges[MAX_RANGES];
static atomic_int n_ranges;
static pthread_mutex_t ranges_lock = PTHREAD_MUTEX_INITIALIZER;

static bool name_is_ucx(const char *path)
{
    const char *name = strrchr(path, '/');
    name = name ? name + 1 : path;
    return strncmp(name, "libucs", 6) == 0 || strncmp(name, "libuct", 6) == 0 ||
           strncmp(name, "libucp", 6) == 0 || strncmp(name, "libucm", 6) == 0;
}

/* Under the lock. Other threads read what stands before n_ranges, which never changes: UCX's
 * libraries do not leave. */
static void range_add(struct range r)
{
    int n = atomic_load(&n_ranges);
    for (int i = 0; i < n; i++)
        if (ranges[i].from == r.from)
            return;
    if (n == MAX_RANGES)
        return;
    ranges[n] = r;
    atomic_store(&n_ranges, n + 1);
}

static int range_note(struct dl_phdr_info *info, size_t size, void *ctx)
{
    (void)size, (void)ctx;
    for (int i = 0; name_is_ucx(info->dlpi_name) && i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        if (p->p_type == PT_LOAD && (p->p_flags & PF_X))
            range_add((struct range){info->dlpi_addr + p->p_vaddr,
                                     info->dlpi_addr + p->p_vaddr + p->p_memsz});
    }
    return 0;
}

void guard_ranges_find(void)
{
    pthread_mutex_lock(&ranges_lock);
    dl_iterate_phdr(range_note, NULL);
    pthread_mutex_unlock(&ranges_lock);
}

static bool caller_is_ucx(const void *return_address)
{
    uintptr_t at = (uintptr_t)return_address;
    int n = atomic_load(&n_ranges);
    for (int i = 0; i < n; i++)
        if (at >= ranges[i].from && at < ranges[i].to)
            return true;
    return false;
}

/* The guard of what UCX does on this thread. */
static _Thread_local struct ucx_guard *current;

void ucx_guard_enter(struct ucx_guard *g)
{
    current = g;
}

/* ---- the system's own
 * -----------------------------------------------------------------------------------------------------------------------------
 */

/* ISO C has no cast from an object pointer to a function's. */
#define REAL(name, type)                                                                           \
    static type real_##name(void)                                                                  \
    {                                                                                              \
        static _Atomic(type) found;                                                                \
        type f = atomic_load(&found);                                                              \
        if (!f) {                                                                                  \
            void *symbol = dlsym(RTLD_NEXT, #name);                                                \
            memcpy(&f, &symbol, sizeof f);                                                         \
            atomic_store(&found, f);                                                               \
        }                                                                                          \
        return f;                                                                                  \
    }

typedef int (*listen_fn)(int, int);
typedef int (*accept_fn)(int, struct sockaddr *restrict, socklen_t *restrict);
typedef int (*accept4_fn)(int, struct sockaddr *restrict, socklen_t *restrict, int);
typedef int (*connect_fn)(int, const struct sockaddr *, socklen_t);
REAL(listen, listen_fn)
REAL(accept, accept_fn)
REAL(accept4, accept4_fn)
REAL(getsockname, accept_fn)
REAL(connect, connect_fn)
REAL(bind, connect_fn)

int guard_real_connect(int fd, const struct sockaddr *address, socklen_t size)
{
    return real_connect()(fd, address, size);
}

/* ---- listeners
 * -------------------------------------------------------------------------------------------------------------------------------------
 */

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
    if (real_getsockname()(fd, (struct sockaddr *)&sa, &size) != 0 ||
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
static int guarded_bind(struct ucx_guard *g, int fd, const struct sockaddr *address, socklen_t size)
{
    int yes = 1;
    struct guard_address at;
    struct sockaddr_storage fixed;
    bool any = g && g->config.port && guard_address_of(address, size, &at) && at.port == 0;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (!any)
        return real_bind()(fd, address, size);
    at.port = g->config.port;
    size = guard_address_to(&at, &fixed);
    int rc = real_bind()(fd, (struct sockaddr *)&fixed, size);
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

static int guarded_listen(struct ucx_guard *g, int fd, int backlog)
{
    if (!g) {
        errno = EACCES;
        return -1;
    }
    struct guard_listener *l = real_listen()(fd, backlog) == 0 ? listener_create(g, fd) : NULL;
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

/* ---- from the guard to UCX
 * ---------------------------------------------------------------------------------------------------------------------------
 */

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
    return sendmsg(l->pair, &m, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)sizeof own;
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

static int guarded_accept(int fd, struct sockaddr *address, socklen_t *size)
{
    pthread_mutex_lock(&listeners_lock);
    struct guard_listener *l = listener_find(fd);
    int taken = l ? stand_in_accept(l, address, size) : -1;
    pthread_mutex_unlock(&listeners_lock);
    if (taken < 0)
        errno = EAGAIN;
    return taken;
}

/* ---- UCX connects
 * -----------------------------------------------------------------------------------------------------------------------------------------
 */

static int64_t now_ms(void)
{
    return (int64_t)(env_now_ns(&env_real) / 1000000);
}

static bool socket_wait(int fd, short events, int64_t deadline_ms)
{
    for (;;) {
        int64_t left = deadline_ms - now_ms();
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
    if (real_connect()(fd, address, size) == 0)
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
static int guarded_connect(struct ucx_guard *g, int fd, const struct sockaddr *address,
                           socklen_t size)
{
    struct guard_address at;
    uint8_t key[KEY_BYTES];
    int flags = fcntl(fd, F_GETFL);
    if (!g || flags < 0 || !guard_address_of(address, size, &at) ||
        !guard_known_find(&g->tables, &at, key)) {
        errno = EACCES;
        return -1;
    }
    int64_t deadline_ms = now_ms() + CONNECT_DEADLINE_MS;
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

/* ---- the calls
 * --------------------------------------------------------------------------------------------------------------------------------------------
 */

int bind(int fd, const struct sockaddr *address, socklen_t size)
{
    return caller_is_ucx(__builtin_return_address(0)) ? guarded_bind(current, fd, address, size)
                                                      : real_bind()(fd, address, size);
}

int listen(int fd, int backlog)
{
    return caller_is_ucx(__builtin_return_address(0)) ? guarded_listen(current, fd, backlog)
                                                      : real_listen()(fd, backlog);
}

int accept(int fd, struct sockaddr *restrict address, socklen_t *restrict size)
{
    return caller_is_ucx(__builtin_return_address(0)) ? guarded_accept(fd, address, size)
                                                      : real_accept()(fd, address, size);
}

int accept4(int fd, struct sockaddr *restrict address, socklen_t *restrict size, int flags)
{
    return caller_is_ucx(__builtin_return_address(0)) ? guarded_accept(fd, address, size)
                                                      : real_accept4()(fd, address, size, flags);
}

int connect(int fd, const struct sockaddr *address, socklen_t size)
{
    return caller_is_ucx(__builtin_return_address(0)) ? guarded_connect(current, fd, address, size)
                                                      : real_connect()(fd, address, size);
}

int getsockname(int fd, struct sockaddr *restrict address, socklen_t *restrict size)
{
    if (caller_is_ucx(__builtin_return_address(0))) {
        pthread_mutex_lock(&listeners_lock);
        struct guard_listener *l = listener_find(fd);
        int rc = l ? real_getsockname()(l->real, address, size) : 0;
        pthread_mutex_unlock(&listeners_lock);
        if (l)
            return rc;
    }
    return real_getsockname()(fd, address, size);
}
