/* Frames that come, from others and from the endpoint itself. */
#include <stdlib.h>
#include <string.h>

#include "transport/data_ucx_int.h"

static void arrival_append(struct ucx_arrival_list *list, struct ucx_arrival *a)
{
    a->next = NULL;
    *list->tail = a;
    list->tail = &a->next;
}

static struct ucx_arrival *arrival_create(struct ucx_endpoint *d, const struct frame_header *h,
                                          uint64_t from)
{
    struct ucx_arrival *a = d->spare_arrivals;
    if (a)
        d->spare_arrivals = a->next;
    else if (d->n_arrivals == UCX_MAX_ARRIVALS || !(a = malloc(sizeof *a)))
        return NULL;
    else
        d->n_arrivals++;
    memset(a, 0, offsetof(struct ucx_arrival, table));
    a->owner = d;
    a->header = *h;
    a->from = from;
    return a;
}

static void arrival_free(struct ucx_endpoint *d, struct ucx_arrival *a)
{
    a->next = d->spare_arrivals;
    d->spare_arrivals = a;
}

/* UCX fetches it, until fetching_end. */
static void fetching_begin(struct ucx_arrival *a)
{
    struct ucx_endpoint *d = a->owner;
    d->in_flight++;
    a->at = &d->fetching;
    if ((a->next = d->fetching))
        a->next->at = &a->next;
    d->fetching = a;
}

static void fetching_end(struct ucx_arrival *a)
{
    a->owner->in_flight--;
    if ((*a->at = a->next))
        a->next->at = a->at;
}

static void on_fetched(void *request, ucs_status_t status, size_t length, void *ctx)
{
    struct ucx_arrival *a = ctx;
    fetching_end(a);
    a->ok = status == UCS_OK && length == a->header.payload_bytes - a->head;
    arrival_append(&a->owner->arrived, a);
    ucp_request_free(request);
}

/* False: there is no room for it, of the host's only where it `may` take some. */
static bool arrival_fetch(struct ucx_endpoint *d, struct ucx_arrival *a, bool may)
{
    a->payload = a->head ? data_receive_device(&d->base, &a->header, a->head) : NULL;
    if (!a->payload && may)
        a->payload = data_receive_buffer(&d->base, &a->header);
    if (!a->payload)
        return false;
    memcpy(a->payload->bytes, a->table, a->head);
    ucp_request_param_t param = {
        .op_attr_mask =
            UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FLAG_NO_IMM_CMPL,
        .cb.recv_am = on_fetched,
        .user_data = a,
    };
    struct ucx_rows rows = ucx_rows_of(a->payload, a->head, &param);
    fetching_begin(a);
    ucs_status_ptr_t request =
        ucp_am_recv_data_nbx(d->worker, a->descriptor, rows.data, rows.bytes, &param);
    if (!UCS_PTR_IS_PTR(request)) {
        fetching_end(a);
        a->ok = UCS_PTR_STATUS(request) == UCS_OK;
        arrival_append(&d->arrived, a);
    }
    return true;
}

/* A frame that there is no room for. */
static ucs_status_t frame_refuse(struct ucx_endpoint *d, uint64_t from)
{
    data_count_full(&d->base);
    ucx_peer_fail_sender(d, from);
    return UCS_OK;
}

/* A small frame is copied out of UCX's memory. */
static ucs_status_t eager_take(struct ucx_endpoint *d, struct ucx_arrival *a, const void *data,
                               size_t size)
{
    if (size && !(a->payload = data_receive_buffer(&d->base, &a->header))) {
        uint64_t from = a->from;
        arrival_free(d, a);
        return frame_refuse(d, from);
    }
    if (size) {
        memcpy(a->payload->bytes, a->table, a->head);
        memcpy(a->payload->bytes + a->head, data, size);
    }
    a->ok = true;
    arrival_append(&d->arrived, a);
    return UCS_OK;
}

/* What stands behind a header is a run table, and all of it. */
static bool head_check(struct ucx_endpoint *d, const struct frame_header *h, size_t head,
                       size_t rows_bytes)
{
    if (head == 0 || (h->kind == FRAME_ACTIVATION && head <= DATA_HEAD_BYTES && rows_bytes > 0 &&
                      head == (size_t)h->n_runs * FRAME_RUN_BYTES))
        return true;
    data_count_malformed(&d->base);
    return false;
}

ucs_status_t ucx_on_message(void *ctx, const void *header, size_t header_size, void *data,
                            size_t size, const ucp_am_recv_param_t *param)
{
    struct ucx_endpoint *d = ctx;
    struct frame_header h;
    size_t head = header_size > FRAME_HEADER_BYTES ? header_size - FRAME_HEADER_BYTES : 0;
    if (data_admit(&d->base, header, header_size - head, size + head, NULL, &h) < 0 ||
        !head_check(d, &h, head, size))
        return UCS_OK; /* dropped; a rendezvous payload is never fetched */
    uint64_t from = ucx_peer_number_of(d, param);
    struct ucx_arrival *a = arrival_create(d, &h, from);
    if (!a)
        return frame_refuse(d, from);
    a->head = head;
    if (head)
        memcpy(a->table, (const uint8_t *)header + FRAME_HEADER_BYTES, head);
    if (!(param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV))
        return eager_take(d, a, data, size);
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
    if (data_admit(&d->base, o->header, FRAME_HEADER_BYTES, size, NULL, &h) < 0)
        return true;
    struct data_buffer *copy = size ? data_receive_buffer(&d->base, &h) : NULL;
    struct ucx_arrival *a = size && !copy ? NULL : arrival_create(d, &h, 0);
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
    ucx_frame_send_out(d, o);
}

void ucx_frames_fetch(struct ucx_endpoint *d)
{
    atomic_store(&d->room, false);
    own_frames_fetch(d);
    bool spent[POOL_USES] = {false}; /* one that is refused goes before the later ones of its
                                        budget, and holds up no other budget's, nor those that a
                                        device has memory for */
    for (struct ucx_arrival **at = &d->waiting.first, *a; (a = *at);) {
        enum pool_use use = data_pool_use_of(a->header.kind, a->header.payload_bytes);
        struct ucx_arrival *next = a->next;
        if (!arrival_fetch(d, a, !spent[use])) {
            spent[use] = true;
            at = &a->next;
            continue;
        }
        if (!(*at = next))
            d->waiting.tail = at;
    }
}

/* ---- what the thread does when UCX has returned ---- */

/* A payload that was not fetched. Where its sender is there the memory is at fault that it was to
 * come to. */
static void arrival_lose(struct ucx_endpoint *d, uint64_t from, struct data_buffer *payload)
{
    if (ucx_peer_fail_sender(d, from))
        data_device_spoil(payload);
    data_buffer_release(&d->base, payload);
}

static void arrival_deliver(struct ucx_endpoint *d, struct ucx_arrival *a)
{
    struct frame_header h = a->header;
    struct data_buffer *payload = a->payload;
    uint64_t from = a->from;
    bool ok = a->ok;
    arrival_free(d, a);
    if (!ok) {
        arrival_lose(d, from, payload);
        return;
    }
    data_count_received(&d->base, h.payload_bytes);
    if (payload && payload->device)
        data_count_device(&d->base, true);
    pthread_mutex_unlock(&d->awake);
    d->base.callbacks.frame(d->base.callbacks.ctx, &h, payload);
    pthread_mutex_lock(&d->awake);
}

void ucx_frames_finish(struct ucx_endpoint *d)
{
    struct ucx_arrival *a = d->arrived.first;
    d->arrived = (struct ucx_arrival_list){NULL, &d->arrived.first};
    ucx_orders_settle(d);
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
