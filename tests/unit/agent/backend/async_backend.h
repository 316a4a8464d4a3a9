/* A device whose streams have a thread of their own, over one of another backend: work that is put
 * on a stream is done later, and an event says when. As a GPU does it; for tests of what must hold
 * when a batch is submitted before the one before it is done.
 *
 * One such device at a time. `async_device_of(&config)` turns a config of the backend beneath into
 * one of this; the functions below hold batches back, count them and let one fail. */
#ifndef HP_TESTS_UNIT_AGENT_BACKEND_ASYNC_BACKEND_H
#define HP_TESTS_UNIT_AGENT_BACKEND_ASYNC_BACKEND_H

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "agent/backend/backend.h"

struct async_stream {
    struct stream *inner;
};

/* `state` of an event: what is put on the stream before it is done, or not. */
struct async_event {
    bool done;
    int status;
    void (*over)(void *ctx);
    void *ctx;
};

struct async_op {
    struct device_op *inner;
    struct op_request request;
};

enum async_kind { ASYNC_OP, ASYNC_COPY, ASYNC_RECORD };

struct async_work {
    struct async_work *next;
    enum async_kind kind;
    struct stream *stream; /* of the device beneath */
    const struct async_op *op;
    struct tensor inputs[OP_INPUTS_MAX], out; /* of a copy: from inputs[0] */
    struct op_batch batch;
    const uint32_t **pages; /* [runs][kv group]: copies of what an attention reads */
    struct async_event *event;
};

struct async_device {
    struct device base;
    struct device *inner;
    pthread_t thread;
    struct async_work *first, **end;
    bool busy, stopping;
    char description[128];
};

/* What tests look at and turn, under `lock`. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool holds;              /* events are not over until they are let go */
    unsigned recorded, over; /* events so far */
    unsigned go;             /* so many may be over */
    unsigned fails;          /* the event of this number, from 1 on, has failed; 0: none */
    struct async_device *device;
} async_state = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static const struct backend *async_inner(const struct device *d)
{
    return ((const struct async_device *)d)->inner->backend;
}
static struct device *async_under(const struct device *d)
{
    return ((const struct async_device *)d)->inner;
}

/* ---- the thread ---- */

static void async_record_run(struct async_event *v)
{
    pthread_mutex_lock(&async_state.lock);
    while (async_state.holds && async_state.over >= async_state.go)
        pthread_cond_wait(&async_state.changed, &async_state.lock);
    v->status = ++async_state.over == async_state.fails ? HP_EDEVICE : 0;
    v->done = true;
    void (*over)(void *ctx) = v->over;
    void *ctx = v->ctx;
    pthread_cond_broadcast(&async_state.changed);
    pthread_mutex_unlock(&async_state.lock);
    if (over)
        over(ctx);
}

static void async_work_free(struct async_work *w)
{
    int groups = w->op ? w->op->request.kv_group + 1 : 0;
    for (int i = 0; w->pages && i < w->batch.n_runs; i++)
        free((void *)(uintptr_t)w->pages[(i + 1) * groups - 1]);
    free(w->pages);
    free((void *)(uintptr_t)w->batch.runs);
    free(w);
}

static void async_work_run(const struct async_device *d, struct async_work *w)
{
    const struct backend *b = d->inner->backend;
    if (w->kind == ASYNC_OP)
        b->op_run(w->stream, w->op->inner, w->inputs, &w->out, w->batch.runs ? &w->batch : NULL);
    else if (w->kind == ASYNC_COPY)
        b->copy(w->stream, &w->out, &w->inputs[0]);
    else
        async_record_run(w->event);
}

static void *async_thread(void *ctx)
{
    struct async_device *d = ctx;
    pthread_mutex_lock(&async_state.lock);
    for (;;) {
        while (!d->first && !d->stopping)
            pthread_cond_wait(&async_state.changed, &async_state.lock);
        struct async_work *w = d->first;
        if (!w)
            break;
        d->first = w->next;
        d->end = d->first ? d->end : &d->first;
        d->busy = true;
        pthread_mutex_unlock(&async_state.lock);
        async_work_run(d, w);
        async_work_free(w);
        pthread_mutex_lock(&async_state.lock);
        d->busy = false;
        pthread_cond_broadcast(&async_state.changed);
    }
    pthread_mutex_unlock(&async_state.lock);
    return NULL;
}

