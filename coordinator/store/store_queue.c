#include "coordinator/store/store_queue.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/log.h"
#include "common/vector.h"

enum { RETRY_MS = 1000 };

struct pending {
    char *kind, *key;
    void *bytes; /* NULL: a removal */
    size_t size;
};

struct pending_list {
    struct pending *items;
    size_t count, capacity;
};

struct store_queue {
    struct store *store;
    struct store_queue_config config;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t change;
    struct pending_list
        waiting;    /* one for each key: the last; with room for what is being written, too */
    size_t writing; /* records that the thread has taken, and may put back */
    uint64_t asked, written; /* numbers */
    uint64_t told;           /* of `written`, by store_queue_next */
    struct err failure;      /* of the last attempt; code 0: none */
    bool failure_told, stopping;
};

bool store_kind_is_cache(const char *kind)
{
    return strcmp(kind, "profile") == 0 || strcmp(kind, "link") == 0 ||
           strcmp(kind, "layout") == 0 || strcmp(kind, "key_use") == 0 ||
           strcmp(kind, "stream") == 0;
}

/* ---- what waits ---- */

static void pending_free(struct pending *p)
{
    free(p->kind);
    free(p->key);
    free(p->bytes);
}

static void list_free(struct pending_list *l)
{
    for (size_t i = 0; i < l->count; i++)
        pending_free(&l->items[i]);
    free(l->items);
    *l = (struct pending_list){0};
}

static struct pending *list_find(const struct pending_list *l, const char *kind, const char *key)
{
    for (size_t i = 0; i < l->count; i++)
        if (strcmp(l->items[i].key, key) == 0 && strcmp(l->items[i].kind, kind) == 0)
            return &l->items[i];
    return NULL;
}

static bool list_reserve(struct pending_list *l, size_t more)
{
    return vector_reserve(l->items, l->capacity, l->count + more);
}

static bool pending_copy(const struct store_change *c, struct pending *out)
{
    *out = (struct pending){strdup(c->kind), strdup(c->key), c->bytes ? malloc(c->size + 1) : NULL,
                            c->size};
    if (out->kind && out->key && (out->bytes || !c->bytes)) {
        if (c->size && c->bytes)
            memcpy(out->bytes, c->bytes, c->size);
        return true;
    }
    pending_free(out);
    return false;
}

/* In place of what waited for the same key. There is room. */
static void list_put(struct pending_list *l, struct pending *p)
{
    struct pending *old = list_find(l, p->kind, p->key);
    if (old)
        pending_free(old);
    *(old ? old : &l->items[l->count++]) = *p;
}

/* ---- the thread ---- */

static int batch_apply(struct store *store, const struct pending_list *l, struct err *e)
{
    struct store_change *changes = calloc(l->count + 1, sizeof *changes);
    if (!changes)
        return err_set(e, HP_ENOMEM, "no memory for a change of the store");
    for (size_t i = 0; i < l->count; i++)
        changes[i] = (struct store_change){l->items[i].kind, l->items[i].key, l->items[i].bytes,
                                           l->items[i].size};
    int rc = store_apply(store, changes, (int)l->count, e);
    if (rc == HP_EINVAL) /* one of them can never be stored; the others can */
        for (size_t i = 0; i < l->count; i++) {
            rc = store_apply(store, &changes[i], 1, e);
            if (rc == HP_EINVAL)
                log_error("coordinator", "record_refused", "kind=%s why=\"%s\"", changes[i].kind,
                          e->text);
            else if (rc < 0)
                break;
            rc = 0;
        }
    free(changes);
    return rc;
}

/* What could not be written waits again, unless newer news of its key does, or it is a cache. Needs
 * no memory: those who put records kept the room. False when all of it were caches. */
static bool put_back(struct store_queue *q, struct pending_list *failed)
{
    bool records = false;
    if (!q->waiting.items) /* nothing came meanwhile: each goes to its own place, or before it */
        q->waiting = (struct pending_list){failed->items, 0, failed->capacity};
    for (size_t i = 0; i < failed->count; i++) {
        struct pending p = failed->items[i];
        records = records || !store_kind_is_cache(p.kind);
        if (store_kind_is_cache(p.kind) || list_find(&q->waiting, p.kind, p.key))
            pending_free(&p);
        else
            list_put(&q->waiting, &p);
    }
    if (q->waiting.items != failed->items)
        free(failed->items);
    return records;
}

