/* A queue of small items of one size between threads: any thread puts, one takes. Grows as needed and keeps its memory, so that nothing is allocated per item. */
#ifndef HP_AGENT_POST_BOX_H
#define HP_AGENT_POST_BOX_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct post_box {
    pthread_mutex_t lock;
    pthread_cond_t arrived;
    uint8_t *items; /* a ring */
    size_t item_size, count, first, capacity;
};

void post_box_init(struct post_box *b, size_t item_size);
void post_box_fini(struct post_box *b);
/* Copies an item in. False when memory ran out: it is the caller's again. */
bool post_box_put(struct post_box *b, const void *item);
/* The oldest item, if there is one. */
bool post_box_take(struct post_box *b, void *item);
/* Waits up to `timeout_ms` (-1: for ever) for one. */
bool post_box_wait(struct post_box *b, void *item, int timeout_ms);

#endif
