#include "coordinator/coordinator.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/env.h"
#include "common/fs.h"
#include "common/json.h"
#include "common/log.h"
#include "coordinator/coordinator_int.h"
#include "coordinator/store/store_queue.h"
#include "transport/control.h"

enum { GATEWAY_RETRY_NS = 1000000000, BOOT_NAP_NS = 10000000 };

static void on_wake(uv_async_t *a)
{
    struct coordinator *c = a->data;
    uint64_t number;
    struct err why;
    while (c->queue && store_queue_next(c->queue, &number, &why))
        coord_stored(c->core, number, &why);
    coordinator_settle(c);
}

/* On the store's thread, and on the loop's from within a call of the gateway. */
static void loop_wake(void *ctx)
{
    uv_async_send(&((struct coordinator *)ctx)->wake);
}

static void on_message(void *ctx, uint64_t peer, const char *key, const uint8_t *bytes, size_t size)
{
    struct coordinator *c = ctx;
    coord_message(c->core, peer, key, bytes, size);
    coordinator_settle(c);
}

static bool on_knows(void *ctx, const char *key)
{
    return coord_knows_key(((struct coordinator *)ctx)->core, key);
}

/* ---- the loop ---- */

static int coordinator_json_write(const struct coordinator *c, struct err *e)
{
    char file[SHELL_PATH_BYTES + 32];
    snprintf(file, sizeof file, "%s/coordinator.json", c->dir);
    json_t *root = json_pack("{s:I, s:s, s:s, s:s, s:s}", "pid", (json_int_t)getpid(), "control",
                             c->control_address, "http", c->http_address, "grpc", c->grpc_address,
                             "public_key", c->own.public_key);
    int rc = root ? json_save(root, file, e) : err_set(e, HP_ENOMEM, "no memory for %s", file);
    json_decref(root);
    return rc;
}

