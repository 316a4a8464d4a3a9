/* What takes long (templates, tokenizers, the JSON of large bodies) is done on libuv's worker threads, so that the loop and
 * everybody's streams go on. A bounded queue with two lanes: one large piece at a time, and beside it small ones, which do not
 * wait for large ones. Called on the loop's thread. */
#ifndef HP_COORDINATOR_GATEWAY_WORK_H
#define HP_COORDINATOR_GATEWAY_WORK_H

#include "common/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <uv.h>

enum {
    WORK_LARGE_BYTES = 65536, /* from here on a piece is large */
    WORK_SMALL_AT_ONCE = 2,
    WORK_MAX_WAITING = 1024,
    WORK_MAX_BYTES = 256 << 20, /* of all pieces together */
};

struct work_queue;

/* One piece; embedded in what it works on, which must live until `done`. */
struct work {
    void (*run)(struct work *w);            /* on a worker thread */
    void (*done)(struct work *w, bool ran); /* on the loop; `ran` is false when the queue was closed before its turn */
    /* The queue's own. */
    uv_work_t request;
    struct work_queue *queue;
    struct work *next;
    size_t bytes;
};

struct work_queue *work_queue_create(uv_loop_t *loop);
/* Those that wait are done (ran false) before it returns; those that run are done later, when the loop comes to it. */
void work_queue_close(struct work_queue **q);
/* HP_EBUSY: too many wait. `bytes` is the size of what is worked on. */
int work_submit(struct work_queue *q, struct work *w, size_t bytes, struct err *e);

#endif
