#include "common/log_ring.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

struct log_ring {
    pthread_mutex_t lock;
    size_t count; /* ever added */
    char lines[LOG_RING_LINES][LOG_RING_LINE_BYTES];
};

struct log_ring *log_ring_create(void)
{
    struct log_ring *r = calloc(1, sizeof *r);
    if (r)
        pthread_mutex_init(&r->lock, NULL);
    return r;
}

void log_ring_destroy(struct log_ring **r)
{
    if (*r)
        pthread_mutex_destroy(&(*r)->lock);
    free(*r);
    *r = NULL;
}

void log_ring_add(void *ring, const char *line)
{
    struct log_ring *r = ring;
    pthread_mutex_lock(&r->lock);
    snprintf(r->lines[r->count++ % LOG_RING_LINES], LOG_RING_LINE_BYTES, "%s", line);
    pthread_mutex_unlock(&r->lock);
}

void log_ring_read(void *ring, size_t lines, struct buffer *out)
{
    struct log_ring *r = ring;
    pthread_mutex_lock(&r->lock);
    size_t there = r->count < LOG_RING_LINES ? r->count : LOG_RING_LINES,
           n = lines < there ? lines : there;
    for (size_t i = r->count - n; i < r->count; i++)
        buffer_printf(out, "%s\n", r->lines[i % LOG_RING_LINES]);
    pthread_mutex_unlock(&r->lock);
}
