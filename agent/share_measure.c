#include "agent/share_measure.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "agent/backend/cpu/threads.h"
#include "agent/backend/paced.h"
#include "agent/engine/network/network_profile_json.h"
#include "agent/share_load.h"
#include "common/env.h"
#include "model/text_network.h"

enum { MEASURE_SHARES = 8, MEASURE_SHARE = 64, MEASURE_SHARES_USUAL = 4, TELL_MS = 200 };

static const double SPREAD = 0.02;

/* Another part of the device, which computes the same meanwhile. */
struct measure_neighbour {
    struct share_measurement *m;
    struct onnx_network *network;
    atomic_bool stop;
    pthread_t thread;
    bool runs; /* it has a thread */
    int part, rc;
    int64_t batch;
    struct err error;
};

struct share_measurement {
    const struct share_measure_config *config;
    struct onnx_network *network; /* part 0's */
    struct network_profile_ask ask;
    struct network_profile_watch watch;
    struct network_dim dims[MESSAGE_MAX_DIMS];
    int parts[MEASURE_SHARES], n_shares;
    struct network_profile made[MEASURE_SHARES];
    int n_made, runs;
    uint64_t begun_ns, told_ns;
    struct measure_neighbour *neighbours; /* [parts - 1] of the share that is measured */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int n_warm, n_ended; /* of the neighbours */
};

/* ---- cores ---- */

/* As shares of a plan are dealt the cores of a device (shell_shares.c): the calling thread keeps to
 * them, and gets others that help it there; or a part of a device that computes by itself. */
static int part_take(const struct share_measure_config *c, int part, int parts,
                     struct network_profile_ask *ask, struct err *e)
{
    ask->threads = NULL;
    ask->device = NULL;
    if (c->device)
        return network_device_open(c->device, part, parts, NULL, &ask->device, e);
    cpu_set_t set;
    int first = c->n_cores * part / parts, end = c->n_cores * (part + 1) / parts;
    int n = end > first ? end - first : first < c->n_cores;
    CPU_ZERO(&set);
    for (int i = first; i < first + n; i++)
        CPU_SET((size_t)c->cores[i], &set);
    if (n > 0)
        pthread_setaffinity_np(pthread_self(), sizeof set, &set); /* else it may run anywhere */
    return threads_create(share_part_threads(c->n_threads, part, parts),
                          n > 0 ? c->cores + first : NULL, n, &ask->threads, e);
}

static void part_give(struct network_profile_ask *ask)
{
    network_device_close(&ask->device);
    threads_destroy(&ask->threads);
}

/* ---- neighbours ---- */

static void neighbour_warm(void *ctx)
{
    struct measure_neighbour *n = ctx;
    pthread_mutex_lock(&n->m->lock);
    n->m->n_warm++;
    pthread_cond_signal(&n->m->changed);
    pthread_mutex_unlock(&n->m->lock);
}

static void *neighbour_thread(void *ctx)
{
    struct measure_neighbour *n = ctx;
    struct share_measurement *m = n->m;
    struct network_profile_ask ask = m->ask;
    n->rc = part_take(m->config, n->part, m->parts[m->n_made], &ask, &n->error);
    if (n->rc == 0)
        n->rc = network_profile_press(n->network, &ask, n->batch, neighbour_warm, n, &n->error);
    part_give(&ask);
    pthread_mutex_lock(&m->lock);
    m->n_ended++;
    pthread_cond_signal(&m->changed);
    pthread_mutex_unlock(&m->lock);
    return NULL;
}

static void neighbours_stop(void *ctx, int64_t batch)
{
    struct share_measurement *m = ctx;
    (void)batch;
    for (int i = 0; i + 1 < m->parts[m->n_made]; i++)
        atomic_store(&m->neighbours[i].stop, true);
    for (int i = 0; i + 1 < m->parts[m->n_made]; i++)
        if (m->neighbours[i].runs) {
            pthread_join(m->neighbours[i].thread, NULL);
            m->neighbours[i].runs = false;
        }
}

/* Until all have run once, or one could not. */
static int neighbours_await(struct share_measurement *m, struct err *e)
{
    int n = m->parts[m->n_made] - 1, rc = 0;
    pthread_mutex_lock(&m->lock);
    while (m->n_warm < n && m->n_ended == 0)
        pthread_cond_wait(&m->changed, &m->lock);
    bool all = m->n_ended == 0;
    pthread_mutex_unlock(&m->lock);
    if (all)
        return 0;
    neighbours_stop(m, 0);
    for (int i = 0; i < n && rc == 0; i++)
        if ((rc = m->neighbours[i].rc) < 0)
            *e = m->neighbours[i].error;
    return rc < 0 ? rc : err_set(e, HP_ECANCELED, "stopped");
}

