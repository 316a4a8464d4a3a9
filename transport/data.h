/* A data endpoint: frames between those whom they are for, directly: agents, hpctl with weights,
 * and the coordinator with batches of pools. Nothing between two agents goes through the
 * coordinator. Three kinds stand behind one interface: encrypted TCP, UCX active messages, and a
 * twin within one process for tests and the embedded cluster.
 *
 * Who may connect: only holders of the keys that data_peers_allow names, each proven by a handshake
 * (handshake.h) before any other byte of it is read. docs/security.md says what each kind protects
 * against.
 *
 * Threads: the endpoint has a thread of its own, which calls the callbacks; these must not block.
 * All functions may be called from any thread. */
#ifndef HP_TRANSPORT_DATA_H
#define HP_TRANSPORT_DATA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/memory_kind.h"
#include "transport/frame.h"
#include "transport/keys.h"

struct data_endpoint;
struct data_link;

/* Payload bytes, pooled. 64-byte aligned. */
struct data_buffer {
    uint8_t *bytes;
    size_t size, capacity; /* capacity: of `bytes` */
    void *device; /* memory of a device, where all lies that follows the first `head` bytes; NULL:
                     all is in `bytes` */
    size_t head;
};

struct data_callbacks {
    void *ctx;
    /* A frame with a good header and an allowed session token. The callee owns `payload` (NULL when
     * empty) until data_buffer_release. */
    void (*frame)(void *ctx, const struct frame_header *h, struct data_buffer *payload);
    /* A link broke, and why; posts on it fail with HP_ELINK from now on. The link stays the
     * caller's to disconnect. `why` lives until the call returns. */
    void (*link_down)(void *ctx, struct data_link *link, const struct err *why);
};

struct data_config {
    const char *network;  /* interface to use, "lo" on loopback; NULL: all (UCX decides) */
    const char *host;     /* numeric address to listen on and to tell others; NULL: 127.0.0.1 */
    uint16_t port;        /* 0: any that is free */
    struct key_pair keys; /* who this process is; unused in process */
    uint64_t pool_limit_bytes; /* see data_pool_limit; 0: 1 GiB */
    enum memory_kind device;   /* what data_reserve_open_device will be given, if anything is */
    struct data_callbacks callbacks;
};

/* HP_EINVAL (host, keys), HP_EBUSY (the port is taken), HP_EDEVICE, HP_ENOMEM. */
int data_open_tcp(const struct data_config *c, struct data_endpoint **out, struct err *e);
int data_open_ucx(const struct data_config *c, struct data_endpoint **out, struct err *e);
int data_open_inproc(const struct data_config *c, struct data_endpoint **out, struct err *e);
/* Stops the thread and frees links and pooled buffers; buffers still out must have been released.
 */
void data_close(struct data_endpoint **d);

/* Where peers reach it: opaque bytes, handed over by the coordinator; data_address.h reads what
 * network kinds put there. Valid while the endpoint lives. */
const uint8_t *data_address(const struct data_endpoint *d, size_t *size);

enum { DATA_MAX_PEERS = 4096, DATA_MAX_SESSIONS = 4096 };

/* Replaces the set of public keys whose holders may connect (none before the first call).
 * Connections of keys that left the set are closed. A key that is not in the set yet is held for up
 * to 1 s of its handshake, since the news may be on its way. In process it changes nothing.
 * HP_ELIMIT. */
int data_peers_allow(struct data_endpoint *d, const uint8_t (*keys)[KEY_BYTES], size_t n,
                     struct err *e);

/* Frames of other sessions are counted and dropped. `from`: the key of the only peer whose frames
 * may carry this session, or NULL for any peer; kinds that cannot tell who sent a frame (ucx, in
 * process) let any peer carry it. Allowing a session again replaces its `from`. HP_ELIMIT. */
int data_allow(struct data_endpoint *d, uint64_t session, const uint8_t *from, struct err *e);
void data_revoke(struct data_endpoint *d, uint64_t session);

/* HP_ELINK, HP_EINVAL (no such address). Connecting is lazy: a dead peer shows at the first post.
 */
int data_connect(struct data_endpoint *d, const uint8_t *address, size_t size,
                 struct data_link **out, struct err *e);
void data_disconnect(struct data_link **link);
/* Of this link alone, as long as the process lives: what is kept for later names a link by it,
 * since another may come to lie at its address. */
uint64_t data_link_number(const struct data_link *link);

/* Buffers. Received frames may hold `pool_limit_bytes`, chunks of weights a quarter of that; frames
 * to send hold a quarter beside it. Payloads of at most DATA_CONTROL_BYTES (tokens, wants, empty
 * batches) have room of their own and never wait for large ones; a payload that is larger than its
 * whole budget passes alone. Capacities are at most an eighth larger than what was asked for. */
enum { DATA_CONTROL_BYTES = 64 << 10 };
/* Large outputs that a stage has buffers of its own for (data_reserve_open): two in turns and one
 * on its way. Agents allocate, and the planner counts them. */
enum { DATA_STAGE_OUTPUTS = 3 };

/* Sets the limit while the endpoint works; what is out beyond it comes back in its time. */
void data_pool_limit(struct data_endpoint *d, uint64_t bytes);
/* A buffer for a frame to send, or NULL when their budget is spent (back-pressure: try again when
 * something was released) or memory ran out. */
