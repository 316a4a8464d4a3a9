/* Owns the device and everything on it. Refuses to decide: orders come from the core, in order. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "agent/executor_int.h"
#include "agent/profiler.h"
#include "common/env.h"
#include "common/log.h"

enum { PROFILE_TELL_MS = 200, PROFILE_GAP_MS = 100, PROFILE_MOST_WAIT_MS = 10000 };

/* Places for orders that wait. What answers an order comes at most as often as the order does; so a
 * close finds room where its open did. */
static const uint32_t order_places[] = {
    [ORDER_LOAD] = 128, [ORDER_UNLOAD] = 128, [ORDER_OPEN] = 8192, [ORDER_CLOSE] = 1 << 17,
    [ORDER_RUN] = 8,    [ORDER_PROFILE] = 16, [ORDER_ADOPT] = 2,   [ORDER_QUIT] = 1};

/* ---- sequences
 * -----------------------------------------------------------------------------------------------------
 */

static struct own_sampler *sampler_find(struct held_stage *h, uint64_t sequence)
{
    for (size_t i = 0; i < h->n_samplers; i++)
        if (h->samplers[i].sequence == sequence)
            return &h->samplers[i];
    return NULL;
}

static int sampler_keep(struct held_stage *h, uint64_t sequence, struct sampler *sampler,
                        struct err *e)
{
    if (h->n_samplers == h->sampler_capacity) {
        size_t capacity = h->sampler_capacity ? 2 * h->sampler_capacity : 16;
        struct own_sampler *p = realloc(h->samplers, capacity * sizeof *p);
        if (!p)
            return err_set(e, HP_ENOMEM, "no memory for a sampler");
        h->samplers = p;
        h->sampler_capacity = capacity;
    }
    h->samplers[h->n_samplers++] = (struct own_sampler){sequence, sampler};
    return 0;
}

static void sequence_open(struct executor *x, const struct order *o)
{
    struct held_stage *h = executor_stage_find(x, o->u.sequence.slot);
    struct sampler *sampler = o->u.sequence.sampler;
    struct err e = {0};
    int rc = h ? stage_sequence_open(h->stage, o->u.sequence.sequence, o->u.sequence.kv_tokens, &e)
               : err_set(&e, HP_ENOENT, "the stage is not loaded");
    if (rc == 0 && sampler) {
        rc = sampler_keep(h, o->u.sequence.sequence, sampler, &e);
        if (rc < 0)
            stage_sequence_close(h->stage, o->u.sequence.sequence);
    }
    if (rc < 0)
        sampler_destroy(&sampler);
    executor_tell(x, &(struct executor_report){.kind = EXECUTOR_OPENED,
                                               .slot = o->u.sequence.slot,
                                               .ticket = o->u.sequence.ticket,
                                               .sequence = o->u.sequence.sequence,
                                               .status = rc,
                                               .error = &e});
}

static void sequence_close(struct executor *x, uint64_t slot, uint64_t sequence)
{
    struct held_stage *h = executor_stage_find(x, slot);
    if (!h)
        return;
    stage_sequence_close(h->stage, sequence);
    struct own_sampler *s = sampler_find(h, sequence);
    if (!s)
        return;
    sampler_destroy(&s->sampler);
    *s = h->samplers[--h->n_samplers];
}

/* ---- batches
 * -------------------------------------------------------------------------------------------------------
 */

static bool reserve(void **p, size_t *capacity, size_t n, size_t size)
{
    if (n <= *capacity)
        return true;
    void *grown = realloc(*p, n * size);
    if (!grown)
        return false;
    *p = grown;
    *capacity = n;
    return true;
}

/* Rows of runs that were dropped are closed up, in place. */
static const float *input_rows(const struct executor_run *r, uint32_t width)
{
    float *rows = (float *)(void *)(r->input->bytes + (size_t)r->input_runs * FRAME_RUN_BYTES);
    size_t at = 0;
    for (uint32_t i = 0; i < r->n_runs; i++) {
        size_t n = r->runs[i].run.n_tokens;
        if (at != r->runs[i].row)
            memmove(rows + at * width, rows + (size_t)r->runs[i].row * width,
                    n * width * sizeof *rows);
        at += n;
    }
    return rows;
}

