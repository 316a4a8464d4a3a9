/* A proven connection: its greeting, heartbeats and end. */
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "common/log.h"
#include "transport/data_tcp_int.h"

static void on_ready(struct tcp_watch *w, uint32_t events)
{
    struct tcp_conn *c = (struct tcp_conn *)w;
    if (events & (EPOLLIN | EPOLLHUP | EPOLLERR) && !c->parked)
        tcp_conn_read(c);
    else if (events & (EPOLLHUP | EPOLLERR))
        tcp_conn_broken(c, HP_ELINK, "the connection broke");
    if (!c->dead && (events & EPOLLOUT))
        c->dirty = true;
}

void tcp_conn_ask(struct tcp_conn *c, uint32_t events)
{
    if (events == c->events)
        return;
    struct epoll_event ev = {.events = events, .data.ptr = &c->watch};
    epoll_ctl(c->endpoint->epoll, EPOLL_CTL_MOD, c->fd, &ev);
    c->events = events;
}

void tcp_conn_free(struct tcp_watch *w)
{
    struct tcp_conn *c = (struct tcp_conn *)w;
    tcp_seal_fini(&c->opener);
    tcp_seal_fini(&c->sealer);
    free(c->in);
    free(c->out);
    free(c);
}

static struct tcp_conn *conn_create(const struct handshake_result *r)
{
    struct tcp_conn *c = calloc(1, sizeof *c);
    if (!c)
        return NULL;
    c->in = malloc(TCP_READ_BYTES);
    c->out = malloc(TCP_WRITE_BYTES);
    if (c->in && c->out && tcp_seal_init(&c->opener, r->cipher, r->receive_key, false, NULL) == 0 &&
        tcp_seal_init(&c->sealer, r->cipher, r->send_key, true, NULL) == 0)
        return c;
    tcp_conn_free(&c->watch);
    return NULL;
}

static void socket_tune(int fd)
{
    int on = 1, unsent = TCP_UNSENT_BYTES;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent, sizeof unsent);
}

struct tcp_conn *tcp_conn_open(struct tcp_endpoint *d, struct tcp_peer *peer, int fd,
                               bool initiated, const struct handshake_result *r)
{
    struct tcp_conn *c = conn_create(r);
    if (!c || !tcp_watch_add(d, fd, &c->watch, EPOLLIN)) {
        if (c)
            tcp_conn_free(&c->watch);
        close(fd);
        return NULL;
    }
    socket_tune(fd);
    c->watch.ready = on_ready;
    c->endpoint = d;
    c->peer = peer;
    c->fd = fd;
    c->initiated = initiated;
    c->hello_due = c->dirty = true;
    c->low_water = 1;
    c->events = EPOLLIN;
    c->opened_ms = c->heard_ms = c->sent_ms = c->moved_ms = c->pushed_ms = d->clock_ms;
    tcp_queue_init(&c->announced);
    tcp_queue_init(&c->leaving);
    c->next = d->conns;
    d->conns = c;
    peer->n_conns++;
    return c;
}

/* ---- two connections to one peer ---- */

/* Of two that were opened at the same time both ends keep the same one: that of the smaller key. Of
 * two of one direction, the newer. */
static bool is_kept(const struct tcp_conn *c, const struct tcp_conn *other)
{
    if (c->initiated == other->initiated)
        return c->sequence > other->sequence;
    bool smaller = memcmp(c->endpoint->key, c->peer->key, KEY_BYTES) < 0;
    return c->initiated == smaller;
}

/* Another process with the same key opened `other`: it was this one's predecessor, or both live and
 * only send here (two admins at two terminals). The latter keep their connections; whose first
 * process is gone is noticed by its silence. */
static bool is_foreign(const struct tcp_conn *c, const struct tcp_conn *other)
{
    return other->greeted && other->instance != c->instance;
}

/* `c` has greeted, and `other` stands. Does the peer still have `other`? Then one of them retires.
 */
static void settle(struct tcp_conn *c, struct tcp_conn *other, bool alone)
{
    if (is_foreign(c, other)) {
        if (c->peer->links || other->initiated)
            tcp_conn_broken(other, HP_ELINK, "it was started anew");
    } else if (other->greeted && alone && c->sequence > other->sequence) {
        tcp_conn_broken(other, HP_ELINK, "it lost the connection");
    } else if (other->greeted && !other->retiring) {
        tcp_conn_retire(is_kept(c, other) ? other : c, BYE_RETIRING);
    }
}

static struct tcp_conn *other_of(const struct tcp_conn *c, struct tcp_conn *from)
{
    for (; from; from = from->next)
        if (from != c && from->peer == c->peer)
            return from;
    return NULL;
}

void tcp_conn_hello(struct tcp_conn *c, const uint8_t *text)
{
    struct tcp_peer *peer = c->peer;
    memcpy(&c->instance, text, 8);
    memcpy(&c->sequence, text + 8, 8);
    c->greeted = true;
    for (struct tcp_conn *o = other_of(c, c->endpoint->conns); o;) {
        struct tcp_conn *next = other_of(c, o->next);
        settle(c, o, text[16] == 1);
        o = next;
    }
    if (!c->retiring)
        peer->current = c;
    c->dirty = true;
    tcp_peer_serve(peer);
    char name[96];
    log_debug("data", "connected", "peer=\"%s\" opened_by=%s", tcp_peer_name(peer, name),
              c->initiated ? "us" : "peer");
}

