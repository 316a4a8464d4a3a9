/* Batches that wait for a share of a device: the one with the earliest begin first, none before its
 * begin. How many there may be, and how many bytes they may hold, is bounded. Pure; used by one
 * thread at a time. */
#ifndef HP_AGENT_SHARE_QUEUE_H
#define HP_AGENT_SHARE_QUEUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "transport/frame.h"

enum { SHARE_QUEUE_BATCHES = 256 };

struct share_batch {
    struct frame_header header;
    void *payload; /* of whoever put it there */
    uint64_t arrived_ns, start_ns;
};

/* Zero-initialised is empty and takes no bytes. */
struct share_queue {
    struct share_batch batches[SHARE_QUEUE_BATCHES]; /* by start, then by arrival */
    size_t n;
    uint64_t bytes, limit_bytes; /* of payloads */
};

/* HP_EBUSY: it is full (a single batch passes whatever its size); the payload stays the caller's.
 */
int share_queue_put(struct share_queue *q, const struct share_batch *b, struct err *e);
/* When the next one may begin: 0 at once, UINT64_MAX there is none. */
uint64_t share_queue_due_ns(const struct share_queue *q);
/* The first, if it may begin. Its payload becomes the caller's. */
bool share_queue_take(struct share_queue *q, uint64_t now_ns, struct share_batch *out);

#endif