/* Room for the frame that goes on. A large one is the stage's own, small ones never wait: nothing
 * here ever does. */
static int output_get(struct executor *x, struct held_stage *h, const struct executor_run *r,
                      struct data_buffer **out, struct err *e)
{
    size_t table = (size_t)r->n_runs * FRAME_RUN_BYTES,
           bytes = table + (size_t)r->n_tokens * h->width * sizeof(float);
    *out = r->reserved && h->reserve ? data_reserve_get(h->reserve, bytes)
                                     : data_buffer_get(x->config.data, bytes);
    if (!*out)
        return err_set(e, HP_EBUSY, "no buffer for the %zu bytes that this stage hands on", bytes);
    (*out)->size = bytes;
    for (uint32_t i = 0; i < r->n_runs; i++)
        frame_runs_encode(&r->runs[i].run, 1, (*out)->bytes + (size_t)i * FRAME_RUN_BYTES);
    return 0;
}

/* Rows that the core tells to somebody are kept until it has; the others only until they are
 * sampled from. */
static float *logits_room(struct executor *x, const struct held_stage *h,
                          const struct executor_run *r, bool *told)
{
    size_t n = (size_t)r->n_logits * h->vocabulary;
    *told = false;
    for (uint32_t i = 0; i < r->n_runs; i++)
        *told = *told || (r->runs[i].run.n_logits && !r->runs[i].sample);
    float **rows = *told ? &x->now->logits : &x->sampled;
    size_t *capacity = *told ? &x->now->logit_capacity : &x->sampled_capacity, before = *capacity;
    if (n > before && !x->config.paced && (n - before) * sizeof **rows > executor_memory_free(x))
        return NULL; /* beyond the limit */
    if (!reserve((void **)rows, capacity, n ? n : 1, sizeof **rows))
        return NULL;
    if (n > before) {
        atomic_fetch_add(&x->logits_bytes, (*capacity - before) * sizeof **rows);
        executor_memory_note(x);
    }
    return *rows;
}

static int runs_make(struct executor *x, const struct executor_run *r, struct err *e)
{
    if (!reserve((void **)&x->runs, &x->run_capacity, r->n_runs, sizeof *x->runs) ||
        !reserve((void **)&x->now->picked, &x->now->picked_capacity, r->n_runs,
                 sizeof *x->now->picked))
        return err_set(e, HP_ENOMEM, "no memory for a batch of %u tokens", r->n_tokens);
    for (uint32_t i = 0; i < r->n_runs; i++) {
        const struct frame_run *f = &r->runs[i].run;
        x->runs[i] = (struct stage_run){f->sequence, f->first_position, f->n_tokens, f->n_logits};
    }
    return 0;
}

/* One token to be picked. */
struct pick {
    struct sampler *sampler;
    const float *row;
    uint32_t *token;
};

static void pick_part(void *ctx, uint32_t part)
{
    struct pick *p = (struct pick *)ctx + part;
    *p->token = sampler_pick(p->sampler, p->row);
}

/* Sequences are sampled side by side. */
static int tokens_pick(struct executor *x, struct held_stage *h, const struct executor_run *r,
                       const float *rows, struct err *e)
{
    uint32_t n = 0;
    if (!reserve((void **)&x->picks, &x->pick_capacity, r->n_runs, sizeof *x->picks))
        return err_set(e, HP_ENOMEM, "no memory to sample %u sequences", r->n_runs);
    for (uint32_t i = 0; i < r->n_runs; i++) {
        const struct frame_run *f = &r->runs[i].run;
        rows += (size_t)f->n_logits * h->vocabulary;
        if (!r->runs[i].sample)
            continue;
        struct own_sampler *s = sampler_find(h, f->sequence);
        if (!s)
            return err_set(e, HP_EBUG, "sequence %llu has no sampler",
                           (unsigned long long)f->sequence);
        x->picks[n++] = (struct pick){s->sampler, rows - h->vocabulary, &x->now->picked[i]};
    }
    if (n == 1)
        pick_part(x->picks, 0);
    else if (n)
        x->device->backend->host_spread(x->device, n, pick_part, x->picks);
    return 0;
}

