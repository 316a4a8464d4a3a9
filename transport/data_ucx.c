/* The data channel over UCX active messages. One worker, on a thread of its own: everything that touches UCX happens there; other threads leave
 * orders in a queue and signal. The thread progresses until nothing moves, spins briefly while work is in flight, then arms the worker and sleeps.
 *
 * UCX does not authenticate: a frame counts only with an allowed session token, which is checked in its header before a large payload is fetched. */
#include "transport/data_int.h"

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <ucp/api/ucp.h>

enum { AM_ID = 7, SPINS = 2000, SLEEP_MS = 1000, MAX_ADDRESS_BYTES = 16384 };

enum order_kind { ORDER_POST, ORDER_DISCONNECT };

struct ucx_link;
struct ucx_peer;

/* One posted frame, from the queue until UCX is done with it. */
struct order {
    struct order *next;
    enum order_kind kind;
    struct ucx_link *link;
    uint8_t header[FRAME_HEADER_BYTES];
    struct data_buffer *payload;
    data_done_fn done;
    void *done_ctx;
};

/* A frame that arrives by rendezvous. */
struct arrival {
    struct arrival *next;
    struct ucx_endpoint *owner;
    struct frame_header header;
    void *descriptor; /* UCX's, until fetched */
    size_t size;
    struct data_buffer *payload;
};

struct ucx_endpoint {
    struct data_endpoint base;
    ucp_context_h context;
    ucp_worker_h worker;
    int wake_fd;
    pthread_t thread;
    bool thread_started;
    struct order *orders, **orders_tail; /* under base.lock */
    atomic_bool stopping, room;
    /* the thread's own */
    struct ucx_peer *peers;
    struct ucx_link *links;
    struct arrival *waiting, **waiting_tail; /* for room in the pool */
    int in_flight;
};

/* Another endpoint, and the one connection to it. All links to it share the connection, and it stays when they are gone: UCX may carry both directions
 * and several endpoints over one socket, so that closing one of them can break what others still use. */
struct ucx_peer {
    struct ucx_peer *next;
    uint8_t *address;
    size_t address_size;
    ucp_ep_h ep;
    bool down; /* gone for good: links that come later get a new peer */
    int n_links, in_flight;
};

struct ucx_link {
    struct data_link base;
    struct ucx_link *next;
    uint8_t *address;
    size_t address_size;
    struct ucx_peer *peer;         /* from the first post on; then it is in the endpoint's list */
    bool down, told, closed; /* the thread's own */
    int in_flight;
};

static void give_order(struct ucx_endpoint *d, struct order *o)
{
    o->next = NULL;
    pthread_mutex_lock(&d->base.lock);
    *d->orders_tail = o;
    d->orders_tail = &o->next;
    pthread_mutex_unlock(&d->base.lock);
    ucp_worker_signal(d->worker);
}

/* ---- links (thread) ------------------------------------------------------------------------------------------------------ */

static void close_ep(struct ucx_endpoint *d, struct ucx_peer *peer)
{
    if (!peer->ep)
        return;
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_EP_CLOSE_FLAG_FORCE};
    ucs_status_ptr_t request = ucp_ep_close_nbx(peer->ep, &param);
    peer->ep = NULL;
    if (!UCS_PTR_IS_PTR(request))
        return;
    for (int i = 0; i < 100000 && ucp_request_check_status(request) == UCS_INPROGRESS; i++)
        ucp_worker_progress(d->worker);
    ucp_request_free(request);
}

static void peer_free(struct ucx_peer *peer)
{
    free(peer->address);
    free(peer);
}

static void link_free(struct ucx_link *link)
{
    free(link->address);
    free(link);
}

static void link_failed(struct ucx_endpoint *d, struct ucx_link *link)
{
    link->down = true;
    if (link->told || link->closed)
        return;
    link->told = true;
    if (d->base.callbacks.link_down)
        d->base.callbacks.link_down(d->base.callbacks.ctx, &link->base, &(struct err){HP_ELINK, "the connection broke", ""});
}

