/* What the files of the HTTP server share. Only http*.c include this.
 *
 *     http.c             the daemon on the loop: start, run, stop
 *     http_exchange.c    one request
 *     http_reply.c       its reply
 *     http_stream.c      one that comes in pieces
 *     http_watch.c       whether the client is still there; connections whose request was not read
 *     http_deadline.c    what slow connections are given
 *     http_handshake.c   those of HTTPS whose handshake is not over */
#ifndef HP_COORDINATOR_GATEWAY_HTTP_INT_H
#define HP_COORDINATOR_GATEWAY_HTTP_INT_H

#include <microhttpd.h>
#include <netinet/in.h>

#include "coordinator/gateway/http.h"

enum { HTTP_MAX_HEADERS = 5, HTTP_HEADER_BYTES = 128, HTTP_MAX_LINGERING = 64 };

enum exchange_state {
    EXCHANGE_RECEIVING, /* the body */
    EXCHANGE_CUT,       /* in the middle of a body that is not wanted: the reply goes out by hand */
    EXCHANGE_WAITING,   /* for the owner's answer; suspended unless inside the handler */
    EXCHANGE_REPLIED,   /* a whole reply is ready or queued */
    EXCHANGE_STREAMING,
    EXCHANGE_ENDED, /* the stream's last piece was given */
    EXCHANGE_GONE,  /* the client */
};

struct http_connection {
    struct http_server *server;
    struct MHD_Connection *connection;
    uint64_t deadline_ns;    /* 0: none */
    bool asked;              /* a request's first line has come, its last byte has not */
    struct http_exchange *x; /* whose body is coming; NULL: none's */
    struct http_connection *next, **link;
    struct http_connection *next_handshake, **link_handshake; /* NULL: it is over, or is none */
    uv_poll_t *waiting;                                       /* for the handshake's next piece */
    bool suspended;                                           /* until that comes */
    struct tls_pair *pair;
};

struct http_own_header {
    const char *name;
    char value[HTTP_HEADER_BYTES];
};

struct http_exchange {
    struct http_server *server;
    struct MHD_Connection *connection;
    enum exchange_state state;
    struct http_request request;
    uint64_t id;
    char client[INET6_ADDRSTRLEN];
    struct buffer body;
    uint64_t body_max, body_since_ns, body_got;
    bool suspended, interim, unread; /* interim: HTTP/1.1, takes "100 Continue"; unread: the reply
                                        went out before the body was read */
    struct MHD_Response *response;   /* until it is queued */
    int status;
    struct http_own_header *headers; /* HTTP_MAX_HEADERS, once there is one */
    int n_headers;
    struct buffer unsent;
    size_t sent;        /* of `unsent` */
    bool asleep;        /* the daemon has sent what it had of a stream: pieces go past it */
    bool blocked;       /* its reader takes no more for now */
    struct buffer rest; /* of a chunk that its reader has a part of */
    size_t rest_sent;
    struct http_exchange *next_due, **link_due; /* link NULL: nothing of it is due */
    size_t reply_bytes;                         /* counted in the server's figures */
    void (*gone)(void *ctx);
    void *gone_ctx, *data;
    uv_poll_t *watch; /* of a duplicate of the socket */
    int watch_fd;
    bool half_closed; /* the client's sending half */
    struct http_exchange *next, **link;
};

struct http_server {
    struct http_handler handler;
    struct http_limits limits;
    uv_loop_t *loop;
    void (*writable)(struct http_exchange *x); /* the client of a blocked stream takes more */
    struct MHD_Daemon *daemon;
    uv_poll_t poll;
    uv_timer_t timer, deadlines;
    uv_prepare_t prepare; /* runs the daemon, once in a turn, when there is work */
    int port, handles, socket, n_lingering;
    struct lingering *lingering;
    bool work, stopping;
    struct tls_files *tls;                 /* NULL: HTTP */
    struct http_exchange *exchanges, *due; /* due: streams with pieces to send past the daemon */
    struct http_connection *connections, *handshakes;
    struct http_figures figures;
    uint64_t next_request_id;
    uint64_t connections_most; /* at once, since memory was last given back */
};

/* http_exchange.c: libmicrohttpd's callbacks. */
enum MHD_Result http_exchange_on_request(void *ctx, struct MHD_Connection *connection,
                                         const char *url, const char *method, const char *version,
                                         const char *upload, size_t *upload_size, void **own);
void http_exchange_on_completed(void *ctx, struct MHD_Connection *connection, void **own,
                                enum MHD_RequestTerminationCode why);

/* http_connection.c: below the others. */
int http_connection_fd(struct MHD_Connection *connection);
/* Bytes past the daemon, as many as go out at once: for the end of a connection that takes no
 * reply, and for what any client skips. */
void http_connection_send(struct MHD_Connection *connection, const void *bytes, size_t n);
/* There is something for the daemon to do with it. */
void http_exchange_wake(struct http_exchange *x);
/* A stream has something to send: before the loop sleeps. */
void http_stream_due(struct http_exchange *x);
void http_stream_undue(struct http_exchange *x);

/* http_handshake.c: from when a connection is made, with the certificate of that moment, to the end
 * of its handshake, and to its own. */
void http_handshake_begin(struct http_server *s, struct http_connection *c);
void http_handshake_close(struct http_connection *c);
/* After each run of the daemon: what is in the midst of a handshake waits for its client. */
void http_handshakes_check(struct http_server *s);
/* Gives them all back to the daemon, for its end. */
void http_handshakes_stop(struct http_server *s);

/* http_stream.c */
ssize_t http_stream_read(void *ctx, uint64_t position, char *out, size_t max);
/* Sends what is due. */
void http_streams_send(struct http_server *s);
/* The reader of a blocked stream takes more. */
void http_stream_writable(struct http_exchange *x);
void http_stream_forget(struct http_exchange *x);

/* http_watch.c */
/* A duplicate of the connection's socket on the server's loop, not started yet; NULL: there was no
 * room for it. Closing gives back both. */
uv_poll_t *http_poll_open(struct http_server *s, struct MHD_Connection *connection, void *ctx);
void http_poll_close(uv_poll_t **poll);
void http_watch_start(struct http_exchange *x);
void http_watch_stop(struct http_exchange *x);
/* Whether http_server.writable is to hear when the client takes more. */
void http_watch_writable(struct http_exchange *x, bool wanted);
/* Tells the owner, once. */
void http_watch_gone(struct http_exchange *x);
/* Closing a socket with unread bytes resets the connection, and the client may lose the reply. This
 * keeps a duplicate of it open and throws away what still comes, for a while. */
void http_linger(struct http_server *s, struct MHD_Connection *connection);
void http_linger_stop(struct http_server *s);

/* http_deadline.c: libmicrohttpd's callbacks, and when a request goes on. */
void *http_deadline_on_first_line(void *ctx, const char *line, struct MHD_Connection *connection);
void http_deadline_on_connection(void *ctx, struct MHD_Connection *connection, void **own,
                                 enum MHD_ConnectionNotificationCode what);
void http_deadline_body(struct http_exchange *x);
void http_deadline_none(struct http_exchange *x);
void http_deadline_idle(struct http_exchange *x);
void http_deadline_check(uv_timer_t *timer);

#endif
