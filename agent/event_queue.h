/* A queue of small items of one size between threads: any thread puts, one takes. Each class of
 * items has places of its own, all allocated at the start: one kind that floods takes no place from
 * another, and nothing is allocated per item. */
#ifndef HP_AGENT_EVENT_QUEUE_H
#define HP_AGENT_EVENT_QUEUE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { EVENT_QUEUE_CLASSES = 16, EVENT_QUEUE_PLACES = 4096 };

struct event_queue {
    pthread_mutex_t lock;
    pthread_cond_t arrived;
    uint8_t *items, *classes; /* a ring; the class of each */
    size_t item_size, count, first, capacity;
    uint32_t places[EVENT_QUEUE_CLASSES], taken[EVENT_QUEUE_CLASSES];
    bool waiting; /* the taker sleeps */
};

/* `places`: of each class, [n_classes]. Without memory for them the queue takes nothing. */
void event_queue_init_classes(struct event_queue *b, size_t item_size, const uint32_t *places,
                              size_t n_classes);
/* One class, of EVENT_QUEUE_PLACES. */
void event_queue_init(struct event_queue *b, size_t item_size);
void event_queue_fini(struct event_queue *b);
/* Copies an item in. False when its class has no place left: the item is the caller's again. */
bool event_queue_put_as(struct event_queue *b, unsigned of_class, const void *item);
bool event_queue_put(struct event_queue *b, const void *item); /* as class 0 */
/* The oldest item, if there is one. */
bool event_queue_take(struct event_queue *b, void *item);
/* Waits up to `timeout_ms` (-1: for ever) for one. */
bool event_queue_wait(struct event_queue *b, void *item, int timeout_ms);

#endif
