#include "agent/engine/network/network_memory.h"

#include <pthread.h>
#include <stdlib.h>

#include "common/vector.h"

struct memory_alike {
    uint64_t file;
    struct network_alike key;
    uint64_t counted_bytes;
    void *made;
    int holders;
};

struct network_memory {
    struct device *device;
    pthread_mutex_t lock; /* guards what follows */
    struct memory_alike *list;
    int n, room;
    uint64_t bytes;
};

int network_memory_create(struct device *device, struct network_memory **out, struct err *e)
{
    struct network_memory *m = *out = calloc(1, sizeof *m);
    if (!m)
        return err_no_memory(e, "what networks hold");
    m->device = device;
    pthread_mutex_init(&m->lock, NULL);
    return 0;
}

void network_memory_destroy(struct network_memory **self)
{
    struct network_memory *m = *self;
    *self = NULL;
    if (!m)
        return;
    pthread_mutex_destroy(&m->lock);
    free(m->list);
    free(m);
}

/* ---- counted; the lock is held ---- */

static int bytes_add(struct network_memory *m, uint64_t bytes, const char *what, struct err *e)
{
    const struct backend *b = m->device->backend;
    int rc = bytes && b->memory_reserve ? b->memory_reserve(m->device, bytes, what, e) : 0;
    if (rc == 0)
        m->bytes += bytes;
    return rc;
}

static void bytes_take(struct network_memory *m, uint64_t bytes)
{
    const struct backend *b = m->device->backend;
    if (bytes && b->memory_reserve)
        b->memory_unreserve(m->device, bytes);
    m->bytes -= bytes;
}

int network_memory_take(const struct network_account *a, uint64_t bytes, const char *what,
                        struct err *e)
{
    struct network_memory *m = a->memory;
    if (!m)
        return 0;
    pthread_mutex_lock(&m->lock);
    int rc = bytes_add(m, bytes, what, e);
    pthread_mutex_unlock(&m->lock);
    return rc;
}

void network_memory_give(const struct network_account *a, uint64_t bytes)
{
    struct network_memory *m = a->memory;
    if (!m)
        return;
    pthread_mutex_lock(&m->lock);
    bytes_take(m, bytes);
    pthread_mutex_unlock(&m->lock);
}

uint64_t network_memory_bytes(struct network_memory *m)
{
    pthread_mutex_lock(&m->lock);
    uint64_t bytes = m->bytes;
    pthread_mutex_unlock(&m->lock);
    return bytes;
}

/* ---- alike ---- */

static int alike_find(const struct network_memory *m, uint64_t file, const struct network_alike *k)
{
    for (int i = 0; i < m->n; i++)
        if (m->list[i].file == file && m->list[i].key.hash == k->hash &&
            m->list[i].key.bytes == k->bytes)
            return i;
    return -1;
}

/* The first who wants it. */
static int alike_add(struct network_memory *m, struct memory_alike *one, const char *what,
                     network_alike_make_fn make, void *ctx, struct err *e)
{
    if (!vector_add(m->list, m->n, m->room))
        return err_no_memory(e, "what networks hold");
    m->n--; /* there is room, and nothing is there before it is made */
    int rc = bytes_add(m, one->counted_bytes, what, e);
    if (rc < 0)
        return rc;
    rc = make ? make(ctx, &one->made, e) : 0;
    if (rc < 0)
        bytes_take(m, one->counted_bytes);
    else
        m->list[m->n++] = *one;
    return rc;
}

int network_memory_hold(const struct network_account *a, const struct network_alike *k,
                        uint64_t counted_bytes, const char *what, network_alike_make_fn make,
                        void *ctx, void **out, struct err *e)
{
    struct network_memory *m = a->memory;
    struct memory_alike one = {
        .file = a->file, .key = *k, .counted_bytes = counted_bytes, .holders = 1};
    *out = NULL;
    if (!m)
        return make ? make(ctx, out, e) : 0;
    pthread_mutex_lock(&m->lock);
    int at = alike_find(m, a->file, k), rc = 0;
    if (at < 0) {
        rc = alike_add(m, &one, what, make, ctx, e);
        *out = one.made;
    } else {
        m->list[at].holders++;
        *out = m->list[at].made;
    }
    pthread_mutex_unlock(&m->lock);
    return rc;
}

void network_memory_drop(const struct network_account *a, const struct network_alike *k,
                         network_alike_free_fn release, void *ctx, void *made)
{
    struct network_memory *m = a->memory;
    if (!m) {
        if (release)
            release(ctx, made);
        return;
    }
    pthread_mutex_lock(&m->lock);
    int at = alike_find(m, a->file, k);
    if (at >= 0 && --m->list[at].holders == 0) {
        if (release)
            release(ctx, m->list[at].made);
        bytes_take(m, m->list[at].counted_bytes);
        m->list[at] = m->list[--m->n];
    }
    pthread_mutex_unlock(&m->lock);
}
