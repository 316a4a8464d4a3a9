#include "hpctl/embedded.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

#include "agent/agent.h"
#include "common/fs.h"
#include "common/log.h"
#include "coordinator/coordinator.h"
#include "hpctl/client.h"
#include "transport/control.h"

enum { FOLDER_BYTES = 1024, TOKEN_SECONDS = 600 };
static const char server_name[] = "this process";

/* What the caller's thread has the loop's do, one at a time. */
enum embedded_order { ORDER_NONE, ORDER_AGENT, ORDER_STOP };

struct embedded {
    struct control_hub *hub;
    struct context where;
    struct discover_share share;
    struct join_token token;
    char dir[FOLDER_BYTES], agent_dir[FOLDER_BYTES + 8], measured[FOLDER_BYTES], http[64];
    uint64_t patience_ms; /* of ORDER_STOP */
    FILE *log;
    pthread_t thread;
    bool runs; /* the thread does */
    /* the loop's thread's own */
    uv_loop_t loop;
    uv_async_t wake;
    struct coordinator *coordinator;
    struct agent *agent;
    /* under `lock` */
    pthread_mutex_t lock;
    pthread_cond_t done;
    enum embedded_order order;
    bool ordered; /* and not done yet */
    int rc;
    struct err why; /* of `rc`, and of the agent's end */
    struct err quit;
};

/* ---- on the loop's thread ---- */

static void order_done(struct embedded *m, int rc, const struct err *e)
{
    pthread_mutex_lock(&m->lock);
    m->rc = rc;
    if (rc < 0)
        m->why = *e;
    m->ordered = false;
    pthread_cond_signal(&m->done);
    pthread_mutex_unlock(&m->lock);
}

static void on_quit(void *ctx, const struct err *why)
{
    struct embedded *m = ctx;
    pthread_mutex_lock(&m->lock);
    m->quit = *why;
    pthread_mutex_unlock(&m->lock);
}

static void agent_begin(struct embedded *m)
{
    struct err e = {0};
    struct agent_config c = {.coordinator = server_name,
                             .hub = m->hub,
                             .server_key = m->where.server_key,
                             .secret = m->token.secret,
                             .name = "here",
                             .dir = m->agent_dir,
                             .network = "lo",
                             .measured_dir = m->measured[0] ? m->measured : NULL,
                             .share = m->share,
                             .store_borrows = true, /* it lives as long as whoever named the file */
                             .quit = on_quit,
                             .ctx = m};
    order_done(m, agent_start(&m->loop, &c, &m->agent, &e), &e);
}

static void on_drained(void *ctx)
{
    struct embedded *m = ctx;
    agent_stop(&m->agent);
    coordinator_close(&m->coordinator);
    uv_close((uv_handle_t *)&m->wake, NULL);
}

static void on_wake(uv_async_t *a)
{
    struct embedded *m = a->data;
    pthread_mutex_lock(&m->lock);
    enum embedded_order order = m->order;
    m->order = ORDER_NONE;
    pthread_mutex_unlock(&m->lock);
    if (order == ORDER_AGENT)
        agent_begin(m);
    else if (order == ORDER_STOP)
        coordinator_drain(m->coordinator, m->patience_ms, on_drained, m);
}

static int coordinator_begin(struct embedded *m, struct err *e)
{
    struct coordinator_config c = {.dir = m->dir,
                                   .listen = server_name,
                                   .hub = m->hub,
                                   .forgets = true,
                                   .http = m->http,
                                   .name = "own"};
    int rc = coordinator_open(&m->loop, &c, &m->coordinator, e);
    if (rc < 0)
        return rc;
    memcpy(m->where.server_key, coordinator_public_key(m->coordinator), KEY_TEXT);
    snprintf(m->where.http, sizeof m->where.http, "http://%s",
             coordinator_http_address(m->coordinator));
    return 0;
}

/* Until every handle is closed. */
static void *loop_run(void *ctx)
{
    struct embedded *m = ctx;
    struct err e = {0};
    int rc = coordinator_begin(m, &e);
    if (rc < 0)
        uv_close((uv_handle_t *)&m->wake, NULL);
    order_done(m, rc, &e);
    uv_run(&m->loop, UV_RUN_DEFAULT);
    return NULL;
}

/* ---- on the caller's ---- */

static int order_await(struct embedded *m, struct err *e)
{
    pthread_mutex_lock(&m->lock);
    while (m->ordered)
        pthread_cond_wait(&m->done, &m->lock);
    int rc = m->rc;
    if (rc < 0)
        *e = m->why;
    pthread_mutex_unlock(&m->lock);
    return rc;
}

static void order_give(struct embedded *m, enum embedded_order order)
{
    pthread_mutex_lock(&m->lock);
    m->order = order;
    m->ordered = true;
    uv_async_send(&m->wake);
    pthread_mutex_unlock(&m->lock);
}

