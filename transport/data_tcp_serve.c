/* A connection at work: opened on a proven socket, woken by epoll, judged by the clock. */
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <unistd.h>

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

static void socket_tune(int fd)
{
    int on = 1, unsent = TCP_UNSENT_BYTES;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent, sizeof unsent);
}

struct tcp_conn *tcp_conn_open(struct tcp_endpoint *d, struct tcp_peer *peer, int fd,
                               bool initiated, const struct handshake_result *r)
{
    struct tcp_conn *c = tcp_conn_create(r);
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
        if (now - c->counted_ms >= TCP_COUNT_MS)
            tcp_conn_count(c);
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