static int neighbours_start(void *ctx, int64_t batch, struct err *e)
{
    struct share_measurement *m = ctx;
    int n = m->parts[m->n_made] - 1;
    m->n_warm = m->n_ended = 0;
    for (int i = 0; i < n; i++) {
        struct measure_neighbour *o = &m->neighbours[i];
        atomic_store(&o->stop, false);
        o->batch = batch;
        o->rc = 0;
        o->runs = pthread_create(&o->thread, NULL, neighbour_thread, o) == 0;
        if (!o->runs)
            return err_no_memory(e, "a thread that measures");
    }
    return n > 0 ? neighbours_await(m, e) : 0;
}

static void neighbours_close(struct share_measurement *m, int n)
{
    for (int i = 0; m->neighbours && i < n; i++)
        network_close(&m->neighbours[i].network);
    free(m->neighbours);
    m->neighbours = NULL;
}

static int neighbours_open(struct share_measurement *m, int n, uint64_t limit_bytes, struct err *e)
{
    int rc = 0;
    m->neighbours = calloc((size_t)n + 1, sizeof *m->neighbours);
    if (!m->neighbours)
        return err_no_memory(e, "a measurement");
    for (int i = 0; i < n && rc == 0; i++) {
        struct measure_neighbour *o = &m->neighbours[i];
        o->m = m;
        o->part = i + 1;
        atomic_init(&o->stop, false);
        rc = text_network_open(m->config->path, limit_bytes, &o->network, e);
        if (rc == 0)
            network_stop_on(o->network, &o->stop);
    }
    return rc;
}

/* ---- one share ---- */

/* Now and then: whoever waits reads a line, not a film. */
static void goes_on(void *ctx, int64_t batch, const struct network_profile_runs *so_far)
{
    struct share_measurement *m = ctx;
    uint64_t now = env_now_ns(m->ask.env);
    m->runs++;
    if (now - m->told_ns < TELL_MS * UINT64_C(1000000))
        return;
    m->told_ns = now;
    m->config->goes_on(m->config->ctx, &(struct share_measuring){
                                           .parts = m->parts[m->n_made],
                                           .batch = batch,
                                           .runs = m->runs,
                                           .elapsed_s = (double)(now - m->begun_ns) * 1e-9,
                                           .budget_s = m->ask.budget_s * m->n_shares,
                                           .spread = so_far->spread,
                                       });
}

static int share_run(struct share_measurement *m, struct err *e)
{
    int parts = m->parts[m->n_made];
    int rc = part_take(m->config, 0, parts, &m->ask, e);
    rc = rc < 0 ? rc : neighbours_open(m, parts - 1, m->config->memory_bytes / (uint64_t)parts, e);
    rc = rc < 0 ? rc : network_profile_measure(m->network, &m->ask, &m->made[m->n_made], e);
    neighbours_close(m, parts - 1);
    part_give(&m->ask);
    return rc;
}

/* ---- what is asked for ---- */

static int batches_take(struct share_measurement *m, const struct pack_u32s *batches, struct err *e)
{
    if (batches->count > NETWORK_PROFILE_BATCHES)
        return err_set(e, HP_EINVAL, "%zu batch sizes; at most %d are measured", batches->count,
                       NETWORK_PROFILE_BATCHES);
    for (size_t i = 0; i < batches->count; i++) {
        if (batches->items[i] < 1 || batches->items[i] > MESSAGE_MAX_BATCH ||
            (i > 0 && batches->items[i] <= batches->items[i - 1]))
            return err_set(e, HP_EINVAL, "batches of %u: sizes rise, from 1 to %d",
                           batches->items[i], MESSAGE_MAX_BATCH);
        m->ask.batches[m->ask.n_batches++] = batches->items[i];
    }
    if (!batches->count)
        network_profile_batches(network_onnx(m->network), &m->ask);
    return 0;
}

