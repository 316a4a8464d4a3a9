#include "agent/share_runner.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <xxhash.h>

#include "agent/backend/cpu/threads.h"
#include "agent/share_load.h"
#include "agent/share_queue.h"
#include "agent/share_step.h"
#include "common/env.h"
#include "common/log.h"

/* While there is no room for an output it is asked for as often, and for so long. */
enum { ROOM_TRY_MS = 1, ROOM_LIMIT_MS = 2000 };
/* Batches come another way than share_connect, and may be here before it. */
#define CONNECT_LIMIT_NS UINT64_C(1000000000)

struct share_runner {
    struct share_runner_config config;
    struct message_stage_prepare prepare; /* points into the held message */
    struct message_share share;
    char *path;
    int *cores;
    pthread_t thread;
    atomic_bool stop, ended;
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t changed;
    struct share_queue queue;
    struct share_peers *peers;
    struct share_runner_view view;
    struct err load_error;       /* code 0: it is loaded, or being loaded */
    struct share_step *arriving; /* to read what comes in */
    /* the thread's own */
    struct threads *threads;    /* itself, and those that help */
    struct network_device *gpu; /* NULL: these threads compute */
    struct network_part *part;
    struct share_step *running;
    struct paced_queue device; /* a paced one's time */
};

/* ---- what is told ---- */

static void batch_fail(struct share_runner *r, const struct frame_header *h, const struct err *e)
{
    log_warn_limited("agent", "batch_failed",
                     "deployment=%llu share=%llu batch=%u code=%s text=\"%s\"",
                     (unsigned long long)r->prepare.deployment,
                     (unsigned long long)r->prepare.stage, h->batch, status_word(e->code), e->text);
    r->config.failed(r->config.ctx, h, (uint32_t)r->prepare.stage, e->code, e->text);
}

static void load_tell(struct share_runner *r, int status, const struct err *e)
{
    r->config.loaded(r->config.ctx, &(struct share_report){.slot = r->config.slot,
                                                           .ticket = r->config.ticket,
                                                           .status = status,
                                                           .error = status < 0 ? e : NULL});
}

/* ---- a batch ---- */

/* Seconds that a paced device takes; those of the next larger batch that the plan speaks of. */
static double paced_seconds(const struct share_runner *r, const struct frame_header *h)
{
    size_t sizes = r->share.sizes ? r->share.sizes : 1, n = r->share.seconds.count / sizes;
    if (!n || !h->n_tokens || h->sequence >= sizes)
        return 0;
    const struct message_seconds *list = r->share.seconds.items;
    double s = list[h->sequence * n + (h->n_tokens <= n ? h->n_tokens - 1 : n - 1)].s;
    return s > 0 && s < 3600 ? s : 0;
}

/* When it began and ended: as the clock says, or as a paced device's would. */
static void times_note(struct share_runner *r, const struct share_batch *b, struct frame_leg *leg,
                       uint64_t began_ns)
{
    uint64_t now = env_now_ns(&env_real);
    leg->arrived_ns = b->arrived_ns;
    leg->began_ns = began_ns;
    leg->ended_ns = now;
    if (!r->config.paced)
        return;
    uint64_t ready = b->arrived_ns > b->start_ns ? b->arrived_ns : b->start_ns;
    double seconds = paced_seconds(r, &b->header);
    leg->began_ns = paced_queue_begin(&r->device, ready, began_ns);
    uint64_t due = paced_queue_take(&r->device, ready, began_ns, seconds);
    leg->ended_ns = now > due + PACED_CREDIT_NS ? now : due;
}

static struct data_buffer *room_get(struct share_runner *r, uint64_t bytes)
{
    struct data_buffer *b = data_buffer_get(r->config.data, bytes);
    for (int waited = 0; !b && waited < ROOM_LIMIT_MS && !atomic_load(&r->stop);
         waited += ROOM_TRY_MS) {
        const struct timespec pause = {0, ROOM_TRY_MS * 1000000};
        nanosleep(&pause, NULL);
        b = data_buffer_get(r->config.data, bytes);
    }
    return b;
}

