#include "transport/data_pool.h"

#include <stdlib.h>

enum { RESERVE_MAX_BUFFERS = 4096 };

/* A buffer with its place in a free list. The public part comes first. */
struct pool_buffer {
    struct data_buffer public;
    struct pool_buffer *next;
    struct data_reserve *reserve; /* whose it is, or NULL: of the pool */
    enum pool_use use;
    int size_class;
};

struct data_reserve {
    struct data_pool *pool;
    struct pool_buffer *free_buffers; /* under the pool's lock, with all below */
    size_t bytes_each;
    size_t n_out;
    uint64_t bytes;
    bool closed, spoilt;
    struct data_lent lent; /* n 0: nothing is */
};

/* ---- size classes: eight steps for each doubling ---- */

static size_t class_capacity(int size_class)
{
    int doublings = size_class / POOL_STEPS, step = size_class % POOL_STEPS;
    return ((size_t)(POOL_STEPS + step) << (doublings + POOL_MIN_SHIFT)) / POOL_STEPS;
}

/* The smallest class that holds `bytes`; POOL_CLASSES when none does. */
static int class_of(size_t bytes)
{
    int lo = 0, hi = POOL_CLASSES;
    while (lo < hi) {
        int mid = (lo + hi) / 2;
        if (class_capacity(mid) < bytes)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* ---- memory ---- */

static void buffers_free(struct pool_buffer *list)
{
    while (list) {
        struct pool_buffer *next = list->next;
        free(list->public.bytes);
        free(list);
        list = next;
    }
}

static struct pool_buffer *buffer_create(size_t capacity)
{
    struct pool_buffer *b = calloc(1, sizeof *b);
    if (b && !(b->public.bytes = aligned_alloc(64, capacity))) {
        free(b);
        b = NULL;
    }
    if (b)
        b->public.capacity = capacity;
    return b;
}

/* ---- the cache of freed buffers (under the lock) ---- */

static uint64_t pool_out(const struct data_pool *p)
{
    uint64_t bytes = 0;
    for (int use = 0; use < POOL_USES; use++)
        bytes += use == POOL_CHUNKS_RECEIVED ? 0 : p->budgets[use].out_bytes;
    return bytes;
}

/* What all that is out and all that is kept may be together. */
static uint64_t cache_limit(const struct data_pool *p)
{
    uint64_t limit = p->budgets[POOL_RECEIVED].limit_bytes + p->budgets[POOL_SENT].limit_bytes;
    return p->most_out_bytes < limit ? p->most_out_bytes : limit;
}

static struct pool_buffer *class_pop(struct data_pool *p, int size_class)
{
    struct pool_buffer *b = p->free_buffers[size_class];
    if (b) {
        p->free_buffers[size_class] = b->next;
        p->cached_bytes -= b->public.capacity;
    }
    return b;
}

/* The class with kept buffers that was wanted longest ago. There is one. */
static int class_oldest(const struct data_pool *p)
{
    int oldest = POOL_CLASSES;
    for (int c = 0; c < POOL_CLASSES; c++)
        if (p->free_buffers[c] && (oldest == POOL_CLASSES || p->used[c] < p->used[oldest]))
            oldest = c;
    return oldest;
}

/* Takes out of the cache what is beyond its limit. */
static struct pool_buffer *cache_trim(struct data_pool *p)
{
    struct pool_buffer *evicted = NULL;
    while (p->cached_bytes && p->cached_bytes + pool_out(p) > cache_limit(p)) {
        struct pool_buffer *b = class_pop(p, class_oldest(p));
        b->next = evicted;
        evicted = b;
    }
    return evicted;
}

static void cache_keep(struct data_pool *p, struct pool_buffer *b)
{
    b->next = p->free_buffers[b->size_class];
    p->free_buffers[b->size_class] = b;
    p->cached_bytes += b->public.capacity;
}

/* ---- budgets (under the lock) ---- */

static bool budget_has_room(const struct data_pool *p, enum pool_use use, size_t bytes)
{
    uint64_t out = p->budgets[use].out_bytes;
    if (p->budgets[use].limit_buffers &&
        p->budgets[use].out_buffers == p->budgets[use].limit_buffers)
        return false;
    return out == 0 || out + bytes <= p->budgets[use].limit_bytes;
}

static bool pool_has_room(const struct data_pool *p, enum pool_use use, size_t bytes)
{
    return budget_has_room(p, use, bytes) &&
           (use != POOL_CHUNKS_RECEIVED || budget_has_room(p, POOL_RECEIVED, bytes));
}

static void budget_add(struct data_pool *p, enum pool_use use, size_t bytes)
{
    p->budgets[use].out_bytes += bytes;
    p->budgets[use].out_buffers++;
    if (use == POOL_CHUNKS_RECEIVED)
        budget_add(p, POOL_RECEIVED, bytes);
}

static void budget_subtract(struct data_pool *p, enum pool_use use, size_t bytes)
{
    p->budgets[use].out_bytes -= bytes;
    p->budgets[use].out_buffers--;
    if (use == POOL_CHUNKS_RECEIVED)
        budget_subtract(p, POOL_RECEIVED, bytes);
}

static void budgets_set(struct data_pool *p, uint64_t limit_bytes)
{
    p->budgets[POOL_RECEIVED].limit_bytes = limit_bytes;
    p->budgets[POOL_CHUNKS_RECEIVED].limit_bytes = limit_bytes / 4;
    p->budgets[POOL_SENT].limit_bytes = limit_bytes / 4;
}

/* ---- the pool ---- */

static void reserve_end(struct data_reserve *r)
{
    struct data_lent lent = r ? r->lent : (struct data_lent){0};
    free(r);
    if (lent.over)
        lent.over(lent.ctx);
}

void data_pool_init(struct data_pool *p, uint64_t limit_bytes)
{
    *p = (struct data_pool){0};
    pthread_mutex_init(&p->lock, NULL);
    budgets_set(p, limit_bytes);
    for (enum pool_use use = POOL_CONTROL_RECEIVED; use <= POOL_CONTROL_SENT; use++) {
        p->budgets[use].limit_bytes = POOL_CONTROL_LIMIT_BYTES;
        p->budgets[use].limit_buffers = POOL_MAX_CONTROL_BUFFERS;
    }
}

void data_pool_fini(struct data_pool *p)
{
    for (int c = 0; c < POOL_CLASSES; c++)
        buffers_free(p->free_buffers[c]);
    pthread_mutex_destroy(&p->lock);
}

void data_pool_resize(struct data_pool *p, uint64_t limit_bytes)
{
    pthread_mutex_lock(&p->lock);
    budgets_set(p, limit_bytes);
    struct pool_buffer *evicted = cache_trim(p);
    pthread_mutex_unlock(&p->lock);
    buffers_free(evicted);
}

/* Pays for a buffer and takes it from the cache, if one is there. False when the budget is spent.
 */
static bool pool_pay(struct data_pool *p, enum pool_use use, int size_class,
                     struct pool_buffer **cached, struct pool_buffer **evicted)
{
    size_t capacity = class_capacity(size_class);
    if (!pool_has_room(p, use, capacity)) {
        p->wants_room |= use != POOL_SENT && use != POOL_CONTROL_SENT;
        return false;
    }
    *cached = class_pop(p, size_class);
    p->used[size_class] = ++p->gets;
    budget_add(p, use, capacity);
    uint64_t out = pool_out(p);
    p->most_out_bytes = out > p->most_out_bytes ? out : p->most_out_bytes;
    *evicted = cache_trim(p);
    return true;
}

struct data_buffer *data_pool_get(struct data_pool *p, enum pool_use use, size_t bytes)
{
    int size_class = class_of(bytes);
    if (size_class == POOL_CLASSES)
        return NULL;
    struct pool_buffer *b = NULL, *evicted = NULL;
    pthread_mutex_lock(&p->lock);
    bool paid = pool_pay(p, use, size_class, &b, &evicted);
    pthread_mutex_unlock(&p->lock);
    buffers_free(evicted);
    if (!paid)
        return NULL;
    if (!b && !(b = buffer_create(class_capacity(size_class)))) {
        pthread_mutex_lock(&p->lock);
        budget_subtract(p, use, class_capacity(size_class));
        p->wants_room = true;
        pthread_mutex_unlock(&p->lock);
        return NULL;
    }
    b->size_class = size_class;
    b->use = use;
    b->public.size = bytes;
    return &b->public;
}

/* Back to its owner; true when it is to be freed, `*ended` being the reserve that goes with its
 * last buffer. */
static bool reserve_take_back(struct pool_buffer *b, struct data_reserve **ended)
{
    struct data_reserve *r = b->reserve;
    r->n_out--;
    if (!r->closed) {
        b->next = r->free_buffers;
        r->free_buffers = b;
        return false;
    }
    r->pool->reserved_bytes -= b->public.capacity;
    *ended = r->n_out == 0 ? r : NULL;
    return true;
}

/* Under the lock: whether somebody waits for room, who is told now. */
static bool room_is_wanted(struct data_pool *p)
{
    bool wanted = p->wants_room;
    p->wants_room = false;
    return wanted;
}

/* Under the lock. Frames that wait for room may come into a device's memory, too. */
static bool reserved_release(struct data_pool *p, struct pool_buffer *b, struct pool_buffer **spare,
                             struct data_reserve **ended)
{
    bool lent = b->reserve->lent.n > 0;
    if (!reserve_take_back(b, ended))
        return lent && room_is_wanted(p);
    b->next = NULL;
    *spare = b;
    return false;
}

/* Under the lock. */
static bool budgeted_release(struct data_pool *p, struct pool_buffer *b, struct pool_buffer **spare)
{
    budget_subtract(p, b->use, b->public.capacity);
    cache_keep(p, b);
    *spare = cache_trim(p);
    return b->use != POOL_SENT && b->use != POOL_CONTROL_SENT && room_is_wanted(p);
}

bool data_pool_release(struct data_pool *p, struct data_buffer *buffer)
{
    if (!buffer)
        return false;
    struct pool_buffer *b = (struct pool_buffer *)buffer;
    struct data_reserve *ended = NULL;
    struct pool_buffer *spare = NULL;
    pthread_mutex_lock(&p->lock);
    bool wanted =
        b->reserve ? reserved_release(p, b, &spare, &ended) : budgeted_release(p, b, &spare);
    pthread_mutex_unlock(&p->lock);
    buffers_free(spare);
    reserve_end(ended);
    return wanted;
}

uint64_t data_pool_out_bytes(struct data_pool *p)
{
    pthread_mutex_lock(&p->lock);
    uint64_t bytes = pool_out(p) + p->reserved_bytes;
    pthread_mutex_unlock(&p->lock);
    return bytes;
}

enum pool_use data_pool_use_of(uint16_t frame_kind, uint64_t bytes)
{
    if (bytes <= DATA_CONTROL_BYTES)
        return POOL_CONTROL_RECEIVED;
    return frame_kind == FRAME_CHUNK ? POOL_CHUNKS_RECEIVED : POOL_RECEIVED;
}

/* ---- reserves ---- */

static struct pool_buffer *reserve_fill(struct data_reserve *r, size_t n, size_t capacity)
{
    struct pool_buffer *list = NULL;
    for (size_t i = 0; i < n; i++) {
        struct pool_buffer *b = buffer_create(capacity);
        if (!b) {
            buffers_free(list);
            return NULL;
        }
        b->reserve = r;
        b->public.device = r->lent.n ? r->lent.memory + i * r->lent.bytes : NULL;
        b->next = list;
        list = b;
    }
    return list;
}

int data_pool_reserve(struct data_pool *p, size_t n, size_t bytes, const struct data_lent *lent,
                      struct data_reserve **out, struct err *e)
{
    if (n == 0 || n > RESERVE_MAX_BUFFERS || bytes == 0 || bytes > class_capacity(POOL_CLASSES - 1))
        return err_set(e, HP_EINVAL, "a reserve of %zu buffers of %zu bytes makes no sense", n,
                       bytes);
    struct data_reserve *r = calloc(1, sizeof *r);
    size_t capacity = lent ? DATA_HEAD_BYTES : (bytes + 63) / 64 * 64;
    if (r && lent)
        r->lent = *lent;
    if (!r || !(r->free_buffers = reserve_fill(r, n, capacity))) {
        free(r);
        return err_set(e, HP_ENOMEM, "no memory for %zu buffers of %zu bytes", n, bytes);
    }
    r->pool = p;
    r->bytes_each = bytes;
    r->bytes = n * capacity;
    pthread_mutex_lock(&p->lock);
    p->reserved_bytes += r->bytes;
    pthread_mutex_unlock(&p->lock);
    *out = r;
    return 0;
}

static struct data_buffer *reserve_take(struct data_reserve *r, size_t head, size_t bytes)
{
    pthread_mutex_lock(&r->pool->lock);
    struct pool_buffer *b = r->spoilt ? NULL : r->free_buffers;
    if (b) {
        r->free_buffers = b->next;
        r->n_out++;
        b->public.size = bytes;
        b->public.head = head;
    } else if (r->lent.n) { /* else whoever waits for the host's would not hear of one */
        r->pool->wants_room = true;
    }
    pthread_mutex_unlock(&r->pool->lock);
    return b ? &b->public : NULL;
}

struct data_buffer *data_reserve_get(struct data_reserve *r, size_t bytes)
{
    return r->lent.n || bytes > r->bytes_each ? NULL : reserve_take(r, 0, bytes);
}

struct data_buffer *data_reserve_get_device(struct data_reserve *r, size_t head, size_t bytes)
{
    bool fits = head <= DATA_HEAD_BYTES && bytes >= head && bytes - head <= r->bytes_each;
    return r->lent.n && fits && bytes - head > DATA_CONTROL_BYTES ? reserve_take(r, head, bytes)
                                                                  : NULL;
}

void data_pool_spoil(const struct data_buffer *b)
{
    struct data_reserve *r = ((const struct pool_buffer *)b)->reserve;
    pthread_mutex_lock(&r->pool->lock);
    r->spoilt = true;
    pthread_mutex_unlock(&r->pool->lock);
}

const struct data_lent *data_pool_lent(const struct data_buffer *b)
{
    return &((const struct pool_buffer *)b)->reserve->lent;
}

void data_reserve_close(struct data_reserve **reserve)
{
    struct data_reserve *r = *reserve;
    *reserve = NULL;
    if (!r)
        return;
    struct data_pool *p = r->pool;
    pthread_mutex_lock(&p->lock);
    struct pool_buffer *list = r->free_buffers;
    for (const struct pool_buffer *b = list; b; b = b->next)
        p->reserved_bytes -= b->public.capacity;
    r->free_buffers = NULL;
    r->closed = true;
    bool last = r->n_out == 0;
    pthread_mutex_unlock(&p->lock);
    buffers_free(list);
    if (last)
        reserve_end(r);
}
