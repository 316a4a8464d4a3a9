/* Connections that are not proven yet: strangers that came (data_tcp_listen.c), and peers that are
 * dialled. Each has two seconds, and no byte beyond the handshake's is read. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "common/log.h"
#include "transport/data_tcp_int.h"

enum { MS_NS = 1000000 };

/* ---- strangers that are refused: counted, and told once a second ---- */

static void source_text(const struct sockaddr_storage *from, char out[INET6_ADDRSTRLEN])
{
    const void *raw = from->ss_family == AF_INET6
                          ? (const void *)&((const struct sockaddr_in6 *)from)->sin6_addr
                          : &((const struct sockaddr_in *)from)->sin_addr;
    if (!inet_ntop(from->ss_family, raw, out, INET6_ADDRSTRLEN))
        snprintf(out, INET6_ADDRSTRLEN, "?");
}

void tcp_refused_count(struct tcp_endpoint *d, const struct sockaddr_storage *from, const char *why)
{
    char source[INET6_ADDRSTRLEN];
    source_text(from, source);
    data_stranger_refused(&d->base, d->clock_ms * MS_NS, source, why);
}

/* ---- one proof ---- */

static void watch_free(struct tcp_watch *w)
{
    free(w);
}

static void proof_free(struct tcp_proof *p)
{
    struct tcp_endpoint *d = p->endpoint;
    struct tcp_proof **at = &d->proofs;
    while (*at != p)
        at = &(*at)->next;
    *at = p->next;
    if (p->peer)
        p->peer->dialling = NULL;
    else
        d->n_strangers--;
    handshake_wipe(&p->handshake);
    tcp_watch_bury(d, &p->watch, watch_free);
}

void tcp_proof_fail(struct tcp_proof *p, int status, const char *why)
{
    struct tcp_endpoint *d = p->endpoint;
    struct tcp_peer *peer = p->peer;
    epoll_ctl(d->epoll, EPOLL_CTL_DEL, p->fd, NULL);
    close(p->fd);
    if (!peer)
        tcp_refused_count(d, &p->from, why);
    proof_free(p);
    if (peer && !peer->current) {
        struct err e = {0};
        char name[96];
        err_set(&e, status, "no connection to the peer %s: %s", tcp_peer_name(peer, name), why);
        tcp_peer_fail(peer, &e);
    }
}

/* Whose connection it becomes; NULL: it has ended. */
static struct tcp_peer *proof_peer(struct tcp_proof *p)
{
    struct tcp_endpoint *d = p->endpoint;
    const uint8_t *key = handshake_peer(&p->handshake);
    struct tcp_peer *peer = p->peer ? p->peer : tcp_peer_get(d, key);
    if (!peer)
        tcp_proof_fail(p, HP_ENOMEM, "out of memory");
    else if (!p->peer && !data_peer_is_allowed(&d->base, key))
        tcp_proof_fail(p, HP_EDENIED, "its key has left the set of those that may connect");
    else if (!p->peer && peer->n_conns >= TCP_MAX_OF_KEY)
        tcp_proof_fail(p, HP_EBUSY, "its key has too many connections already");
    else
        return peer;
    return NULL;
}

static void proof_done(struct tcp_proof *p)
{
    struct tcp_endpoint *d = p->endpoint;
    struct handshake_result r;
    bool initiated = p->peer != NULL;
    struct tcp_peer *peer = proof_peer(p);
    if (!peer)
        return;
    handshake_result(&p->handshake, &r);
    int fd = p->fd;
    epoll_ctl(d->epoll, EPOLL_CTL_DEL, fd, NULL);
    proof_free(p);
    if (!tcp_conn_open(d, peer, fd, initiated, &r) && initiated)
        tcp_peer_fail(peer, &(struct err){HP_ENOMEM, "out of memory for a connection", ""});
    sodium_memzero(&r, sizeof r);
}

