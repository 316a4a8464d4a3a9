/* One request, as libmicrohttpd calls for it: once at the headers, for every piece of the body, and
 * once when the request is whole. */
#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "common/env.h"
#include "common/log.h"
#include "coordinator/gateway/http_framing.h"
#include "coordinator/gateway/http_int.h"

/* ---- what its owner asks ---- */

void http_on_gone(struct http_exchange *x, void (*gone)(void *ctx), void *ctx)
{
    x->gone = gone;
    x->gone_ctx = ctx;
}

const struct http_request *http_request_of(const struct http_exchange *x)
{
    return &x->request;
}

const char *http_query(const struct http_exchange *x, const char *name)
{
    return MHD_lookup_connection_value(x->connection, MHD_GET_ARGUMENT_KIND, name);
}

void http_set_data(struct http_exchange *x, void *data)
{
    x->data = data;
}

void *http_data(const struct http_exchange *x)
{
    return x->data;
}

/* ---- the headers ---- */

static const char *header_value(struct MHD_Connection *c, const char *name)
{
    return MHD_lookup_connection_value(c, MHD_HEADER_KIND, name);
}

const char *http_bearer(const char *authorization)
{
    return authorization && strncasecmp(authorization, "Bearer ", 7) == 0
               ? authorization + 7 + strspn(authorization + 7, " ")
               : NULL;
}

const char *http_encoding_why(const struct http_request *r)
{
    const char *coding = r->content_encoding;
    return coding && *coding && strcasecmp(coding, "identity") != 0
               ? "Content-Encoding: compressed bodies are not read; send it as it is"
               : NULL;
}

static const char *bearer_of(struct MHD_Connection *c)
{
    const char *key = http_bearer(header_value(c, "Authorization"));
    return key ? key : header_value(c, "x-api-key");
}

static void client_text(struct MHD_Connection *connection, char out[INET6_ADDRSTRLEN])
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    const struct sockaddr *a = info ? info->client_addr : NULL;
    if (a && a->sa_family == AF_INET)
        inet_ntop(AF_INET, &((const struct sockaddr_in *)(const void *)a)->sin_addr, out,
                  INET6_ADDRSTRLEN);
    else if (a && a->sa_family == AF_INET6)
        inet_ntop(AF_INET6, &((const struct sockaddr_in6 *)(const void *)a)->sin6_addr, out,
                  INET6_ADDRSTRLEN);
}

static void request_fill(struct http_exchange *x, const char *path, const char *method,
                         const struct http_framing *f)
{
    struct MHD_Connection *c = x->connection;
    client_text(c, x->client);
    x->request = (struct http_request){
        .method = method,
        .path = path,
        .host = header_value(c, "Host"),
        .origin = header_value(c, "Origin"),
        .content_type = header_value(c, "Content-Type"),
        .content_encoding = header_value(c, "Content-Encoding"),
        .accept = header_value(c, "Accept"),
        .user_agent = header_value(c, "User-Agent"),
        .fetch_site = header_value(c, "Sec-Fetch-Site"),
        .asks_headers = header_value(c, "Access-Control-Request-Headers"),
        .bearer = bearer_of(c),
        .inference_bytes = header_value(c, "Inference-Header-Content-Length"),
        .idempotency_key = header_value(c, "Idempotency-Key"),
        .last_event_id = header_value(c, "Last-Event-ID"),
        .client = x->client,
        .length_known = f->encodings == 0,
        .body_bytes = f->lengths ? strtoull(header_value(c, "Content-Length"), NULL, 10) : 0,
    };
    x->request.has_body = f->encodings > 0 || x->request.body_bytes > 0;
}

static void queue_response(struct http_exchange *x)
{
    MHD_queue_response(x->connection, (unsigned)x->status, x->response);
    MHD_destroy_response(x->response);
    x->response = NULL;
}

static void exchange_refuse(struct http_exchange *x, int status, const char *why)
{
    if (x->state != EXCHANGE_CUT)
        http_header(x, "Connection", "close");
    x->server->figures.refused_bodies += status != 400;
    x->server->handler.refused(x->server->handler.ctx, x, status, why);
}

static enum MHD_Result request_begin(struct http_exchange *x, const char *url, const char *method,
                                     const char *version)
{
    struct http_framing f = {0};
    const struct http_handler *h = &x->server->handler;
    bool old = strcmp(version, "HTTP/1.1") != 0;
    MHD_get_connection_values_n(x->connection, MHD_HEADER_KIND, http_framing_header, &f);
    const char *problem = http_framing_problem(&f, old),
               *path = http_framing_path(url, header_value(x->connection, "Host"));
    problem = problem || path ? problem : "the target names another host than Host does";
    x->interim = !old;
    x->body_since_ns = env_now_ns(&env_real);
    if (problem) {
        x->request =
            (struct http_request){.method = method, .path = url, .client = "", .has_body = true};
        exchange_refuse(x, 400, problem);
    } else {
        request_fill(x, path, method, &f);
        x->body_max = h->begin(h->ctx, x, &x->request);
        if (x->state == EXCHANGE_RECEIVING && x->request.length_known &&
            x->request.body_bytes > x->body_max)
            exchange_refuse(x, 413, "the request body is too large");
    }
    http_deadline_body(x);
    if (x->state != EXCHANGE_REPLIED || !x->request.has_body)
        return MHD_YES;
    x->unread = true;
    if (!x->response)
        return MHD_NO;
    MHD_add_response_header(x->response, "Connection", "close");
    queue_response(x);
    return MHD_YES;
}

