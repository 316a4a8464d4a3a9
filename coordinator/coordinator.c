#include "coordinator/coordinator.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/env.h"
#include "common/json.h"
#include "common/log.h"
#include "coordinator/core.h"
#include "coordinator/gateway/gateway.h"
#include "coordinator/log_ring.h"
#include "coordinator/model_heads.h"
#include "coordinator/store/store.h"
#include "coordinator/store/store_queue.h"
#include "transport/control.h"
#include "transport/keys.h"

enum {
    PATH_BYTES = 2048,
    ADDRESS_BYTES = 128,
    GATEWAY_RETRY_NS = 1000000000,
    NOT_SENT_NS = 1000000000
};

/* A model whose heads are open. */
struct open_model {
    struct open_model *next;
    char id[80];
    struct model *model;
};

struct coordinator {
    uv_loop_t *loop;
    char dir[PATH_BYTES], models_dir[PATH_BYTES + 16];
    char control_address[ADDRESS_BYTES], http_address[ADDRESS_BYTES], http_wanted[ADDRESS_BYTES];
    struct gateway_config gateway_config;
    struct key_pair own, admin;
    struct store *store; /* until the queue has it */
    struct store_queue *queue;
    uv_async_t stored;
    struct core *core;
    struct control *control;
    struct gateway *gateway;
    struct requests core_requests, requests;
    struct open_model *models;
    struct log_ring *log;
    uv_timer_t tick;
    uv_prepare_t prepare;
    uv_check_t check;
    int handles; /* of these and `stored`, still to be closed */
    uint64_t gateway_tried_ns;
    uint64_t not_sent, not_sent_told_ns; /* messages since the last line in the log */
    int jobs; /* models being opened and work being done on other threads */
    bool dirty, settling, closing;
};

/* ---- doing what the core says
 * ------------------------------------------------------------------------------------- */

static void models_open(struct coordinator *c, const char *id, const uint8_t *manifest,
                        size_t size);
static void models_close(struct coordinator *c, const char *id);
static void work_start(struct coordinator *c, struct work *w);

/* The changes of one step go to the store's thread together; what depends on them comes when it has
 * written them (core_stored). */
static void keep(struct coordinator *c, const struct core_action *actions, size_t n)
{
    struct err e = {0};
    struct store_change *changes = calloc(n + 1, sizeof *changes);
    uint64_t number = 0;
    int count = 0;
    for (size_t i = 0; i < n; i++) {
        if (actions[i].kind != CORE_STORE)
            continue;
        number = actions[i].number;
        if (changes)
            changes[count++] = (struct store_change){actions[i].record_kind, actions[i].key,
                                                     actions[i].bytes, actions[i].size};
    }
    int rc = changes ? 0 : err_set(&e, HP_ENOMEM, "no memory for a change of the store");
    if (rc == 0 && count)
        rc = store_queue_put(c->queue, number, changes, count, &e);
    free(changes);
    if (rc < 0 && number)
        core_stored(c->core, number, &e);
}

/* One line a second: a peer that is gone may have had a hundred messages coming. */
static void not_sent(struct coordinator *c, const struct core_action *a, const struct err *why)
{
    uint64_t now = env_now_ns(&env_real);
    c->not_sent++;
    if (now - c->not_sent_told_ns < NOT_SENT_NS)
        return;
    log_warn("coordinator", "not_sent", "peer=%llu bytes=%zu messages=%llu why=\"%s\"",
             (unsigned long long)a->peer, a->size, (unsigned long long)c->not_sent, why->text);
    c->not_sent_told_ns = now;
    c->not_sent = 0;
}

static void act(struct coordinator *c, const struct core_action *a)
{
    struct err e = {0};
    switch (a->kind) {
    case CORE_STORE: break;
    case CORE_SEND:
        if (control_send(c->control, a->peer, a->bytes, a->size, &e) == 0)
            break;
        not_sent(c, a, &e);
        if (e.code == HP_ELINK)
            core_peer_gone(c->core, a->peer);
        break;
    case CORE_MODEL_OPEN: models_open(c, a->key, a->bytes, a->size); break;
    case CORE_MODEL_CLOSE: models_close(c, a->key); break;
    case CORE_WORK: work_start(c, a->work); break;
    case CORE_TOKENS:
    case CORE_FINISHED:
    case CORE_FAILED: core_action_call_back(c->core, a); break;
    }
}

