/* HTTP connections on a libuv loop: requests in, replies and streams out, limits, and notice when a
 * client is gone. Knows nothing of what is served.
 *
 * libmicrohttpd in external epoll mode. An exchange is one request and its reply. Its owner is
 * asked twice: at the headers
 * (`begin`), before a byte of the body is read, and when the body is whole (`request`). It answers
 * at once or later; until then the connection sleeps, and its socket is watched, because
 * libmicrohttpd does not look at sleeping connections. A client that only closed its sending half
 * is still there and gets its answer.
 *
 * Everything has a limit: connections (in all and from one address), the time until the headers are
 * whole, the speed of a body, the bytes of all bodies together, and what waits for a slow reader.
 * All on the loop's thread. */
#ifndef HP_COORDINATOR_GATEWAY_HTTP_H
#define HP_COORDINATOR_GATEWAY_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "common/bytes.h"
#include "common/status.h"

enum {
    HTTP_HEADERS_MS = 10000, /* from the connection, or from a request's first line, until its
                                headers are whole */
    HTTP_IDLE_MS =
        75000, /* between two requests of a connection, and until a reader takes something */
    HTTP_BODY_MS = 10000, /* a body may take this, and a second more for every HTTP_BODY_BYTES_PER_S
                             bytes of it that came */
    HTTP_BODY_BYTES_PER_S = 16384,
    HTTP_MAX_UNSENT_BYTES = 16 << 20,
    HTTP_MAX_REPLIES_BYTES = 256 << 20,
    HTTP_MAX_CONNECTIONS = 20000, /* or fewer: half of the descriptors less HTTP_SPARE_DESCRIPTORS,
                                     for each takes two */
    HTTP_SPARE_DESCRIPTORS =
        256, /* for the control channel, files and whatever else the process has */
};

struct http_server;
struct http_exchange;

/* A request's first line and headers. Valid as long as its exchange is the owner's. NULL: it was
 * not sent. */
struct http_request {
    const char *method, *path; /* the path is decoded: any bytes but NUL */
    const char *host, *origin, *content_type, *content_encoding, *accept;
    const char *user_agent, *fetch_site; /* Sec-Fetch-Site */
    const char *asks_headers;            /* Access-Control-Request-Headers */
    const char *bearer;                  /* the Authorization header's token, else x-api-key */
    const char *inference_bytes; /* Inference-Header-Content-Length: how much of the body is JSON */
    const char *idempotency_key, *last_event_id;
    const char *client; /* address, without the port */
    bool has_body, length_known;
    uint64_t body_bytes; /* where length_known */
};

typedef void (*http_header_fn)(void *out, const char *name, const char *value);

struct http_handler {
    void *ctx;
    /* The headers are in. Either answers now, and no byte of the body is read; or returns how many
     * bytes the body may have at most. A body that says to be longer, or is, comes to `refused`. */
    uint64_t (*begin)(void *ctx, struct http_exchange *x, const struct http_request *r);
    /* The whole request. Answer with http_reply or http_stream_begin, now or later. */
    void (*request)(void *ctx, struct http_exchange *x, const struct http_request *r);
    /* The body was not taken (413: too large, 503: too many at once, 408: too slow) or the request
     * is malformed (400): reply something of the right shape, now. */
    void (*refused)(void *ctx, struct http_exchange *x, int http_status, const char *why);
    /* Headers of every reply, given to `add` one by one when it is made; NULL: there are none. */
    void (*headers)(void *ctx, const struct http_exchange *x, http_header_fn add, void *out);
};

struct tls_files; /* tls_files.h */

struct http_limits {
    unsigned connections;             /* 0: as many as the descriptors allow */
    unsigned connections_per_address; /* at most half of all; 0: no limit for one address */
    uint64_t bodies_bytes;            /* of all exchanges, while they are being received */
};

/* Listens on a numeric host (port 0: any) and serves on the loop, whose thread all calls come from.
 * `tls` NULL: HTTP, else HTTPS (TLS 1.2 and 1.3) alone, and the server's own from then on.
 * HP_EINVAL, HP_EIO, HP_ENOMEM. */
int http_start(uv_loop_t *loop, const char *host, int port, const struct http_limits *limits,
               struct tls_files *tls, const struct http_handler *h, struct http_server **out,
               struct err *e);
/* The port that it listens on. */
int http_port(const struct http_server *s);

struct http_figures {
    uint64_t connections, connections_limit,
        exchanges;           /* open now; exchanges: requests whose answers are not out */
    uint64_t bodies_bytes;   /* of requests that are being received */
    uint64_t replies_bytes;  /* of large replies that their clients have not taken yet */
    uint64_t timed_out;      /* connections ended because they took longer than they may */
    uint64_t refused_bodies; /* too large, or too many at once */
};
struct http_figures http_figures(const struct http_server *s);
void http_stop(struct http_server **s);

/* The exchange's name: its reply has it as x-request-id, and so has each line of the log that is
 * about it. */
enum { HTTP_REQUEST_ID_BYTES = 24 };
void http_request_id(const struct http_exchange *x, char out[HTTP_REQUEST_ID_BYTES]);
/* ... as a number, of which request_name() (coordinator/requests.h) makes the same. */
uint64_t http_request_number(const struct http_exchange *x);
/* The key of an Authorization header: what follows "Bearer"; NULL: it has none. */
const char *http_bearer(const char *authorization);
/* Why the body is not read as it came: it is said to be compressed (Triton's clients can); NULL: it
 * is not. */
const char *http_encoding_why(const struct http_request *r);
/* What came with the exchange. */
const struct http_request *http_request_of(const struct http_exchange *x);
/* A value of the query ("?model=demo"), decoded; NULL: it is not there. */
const char *http_query(const struct http_exchange *x, const char *name);
/* Hands the body over; the exchange's is empty then. */
struct buffer http_take_body(struct http_exchange *x);
/* What the owner keeps with an exchange. */
void http_set_data(struct http_exchange *x, void *data);
void *http_data(const struct http_exchange *x);

/* One more header of the reply to come (at most 5, and none without memory; values are cut at 127
 * bytes). `name` is not copied. */
void http_header(struct http_exchange *x, const char *name, const char *value);
/* One whole reply. The body is copied. */
void http_reply(struct http_exchange *x, int status, const char *content_type, const void *body,
                size_t n);
/* The same for a large one: the body's bytes are the exchange's from then on, and counted until its
 * client has them. False: what clients take their time with is more than HTTP_MAX_REPLIES_BYTES
 * already; nothing is sent and the body stays the caller's. */
bool http_reply_large(struct http_exchange *x, int status, const char *content_type,
                      struct buffer *body);
/* A reply whose body comes in pieces (server-sent events). */
void http_stream_begin(struct http_exchange *x, const char *content_type);
/* Where the next bytes of a stream are appended; then http_stream_flush, which is false when the
 * client reads so slowly that HTTP_MAX_UNSENT_BYTES wait (or memory ran out): give up on it. */
struct buffer *http_stream_buffer(struct http_exchange *x);
bool http_stream_flush(struct http_exchange *x);
void http_stream_end(struct http_exchange *x);
/* Called once if the client goes away before the reply was complete; the exchange is invalid after
 * it returns, and no function may be called on it. After a whole reply or http_stream_end, the
 * exchange is no longer the owner's either. */
void http_on_gone(struct http_exchange *x, void (*gone)(void *ctx), void *ctx);

#endif
