/* Owns the device and everything on it. Refuses to decide: orders come from the core, in order. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "agent/backend/choices.h"
#include "agent/executor_int.h"
#include "agent/profiler.h"
#include "agent/spill_store.h"
#include "common/env.h"
#include "common/log.h"

enum { PROFILE_TELL_MS = 200, PROFILE_GAP_MS = 100, PROFILE_MOST_WAIT_MS = 10000 };

/* Places for orders that wait. What answers an order comes at most as often as the order does; so a
 * close finds room where its open did. */
static const uint32_t order_places[] = {
    [ORDER_LOAD] = 128,      [ORDER_UNLOAD] = 128,    [ORDER_OPEN] = 8192,
    [ORDER_EXPECT] = 256,    [ORDER_CLOSE] = 1 << 17, [ORDER_RUN] = 8,
    [ORDER_PROFILE] = 16,    [ORDER_ADOPT] = 2,       [ORDER_OVER] = SLOT_DEPTH,
    [ORDER_QUIT] = 1,        [ORDER_GROW] = 1 << 16,  [ORDER_KV_IMPORT] = 1024,
    [ORDER_KV_EXPORT] = 256, [ORDER_SPILL_OUT] = 512, [ORDER_SPILL_BACK] = 4096};

/* ---- profiles ---- */

struct profiling {
    struct executor *x;
    uint64_t ticket, told_ns, waited_ms;
};

/* Now and then: whoever waits reads a line, not a film. */
static void profile_progress(void *ctx, const struct message_profile_progress *p)
{
    struct profiling *own = ctx;
    uint64_t now = env_now_ns(&env_real);
    if (now - own->told_ns < PROFILE_TELL_MS * UINT64_C(1000000))
        return;
    own->told_ns = now;
    executor_tell(own->x, &(struct executor_report){
                              .kind = EXECUTOR_PROFILING, .ticket = own->ticket, .profiling = p});
}

static void order_free(struct executor *x, struct order *o, bool done);
static void order_do(struct executor *x, struct order *o);
static bool order_next(struct executor *x, struct order *o, int timeout_ms);

/* Since `from_ns`, waiting or at what was ordered: the measurement has waited so long in all, and
 * for a gap's length now. */
static bool profile_has_waited(struct profiling *own, uint64_t from_ns)
{
    uint64_t ms = (env_now_ns(&env_real) - from_ns) / 1000000;
    return own->waited_ms + ms >= PROFILE_MOST_WAIT_MS && ms >= PROFILE_GAP_MS;
}

/* What was ordered meanwhile is done between two runs of a measurement; while requests are being
 * served the measurement waits for a gap, but not for ever: then they take turns. */
static void profile_between(void *ctx)
{
    struct profiling *own = ctx;
    struct executor *x = own->x;
    struct order o;
    uint64_t from = env_now_ns(&env_real);
    while (!profile_has_waited(own, from)) {
        uint64_t now = env_now_ns(&env_real);
        bool serves = x->ended_ns && now - x->ended_ns < PROFILE_GAP_MS * UINT64_C(1000000) &&
                      own->waited_ms < PROFILE_MOST_WAIT_MS;
        bool came = order_next(x, &o, serves ? PROFILE_GAP_MS : 0);
        if (!came)
            break;
        if (o.kind == ORDER_PROFILE) { /* one after the other */
            struct err e = {0};
            int rc = err_set(&e, HP_EBUSY, "this agent measures already");
            executor_tell(x, &(struct executor_report){.kind = EXECUTOR_PROFILED,
                                                       .ticket = o.u.profile.ticket,
                                                       .status = rc,
                                                       .error = &e,
                                                       .tables = ""});
        }
        x->quit_came = x->quit_came || o.kind == ORDER_QUIT;
        bool does = o.kind != ORDER_PROFILE && o.kind != ORDER_QUIT && !atomic_load(&x->quitting);
        if (does)
            order_do(x, &o);
        order_free(x, &o, does);
        if (x->quit_came)
            break;
    }
    executor_batches_settle(x); /* the device is the measurement's again */
    own->waited_ms += (env_now_ns(&env_real) - from) / 1000000;
}

