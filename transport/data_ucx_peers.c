#include "transport/data_ucx_int.h"

#include <stdlib.h>
#include <string.h>

enum { CLOSE_TURNS = 100000 };

/* ---- connections ---------------------------------------------------------------------------------------------------------------- */

static void peer_free(struct ucx_peer *peer)
{
    free(peer->address);
    free(peer);
}

void ucx_peer_fail(struct ucx_peer *peer, ucs_status_t status)
{
    if (!peer->down)
        err_set(&peer->why, HP_ELINK, "the data connection broke: %s", ucs_status_string(status));
    peer->down = true; /* its links are told, and it is closed, from the thread, not from inside UCX */
    peer->endpoint->changed = true;
}

static void on_ep_error(void *ctx, ucp_ep_h ep, ucs_status_t status)
{
    (void)ep;
    ucx_peer_fail(ctx, status);
}

static void peer_close(struct ucx_endpoint *d, struct ucx_peer *peer)
{
    if (!peer->ep)
        return;
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_EP_CLOSE_FLAG_FORCE};
    ucs_status_ptr_t request = ucp_ep_close_nbx(peer->ep, &param);
    peer->ep = NULL;
    if (!UCS_PTR_IS_PTR(request))
        return;
    for (int i = 0; i < CLOSE_TURNS && ucp_request_check_status(request) == UCS_INPROGRESS; i++)
        ucp_worker_progress(d->worker);
    ucp_request_free(request);
}

static struct ucx_peer *peer_find(struct ucx_endpoint *d, const uint8_t *address, size_t size)
{
    struct ucx_peer *peer = d->peers;
    while (peer && (peer->down || peer->address_size != size || memcmp(peer->address, address, size) != 0))
        peer = peer->next;
    return peer;
}

static int peer_create(struct ucx_endpoint *d, const struct ucx_link *link, struct ucx_peer **out, struct err *e)
{
    struct ucx_peer *peer = calloc(1, sizeof *peer);
    if (!peer || !(peer->address = malloc(link->address_size))) {
        free(peer);
        return err_set(e, HP_ENOMEM, "no memory for a connection");
    }
    memcpy(peer->address, link->address, link->address_size);
    peer->address_size = link->address_size;
    peer->endpoint = d;
    ucp_ep_params_t p = {
        .field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER,
        .address = (const ucp_address_t *)peer->address,
        .err_mode = UCP_ERR_HANDLING_MODE_PEER,
        .err_handler = {on_ep_error, peer},
    };
    ucs_status_t status = ucp_ep_create(d->worker, &p, &peer->ep);
    if (status != UCS_OK) {
        peer_free(peer);
        return err_set(e, HP_ELINK, "no data connection could be made: %s", ucs_status_string(status));
    }
    peer->next = d->peers;
    d->peers = peer;
    *out = peer;
    return 0;
}

/* ---- links ------------------------------------------------------------------------------------------------------------------------ */

static void link_free(struct ucx_link *link)
{
    free(link->address);
    free(link);
}

int ucx_link_create(struct ucx_endpoint *d, const uint8_t *address, size_t size, struct ucx_link **out, struct err *e)
{
    if (size == 0 || size > UCX_MAX_ADDRESS_BYTES)
        return err_set(e, HP_EINVAL, "%zu bytes are no address of a data endpoint", size);
    struct ucx_link *link = calloc(1, sizeof *link);
    if (!link || !(link->address = malloc(size))) {
        free(link);
        return err_set(e, HP_ENOMEM, "out of memory for a link");
    }
    memcpy(link->address, address, size);
    link->address_size = size;
    link->base.endpoint = &d->base;
    *out = link;
    return 0;
}

static void link_list(struct ucx_endpoint *d, struct ucx_link *link)
{
    if (link->listed)
        return;
    link->listed = true;
    link->next = d->links;
    d->links = link;
}

int ucx_link_open(struct ucx_endpoint *d, struct ucx_link *link)
{
    if (link->down)
        return HP_ELINK;
    if (link->peer)
        return 0;
    link_list(d, link);
    struct ucx_peer *peer = peer_find(d, link->address, link->address_size);
    if (!peer && peer_create(d, link, &peer, &link->why) < 0) {
        link->down = d->changed = true;
        return HP_ELINK;
    }
    link->peer = peer;
    peer->n_links++;
    return 0;
}

void ucx_link_end(struct ucx_endpoint *d, struct ucx_link *link)
{
    link->closed = d->changed = true;
    link_list(d, link);
}

static void link_tell(struct ucx_endpoint *d, struct ucx_link *link)
{
    if (link->peer && link->peer->down && !link->down) {
        link->down = true;
        link->why = link->peer->why;
    }
    if (!link->down || link->told || link->closed)
        return;
    link->told = true;
    if (d->base.callbacks.link_down)
        d->base.callbacks.link_down(d->base.callbacks.ctx, &link->base, &link->why);
}

static void links_look_after(struct ucx_endpoint *d)
{
    for (struct ucx_link **at = &d->links; *at;) {
        struct ucx_link *link = *at;
        link_tell(d, link);
        if (!link->closed || link->in_flight > 0) {
            at = &link->next;
            continue;
        }
        *at = link->next;
        if (link->peer)
            link->peer->n_links--;
        link_free(link);
    }
}

/* Connections that broke are closed; they go when nothing refers to them any more. */
void ucx_peers_look_after(struct ucx_endpoint *d)
{
    d->changed = false;
    links_look_after(d);
    for (struct ucx_peer **at = &d->peers; *at;) {
        struct ucx_peer *peer = *at;
        if (peer->down)
            peer_close(d, peer);
        if (!peer->down || peer->n_links > 0 || peer->in_flight > 0) {
            at = &peer->next;
            continue;
        }
        *at = peer->next;
        peer_free(peer);
    }
}

void ucx_peers_close(struct ucx_endpoint *d)
{
    for (struct ucx_peer *peer = d->peers; peer; peer = peer->next)
        peer_close(d, peer);
}

void ucx_peers_free(struct ucx_endpoint *d)
{
    for (struct ucx_link *link = d->links, *next; link; link = next) {
        next = link->next;
        link_free(link);
    }
    for (struct ucx_peer *peer = d->peers, *next; peer; peer = next) {
        next = peer->next;
        peer_free(peer);
    }
}
