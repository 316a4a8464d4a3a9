/* The parts of the data channel over UCX, from bottom to top: where it listens (data_ucx_place.c),
 * UCX behind its guard (data_ucx_stack.c), the queue of orders (data_ucx_orders.c), connections and
 * links (data_ucx_peers.c), what peers keep too long (data_ucx_overdue.c), frames that leave
 * (data_ucx_send.c) and come (data_ucx_frames.c), the endpoint with its thread (data_ucx.c).
 * Everything that touches UCX happens on the endpoint's thread, which holds `awake` but for its
 * sleep and the callbacks of frames; whoever posts a small frame and finds it free hands the frame
 * to UCX itself (it never waits for it: the thread calls back with it held, when links break).
 * UCX's callbacks only note what happened, and the thread acts on it when UCX has returned. Only
 * data_ucx*.c includes this. */
#ifndef HP_TRANSPORT_DATA_UCX_INT_H
#define HP_TRANSPORT_DATA_UCX_INT_H

#include <net/if.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <ucp/api/ucp.h>

#include "transport/data_address.h"
#include "transport/data_int.h"
#include "transport/ucx_guard.h"

enum {
    UCX_AM_ID = 7,
    UCX_MAX_ORDERS = 16384,
    UCX_MAX_LINK_ORDERS = 4096,
    UCX_MAX_ARRIVALS = 16384,
    UCX_MAX_PEERS = 8192,
    UCX_MAX_REQUESTS = 64
};
enum { UCX_UNWANTED_MS = 300000 }; /* a large frame may be on a slow link for so long */
enum { UCX_CLOSE_TURNS = 100000 }; /* of the worker, at most, until what is ended has ended */

struct ucx_link;
struct ucx_peer;

enum ucx_order_kind { ORDER_POST, ORDER_DISCONNECT, ORDER_INTRODUCED };

/* One posted frame, from the queue until UCX is done with it; or the end of a link; or the answer
 * to an introduction. */
struct ucx_order {
    struct ucx_order *next;
    enum ucx_order_kind kind;
    int status; /* once it is done */
    struct ucx_link *link;
    struct ucx_peer *peer; /* ORDER_INTRODUCED */
    struct data_buffer *payload;
    data_done_fn done;
    void *done_ctx;
    size_t head; /* bytes of the payload that go behind the header, so that its rows lie by
                    themselves: a receiver may want them elsewhere */
    uint8_t header[FRAME_HEADER_BYTES + DATA_HEAD_BYTES]; /* not cleared */
};

struct ucx_order_list {
    struct ucx_order *first, **tail;
};

/* A frame that arrives: by rendezvous it waits for room and is fetched, a small one is there at
 * once. */
struct ucx_arrival {
    struct ucx_arrival *next, **at; /* `at`: what points to it while it is fetched */
    struct ucx_endpoint *owner;
    struct frame_header header;
    uint64_t from;        /* number of the connection that it comes over; 0: not known */
    uint64_t unwanted_ns; /* since when nobody waits for it, as was seen; 0: somebody does */
    void *descriptor;     /* UCX's, until fetched */
    struct data_buffer *payload;
    bool ok; /* once it is fetched */
    size_t head;
    uint8_t table[DATA_HEAD_BYTES]; /* `head` bytes that came behind the header; not cleared */
};

struct ucx_arrival_list {
    struct ucx_arrival *first, **tail;
};

struct ucx_endpoint {
    struct data_endpoint base;
    ucp_context_h context;
    ucp_worker_h worker;
    ucp_listener_h listener;
    struct ucx_guard *guard;
    int wake_fd;
    pthread_t thread;
    bool thread_started;
    atomic_bool stopping, room;
    bool splits; /* a header may have a run table behind it */

    pthread_mutex_t awake;      /* see above; before all other locks */
    pthread_mutex_t order_lock; /* guards what follows, and `queued` of links */
    bool asleep;                /* and not signalled yet: an order has to */
    struct ucx_order_list orders;
    struct ucx_order *spare_orders;
    int n_orders; /* allocated */

