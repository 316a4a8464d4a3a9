/* What is posted to a peer finds its way: a connection that stands, or one that is dialled; what is
 * posted to this endpoint's own key comes back. */
#include <stdlib.h>
#include <string.h>

#include "transport/data_tcp_int.h"

/* What is posted to this endpoint's own key comes back without a socket. */
static int self_deliver(struct tcp_endpoint *d, struct tcp_frame *f)
{
    struct frame_header h;
    uint64_t size = f->payload ? f->payload->size : 0;
    struct data_buffer *copy = NULL;
    if (data_admit(&d->base, f->header, sizeof f->header, size, d->key, &h) < 0)
        return 0;
    if (size && !(copy = data_receive_buffer(&d->base, &h)))
        return HP_PENDING;
    if (size)
        memcpy(copy->bytes, f->payload->bytes, size);
    tcp_frame_deliver(d, &h, copy);
    return 0;
}

void tcp_peer_self_deliver(struct tcp_peer *peer)
{
    struct tcp_queue *queues[] = {&peer->small, &peer->large, &peer->background};
    for (int i = 0; i < 3; i++)
        while (queues[i]->head && self_deliver(peer->endpoint, queues[i]->head) == 0)
            tcp_frame_end(peer->endpoint, tcp_queue_take(queues[i]), 0);
}

static bool is_being_opened(const struct tcp_peer *peer)
{
    if (peer->dialling)
        return true;
    for (const struct tcp_conn *c = peer->endpoint->conns; c; c = c->next)
        if (c->peer == peer && !c->greeted)
            return true;
    return false;
}

static void peer_serve(struct tcp_peer *peer)
{
    if (peer->self)
        tcp_peer_self_deliver(peer);
    else if (peer->current)
        peer->current->dirty = true;
    else if (tcp_peer_has_queue(peer) && !is_being_opened(peer))
        tcp_dial(peer);
}

static void link_attach(struct tcp_link *link, struct tcp_peer *peer)
{
    link->peer = peer;
    link->next = peer->links;
    peer->links = link;
    if (!peer->current)
        peer->where = link->where; /* the newest news of where it listens */
}

static void frame_queue(struct tcp_peer *peer, struct tcp_frame *f)
{
    bool small = !f->payload || f->payload->size <= DATA_CONTROL_BYTES;
    tcp_queue_put(small ? &peer->small : f->background ? &peer->background : &peer->large, f);
}

void tcp_peer_post(struct tcp_endpoint *d, struct tcp_frame *f)
{
    struct tcp_link *link = f->order.link;
    struct tcp_peer *peer = link->down ? NULL : link->peer;
    if (!link->down && !peer && (peer = tcp_peer_get(d, link->where.key)))
        link_attach(link, peer);
    if (!peer) {
        if (!link->down)
            tcp_link_fail(d, link, &(struct err){HP_ENOMEM, "out of memory for a connection", ""});
        tcp_frame_end(d, f, HP_ELINK);
    } else if (peer->small.count + peer->large.count + peer->background.count >= TCP_MAX_QUEUED) {
        tcp_frame_end(d, f, HP_EBUSY);
    } else {
        frame_queue(peer, f);
        peer_serve(peer);
    }
}

/* ---- time, and the set of keys ---- */

static bool peer_is_used(const struct tcp_peer *peer)
{
    return peer->links || peer->n_conns || peer->dialling || tcp_peer_has_queue(peer);
}

/* Connections of keys that left the set end. A peer that this endpoint dialled without ever having
 * admitted it stays. */
static void peer_look(struct tcp_peer *peer)
{
    bool allowed = data_peer_is_allowed(&peer->endpoint->base, peer->key),
         left = peer->admitted && !allowed;
    peer->admitted = allowed;
    for (struct tcp_conn *c = peer->endpoint->conns, *next; c && left; c = next) {
        next = c->next;
        if (c->peer == peer)
            tcp_conn_broken(c, HP_EDENIED, "it may not connect any more");
    }
}

void tcp_peers_look(struct tcp_endpoint *d)
{
    for (struct tcp_peer *peer = d->peers; peer; peer = peer->next)
        peer_look(peer);
}

void tcp_peers_tick(struct tcp_endpoint *d)
{
    for (struct tcp_peer **at = &d->peers; *at;) {
        struct tcp_peer *peer = *at;
        peer_serve(peer);
        if (peer_is_used(peer)) {
            at = &peer->next;
            continue;
        }
        *at = peer->next;
        free(peer);
    }
}