static void order_profile(struct executor *x, const struct order *o)
{
    struct profiling own = {.x = x, .ticket = o->u.profile.ticket};
    struct buffer tables = {0};
    struct err e = {0};
    struct profiler_config c = {.path = o->u.profile.path,
                                .cache = o->u.profile.cache,
                                .device = x->device,
                                .f32 = o->u.profile.f32,
                                .budget_ms = o->u.profile.budget_ms,
                                .fine = o->u.profile.fine,
                                .stop = &x->quitting,
                                .between = profile_between,
                                .between_ctx = &own,
                                .progress = o->u.profile.fine ? profile_progress : NULL,
                                .progress_ctx = &own};
    int rc = profiler_measure(&c, &tables, &e);
    executor_tell(x, &(struct executor_report){.kind = EXECUTOR_PROFILED,
                                               .ticket = o->u.profile.ticket,
                                               .status = rc,
                                               .error = &e,
                                               .tables = rc < 0 ? "" : buffer_cstr(&tables)});
    buffer_free(&tables);
}

/* ---- the thread ---- */

/* Frees what an order owns, once it is done or will not be. */
static void order_free(struct executor *x, struct order *o, bool done)
{
    if (o->kind == ORDER_LOAD && !done && o->u.job) /* those that come back are among the jobs */
        executor_job_free(o->u.job);
    if (o->kind == ORDER_PROFILE) {
        free((char *)o->u.profile.path);
        free((char *)o->u.profile.cache);
    }
    if (o->kind == ORDER_OPEN && !done)
        sampler_destroy(&o->u.sequence.sampler);
    if (o->kind == ORDER_KV_IMPORT && !done)
        data_buffer_release(x->config.data, o->u.kv.frame);
    if (o->kind == ORDER_KV_EXPORT && !done)
        outlet_release(o->u.kv.outlet);
    if (o->kind == ORDER_SPILL_OUT && !done)
        free(o->u.spill.pages);
    if (o->kind == ORDER_SPILL_BACK && !done)
        spill_found_release(o->u.spill.found);
    if (o->kind == ORDER_RUN && !done) {
        if (o->u.run.batch)
            data_buffer_release(x->config.data, o->u.run.batch->input);
        outlet_release(o->u.run.outlet);
    }
}

/* What changes more than one sequence, or takes the device for itself, waits for the batches under
 * way; so do keys and values, which those batches could still take back. */
static void order_do(struct executor *x, struct order *o)
{
    if (o->kind == ORDER_ADOPT || o->kind == ORDER_UNLOAD || o->kind == ORDER_PROFILE ||
        o->kind == ORDER_KV_IMPORT || o->kind == ORDER_KV_EXPORT || o->kind == ORDER_SPILL_OUT ||
        o->kind == ORDER_SPILL_BACK || (o->kind == ORDER_OPEN && o->u.sequence.share))
        executor_batches_settle(x);
    switch (o->kind) {
    case ORDER_LOAD: executor_job_add(x, o->u.job); return;
    case ORDER_ADOPT: executor_job_adopt(x, o->u.job); return;
    case ORDER_UNLOAD: executor_slot_unload(x, o->u.sequence.slot); return;
    case ORDER_EXPECT:
        executor_direct_expect(x, executor_slot_find(x, o->u.sequence.slot),
                               o->u.sequence.sequence);
        return;
    case ORDER_OPEN: executor_sequence_begin(x, o); return;
    case ORDER_GROW: executor_sequence_more(x, &o->u.sequence); return;
    case ORDER_CLOSE: executor_sequence_end(x, &o->u.sequence); return;
    case ORDER_RUN: executor_batch_submit(x, &o->u.run); return;
    case ORDER_KV_IMPORT: executor_kv_take(x, &o->u.kv); return;
    case ORDER_KV_EXPORT: executor_kv_give(x, &o->u.kv); return;
    case ORDER_SPILL_OUT: executor_spill_give(x, &o->u.spill); return;
    case ORDER_SPILL_BACK: executor_spill_take(x, &o->u.spill); return;
    case ORDER_PROFILE: order_profile(x, o); return;
    case ORDER_OVER:
        executor_waiting_begin(x);
        if (x->ending) {
            executor_direct_reap(x);
            executor_memory_note(x);
        }
        return;
    case ORDER_QUIT: return;
    }
}