static int result_post(struct share_runner *r, struct share_peers *peers,
                       const struct frame_header *in, const struct frame_leg *own, struct err *e)
{
    struct frame_header h;
    struct share_post post = {.share = (uint32_t)r->prepare.stage,
                              .ready_ns = r->config.paced ? own->ended_ns : 0,
                              .sample_bytes = r->share.sample_bytes};
    uint64_t bytes = share_step_out(r->running, r->part, in, &h, &post.peer, &post.send_ns);
    if (r->config.paced && post.send_ns < own->ended_ns)
        post.send_ns = own->ended_ns; /* it is not there before */
    struct data_buffer *b = bytes ? room_get(r, bytes) : NULL;
    if (!bytes)
        return err_set(e, HP_ELIMIT, "what a batch of %u gives is larger than a frame may be",
                       in->n_tokens);
    if (!b)
        return err_set(e, HP_EBUSY, "no room for what the batch gave: the network is too slow");
    share_step_write(r->running, r->part, in, b->bytes);
    b->size = bytes;
    return share_peers_post(peers, &post, &h, b, e);
}

static void batch_run(struct share_runner *r, struct share_batch *b, struct share_peers *peers)
{
    struct data_buffer *payload = b->payload;
    struct err e = {0};
    uint64_t began_ns = env_now_ns(&env_real);
    int rc = peers ? share_step_read(r->running, &b->header, payload->bytes, &e)
                   : err_set(&e, HP_ENOENT, "this agent was not told where its results go");
    rc = rc < 0 ? rc : share_step_run(r->running, r->part, &b->header, &e);
    data_buffer_release(r->config.data, payload);
    struct frame_leg *own = share_step_leg(r->running, b->header.first_position);
    if (rc == 0) {
        times_note(r, b, own, began_ns);
        rc = result_post(r, peers, &b->header, own, &e);
    }
    if (rc < 0) {
        if (!atomic_load(&r->stop))
            batch_fail(r, &b->header, &e);
        return;
    }
    pthread_mutex_lock(&r->lock);
    r->view.done++;
    r->view.busy_s += (double)(own->ended_ns - own->began_ns) * 1e-9;
    r->view.planned_s += paced_seconds(r, &b->header);
    pthread_mutex_unlock(&r->lock);
}

/* ---- the thread ---- */

static void cores_keep(const struct share_runner *r)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    for (int i = 0; i < r->config.n_cores; i++)
        CPU_SET((size_t)r->cores[i], &set);
    if (r->config.n_cores > 0 && pthread_setaffinity_np(pthread_self(), sizeof set, &set) != 0)
        log_warn("agent", "share_not_pinned", "cores=%d", r->config.n_cores);
}

static int part_load(struct share_runner *r, struct err *e)
{
    const struct network_account account = {r->config.memory,
                                            XXH3_64bits(r->path, strlen(r->path))};
    int n = r->config.n_threads > 1 ? r->config.n_threads : 1;
    int rc = threads_create(n, r->cores, r->config.n_cores, &r->threads, e);
    if (rc == 0 && r->config.device)
        rc = network_device_open(r->config.device, (int)r->share.part, (int)r->share.parts,
                                 &account, &r->gpu, e);
    rc = rc < 0 ? rc
                : share_part_open(&r->prepare, &r->share, r->path, r->config.memory_bytes, &r->stop,
                                  r->threads, r->gpu, &account, &r->part, e);
    if (rc < 0)
        return rc;
    load_tell(r, HP_PENDING, NULL);
    rc = share_part_warm(r->part, &r->stop, e);
    if (rc == 0)
        log_info(
            "agent", "share_loaded",
            "deployment=%llu generation=%llu share=%llu cores=%d threads=%d values_bytes=%llu "
            "all_counted_bytes=%llu",
            (unsigned long long)r->prepare.deployment, (unsigned long long)r->prepare.generation,
            (unsigned long long)r->prepare.stage, r->config.n_cores, n,
            (unsigned long long)network_part_bytes(r->part),
            (unsigned long long)(r->config.memory ? network_memory_bytes(r->config.memory) : 0));
    return rc;
}

/* When the next batch may begin, UINT64_MAX: there is none. While nobody knows where its results
 * go it waits a while. */