static void async_put(const struct async_work *work)
{
    struct async_work *w = malloc(sizeof *w);
    assert(w);
    *w = *work;
    w->next = NULL;
    pthread_mutex_lock(&async_state.lock);
    *async_state.device->end = w;
    async_state.device->end = &w->next;
    pthread_cond_broadcast(&async_state.changed);
    pthread_mutex_unlock(&async_state.lock);
}

/* ---- the device ---- */

static const struct backend *async_backend_of(void);

static int async_open(const struct device_config *c, struct device **out, struct err *e)
{
    struct async_device *d = calloc(1, sizeof *d);
    struct device_config inner = *c;
    assert(d && !async_state.device);
    inner.of = NULL;
    int rc = device_open(&inner, &d->inner, e);
    if (rc < 0) {
        free(d);
        return rc;
    }
    d->base.backend = async_backend_of();
    d->end = &d->first;
    async_state.device = d;
    rc = pthread_create(&d->thread, NULL, async_thread, d);
    assert(rc == 0);
    *out = &d->base;
    return 0;
}

static void async_close(struct device **self)
{
    struct async_device *d = (struct async_device *)*self;
    *self = NULL;
    pthread_mutex_lock(&async_state.lock);
    d->stopping = true;
    pthread_cond_broadcast(&async_state.changed);
    pthread_mutex_unlock(&async_state.lock);
    pthread_join(d->thread, NULL);
    assert(!d->first);
    device_close(&d->inner);
    async_state.device = NULL;
    free(d);
}

static const char *async_describe(const struct device *d)
{
    return async_inner(d)->device_describe(async_under(d));
}
static uint64_t async_memory_free(const struct device *d)
{
    return async_inner(d)->memory_free(async_under(d));
}
static void async_loader_enter(struct device *d)
{
    async_inner(d)->loader_enter(async_under(d));
}
static void async_host_spread(struct device *d, uint32_t n, void (*work)(void *ctx, uint32_t part),
                              void *ctx)
{
    async_inner(d)->host_spread(async_under(d), n, work, ctx);
}
static uint64_t async_weight_resident_bytes(const struct device *d, const struct weight *w,
                                            enum weight_use use, bool f32)
{
    return async_inner(d)->weight_resident_bytes(async_under(d), w, use, f32);
}
static uint64_t async_matmul_scratch_bytes(const struct device *d, const struct weight *w,
                                           enum weight_use use, bool f32, uint32_t rows)
{
    return async_inner(d)->matmul_scratch_bytes(async_under(d), w, use, f32, rows);
}
static int async_weight_load(struct device *d, const struct weight *w, enum weight_use use,
                             bool f32, struct device_weight **out, struct err *e)
{
    return async_inner(d)->weight_load(async_under(d), w, use, f32, out, e);
}
static void async_weight_free(struct device *d, struct device_weight **w)
{
    async_inner(d)->weight_free(async_under(d), w);
}
static int async_memory_alloc(struct device *d, uint64_t bytes, struct memory *out, struct err *e)
{
    return async_inner(d)->memory_alloc(async_under(d), bytes, out, e);
}
static void async_memory_release(struct device *d, struct memory *m)
{
    async_inner(d)->memory_release(async_under(d), m);
}

/* ---- streams and events ---- */

static struct stream *async_stream_inner(const struct stream *s)
{
    return ((const struct async_stream *)s)->inner;
}

static int async_stream_create(struct device *d, struct stream **out, struct err *e)
{
    struct async_stream *s = calloc(1, sizeof *s);
    assert(s);
    int rc = async_inner(d)->stream_create(async_under(d), &s->inner, e);
    *out = (struct stream *)s;
    return rc;
}

/* All that is on any stream of the device is done. */
static void async_drain(void)
{
    struct async_device *d = async_state.device;
    pthread_mutex_lock(&async_state.lock);
    while (d->first || d->busy)
        pthread_cond_wait(&async_state.changed, &async_state.lock);
    pthread_mutex_unlock(&async_state.lock);
}

static void async_stream_destroy(struct stream **self)
{
    struct async_stream *s = (struct async_stream *)*self;
    *self = NULL;
    async_drain();
    async_state.device->inner->backend->stream_destroy(&s->inner);
    free(s);
}