/* The next order, or what is done of the batches under way: these are completed first, so that
 * nothing waits behind a batch that is on the device. False: nothing came in time. */
static bool order_next(struct executor *x, struct order *o, int timeout_ms)
{
    executor_batches_land(x);
    if (!timeout_ms)
        return event_queue_take(&x->orders, o);
    return event_queue_wait(&x->orders, o, timeout_ms);
}

static void *executor_thread(void *ctx)
{
    struct executor *x = ctx;
    struct order o;
    pthread_setname_np(pthread_self(), "hp-executor");
    do {
        order_next(x, &o, -1);
        bool does = o.kind != ORDER_QUIT && !atomic_load(&x->quitting);
        if (does)
            order_do(x, &o);
        order_free(x, &o, does);
    } while (o.kind != ORDER_QUIT && !x->quit_came);
    for (struct load_job *j = x->jobs; j; j = j->next)
        atomic_store(&j->stop, true);
    executor_batches_settle(x);
    while (x->n_slots)
        executor_slot_free(x, x->slots[--x->n_slots]);
    return NULL;
}

/* What is told of an order that could not be taken; false: nothing is. */
static bool refusal_of(const struct order *o, struct executor_report *r)
{
    static const enum executor_report_kind answers[] = {[ORDER_LOAD] = EXECUTOR_LOADED,
                                                        [ORDER_OPEN] = EXECUTOR_OPENED,
                                                        [ORDER_RUN] = EXECUTOR_RAN,
                                                        [ORDER_KV_IMPORT] = EXECUTOR_KV_IMPORTED,
                                                        [ORDER_KV_EXPORT] = EXECUTOR_KV_EXPORTED,
                                                        [ORDER_SPILL_BACK] = EXECUTOR_KV_IMPORTED,
                                                        [ORDER_PROFILE] = EXECUTOR_PROFILED};
    switch (o->kind) {
    case ORDER_LOAD:
        if (o->u.job)
            r->slot = o->u.job->order.slot, r->ticket = o->u.job->order.ticket;
        break;
    case ORDER_OPEN:
        r->slot = o->u.sequence.slot, r->ticket = o->u.sequence.ticket;
        r->sequence = o->u.sequence.sequence;
        break;
    case ORDER_RUN: r->slot = o->u.run.slot, r->ticket = o->u.run.ticket; break;
    case ORDER_KV_IMPORT:
    case ORDER_KV_EXPORT:
        r->slot = o->u.kv.slot, r->ticket = o->u.kv.ticket;
        r->sequence = o->u.kv.sequence, r->range = o->u.kv.range;
        break;
    case ORDER_PROFILE: r->ticket = o->u.profile.ticket; break;
    case ORDER_SPILL_BACK:
        r->slot = o->u.spill.slot, r->ticket = o->u.spill.ticket;
        r->sequence = o->u.spill.sequence;
        break;
    case ORDER_SPILL_OUT:
    case ORDER_UNLOAD:
    case ORDER_EXPECT:
    case ORDER_GROW:
    case ORDER_CLOSE:
    case ORDER_ADOPT:
    case ORDER_OVER:
    case ORDER_QUIT: return false;
    }
    r->kind = answers[o->kind];
    return true;
}