struct data_buffer *data_buffer_get(struct data_endpoint *d, size_t bytes);
/* Gives any buffer back: got, received, or of a reserve. NULL is nothing. */
void data_buffer_release(struct data_endpoint *d, struct data_buffer *b);

/* Buffers set aside for one owner that must never wait for others (the outputs of a stage): `n` of
 * `bytes` each, all allocated here, counted in no budget. A buffer that was posted is back when the
 * post's `done` is called. HP_EINVAL, HP_ENOMEM. */
struct data_reserve;
int data_reserve_open(struct data_endpoint *d, size_t n, size_t bytes, struct data_reserve **out,
                      struct err *e);
/* NULL when all of them are out, or `bytes` is more than each holds. */
struct data_buffer *data_reserve_get(struct data_reserve *r, size_t bytes);
/* Buffers still out are freed when they come back; before data_close. */
void data_reserve_close(struct data_reserve **r);

/* ---- memory of a device: rows that a transport sends from there and receives there by itself.
 * Only rows of activations that wait for room at their sender, larger than DATA_CONTROL_BYTES; the
 * run table before them stays in the host's memory. */

/* Whether the endpoint can, as its config asked for; and over a link: never to itself. Whoever
 * receives need not. */
bool data_takes(const struct data_endpoint *d, enum memory_kind kind);
bool data_link_takes(const struct data_link *link, enum memory_kind kind);

enum { DATA_HEAD_BYTES = 64 * FRAME_RUN_BYTES }; /* a longer run table: rows go by the host */
/* Memory that a device's owner lends: `n` pieces of `bytes` each, one after the other. The endpoint
 * touches a piece from the moment when a buffer with it is posted, or a frame is to come into it,
 * until that buffer is back; the owner frees it after `over` and not before, whatever becomes of
 * the peer. Where rows cannot be moved there or from there though the peer is there the link
 * breaks, and the reserve gives no piece from then on: rows go by the host's memory. */
struct data_lent {
    enum memory_kind kind;
    uint8_t *memory;
    size_t n, bytes;
    void (*enter)(void *ctx); /* on the endpoint's thread, before it touches a piece; NULL: nothing
                                 has to be done there */
    void (*over)(void *ctx);  /* once, on any thread: the reserve is closed and no buffer is out; it
                                 is gone. Must not block */
    void *ctx;
};
/* A reserve of such buffers; data_reserve_get has none of it. HP_EINVAL, HP_ENOMEM, HP_EUNSUPPORTED
 * (data_takes): then `over` is not called. */
int data_reserve_open_device(struct data_endpoint *d, const struct data_lent *lent,
                             struct data_reserve **out, struct err *e);
/* A buffer of `bytes`, the first `head` of them in the host's memory; NULL as above, and where that
 * leaves no more than DATA_CONTROL_BYTES. */
struct data_buffer *data_reserve_get_device(struct data_reserve *r, size_t head, size_t bytes);
/* Rows of an allowed session come into buffers of the reserve as long as it has free ones that they
 * fit into, else into the host's memory. Until the session is revoked, or data_receive_end, which
 * comes before the reserve is closed. HP_ENOENT: no such session. */
int data_receive_into(struct data_endpoint *d, uint64_t session, struct data_reserve *r,
                      struct err *e);
void data_receive_end(struct data_endpoint *d, const struct data_reserve *r);

/* status 0, HP_ELINK, or HP_EBUSY (too many frames are queued); on the endpoint's thread, or before
 * data_post returns when the frame was not queued, or has left already. */
typedef void (*data_done_fn)(void *ctx, int status);

/* Sends a frame. Takes `payload` (may be NULL) whatever happens; payload_bytes of the header is set
 * from payload->size. `done` (may be NULL) is called exactly once when the frame has left, or
 * failed. Frames of a link may overtake each other. */
void data_post(struct data_link *link, const struct frame_header *h, struct data_buffer *payload,
               data_done_fn done, void *done_ctx);

/* What TCP sent to one peer so far, over all connections, and how much of it had been lost on its
 * way and was sent again. */
struct data_loss {
    uint8_t peer[KEY_BYTES];
    uint64_t segments, lost;
};
/* Of which nothing is told until so many more have left, or some were lost. */
enum { DATA_LOSS_NEWS_SEGMENTS = 100 };
/* News of them since they were asked for last, of at most `most` peers; how many there are. Of
 * `ucx` what it sends over TCP. */
size_t data_losses(struct data_endpoint *d, struct data_loss *out, size_t most);

struct data_stats {
    uint64_t frames_sent, frames_received, bytes_sent, bytes_received;
    uint64_t dropped_foreign;   /* unknown session, or carried by a peer that may not */
    uint64_t dropped_malformed; /* bad header or length */
    uint64_t dropped_full;      /* no room in the pool */
    uint64_t refused_strangers; /* connections that did not prove that they may connect, or were too
                                   many */
    uint64_t buffers_bytes;     /* out now, and all that is set aside in reserves */
    uint64_t device_sent,
        device_received; /* frames whose rows went and came by a device's memory */
};
void data_stats(const struct data_endpoint *d, struct data_stats *out);

#endif
