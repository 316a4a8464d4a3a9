#include "coordinator/gateway/http.h"

#include <errno.h>
#include <fcntl.h>
#include <microhttpd.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/bytes.h"

enum { CONNECTION_LIMIT = 20000, IDLE_TIMEOUT_S = 75, STREAM_BLOCK_BYTES = 16384 };

enum exchange_state {
    RECEIVING, /* the body */
    WAITING,   /* for the owner's answer; suspended unless inside the handler */
    REPLIED,   /* a whole reply is ready or queued */
    STREAMING,
    ENDED,     /* the stream's last piece was given */
    GONE,      /* the client */
};

struct http_exchange {
    struct http_server *server;
    struct MHD_Connection *connection;
    enum exchange_state state;
    struct buffer body;
    bool too_large, suspended;
    struct MHD_Response *response; /* until it is queued */
    int status;
    struct buffer unsent;
    size_t sent; /* of `unsent` */
    void (*gone)(void *ctx);
    void *gone_ctx;
    uv_poll_t *watch; /* of a duplicate of the socket */
    int watch_fd;
    struct http_exchange *next, **link;
};

struct http_server {
    struct http_handler handler;
    uv_loop_t *loop;
    struct MHD_Daemon *daemon;
    uv_poll_t poll;
    uv_timer_t timer;
    uv_prepare_t prepare; /* runs the daemon when something was resumed since */
    int port, handles, socket;
    bool work, stopping;
    struct http_exchange *exchanges;
};

/* ---- watching the sockets of sleeping connections ----------------------------------------------------------------------------- */

static void on_watch_closed(uv_handle_t *handle)
{
    close((int)(intptr_t)handle->data);
    free(handle);
}

static void stop_watching(struct http_exchange *x)
{
    if (!x->watch)
        return;
    uv_poll_stop(x->watch);
    x->watch->data = (void *)(intptr_t)x->watch_fd;
    uv_close((uv_handle_t *)x->watch, on_watch_closed);
    x->watch = NULL;
}

static void wake(struct http_exchange *x)
{
    if (x->suspended) {
        x->suspended = false;
        MHD_resume_connection(x->connection);
    }
    x->server->work = true;
}

static void client_is_gone(struct http_exchange *x)
{
    if (x->state == GONE || x->state == REPLIED || x->state == ENDED)
        return;
    x->state = GONE;
    if (x->gone)
        x->gone(x->gone_ctx);
    x->gone = NULL;
}

static void on_disconnect(uv_poll_t *handle, int status, int events)
{
    struct http_exchange *x = handle->data;
    if (status < 0 || (events & UV_DISCONNECT)) {
        stop_watching(x);
        client_is_gone(x);
        wake(x);
    }
}

static void start_watching(struct http_exchange *x)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(x->connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    x->watch_fd = info ? fcntl(info->connect_fd, F_DUPFD_CLOEXEC, 0) : -1;
    x->watch = x->watch_fd >= 0 ? malloc(sizeof *x->watch) : NULL;
    if (!x->watch) {
        if (x->watch_fd >= 0)
            close(x->watch_fd);
        return;
    }
    uv_poll_init(x->server->loop, x->watch, x->watch_fd);
    x->watch->data = x;
    uv_poll_start(x->watch, UV_DISCONNECT, on_disconnect);
}

/* ---- replies ------------------------------------------------------------------------------------------------------------------- */

static void queue_response(struct http_exchange *x)
{
    MHD_queue_response(x->connection, (unsigned)x->status, x->response);
    MHD_destroy_response(x->response);
    x->response = NULL;
}

void http_reply(struct http_exchange *x, int status, const char *content_type, const void *body, size_t n, int retry_after_s)
{
    if (x->state == GONE)
        return;
    x->response = MHD_create_response_from_buffer(n, (void *)(uintptr_t)body, MHD_RESPMEM_MUST_COPY);
    MHD_add_response_header(x->response, "Content-Type", content_type);
    if (retry_after_s > 0) {
        char text[16];
        snprintf(text, sizeof text, "%d", retry_after_s);
        MHD_add_response_header(x->response, "Retry-After", text);
    }
    x->status = status;
    x->state = REPLIED;
    x->gone = NULL;
    wake(x);
}

