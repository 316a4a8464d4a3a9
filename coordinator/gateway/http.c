#include <errno.h>
#include <gnutls/abstract.h>
#include <gnutls/gnutls.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/env.h"
#include "coordinator/gateway/http_int.h"
#include "coordinator/gateway/listen_address.h"
#include "coordinator/gateway/tls_files.h"

enum { DEADLINE_CHECK_MS = 500, CONNECTION_MEMORY_BYTES = 32768 };

/* ---- the daemon on the loop ---- */

static void on_timer(uv_timer_t *timer);

static void run_daemon(struct http_server *s)
{
    if (s->stopping)
        return;
    s->work = false;
    MHD_run(s->daemon);
    http_handshakes_check(s);
    unsigned long long wait_ms;
    if (MHD_get_timeout(s->daemon, &wait_ms) == MHD_YES)
        uv_timer_start(&s->timer, on_timer, wait_ms, 0);
    else
        uv_timer_stop(&s->timer);
}

static void on_timer(uv_timer_t *timer)
{
    ((struct http_server *)timer->data)->work = true;
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
    (void)status, (void)events;
    ((struct http_server *)poll->data)->work = true;
}

/* After descriptors ran out MHD listens again only when it is run, and then nothing may ever wake
 * it. */
static void on_deadlines(uv_timer_t *timer)
{
    http_deadline_check(timer);
    on_timer(timer);
}

/* Once in a turn of the loop, whatever there is to do: each run takes a request or two of every
 * connection that has some waiting, and others on the loop have their turn between two. */
static void on_prepare(uv_prepare_t *prepare)
{
    struct http_server *s = prepare->data;
    http_streams_send(s);
    if (s->work)
        run_daemon(s);
    if (s->work)
        uv_timer_start(&s->timer, on_timer, 0, 0);
}

/* ---- starting ---- */

/* Each connection takes two descriptors, its own and the watch's; the rest of the process keeps
 * some. */
static unsigned connections_allowed(unsigned asked)
{
    struct rlimit files;
    rlim_t have = getrlimit(RLIMIT_NOFILE, &files) == 0 ? files.rlim_cur : 1024;
    rlim_t spare = have / 4 < HTTP_SPARE_DESCRIPTORS ? have / 4 : HTTP_SPARE_DESCRIPTORS;
    rlim_t most = have == RLIM_INFINITY || have / 2 - spare > HTTP_MAX_CONNECTIONS
                      ? HTTP_MAX_CONNECTIONS
                      : have / 2 - spare;
    return asked && asked < most ? asked : (unsigned)most;
}

/* A path is a text that ends with its first zero byte: one that is written down stays as it is, so
 * that "/%00" is no "/". */
static size_t path_unescape(void *ctx, struct MHD_Connection *connection, char *text)
{
    (void)ctx, (void)connection;
    return strstr(text, "%00") ? strlen(text) : MHD_http_unescape(text);
}

/* The library wants to be told of a certificate, and each session has its own
 * (http_handshake.c). */
static int certificate_of_none(gnutls_session_t session, const gnutls_datum_t *authorities,
                               int n_authorities, const gnutls_pk_algorithm_t *algorithms,
                               int n_algorithms, gnutls_pcert_st **certificates,
                               unsigned *n_certificates, gnutls_privkey_t *key)
{
    (void)session, (void)authorities, (void)n_authorities, (void)algorithms, (void)n_algorithms;
    *certificates = NULL;
    *n_certificates = 0;
    *key = NULL;
    return -1;
}