static void settle(struct coordinator *c)
{
    if (c->settling)
        return;
    c->settling = true;
    size_t n;
    const struct core_action *actions;
    while (actions = core_take(c->core, &n), n > 0) {
        keep(c, actions, n);
        for (size_t i = 0; i < n; i++)
            act(c, &actions[i]);
    }
    c->dirty = c->settling = false;
}

static void on_stored(uv_async_t *a)
{
    struct coordinator *c = a->data;
    uint64_t number;
    struct err why;
    while (c->queue && store_queue_next(c->queue, &number, &why))
        core_stored(c->core, number, &why);
    settle(c);
}

/* On the store's thread. */
static void store_wake(void *ctx)
{
    uv_async_send(&((struct coordinator *)ctx)->stored);
}

static void on_message(void *ctx, uint64_t peer, const char *key, const uint8_t *bytes, size_t size)
{
    struct coordinator *c = ctx;
    core_message(c->core, peer, key, bytes, size);
    settle(c);
}

static bool on_knows(void *ctx, const char *key)
{
    return core_knows_key(((struct coordinator *)ctx)->core, key);
}

/* ---- models, opened on a thread of their own
 * ------------------------------------------------------------------------ */

struct open_job {
    uv_work_t work;
    struct coordinator *owner;
    char id[80], folder[PATH_BYTES + 16];
    uint8_t *manifest;
    size_t size;
    struct arena arena;
    struct model *model;
    struct core_model facts;
    struct err failure;
};

static void job_run(uv_work_t *work)
{
    struct open_job *j = work->data;
    if (model_heads_open(j->folder, j->id, j->manifest, j->size, &j->arena, &j->model, &j->facts,
                         &j->failure) < 0)
        j->model = NULL;
}

static void coordinator_free_when_idle(struct coordinator *c);

static void job_done(uv_work_t *work, int status)
{
    (void)status;
    struct open_job *j = work->data;
    struct coordinator *c = j->owner;
    c->jobs--;
    struct open_model *m = j->model && !c->closing ? calloc(1, sizeof *m) : NULL;
    if (m) {
        snprintf(m->id, sizeof m->id, "%s", j->id);
        m->model = j->model;
        m->next = c->models;
        c->models = m;
        core_model_opened(c->core, j->id, &j->facts, NULL);
    } else {
        model_close(&j->model);
        if (!c->closing)
            core_model_opened(c->core, j->id, NULL, &j->failure);
    }
    arena_free(&j->arena);
    free(j->manifest);
    free(j);
    if (c->closing)
        coordinator_free_when_idle(c);
    else
        settle(c);
}

static void models_open(struct coordinator *c, const char *id, const uint8_t *manifest, size_t size)
{
    struct open_job *j = calloc(1, sizeof *j);
    uint8_t *copy = malloc(size);
    struct err e = {0};
    if (!j || !copy) {
        free(j);
        free(copy);
        err_set(&e, HP_ENOMEM, "no memory to open a model");
        core_model_opened(c->core, id, NULL, &e);
        return;
    }
    memcpy(copy, manifest, size);
    *j = (struct open_job){.owner = c, .manifest = copy, .size = size};
    j->work.data = j;
    snprintf(j->id, sizeof j->id, "%s", id);
    snprintf(j->folder, sizeof j->folder, "%s", c->models_dir);
    c->jobs++;
    uv_queue_work(c->loop, &j->work, job_run, job_done);
}

static void models_close(struct coordinator *c, const char *id)
{
    for (struct open_model **p = &c->models; *p; p = &(*p)->next)
        if (strcmp((*p)->id, id) == 0) {
            struct open_model *m = *p;
            *p = m->next;
            model_close(&m->model);
            free(m);
            break;
        }
    model_heads_remove(c->models_dir, id);
}

/* ---- work of the core, on other threads (work.h)
 * --------------------------------------------------------------------- */

struct work_job {
    uv_work_t uv;
    struct coordinator *owner;
    struct work *work;
};

static void work_run(uv_work_t *uv)
{
    struct work_job *j = uv->data;
    j->work->run(j->work);
}

static void work_done(uv_work_t *uv, int status)
{
    (void)status;
    struct work_job *j = uv->data;
    struct coordinator *c = j->owner;
    c->jobs--;
    core_worked(c->core, j->work);
    free(j);
    if (c->closing)
        coordinator_free_when_idle(c);
    else
        settle(c);
}