static uint64_t batch_due_ns(const struct share_runner *r)
{
    uint64_t due = share_queue_due_ns(&r->queue);
    if (due == UINT64_MAX || r->peers)
        return due;
    uint64_t until = r->queue.batches[0].arrived_ns + CONNECT_LIMIT_NS;
    return due > until ? due : until;
}

/* Waits until a batch may begin. False: the runner stops. Holds the lock. */
static bool batch_await(struct share_runner *r, struct share_batch *out)
{
    while (!atomic_load(&r->stop)) {
        uint64_t now = env_now_ns(&env_real), due = batch_due_ns(r);
        if (due <= now && share_queue_take(&r->queue, now, out))
            return true;
        if (due == UINT64_MAX) {
            pthread_cond_wait(&r->changed, &r->lock);
        } else {
            struct timespec until = {(time_t)(due / 1000000000u), (long)(due % 1000000000u)};
            pthread_cond_timedwait(&r->changed, &r->lock, &until);
        }
    }
    return false;
}

static void batches_serve(struct share_runner *r)
{
    struct share_batch b;
    pthread_mutex_lock(&r->lock);
    r->view.ready = true;
    r->view.input_bytes = share_part_input_bytes(r->part);
    pthread_mutex_unlock(&r->lock);
    load_tell(r, 0, NULL);
    pthread_mutex_lock(&r->lock);
    while (batch_await(r, &b)) {
        struct share_peers *peers = share_peers_hold(r->peers);
        r->view.running = true;
        pthread_mutex_unlock(&r->lock);
        batch_run(r, &b, peers);
        share_peers_release(peers);
        pthread_mutex_lock(&r->lock);
        r->view.running = false;
    }
    pthread_mutex_unlock(&r->lock);
}

/* ---- a measurement ---- */

static const struct message_measure *measure_of(const struct share_runner *r)
{
    return r->share.measure.count ? r->share.measure.items : NULL;
}

static void measure_tell(void *ctx, const struct share_measuring *how)
{
    struct share_runner *r = ctx;
    r->config.measures(r->config.ctx, measure_of(r)->id, how);
}

static void network_measure(struct share_runner *r)
{
    struct buffer profile = {0};
    struct err e = {0};
    struct share_measure_config c = {.share = &r->share,
                                     .path = r->path,
                                     .kind = r->config.kind,
                                     .model = r->prepare.deployment_name,
                                     .cores = r->cores,
                                     .n_cores = r->config.n_cores,
                                     .n_threads = r->config.n_threads,
                                     .device = r->config.device,
                                     .paced = r->config.paced,
                                     .memory_bytes = r->config.memory_bytes,
                                     .stop = &r->stop,
                                     .goes_on = measure_tell,
                                     .ctx = r};
    int rc = share_measure(&c, &profile, &e);
    if (!atomic_load(&r->stop))
        r->config.measured(r->config.ctx, measure_of(r)->id, rc < 0 ? "" : buffer_cstr(&profile),
                           rc < 0 ? &e : NULL);
    buffer_free(&profile);
}

/* ---- its life ---- */

static void *runner_thread(void *ctx)
{
    struct share_runner *r = ctx;
    struct err e = {0};
    pthread_setname_np(pthread_self(), "hp-share");
    prctl(PR_SET_TIMERSLACK, 1UL); /* ns: batches begin when they are due */
    if (measure_of(r)) {
        network_measure(r);
        atomic_store(&r->ended, true);
        return NULL;
    }
    cores_keep(r);
    int rc = part_load(r, &e);
    if (rc < 0) {
        pthread_mutex_lock(&r->lock);
        r->load_error = e;
        pthread_mutex_unlock(&r->lock);
        if (!atomic_load(&r->stop))
            load_tell(r, rc, &e);
    } else {
        batches_serve(r);
    }
    atomic_store(&r->ended, true);
    return NULL;
}

static void runner_free(struct share_runner *r)
{
    for (size_t i = 0; i < r->queue.n; i++)
        data_buffer_release(r->config.data, r->queue.batches[i].payload);
    network_part_close(&r->part);
    network_device_close(&r->gpu);
    threads_destroy(&r->threads);
    share_peers_release(r->peers);
    message_ref_release(r->config.prepare);
    share_step_free(&r->arriving);
    share_step_free(&r->running);
    pthread_cond_destroy(&r->changed);
    pthread_mutex_destroy(&r->lock);
    free(r->path);
    free(r->cores);
    free(r);
}

