/* Frames that leave: UCX has their memory, of the host or of a device, until it says that it is
 * done with them. */
#include "transport/data_ucx_int.h"

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

struct ucx_rows ucx_rows_of(const struct data_buffer *b, size_t head, ucp_request_param_t *param)
{
    if (!b)
        return (struct ucx_rows){NULL, 0};
    if (!b->device)
        return (struct ucx_rows){b->bytes + head, b->size - head};
    data_device_enter(b);
    param->op_attr_mask |= UCP_OP_ATTR_FIELD_MEMORY_TYPE;
    param->memory_type = UCS_MEMORY_TYPE_CUDA;
    return (struct ucx_rows){b->device, b->size - head};
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
    struct ucx_rows rows = ucx_rows_of(o->payload, o->head, &param);
    ucs_status_ptr_t request =
        ucp_am_send_nbx(peer->ep, UCX_AM_ID, o->header, FRAME_HEADER_BYTES + o->head, rows.data,
                        rows.bytes, &param);
    if (UCS_PTR_IS_PTR(request))
        return;
    if (UCS_PTR_STATUS(request) != UCS_OK) {
        ucx_peer_fail(peer, ucs_status_string(UCS_PTR_STATUS(request)));
        data_device_spoil(o->payload);
    }
    order_finish(d, o, UCS_PTR_STATUS(request));
}

static void order_settle(struct ucx_endpoint *d, struct ucx_order *o)
{
    in_flight_add(d, o->link, -1);
    if (o->status == 0)
        data_count_sent(&d->base, o->payload ? o->payload->size : 0);
    if (o->status == 0 && o->payload && o->payload->device)
        data_count_device(&d->base, false);
    ucx_order_end(d, o);
}

void ucx_orders_settle(struct ucx_endpoint *d)
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
    ucx_orders_settle(d);
    return true;
}

void ucx_frame_send_out(struct ucx_endpoint *d, struct ucx_order *o)
{
    in_flight_add(d, o->link, 1);
    if (o->link->peer->introducing)
        ucx_order_append(&o->link->peer->early, o);
    else
        frame_submit(d, o);
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