/* Threads take the mask of who starts them: those of the cluster get no signal, and a pipe that
 * nobody reads is an error of its write. A file that became shorter is the business of the thread
 * that reads it (model/files/mapped_file.h). */
static int thread_start(struct embedded *m, struct err *e)
{
    sigset_t all, before;
    sigfillset(&all);
    sigdelset(&all, SIGBUS);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    m->ordered = true;
    int rc = pthread_create(&m->thread, NULL, loop_run, m);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    m->runs = rc == 0;
    return rc == 0 ? order_await(m, e)
                   : err_set(e, HP_EIO, "cannot start a thread: %s", strerror(rc));
}

/* Lines of its log are no business of the terminal's. */
static int log_begin(struct embedded *m, struct err *e)
{
    char file[FOLDER_BYTES + 8];
    snprintf(file, sizeof file, "%s/log", m->dir);
    m->log = fopen(file, "ae");
    if (!m->log)
        return fs_error(file, "write", e);
    setlinebuf(m->log);
    log_set_output(m->log);
    return 0;
}

static int agent_invite(struct embedded *m, struct err *e)
{
    struct client *client;
    json_t *made = NULL;
    int rc = client_open_at(&m->where, 0, &client, e);
    if (rc < 0)
        return rc;
    rc = client_get(client, "token.create", json_pack("{s:i}", "ttl_s", TOKEN_SECONDS), &made, e);
    client_close(&client);
    const char *text = rc == 0 ? json_string_value(json_object_get(made, "token")) : NULL;
    if (rc == 0)
        rc = text ? join_token_parse(text, &m->token, e)
                  : err_set(e, HP_EPROTO, "the coordinator made no join token");
    json_decref(made);
    return rc;
}

static int parts_start(struct embedded *m, struct err *e)
{
    char admin[FOLDER_BYTES + 16];
    int rc = fs_folder_make(m->agent_dir, 0700, e);
    rc = rc < 0 ? rc : log_begin(m, e);
    rc = rc < 0 ? rc : thread_start(m, e);
    snprintf(admin, sizeof admin, "%s/admin.key", m->dir);
    rc = rc < 0 ? rc : key_pair_load(admin, &m->where.admin, e);
    rc = rc < 0 ? rc : agent_invite(m, e);
    if (rc < 0)
        return rc;
    order_give(m, ORDER_AGENT);
    return order_await(m, e);
}

int embedded_start(const struct embedded_options *o, struct embedded **out, struct err *e)
{
    struct embedded *m = calloc(1, sizeof *m);
    *out = NULL;
    if (!m)
        return err_no_memory(e, "a cluster");
    pthread_mutex_init(&m->lock, NULL);
    pthread_cond_init(&m->done, NULL);
    uv_loop_init(&m->loop);
    uv_async_init(&m->loop, &m->wake, on_wake);
    m->wake.data = m;
    m->share = *o->share;
    snprintf(m->dir, sizeof m->dir, "%s", o->dir);
    snprintf(m->agent_dir, sizeof m->agent_dir, "%s/agent", o->dir);
    snprintf(m->measured, sizeof m->measured, "%s", o->measured);
    snprintf(m->http, sizeof m->http, "%s", o->http);
    snprintf(m->where.name, sizeof m->where.name, "own");
    snprintf(m->where.control, sizeof m->where.control, "%s", server_name);
    m->where.hub = m->hub = control_hub_create();
    int rc = m->hub ? parts_start(m, e) : err_no_memory(e, "a cluster");
    if (rc < 0)
        embedded_stop(&m, 0);
    *out = m;
    return rc;
}

const struct context *embedded_context(const struct embedded *m)
{
    return &m->where;
}

int embedded_check(struct embedded *m, struct err *e)
{
    pthread_mutex_lock(&m->lock);
    int rc = m->quit.code;
    if (rc < 0)
        *e = m->quit;
    pthread_mutex_unlock(&m->lock);
    return rc;
}

void embedded_stop(struct embedded **out, uint64_t patience_ms)
{
    struct embedded *m = *out;
    if (!m)
        return;
    *out = NULL;
    m->patience_ms = patience_ms;
    if (!m->runs) {
        uv_close((uv_handle_t *)&m->wake, NULL);
        uv_run(&m->loop, UV_RUN_DEFAULT);
    } else if (m->coordinator) { /* else the loop has ended by itself */
        order_give(m, ORDER_STOP);
    }
    if (m->runs)
        pthread_join(m->thread, NULL);
    uv_loop_close(&m->loop);
    control_hub_destroy(&m->hub);
    log_set_output(NULL);
    if (m->log)
        fclose(m->log);
    pthread_cond_destroy(&m->done);
    pthread_mutex_destroy(&m->lock);
    free(m);
}