int share_runner_create(const struct share_runner_config *c, struct share_runner **out,
                        struct err *e)
{
    pthread_condattr_t attr;
    struct share_runner *r = calloc(1, sizeof *r);
    if (!r)
        return err_no_memory(e, "a share");
    r->config = *c;
    message_ref_hold(c->prepare);
    r->prepare = c->prepare->message.u.stage_prepare;
    r->share = *(const struct message_share *)r->prepare.share.items;
    r->queue.limit_bytes = c->queue_bytes;
    pthread_mutex_init(&r->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&r->changed, &attr);
    pthread_condattr_destroy(&attr);
    r->path = strdup(c->path);
    r->cores = malloc((size_t)(c->n_cores + 1) * sizeof *r->cores);
    r->arriving = share_step_new();
    r->running = share_step_new();
    bool good = r->path && r->cores && r->arriving && r->running;
    if (good && c->n_cores > 0)
        memcpy(r->cores, c->cores, (size_t)c->n_cores * sizeof *r->cores);
    if (!good || pthread_create(&r->thread, NULL, runner_thread, r) != 0) {
        runner_free(r);
        return err_no_memory(e, "the thread of a share");
    }
    *out = r;
    return 0;
}

void share_runner_stop(struct share_runner *r)
{
    pthread_mutex_lock(&r->lock);
    atomic_store(&r->stop, true);
    pthread_cond_signal(&r->changed);
    pthread_mutex_unlock(&r->lock);
}

bool share_runner_has_ended(const struct share_runner *r)
{
    return atomic_load(&r->ended);
}

void share_runner_destroy(struct share_runner **pr)
{
    struct share_runner *r = *pr;
    *pr = NULL;
    if (!r)
        return;
    share_runner_stop(r);
    pthread_join(r->thread, NULL);
    runner_free(r);
}

/* ---- from other threads ---- */

void share_runner_connect(struct share_runner *r, struct share_peers *peers)
{
    share_peers_hold(peers);
    pthread_mutex_lock(&r->lock);
    struct share_peers *old = r->peers;
    r->peers = peers;
    pthread_cond_signal(&r->changed);
    pthread_mutex_unlock(&r->lock);
    share_peers_release(old);
}

bool share_runner_is(const struct share_runner *r, const struct frame_header *h)
{
    return r->prepare.deployment == h->deployment && r->prepare.generation == h->generation &&
           r->prepare.stage == h->stage;
}

uint64_t share_runner_session(const struct share_runner *r)
{
    return r->prepare.input_session ? r->prepare.input_session : r->prepare.session;
}

void share_runner_batch(struct share_runner *r, const struct frame_header *h,
                        struct data_buffer *payload, uint64_t arrived_ns)
{
    struct share_batch b = {.header = *h, .payload = payload, .arrived_ns = arrived_ns};
    struct err e = {0};
    pthread_mutex_lock(&r->lock);
    int rc = !payload || payload->size != h->payload_bytes
                 ? err_set(&e, HP_EPROTO, "a batch without its bytes")
                 : share_step_read(r->arriving, h, payload->bytes, &e);
    if (rc == 0)
        rc = share_step_is_for(r->arriving, h, (uint32_t)r->prepare.stage, &b.start_ns, &e);
    if (rc == 0 && !r->view.ready)
        rc = err_set(&e, HP_EBUSY,
                     r->load_error.code ? "the share could not be loaded"
                                        : "the share is not loaded yet");
    rc = rc < 0 ? rc : share_queue_put(&r->queue, &b, &e);
    if (rc == 0)
        pthread_cond_signal(&r->changed);
    pthread_mutex_unlock(&r->lock);
    if (rc < 0) {
        data_buffer_release(r->config.data, payload);
        batch_fail(r, h, &e);
    }
}

struct share_runner_view share_runner_view(struct share_runner *r)
{
    pthread_mutex_lock(&r->lock);
    struct share_runner_view v = r->view;
    v.queued = r->queue.n;
    pthread_mutex_unlock(&r->lock);
    return v;
}