static void on_ep_error(void *ctx, ucp_ep_h ep, ucs_status_t status)
{
    struct ucx_peer *peer = ctx;
    (void)ep, (void)status;
    peer->down = true; /* its links are told, and it is closed, from the loop, not from inside UCX */
}

static struct ucx_peer *peer_create(struct ucx_endpoint *d, const struct ucx_link *link)
{
    struct ucx_peer *peer = calloc(1, sizeof *peer);
    if (!peer || !(peer->address = malloc(link->address_size))) {
        free(peer);
        return NULL;
    }
    memcpy(peer->address, link->address, link->address_size);
    peer->address_size = link->address_size;
    ucp_ep_params_t p = {
        .field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER,
        .address = (const ucp_address_t *)peer->address,
        .err_mode = UCP_ERR_HANDLING_MODE_PEER,
        .err_handler = {on_ep_error, peer},
    };
    if (ucp_ep_create(d->worker, &p, &peer->ep) != UCS_OK) {
        peer_free(peer);
        return NULL;
    }
    peer->next = d->peers;
    d->peers = peer;
    return peer;
}

/* Finds or makes the connection of a link at its first post. */
static int open_peer(struct ucx_endpoint *d, struct ucx_link *link)
{
    if (link->peer)
        return 0;
    link->next = d->links;
    d->links = link;
    struct ucx_peer *peer = d->peers;
    while (peer && (peer->down || peer->address_size != link->address_size || memcmp(peer->address, link->address, link->address_size) != 0))
        peer = peer->next;
    if (!peer && !(peer = peer_create(d, link)))
        return HP_ELINK;
    link->peer = peer;
    peer->n_links++;
    return 0;
}

/* ---- sending (thread) -------------------------------------------------------------------------------------------------------- */

static void order_is_done(struct ucx_endpoint *d, struct order *o, int status)
{
    if (status == 0)
        data_count_sent(&d->base, o->payload ? o->payload->size : 0);
    data_buffer_release(&d->base, o->payload);
    if (o->done)
        o->done(o->done_ctx, status);
    free(o);
}

static void on_sent(void *request, ucs_status_t status, void *ctx)
{
    struct order *o = ctx;
    struct ucx_link *link = o->link;
    struct ucx_endpoint *d = (struct ucx_endpoint *)link->base.endpoint;
    link->in_flight--;
    link->peer->in_flight--;
    d->in_flight--;
    if (status != UCS_OK)
        link->peer->down = true;
    order_is_done(d, o, status == UCS_OK ? 0 : HP_ELINK);
    ucp_request_free(request);
}

static void send_frame(struct ucx_endpoint *d, struct order *o)
{
    struct ucx_link *link = o->link;
    if (link->down || open_peer(d, link) < 0 || link->peer->down) {
        link->down = true;
        order_is_done(d, o, HP_ELINK);
        return;
    }
    ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
        .cb.send = on_sent,
        .user_data = o,
    };
    link->in_flight++;
    link->peer->in_flight++;
    d->in_flight++;
    ucs_status_ptr_t request = ucp_am_send_nbx(link->peer->ep, AM_ID, o->header, sizeof o->header, o->payload ? o->payload->bytes : NULL,
                                               o->payload ? o->payload->size : 0, &param);
    if (UCS_PTR_IS_PTR(request))
        return;
    link->in_flight--;
    link->peer->in_flight--;
    d->in_flight--;
    bool sent = UCS_PTR_STATUS(request) == UCS_OK;
    link->peer->down |= !sent;
    order_is_done(d, o, sent ? 0 : HP_ELINK);
}

/* ---- receiving (thread) -------------------------------------------------------------------------------------------------------- */

static void deliver(struct ucx_endpoint *d, const struct frame_header *h, struct data_buffer *payload)
{
    data_count_received(&d->base, h->payload_bytes);
    d->base.callbacks.frame(d->base.callbacks.ctx, h, payload);
}

