/* How long a connection may take: until its headers are whole, over a body, between two requests.
 * libmicrohttpd's own timeout starts again with every byte, so a client that sends one byte now and
 * then would stay for ever. A connection whose time is over is shut down; libmicrohttpd then ends
 * it. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "common/env.h"
#include "common/heap.h"
#include "coordinator/gateway/http_int.h"

enum { MANY_CONNECTIONS = 512 };

static uint64_t after_ms(uint64_t ms)
{
    return env_now_ns(&env_real) + ms * 1000000u;
}

/* `asked` and `x` as in struct http_connection. */
static void deadline_set(struct MHD_Connection *connection, uint64_t at_ns, bool asked,
                         struct http_exchange *x)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    struct http_connection *c = info ? info->socket_context : NULL;
    if (!c)
        return;
    c->deadline_ns = at_ns;
    c->asked = asked;
    c->x = x;
}

void http_deadline_on_connection(void *ctx, struct MHD_Connection *connection, void **own,
                                 enum MHD_ConnectionNotificationCode what)
{
    struct http_server *s = ctx;
    struct http_connection *c = *own;
    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
        *own = c = calloc(1, sizeof *c);
        if (!c) {
            shutdown(http_connection_fd(connection), SHUT_RDWR);
            return;
        }
        *c = (struct http_connection){.server = s,
                                      .connection = connection,
                                      .deadline_ns = after_ms(HTTP_HEADERS_MS),
                                      .next = s->connections,
                                      .link = &s->connections};
        if (c->next)
            c->next->link = &c->next;
        s->connections = c;
        s->figures.connections++;
        if (s->figures.connections > s->connections_most)
            s->connections_most = s->figures.connections;
        if (s->tls)
            http_handshake_begin(s, c);
    } else if (c) {
        http_handshake_close(c);
        if (c->next)
            c->next->link = c->link;
        *c->link = c->next;
        s->figures.connections--;
        free(c);
        *own = NULL;
    }
}

void *http_deadline_on_first_line(void *ctx, const char *line, struct MHD_Connection *connection)
{
    (void)ctx, (void)line;
    deadline_set(connection, after_ms(HTTP_HEADERS_MS), true, NULL);
    return NULL;
}

void http_deadline_body(struct http_exchange *x)
{
    deadline_set(x->connection,
                 x->body_since_ns +
                     (HTTP_BODY_MS + x->body_got * 1000 / HTTP_BODY_BYTES_PER_S) * 1000000u,
                 true, x);
}

void http_deadline_none(struct http_exchange *x)
{
    deadline_set(x->connection, 0, false, NULL);
}

void http_deadline_idle(struct http_exchange *x)
{
    deadline_set(x->connection, after_ms(HTTP_IDLE_MS), false, NULL);
}

/* Nothing is known of the request but that it began, not even in whose words to answer. */
static void headers_refuse(struct http_server *s, const struct http_connection *c)
{
    static const char body[] =
        "{\"error\":{\"message\":\"the request's headers took too long to come\",\"type\":"
        "\"invalid_request_error\",\"param\":null,\"code\":\"timeout\"}}";
    char all[400];
    int n = snprintf(all, sizeof all,
                     "HTTP/1.1 408 Request Timeout\r\nContent-Length: %zu\r\nContent-Type: "
                     "application/json\r\nx-request-id: req_%016llx\r\nConnection: close\r\n\r\n%s",
                     sizeof body - 1, (unsigned long long)s->next_request_id++, body);
    http_connection_send(c->connection, all, (size_t)n);
}

/* A request that has begun is told why it ends; a connection that waits for one just ends. */
static void connection_expire(struct http_server *s, struct http_connection *c)
{
    struct http_exchange *x = c->x;
    if (x && x->state == EXCHANGE_RECEIVING) {
        x->state = EXCHANGE_CUT;
        s->handler.refused(s->handler.ctx, x, 408, "the request's body took too long to come");
    } else if (c->asked && !x) {
        headers_refuse(s, c);
    }
    c->deadline_ns = 0;
    s->figures.timed_out++;
    shutdown(http_connection_fd(c->connection), SHUT_RDWR);
}

/* What very many connections held lies in small blocks, which stay with the process. */
static void heap_tend(struct http_server *s)
{
    if (s->connections_most < MANY_CONNECTIONS || s->figures.connections > s->connections_most / 2)
        return;
    s->connections_most = s->figures.connections;
    heap_trim();
}

void http_deadline_check(uv_timer_t *timer)
{
    struct http_server *s = timer->data;
    uint64_t now = env_now_ns(&env_real);
    for (struct http_connection *c = s->connections; c; c = c->next)
        if (c->deadline_ns && now > c->deadline_ns)
            connection_expire(s, c);
    heap_tend(s);
}