static void wait_for_change(struct store_queue *q)
{
    if (!q->failure.code) {
        pthread_cond_wait(&q->change, &q->lock);
        return;
    }
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    uint64_t ns =
        (uint64_t)until.tv_nsec + (q->config.retry_ms ? q->config.retry_ms : RETRY_MS) * 1000000u;
    until.tv_sec += (time_t)(ns / 1000000000u);
    until.tv_nsec = (long)(ns % 1000000000u);
    pthread_cond_timedwait(&q->change, &q->lock, &until);
}

static void write_waiting(struct store_queue *q)
{
    struct pending_list batch = q->waiting;
    uint64_t number = q->asked;
    struct err why = {0};
    q->waiting = (struct pending_list){0};
    q->writing = batch.count;
    pthread_mutex_unlock(&q->lock);
    int rc = batch_apply(q->store, &batch, &why);
    pthread_mutex_lock(&q->lock);
    q->writing = 0;
    if (rc == 0) {
        list_free(&batch);
        q->written = number;
        q->failure.code = 0;
    } else if (put_back(q, &batch)) {
        q->failure = why;
        q->failure_told = false;
    } else {
        log_warn("coordinator", "cache_not_stored", "why=\"%s\"", why.text);
        q->written = number;
    }
}

static void *store_thread(void *ctx)
{
    struct store_queue *q = ctx;
    pthread_mutex_lock(&q->lock);
    for (bool last = false; !last;) {
        while (!q->stopping && q->waiting.count == 0 && q->written == q->asked)
            wait_for_change(q);
        last = q->stopping;
        if (q->waiting.count > 0 || q->written != q->asked)
            write_waiting(q);
        bool failed = q->failure.code != 0;
        pthread_mutex_unlock(&q->lock);
        q->config.wake(q->config.ctx);
        pthread_mutex_lock(&q->lock);
        if (failed && !q->stopping)
            wait_for_change(q);
    }
    pthread_mutex_unlock(&q->lock);
    return NULL;
}

/* ---- the face ---- */

static void queue_free(struct store_queue *q)
{
    list_free(&q->waiting);
    pthread_cond_destroy(&q->change);
    pthread_mutex_destroy(&q->lock);
    free(q);
}

int store_queue_start(struct store *store, const struct store_queue_config *config,
                      struct store_queue **out, struct err *e)
{
    struct store_queue *q = calloc(1, sizeof *q);
    if (!q)
        return err_set(e, HP_ENOMEM, "no memory for the store's queue");
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&q->change, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_mutex_init(&q->lock, NULL);
    q->store = store;
    q->config = *config;
    if (pthread_create(&q->thread, NULL, store_thread, q) != 0) {
        queue_free(q);
        return err_set(e, HP_EIO, "cannot start the store's thread");
    }
    *out = q;
    return 0;
}

int store_queue_put(struct store_queue *q, uint64_t number, const struct store_change *changes,
                    int n, struct err *e)
{
    struct pending_list copies = {0};
    bool good = list_reserve(&copies, (size_t)n);
    for (int i = 0; good && i < n; i++) {
        good = pending_copy(&changes[i], &copies.items[copies.count]);
        copies.count += good;
    }
    pthread_mutex_lock(&q->lock);
    good = good && list_reserve(&q->waiting, copies.count + q->writing);
    if (good) {
        for (size_t i = 0; i < copies.count; i++)
            list_put(&q->waiting, &copies.items[i]);
        copies.count = 0;
        q->asked = number;
        pthread_cond_signal(&q->change);
    }
    pthread_mutex_unlock(&q->lock);
    list_free(&copies);
    return good ? 0 : err_set(e, HP_ENOMEM, "no memory for a change of the store");
}

bool store_queue_next(struct store_queue *q, uint64_t *number, struct err *why)
{
    bool news = false;
    pthread_mutex_lock(&q->lock);
    if (q->failure.code && !q->failure_told) {
        *number = q->asked;
        *why = q->failure;
        q->failure_told = news = true;
    } else if (!q->failure.code && q->written > q->told) {
        *number = q->told = q->written;
        *why = (struct err){0};
        news = true;
    }
    pthread_mutex_unlock(&q->lock);
    return news;
}

void store_queue_stop(struct store_queue **out)
{
    struct store_queue *q = *out;
    *out = NULL;
    if (!q)
        return;
    pthread_mutex_lock(&q->lock);
    q->stopping = true;
    pthread_cond_signal(&q->change);
    pthread_mutex_unlock(&q->lock);
    pthread_join(q->thread, NULL);
    if (q->waiting.count)
        log_error("coordinator", "changes_lost", "records=%zu why=\"%s\"", q->waiting.count,
                  q->failure.text);
    store_close(&q->store);
    queue_free(q);
}
