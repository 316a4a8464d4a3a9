/* An end of a data channel for tests: it counts what happens to it, and waits for that. */
#ifndef HP_TESTS_DATA_FIXTURE_H
#define HP_TESTS_DATA_FIXTURE_H

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/env.h"
#include "tests/test.h"
#include "transport/data.h"

typedef int (*open_fn)(const struct data_config *, struct data_endpoint **, struct err *);

struct end {
    struct data_endpoint *d;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int frames, downs, done, failed;
    uint64_t bytes, sum;
    bool keep;
    struct data_buffer *kept[64];
    struct frame_header last;
    struct err why;
    struct key_pair keys;
    uint8_t friends[8][KEY_BYTES];
    int n_friends;
};

static inline void on_frame(void *ctx, const struct frame_header *h, struct data_buffer *payload)
{
    struct end *end = ctx;
    pthread_mutex_lock(&end->lock);
    end->last = *h;
    for (size_t i = 0; payload && i < payload->size; i += 997)
        end->sum += payload->bytes[i];
    end->bytes += payload ? payload->size : 0;
    if (end->keep && payload)
        end->kept[end->frames % 64] = payload;
    else
        data_buffer_release(end->d, payload);
    end->frames++;
    pthread_cond_broadcast(&end->changed);
    pthread_mutex_unlock(&end->lock);
}

static inline void on_down(void *ctx, struct data_link *link, const struct err *why)
{
    struct end *end = ctx;
    (void)link;
    pthread_mutex_lock(&end->lock);
    end->downs++;
    end->why = *why;
    pthread_cond_broadcast(&end->changed);
    pthread_mutex_unlock(&end->lock);
}

static inline void on_done(void *ctx, int status)
{
    struct end *end = ctx;
    pthread_mutex_lock(&end->lock);
    end->done++;
    end->failed += status != 0;
    pthread_cond_broadcast(&end->changed);
    pthread_mutex_unlock(&end->lock);
}

static inline void open_end(struct end *end, open_fn open, uint64_t limit)
{
    struct err e = {0};
    memset(end, 0, sizeof *end);
    pthread_mutex_init(&end->lock, NULL);
    pthread_cond_init(&end->changed, NULL);
    assert_int_equal(key_pair_create(&end->keys, &e), 0);
    struct data_config c = {.network = "lo",
                            .keys = end->keys,
                            .pool_limit_bytes = limit,
                            .callbacks = {end, on_frame, on_down}};
    if (open(&c, &end->d, &e) < 0)
        fail_msg("%s", e.text);
}

/* Waits until *value reaches `at_least`; a bound on patience, not a sleep. */
static inline bool wait_for(struct end *end, const int *value, int at_least)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += (time_t)(20 * env_time_scale());
    pthread_mutex_lock(&end->lock);
    int rc = 0;
    while (*value < at_least && rc == 0)
        rc = pthread_cond_timedwait(&end->changed, &end->lock, &until);
    bool reached = *value >= at_least;
    pthread_mutex_unlock(&end->lock);
    return reached;
}

/* Its value now, while the endpoint's thread may be at it. */
static inline int look_at(struct end *end, const int *value)
{
    pthread_mutex_lock(&end->lock);
    int v = *value;
    pthread_mutex_unlock(&end->lock);
    return v;
}

/* From now on `a` admits `b`, and whom it admitted before. */
static inline void admit(struct end *a, const struct end *b)
{
    assert_in_range(a->n_friends, 0, 7);
    assert_int_equal(key_decode(b->keys.public_key, a->friends[a->n_friends], NULL), 0);
    for (int i = 0; i < a->n_friends; i++)
        if (memcmp(a->friends[i], a->friends[a->n_friends], KEY_BYTES) == 0)
            return;
    a->n_friends++;
    assert_int_equal(
        data_peers_allow(a->d, (const uint8_t(*)[KEY_BYTES])a->friends, (size_t)a->n_friends, NULL),
        0);
}

static inline struct data_link *link_to(struct end *from, struct end *to)
{
    size_t size;
    admit(from, to);
    admit(to, from);
    const uint8_t *address = data_address(to->d, &size);
    struct data_link *link = NULL;
    struct err e = {0};
    if (data_connect(from->d, address, size, &link, &e) < 0)
        fail_msg("%s", e.text);
    return link;
}

static inline struct data_buffer *filled(struct end *end, size_t size)
{
    struct data_buffer *b = data_buffer_get(end->d, size);
    assert_non_null(b);
    for (size_t i = 0; i < size; i++)
        b->bytes[i] = (uint8_t)(i * 31 + size);
    return b;
}

static inline void post(struct end *from, struct data_link *link, uint64_t session, size_t size)
{
    struct frame_header h = {.kind = FRAME_KV,
                             .session = session,
                             .deployment = 9,
                             .generation = 3,
                             .sequence = size,
                             .dtype = FRAME_BYTES};
    data_post(link, &h, size ? filled(from, size) : NULL, on_done, from);
}

#endif