static void arrival_is_done(struct arrival *a, bool ok)
{
    struct ucx_endpoint *d = a->owner;
    if (ok)
        deliver(d, &a->header, a->payload);
    else
        data_buffer_release(&d->base, a->payload);
    free(a);
}

static void on_fetched(void *request, ucs_status_t status, size_t length, void *ctx)
{
    struct arrival *a = ctx;
    a->owner->in_flight--;
    arrival_is_done(a, status == UCS_OK && length == a->size);
    ucp_request_free(request);
}

/* Fetches a payload that waits at its sender. False when the pool has no room: it goes on waiting there, which is the back-pressure. */
static bool fetch(struct ucx_endpoint *d, struct arrival *a)
{
    a->payload = data_receive_buffer(&d->base, &a->header);
    if (!a->payload)
        return false;
    ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FLAG_NO_IMM_CMPL,
        .cb.recv_am = on_fetched,
        .user_data = a,
    };
    d->in_flight++;
    ucs_status_ptr_t request = ucp_am_recv_data_nbx(d->worker, a->descriptor, a->payload->bytes, a->size, &param);
    if (!UCS_PTR_IS_PTR(request)) {
        d->in_flight--;
        arrival_is_done(a, UCS_PTR_STATUS(request) == UCS_OK);
    }
    return true;
}

static void fetch_waiting(struct ucx_endpoint *d)
{
    atomic_store(&d->room, false);
    bool spent[POOL_USES] = {false}; /* one that is refused goes before the later ones of its budget, and holds up no other budget's */
    for (struct arrival **at = &d->waiting, *a; (a = *at);) {
        enum pool_use use = data_pool_use_of(a->header.kind, a->size);
        struct arrival *next = a->next;
        if (spent[use] || !fetch(d, a)) {
            spent[use] = true;
            at = &a->next;
            continue;
        }
        if (!(*at = next))
            d->waiting_tail = at;
    }
}

static ucs_status_t on_message(void *ctx, const void *header, size_t header_size, void *data, size_t size, const ucp_am_recv_param_t *param)
{
    struct ucx_endpoint *d = ctx;
    struct frame_header h;
    if (data_admit(&d->base, header, header_size, size, NULL, &h) < 0)
        return UCS_OK; /* dropped; a rendezvous payload is never fetched */
    if (!(param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV)) {
        struct data_buffer *payload = size ? data_receive_buffer(&d->base, &h) : NULL;
        if (size && !payload) {
            data_count_full(&d->base);
            return UCS_OK;
        }
        if (size)
            memcpy(payload->bytes, data, size);
        deliver(d, &h, payload);
        return UCS_OK;
    }
    struct arrival *a = calloc(1, sizeof *a);
    if (!a)
        return UCS_OK;
    *a = (struct arrival){.owner = d, .header = h, .descriptor = data, .size = size};
    *d->waiting_tail = a;
    d->waiting_tail = &a->next;
    if (d->waiting == a)
        fetch_waiting(d);
    return UCS_INPROGRESS;
}

/* ---- the thread ---------------------------------------------------------------------------------------------------------------- */

static bool is_listed(const struct ucx_endpoint *d, const struct ucx_link *link)
{
    for (const struct ucx_link *l = d->links; l; l = l->next)
        if (l == link)
            return true;
    return false;
}

static void carry_out(struct ucx_endpoint *d, struct order *o)
{
    if (o->kind == ORDER_POST) {
        send_frame(d, o);
        return;
    }
    o->link->closed = true;
    if (!is_listed(d, o->link))
        link_free(o->link); /* it never sent anything */
    free(o);
}

static bool carry_out_all(struct ucx_endpoint *d)
{
    pthread_mutex_lock(&d->base.lock);
    struct order *o = d->orders;
    d->orders = NULL;
    d->orders_tail = &d->orders;
    pthread_mutex_unlock(&d->base.lock);
    bool any = o != NULL;
    while (o) {
        struct order *next = o->next;
        carry_out(d, o);
        o = next;
    }
    return any;
}