static int shares_take(struct share_measurement *m, const struct pack_u32s *shares, struct err *e)
{
    int cores = m->config->n_cores > 1 ? m->config->n_cores : 1,
        most = m->config->device ? MEASURE_SHARES_USUAL : cores;
    if (shares->count > MEASURE_SHARES)
        return err_set(e, HP_EINVAL, "%zu shares; at most %d are measured", shares->count,
                       MEASURE_SHARES);
    for (size_t i = 0; i < shares->count; i++) {
        if (shares->items[i] < 1 || shares->items[i] > MEASURE_SHARE ||
            (i > 0 && shares->items[i] <= shares->items[i - 1]))
            return err_set(e, HP_EINVAL, "shares of 1/%u: numbers of parts rise, from 1 to %d",
                           shares->items[i], MEASURE_SHARE);
        m->parts[m->n_shares++] = (int)shares->items[i];
    }
    for (int n = 1; !shares->count && n <= most && n <= MEASURE_SHARES_USUAL; n++)
        m->parts[m->n_shares++] = n;
    return 0;
}

static int measure_open(struct share_measurement *m, struct err *e)
{
    const struct message_share *s = m->config->share;
    const struct message_measure *asked = s->measure.items;
    const struct message_dim *dims = s->dims.items;
    int rc = text_network_open(m->config->path, m->config->memory_bytes, &m->network, e);
    if (rc < 0)
        return rc;
    network_stop_on(m->network, m->config->stop);
    for (size_t i = 0; i < s->dims.count && i < MESSAGE_MAX_DIMS; i++)
        m->dims[m->ask.n_dims++] = (struct network_dim){dims[i].symbol, (int64_t)dims[i].size};
    m->ask.dims = m->dims;
    m->ask.env = &env_real;
    m->ask.spread = SPREAD;
    m->watch = (struct network_profile_watch){neighbours_start, goes_on, neighbours_stop, m};
    m->ask.watch = &m->watch;
    rc = batches_take(m, &asked->batches, e);
    rc = rc < 0 ? rc : shares_take(m, &asked->shares, e);
    if (rc == 0)
        m->ask.budget_s = (double)asked->budget_ms * 1e-3 / m->n_shares;
    return rc;
}

/* ---- all ---- */

static int document_append(const struct share_measurement *m, struct buffer *json, struct err *e)
{
    json_t *made = network_profile_json(&(struct network_profile_document){
        .model = m->config->model,
        .kind = m->config->kind,
        .ask = &m->ask,
        .shares = m->made,
        .parts = m->parts,
        .n_shares = m->n_made,
    });
    char *text = made ? json_dumps(made, JSON_COMPACT) : NULL;
    if (text)
        buffer_append(json, text, strlen(text));
    bool good = text && !json->failed;
    free(text);
    json_decref(made);
    return good ? 0 : err_no_memory(e, "a profile");
}

static int measure_all(struct share_measurement *m, struct err *e)
{
    int rc = measure_open(m, e);
    m->begun_ns = env_now_ns(&env_real);
    for (; rc == 0 && m->n_made < m->n_shares; m->n_made++)
        if ((rc = share_run(m, e)) < 0)
            break;
    bool left_out = rc == HP_ENOMEM || rc == HP_ELIMIT || rc == HP_EUNSUPPORTED;
    return m->n_made > 0 && left_out ? 0 : rc;
}

static int pace_answer(const struct share_measure_config *c, struct buffer *json, struct err *e)
{
    const struct message_dim *dims = c->share->dims.items;
    uint64_t sizes[MESSAGE_MAX_DIMS];
    int n = 0;
    for (size_t i = 0; i < c->share->dims.count && n < MESSAGE_MAX_DIMS; i++)
        sizes[n++] = dims[i].size;
    return paced_network_profile(c->paced, sizes, n, json, e);
}

int share_measure(const struct share_measure_config *c, struct buffer *json, struct err *e)
{
    if (c->paced)
        return pace_answer(c, json, e);
    struct share_measurement *m = calloc(1, sizeof *m);
    if (!m)
        return err_no_memory(e, "a measurement");
    m->config = c;
    pthread_mutex_init(&m->lock, NULL);
    pthread_cond_init(&m->changed, NULL);
    int rc = measure_all(m, e);
    rc = rc < 0 ? rc : document_append(m, json, e);
    for (int i = 0; i < m->n_made; i++)
        network_profile_free(&m->made[i]);
    network_close(&m->network);
    pthread_cond_destroy(&m->changed);
    pthread_mutex_destroy(&m->lock);
    free(m);
    return rc;
}
