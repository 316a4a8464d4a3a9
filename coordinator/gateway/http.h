/* HTTP connections on a libuv loop: bodies in, replies and streams out, limits, and notice when a client is gone. Knows nothing of what is served.
 *
 * libmicrohttpd in external epoll mode. An exchange is one request and its reply. The owner of the routes answers at once or later; until then the
 * connection sleeps, and its socket is watched, because libmicrohttpd does not look at sleeping connections. */
#ifndef HP_COORDINATOR_GATEWAY_HTTP_H
#define HP_COORDINATOR_GATEWAY_HTTP_H

#include "common/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

enum { HTTP_MAX_BODY_BYTES = 64 << 20, HTTP_MAX_UNSENT_BYTES = 16 << 20 };

struct http_server;
struct http_exchange;

struct http_handler {
    void *ctx;
    /* A whole request. Answer with http_reply or http_stream_begin, now or later. `bearer` is the Authorization header's token or NULL. */
    void (*request)(void *ctx, struct http_exchange *x, const char *method, const char *path, const char *bearer, const char *body, size_t n);
    /* The body was refused (too large): reply something of the right shape. */
    void (*refused)(void *ctx, struct http_exchange *x, int http_status, const char *why);
};

int http_start(uv_loop_t *loop, const char *host, int port, const struct http_handler *h, struct http_server **out, struct err *e);
int http_port(const struct http_server *s);
void http_stop(struct http_server **s);

/* One whole reply. `retry_after_s` > 0 adds the header. The body is copied. */
void http_reply(struct http_exchange *x, int status, const char *content_type, const void *body, size_t n, int retry_after_s);
/* A reply whose body comes in pieces (server-sent events). */
void http_stream_begin(struct http_exchange *x, const char *content_type);
/* False when the client reads so slowly that HTTP_MAX_UNSENT_BYTES wait: give up on it. */
bool http_stream_write(struct http_exchange *x, const void *bytes, size_t n);
void http_stream_end(struct http_exchange *x);
/* Called once if the client goes away before the reply was complete; the exchange is invalid after it returns, and no function may be called on it. After a
 * whole reply or http_stream_end, the exchange is no longer the owner's either. */
void http_on_gone(struct http_exchange *x, void (*gone)(void *ctx), void *ctx);

#endif