static void work_start(struct coordinator *c, struct work *w)
{
    struct work_job *j = calloc(1, sizeof *j);
    if (!j) { /* slowly is better than not at all */
        w->run(w);
        core_worked(c->core, w);
        return;
    }
    *j = (struct work_job){.owner = c, .work = w};
    j->uv.data = j;
    c->jobs++;
    uv_queue_work(c->loop, &j->uv, work_run, work_done);
}

/* ---- the gateway's table: the core's, with a note that there is something to do
 * --------------------------------------- */

static int requests_models(void *ctx, struct request_model *out, int max)
{
    struct coordinator *c = ctx;
    return c->core_requests.models(c->core_requests.ctx, out, max);
}

static int requests_find(void *ctx, const char *name, struct request_model *out, struct err *e)
{
    struct coordinator *c = ctx;
    return c->core_requests.find(c->core_requests.ctx, name, out, e);
}

static int requests_open(void *ctx, const struct request *r, uint64_t *id, struct err *e)
{
    struct coordinator *c = ctx;
    c->dirty = true;
    return c->core_requests.open(c->core_requests.ctx, r, id, e);
}

static void requests_cancel(void *ctx, uint64_t id, bool satisfied, struct request_usage *usage)
{
    struct coordinator *c = ctx;
    c->dirty = true;
    c->core_requests.cancel(c->core_requests.ctx, id, satisfied, usage);
}

static int requests_api_keys(void *ctx)
{
    struct coordinator *c = ctx;
    return c->core_requests.api_keys(c->core_requests.ctx);
}

static bool requests_api_key_allowed(void *ctx, const char *key, char name[REQUEST_KEY_NAME_BYTES])
{
    struct coordinator *c = ctx;
    return c->core_requests.api_key_allowed(c->core_requests.ctx, key, name);
}

static void requests_metrics(void *ctx,
                             void (*row)(void *, const char *, const char *, const char *,
                                         const char *, double),
                             void *out)
{
    struct coordinator *c = ctx;
    c->core_requests.metrics(c->core_requests.ctx, row, out);
}

static int requests_work(void *ctx, const struct model *model, struct work *w, struct err *e)
{
    struct coordinator *c = ctx;
    c->dirty = true;
    return c->core_requests.work(c->core_requests.ctx, model, w, e);
}

/* ---- the loop
 * ------------------------------------------------------------------------------------------------------------
 */

static int coordinator_json_write(const struct coordinator *c, struct err *e)
{
    char file[PATH_BYTES + 32];
    snprintf(file, sizeof file, "%s/coordinator.json", c->dir);
    json_t *root =
        json_pack("{s:I, s:s, s:s, s:s}", "pid", (json_int_t)getpid(), "control",
                  c->control_address, "http", c->http_address, "public_key", c->own.public_key);
    int rc = root ? json_save(root, file, e) : err_set(e, HP_ENOMEM, "no memory for %s", file);
    json_decref(root);
    return rc;
}

/* "HOST:PORT" with the port that was got. */
static void address_set(char out[ADDRESS_BYTES], const char *asked, int port)
{
    const char *colon = strrchr(asked, ':');
    snprintf(out, ADDRESS_BYTES, "%.*s:%d", colon ? (int)(colon - asked) : (int)strlen(asked),
             asked, port);
}

static int gateway_try(struct coordinator *c, struct err *e)
{
    c->gateway_tried_ns = env_now_ns(&env_real);
    int rc = gateway_start(c->loop, &c->gateway_config, &c->requests, &c->gateway, e);
    if (rc == 0)
        address_set(c->http_address, c->http_wanted, gateway_port(c->gateway));
    return rc;
}

/* A gateway that waits for its first API key. */
static void gateway_retry(struct coordinator *c)
{
    if (c->gateway || !c->http_wanted[0] || c->core_requests.api_keys(c->core) == 0 ||
        env_now_ns(&env_real) - c->gateway_tried_ns < GATEWAY_RETRY_NS)
        return;
    struct err e = {0};
    int rc = gateway_try(c, &e);
    if (rc == 0)
        rc = coordinator_json_write(c, &e);
    if (rc < 0)
        log_warn("coordinator", "no_gateway", "why=\"%s\" do=\"%s\"", e.text, e.hint);
}

