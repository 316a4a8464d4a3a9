/* The listening socket and the strangers who come to it: at most 256 at once, 32 of one source (of
 * one /64 with IPv6). Who comes when the table is full takes the place of the oldest that has not
 * shown that it knows this endpoint's key; so silent crowds cost a member nothing. */
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "transport/data_tcp_int.h"

enum { ACCEPTS_PER_TURN = 64 };

/* ---- strangers ---- */

static bool is_same_source(const struct sockaddr_storage *a, const struct sockaddr_storage *b)
{
    if (a->ss_family != b->ss_family)
        return false;
    if (a->ss_family == AF_INET6)
        return memcmp(&((const struct sockaddr_in6 *)a)->sin6_addr,
                      &((const struct sockaddr_in6 *)b)->sin6_addr, 8) == 0;
    return ((const struct sockaddr_in *)a)->sin_addr.s_addr ==
           ((const struct sockaddr_in *)b)->sin_addr.s_addr;
}

/* Whom a newcomer may push out: who has said nothing of worth; failing that, who is held. `from`
 * NULL: of any source. */
static struct tcp_proof *proof_oldest(struct tcp_endpoint *d, const struct sockaddr_storage *from)
{
    struct tcp_proof *held = NULL;
    for (struct tcp_proof *p = d->proofs; p; p = p->next) {
        if (p->peer || (from && !is_same_source(from, &p->from)))
            continue;
        if (handshake_wants(&p->handshake) == HANDSHAKE_FIRST_BYTES)
            return p;
        if (!held && p->held_until_ms)
            held = p;
    }
    return held;
}

static int strangers_of(const struct tcp_endpoint *d, const struct sockaddr_storage *from)
{
    int n = 0;
    for (const struct tcp_proof *p = d->proofs; p; p = p->next)
        n += !p->peer && is_same_source(from, &p->from);
    return n;
}

static bool room_make(struct tcp_endpoint *d, const struct sockaddr_storage *from)
{
    bool crowd = strangers_of(d, from) >= TCP_MAX_STRANGERS_OF_SOURCE;
    if (!crowd && d->n_strangers < TCP_MAX_STRANGERS)
        return true;
    struct tcp_proof *p = proof_oldest(d, crowd ? from : NULL);
    if (p)
        tcp_proof_fail(p, HP_EBUSY, "too many unproven connections");
    return p != NULL;
}

static void stranger_take(struct tcp_endpoint *d, int fd, const struct sockaddr_storage *from)
{
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    struct tcp_proof *p = room_make(d, from) ? tcp_proof_create(d, fd, NULL, EPOLLIN) : NULL;
    if (p) {
        p->from = *from;
        return;
    }
    close(fd);
    tcp_refused_count(d, from, "too many unproven connections");
}

/* Descriptors or memory ran out: the listener rests until the next tick, lest it wake the thread
 * for nothing. */
static void listener_rest(struct tcp_endpoint *d)
{
    struct tcp_proof *p = proof_oldest(d, NULL);
    if (p)
        tcp_proof_fail(p, HP_EBUSY, "this process has no descriptor left");
    epoll_ctl(d->epoll, EPOLL_CTL_DEL, d->listener, NULL);
    d->listening = false;
}

static void on_stranger(struct tcp_watch *w, uint32_t events)
{
    struct tcp_endpoint *d =
        (struct tcp_endpoint *)((uint8_t *)w - offsetof(struct tcp_endpoint, listen_watch));
    (void)events;
    for (int i = 0; i < ACCEPTS_PER_TURN; i++) {
        struct sockaddr_storage from = {0};
        socklen_t size = sizeof from;
        int fd =
            accept4(d->listener, (struct sockaddr *)&from, &size, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0) {
            stranger_take(d, fd, &from);
            continue;
        }
        if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
            listener_rest(d);
        if (errno != ECONNABORTED && errno != EINTR)
            return;
    }
}

/* ---- listening ---- */

void tcp_listen_again(struct tcp_endpoint *d)
{
    if (!d->listening && !d->closing)
        d->listening = tcp_watch_add(d, d->listener, &d->listen_watch, EPOLLIN);
}

static int listen_failed(const char *host, uint16_t port, struct err *e)
{
    int why = errno;
    err_set(e, why == EADDRINUSE ? HP_EBUSY : HP_EDEVICE,
            "cannot listen on %s port %u for data: %s", host, port, strerror(why));
    return err_hint(e, why == EADDRINUSE
                           ? "another program has this port; choose one with --data-port"
                           : "`ip addr` lists this machine's addresses");
}

int tcp_listen(struct tcp_endpoint *d, const char *host, uint16_t port, struct err *e)
{
    struct sockaddr_storage at;
    socklen_t size = tcp_sockaddr(host, port, &at);
    int on = 1;
    if (size == 0)
        return err_set(e, HP_EINVAL, "\"%.60s\" is no numeric address to listen on", host);
    d->listener = socket(at.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (d->listener < 0)
        return listen_failed(host, port, e);
    setsockopt(d->listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(d->listener, (struct sockaddr *)&at, size) != 0 ||
        listen(d->listener, SOMAXCONN) != 0 ||
        getsockname(d->listener, (struct sockaddr *)&at, &size) != 0)
        return listen_failed(host, port, e);
    d->listen_watch.ready = on_stranger;
    tcp_listen_again(d);
    uint16_t bound = at.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&at)->sin6_port
                                              : ((struct sockaddr_in *)&at)->sin_port;
    struct data_address a = {.kind = DATA_KIND_TCP, .port = ntohs(bound)};
    snprintf(a.host, sizeof a.host, "%s", host);
    memcpy(a.key, d->key, KEY_BYTES);
    if (!(d->base.address = malloc(DATA_ADDRESS_TEXT)))
        return err_set(e, HP_ENOMEM, "out of memory for a data endpoint");
    d->base.address_size = data_address_print(&a, (char *)d->base.address);
    return 0;
}