static void proof_ask(struct tcp_proof *p, uint32_t events)
{
    struct epoll_event ev = {.events = events, .data.ptr = &p->watch};
    epoll_ctl(p->endpoint->epoll, EPOLL_CTL_MOD, p->fd, &ev);
}

/* Sends what the handshake wants sent: it is little, and the socket is fresh. */
static bool proof_write(struct tcp_proof *p)
{
    size_t n;
    const uint8_t *bytes = handshake_output(&p->handshake, &n);
    if (n == 0)
        return true;
    if (send(p->fd, bytes, n, MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)n) {
        tcp_proof_fail(p, HP_ELINK, "the connection broke during the handshake");
        return false;
    }
    handshake_sent(&p->handshake);
    return true;
}

/* A stranger named its key. Is it welcome? If the set does not have it yet, it waits: the news may
 * be on its way. */
static bool proof_admit(struct tcp_proof *p)
{
    struct tcp_endpoint *d = p->endpoint;
    struct err e = {0};
    if (!data_peer_is_allowed(&d->base, handshake_peer(&p->handshake))) {
        if (!p->held_until_ms)
            proof_ask(p, 0); /* what it sends meanwhile wakes nobody */
        p->held_until_ms =
            p->held_until_ms ? p->held_until_ms : d->clock_ms + tcp_ms(d, TCP_HELD_MS);
        return false;
    }
    if (p->held_until_ms)
        proof_ask(p, EPOLLIN);
    p->held_until_ms = 0;
    if (handshake_admit(&p->handshake, &e) == 0)
        return proof_write(p);
    tcp_proof_fail(p, e.code, e.text);
    return false;
}

/* Reads no byte beyond the message that is due. */
static void proof_read(struct tcp_proof *p)
{
    struct err e = {0};
    size_t wants = handshake_wants(&p->handshake);
    ssize_t n = wants ? recv(p->fd, p->input + p->n_input, wants - p->n_input, MSG_DONTWAIT) : 0;
    if (wants == 0 || (n < 0 && (errno == EAGAIN || errno == EINTR)))
        return;
    if (n <= 0) {
        tcp_proof_fail(p, HP_ELINK,
                       p->peer
                           ? "it closed the connection during the handshake; perhaps it does not "
                             "admit this process's key"
                           : "it went away");
        return;
    }
    p->n_input += (size_t)n;
    if (p->n_input < wants)
        return;
    p->n_input = 0;
    if (handshake_read(&p->handshake, p->input, wants, &e) < 0) {
        tcp_proof_fail(p, e.code, e.text);
        return;
    }
    if (handshake_state(&p->handshake) == HANDSHAKE_ASK && !proof_admit(p))
        return;
    if (handshake_state(&p->handshake) == HANDSHAKE_WRITE && !proof_write(p))
        return;
    if (handshake_state(&p->handshake) == HANDSHAKE_DONE)
        proof_done(p);
}

static bool proof_connected(struct tcp_proof *p)
{
    int status = 0;
    socklen_t size = sizeof status;
    getsockopt(p->fd, SOL_SOCKET, SO_ERROR, &status, &size);
    if (status != 0) {
        tcp_proof_fail(p, HP_ELINK, strerror(status));
        return false;
    }
    p->connecting = false;
    proof_ask(p, EPOLLIN);
    return proof_write(p);
}

static void on_ready(struct tcp_watch *w, uint32_t events)
{
    struct tcp_proof *p = (struct tcp_proof *)w;
    if (p->connecting && !proof_connected(p))
        return;
    if (p->held_until_ms && events & (EPOLLHUP | EPOLLERR))
        tcp_proof_fail(p, HP_ELINK, "it went away");
    else
        proof_read(p);
}

