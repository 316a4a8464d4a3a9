#include "agent/event_queue.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

void event_queue_init_classes(struct event_queue *b, size_t item_size, const uint32_t *places,
                              size_t n_classes)
{
    pthread_condattr_t attr;
    memset(b, 0, sizeof *b);
    assert(n_classes <= EVENT_QUEUE_CLASSES);
    b->item_size = item_size;
    for (size_t i = 0; i < n_classes; i++)
        b->capacity += b->places[i] = places[i];
    pthread_mutex_init(&b->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&b->arrived, &attr);
    pthread_condattr_destroy(&attr);
    b->items = malloc(b->capacity * item_size);
    b->classes = malloc(b->capacity);
    if (!b->items || !b->classes)
        memset(b->places, 0, sizeof b->places);
}

void event_queue_init(struct event_queue *b, size_t item_size)
{
    static const uint32_t places[] = {EVENT_QUEUE_PLACES};
    event_queue_init_classes(b, item_size, places, 1);
}

void event_queue_fini(struct event_queue *b)
{
    free(b->items);
    free(b->classes);
    pthread_cond_destroy(&b->arrived);
    pthread_mutex_destroy(&b->lock);
    memset(b, 0, sizeof *b);
}

/* Signals after the lock is free, and only who sleeps: a taker that is woken into a lock that is
 * held sleeps again. */
bool event_queue_put_as(struct event_queue *b, unsigned of_class, const void *item)
{
    pthread_mutex_lock(&b->lock);
    bool room = b->taken[of_class] < b->places[of_class];
    if (room) {
        size_t at = (b->first + b->count++) % b->capacity;
        memcpy(b->items + at * b->item_size, item, b->item_size);
        b->classes[at] = (uint8_t)of_class;
        b->taken[of_class]++;
    }
    bool wake = room && b->waiting;
    pthread_mutex_unlock(&b->lock);
    if (wake)
        pthread_cond_signal(&b->arrived);
    return room;
}

bool event_queue_put(struct event_queue *b, const void *item)
{
    return event_queue_put_as(b, 0, item);
}

static bool take_locked(struct event_queue *b, void *item)
{
    if (!b->count)
        return false;
    memcpy(item, b->items + b->first * b->item_size, b->item_size);
    b->taken[b->classes[b->first]]--;
    b->first = (b->first + 1) % b->capacity;
    if (--b->count == 0)
        b->first = 0; /* the same few pages are used again */
    return true;
}

bool event_queue_take(struct event_queue *b, void *item)
{
    pthread_mutex_lock(&b->lock);
    bool taken = take_locked(b, item);
    pthread_mutex_unlock(&b->lock);
    return taken;
}

static struct timespec deadline_of(int timeout_ms)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += timeout_ms / 1000;
    until.tv_nsec += timeout_ms % 1000 * 1000000L;
    if (until.tv_nsec >= 1000000000L) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000L;
    }
    return until;
}

bool event_queue_wait(struct event_queue *b, void *item, int timeout_ms)
{
    struct timespec until = timeout_ms < 0 ? (struct timespec){0, 0} : deadline_of(timeout_ms);
    int rc = 0;
    pthread_mutex_lock(&b->lock);
    b->waiting = true;
    while (!b->count && rc != ETIMEDOUT)
        rc = timeout_ms < 0 ? pthread_cond_wait(&b->arrived, &b->lock)
                            : pthread_cond_timedwait(&b->arrived, &b->lock, &until);
    b->waiting = false;
    bool taken = take_locked(b, item);
    pthread_mutex_unlock(&b->lock);
    return taken;
}
