/* A queue of small items of one size between threads: any thread puts, one takes. Each class of
 * items has places of its own, all allocated at the start: one kind that floods takes no place from
 * another, and nothing is allocated per item. */
#ifndef HP_AGENT_POST_BOX_H
#define HP_AGENT_POST_BOX_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { POST_BOX_CLASSES = 8, POST_BOX_PLACES = 4096 };

struct post_box {
    pthread_mutex_t lock;
    pthread_cond_t arrived;
    uint8_t *items, *classes; /* a ring; the class of each */
    size_t item_size, count, first, capacity;
    uint32_t places[POST_BOX_CLASSES], taken[POST_BOX_CLASSES];
    bool waiting; /* the taker sleeps */
};

/* `places`: of each class, [n_classes]. Without memory for them the box takes nothing. */
void post_box_init_classes(struct post_box *b, size_t item_size, const uint32_t *places,
                           size_t n_classes);
/* One class, of POST_BOX_PLACES. */
void post_box_init(struct post_box *b, size_t item_size);
void post_box_fini(struct post_box *b);
/* Copies an item in. False when its class has no place left: the item is the caller's again. */
bool post_box_put_as(struct post_box *b, unsigned of_class, const void *item);
bool post_box_put(struct post_box *b, const void *item); /* as class 0 */
/* The oldest item, if there is one. */
bool post_box_take(struct post_box *b, void *item);
/* Waits up to `timeout_ms` (-1: for ever) for one. */
bool post_box_wait(struct post_box *b, void *item, int timeout_ms);

#endif
