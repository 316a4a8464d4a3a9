/* A proven connection: its greeting and its end. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "common/log.h"
#include "transport/data_tcp_int.h"

enum { LOW_WATER_BYTES = 16 << 10 };

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

struct tcp_conn *tcp_conn_create(const struct handshake_result *r)
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
static void connection_settle(struct tcp_conn *c, struct tcp_conn *other, bool alone)
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
        connection_settle(c, o, text[16] == 1);
        o = next;
    }
    if (!c->retiring)
        peer->current = c;
    c->dirty = true;
    if (peer->current)
        peer->current->dirty = true;
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

/* ---- what comes over it ---- */

/* Fewer wake-ups while most of a record is still on its way; the record is needed whole in any
 * case. */
void tcp_conn_low_water(struct tcp_conn *c, size_t missing)
{
    int bytes = missing > LOW_WATER_BYTES ? (int)missing : 1;
    if (bytes != c->low_water &&
        setsockopt(c->fd, SOL_SOCKET, SO_RCVLOWAT, &bytes, sizeof bytes) == 0)
        c->low_water = bytes;
}

void tcp_arrival_free(struct tcp_conn *c, struct tcp_arrival *a)
{
    struct tcp_arrival **at = &c->arrivals;
    while (*at != a)
        at = &(*at)->next;
    *at = a->next;
    c->n_arrivals--;
    c->dirty = true; /* it may have been the last thing that a retiring connection waits for */
    data_buffer_release(&c->endpoint->base, a->payload);
    tcp_arrival_put_back(c->endpoint, a);
}
