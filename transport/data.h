/* A data endpoint: frames between agents (and from hpctl), directly, never through the coordinator. Two kinds stand behind one interface: UCX active
 * messages, and a twin within one process for tests and the embedded cluster.
 *
 * Threads: the endpoint has a thread of its own, which calls the callbacks; these must not block. All functions may be called from any thread. */
#ifndef HP_TRANSPORT_DATA_H
#define HP_TRANSPORT_DATA_H

#include "transport/frame.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct data_endpoint;
struct data_link;

/* Payload bytes, pooled. 64-byte aligned. */
struct data_buffer {
    uint8_t *bytes;
    size_t size, capacity;
};

struct data_callbacks {
    void *ctx;
    /* A frame with a good header and an allowed session token. The callee owns `payload` (NULL when empty) until data_buffer_release. */
    void (*frame)(void *ctx, const struct frame_header *h, struct data_buffer *payload);
    /* A link broke; posts on it fail with HP_ELINK from now on. The link stays the caller's to disconnect. */
    void (*link_down)(void *ctx, struct data_link *link);
};

struct data_config {
    const char *network;       /* interface to use, "lo" on loopback; NULL: all (UCX decides) */
    uint64_t pool_limit_bytes; /* buffers that may be out at once, received ones included; 0: 1 GiB */
    struct data_callbacks callbacks;
};

int data_open_ucx(const struct data_config *c, struct data_endpoint **out, struct err *e);
int data_open_inproc(const struct data_config *c, struct data_endpoint **out, struct err *e);
/* Stops the thread and frees links and pooled buffers; buffers still out must have been released. */
void data_close(struct data_endpoint **d);

/* Where peers reach it: opaque bytes, handed over by the coordinator. Valid while the endpoint lives. */
const uint8_t *data_address(const struct data_endpoint *d, size_t *size);

/* Frames of other tokens are counted and dropped. Up to 4096 tokens; allowing one twice is one. */
int data_allow(struct data_endpoint *d, uint64_t session, struct err *e);
void data_revoke(struct data_endpoint *d, uint64_t session);

/* HP_ELINK, HP_EINVAL (no such address). Connecting is lazy: a dead peer shows at the first post. */
int data_connect(struct data_endpoint *d, const uint8_t *address, size_t size, struct data_link **out, struct err *e);
void data_disconnect(struct data_link **link);

/* A buffer of at least `bytes`, or NULL when the pool's limit is reached (back-pressure: try again when something was released). */
struct data_buffer *data_buffer_get(struct data_endpoint *d, size_t bytes);
void data_buffer_release(struct data_endpoint *d, struct data_buffer *b);

/* status 0 or HP_ELINK; on the endpoint's thread. */
typedef void (*data_done_fn)(void *ctx, int status);

/* Sends a frame. Takes `payload` (may be NULL) whatever happens; payload_bytes of the header is set from payload->size. `done` (may be NULL) is called
 * exactly once when the frame has left, or failed. Frames of a link may overtake each other. */
void data_post(struct data_link *link, const struct frame_header *h, struct data_buffer *payload, data_done_fn done, void *done_ctx);

struct data_stats {
    uint64_t frames_sent, frames_received, bytes_sent, bytes_received;
    uint64_t dropped_foreign;   /* unknown session token */
    uint64_t dropped_malformed; /* bad header or length */
    uint64_t dropped_full;      /* no room in the pool */
    uint64_t buffers_bytes;     /* out now */
};
void data_stats(const struct data_endpoint *d, struct data_stats *out);

#endif
