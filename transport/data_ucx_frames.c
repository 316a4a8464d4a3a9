#include <stdlib.h>
#include <string.h>

#include "transport/data_ucx_int.h"

/* ---- sending ---- */

static void order_finish(struct ucx_endpoint *d, struct ucx_order *o, ucs_status_t status)
{
    o->status = status == UCS_OK ? 0 : HP_ELINK;
    ucx_order_append(&d->finished, o);
}

static void in_flight_add(struct ucx_endpoint *d, struct ucx_link *link, int n)
{
    link->in_flight += n;
    link->peer->in_flight += n;
    d->in_flight += n;
    d->changed |= n < 0 && (link->closed || link->peer->down);
}

static void on_sent(void *request, ucs_status_t status, void *ctx)
{
    struct ucx_order *o = ctx;
    struct ucx_endpoint *d = (struct ucx_endpoint *)o->link->base.endpoint;
    if (status != UCS_OK)
        ucx_peer_fail(o->link->peer, ucs_status_string(status));
    order_finish(d, o, status);
    ucp_request_free(request);
}

static void frame_submit(struct ucx_endpoint *d, struct ucx_order *o)
{
    struct ucx_peer *peer = o->link->peer;
    if (peer->down || !peer->ep) {
        order_finish(d, o, UCS_ERR_CONNECTION_RESET);
        return;
    }
    ucp_request_param_t param = {
        .op_attr_mask =
            UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS,
        .cb.send = on_sent,
        .user_data = o,
        .flags = UCP_AM_SEND_FLAG_REPLY, /* tells the receiver which connection it came over */
    };
    ucs_status_ptr_t request = ucp_am_send_nbx(peer->ep, UCX_AM_ID, o->header, sizeof o->header,
                                               o->payload ? o->payload->bytes : NULL,
                                               o->payload ? o->payload->size : 0, &param);
    if (UCS_PTR_IS_PTR(request))
        return;
    if (UCS_PTR_STATUS(request) != UCS_OK)
        ucx_peer_fail(peer, ucs_status_string(UCS_PTR_STATUS(request)));
    order_finish(d, o, UCS_PTR_STATUS(request));
}

static void order_settle(struct ucx_endpoint *d, struct ucx_order *o)
{
    in_flight_add(d, o->link, -1);
    if (o->status == 0)
        data_count_sent(&d->base, o->payload ? o->payload->size : 0);
    ucx_order_end(d, o);
}

static void orders_settle(struct ucx_endpoint *d)
{
    struct ucx_order *o = d->finished.first;
    d->finished = (struct ucx_order_list){NULL, &d->finished.first};
    for (struct ucx_order *next; o; o = next) {
        next = o->next;
        order_settle(d, o);
    }
}

bool ucx_frame_send_now(struct ucx_endpoint *d, struct ucx_order *o)
{
    const struct ucx_link *link = o->link;
    const struct ucx_peer *peer = link->peer;
    if (d->changed || !peer || link->down || link->closed || peer->down || !peer->ep ||
        peer->introducing)
        return false;
    in_flight_add(d, o->link, 1);
    frame_submit(d, o);
    orders_settle(d);
    return true;
}

static void peer_send_early(struct ucx_endpoint *d, struct ucx_peer *peer)
{
    struct ucx_order *o = peer->early.first;
    peer->early = (struct ucx_order_list){NULL, &peer->early.first};
    for (struct ucx_order *next; o; o = next) {
        next = o->next;
        frame_submit(d, o);
    }
}

void ucx_frames_send_early(struct ucx_endpoint *d)
{
    for (struct ucx_peer *peer = d->peers; peer; peer = peer->next)
        if (!peer->introducing || peer->down)
            peer_send_early(d, peer);
}

/* ---- receiving ---- */

static void arrival_append(struct ucx_arrival_list *list, struct ucx_arrival *a)
{
    a->next = NULL;
    *list->tail = a;
    list->tail = &a->next;
}