    /* the thread's own */
    struct ucx_peer *peers;
    int n_peers, n_opening; /* that UCX connects */
    uint64_t peers_made, overdue_looked_ns;
    struct ucx_link *links;
    ucp_conn_request_h requests[UCX_MAX_REQUESTS]; /* proven ones who connect to us */
    int n_requests;
    bool changed;                   /* a link or a connection wants to be looked after */
    struct ucx_order_list finished; /* `done` is due */
    struct ucx_order_list own; /* frames to this endpoint itself that wait for room in the pool */
    struct ucx_arrival_list waiting; /* for room in the pool */
    struct ucx_arrival *fetching;    /* that UCX fetches */
    struct ucx_arrival_list arrived; /* the callback is due */
    struct ucx_arrival *spare_arrivals;
    int n_arrivals; /* allocated */
    int in_flight;
};

/* Another endpoint, and one connection with it: ours to it, which all links to it share and which
 * stays when they are gone; or one that it made to us, over which we only receive. */
struct ucx_peer {
    struct ucx_peer *next;
    struct ucx_endpoint *endpoint;
    uint64_t number;             /* of this connection alone, from 1 on */
    bool accepted;               /* it made the connection */
    struct data_address address; /* unless it did */
    struct ucx_introduction introduction;
    struct err verdict;          /* of the introduction; code 0: it worked */
    struct ucx_order introduced; /* brings the verdict to the thread */
    struct ucx_order_list early; /* frames that wait for the introduction */
    bool introducing;            /* until the connection stands */
    uint64_t deadline_ns; /* of what UCX does until it stands; 0: the guard is still at it, which
                             has a deadline of its own */
    ucp_ep_h ep;
    bool down; /* gone for good: links that come later get a new peer */
    struct err why;
    int n_links, in_flight;
};

struct ucx_link {
    struct data_link base;
    struct ucx_link *next;
    struct data_address to;
    bool self;  /* to this endpoint: its frames do not leave the process */
    int queued; /* orders of this link that are not done; under order_lock */
    struct ucx_order disconnect;
    /* the thread's own */
    struct ucx_peer *peer; /* from the first post on; then it is in the endpoint's list */
    struct err why;
    bool listed, down, told, closed;
    int in_flight;
    uint64_t unwanted_ns; /* as of an arrival: what it has in flight, once it is closed */
};

/* ---- where it listens (data_ucx_place.c) ---- */

socklen_t ucx_socket_address(const struct data_address *a, struct sockaddr_storage *out);
/* The host (numeric) and its interface, as the config says, or as follows from what it says.
 * HP_EINVAL, HP_EDEVICE. */
int ucx_place_find(const struct data_config *c, struct data_address *own, char network[IF_NAMESIZE],
                   struct err *e);

/* ---- what stands below (data_ucx_stack.c) ---- */

/* What UCX calls, with the endpoint as context, on its thread. */
struct ucx_handlers {
    ucp_am_recv_callback_t on_message;
    ucp_listener_conn_callback_t on_request;
};

/* Opens the guard, and UCX behind it, listening at `own`, whose port is filled in; on failure what
 * was opened is the caller's to close. HP_EBUSY, HP_EDEVICE, HP_EUNSUPPORTED, HP_ENOMEM. */
int ucx_stack_open(struct ucx_endpoint *d, const struct data_config *c, const char *network,
                   const struct ucx_handlers *handlers, struct data_address *own, struct err *e);

/* ---- connections and links (data_ucx_peers.c) ---- */

/* To where the address says; nothing is sent yet. HP_EINVAL (no such address), HP_ENOMEM. */
int ucx_link_create(struct ucx_endpoint *d, const uint8_t *address, size_t size,
                    struct ucx_link **out, struct err *e);
/* Finds or makes the connection of a link at its first post. On failure the link is down. */
int ucx_link_open(struct ucx_endpoint *d, struct ucx_link *link);
/* Nobody uses the link any more; it goes when nothing of it is in flight. */
void ucx_link_end(struct ucx_endpoint *d, struct ucx_link *link);
/* Its connection is down, and so are the links that use it. */
void ucx_peer_fail(struct ucx_peer *peer, const char *why);
/* The guard has the peer's answer: the connection is made, and frames that waited are sent. */
void ucx_peer_introduced(struct ucx_endpoint *d, struct ucx_peer *peer);
/* Gives up connections that UCX has not made in time. */
void ucx_peers_expire(struct ucx_endpoint *d, uint64_t now_ns);
/* Somebody who has proven itself wants to connect (a callback of UCX). */
void ucx_on_request(ucp_conn_request_h request, void *ctx);
/* Those who asked meanwhile get their connections. */
void ucx_requests_accept(struct ucx_endpoint *d);
/* Number of the connection that a message comes over; 0: UCX does not say. */
uint64_t ucx_peer_number_of(const struct ucx_endpoint *d, const ucp_am_recv_param_t *param);
/* A frame that came over this connection is lost: so is the connection, since its sender thinks
 * that it arrived. False: it was down before, or nobody knows it. */