/* A batch as it runs: where its rows go. */
struct batch_result {
    struct data_buffer *output; /* not the last stage */
    float *rows;                /* the last: logits */
    bool told;                  /* and somebody wants them all */
};

static int batch_run(struct executor *x, struct held_stage *h, const struct executor_run *r,
                     struct batch_result *out, struct err *e)
{
    bool last = stage_is_last(h->stage), first = stage_is_first(h->stage);
    if (first ? !r->ids : !r->input)
        return err_set(e, HP_EBUG, "a batch came without its input");
    if (!last && !r->outlet)
        return err_set(e, HP_ELINK, "there is no link to the next stage");
    int rc = runs_make(x, r, e);
    if (rc == 0 && !last)
        rc = output_get(x, h, r, &out->output, e);
    if (rc == 0 && last && (out->rows = logits_room(x, h, r, &out->told)) == NULL)
        rc = err_set(e, HP_ENOMEM, "no memory for %u rows of logits within this agent's limit",
                     r->n_logits);
    if (rc < 0)
        return rc;
    float *rows = last
                      ? out->rows
                      : (float *)(void *)(out->output->bytes + (size_t)r->n_runs * FRAME_RUN_BYTES);
    const void *input = first ? (const void *)r->ids : input_rows(r, h->width);
    rc = stage_run(h->stage, x->runs, (int)r->n_runs, input, rows, e);
    return rc == 0 && last ? tokens_pick(x, h, r, out->rows, e) : rc;
}

/* Waits until the device that this one stands for would be done: that moment. *from_ns, when the
 * host came to it, becomes when the device would have begun. */
static uint64_t paced_wait(struct executor *x, const struct held_stage *h,
                           const struct executor_run *r, uint64_t *from_ns)
{
    if (!reserve((void **)&x->paced_runs, &x->paced_run_capacity, r->n_runs, sizeof *x->paced_runs))
        return 0;
    for (uint32_t i = 0; i < r->n_runs; i++)
        x->paced_runs[i] =
            (struct paced_run){r->runs[i].run.first_position, r->runs[i].run.n_tokens};
    double seconds = paced_batch_seconds(x->config.paced, h->first_layer, h->end_layer,
                                         h->stands_for, x->paced_runs, r->n_runs);
    uint64_t begin = paced_queue_begin(&x->queue, r->ready_ns, *from_ns),
             due = paced_queue_take(&x->queue, r->ready_ns, *from_ns, seconds);
    *from_ns = begin;
    while (!atomic_load(&x->quitting)) {
        uint64_t now = env_now_ns(&env_real), step = now + 100000000 < due ? now + 100000000 : due;
        if (now >= due)
            break;
        clock_nanosleep(
            CLOCK_MONOTONIC, TIMER_ABSTIME,
            &(struct timespec){(time_t)(step / 1000000000u), (long)(step % 1000000000u)}, NULL);
    }
    return due;
}

/* Hands the output to the next stage, at the moment when the device is, or would be, done with it.
 */
static void output_post(const struct executor_run *r, struct data_buffer *output, uint64_t end_ns,
                        uint64_t due_ns)
{
    struct frame_header h = r->header;
    h.sent_ns = due_ns ? due_ns : end_ns;
    outlet_post(r->outlet, &h, output, r->reserved);
}

static void run(struct executor *x, const struct executor_run *r)
{
    struct held_stage *h = executor_stage_find(x, r->slot);
    struct err e = {0};
    struct batch_result made = {0};
    uint64_t from = env_now_ns(&env_real);
    x->now = x->now == &x->results[0] ? &x->results[1] : &x->results[0];
    int rc = h ? batch_run(x, h, r, &made, &e) : err_set(&e, HP_ENOENT, "the stage is not loaded");
    x->ran_ns = env_now_ns(&env_real);
    uint64_t due = rc == 0 && x->config.paced ? paced_wait(x, h, r, &from) : 0,
             end = env_now_ns(&env_real);
    bool posted = rc == 0 && made.output;
    if (posted)
        output_post(r, made.output, end, due);
    else if (made.output)
        data_buffer_release(x->config.data, made.output);
    if (r->input)
        data_buffer_release(x->config.data, r->input);
    outlet_release(r->outlet);
    executor_tell(x, &(struct executor_report){.kind = EXECUTOR_RAN,
                                               .slot = r->slot,
                                               .ticket = r->ticket,
                                               .status = rc,
                                               .error = &e,
                                               .seconds = (double)(end - from) * 1e-9,
                                               .start_ns = from,
                                               .end_ns = end,
                                               .due_ns = due,
                                               .posted = posted,
                                               .picked = x->now->picked,
                                               .logits = made.told ? made.rows : NULL});
}

