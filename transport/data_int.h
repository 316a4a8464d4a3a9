/* What the kinds of data endpoint share: who may connect, sessions, buffers, counters. Only data*.c
 * includes this. */
#ifndef HP_TRANSPORT_DATA_INT_H
#define HP_TRANSPORT_DATA_INT_H

#include <pthread.h>

#include "transport/data.h"
#include "transport/data_pool.h"

/* A session that frames may carry. */
struct data_session {
    uint64_t session;
    bool bound; /* only `from` may carry it */
    uint8_t from[KEY_BYTES];
    struct data_reserve *into; /* rows come into it; NULL: to the host */
};

struct data_ops {
    void (*close)(struct data_endpoint *d);
    int (*connect)(struct data_endpoint *d, const uint8_t *address, size_t size,
                   struct data_link **out, struct err *e);
    void (*disconnect)(struct data_link *link);
    void (*post)(struct data_link *link, const struct frame_header *h, struct data_buffer *payload,
                 data_done_fn done, void *done_ctx);
    /* Buffers came back while somebody waited for room. */
    void (*room)(struct data_endpoint *d);
    /* The set of allowed keys changed (may be NULL). */
    void (*peers_changed)(struct data_endpoint *d);
    /* What was lost is to be told now (NULL: it is counted as it comes, or never). */
    void (*count)(struct data_endpoint *d);
};

/* Strangers that were refused since the log last told of them; the endpoint's own thread's. */
struct data_strangers {
    uint64_t unsaid, said_ns;
    char last[160];
};

/* A peer's segments, as they are counted and as they were last told. */
struct data_loss_row {
    struct data_loss now;
    uint64_t told_segments, told_lost;
};

struct data_endpoint {
    const struct data_ops *ops;
    struct data_late *late; /* data_late.h; NULL: nothing is ever late */
    struct data_callbacks callbacks;
    uint8_t *address;
    size_t address_size;
    struct data_pool pool;
    struct data_strangers strangers;
    bool takes[MEMORY_KINDS]; /* since it was opened */

    pthread_mutex_t lock;                            /* guards all below */
    struct data_session sessions[DATA_MAX_SESSIONS]; /* by number */
    int n_sessions;
    uint8_t (*peers)[KEY_BYTES]; /* in order */
    size_t n_peers;
    struct data_loss_row *losses; /* of peers that something was sent to */
    size_t n_losses, room_losses;
    struct data_stats stats;
};

/* Of a link whose frames may be late. */
struct data_late_link {
    bool is_named; /* `peer` is who it leads to */
    uint8_t peer[KEY_BYTES];
    /* Guarded by data_late's lock: frames of the link that are held, and when the last is due. */
    size_t n;
    uint64_t due_ns;
};

struct data_link {
    struct data_endpoint *endpoint;
    uint64_t number;
    bool to_itself; /* it leads back to its endpoint; known where frames may be late, and over ucx
                     */
    struct data_late_link late;
};

/* Base of an endpoint; the kinds embed it as their first member. */
void data_base_init(struct data_endpoint *d, const struct data_ops *ops,
                    const struct data_config *c);
void data_base_fini(struct data_endpoint *d);
/* True when the holder of this key may connect now. */
bool data_peer_is_allowed(struct data_endpoint *d, const uint8_t key[KEY_BYTES]);
/* So many segments more have left for this peer, so many of them for a second time. */
void data_loss_add(struct data_endpoint *d, const uint8_t peer[KEY_BYTES], uint64_t segments,
                   uint64_t lost);
/* Under the lock: NULL when the session is not allowed. */
struct data_session *data_session_find(struct data_endpoint *d, uint64_t session);
/* Judges a decoded header of a frame that `from` sent (NULL: nobody knows who): 0 when its session
 * may pass, else HP_EDENIED, and counts it. */
int data_session_admit(struct data_endpoint *d, uint64_t session, const uint8_t *from);
/* Decodes and judges a received header: 0 when its frame may pass; counts it otherwise. */
int data_admit(struct data_endpoint *d, const uint8_t *bytes, size_t size, uint64_t payload_bytes,
               const uint8_t *from, struct frame_header *out);
/* A buffer for the payload of a received frame; NULL when its budget is spent (ops->room is called
 * when that has changed) or memory ran out. */
struct data_buffer *data_receive_buffer(struct data_endpoint *d, const struct frame_header *h);
/* One with memory of a device behind the first `head` bytes, where its session has one (free). */
struct data_buffer *data_receive_device(struct data_endpoint *d, const struct frame_header *h,
                                        size_t head);
/* Before the endpoint touches a buffer's memory of a device. */
void data_device_enter(const struct data_buffer *b);
/* A transport could not move rows to a buffer's memory of a device or from there, if it has some:
 * the next go by the host's. */
void data_device_spoil(const struct data_buffer *b);
void data_count_received(struct data_endpoint *d, uint64_t bytes);
void data_count_sent(struct data_endpoint *d, uint64_t bytes);
/* Besides: of those, one whose rows came (else went) by a device's memory. */
void data_count_device(struct data_endpoint *d, bool came);
void data_count_full(struct data_endpoint *d);
void data_count_malformed(struct data_endpoint *d);
/* A stranger was refused: counted at once, told at most once a second. `now_ns` is of any monotonic
 * clock, always the same one. */
void data_stranger_refused(struct data_endpoint *d, uint64_t now_ns, const char *from,
                           const char *why);
/* Tells of those that were counted since, when a second has passed. */
void data_strangers_tell(struct data_endpoint *d, uint64_t now_ns);

#endif