static void look_after_links(struct ucx_endpoint *d)
{
    for (struct ucx_link **at = &d->links; *at;) {
        struct ucx_link *link = *at;
        link->down |= link->peer && link->peer->down;
        if (link->down && !link->told)
            link_failed(d, link);
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
static void look_after_peers(struct ucx_endpoint *d)
{
    for (struct ucx_peer **at = &d->peers; *at;) {
        struct ucx_peer *peer = *at;
        if (peer->down)
            close_ep(d, peer);
        if (!peer->down || peer->n_links > 0 || peer->in_flight > 0) {
            at = &peer->next;
            continue;
        }
        *at = peer->next;
        peer_free(peer);
    }
}

static void *progress(void *ctx)
{
    struct ucx_endpoint *d = ctx;
    int idle = 0;
    while (!atomic_load(&d->stopping)) {
        bool moved = carry_out_all(d);
        while (ucp_worker_progress(d->worker) > 0)
            moved = true;
        look_after_links(d);
        look_after_peers(d);
        if (atomic_load(&d->room))
            fetch_waiting(d);
        if (moved) {
            idle = 0;
            continue;
        }
        if (d->in_flight > 0 && ++idle < SPINS)
            continue;
        if (ucp_worker_arm(d->worker) != UCS_OK)
            continue; /* something came in between */
        struct pollfd p = {d->wake_fd, POLLIN, 0};
        poll(&p, 1, SLEEP_MS);
        idle = 0;
    }
    return NULL;
}

/* ---- opening, closing, posting --------------------------------------------------------------------------------------------------- */

static void drop_everything(struct ucx_endpoint *d)
{
    for (struct order *o = d->orders, *next; o; o = next) {
        next = o->next;
        if (o->kind == ORDER_POST)
            order_is_done(d, o, HP_ELINK);
        else {
            if (!is_listed(d, o->link))
                link_free(o->link);
            free(o);
        }
    }
    for (struct arrival *a = d->waiting, *next; a; a = next) {
        next = a->next;
        ucp_am_data_release(d->worker, a->descriptor);
        free(a);
    }
}

static void ucx_close(struct data_endpoint *base)
{
    struct ucx_endpoint *d = (struct ucx_endpoint *)base;
    if (d->thread_started) {
        atomic_store(&d->stopping, true);
        ucp_worker_signal(d->worker);
        pthread_join(d->thread, NULL);
    }
    drop_everything(d);
    for (struct ucx_peer *peer = d->peers; peer; peer = peer->next)
        close_ep(d, peer);
    for (int i = 0; d->worker && d->in_flight > 0 && i < 100000; i++)
        ucp_worker_progress(d->worker);
    if (d->worker)
        ucp_worker_destroy(d->worker);
    if (d->context)
        ucp_cleanup(d->context);
    for (struct ucx_link *link = d->links, *next; link; link = next) {
        next = link->next;
        link_free(link);
    }
    for (struct ucx_peer *peer = d->peers, *next; peer; peer = next) {
        next = peer->next;
        peer_free(peer);
    }
    data_base_fini(base);
    free(d);
}

static int ucx_connect(struct data_endpoint *base, const uint8_t *address, size_t size, struct data_link **out, struct err *e)
{
    if (size == 0 || size > MAX_ADDRESS_BYTES)
        return err_set(e, HP_EINVAL, "%zu bytes are no address of a data endpoint", size);
    struct ucx_link *link = calloc(1, sizeof *link);
    if (!link || !(link->address = malloc(size))) {
        free(link);
        return err_set(e, HP_ENOMEM, "out of memory for a link");
    }
    memcpy(link->address, address, size);
    link->address_size = size;
    link->base.endpoint = base;
    *out = &link->base;
    return 0;
}

static void ucx_disconnect(struct data_link *base)
{
    struct order *o = calloc(1, sizeof *o);
    if (!o)
        return; /* the endpoint frees the link when it closes */
    o->kind = ORDER_DISCONNECT;
    o->link = (struct ucx_link *)base;
    give_order((struct ucx_endpoint *)base->endpoint, o);
}

static void ucx_post(struct data_link *base, const struct frame_header *h, struct data_buffer *payload, data_done_fn done, void *done_ctx)
{
    struct order *o = calloc(1, sizeof *o);
    if (!o) {
        data_buffer_release(base->endpoint, payload);
        if (done)
            done(done_ctx, HP_ENOMEM);
        return;
    }
    *o = (struct order){.kind = ORDER_POST, .link = (struct ucx_link *)base, .payload = payload, .done = done, .done_ctx = done_ctx};
    frame_header_encode(h, o->header);
    give_order((struct ucx_endpoint *)base->endpoint, o);
}

static void ucx_room(struct data_endpoint *base)
{
    struct ucx_endpoint *d = (struct ucx_endpoint *)base;
    atomic_store(&d->room, true);
    ucp_worker_signal(d->worker);
}

static const struct data_ops ucx_ops = {ucx_close, ucx_connect, ucx_disconnect, ucx_post, ucx_room, NULL};

/* UCX listens on every interface and stripes over all unless it is told otherwise. */
static ucs_status_t open_context(struct ucx_endpoint *d, const char *network)
{
    ucp_config_t *config;
    ucs_status_t s = ucp_config_read(NULL, NULL, &config);
    if (s != UCS_OK)
        return s;
    if (network) {
        if (strcmp(network, "lo") == 0)
            ucp_config_modify(config, "TLS", "tcp");
        s = ucp_config_modify(config, "NET_DEVICES", network);
    }
    ucp_params_t p = {
        .field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_NAME,
        .features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP,
        .name = "hodgepodge",
    };
    if (s == UCS_OK)
        s = ucp_init(&p, config, &d->context);
    ucp_config_release(config);
    return s;
}

static ucs_status_t open_worker(struct ucx_endpoint *d)
{
    ucp_worker_params_t p = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE, .thread_mode = UCS_THREAD_MODE_SERIALIZED};
    ucp_am_handler_param_t handler = {
        .field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS | UCP_AM_HANDLER_PARAM_FIELD_CB |
                      UCP_AM_HANDLER_PARAM_FIELD_ARG,
        .id = AM_ID,
        .flags = UCP_AM_FLAG_WHOLE_MSG,
        .cb = on_message,
        .arg = d,
    };
    ucp_address_t *address;
    size_t size;
    ucs_status_t s = ucp_worker_create(d->context, &p, &d->worker);
    if (s != UCS_OK || (s = ucp_worker_set_am_recv_handler(d->worker, &handler)) != UCS_OK ||
        (s = ucp_worker_get_efd(d->worker, &d->wake_fd)) != UCS_OK || (s = ucp_worker_get_address(d->worker, &address, &size)) != UCS_OK)
        return s;
    d->base.address = malloc(size);
    if (d->base.address)
        memcpy(d->base.address, address, size);
    d->base.address_size = size;
    ucp_worker_release_address(d->worker, address);
    return d->base.address ? UCS_OK : UCS_ERR_NO_MEMORY;
}

int data_open_ucx(const struct data_config *c, struct data_endpoint **out, struct err *e)
{
    struct ucx_endpoint *d = calloc(1, sizeof *d);
    if (!d)
        return err_set(e, HP_ENOMEM, "out of memory for a data endpoint");
    data_base_init(&d->base, &ucx_ops, c);
    d->orders_tail = &d->orders;
    d->waiting_tail = &d->waiting;
    ucs_status_t s = open_context(d, c->network);
    if (s == UCS_OK)
        s = open_worker(d);
    if (s == UCS_OK && pthread_create(&d->thread, NULL, progress, d) != 0)
        s = UCS_ERR_NO_RESOURCE;
    if (s != UCS_OK) {
        err_set(e, HP_EDEVICE, "cannot open the data channel on network %s: %s", c->network ? c->network : "(any)", ucs_status_string(s));
        err_hint(e, "`ip link` lists the interfaces; name one with --network");
        ucx_close(&d->base);
        return HP_EDEVICE;
    }
    d->thread_started = true;
    *out = &d->base;
    return 0;
}