static ssize_t read_stream(void *ctx, uint64_t position, char *out, size_t max)
{
    struct http_exchange *x = ctx;
    (void)position;
    size_t n = x->unsent.size - x->sent;
    if (x->state == GONE)
        return MHD_CONTENT_READER_END_WITH_ERROR;
    if (n == 0) {
        if (x->state == ENDED)
            return MHD_CONTENT_READER_END_OF_STREAM;
        x->suspended = true;
        MHD_suspend_connection(x->connection);
        return 0;
    }
    if (n > max)
        n = max;
    memcpy(out, x->unsent.data + x->sent, n);
    x->sent += n;
    if (x->sent == x->unsent.size)
        x->sent = x->unsent.size = 0;
    return (ssize_t)n;
}

void http_stream_begin(struct http_exchange *x, const char *content_type)
{
    if (x->state == GONE)
        return;
    x->response = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, STREAM_BLOCK_BYTES, read_stream, x, NULL);
    MHD_add_response_header(x->response, "Content-Type", content_type);
    MHD_add_response_header(x->response, "Cache-Control", "no-cache");
    x->status = 200;
    x->state = STREAMING;
    wake(x);
}

bool http_stream_write(struct http_exchange *x, const void *bytes, size_t n)
{
    if (x->state != STREAMING)
        return x->state != GONE;
    buffer_append(&x->unsent, bytes, n);
    wake(x);
    return !x->unsent.failed && x->unsent.size - x->sent <= HTTP_MAX_UNSENT_BYTES;
}

void http_stream_end(struct http_exchange *x)
{
    if (x->state != STREAMING)
        return;
    x->state = ENDED;
    x->gone = NULL;
    wake(x);
}

void http_on_gone(struct http_exchange *x, void (*gone)(void *ctx), void *ctx)
{
    x->gone = gone;
    x->gone_ctx = ctx;
}

/* ---- requests -------------------------------------------------------------------------------------------------------------------- */

static const char *bearer_of(struct MHD_Connection *connection)
{
    const char *value = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Authorization");
    return value && strncasecmp(value, "Bearer ", 7) == 0 ? value + 7 + strspn(value + 7, " ") : NULL;
}

static void take_body(struct http_exchange *x, const char *data, size_t n)
{
    if (x->body.size + n > HTTP_MAX_BODY_BYTES || x->body.failed) {
        x->too_large = true;
        buffer_free(&x->body);
    }
    if (!x->too_large)
        buffer_append(&x->body, data, n);
}

static enum MHD_Result on_request(void *ctx, struct MHD_Connection *connection, const char *url, const char *method, const char *version,
                                  const char *upload, size_t *upload_size, void **own)
{
    struct http_server *s = ctx;
    struct http_exchange *x = *own;
    (void)version;
    if (!x) {
        if (!(x = calloc(1, sizeof *x)))
            return MHD_NO;
        *x = (struct http_exchange){.server = s, .connection = connection, .next = s->exchanges, .link = &s->exchanges};
        if (x->next)
            x->next->link = &x->next;
        s->exchanges = x;
        *own = x;
        return MHD_YES;
    }
    if (*upload_size > 0) {
        take_body(x, upload, *upload_size);
        *upload_size = 0;
        return MHD_YES;
    }
    if (x->state == RECEIVING) {
        x->state = WAITING;
        start_watching(x);
        if (x->too_large)
            s->handler.refused(s->handler.ctx, x, 413, "the request body is larger than 64 MiB");
        else
            s->handler.request(s->handler.ctx, x, method, url, bearer_of(connection), buffer_cstr(&x->body), x->body.size);
        buffer_free(&x->body);
    }
    if (x->state == GONE)
        return MHD_NO;
    if (x->response)
        queue_response(x);
    else if (x->state == WAITING) {
        x->suspended = true;
        MHD_suspend_connection(connection);
    }
    return MHD_YES;
}

static void on_completed(void *ctx, struct MHD_Connection *connection, void **own, enum MHD_RequestTerminationCode why)
{
    struct http_exchange *x = *own;
    (void)ctx, (void)connection, (void)why;
    if (!x)
        return;
    stop_watching(x);
    client_is_gone(x);
    if (x->response)
        MHD_destroy_response(x->response);
    buffer_free(&x->body);
    buffer_free(&x->unsent);
    if (x->next)
        x->next->link = x->link;
    *x->link = x->next;
    free(x);
    *own = NULL;
}

/* ---- the daemon on the loop ---------------------------------------------------------------------------------------------------------- */

static void on_timer(uv_timer_t *timer);