struct tcp_proof *tcp_proof_create(struct tcp_endpoint *d, int fd, struct tcp_peer *peer,
                                   uint32_t events)
{
    struct tcp_proof *p = calloc(1, sizeof *p);
    if (!p)
        return NULL;
    *p = (struct tcp_proof){.watch = {.ready = on_ready},
                            .endpoint = d,
                            .fd = fd,
                            .peer = peer,
                            .deadline_ms = d->clock_ms + tcp_ms(d, TCP_PROOF_MS)};
    int rc =
        peer ? handshake_initiate(&p->handshake, &d->keys, peer->key, HANDSHAKE_TCP,
                                  handshake_ciphers(), NULL)
             : handshake_respond(&p->handshake, &d->keys, HANDSHAKE_TCP, handshake_ciphers(), NULL);
    if (rc < 0 || !tcp_watch_add(d, fd, &p->watch, events)) {
        handshake_wipe(&p->handshake);
        free(p);
        return NULL;
    }
    struct tcp_proof **at = &d->proofs; /* the oldest first */
    while (*at)
        at = &(*at)->next;
    *at = p;
    if (peer)
        peer->dialling = p;
    else
        d->n_strangers++;
    return p;
}

/* ---- dialling ---- */

socklen_t tcp_sockaddr(const char *host, uint16_t port, struct sockaddr_storage *out)
{
    struct sockaddr_in *v4 = (struct sockaddr_in *)out;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)out;
    memset(out, 0, sizeof *out);
    if (inet_pton(AF_INET, host, &v4->sin_addr) == 1) {
        v4->sin_family = AF_INET;
        v4->sin_port = htons(port);
        return sizeof *v4;
    }
    if (inet_pton(AF_INET6, host, &v6->sin6_addr) != 1)
        return 0;
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(port);
    return sizeof *v6;
}

void tcp_dial(struct tcp_peer *peer)
{
    struct tcp_endpoint *d = peer->endpoint;
    struct sockaddr_storage at;
    socklen_t size = peer->where.port ? tcp_sockaddr(peer->where.host, peer->where.port, &at) : 0;
    int fd = size ? socket(at.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0) : -1;
    struct err e = {0};
    char name[96];
    if (fd < 0) {
        err_set(&e, HP_ELINK, "no connection to the peer %s: %s", tcp_peer_name(peer, name),
                size ? strerror(errno) : "nobody said where it listens");
        tcp_peer_fail(peer, &e);
        return;
    }
    int on = 1, rc;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    rc = connect(fd, (struct sockaddr *)&at, size);
    struct tcp_proof *p =
        rc == 0 || errno == EINPROGRESS ? tcp_proof_create(d, fd, peer, EPOLLOUT) : NULL;
    if (p) {
        p->connecting = true;
        return;
    }
    err_set(&e, HP_ELINK, "no connection to the peer %s: %s", tcp_peer_name(peer, name),
            strerror(errno));
    close(fd);
    tcp_peer_fail(peer, &e);
}

/* ---- time, and the set of keys ---- */

void tcp_proofs_tick(struct tcp_endpoint *d)
{
    for (struct tcp_proof *p = d->proofs, *next; p; p = next) {
        next = p->next;
        if (p->held_until_ms && d->clock_ms >= p->held_until_ms)
            tcp_proof_fail(p, HP_EDENIED, "it is no member of the cluster");
        else if (d->clock_ms >= p->deadline_ms)
            tcp_proof_fail(p, HP_ETIMEOUT,
                           p->connecting ? "no answer" : "it did not prove itself in time");
    }
    data_strangers_tell(&d->base, d->clock_ms * MS_NS);
}

void tcp_proofs_look(struct tcp_endpoint *d)
{
    for (struct tcp_proof *p = d->proofs, *next; p; p = next) {
        next = p->next;
        if (p->held_until_ms)
            proof_admit(p);
    }
}

void tcp_proofs_drop(struct tcp_endpoint *d)
{
    while (d->proofs) {
        epoll_ctl(d->epoll, EPOLL_CTL_DEL, d->proofs->fd, NULL);
        close(d->proofs->fd);
        proof_free(d->proofs);
    }
}
