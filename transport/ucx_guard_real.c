/* The system's own functions behind those that this program defines in their place
 * (ucx_guard_calls.c). The guard itself calls these. */
#include <dlfcn.h>
#include <string.h>

#include "transport/ucx_guard_int.h"

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
typedef ssize_t (*send_fn)(int, const void *, size_t, int);
typedef ssize_t (*recv_fn)(int, void *, size_t, int);
typedef ssize_t (*sendmsg_fn)(int, const struct msghdr *, int);
REAL(listen, listen_fn)
REAL(accept, accept_fn)
REAL(accept4, accept4_fn)
REAL(getsockname, accept_fn)
REAL(connect, connect_fn)
REAL(bind, connect_fn)
REAL(send, send_fn)
REAL(sendmsg, sendmsg_fn)
REAL(recv, recv_fn)

int guard_real_connect(int fd, const struct sockaddr *address, socklen_t size)
{
    return real_connect()(fd, address, size);
}

int guard_real_bind(int fd, const struct sockaddr *address, socklen_t size)
{
    return real_bind()(fd, address, size);
}

int guard_real_listen(int fd, int backlog)
{
    return real_listen()(fd, backlog);
}

int guard_real_accept(int fd, struct sockaddr *restrict address, socklen_t *restrict size)
{
    return real_accept()(fd, address, size);
}

int guard_real_accept4(int fd, struct sockaddr *restrict address, socklen_t *restrict size,
                       int flags)
{
    return real_accept4()(fd, address, size, flags);
}

int guard_real_getsockname(int fd, struct sockaddr *address, socklen_t *size)
{
    return real_getsockname()(fd, address, size);
}

ssize_t guard_real_send(int fd, const void *bytes, size_t size, int flags)
{
    return real_send()(fd, bytes, size, flags);
}

ssize_t guard_real_recv(int fd, void *bytes, size_t size, int flags)
{
    return real_recv()(fd, bytes, size, flags);
}

ssize_t guard_real_sendmsg(int fd, const struct msghdr *message, int flags)
{
    return real_sendmsg()(fd, message, flags);
}
