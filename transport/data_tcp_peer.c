/* The peer behind a key: the links that lead to it, and what waits to be sent to it. */
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

void tcp_link_fail(struct tcp_endpoint *d, struct tcp_link *link, const struct err *why)
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
        tcp_link_fail(d, peer->links, why);
}

bool tcp_peer_has_queue(const struct tcp_peer *peer)
{
    return peer->small.head || peer->large.head || peer->background.head;
}