static void on_tick(uv_timer_t *t)
{
    struct coordinator *c = t->data;
    control_read(c->control); /* who has spoken is not silent */
    core_tick(c->core);
    settle(c);
    gateway_retry(c);
}

static void on_prepare(uv_prepare_t *p)
{
    struct coordinator *c = p->data;
    if (c->dirty)
        settle(c);
}

static void on_check(uv_check_t *p)
{
    struct coordinator *c = p->data;
    if (c->dirty)
        settle(c);
}

static int handles_start(struct coordinator *c, struct err *e)
{
    uv_timer_init(c->loop, &c->tick);
    uv_prepare_init(c->loop, &c->prepare);
    uv_check_init(c->loop, &c->check);
    uv_async_init(c->loop, &c->stored, on_stored);
    c->tick.data = c->prepare.data = c->check.data = c->stored.data = c;
    c->handles = 4;
    uv_timer_start(&c->tick, on_tick, CORE_TICK_MS, CORE_TICK_MS);
    uv_prepare_start(&c->prepare, on_prepare);
    uv_check_start(&c->check, on_check);
    struct store_queue_config config = {.ctx = c, .wake = store_wake};
    int rc = store_queue_start(c->store, &config, &c->queue, e);
    if (rc == 0)
        c->store = NULL;
    return rc;
}

/* ---- opening and closing
 * -----------------------------------------------------------------------------------------------------
 */

static int folder_make(const char *dir, struct err *e)
{
    char path[PATH_BYTES];
    if (snprintf(path, sizeof path, "%s", dir) >= (int)sizeof path - 64)
        return err_set(e, HP_EINVAL, "the name of the folder is too long");
    for (char *p = path + 1;; p++) {
        char kept = *p;
        if (kept != '/' && kept != 0)
            continue;
        *p = 0;
        if (mkdir(path, 0700) != 0 && errno != EEXIST)
            return err_set(e, HP_EIO, "%s: cannot make this folder: %s", path, strerror(errno));
        *p = kept;
        if (!kept)
            return 0;
    }
}

static int keys_load(const char *dir, struct key_pair *own, struct key_pair *admin, struct err *e)
{
    char file[PATH_BYTES + 32];
    int rc = folder_make(dir, e);
    if (rc < 0)
        return rc;
    snprintf(file, sizeof file, "%s/server.key", dir);
    if ((rc = key_pair_load_or_create(file, own, e)) < 0)
        return rc;
    snprintf(file, sizeof file, "%s/admin.key", dir);
    return key_pair_load_or_create(file, admin, e);
}

int coordinator_init(const char *dir, struct err *e)
{
    struct key_pair own, admin;
    return keys_load(dir, &own, &admin, e);
}

struct restoring {
    struct core *core;
    const char *kind;
};

static int restore_one(void *ctx, const char *key, const void *bytes, size_t size, struct err *e)
{
    struct restoring *r = ctx;
    return core_restore(r->core, r->kind, key, bytes, size, e);
}

static int core_open(struct coordinator *c, const struct coordinator_config *own, struct err *e)
{
    char file[PATH_BYTES + 32];
    snprintf(file, sizeof file, "%s/store.db", c->dir);
    int rc = store_open_sqlite(file, &c->store, e);
    if (rc < 0)
        return rc;
    struct core_config config = {.env = &env_real,
                                 .cluster = own->name,
                                 .data = own->data,
                                 .version = HP_VERSION,
                                 .public_key = c->own.public_key,
                                 .admin_key = c->admin.public_key,
                                 .http = strcmp(own->http, "none") == 0 ? "" : own->http,
                                 .unix_s = (uint64_t)time(NULL),
                                 .time_scale = env_time_scale(),
                                 .log_read = log_ring_read,
                                 .log_ctx = c->log};
    rc = core_create(&config, &c->core, e);
    for (int i = 0; rc == 0 && core_kinds[i]; i++) {
        struct restoring r = {c->core, core_kinds[i]};
        rc = store_each(c->store, core_kinds[i], restore_one, &r, e);
    }
    if (rc < 0)
        return rc;
    core_start(c->core);
    core_requests(c->core, &c->core_requests);
    c->requests = (struct requests){c,
                                    requests_models,
                                    requests_find,
                                    requests_open,
                                    requests_cancel,
                                    requests_api_keys,
                                    requests_api_key_allowed,
                                    requests_metrics,
                                    requests_work};
    return 0;
}