struct profiling {
    struct executor *x;
    uint64_t ticket, told_ns, waited_ms;
};

/* Now and then: whoever waits reads a line, not a film. */
static void profile_progress(void *ctx, const struct profiler_progress *p)
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

/* What was ordered meanwhile is done between two runs of a measurement; while requests are being
 * served the measurement waits for a gap, but not for ever. */
static void profile_between(void *ctx)
{
    struct profiling *own = ctx;
    struct executor *x = own->x;
    struct order o;
    for (;;) {
        uint64_t now = env_now_ns(&env_real);
        bool serves = x->ran_ns && now - x->ran_ns < PROFILE_GAP_MS * UINT64_C(1000000) &&
                      own->waited_ms < PROFILE_MOST_WAIT_MS;
        bool came =
            serves ? post_box_wait(&x->orders, &o, PROFILE_GAP_MS) : post_box_take(&x->orders, &o);
        own->waited_ms += (env_now_ns(&env_real) - now) / 1000000;
        if (!came)
            return;
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
            return;
    }
}

static void profile(struct executor *x, const struct order *o)
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

/* ---- the thread
 * ----------------------------------------------------------------------------------------------------
 */

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
    if (o->kind == ORDER_RUN && !done) {
        if (o->u.run.input)
            data_buffer_release(x->config.data, o->u.run.input);
        outlet_release(o->u.run.outlet);
    }
}

static void order_do(struct executor *x, struct order *o)
{
    switch (o->kind) {
    case ORDER_LOAD: executor_job_add(x, o->u.job); return;
    case ORDER_ADOPT: executor_job_adopt(x, o->u.job); return;
    case ORDER_UNLOAD: executor_stage_unload(x, o->u.sequence.slot); return;
    case ORDER_OPEN: sequence_open(x, o); return;
    case ORDER_CLOSE: sequence_close(x, o->u.sequence.slot, o->u.sequence.sequence); return;
    case ORDER_RUN: run(x, &o->u.run); return;
    case ORDER_PROFILE: profile(x, o); return;
    case ORDER_QUIT: return;
    }
}

static void *executor_thread(void *ctx)
{
    struct executor *x = ctx;
    struct order o;
    pthread_setname_np(pthread_self(), "hp-executor");
    do {
        post_box_wait(&x->orders, &o, -1);
        bool does = o.kind != ORDER_QUIT && !atomic_load(&x->quitting);
        if (does)
            order_do(x, &o);
        order_free(x, &o, does);
    } while (o.kind != ORDER_QUIT && !x->quit_came);
    for (struct load_job *j = x->jobs; j; j = j->next)
        atomic_store(&j->stop, true);
    while (x->n_stages)
        executor_stage_free(x, &x->stages[--x->n_stages]);
    return NULL;
}

/* What cannot be ordered fails as if it had been tried. */
static void order_refuse(struct executor *x, struct order *o, int code)
{
    static const enum executor_report_kind answer[] = {[ORDER_LOAD] = EXECUTOR_LOADED,
                                                       [ORDER_OPEN] = EXECUTOR_OPENED,
                                                       [ORDER_RUN] = EXECUTOR_RAN,
                                                       [ORDER_PROFILE] = EXECUTOR_PROFILED};
    struct err e = {0};
    struct executor_report r = {.error = &e, .tables = ""};
    r.status = err_set(&e, code,
                       code == HP_EBUSY ? "the executor has too many orders waiting"
                                        : "no memory for an order");
    log_error("agent", "order_refused", "kind=%d text=\"%s\"", (int)o->kind, e.text);
    if (o->kind == ORDER_LOAD && o->u.job)
        r.slot = o->u.job->order.slot, r.ticket = o->u.job->order.ticket;
    else if (o->kind == ORDER_RUN)
        r.slot = o->u.run.slot, r.ticket = o->u.run.ticket;
    else if (o->kind == ORDER_PROFILE)
        r.ticket = o->u.profile.ticket;
    else
        r.slot = o->u.sequence.slot, r.ticket = o->u.sequence.ticket,
        r.sequence = o->u.sequence.sequence;
    bool answered = o->kind == ORDER_LOAD || o->kind == ORDER_OPEN || o->kind == ORDER_RUN ||
                    o->kind == ORDER_PROFILE;
    order_free(x, o, false);
    if (!answered)
        return;
    r.kind = answer[o->kind];
    executor_tell(x, &r);
}

