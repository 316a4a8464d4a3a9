#include "agent/post_box.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

void post_box_init(struct post_box *b, size_t item_size)
{
    pthread_condattr_t attr;
    memset(b, 0, sizeof *b);
    b->item_size = item_size;
    pthread_mutex_init(&b->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&b->arrived, &attr);
    pthread_condattr_destroy(&attr);
}

void post_box_fini(struct post_box *b)
{
    free(b->items);
    pthread_cond_destroy(&b->arrived);
    pthread_mutex_destroy(&b->lock);
    memset(b, 0, sizeof *b);
}

static bool grow(struct post_box *b)
{
    size_t capacity = b->capacity ? 2 * b->capacity : 64;
    uint8_t *items = malloc(capacity * b->item_size);
    if (!items)
        return false;
    size_t tail = b->capacity - b->first;
    if (b->capacity) {
        memcpy(items, b->items + b->first * b->item_size, tail * b->item_size);
        memcpy(items + tail * b->item_size, b->items, b->first * b->item_size);
    }
    free(b->items);
    b->items = items;
    b->first = 0;
    b->capacity = capacity;
    return true;
}

bool post_box_put(struct post_box *b, const void *item)
{
    pthread_mutex_lock(&b->lock);
    bool room = b->count < b->capacity || grow(b);
    if (room) {
        memcpy(b->items + (b->first + b->count) % b->capacity * b->item_size, item, b->item_size);
        b->count++;
        pthread_cond_signal(&b->arrived);
    }
    pthread_mutex_unlock(&b->lock);
    return room;
}

static bool take_locked(struct post_box *b, void *item)
{
    if (!b->count)
        return false;
    memcpy(item, b->items + b->first * b->item_size, b->item_size);
    b->first = (b->first + 1) % b->capacity;
    b->count--;
    return true;
}

bool post_box_take(struct post_box *b, void *item)
{
    pthread_mutex_lock(&b->lock);
    bool taken = take_locked(b, item);
    pthread_mutex_unlock(&b->lock);
    return taken;
}

bool post_box_wait(struct post_box *b, void *item, int timeout_ms)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += timeout_ms / 1000;
    until.tv_nsec += timeout_ms % 1000 * 1000000L;
    if (until.tv_nsec >= 1000000000L) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000L;
    }
    pthread_mutex_lock(&b->lock);
    int rc = 0;
    while (!b->count && rc != ETIMEDOUT)
        rc = timeout_ms < 0 ? pthread_cond_wait(&b->arrived, &b->lock) : pthread_cond_timedwait(&b->arrived, &b->lock, &until);
    bool taken = take_locked(b, item);
    pthread_mutex_unlock(&b->lock);
    return taken;
}
