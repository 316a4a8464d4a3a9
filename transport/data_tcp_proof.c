/* Connections that are not proven yet: strangers that came, and peers that are dialled. Each has
 * two seconds, no byte beyond the handshake's is read, and there are at most 256 strangers, 32 of
 * one source (of one /64 with IPv6). Who comes when the table is full takes the place of the oldest
 * that has not shown that it knows this endpoint's key; so silent crowds cost a member nothing. */
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

enum { ACCEPTS_PER_TURN = 64, SAY_MS = 1000 };

/* ---- strangers that are refused: counted, and told once a second
 * -------------------------------------------------------------------- */

static void source_text(const struct sockaddr_storage *from, char out[INET6_ADDRSTRLEN])
{
    const void *raw = from->ss_family == AF_INET6
                          ? (const void *)&((const struct sockaddr_in6 *)from)->sin6_addr
                          : &((const struct sockaddr_in *)from)->sin_addr;
    if (!inet_ntop(from->ss_family, raw, out, INET6_ADDRSTRLEN))
        snprintf(out, INET6_ADDRSTRLEN, "?");
}

static void refused_say(struct tcp_endpoint *d)
{
    if (d->refused_unsaid == 0 || (d->refused_said_ms && d->clock_ms - d->refused_said_ms < SAY_MS))
        return;
    log_warn("data", "strangers_refused", "n=%llu last=\"%s\"",
             (unsigned long long)d->refused_unsaid, d->refused_text);
    d->refused_unsaid = 0;
    d->refused_said_ms = d->clock_ms ? d->clock_ms : 1;
}

static void refused_count(struct tcp_endpoint *d, const struct sockaddr_storage *from,
                          const char *why)
{
    char source[INET6_ADDRSTRLEN];
    source_text(from, source);
    snprintf(d->refused_text, sizeof d->refused_text, "%s: %s", source, why);
    data_count_stranger(&d->base);
    d->refused_unsaid++;
    refused_say(d);
}

/* ---- one proof
 * ------------------------------------------------------------------------------------------------------------------------
 */

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

/* It failed: a stranger is counted, a peer that was dialled fails. */
static void proof_fail(struct tcp_proof *p, int status, const char *why)
{
    struct tcp_endpoint *d = p->endpoint;
    struct tcp_peer *peer = p->peer;
    epoll_ctl(d->epoll, EPOLL_CTL_DEL, p->fd, NULL);
    close(p->fd);
    if (!peer)
        refused_count(d, &p->from, why);
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
        proof_fail(p, HP_ENOMEM, "out of memory");
    else if (!p->peer && !data_peer_is_allowed(&d->base, key))
        proof_fail(p, HP_EDENIED, "its key has left the set of those that may connect");
    else if (!p->peer && peer->n_conns >= TCP_MAX_OF_KEY)
        proof_fail(p, HP_EBUSY, "its key has too many connections already");
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
        proof_fail(p, HP_ELINK, "the connection broke during the handshake");
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
    proof_fail(p, e.code, e.text);
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
        proof_fail(p, HP_ELINK,
                   p->peer ? "it closed the connection during the handshake; perhaps it does not "
                             "admit this process's key"
                           : "it went away");
        return;
    }
    p->n_input += (size_t)n;
    if (p->n_input < wants)
        return;
    p->n_input = 0;
    if (handshake_read(&p->handshake, p->input, wants, &e) < 0) {
        proof_fail(p, e.code, e.text);
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
        proof_fail(p, HP_ELINK, strerror(status));
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
        proof_fail(p, HP_ELINK, "it went away");
    else
        proof_read(p);
}

static struct tcp_proof *proof_create(struct tcp_endpoint *d, int fd, struct tcp_peer *peer,
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

/* ---- strangers
 * --------------------------------------------------------------------------------------------------------------------------
 */

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
        proof_fail(p, HP_EBUSY, "too many unproven connections");
    return p != NULL;
}

static void stranger_take(struct tcp_endpoint *d, int fd, const struct sockaddr_storage *from)
{
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    struct tcp_proof *p = room_make(d, from) ? proof_create(d, fd, NULL, EPOLLIN) : NULL;
    if (p) {
        p->from = *from;
        return;
    }
    close(fd);
    refused_count(d, from, "too many unproven connections");
}

/* Descriptors or memory ran out: the listener rests until the next tick, lest it wake the thread
 * for nothing. */
static void listener_rest(struct tcp_endpoint *d)
{
    struct tcp_proof *p = proof_oldest(d, NULL);
    if (p)
        proof_fail(p, HP_EBUSY, "this process has no descriptor left");
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

/* ---- listening and dialling
 * ------------------------------------------------------------------------------------------------------------------
 */

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
        rc == 0 || errno == EINPROGRESS ? proof_create(d, fd, peer, EPOLLOUT) : NULL;
    if (p) {
        p->connecting = true;
        return;
    }
    err_set(&e, HP_ELINK, "no connection to the peer %s: %s", tcp_peer_name(peer, name),
            strerror(errno));
    close(fd);
    tcp_peer_fail(peer, &e);
}

/* ---- time, and the set of keys
 * --------------------------------------------------------------------------------------------------------------
 */

void tcp_proofs_tick(struct tcp_endpoint *d)
{
    for (struct tcp_proof *p = d->proofs, *next; p; p = next) {
        next = p->next;
        if (p->held_until_ms && d->clock_ms >= p->held_until_ms)
            proof_fail(p, HP_EDENIED, "it is no member of the cluster");
        else if (d->clock_ms >= p->deadline_ms)
            proof_fail(p, HP_ETIMEOUT,
                       p->connecting ? "no answer" : "it did not prove itself in time");
    }
    refused_say(d);
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
