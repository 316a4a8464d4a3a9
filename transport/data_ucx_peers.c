#include <stdlib.h>
#include <string.h>

#include "common/env.h"
#include "transport/data_ucx_int.h"

enum { OPEN_SECONDS = 4 };

/* ---- connections ---- */

void ucx_peer_fail(struct ucx_peer *peer, const char *why)
{
    if (!peer->down)
        err_set(&peer->why, HP_ELINK, "the data connection to %s port %u broke: %s",
                peer->address.host, peer->address.port, why);
    peer->down =
        true; /* its links are told, and it is closed, from the thread, not from inside UCX */
    peer->endpoint->changed = true;
}

static void on_ep_error(void *ctx, ucp_ep_h ep, ucs_status_t status)
{
    (void)ep;
    ucx_peer_fail(ctx, ucs_status_string(status));
}

static void peer_close(struct ucx_endpoint *d, struct ucx_peer *peer)
{
    if (!peer->ep)
        return;
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
                                 .flags = UCP_EP_CLOSE_FLAG_FORCE};
    ucs_status_ptr_t request = ucp_ep_close_nbx(peer->ep, &param);
    peer->ep = NULL;
    if (!UCS_PTR_IS_PTR(request))
        return;
    for (int i = 0; i < UCX_CLOSE_TURNS && ucp_request_check_status(request) == UCS_INPROGRESS; i++)
        ucp_worker_progress(d->worker);
    ucp_request_free(request);
}

static bool address_equal(const struct data_address *a, const struct data_address *b)
{
    return a->port == b->port && strcmp(a->host, b->host) == 0 &&
           memcmp(a->key, b->key, KEY_BYTES) == 0;
}

static struct ucx_peer *peer_find(struct ucx_endpoint *d, const struct data_address *to)
{
    struct ucx_peer *peer = d->peers;
    while (peer && (peer->down || peer->accepted || !address_equal(&peer->address, to)))
        peer = peer->next;
    return peer;
}

static struct ucx_peer *peer_create(struct ucx_endpoint *d)
{
    struct ucx_peer *peer = d->n_peers == UCX_MAX_PEERS ? NULL : calloc(1, sizeof *peer);
    if (!peer)
        return NULL;
    peer->endpoint = d;
    peer->number = ++d->peers_made;
    peer->early.tail = &peer->early.first;
    peer->next = d->peers;
    d->peers = peer;
    d->n_peers++;
    return peer;
}

/* ---- connections that we make: introduced by the guard, then made by UCX ---- */

/* On the guard's thread. */
static void on_introduced(struct ucx_introduction *i, const struct err *why)
{
    struct ucx_peer *peer = i->ctx;
    peer->verdict = why ? *why : (struct err){0};
    ucx_order_give(peer->endpoint, &peer->introduced);
}

static void peer_introduce(struct ucx_endpoint *d, struct ucx_peer *peer,
                           const struct data_address *to)
{
    peer->address = *to;
    peer->introducing = true;
    peer->introduced = (struct ucx_order){.kind = ORDER_INTRODUCED, .peer = peer};
    peer->introduction = (struct ucx_introduction){.to = *to, .ctx = peer, .done = on_introduced};
    ucx_guard_introduce(d->guard, &peer->introduction);
}

static void peer_opened(struct ucx_peer *peer)
{
    peer->endpoint->n_opening -= peer->deadline_ns != 0;
    peer->deadline_ns = 0;
    peer->introducing = false;
    peer->endpoint->changed = true;
}

/* Everything that came before it has left: so the connection stands. */
static void on_flushed(void *request, ucs_status_t status, void *ctx)
{
    struct ucx_peer *peer = ctx;
    if (status != UCS_OK)
        ucx_peer_fail(peer, ucs_status_string(status));
    peer_opened(peer);
    ucp_request_free(request);
}

/* Frames that are posted on a connection that does not stand yet can be lost in UCX 1.13 (large
 * ones, whose sender the receiver does not know yet). */
static void peer_flush(struct ucx_peer *peer)
{
    ucp_request_param_t p = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
        .cb.send = on_flushed,
        .user_data = peer,
    };
    ucs_status_ptr_t request = ucp_ep_flush_nbx(peer->ep, &p);
    if (UCS_PTR_IS_PTR(request))
        return;
    if (UCS_PTR_STATUS(request) != UCS_OK)
        ucx_peer_fail(peer, ucs_status_string(UCS_PTR_STATUS(request)));
    peer_opened(peer);
}

static void peer_connect(struct ucx_endpoint *d, struct ucx_peer *peer)
{
    struct sockaddr_storage sa;
    socklen_t size = ucx_socket_address(&peer->address, &sa);
    ucp_ep_params_t p = {
        .field_mask = UCP_EP_PARAM_FIELD_FLAGS | UCP_EP_PARAM_FIELD_SOCK_ADDR |
                      UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER,
        .flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER,
        .sockaddr = {(struct sockaddr *)&sa, size},
        .err_mode = UCP_ERR_HANDLING_MODE_PEER,
        .err_handler = {on_ep_error, peer},
    };
    ucs_status_t status = ucp_ep_create(d->worker, &p, &peer->ep);
    if (status != UCS_OK) {
        peer->ep = NULL;
        ucx_peer_fail(peer, ucs_status_string(status));
        peer_opened(peer);
        return;
    }
    peer_flush(peer);
}

