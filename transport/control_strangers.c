#include "transport/control_strangers.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <xxhash.h>

void control_strangers_free(struct control_strangers *s)
{
    free(s->places);
    *s = (struct control_strangers){0};
}

void control_strangers_entered(struct control_strangers *s, uint64_t now_ns)
{
    s->active = true;
    s->entered_ns = now_ns;
}

static int port_of(const struct sockaddr_storage *a)
{
    return a->ss_family == AF_INET    ? ntohs(((const struct sockaddr_in *)a)->sin_port)
           : a->ss_family == AF_INET6 ? ntohs(((const struct sockaddr_in6 *)a)->sin6_port)
                                      : -1;
}

/* Whose connection to this port `fd` is; 0: it is none. */
static uint64_t peer_of(const struct control_strangers *s, int fd)
{
    struct sockaddr_storage own = {0}, other = {0};
    socklen_t own_size = sizeof own, other_size = sizeof other;
    /* Of the system itself: UCX's guard has a getsockname of its own. */
    if (syscall(SYS_getsockname, fd, &own, &own_size) != 0 || port_of(&own) != s->port ||
        getpeername(fd, (struct sockaddr *)&other, &other_size) != 0)
        return 0;
    return XXH64(&other, other_size, 0) | 1;
}

/* The descriptor's place, as of now; NULL: it is no connection of this port, or there is no memory.
 */
static struct stranger_place *place_of(struct control_strangers *s, int fd, uint64_t now_ns)
{
    uint64_t peer = fd < 0 ? 0 : peer_of(s, fd);
    if (!peer)
        return NULL;
    if ((size_t)fd >= s->n_places) {
        size_t n = (size_t)fd + 64;
        struct stranger_place *p = realloc(s->places, n * sizeof *p);
        if (!p)
            return NULL;
        memset(p + s->n_places, 0, (n - s->n_places) * sizeof *p);
        s->places = p;
        s->n_places = n;
    }
    struct stranger_place *p = &s->places[fd];
    if (p->peer != peer)
        *p = (struct stranger_place){.peer = peer, .since_ns = now_ns};
    return p;
}

/* ZeroMQ finds the connection at its end and closes the descriptor. Between the look and this call
 * it could have been closed and given to another peer of this port, who then connects anew. */
static void connection_shut(int fd)
{
    shutdown(fd, SHUT_RDWR);
}

void control_strangers_heard(struct control_strangers *s, int fd, bool known, bool too_much,
                             uint64_t now_ns)
{
    struct stranger_place *p = s->active ? place_of(s, fd, now_ns) : NULL;
    if (!p)
        return;
    p->known = p->known || known;
    if (!p->known && too_much)
        p->since_ns = 0; /* with the next look: the answer that says why has gone by then */
}

int control_strangers_look(struct control_strangers *s, uint64_t now_ns)
{
    const uint64_t most_ns = (uint64_t)CONTROL_STRANGER_MS * 1000000;
    const uint64_t still_ns = 3 * (uint64_t)CONTROL_STRANGERS_LOOK_MS * 1000000;
    bool stood_still = now_ns - s->looked_ns > still_ns;
    int shut = 0, left = 0;
    DIR *all = s->active ? opendir("/proc/self/fd") : NULL;
    for (struct dirent *d; all && (d = readdir(all)) != NULL;) {
        int fd = d->d_name[0] == '.' ? -1 : atoi(d->d_name);
        struct stranger_place *p = place_of(s, fd, now_ns);
        if (!p || p->known)
            continue;
        left++;
        if (stood_still && p->since_ns)
            p->since_ns = now_ns;
        if (now_ns - p->since_ns >= most_ns) {
            connection_shut(fd);
            shut++;
        }
    }
    s->looked_ns = now_ns;
    if (all)
        closedir(all);
    if (all && !left && now_ns - s->entered_ns >= most_ns)
        s->active = false;
    return shut;
}