bool ucx_peer_fail_sender(struct ucx_endpoint *d, uint64_t number);
/* Tells links of broken connections, frees what ended. */
void ucx_peers_look_after(struct ucx_endpoint *d);
/* The end: all are down, */
void ucx_peers_down(struct ucx_endpoint *d);
void ucx_peers_close(struct ucx_endpoint *d); /* closed before the worker goes, */
void ucx_peers_free(struct ucx_endpoint *d);  /* and freed after it */

/* ---- what peers keep too long (data_ucx_overdue.c) ---- */

/* Memory is not a peer's to keep: the connection breaks with one that for UCX_UNWANTED_MS has not
 * taken what was posted on a link that is closed, or has announced rows, been told where to put
 * them, and not done so, of a session that is revoked. Looks now and then. */
void ucx_overdue_end(struct ucx_endpoint *d, uint64_t now_ns);

/* ---- frames that leave (data_ucx_send.c) ---- */

/* What UCX moves of a payload, whose first `head` bytes go behind the header. */
struct ucx_rows {
    void *data;
    size_t bytes;
};
/* Memory that is not the host's UCX is told of. */
struct ucx_rows ucx_rows_of(const struct data_buffer *b, size_t head, ucp_request_param_t *param);
/* Over the connection of the order's link, or once that stands. */
void ucx_frame_send_out(struct ucx_endpoint *d, struct ucx_order *o);
/* On the thread of whoever posts, with `awake`: true when UCX has taken the frame, over a
 * connection that stands; else the order is the caller's still. */
bool ucx_frame_send_now(struct ucx_endpoint *d, struct ucx_order *o);
/* Frames that waited for an introduction: sent once the connection stands, failed when the peer is
 * down. */
void ucx_frames_send_early(struct ucx_endpoint *d);
/* `done` of frames that have left, or have failed. */
void ucx_orders_settle(struct ucx_endpoint *d);

/* ---- frames (data_ucx_frames.c) ---- */

/* What an order says: over its link's connection, or once that stands; where there is no way it
 * ends. */
void ucx_frame_send(struct ucx_endpoint *d, struct ucx_order *o);
/* A callback of UCX: a frame came. */
ucs_status_t ucx_on_message(void *ctx, const void *header, size_t header_size, void *data,
                            size_t size, const ucp_am_recv_param_t *param);
/* Fetches frames that wait at their senders, as far as there is room: waiting there is the
 * back-pressure. */
void ucx_frames_fetch(struct ucx_endpoint *d);
/* Calls back what UCX finished since: `done` of sent frames, frames that arrived. */
void ucx_frames_finish(struct ucx_endpoint *d);
/* The end: what has come, or waits to, is let go, and what is on its way to this endpoint ends. */
void ucx_frames_drop(struct ucx_endpoint *d);

/* ---- orders (data_ucx_orders.c) ---- */

/* At the end of a list. */
void ucx_order_append(struct ucx_order_list *list, struct ucx_order *o);
/* An order for a link, to be filled in; NULL: the link has too many, or no memory. Any thread, as
 * the next two. */
struct ucx_order *ucx_order_take(struct ucx_endpoint *d, struct ucx_link *link);
/* Hands a filled order to the thread, and wakes it where it sleeps. */
void ucx_order_give(struct ucx_endpoint *d, struct ucx_order *o);
/* Whether some wait for the thread. */
bool ucx_orders_wait(struct ucx_endpoint *d);
/* The thread's: the next order, NULL when there is none. */
struct ucx_order *ucx_order_next(struct ucx_endpoint *d);
/* True when the thread may sleep: the next order wakes it. */
bool ucx_orders_may_sleep(struct ucx_endpoint *d);
/* Releases the payload, calls `done`, and keeps the order for the next. */
void ucx_order_end(struct ucx_endpoint *d, struct ucx_order *o);
/* Frees those that are kept. */
void ucx_orders_free(struct ucx_endpoint *d);

#endif