/* What cannot be ordered fails as if it had been tried. */
static void order_refuse(struct executor *x, struct order *o, int code)
{
    struct err e = {0};
    struct executor_report r = {.refused = true, .error = &e, .tables = ""};
    r.status = err_set(&e, code,
                       code == HP_EBUSY ? "the executor has too many orders waiting"
                                        : "no memory for an order");
    log_error("agent", "order_refused", "kind=%d text=\"%s\"", (int)o->kind, e.text);
    bool told = refusal_of(o, &r);
    order_free(x, o, false);
    if (told)
        executor_tell(x, &r);
}

static void order_put(struct executor *x, struct order *o)
{
    if (!event_queue_put_as(&x->orders, o->kind, o))
        order_refuse(x, o, HP_EBUSY);
}

int executor_create(const struct executor_config *c, struct executor **out, struct err *e)
{
    struct executor *x = calloc(1, sizeof *x);
    if (!x)
        return err_set(e, HP_ENOMEM, "no memory for the executor");
    x->config = *c;
    event_queue_init_classes(&x->orders, sizeof(struct order), order_places,
                             sizeof order_places / sizeof *order_places);
    event_queue_init(&x->loader_box, sizeof(struct load_job *));
    pthread_mutex_init(&x->fill_lock, NULL);
    int rc = x->orders.places[ORDER_QUIT] && x->loader_box.places[0]
                 ? 0
                 : err_set(e, HP_ENOMEM, "no memory for the executor's orders");
    if (rc == 0 && c->device.n_cores) {
        x->cores = malloc((size_t)c->device.n_cores * sizeof *x->cores);
        if (x->cores)
            memcpy(x->cores, c->device.cores, (size_t)c->device.n_cores * sizeof *x->cores);
        else
            rc = err_set(e, HP_ENOMEM, "no memory for the executor");
        x->config.device.cores = x->cores;
    }
    rc = rc < 0 ? rc : look_ahead_create(&x->ahead, e);
    rc = rc < 0 ? rc : device_open(&x->config.device, &x->device, e);
    if (rc == 0) {
        executor_memory_note(x);
        if (pthread_create(&x->thread, NULL, executor_thread, x) != 0)
            rc = err_set(e, HP_ENOMEM, "cannot start the executor's thread");
        x->started = rc == 0;
    }
    if (rc == 0 && pthread_create(&x->loader, NULL, executor_loader_thread, x) != 0)
        rc = err_set(e, HP_ENOMEM, "cannot start the loader's thread");
    x->loader_started = rc == 0;
    if (rc < 0)
        executor_destroy(&x);
    else
        *out = x;
    return rc;
}

void executor_stop(struct executor *x)
{
    if (x->started) {
        struct order quit = {.kind = ORDER_QUIT};
        atomic_store(&x->quitting, true);
        executor_fill_stop(x, 0);
        bool put = event_queue_put_as(&x->orders, ORDER_QUIT, &quit);
        assert(put); /* its place is its own */
        (void)put;
        pthread_join(x->thread, NULL);
    }
    if (x->loader_started) {
        struct load_job *end = NULL;
        event_queue_put(&x->loader_box, &end);
        pthread_join(x->loader, NULL);
    }
    struct order o;
    while (x->started && event_queue_take(&x->orders, &o))
        order_free(x, &o, false);
    while (x->jobs) {
        struct load_job *j = x->jobs;
        x->jobs = j->next;
        executor_job_free(j);
    }
    x->started = x->loader_started = false;
}

void executor_destroy(struct executor **px)
{
    struct executor *x = *px;
    *px = NULL;
    if (!x)
        return;
    executor_stop(x);
    if (!executor_direct_reap(x)) {
        log_warn("agent", "device_memory_kept",
                 "text=\"the data channel has not given back memory of %s: the device stays open\"",
                 executor_describe(x));
        return;
    }
    if (x->device)
        device_close(&x->device); /* and nobody says any more that a batch is over */
    event_queue_fini(&x->loader_box);
    event_queue_fini(&x->orders);
    pthread_mutex_destroy(&x->fill_lock);
    free(x->slots);
    executor_results_free(x);
    look_ahead_destroy(&x->ahead);
    free(x->waiting);
    free(x->cores);
    free(x);
}