static int listen_start(struct coordinator *c, const struct coordinator_config *config,
                        struct err *e)
{
    struct control_callbacks cb = {c, on_message, on_knows};
    int rc = control_serve_zmq(c->loop, config->listen, &c->own, &cb, &c->control, e);
    if (rc < 0)
        return rc;
    address_set(c->control_address, config->listen, control_port(c->control));
    if (strcmp(config->http, "none") == 0)
        return 0;
    snprintf(c->http_wanted, sizeof c->http_wanted, "%s", config->http);
    c->gateway_config =
        (struct gateway_config){c->http_wanted, config->http_hosts, config->n_http_hosts,
                                config->http_open, config->http_max_body_bytes};
    rc = gateway_try(c, e);
    if (rc == HP_EDENIED) {
        log_warn("coordinator", "no_gateway", "why=\"%s\" do=\"%s\"", e->text, e->hint);
        rc = 0;
    }
    return rc;
}

int coordinator_open(uv_loop_t *loop, const struct coordinator_config *config,
                     struct coordinator **out, struct err *e)
{
    struct coordinator *c = calloc(1, sizeof *c);
    if (!c)
        return err_set(e, HP_ENOMEM, "no memory for the coordinator");
    c->loop = loop;
    snprintf(c->dir, sizeof c->dir, "%s", config->dir);
    snprintf(c->models_dir, sizeof c->models_dir, "%s/models", config->dir);
    if (!(c->log = log_ring_create())) {
        free(c);
        return err_set(e, HP_ENOMEM, "no memory for the coordinator");
    }
    log_set_sink(log_ring_add, c->log);
    int rc = keys_load(config->dir, &c->own, &c->admin, e);
    if (rc == 0)
        rc = core_open(c, config, e);
    if (rc == 0)
        rc = listen_start(c, config, e);
    if (rc == 0)
        rc = handles_start(c, e);
    if (rc < 0) {
        coordinator_close(&c);
        return rc;
    }
    struct err unwritten = {0};
    if (coordinator_json_write(c, &unwritten) <
        0) /* a full disk: who knows the addresses can use them */
        log_warn("coordinator", "addresses_not_written", "why=\"%s\"", unwritten.text);
    c->dirty = true;
    log_info("coordinator", "listening", "control=%s http=%s dir=%s", c->control_address,
             c->http_address[0] ? c->http_address : "none", c->dir);
    *out = c;
    return 0;
}

static void coordinator_free_when_idle(struct coordinator *c)
{
    if (c->handles > 0 || c->jobs > 0)
        return;
    while (c->models) {
        struct open_model *m = c->models;
        c->models = m->next;
        model_close(&m->model);
        free(m);
    }
    core_destroy(&c->core);
    store_close(&c->store);
    log_set_sink(NULL, NULL);
    log_ring_destroy(&c->log);
    free(c);
}

static void on_closed(uv_handle_t *h)
{
    struct coordinator *c = h->data;
    c->handles--;
    coordinator_free_when_idle(c);
}

void coordinator_drain(struct coordinator *c, uint64_t patience_ms, void (*drained)(void *ctx),
                       void *ctx)
{
    c->http_wanted[0] = 0; /* none is started any more */
    if (c->gateway)
        gateway_drain(c->gateway, patience_ms, drained, ctx);
    else
        drained(ctx);
}

void coordinator_close(struct coordinator **out)
{
    struct coordinator *c = *out;
    *out = NULL;
    if (!c)
        return;
    if (c->gateway)
        gateway_stop(&c->gateway);
    if (c->control)
        control_close(&c->control);
    c->closing = true;
    if (c->core)
        core_works_cancel(c->core);
    store_queue_stop(&c->queue);
    if (c->handles == 0) {
        coordinator_free_when_idle(c);
        return;
    }
    uv_close((uv_handle_t *)&c->tick, on_closed);
    uv_close((uv_handle_t *)&c->prepare, on_closed);
    uv_close((uv_handle_t *)&c->check, on_closed);
    uv_close((uv_handle_t *)&c->stored, on_closed);
}

const char *coordinator_control_address(const struct coordinator *c)
{
    return c->control_address;
}
const char *coordinator_http_address(const struct coordinator *c)
{
    return c->http_address;
}
const char *coordinator_public_key(const struct coordinator *c)
{
    return c->own.public_key;
}
