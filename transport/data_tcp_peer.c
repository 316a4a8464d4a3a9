/* The peer behind a key: the links that lead to it, what waits to be sent to it, and the
 * connections that may carry it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "transport/data_tcp_int.h"

const char *tcp_peer_name(const struct tcp_peer *peer, char out[96])
{
    char key[9];
    snprintf(key, sizeof key, "%02x%02x%02x%02x", peer->key[0], peer->key[1], peer->key[2],
             peer->key[3]);
    if (peer->where.port)
        snprintf(out, 96, "%s port %u (key %s...)", peer->where.host, peer->where.port, key);
    else
        snprintf(out, 96, "with key %s...", key);
    return out;
}

static struct tcp_peer *peer_create(struct tcp_endpoint *d, const uint8_t key[KEY_BYTES])
{
    struct tcp_peer *peer = calloc(1, sizeof *peer);
    if (!peer)
        return NULL;
    peer->endpoint = d;
    memcpy(peer->key, key, KEY_BYTES);
    peer->self = memcmp(key, d->key, KEY_BYTES) == 0;
    peer->admitted = data_peer_is_allowed(&d->base, key);
    tcp_queue_init(&peer->small);
    tcp_queue_init(&peer->large);
    tcp_queue_init(&peer->background);
    peer->next = d->peers;
    d->peers = peer;
    return peer;
}

struct tcp_peer *tcp_peer_get(struct tcp_endpoint *d, const uint8_t key[KEY_BYTES])
{
    for (struct tcp_peer *peer = d->peers; peer; peer = peer->next)
        if (memcmp(peer->key, key, KEY_BYTES) == 0)
            return peer;
    return peer_create(d, key);
}

/* ---- links ---- */

static void link_attach(struct tcp_link *link, struct tcp_peer *peer)
{
    link->peer = peer;
    link->next = peer->links;
    peer->links = link;
    if (!peer->current)
        peer->where = link->where; /* the newest news of where it listens */
}

static void link_detach(struct tcp_link *link)
{
    struct tcp_link **at = &link->peer->links;
    while (*at != link)
        at = &(*at)->next;
    *at = link->next;
    link->peer = NULL;
}

void tcp_peer_link_gone(struct tcp_link *link)
{
    if (link->peer)
        link_detach(link);
    free(link);
}

static void link_fail(struct tcp_endpoint *d, struct tcp_link *link, const struct err *why)
{
    link->down = true;
    if (link->peer)
        link_detach(link);
    if (d->base.callbacks.link_down && !d->closing)
        d->base.callbacks.link_down(d->base.callbacks.ctx, &link->base, why);
}

void tcp_peer_fail(struct tcp_peer *peer, const struct err *why)
{
    struct tcp_endpoint *d = peer->endpoint;
    tcp_queue_fail(d, &peer->small, HP_ELINK);
    tcp_queue_fail(d, &peer->large, HP_ELINK);
    tcp_queue_fail(d, &peer->background, HP_ELINK);
    while (peer->links)
        link_fail(d, peer->links, why);
}

/* ---- what is posted ---- */

bool tcp_peer_has_queue(const struct tcp_peer *peer)
{
    return peer->small.head || peer->large.head || peer->background.head;
}

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

void tcp_peer_serve(struct tcp_peer *peer)
{
    if (peer->self)
        tcp_peer_self_deliver(peer);
    else if (peer->current)
        peer->current->dirty = true;
    else if (tcp_peer_has_queue(peer) && !is_being_opened(peer))
        tcp_dial(peer);
}

static void queue_frame(struct tcp_peer *peer, struct tcp_frame *f)
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
            link_fail(d, link, &(struct err){HP_ENOMEM, "out of memory for a connection", ""});
        tcp_frame_end(d, f, HP_ELINK);
    } else if (peer->small.count + peer->large.count + peer->background.count >= TCP_MAX_QUEUED) {
        tcp_frame_end(d, f, HP_EBUSY);
    } else {
        queue_frame(peer, f);
        tcp_peer_serve(peer);
    }
}

/* ---- time, and the set of keys ---- */

static void peer_free_if_unused(struct tcp_peer **at)
{
    struct tcp_peer *peer = *at;
    if (peer->links || peer->n_conns || peer->dialling || tcp_peer_has_queue(peer))
        return;
    *at = peer->next;
    free(peer);
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
        tcp_peer_serve(peer);
        peer_free_if_unused(at);
        if (*at == peer)
            at = &peer->next;
    }
}
