/* The parts of the data channel over UCX, from bottom to top: connections and links (data_ucx_peers.c), frames (data_ucx_frames.c), the endpoint with its
 * thread and its queue of orders (data_ucx.c). Everything that touches UCX happens on the endpoint's thread; UCX's callbacks only note what happened, and
 * the thread acts on it when UCX has returned. Only data_ucx*.c includes this. */
#ifndef HP_TRANSPORT_DATA_UCX_INT_H
#define HP_TRANSPORT_DATA_UCX_INT_H

#include "transport/data_int.h"

#include <stdatomic.h>
#include <ucp/api/ucp.h>

enum { UCX_AM_ID = 7, UCX_MAX_ADDRESS_BYTES = 16384, UCX_MAX_ORDERS = 16384, UCX_MAX_LINK_ORDERS = 4096, UCX_MAX_ARRIVALS = 16384 };

struct ucx_link;
struct ucx_peer;

enum order_kind { ORDER_POST, ORDER_DISCONNECT };

/* One posted frame, from the queue until UCX is done with it; or the end of a link. */
struct order {
    struct order *next;
    enum order_kind kind;
    int status; /* once it is done */
    struct ucx_link *link;
    uint8_t header[FRAME_HEADER_BYTES];
    struct data_buffer *payload;
    data_done_fn done;
    void *done_ctx;
};

struct order_list {
    struct order *first, **tail;
};

/* A frame that arrives: by rendezvous it waits for room and is fetched, a small one is there at once. */
struct arrival {
    struct arrival *next;
    struct ucx_endpoint *owner;
    struct frame_header header;
    void *descriptor; /* UCX's, until fetched */
    struct data_buffer *payload;
    bool ok; /* once it is fetched */
};

struct arrival_list {
    struct arrival *first, **tail;
};

struct ucx_endpoint {
    struct data_endpoint base;
    ucp_context_h context;
    ucp_worker_h worker;
    int wake_fd;
    pthread_t thread;
    bool thread_started;
    atomic_bool stopping, room;

    pthread_mutex_t order_lock; /* guards what follows, and `queued` of links */
    struct order_list orders;
    struct order *spare_orders;
    int n_orders; /* allocated */

    /* the thread's own */
    struct ucx_peer *peers;
    struct ucx_link *links;
    bool changed;                  /* a link or a connection wants to be looked after */
    struct order_list finished;    /* `done` is due */
    struct arrival_list waiting;   /* for room in the pool */
    struct arrival_list arrived;   /* the callback is due */
    struct arrival *spare_arrivals;
    int n_arrivals; /* allocated */
    int in_flight;
};

/* Another endpoint, and the one connection to it. All links to it share the connection, and it stays when they are gone: UCX may carry both directions
 * and several endpoints over one socket, so that closing one of them can break what others still use. */
struct ucx_peer {
    struct ucx_peer *next;
    struct ucx_endpoint *endpoint;
    uint8_t *address;
    size_t address_size;
    ucp_ep_h ep;
    bool down; /* gone for good: links that come later get a new peer */
    struct err why;
    int n_links, in_flight;
};

struct ucx_link {
    struct data_link base;
    struct ucx_link *next;
    uint8_t *address;
    size_t address_size;
    int queued; /* orders of this link that are not done; under order_lock */
    struct order disconnect;
    /* the thread's own */
    struct ucx_peer *peer; /* from the first post on; then it is in the endpoint's list */
    struct err why;
    bool listed, down, told, closed;
    int in_flight;
};

/* ---- connections and links (data_ucx_peers.c) ---- */

int ucx_link_create(struct ucx_endpoint *d, const uint8_t *address, size_t size, struct ucx_link **out, struct err *e);
/* Finds or makes the connection of a link at its first post. On failure the link is down. */
int ucx_link_open(struct ucx_endpoint *d, struct ucx_link *link);
/* Nobody uses the link any more; it goes when nothing of it is in flight. */
void ucx_link_end(struct ucx_endpoint *d, struct ucx_link *link);
void ucx_peer_fail(struct ucx_peer *peer, ucs_status_t status);
/* Tells links of broken connections, frees what ended. */
void ucx_peers_look_after(struct ucx_endpoint *d);
void ucx_peers_close(struct ucx_endpoint *d); /* before the worker goes */
void ucx_peers_free(struct ucx_endpoint *d);  /* after */

/* ---- frames (data_ucx_frames.c) ---- */

void ucx_frame_send(struct ucx_endpoint *d, struct order *o);
ucs_status_t ucx_on_message(void *ctx, const void *header, size_t header_size, void *data, size_t size, const ucp_am_recv_param_t *param);
/* Fetches frames that wait at their senders, as far as there is room: waiting there is the back-pressure. */
void ucx_frames_fetch(struct ucx_endpoint *d);
/* Calls back what UCX finished since: `done` of sent frames, frames that arrived. True when there was any. */
bool ucx_frames_finish(struct ucx_endpoint *d);
void ucx_frames_drop(struct ucx_endpoint *d);

/* ---- orders (data_ucx.c) ---- */

void ucx_order_append(struct order_list *list, struct order *o);
/* Releases the payload, calls `done`, and keeps the order for the next. */
void ucx_order_end(struct ucx_endpoint *d, struct order *o);

#endif
