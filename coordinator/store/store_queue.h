/* Changes on their way to a store: numbered batches, written by a thread of the queue's own, in
 * order, several in one step where they have waited together. The loop never waits for the disk.
 *
 * A store that cannot be written keeps nobody: the queue says so once for a batch, holds on to what
 * it was given (the last value of each key), and tries again every second until it is written.
 * Records of kinds that are caches are given up instead.
 *
 * One thread calls; `wake` is called on the queue's. */
#ifndef HP_COORDINATOR_STORE_STORE_QUEUE_H
#define HP_COORDINATOR_STORE_STORE_QUEUE_H

#include <stdbool.h>

#include "coordinator/store/store.h"

struct store_queue;

struct store_queue_config {
    void *ctx;
    /* There is something for store_queue_next. On the queue's thread. */
    void (*wake)(void *ctx);
    uint64_t retry_ms; /* 0: 1000 */
};

/* Takes the store. HP_ENOMEM, HP_EIO (no thread): the store stays the caller's. */
int store_queue_start(struct store *store, const struct store_queue_config *config,
                      struct store_queue **out, struct err *e);
/* One more batch (copied); `number` rises from call to call. HP_ENOMEM: nothing of it is kept. */
int store_queue_put(struct store_queue *q, uint64_t number, const struct store_change *changes,
                    int n, struct err *e);
/* What has happened since the last call: true, and all batches up to *number are written (why->code
 * 0), or *number could not be (why says it). */
bool store_queue_next(struct store_queue *q, uint64_t *number, struct err *why);
/* Tries once more to write what waits, ends the thread and closes the store. */
void store_queue_stop(struct store_queue **q);

/* A record that may be lost: it can be measured again, or only makes plans better. */
bool store_kind_is_cache(const char *kind);

#endif