void ucx_peer_introduced(struct ucx_endpoint *d, struct ucx_peer *peer)
{
    if (peer->verdict.code == 0) {
        peer->deadline_ns = env_now_ns(&env_real) + OPEN_SECONDS * UINT64_C(1000000000);
        d->n_opening++;
        peer_connect(d, peer);
        return;
    }
    peer->down = true;
    peer->why = peer->verdict;
    peer_opened(peer);
}

void ucx_peers_expire(struct ucx_endpoint *d, uint64_t now_ns)
{
    for (struct ucx_peer *peer = d->peers; peer; peer = peer->next)
        if (peer->deadline_ns && now_ns >= peer->deadline_ns && !peer->down)
            ucx_peer_fail(peer, "its UCX has not answered within 4 s");
}

/* ---- connections that others make ---- */

void ucx_on_request(ucp_conn_request_h request, void *ctx)
{
    struct ucx_endpoint *d = ctx;
    if (d->n_requests < UCX_MAX_REQUESTS)
        d->requests[d->n_requests++] = request;
    else
        ucp_listener_reject(d->listener, request);
}

static void request_accept(struct ucx_endpoint *d, ucp_conn_request_h request)
{
    struct ucx_peer *peer = peer_create(d);
    if (!peer) {
        ucp_listener_reject(d->listener, request);
        return;
    }
    peer->accepted = true;
    ucp_ep_params_t p = {
        .field_mask = UCP_EP_PARAM_FIELD_CONN_REQUEST | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER,
        .conn_request = request,
        .err_mode = UCP_ERR_HANDLING_MODE_PEER,
        .err_handler = {on_ep_error, peer},
    };
    if (ucp_ep_create(d->worker, &p, &peer->ep) == UCS_OK)
        return;
    peer->ep = NULL; /* UCX has dropped the request */
    peer->down = d->changed = true;
}

void ucx_requests_accept(struct ucx_endpoint *d)
{
    int n = d->n_requests;
    d->n_requests = 0;
    for (int i = 0; i < n; i++)
        request_accept(d, d->requests[i]);
}

uint64_t ucx_peer_number_of(const struct ucx_endpoint *d, const ucp_am_recv_param_t *param)
{
    const struct ucx_peer *peer =
        param->recv_attr & UCP_AM_RECV_ATTR_FIELD_REPLY_EP ? d->peers : NULL;
    while (peer && peer->ep != param->reply_ep)
        peer = peer->next;
    return peer ? peer->number : 0;
}

bool ucx_peer_fail_sender(struct ucx_endpoint *d, uint64_t number)
{
    struct ucx_peer *peer = d->peers;
    while (peer && peer->number != number)
        peer = peer->next;
    if (!peer || peer->down)
        return false;
    ucx_peer_fail(peer, "a frame could not be taken");
    return true;
}

/* ---- links ---- */

int ucx_link_create(struct ucx_endpoint *d, const uint8_t *address, size_t size,
                    struct ucx_link **out, struct err *e)
{
    struct data_address to;
    int rc = data_address_parse(address, size, &to, e);
    if (rc < 0)
        return rc;
    if (to.kind != DATA_KIND_UCX)
        return err_set(e, HP_EINVAL,
                       "%s port %u speaks tcp on its data channel, and this agent ucx; --data must "
                       "be the same on both",
                       to.host, to.port);
    struct ucx_link *link = calloc(1, sizeof *link);
    if (!link)
        return err_set(e, HP_ENOMEM, "out of memory for a link");
    link->to = to;
    link->self = size == d->base.address_size && memcmp(address, d->base.address, size) == 0;
    link->base.to_itself = link->self;
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
    if (link->self)
        return 0;
    struct ucx_peer *peer = peer_find(d, &link->to);
    if (!peer && (peer = peer_create(d)))
        peer_introduce(d, peer, &link->to);
    if (!peer) {
        link->down = d->changed = true;
        return err_set(
            &link->why, HP_ELINK,
            "no data connection to %s port %u: no memory for it, or there are %d already",
            link->to.host, link->to.port, UCX_MAX_PEERS);
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
        free(link);
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
        if (!peer->down || peer->introducing || peer->n_links > 0 || peer->in_flight > 0) {
            at = &peer->next;
            continue;
        }
        *at = peer->next;
        d->n_peers--;
        free(peer);
    }
}

void ucx_peers_down(struct ucx_endpoint *d)
{
    for (struct ucx_peer *peer = d->peers; peer; peer = peer->next)
        peer->down = true;
}

void ucx_peers_close(struct ucx_endpoint *d)
{
    for (int i = 0; i < d->n_requests; i++)
        ucp_listener_reject(d->listener, d->requests[i]);
    d->n_requests = 0;
    for (struct ucx_peer *peer = d->peers; peer; peer = peer->next)
        peer_close(d, peer);
}

void ucx_peers_free(struct ucx_endpoint *d)
{
    for (struct ucx_link *link = d->links, *next; link; link = next) {
        next = link->next;
        free(link);
    }
    for (struct ucx_peer *peer = d->peers, *next; peer; peer = next) {
        next = peer->next;
        free(peer);
    }
}