const char *executor_describe(const struct executor *x)
{
    return x->device->backend->device_describe(x->device);
}

json_t *executor_choices(const struct executor *x)
{
    return device_choices_json(x->device);
}

struct device *executor_device(const struct executor *x)
{
    return x->device;
}

static void load_refuse(struct executor *x, const struct executor_load *l)
{
    struct err e = {0};
    int rc = err_set(&e, HP_ENOMEM, "no memory to load a stage");
    executor_tell(x, &(struct executor_report){.kind = EXECUTOR_LOADED,
                                               .slot = l->slot,
                                               .ticket = l->ticket,
                                               .status = rc,
                                               .error = &e});
}

void executor_load(struct executor *x, const struct executor_load *l)
{
    struct order o = {.kind = ORDER_LOAD, .u.job = executor_job_make(x, l)};
    if (o.u.job)
        order_put(x, &o);
    else
        load_refuse(x, l);
}

void executor_unload(struct executor *x, uint64_t slot)
{
    struct order o = {.kind = ORDER_UNLOAD};
    o.u.sequence.slot = slot;
    executor_fill_stop(x, slot);
    order_put(x, &o);
}

void executor_expect(struct executor *x, uint64_t slot, uint64_t session)
{
    struct order o = {.kind = ORDER_EXPECT};
    o.u.sequence.slot = slot;
    o.u.sequence.sequence = session;
    if (x->config.direct)
        order_put(x, &o);
}

void executor_sequence_open(struct executor *x, const struct executor_opening *opening)
{
    struct order o = {.kind = ORDER_OPEN, .u.sequence = *opening};
    order_put(x, &o);
}

void executor_kv_import(struct executor *x, const struct executor_kv *k)
{
    struct order o = {.kind = ORDER_KV_IMPORT, .u.kv = *k};
    order_put(x, &o);
}

void executor_kv_export(struct executor *x, const struct executor_kv *k)
{
    struct order o = {.kind = ORDER_KV_EXPORT, .u.kv = *k};
    order_put(x, &o);
}

void executor_spill_out(struct executor *x, const struct executor_spill *k)
{
    struct order o = {.kind = ORDER_SPILL_OUT, .u.spill = *k};
    order_put(x, &o);
}

void executor_spill_back(struct executor *x, const struct executor_spill *k)
{
    struct order o = {.kind = ORDER_SPILL_BACK, .u.spill = *k};
    order_put(x, &o);
}

void executor_sequence_grow(struct executor *x, uint64_t slot, uint64_t sequence, uint32_t reserved)
{
    struct order o = {.kind = ORDER_GROW};
    o.u.sequence.slot = slot;
    o.u.sequence.sequence = sequence;
    o.u.sequence.reserved = reserved;
    order_put(x, &o);
}

void executor_sequence_close(struct executor *x, uint64_t slot, uint64_t sequence, uint32_t keep)
{
    struct order o = {.kind = ORDER_CLOSE};
    o.u.sequence.slot = slot;
    o.u.sequence.sequence = sequence;
    o.u.sequence.length = keep;
    order_put(x, &o);
}

void executor_run(struct executor *x, const struct executor_run *r)
{
    struct order o = {.kind = ORDER_RUN};
    o.u.run = *r;
    order_put(x, &o);
}

void executor_profile(struct executor *x, const struct executor_profile *p)
{
    struct order o = {.kind = ORDER_PROFILE, .u.profile = *p};
    o.u.profile.path = strdup(p->path);
    o.u.profile.cache = strdup(p->cache);
    if (o.u.profile.path && o.u.profile.cache)
        order_put(x, &o);
    else
        order_refuse(x, &o, HP_ENOMEM);
}