static struct ucx_arrival *arrival_create(struct ucx_endpoint *d, const struct frame_header *h)
{
    struct ucx_arrival *a = d->spare_arrivals;
    if (a)
        d->spare_arrivals = a->next;
    else if (d->n_arrivals == UCX_MAX_ARRIVALS || !(a = malloc(sizeof *a)))
        return NULL;
    else
        d->n_arrivals++;
    *a = (struct ucx_arrival){.owner = d, .header = *h};
    return a;
}

static void arrival_free(struct ucx_endpoint *d, struct ucx_arrival *a)
{
    a->next = d->spare_arrivals;
    d->spare_arrivals = a;
}

static void on_fetched(void *request, ucs_status_t status, size_t length, void *ctx)
{
    struct ucx_arrival *a = ctx;
    a->owner->in_flight--;
    a->ok = status == UCS_OK && length == a->header.payload_bytes;
    arrival_append(&a->owner->arrived, a);
    ucp_request_free(request);
}

static bool arrival_fetch(struct ucx_endpoint *d, struct ucx_arrival *a)
{
    a->payload = data_receive_buffer(&d->base, &a->header);
    if (!a->payload)
        return false;
    ucp_request_param_t param = {
        .op_attr_mask =
            UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FLAG_NO_IMM_CMPL,
        .cb.recv_am = on_fetched,
        .user_data = a,
    };
    d->in_flight++;
    ucs_status_ptr_t request =
        ucp_am_recv_data_nbx(d->worker, a->descriptor, a->payload->bytes, a->payload->size, &param);
    if (!UCS_PTR_IS_PTR(request)) {
        d->in_flight--;
        a->ok = UCS_PTR_STATUS(request) == UCS_OK;
        arrival_append(&d->arrived, a);
    }
    return true;
}

/* A small frame is copied out of UCX's memory. */
static ucs_status_t eager_take(struct ucx_endpoint *d, struct ucx_arrival *a, const void *data,
                               size_t size, const ucp_am_recv_param_t *param)
{
    if (size && !(a->payload = data_receive_buffer(&d->base, &a->header))) {
        ucx_peer_fail_sender(d, param);
        arrival_free(d, a);
        return UCS_OK;
    }
    if (size)
        memcpy(a->payload->bytes, data, size);
    a->ok = true;
    arrival_append(&d->arrived, a);
    return UCS_OK;
}

ucs_status_t ucx_on_message(void *ctx, const void *header, size_t header_size, void *data,
                            size_t size, const ucp_am_recv_param_t *param)
{
    struct ucx_endpoint *d = ctx;
    struct frame_header h;
    if (data_admit(&d->base, header, header_size, size, NULL, &h) < 0)
        return UCS_OK; /* dropped; a rendezvous payload is never fetched */
    struct ucx_arrival *a = arrival_create(d, &h);
    if (!a) {
        ucx_peer_fail_sender(d, param);
        return UCS_OK;
    }
    if (!(param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV))
        return eager_take(d, a, data, size, param);
    a->descriptor = data;
    arrival_append(&d->waiting, a);
    atomic_store(&d->room, true);
    return UCS_INPROGRESS;
}

/* ---- to itself: a copy, and no socket ---- */

static void own_end(struct ucx_endpoint *d, struct ucx_order *o, int status)
{
    struct ucx_link *link = o->link;
    o->status = status;
    d->changed |= --link->in_flight == 0 && link->closed;
    if (status == 0)
        data_count_sent(&d->base, o->payload ? o->payload->size : 0);
    ucx_order_end(d, o);
}

/* False while there is no room for it. */
static bool own_deliver(struct ucx_endpoint *d, struct ucx_order *o)
{
    struct frame_header h;
    size_t size = o->payload ? o->payload->size : 0;
    if (data_admit(&d->base, o->header, sizeof o->header, size, NULL, &h) < 0)
        return true;
    struct data_buffer *copy = size ? data_receive_buffer(&d->base, &h) : NULL;
    struct ucx_arrival *a = size && !copy ? NULL : arrival_create(d, &h);
    if (!a) {
        data_buffer_release(&d->base, copy);
        return false;
    }
    if (size)
        memcpy(copy->bytes, o->payload->bytes, size);
    a->payload = copy;
    a->ok = true;
    arrival_append(&d->arrived, a);
    return true;
}