static void order_put(struct executor *x, struct order *o)
{
    if (!post_box_put_as(&x->orders, o->kind, o))
        order_refuse(x, o, HP_EBUSY);
}

int executor_create(const struct executor_config *c, struct executor **out, struct err *e)
{
    struct executor *x = calloc(1, sizeof *x);
    if (!x)
        return err_set(e, HP_ENOMEM, "no memory for the executor");
    x->config = *c;
    post_box_init_classes(&x->orders, sizeof(struct order), order_places,
                          sizeof order_places / sizeof *order_places);
    post_box_init(&x->loader_box, sizeof(struct load_job *));
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

void executor_destroy(struct executor **px)
{
    struct executor *x = *px;
    if (!x)
        return;
    if (x->started) {
        struct order quit = {.kind = ORDER_QUIT};
        atomic_store(&x->quitting, true);
        bool put = post_box_put_as(&x->orders, ORDER_QUIT, &quit);
        assert(put); /* its place is its own */
        (void)put;
        pthread_join(x->thread, NULL);
    }
    if (x->loader_started) {
        struct load_job *end = NULL;
        post_box_put(&x->loader_box, &end);
        pthread_join(x->loader, NULL);
    }
    struct order o;
    while (x->started && post_box_take(&x->orders, &o))
        order_free(x, &o, false);
    while (x->jobs) {
        struct load_job *j = x->jobs;
        x->jobs = j->next;
        executor_job_free(j);
    }
    post_box_fini(&x->loader_box);
    post_box_fini(&x->orders);
    if (x->device)
        device_close(&x->device);
    free(x->stages);
    free(x->runs);
    free(x->paced_runs);
    for (int i = 0; i < 2; i++) {
        free(x->results[i].picked);
        free(x->results[i].logits);
    }
    free(x->sampled);
    free(x->picks);
    free(x->cores);
    free(x);
    *px = NULL;
}

const char *executor_describe(const struct executor *x)
{
    return x->device->backend->device_describe(x->device);
}
uint64_t executor_memory_free(const struct executor *x)
{
    return atomic_load(&((struct executor *)x)->memory_free);
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
    struct order o = {.kind = ORDER_LOAD, .u.job = calloc(1, sizeof(struct load_job))};
    struct load_job *j = o.u.job;
    if (j) {
        j->x = x;
        j->order = *l;
        j->order.path = strdup(l->path);
        j->stage = (struct held_stage){.slot = l->slot,
                                       .first_layer = l->first_layer,
                                       .end_layer = l->end_layer,
                                       .stands_for = l->stands_for};
    }
    if (j && j->order.path) {
        order_put(x, &o);
        return;
    }
    free(j);
    load_refuse(x, l);
}

void executor_unload(struct executor *x, uint64_t slot)
{
    struct order o = {.kind = ORDER_UNLOAD};
    o.u.sequence.slot = slot;
    order_put(x, &o);
}

void executor_sequence_open(struct executor *x, uint64_t slot, uint64_t ticket, uint64_t sequence,
                            uint32_t kv_tokens, struct sampler *sampler)
{
    struct order o = {.kind = ORDER_OPEN};
    o.u.sequence.slot = slot;
    o.u.sequence.ticket = ticket;
    o.u.sequence.sequence = sequence;
    o.u.sequence.kv_tokens = kv_tokens;
    o.u.sequence.sampler = sampler;
    order_put(x, &o);
}

void executor_sequence_close(struct executor *x, uint64_t slot, uint64_t sequence)
{
    struct order o = {.kind = ORDER_CLOSE};
    o.u.sequence.slot = slot;
    o.u.sequence.sequence = sequence;
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