static int async_stream_wait(struct stream *s, struct err *e)
{
    async_drain();
    return async_state.device->inner->backend->stream_wait(async_stream_inner(s), e);
}

static int async_event_create(struct device *d, struct event **out, struct err *e)
{
    struct async_event *v = calloc(1, sizeof *v);
    (void)d, (void)e;
    assert(v);
    v->done = true;
    *out = (struct event *)v;
    return 0;
}

static void async_event_destroy(struct event **v)
{
    async_drain();
    free(*v);
    *v = NULL;
}

static void async_event_record(struct event *event, struct stream *s)
{
    struct async_event *v = (struct async_event *)event;
    *v = (struct async_event){0};
    async_put(
        &(struct async_work){.kind = ASYNC_RECORD, .stream = async_stream_inner(s), .event = v});
    pthread_mutex_lock(&async_state.lock);
    async_state.recorded++;
    pthread_cond_broadcast(&async_state.changed);
    pthread_mutex_unlock(&async_state.lock);
}

static int async_event_wait(struct event *event, struct err *e)
{
    struct async_event *v = (struct async_event *)event;
    pthread_mutex_lock(&async_state.lock);
    while (!v->done)
        pthread_cond_wait(&async_state.changed, &async_state.lock);
    int status = v->status;
    pthread_mutex_unlock(&async_state.lock);
    return status < 0 ? err_set(e, status, "the device went away") : 0;
}

static bool async_event_pending(struct event *event, void (*over)(void *ctx), void *ctx)
{
    struct async_event *v = (struct async_event *)event;
    pthread_mutex_lock(&async_state.lock);
    bool pending = !v->done;
    if (pending) {
        v->over = over;
        v->ctx = ctx;
    }
    pthread_mutex_unlock(&async_state.lock);
    return pending;
}

/* ---- work ---- */

static void async_copy(struct stream *s, const struct tensor *to, const struct tensor *from)
{
    struct async_work w = {.kind = ASYNC_COPY, .stream = async_stream_inner(s), .out = *to};
    w.inputs[0] = *from;
    async_put(&w);
}

static uint32_t *async_pages_copy(const struct attention_run *r, int group)
{
    size_t n = (r->first_position + r->n_tokens + KV_PAGE_TOKENS - 1) / KV_PAGE_TOKENS;
    uint32_t *pages = malloc(n * sizeof *pages);
    assert(pages);
    memcpy(pages, r->pages[group], n * sizeof *pages);
    return pages;
}

/* Runs and pages are the caller's again when op_run returns. */
static void async_batch_copy(struct async_work *w, const struct op_batch *batch)
{
    struct attention_run *runs = malloc((size_t)batch->n_runs * sizeof *runs);
    int group = w->op->request.kv_group, groups = group + 1;
    bool attends = w->op->request.op->kind == OP_ATTENTION;
    assert(runs);
    w->pages = attends ? calloc((size_t)batch->n_runs * (size_t)groups, sizeof *w->pages) : NULL;
    for (int i = 0; i < batch->n_runs; i++) {
        runs[i] = batch->runs[i];
        runs[i].pages = NULL;
        if (!attends)
            continue;
        w->pages[i * groups + group] = async_pages_copy(&batch->runs[i], group);
        runs[i].pages = &w->pages[i * groups];
    }
    w->batch = *batch;
    w->batch.runs = runs;
}

static void async_op_run(struct stream *s, const struct device_op *op, const struct tensor *inputs,
                         const struct tensor *outputs, const struct op_batch *batch)
{
    struct async_work w = {.kind = ASYNC_OP,
                           .stream = async_stream_inner(s),
                           .op = (const struct async_op *)op,
                           .out = outputs[0]};
    memcpy(w.inputs, inputs, (size_t)w.op->request.op->n_inputs * sizeof *inputs);
    if (batch)
        async_batch_copy(&w, batch);
    async_put(&w);
}

static int async_op_prepare(struct device *d, const struct op_request *r, struct device_op **out,
                            struct err *e)
{
    struct async_op *op = calloc(1, sizeof *op);
    assert(op);
    op->request = *r;
    int rc = async_inner(d)->op_prepare(async_under(d), r, &op->inner, e);
    if (rc < 0)
        free(op);
    else
        *out = (struct device_op *)op;
    return rc;
}