/* "HOST:PORT" with the port that was got. */
static void address_set(char out[SHELL_ADDRESS_BYTES], const char *asked, int port)
{
    const char *colon = strrchr(asked, ':');
    snprintf(out, SHELL_ADDRESS_BYTES, "%.*s:%d", colon ? (int)(colon - asked) : (int)strlen(asked),
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

/* Whether gRPC has begun to listen: beyond loopback it waits for the first API key. */
static bool grpc_is_new(struct coordinator *c)
{
    int port = c->gateway && !c->grpc_address[0] ? gateway_grpc_port(c->gateway) : 0;
    if (port > 0)
        address_set(c->grpc_address, c->grpc_wanted, port);
    return port > 0;
}

/* A gateway that waits for its first API key. */
static void gateway_retry(struct coordinator *c)
{
    struct err unwritten = {0};
    if (grpc_is_new(c) && coordinator_json_write(c, &unwritten) < 0)
        log_warn("coordinator", "addresses_not_written", "why=\"%s\"", unwritten.text);
    if (c->gateway || !c->http_wanted[0] || c->requests.api_keys(c->requests.ctx) == 0 ||
        env_now_ns(&env_real) - c->gateway_tried_ns < GATEWAY_RETRY_NS)
        return;
    struct err e = {0};
    int rc = gateway_try(c, &e);
    if (rc == 0) {
        grpc_is_new(c);
        rc = coordinator_json_write(c, &e);
    }
    if (rc < 0)
        log_warn("coordinator", "no_gateway", "why=\"%s\" do=\"%s\"", e.text, e.hint);
}

static void on_tick(uv_timer_t *t)
{
    struct coordinator *c = t->data;
    control_read(c->control); /* who has spoken is not silent */
    coord_wall_clock(c->core, (uint64_t)time(NULL));
    coord_tick(c->core);
    coordinator_settle(c);
    gateway_retry(c);
}

static int handles_start(struct coordinator *c, struct err *e)
{
    int rc = coordinator_pools_timer_start(c, e);
    if (rc < 0)
        return rc;
    uv_timer_init(c->loop, &c->tick);
    uv_async_init(c->loop, &c->wake, on_wake);
    c->tick.data = c->wake.data = c;
    c->handles = 3;
    uv_timer_start(&c->tick, on_tick, COORD_TICK_MS, COORD_TICK_MS);
    struct store_queue_config config = {.ctx = c, .wake = loop_wake};
    rc = store_queue_start(c->store, &config, &c->queue, e);
    if (rc == 0)
        c->store = NULL;
    return rc;
}

/* ---- opening and closing ---- */

static int keys_load(const char *dir, struct key_pair *own, struct key_pair *admin, struct err *e)
{
    char file[SHELL_PATH_BYTES + 32];
    int rc = fs_folder_make(dir, 0700, e);
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

struct kind_restoring {
    struct coord *core;
    const char *kind;
};

static int restore_one(void *ctx, const char *key, const void *bytes, size_t size, struct err *e)
{
    struct kind_restoring *r = ctx;
    return coord_restore(r->core, r->kind, key, bytes, size, e);
}

/* The number of this run is stored before anybody hears of it. Where it cannot be, it is the
 * clock's, which is waited for until it is past it, so that the next run's is another. */
static bool boot_keep(struct coordinator *c, uint64_t unix_s)
{
    struct err e = {0};
    char text[24];
    uint64_t ahead_s = coord_boot_ahead_s(c->core);
    int n = snprintf(text, sizeof text, "%llu", (unsigned long long)coord_boot_next(c->core));
    struct store_change boot = {"meta", "boot", text, (size_t)n};
    if (store_apply(c->store, &boot, 1, &e) == 0)
        return true;
    log_warn("coordinator", "boot_not_stored", "why=\"%s\"", e.text);
    uint64_t last_s = unix_s + (ahead_s <= COORD_BOOT_AHEAD_S ? ahead_s : 0), now_s = unix_s;
    while (now_s >= unix_s && now_s <= last_s) {
        nanosleep(&(struct timespec){0, BOOT_NAP_NS}, NULL);
        now_s = (uint64_t)time(NULL);
    }
    return false;
}

static int coord_open(struct coordinator *c, const struct coordinator_config *own, struct err *e)
{
    char file[SHELL_PATH_BYTES + 32];
    snprintf(file, sizeof file, "%s/store.db", c->dir);
    int rc = own->forgets ? store_open_memory(&c->store, e) : store_open_sqlite(file, &c->store, e);
    if (rc < 0)
        return rc;
    struct coord_config config = {.env = &env_real,
                                  .cluster = own->name,
                                  .data = own->data,
                                  .version = HP_VERSION,
                                  .public_key = c->own.public_key,
                                  .admin_key = c->admin.public_key,
                                  .http = strcmp(own->http, "none") == 0 ? "" : own->http,
                                  .unix_s = (uint64_t)time(NULL),
                                  .resume_ms = own->resume_ms,
                                  .time_scale = env_time_scale(),
                                  .log_read = log_ring_read,
                                  .log_ctx = c->log,
                                  .data_open = coordinator_data_open,
                                  .data_ctx = c,
                                  .wake = loop_wake,
                                  .wake_ctx = c};
    rc = coord_create(&config, &c->core, e);
    for (int i = 0; rc == 0 && coord_kinds[i]; i++) {
        struct kind_restoring r = {c->core, coord_kinds[i]};
        rc = store_each(c->store, coord_kinds[i], restore_one, &r, e);
    }
    if (rc < 0)
        return err_at(e, "%s", file);
    coord_start(c->core, boot_keep(c, config.unix_s));
    coord_requests(c->core, &c->requests);
    coord_pool_requests(c->core, &c->pool_requests);
    return 0;
}

static int control_start(struct coordinator *c, const struct coordinator_config *config,
                         struct err *e)
{
    struct control_callbacks cb = {c, on_message, on_knows};
    if (config->hub) {
        snprintf(c->control_address, sizeof c->control_address, "%s", config->listen);
        return control_serve_inproc(config->hub, c->loop, config->listen, &c->own, &cb, &c->control,
                                    e);
    }
    int rc = control_serve_zmq(c->loop, config->listen, &c->own, &cb, &c->control, e);
    if (rc == 0)
        address_set(c->control_address, config->listen, control_port(c->control));
    return rc;
}

static int listen_start(struct coordinator *c, const struct coordinator_config *config,
                        struct err *e)
{
    int rc = control_start(c, config, e);
    if (rc < 0)
        return rc;
    if (strcmp(config->http, "none") == 0)
        return 0;
    snprintf(c->http_wanted, sizeof c->http_wanted, "%s", config->http);
    snprintf(c->grpc_wanted, sizeof c->grpc_wanted, "%s", config->grpc ? config->grpc : "");
    c->gateway_config = (struct gateway_config){.listen = c->http_wanted,
                                                .grpc = config->grpc ? c->grpc_wanted : NULL,
                                                .hosts = config->http_hosts,
                                                .n_hosts = config->n_http_hosts,
                                                .origins = config->http_origins,
                                                .n_origins = config->n_http_origins,
                                                .certificate_file = config->http_certificate,
                                                .key_file = config->http_key,
                                                .resume_ms = config->resume_ms,
                                                .open = config->http_open,
                                                .pools = &c->pool_requests,
                                                .max_body_bytes = config->http_max_body_bytes};
    rc = gateway_try(c, e);
    if (rc == HP_EDENIED) {
        log_warn("coordinator", "no_gateway", "why=\"%s\" do=\"%s\"", e->text, e->hint);
        rc = 0;
    }
    grpc_is_new(c);
    return rc;
}

static void coordinator_free_when_idle(struct coordinator *c)
{
    if (c->handles > 0 || c->jobs > 0)
        return;
    coordinator_models_free(c);
    coord_destroy(&c->core);
    store_close(&c->store);
    log_set_sink(NULL, NULL);
    log_ring_destroy(&c->log);
    free(c);
}

static void on_job_ended(struct coordinator *c)
{
    c->jobs--;
    if (c->closing)
        coordinator_free_when_idle(c);
    else
        coordinator_settle(c);
}

int coordinator_open(uv_loop_t *loop, const struct coordinator_config *config,
                     struct coordinator **out, struct err *e)
{
    struct coordinator *c = calloc(1, sizeof *c);
    if (!c)
        return err_set(e, HP_ENOMEM, "no memory for the coordinator");
    c->loop = loop;
    c->job_ended = on_job_ended;
    snprintf(c->dir, sizeof c->dir, "%s", config->dir);
    snprintf(c->models_dir, sizeof c->models_dir, "%s/models", config->dir);
    if (!(c->log = log_ring_create())) {
        free(c);
        return err_set(e, HP_ENOMEM, "no memory for the coordinator");
    }
    log_set_sink(log_ring_add, c->log);
    int rc = keys_load(config->dir, &c->own, &c->admin, e);
    if (rc == 0)
        rc = coord_open(c, config, e);
    if (rc == 0)
        rc = handles_start(c, e);
    if (rc == 0)
        rc = listen_start(c, config, e);
    if (rc < 0) {
        coordinator_close(&c);
        return rc;
    }
    struct err unwritten = {0};
    if (coordinator_json_write(c, &unwritten) <
        0) /* a full disk: who knows the addresses can use them */
        log_warn("coordinator", "addresses_not_written", "why=\"%s\"", unwritten.text);
    loop_wake(c);
    log_info("coordinator", "listening", "control=%s http=%s dir=%s", c->control_address,
             c->http_address[0] ? c->http_address : "none", c->dir);
    *out = c;
    return 0;
}

static void on_closed(uv_handle_t *h)
{
    struct coordinator *c = h->data;
    c->handles--;
    coordinator_free_when_idle(c);
}

static void on_pools_closed(uv_handle_t *h)
{
    close(((struct coordinator *)h->data)->pools_timer);
    on_closed(h);
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
    if (c->core && c->queue) {
        coord_stopping(c->core);
        coordinator_settle(c);
    }
    if (c->gateway)
        gateway_stop(&c->gateway);
    if (c->control)
        control_close(&c->control);
    c->closing = true;
    if (c->core)
        coord_works_cancel(c->core);
    store_queue_stop(&c->queue);
    if (c->handles == 0) {
        coordinator_free_when_idle(c);
        return;
    }
    uv_close((uv_handle_t *)&c->tick, on_closed);
    uv_close((uv_handle_t *)&c->pools, on_pools_closed);
    coordinator_data_close(c);
    uv_close((uv_handle_t *)&c->wake, on_closed);
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