static struct MHD_Daemon *daemon_start(struct http_server *s)
{
    const struct MHD_OptionItem settings[] = {
        {MHD_OPTION_HTTPS_CERT_CALLBACK, 0, (void *)(uintptr_t)certificate_of_none},
        {MHD_OPTION_HTTPS_PRIORITIES, 0,
         (void *)(uintptr_t) "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2"},
        {MHD_OPTION_END, 0, NULL}};
    const struct MHD_OptionItem *more = s->tls ? settings : &settings[2];
    unsigned flags = MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | (s->tls ? MHD_USE_TLS : 0u);
    return MHD_start_daemon(
        flags, 0, NULL, NULL, http_exchange_on_request, s, MHD_OPTION_LISTEN_SOCKET, s->socket,
        MHD_OPTION_NOTIFY_COMPLETED, http_exchange_on_completed, s, MHD_OPTION_NOTIFY_CONNECTION,
        http_deadline_on_connection, s, MHD_OPTION_URI_LOG_CALLBACK, http_deadline_on_first_line, s,
        MHD_OPTION_CONNECTION_LIMIT, s->limits.connections, MHD_OPTION_PER_IP_CONNECTION_LIMIT,
        s->limits.connections_per_address, MHD_OPTION_CONNECTION_TIMEOUT,
        (unsigned)HTTP_IDLE_MS / 1000, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        (size_t)CONNECTION_MEMORY_BYTES, MHD_OPTION_UNESCAPE_CALLBACK, path_unescape, NULL,
        MHD_OPTION_ARRAY, more, MHD_OPTION_END);
}

static void handles_start(struct http_server *s, int epoll_fd)
{
    s->poll.data = s->timer.data = s->prepare.data = s->deadlines.data = s;
    uv_poll_init(s->loop, &s->poll, epoll_fd);
    uv_poll_start(&s->poll, UV_READABLE, on_poll);
    uv_timer_init(s->loop, &s->timer);
    uv_timer_init(s->loop, &s->deadlines);
    uv_timer_start(&s->deadlines, on_deadlines, DEADLINE_CHECK_MS, DEADLINE_CHECK_MS);
    uv_prepare_init(s->loop, &s->prepare);
    uv_prepare_start(&s->prepare, on_prepare);
    s->handles = 4;
}

int http_start(uv_loop_t *loop, const char *host, int port, const struct http_limits *limits,
               struct tls_files *tls, const struct http_handler *h, struct http_server **out,
               struct err *e)
{
    struct http_server *s = calloc(1, sizeof *s);
    if (!s)
        return err_set(e, HP_ENOMEM, "out of memory for the gateway");
    s->handler = *h;
    s->limits = *limits;
    s->limits.connections = connections_allowed(limits->connections);
    if (limits->connections_per_address > s->limits.connections / 2)
        s->limits.connections_per_address = s->limits.connections / 2;
    s->loop = loop;
    s->tls = tls;
    s->writable = http_stream_writable;
    s->next_request_id = env_random_u64(&env_real);
    s->socket = listen_socket_open("HTTP", host, port, &s->port, e);
    if (s->socket < 0) {
        int rc = s->socket;
        free(s);
        return rc;
    }
    s->daemon = daemon_start(s);
    const union MHD_DaemonInfo *info =
        s->daemon ? MHD_get_daemon_info(s->daemon, MHD_DAEMON_INFO_EPOLL_FD) : NULL;
    if (!info) {
        if (s->daemon)
            MHD_stop_daemon(s->daemon);
        else
            close(s->socket);
        free(s);
        return err_set(e, HP_EIO, "cannot start the HTTP server");
    }
    handles_start(s, info->epoll_fd);
    *out = s;
    return 0;
}

int http_port(const struct http_server *s)
{
    return s->port;
}

struct http_figures http_figures(const struct http_server *s)
{
    struct http_figures f = s->figures;
    f.connections_limit = s->limits.connections;
    return f;
}

/* ---- stopping ---- */

static void on_handle_closed(uv_handle_t *handle)
{
    struct http_server *s = handle->data;
    if (--s->handles == 0)
        free(s);
}

void http_stop(struct http_server **out)
{
    struct http_server *s = *out;
    *out = NULL;
    if (!s)
        return;
    s->stopping = true;
    http_linger_stop(s);
    for (struct http_exchange *x = s->exchanges; x; x = x->next) {
        http_watch_stop(x);
        http_watch_gone(x);
        if (x->suspended) {
            x->suspended = false;
            MHD_resume_connection(x->connection);
        }
    }
    http_handshakes_stop(s);
    uv_poll_stop(&s->poll);
    MHD_run(s->daemon);
    MHD_stop_daemon(s->daemon); /* closes the listening socket */
    tls_files_close(&s->tls);
    uv_close((uv_handle_t *)&s->poll, on_handle_closed);
    uv_close((uv_handle_t *)&s->timer, on_handle_closed);
    uv_close((uv_handle_t *)&s->deadlines, on_handle_closed);
    uv_close((uv_handle_t *)&s->prepare, on_handle_closed);
}