static void async_op_release(struct device_op **self)
{
    struct async_op *op = (struct async_op *)*self;
    *self = NULL;
    async_state.device->inner->backend->op_release(&op->inner);
    free(op);
}

static bool async_op_supports(enum op_kind kind, enum dtype weight)
{
    return async_state.device->inner->backend->op_supports(kind, weight);
}
static uint64_t async_kv_page_bytes(const struct device *d, const struct kv_layout *l)
{
    return async_inner(d)->kv_page_bytes(async_under(d), l);
}
static void async_kv_export(struct stream *s, const struct kv_group *g, const uint32_t *pages,
                            const struct kv_part *part, void *out)
{
    async_drain();
    async_state.device->inner->backend->kv_export(async_stream_inner(s), g, pages, part, out);
}
static void async_kv_import(struct stream *s, const struct kv_group *g, const uint32_t *pages,
                            const struct kv_part *part, const void *data)
{
    async_drain();
    async_state.device->inner->backend->kv_import(async_stream_inner(s), g, pages, part, data);
}

static const struct backend *async_backend_of(void)
{
    static const struct backend table = {.name = "async",
                                         .device_open = async_open,
                                         .device_close = async_close,
                                         .device_describe = async_describe,
                                         .memory_free = async_memory_free,
                                         .host_spread = async_host_spread,
                                         .loader_enter = async_loader_enter,
                                         .weight_resident_bytes = async_weight_resident_bytes,
                                         .matmul_scratch_bytes = async_matmul_scratch_bytes,
                                         .weight_load = async_weight_load,
                                         .weight_free = async_weight_free,
                                         .memory_alloc = async_memory_alloc,
                                         .memory_release = async_memory_release,
                                         .stream_create = async_stream_create,
                                         .stream_destroy = async_stream_destroy,
                                         .stream_wait = async_stream_wait,
                                         .event_create = async_event_create,
                                         .event_destroy = async_event_destroy,
                                         .event_record = async_event_record,
                                         .event_wait = async_event_wait,
                                         .event_pending = async_event_pending,
                                         .copy = async_copy,
                                         .op_supports = async_op_supports,
                                         .op_prepare = async_op_prepare,
                                         .op_release = async_op_release,
                                         .op_run = async_op_run,
                                         .kv_page_bytes = async_kv_page_bytes,
                                         .kv_export = async_kv_export,
                                         .kv_import = async_kv_import};
    return &table;
}

/* ---- for tests ---- */

static inline struct device_config async_device_of(const struct device_config *inner)
{
    struct device_config c = *inner;
    c.of = async_backend_of();
    return c;
}

/* From now on a batch is over only when it is let go. Counting begins anew. */
static inline void async_hold(void)
{
    pthread_mutex_lock(&async_state.lock);
    async_state.holds = true;
    async_state.recorded = async_state.over = async_state.go = async_state.fails = 0;
    pthread_mutex_unlock(&async_state.lock);
}

/* So many more batches may be over. */
static inline void async_let_go(unsigned n)
{
    pthread_mutex_lock(&async_state.lock);
    async_state.go += n;
    pthread_cond_broadcast(&async_state.changed);
    pthread_mutex_unlock(&async_state.lock);
}

static inline void async_hold_no_more(void)
{
    pthread_mutex_lock(&async_state.lock);
    async_state.holds = false;
    async_state.fails = 0;
    pthread_cond_broadcast(&async_state.changed);
    pthread_mutex_unlock(&async_state.lock);
}

/* The n-th batch since async_hold, from 1 on, fails. */
static inline void async_let_fail(unsigned n)
{
    pthread_mutex_lock(&async_state.lock);
    async_state.fails = n;
    pthread_mutex_unlock(&async_state.lock);
}

/* Waits until so many batches have been put on the device since async_hold; how many are over. */
static inline unsigned async_wait_recorded(unsigned n)
{
    pthread_mutex_lock(&async_state.lock);
    while (async_state.recorded < n)
        pthread_cond_wait(&async_state.changed, &async_state.lock);
    unsigned over = async_state.over;
    pthread_mutex_unlock(&async_state.lock);
    return over;
}

#endif