/* ---- the body ---- */

static void body_drop(struct http_exchange *x)
{
    x->server->figures.bodies_bytes -= x->body.size;
    buffer_free(&x->body);
}

struct buffer http_take_body(struct http_exchange *x)
{
    struct buffer body = x->body;
    x->server->figures.bodies_bytes -= body.size;
    x->body = (struct buffer){0};
    return body;
}

static enum MHD_Result body_cut(struct http_exchange *x, int status, const char *why)
{
    body_drop(x);
    x->state = EXCHANGE_CUT;
    x->unread = true;
    exchange_refuse(x, status, why);
    return MHD_NO;
}

static enum MHD_Result body_take(struct http_exchange *x, const char *data, size_t *n)
{
    struct http_server *s = x->server;
    x->body_got += *n;
    if (x->body.size + *n > x->body_max)
        return body_cut(x, 413, "the request body is too large");
    if (s->figures.bodies_bytes + *n > s->limits.bodies_bytes)
        return body_cut(x, 503,
                        "too many large requests are being received at once: try again later");
    size_t before = x->body.size;
    buffer_append(&x->body, data, *n);
    s->figures.bodies_bytes += x->body.size - before;
    if (x->body.failed)
        return body_cut(x, 503, "no memory for the request body: try again later");
    *n = 0;
    http_deadline_body(x);
    return MHD_YES;
}

/* ---- libmicrohttpd's callbacks ---- */

static struct http_exchange *exchange_create(struct http_server *s,
                                             struct MHD_Connection *connection)
{
    struct http_exchange *x = calloc(1, sizeof *x);
    if (!x)
        return NULL;
    *x = (struct http_exchange){.server = s,
                                .connection = connection,
                                .id = s->next_request_id++,
                                .next = s->exchanges,
                                .link = &s->exchanges};
    if (x->next)
        x->next->link = &x->next;
    s->exchanges = x;
    s->figures.exchanges++;
    return x;
}

static enum MHD_Result request_end(struct http_exchange *x)
{
    if (x->state == EXCHANGE_RECEIVING) {
        x->state = EXCHANGE_WAITING;
        http_watch_start(x);
        x->server->handler.request(x->server->handler.ctx, x, &x->request);
        body_drop(x);
    }
    http_deadline_none(x);
    if (x->response)
        queue_response(x);
    else if (x->state == EXCHANGE_WAITING) {
        x->suspended = true;
        MHD_suspend_connection(x->connection);
    } else {
        return MHD_NO; /* the client is gone, or there was no memory for a reply */
    }
    return MHD_YES;
}

enum MHD_Result http_exchange_on_request(void *ctx, struct MHD_Connection *connection,
                                         const char *url, const char *method, const char *version,
                                         const char *upload, size_t *upload_size, void **own)
{
    struct http_exchange *x = *own;
    if (!x) {
        *own = x = exchange_create(ctx, connection);
        return x ? request_begin(x, url, method, version) : MHD_NO;
    }
    return *upload_size > 0 ? body_take(x, upload, upload_size) : request_end(x);
}

/* Faults of ours are told, all else to who wants to read it. */
static void exchange_log(const struct http_exchange *x)
{
    char id[HTTP_REQUEST_ID_BYTES];
    const struct http_request *r = &x->request;
    uint64_t ms = (env_now_ns(&env_real) - x->body_since_ns) / 1000000u;
    http_request_id(x, id);
    if (x->status >= 500 && x->status != 503)
        log_warn_limited("gateway", "answered",
                         "request=%s status=%d method=%s path=\"%s\" ms=%llu", id, x->status,
                         r->method, r->path, (unsigned long long)ms);
    else
        log_debug("gateway", "answered", "request=%s status=%d method=%s path=\"%s\" ms=%llu", id,
                  x->status, r->method, r->path, (unsigned long long)ms);
}

void http_exchange_on_completed(void *ctx, struct MHD_Connection *connection, void **own,
                                enum MHD_RequestTerminationCode why)
{
    struct http_exchange *x = *own;
    (void)why;
    if (!x)
        return;
    exchange_log(x);
    if (x->unread)
        http_linger(ctx, connection);
    http_watch_stop(x);
    http_watch_gone(x);
    http_deadline_idle(x);
    if (x->response)
        MHD_destroy_response(x->response);
    body_drop(x);
    http_stream_forget(x);
    free(x->headers);
    if (x->next)
        x->next->link = x->link;
    *x->link = x->next;
    x->server->figures.exchanges--;
    x->server->figures.replies_bytes -= x->reply_bytes;
    free(x);
    *own = NULL;
}