/* ---- the end ---- */

static void conn_unlist(struct tcp_conn *c)
{
    struct tcp_conn **at = &c->endpoint->conns;
    while (*at != c)
        at = &(*at)->next;
    *at = c->next;
    c->peer->n_conns--;
    if (c->peer->current == c)
        c->peer->current = NULL;
}

/* A free-standing watch of a dead connection: its memory goes with the end of the turn. */
void tcp_conn_break(struct tcp_conn *c, const struct err *e)
{
    struct tcp_endpoint *d = c->endpoint;
    if (c->dead)
        return;
    bool lost = !c->retiring || c->announced.head || c->leaving.head;
    c->dead = true;
    conn_unlist(c);
    epoll_ctl(d->epoll, EPOLL_CTL_DEL, c->fd, NULL);
    close(c->fd);
    tcp_queue_fail(d, &c->announced, HP_ELINK);
    tcp_queue_fail(d, &c->leaving, HP_ELINK);
    while (c->arrivals)
        tcp_arrival_free(c, c->arrivals);
    tcp_watch_bury(d, &c->watch, tcp_conn_free);
    if (lost && e)
        tcp_peer_fail(c->peer, e);
}

int tcp_conn_broken(struct tcp_conn *c, int status, const char *fmt, ...)
{
    char what[200], name[96];
    struct err e = {0};
    va_list args;
    va_start(args, fmt);
    vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    err_set(&e, status, "the peer %s: %s", tcp_peer_name(c->peer, name), what);
    if (status == HP_EPROTO || status == HP_ECORRUPT)
        log_warn("data", "connection_refused", "text=\"%s\"", e.text);
    tcp_conn_break(c, &e);
    return HP_ELINK;
}

void tcp_conn_retire(struct tcp_conn *c, enum tcp_bye bye)
{
    if (c->retiring)
        return;
    c->retiring = c->bye_due = c->dirty = true;
    c->bye = bye;
    c->retired_ms = c->endpoint->clock_ms;
    if (c->peer->current == c)
        c->peer->current = NULL;
}

void tcp_conn_bye(struct tcp_conn *c, uint8_t why)
{
    c->bye_came = c->dirty = true;
    if (why == BYE_RETIRING)
        tcp_conn_retire(c, BYE_RETIRING);
    else
        tcp_conn_broken(c, HP_ELINK,
                        why == BYE_REFUSED ? "it does not admit this process any more"
                                           : "it closed its data channel");
}

/* ---- time ---- */

static bool has_granted(const struct tcp_conn *c)
{
    for (const struct tcp_arrival *a = c->arrivals; a; a = a->next)
        if (a->state == ARRIVAL_COMES)
            return true;
    return false;
}

static void conn_tick(struct tcp_conn *c)
{
    struct tcp_endpoint *d = c->endpoint;
    uint64_t now = d->clock_ms;
    if (c->parked && now - c->parked_ms > tcp_ms(d, TCP_STALL_MS)) {
        tcp_conn_broken(c, HP_ELIMIT, "its control-sized frames found no room for %d s",
                        TCP_STALL_MS / 1000);
    } else if (!c->parked && !c->retiring && now - c->heard_ms > tcp_ms(d, TCP_SILENCE_MS)) {
        tcp_conn_broken(c, HP_ETIMEOUT, "nothing was heard of it for %.1f s", TCP_SILENCE_MS / 1e3);
    } else if (!c->greeted && now - c->opened_ms > tcp_ms(d, TCP_PROOF_MS)) {
        tcp_conn_broken(c, HP_ETIMEOUT, "it does not greet");
    } else if (c->out_start < c->out_end && now - c->pushed_ms > tcp_ms(d, TCP_UNREAD_MS)) {
        tcp_conn_broken(c, HP_ETIMEOUT, "it has read nothing for %d s", TCP_UNREAD_MS / 1000);
    } else if (has_granted(c) && now - c->moved_ms > tcp_ms(d, TCP_STALL_MS)) {
        tcp_conn_broken(c, HP_ETIMEOUT, "it announced a frame and does not send it");
    } else if (c->retiring && now - c->retired_ms > tcp_ms(d, TCP_RETIRE_MS)) {
        tcp_conn_broken(c, HP_ETIMEOUT, "it did not end its second connection");
    } else {
        if (now - c->heard_ms > TCP_BEAT_MS)
            tcp_conn_low_water(c,
                               0); /* on a slow link the parts of a record are signs of life too */
        if (c->arrivals || c->parked)
            tcp_conn_room(c);
        if (!c->dead && !c->bye_sent && now - c->sent_ms >= TCP_BEAT_MS)
            c->dirty = true;
    }
}

void tcp_conns_tick(struct tcp_endpoint *d)
{
    for (struct tcp_conn *c = d->conns, *next; c; c = next) {
        next = c->next;
        conn_tick(c);
    }
}