static void own_frames_fetch(struct ucx_endpoint *d)
{
    struct ucx_order *o = d->own.first;
    bool spent[2] = {false}; /* a small one waits for no large one */
    d->own = (struct ucx_order_list){NULL, &d->own.first};
    for (struct ucx_order *next; o; o = next) {
        bool large = o->payload && o->payload->size > DATA_CONTROL_BYTES;
        next = o->next;
        if (spent[large] || !own_deliver(d, o)) {
            spent[large] = true;
            ucx_order_append(&d->own, o);
        } else {
            own_end(d, o, 0);
        }
    }
}

void ucx_frame_send(struct ucx_endpoint *d, struct ucx_order *o)
{
    struct ucx_link *link = o->link;
    if (link->self && ucx_link_open(d, link) == 0) {
        link->in_flight++;
        ucx_order_append(&d->own, o);
        own_frames_fetch(d);
        return;
    }
    if (ucx_link_open(d, link) < 0 || link->peer->down) {
        o->status = HP_ELINK;
        ucx_order_end(d, o);
        return;
    }
    in_flight_add(d, link, 1);
    if (link->peer->introducing)
        ucx_order_append(&link->peer->early, o);
    else
        frame_submit(d, o);
}

void ucx_frames_fetch(struct ucx_endpoint *d)
{
    atomic_store(&d->room, false);
    own_frames_fetch(d);
    bool spent[POOL_USES] = {false}; /* one that is refused goes before the later ones of its
                                        budget, and holds up no other budget's */
    for (struct ucx_arrival **at = &d->waiting.first, *a; (a = *at);) {
        enum pool_use use = data_pool_use_of(a->header.kind, a->header.payload_bytes);
        struct ucx_arrival *next = a->next;
        if (spent[use] || !arrival_fetch(d, a)) {
            spent[use] = true;
            at = &a->next;
            continue;
        }
        if (!(*at = next))
            d->waiting.tail = at;
    }
}

/* ---- what the thread does when UCX has returned ---- */

static void arrival_deliver(struct ucx_endpoint *d, struct ucx_arrival *a)
{
    struct frame_header h = a->header;
    struct data_buffer *payload = a->payload;
    bool ok = a->ok;
    arrival_free(d, a);
    if (!ok) {
        data_buffer_release(&d->base, payload);
        return;
    }
    data_count_received(&d->base, h.payload_bytes);
    pthread_mutex_unlock(&d->awake);
    d->base.callbacks.frame(d->base.callbacks.ctx, &h, payload);
    pthread_mutex_lock(&d->awake);
}

void ucx_frames_finish(struct ucx_endpoint *d)
{
    struct ucx_arrival *a = d->arrived.first;
    d->arrived = (struct ucx_arrival_list){NULL, &d->arrived.first};
    orders_settle(d);
    for (struct ucx_arrival *next; a; a = next) {
        next = a->next;
        arrival_deliver(d, a);
    }
}

static void arrivals_free(struct ucx_arrival *a)
{
    for (struct ucx_arrival *next; a; a = next) {
        next = a->next;
        free(a);
    }
}

void ucx_frames_drop(struct ucx_endpoint *d)
{
    for (struct ucx_order *o = d->own.first, *next; o; o = next) {
        next = o->next;
        own_end(d, o, HP_ELINK);
    }
    d->own = (struct ucx_order_list){NULL, &d->own.first};
    for (struct ucx_arrival *a = d->waiting.first; a; a = a->next)
        ucp_am_data_release(d->worker, a->descriptor);
    for (struct ucx_arrival *a = d->arrived.first; a; a = a->next)
        data_buffer_release(&d->base, a->payload);
    arrivals_free(d->waiting.first);
    arrivals_free(d->arrived.first);
    arrivals_free(d->spare_arrivals);
    d->waiting = (struct ucx_arrival_list){NULL, &d->waiting.first};
    d->arrived = (struct ucx_arrival_list){NULL, &d->arrived.first};
    d->spare_arrivals = NULL;
}
