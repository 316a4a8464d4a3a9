/* The buffers of one data endpoint. What a buffer is for decides which budget pays, so that no
 * purpose waits for another: received frames, chunks of weights among them (at most a quarter),
 * frames to send, and control-sized ones (tokens, wants, empty batches), which never wait for large
 * ones. A reserve sets buffers aside for one owner. Capacities are at most an eighth more than what
 * was asked for. Freed buffers are kept for the next, as long as all buffers together are no more
 * than what was out at once at the most; those of the sizes that were wanted longest ago go first.
 *
 * Threads: any. Only data*.c includes this. */
#ifndef HP_TRANSPORT_DATA_POOL_H
#define HP_TRANSPORT_DATA_POOL_H

#include <pthread.h>

#include "transport/data.h"

enum {
    POOL_STEPS = 8,      /* classes for each doubling */
    POOL_MIN_SHIFT = 10, /* the smallest buffer: 1 KiB */
    POOL_CLASSES = POOL_STEPS * (30 - POOL_MIN_SHIFT) +
                   1, /* the largest: 1 GiB, the largest payload of a frame, and its tables */
    POOL_MAX_CONTROL_BUFFERS = 16384,   /* of each direction */
    POOL_CONTROL_LIMIT_BYTES = 64 << 20 /* of each direction */
};

enum pool_use {
    POOL_RECEIVED,
    POOL_CHUNKS_RECEIVED,
    POOL_SENT,
    POOL_CONTROL_RECEIVED,
    POOL_CONTROL_SENT,
    POOL_USES
};

struct pool_buffer;

struct data_pool {
    pthread_mutex_t lock; /* guards all below */
    struct pool_buffer *free_buffers[POOL_CLASSES];
    uint64_t used[POOL_CLASSES]; /* when a buffer of each class was wanted, in `gets` */
    uint64_t gets, cached_bytes, most_out_bytes;
    struct {
        uint64_t out_bytes, limit_bytes;
        uint32_t out_buffers, limit_buffers;
    } budgets[POOL_USES];
    uint64_t reserved_bytes;
    bool wants_room; /* somebody was refused room for a received frame since one was released */
};

/* `limit_bytes` bounds what received frames hold; frames to send may hold a quarter as much beside
 * it. */
void data_pool_init(struct data_pool *p, uint64_t limit_bytes);
/* Buffers that are out, and reserves that are open, must have come back. */
void data_pool_fini(struct data_pool *p);
void data_pool_resize(struct data_pool *p, uint64_t limit_bytes);
/* NULL: this budget is spent (a buffer that is larger than its whole budget is granted when nothing
 * of it is out), or memory ran out. */
struct data_buffer *data_pool_get(struct data_pool *p, enum pool_use use, size_t bytes);
/* True when somebody waits for the room that this made. `b` may be NULL. */
bool data_pool_release(struct data_pool *p, struct data_buffer *b);
/* See data_reserve_open, and (lent: NULL there) data_reserve_open_device. HP_EINVAL, HP_ENOMEM. */
int data_pool_reserve(struct data_pool *p, size_t n, size_t bytes, const struct data_lent *lent,
                      struct data_reserve **out, struct err *e);
/* The memory of a device that this buffer has is not to be relied on: its reserve gives nothing
 * more. */
void data_pool_spoil(const struct data_buffer *b);
/* What the buffer's memory of a device was lent as. */
const struct data_lent *data_pool_lent(const struct data_buffer *b);
/* Bytes of all buffers that are out, and of all reserves. */
uint64_t data_pool_out_bytes(struct data_pool *p);
/* What a payload of this kind and size is paid from when it arrives. */
enum pool_use data_pool_use_of(uint16_t frame_kind, uint64_t bytes);

#endif