static void run_daemon(struct http_server *s)
{
    if (s->stopping)
        return;
    s->work = false;
    MHD_run(s->daemon);
    unsigned long long wait_ms;
    if (MHD_get_timeout(s->daemon, &wait_ms) == MHD_YES)
        uv_timer_start(&s->timer, on_timer, wait_ms, 0);
    else
        uv_timer_stop(&s->timer);
}

static void on_timer(uv_timer_t *timer) { run_daemon(timer->data); }

static void on_poll(uv_poll_t *poll, int status, int events)
{
    (void)status, (void)events;
    run_daemon(poll->data);
}

static void on_prepare(uv_prepare_t *prepare)
{
    struct http_server *s = prepare->data;
    for (int i = 0; s->work && i < 8; i++)
        run_daemon(s);
    if (s->work)
        uv_timer_start(&s->timer, on_timer, 0, 0);
}

static int open_socket(const char *host, int port, int *port_out, struct err *e)
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV}, *found;
    char service[8];
    snprintf(service, sizeof service, "%d", port);
    if (getaddrinfo(host, service, &hints, &found) != 0)
        return err_set(e, HP_EINVAL, "\"%s\" is not an address to listen on", host);
    int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), one = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    int rc = fd < 0 || bind(fd, found->ai_addr, found->ai_addrlen) != 0 || listen(fd, 1024) != 0 ? -errno : 0;
    freeaddrinfo(found);
    struct sockaddr_storage own;
    socklen_t size = sizeof own;
    if (rc == 0 && getsockname(fd, (struct sockaddr *)&own, &size) == 0)
        *port_out = ntohs(own.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&own)->sin6_port : ((struct sockaddr_in *)&own)->sin_port);
    if (rc == 0)
        return fd;
    if (fd >= 0)
        close(fd);
    err_set(e, HP_EIO, "cannot listen for HTTP on %s port %d: %s", host, port, strerror(-rc));
    if (rc == -EADDRINUSE)
        err_hint(e, "another program has this port: choose one with --http, or 0 for any free one");
    return HP_EIO;
}

int http_start(uv_loop_t *loop, const char *host, int port, const struct http_handler *h, struct http_server **out, struct err *e)
{
    struct http_server *s = calloc(1, sizeof *s);
    if (!s)
        return err_set(e, HP_ENOMEM, "out of memory for the gateway");
    s->handler = *h;
    s->loop = loop;
    s->socket = open_socket(host, port, &s->port, e);
    if (s->socket < 0) {
        int rc = s->socket;
        free(s);
        return rc;
    }
    s->daemon = MHD_start_daemon(MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME, 0, NULL, NULL, on_request, s,
                                 MHD_OPTION_LISTEN_SOCKET, s->socket, MHD_OPTION_NOTIFY_COMPLETED, on_completed, s,
                                 MHD_OPTION_CONNECTION_LIMIT, (unsigned)CONNECTION_LIMIT, MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)IDLE_TIMEOUT_S,
                                 MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)65536, MHD_OPTION_END);
    const union MHD_DaemonInfo *info = s->daemon ? MHD_get_daemon_info(s->daemon, MHD_DAEMON_INFO_EPOLL_FD) : NULL;
    if (!info) {
        if (s->daemon)
            MHD_stop_daemon(s->daemon);
        else
            close(s->socket);
        free(s);
        return err_set(e, HP_EIO, "cannot start the HTTP server");
    }
    s->poll.data = s->timer.data = s->prepare.data = s;
    uv_poll_init(loop, &s->poll, info->epoll_fd);
    uv_poll_start(&s->poll, UV_READABLE, on_poll);
    uv_timer_init(loop, &s->timer);
    uv_prepare_init(loop, &s->prepare);
    uv_prepare_start(&s->prepare, on_prepare);
    s->handles = 3;
    *out = s;
    return 0;
}

int http_port(const struct http_server *s) { return s->port; }

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
    for (struct http_exchange *x = s->exchanges; x; x = x->next) {
        stop_watching(x);
        client_is_gone(x);
        if (x->suspended) {
            x->suspended = false;
            MHD_resume_connection(x->connection);
        }
    }
    uv_poll_stop(&s->poll);
    MHD_run(s->daemon);
    MHD_stop_daemon(s->daemon); /* closes the listening socket */
    uv_close((uv_handle_t *)&s->poll, on_handle_closed);
    uv_close((uv_handle_t *)&s->timer, on_handle_closed);
    uv_close((uv_handle_t *)&s->prepare, on_handle_closed);
}
