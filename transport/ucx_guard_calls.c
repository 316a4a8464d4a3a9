/* The calls of UCX that the guard answers. They are this program's definitions of the system's
 * functions: the dynamic linker finds them before the C library's. Whoever else calls them is
 * passed through untouched. What the guard answers stands in ucx_guard_listen.c and
 * ucx_guard_connect.c. */
#include <errno.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>

#include "transport/ucx_guard_int.h"

enum { MAX_RANGES = 32 };

int bind(int fd, const struct sockaddr *address, socklen_t size);
int listen(int fd, int backlog);
int accept(int fd, struct sockaddr *restrict address, socklen_t *restrict size);
int accept4(int fd, struct sockaddr *restrict address, socklen_t *restrict size, int flags);
int getsockname(int fd, struct sockaddr *restrict address, socklen_t *restrict size);
int connect(int fd, const struct sockaddr *address, socklen_t size);
ssize_t send(int fd, const void *bytes, size_t size, int flags);
ssize_t sendmsg(int fd, const struct msghdr *message, int flags);
ssize_t recv(int fd, void *bytes, size_t size, int flags);

/* ---- who calls ---- */

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

/* ---- the calls ---- */

int bind(int fd, const struct sockaddr *address, socklen_t size)
{
    return caller_is_ucx(__builtin_return_address(0)) ? guard_ucx_bind(current, fd, address, size)
                                                      : guard_real_bind(fd, address, size);
}

int listen(int fd, int backlog)
{
    return caller_is_ucx(__builtin_return_address(0)) ? guard_ucx_listen(current, fd, backlog)
                                                      : guard_real_listen(fd, backlog);
}

int accept(int fd, struct sockaddr *restrict address, socklen_t *restrict size)
{
    return caller_is_ucx(__builtin_return_address(0)) ? guard_ucx_accept(fd, address, size)
                                                      : guard_real_accept(fd, address, size);
}

int accept4(int fd, struct sockaddr *restrict address, socklen_t *restrict size, int flags)
{
    return caller_is_ucx(__builtin_return_address(0))
               ? guard_ucx_accept(fd, address, size)
               : guard_real_accept4(fd, address, size, flags);
}

int connect(int fd, const struct sockaddr *address, socklen_t size)
{
    return caller_is_ucx(__builtin_return_address(0))
               ? guard_ucx_connect(current, fd, address, size)
               : guard_real_connect(fd, address, size);
}

int getsockname(int fd, struct sockaddr *restrict address, socklen_t *restrict size)
{
    return caller_is_ucx(__builtin_return_address(0)) ? guard_ucx_getsockname(fd, address, size)
                                                      : guard_real_getsockname(fd, address, size);
}

ssize_t send(int fd, const void *bytes, size_t size, int flags)
{
    return caller_is_ucx(__builtin_return_address(0)) ? guard_ucx_send(fd, bytes, size, flags)
                                                      : guard_real_send(fd, bytes, size, flags);
}

ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
    return caller_is_ucx(__builtin_return_address(0)) ? guard_ucx_sendmsg(fd, message, flags)
                                                      : guard_real_sendmsg(fd, message, flags);
}

ssize_t recv(int fd, void *bytes, size_t size, int flags)
{
    return caller_is_ucx(__builtin_return_address(0)) ? guard_ucx_recv(fd, bytes, size, flags)
                                                      : guard_real_recv(fd, bytes, size, flags);
}
