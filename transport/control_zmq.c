/* The control channel over ZeroMQ: ROUTER at the coordinator, DEALER at everybody else, CURVE on
 * both, on a libuv loop.
 *
 * ZeroMQ's descriptor only says "something changed", once: after it fires the socket is read until
 * it is empty, and after a send, which may have swallowed such a change, the socket is asked once
 * before the loop sleeps. */
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zmq.h>

#include "common/log.h"
#include "transport/control_int.h"
#include "transport/control_monitor.h"
#include "transport/control_strangers.h"
#include "transport/control_zap.h"
#include "transport/message.h"

enum {
    QUEUE_MESSAGES = 4096,
    READ_AT_ONCE = 256,
    ROUTING_ID_BYTES = 5,
    LINGER_MS = 300,
    HANDSHAKE_MS = 5000, /* a connection that has not proven a key by then is closed */
    SILENCE_MS = 15000, /* a connection without a sign of life for so long is made anew; a peer that
                           was stopped for some seconds keeps its own */
};

struct zmq_control {
    struct control base;
    void *context, *socket;
    struct control_zap zap;
    struct control_monitor monitor;
    struct control_strangers strangers;
    uv_timer_t look; /* at the server, for strangers that stay */
    uv_poll_t poll, zap_poll;
    uv_check_t check; /* before the loop sleeps again: is there something that a send has swallowed
                         the edge of? */
    uv_idle_t idle;   /* active while there may be, so that the loop does not sleep */
    bool sent;        /* since the check looked last */
    int handles;      /* still to be closed */
    int port;
    bool server, closing;
    atomic_ullong queued_bytes; /* of messages beyond CONTROL_SMALL_BYTES that ZeroMQ still has */
};

/* A large message on its way, until ZeroMQ is done with it. */
struct queued_message {
    atomic_ullong *queued_bytes;
    size_t size;
    uint8_t bytes[];
};

/* ---- receiving ---- */

static bool is_readable(void *socket)
{
    int events = 0;
    size_t size = sizeof events;
    return zmq_getsockopt(socket, ZMQ_EVENTS, &events, &size) == 0 && (events & ZMQ_POLLIN);
}

/* ROUTER numbers its peers itself: a zero byte, then 32 bits. A peer that chose an identity of its
 * own is none of ours. */
static bool peer_of_routing_id(const uint8_t *id, size_t size, uint64_t *peer)
{
    if (size != ROUTING_ID_BYTES || id[0] != 0)
        return false;
    *peer = (uint64_t)id[1] << 24 | (uint64_t)id[2] << 16 | (uint64_t)id[3] << 8 | id[4];
    *peer += (uint64_t)1 << 32; /* never 0, which means "the server" at a client */
    return true;
}

/* After its message was heard: a join makes its key a known one. */
static void sender_note(struct zmq_control *c, zmq_msg_t *m, const char *key)
{
    const struct control_callbacks *cb = &c->base.callbacks;
    if (!c->strangers.active)
        return;
    control_strangers_heard(&c->strangers, zmq_msg_get(m, ZMQ_SRCFD),
                            key && cb->knows && cb->knows(cb->ctx, key),
                            zmq_msg_size(m) > MESSAGE_STRANGER_MAX_BYTES, uv_hrtime());
}

static bool receive_one(struct zmq_control *c)
{
    uint64_t peer = 0;
    bool known = true;
    if (c->server) {
        uint8_t id[256];
        int got = zmq_recv(c->socket, id, sizeof id, ZMQ_DONTWAIT);
        if (got < 0)
            return false;
        known = peer_of_routing_id(id, (size_t)got, &peer);
    }
    zmq_msg_t m;
    zmq_msg_init(&m);
    if (zmq_msg_recv(&m, c->socket, ZMQ_DONTWAIT) < 0) {
        zmq_msg_close(&m);
        return false;
    }
    bool whole = !zmq_msg_more(&m);
    const char *key = c->server ? zmq_msg_gets(&m, "User-Id") : "";
    if (whole && known && key)
        c->base.callbacks.message(c->base.callbacks.ctx, peer, key, zmq_msg_data(&m),
                                  zmq_msg_size(&m));
    if (c->server)
        sender_note(c, &m, key);
    while (zmq_msg_more(&m) && zmq_msg_recv(&m, c->socket, ZMQ_DONTWAIT) >= 0)
        ; /* parts that nobody asked for */
    zmq_msg_close(&m);
    return true;
}

static void on_idle(uv_idle_t *handle);

/* Bounded, so that a talkative peer cannot starve the loop: what is left is read when the loop
 * comes round. */
static void read_all(struct zmq_control *c)
{
    int left = READ_AT_ONCE;
    while (!c->closing && left > 0 && receive_one(c))
        left--;
    while (!c->closing && left > 0 && c->zap.socket &&
           control_zap_answer(&c->zap, &c->base.callbacks))
        left--;
    if (c->zap.entered) {
        c->zap.entered = false;
        control_strangers_entered(&c->strangers, uv_hrtime());
    }
    if (c->closing)
        return;
    if (left == 0)
        uv_idle_start(&c->idle, on_idle);
    else
        uv_idle_stop(&c->idle);
}

static void on_poll(uv_poll_t *handle, int status, int events)
{
    (void)status, (void)events;
    read_all(handle->data);
}

static void on_idle(uv_idle_t *handle)
{
    read_all(handle->data);
}

static void on_look(uv_timer_t *handle)
{
    struct zmq_control *c = handle->data;
    int shut = control_strangers_look(&c->strangers, uv_hrtime());
    if (shut)
        log_warn_limited("control", "strangers_ended",
                         "connections=%d text=\"their keys are nobody's here\"", shut);
}

static void on_check(uv_check_t *handle)
{
    struct zmq_control *c = handle->data;
    if (c->closing || !c->sent)
        return;
    c->sent = false;
    if (is_readable(c->socket))
        uv_idle_start(&c->idle, on_idle);
}

/* ---- sending ---- */

static int send_failed(uint64_t peer, struct err *e)
{
    if (zmq_errno() == EAGAIN)
        return err_set(e, HP_EBUSY, "the queue to the peer is full (%d messages)", QUEUE_MESSAGES);
    return err_set(e, HP_ELINK, "peer %llu is not connected: %s", (unsigned long long)peer,
                   zmq_strerror(zmq_errno()));
}

/* On ZeroMQ's thread, or on the caller's. */
static void queued_free(void *bytes, void *hint)
{
    struct queued_message *q = hint;
    (void)bytes;
    atomic_fetch_sub(q->queued_bytes, q->size);
    free(q);
}

/* The message that ZeroMQ is to send: a copy, counted where it is large. */
static int message_make(struct zmq_control *c, const uint8_t *bytes, size_t size, zmq_msg_t *out)
{
    struct queued_message *q = NULL;
    int rc = 0;
    if (size <= CONTROL_SMALL_BYTES)
        rc = zmq_msg_init_size(out, size);
    else if (!(q = malloc(sizeof *q + size)))
        rc = -1;
    else if ((rc = zmq_msg_init_data(out, q->bytes, size, queued_free, q)) != 0)
        free(q);
    if (rc != 0)
        return HP_ENOMEM;
    if (q) {
        q->queued_bytes = &c->queued_bytes;
        q->size = size;
        atomic_fetch_add(&c->queued_bytes, size);
    }
    memcpy(zmq_msg_data(out), bytes, size);
    return 0;
}

static int message_send(struct zmq_control *c, uint64_t peer, zmq_msg_t *m, struct err *e)
{
    const uint8_t id[ROUTING_ID_BYTES] = {0, (uint8_t)(peer >> 24), (uint8_t)(peer >> 16),
                                          (uint8_t)(peer >> 8), (uint8_t)peer};
    bool sent = !c->server || zmq_send(c->socket, id, sizeof id, ZMQ_DONTWAIT | ZMQ_SNDMORE) >= 0;
    if (sent && zmq_msg_send(m, c->socket, ZMQ_DONTWAIT) >= 0)
        return 0;
    int rc = send_failed(peer, e);
    zmq_msg_close(m);
    return rc;
}

/* One alone always fits. */
static bool queue_has_room(struct zmq_control *c, size_t size)
{
    unsigned long long queued = atomic_load(&c->queued_bytes);
    return size <= CONTROL_SMALL_BYTES || !queued || queued + size <= CONTROL_MAX_QUEUED_BYTES;
}

static int zmq_control_send(struct control *base, uint64_t peer, const uint8_t *bytes, size_t size,
                            struct err *e)
{
    struct zmq_control *c = (struct zmq_control *)base;
    if (size > CONTROL_MAX_MESSAGE_BYTES)
        return err_set(e, HP_ELIMIT, "a control message of %zu bytes is larger than %d", size,
                       CONTROL_MAX_MESSAGE_BYTES);
    if (!queue_has_room(c, size))
        return err_set(e, HP_EBUSY, "%llu bytes wait to be sent already; %d are the limit",
                       (unsigned long long)atomic_load(&c->queued_bytes), CONTROL_MAX_QUEUED_BYTES);
    zmq_msg_t m;
    if (message_make(c, bytes, size, &m) < 0)
        return err_set(e, HP_ENOMEM, "no memory for a message of %zu bytes", size);
    c->sent = true;
    return message_send(c, peer, &m, e);
}

/* ---- opening and closing ---- */

static int zmq_control_port(const struct control *base)
{
    return ((const struct zmq_control *)base)->port;
}

static void destroy_sockets(struct zmq_control *c)
{
    control_monitor_free(&c->monitor);
    control_strangers_free(&c->strangers);
    if (c->socket)
        zmq_close(c->socket);
    control_zap_close(&c->zap);
    if (c->context)
        zmq_ctx_term(c->context);
    free(c);
}

static void on_handle_closed(uv_handle_t *handle)
{
    struct zmq_control *c = handle->data;
    if (--c->handles == 0)
        destroy_sockets(c);
}

static void zmq_control_close(struct control *base)
{
    struct zmq_control *c = (struct zmq_control *)base;
    c->closing = true;
    uv_close((uv_handle_t *)&c->poll, on_handle_closed);
    uv_close((uv_handle_t *)&c->check, on_handle_closed);
    uv_close((uv_handle_t *)&c->idle, on_handle_closed);
    if (c->zap.socket) {
        uv_close((uv_handle_t *)&c->zap_poll, on_handle_closed);
        uv_close((uv_handle_t *)&c->look, on_handle_closed);
    }
    control_monitor_close(&c->monitor, c, on_handle_closed);
}

static enum control_contact zmq_control_contact(const struct control *base)
{
    return ((const struct zmq_control *)base)->monitor.contact;
}

static void zmq_control_read(struct control *base)
{
    read_all((struct zmq_control *)base);
}

static const struct control_ops zmq_ops = {zmq_control_send, zmq_control_port, zmq_control_read,
                                           zmq_control_contact, zmq_control_close};

static void set_int(void *socket, int option, int value)
{
    zmq_setsockopt(socket, option, &value, sizeof value);
}

static void set_common_options(struct zmq_control *c, const struct key_pair *own)
{
    int64_t limit = CONTROL_MAX_MESSAGE_BYTES;
    zmq_setsockopt(c->socket, ZMQ_MAXMSGSIZE, &limit, sizeof limit);
    zmq_setsockopt(c->socket, ZMQ_CURVE_PUBLICKEY, own->public_key, KEY_TEXT - 1);
    zmq_setsockopt(c->socket, ZMQ_CURVE_SECRETKEY, own->secret_key, KEY_TEXT - 1);
    set_int(c->socket, ZMQ_LINGER, LINGER_MS);
    set_int(c->socket, ZMQ_SNDHWM, QUEUE_MESSAGES);
    set_int(c->socket, ZMQ_RCVHWM, QUEUE_MESSAGES);
    set_int(c->socket, ZMQ_IPV6, 1);
    set_int(c->socket, ZMQ_HEARTBEAT_IVL, 1000);
    set_int(c->socket, ZMQ_HEARTBEAT_TIMEOUT, SILENCE_MS);
    set_int(c->socket, ZMQ_RECONNECT_IVL, 100);
    set_int(c->socket, ZMQ_RECONNECT_IVL_MAX, 1000);
}

static struct zmq_control *zmq_control_create(int type, const struct key_pair *own,
                                              const struct control_callbacks *cb, struct err *e)
{
    struct zmq_control *c = calloc(1, sizeof *c);
    if (c) {
        c->base.ops = &zmq_ops;
        c->base.callbacks = *cb;
        c->server = type == ZMQ_ROUTER;
        c->context = zmq_ctx_new();
        c->socket = c->context ? zmq_socket(c->context, type) : NULL;
    }
    if (!c || !c->socket) {
        err_set(e, HP_ENOMEM, "cannot make a control socket");
        if (c)
            destroy_sockets(c);
        return NULL;
    }
    set_common_options(c, own);
    return c;
}

static int socket_fd(void *socket)
{
    int fd = -1;
    size_t size = sizeof fd;
    zmq_getsockopt(socket, ZMQ_FD, &fd, &size);
    return fd;
}

static void start_handles(struct zmq_control *c, uv_loop_t *loop)
{
    c->poll.data = c->zap_poll.data = c->check.data = c->idle.data = c->look.data = c;
    uv_poll_init(loop, &c->poll, socket_fd(c->socket));
    uv_poll_start(&c->poll, UV_READABLE, on_poll);
    uv_check_init(loop, &c->check);
    uv_check_start(&c->check, on_check);
    uv_idle_init(loop, &c->idle);
    c->handles = 3;
    if (c->zap.socket) {
        uv_poll_init(loop, &c->zap_poll, socket_fd(c->zap.socket));
        uv_poll_start(&c->zap_poll, UV_READABLE, on_poll);
        uv_timer_init(loop, &c->look);
        uv_timer_start(&c->look, on_look, CONTROL_STRANGERS_LOOK_MS, CONTROL_STRANGERS_LOOK_MS);
        c->handles += 2;
    }
    c->handles += control_monitor_start(&c->monitor, loop);
    uv_idle_start(&c->idle, on_idle); /* whatever came before the first poll */
}

static int bound_port(void *socket)
{
    char endpoint[256] = "";
    size_t size = sizeof endpoint;
    zmq_getsockopt(socket, ZMQ_LAST_ENDPOINT, endpoint, &size);
    const char *colon = strrchr(endpoint, ':');
    return colon ? atoi(colon + 1) : 0;
}

/* ZeroMQ takes ports beyond 65535 for others below. */
static int address_check(const char *address, struct err *e)
{
    const char *port = strrchr(address, ':');
    char *end = NULL;
    unsigned long number =
        port && port[1] >= '0' && port[1] <= '9' ? strtoul(port + 1, &end, 10) : 0;
    if (!port || port == address || !end || *end || number > UINT16_MAX)
        return err_set(e, HP_EINVAL, "\"%.100s\" is not HOST:PORT with a port of 0 to 65535",
                       address);
    return 0;
}

int control_serve_zmq(uv_loop_t *loop, const char *address, const struct key_pair *own,
                      const struct control_callbacks *cb, struct control **out, struct err *e)
{
    struct zmq_control *c =
        address_check(address, e) < 0 ? NULL : zmq_control_create(ZMQ_ROUTER, own, cb, e);
    if (!c)
        return e->code;
    char endpoint[300];
    snprintf(endpoint, sizeof endpoint, "tcp://%s", address);
    size_t n = strlen(endpoint);
    if (n > 2 && strcmp(endpoint + n - 2, ":0") == 0)
        snprintf(endpoint + n - 1, sizeof endpoint - n + 1, "*");
    set_int(c->socket, ZMQ_CURVE_SERVER, 1);
    set_int(c->socket, ZMQ_HANDSHAKE_IVL, HANDSHAKE_MS);
    set_int(c->socket, ZMQ_ROUTER_MANDATORY, 1);
    zmq_setsockopt(c->socket, ZMQ_ZAP_DOMAIN, "hodgepodge", 10);
    int rc = control_zap_open(&c->zap, c->context, e);
    control_monitor_open(&c->monitor, c->context, c->socket, true);
    if (rc == 0 && zmq_bind(c->socket, endpoint) != 0) {
        rc = err_set(e, HP_EIO, "cannot listen on %s: %s", address, zmq_strerror(zmq_errno()));
        if (zmq_errno() == EADDRINUSE)
            err_hint(
                e,
                "another program has this port: choose one with --listen, or 0 for any free one");
    }
    if (rc < 0) {
        destroy_sockets(c);
        return rc;
    }
    c->port = c->strangers.port = bound_port(c->socket);
    start_handles(c, loop);
    *out = &c->base;
    return 0;
}

int control_connect_zmq(uv_loop_t *loop, const char *address, const char *server_key,
                        const struct key_pair *own, const struct control_callbacks *cb,
                        struct control **out, struct err *e)
{
    struct zmq_control *c =
        address_check(address, e) < 0 ? NULL : zmq_control_create(ZMQ_DEALER, own, cb, e);
    if (!c)
        return e->code;
    char endpoint[300];
    snprintf(endpoint, sizeof endpoint, "tcp://%s", address);
    int rc = 0;
    control_monitor_open(&c->monitor, c->context, c->socket, false);
    if (zmq_setsockopt(c->socket, ZMQ_CURVE_SERVERKEY, server_key, KEY_TEXT - 1) != 0)
        rc = err_set(e, HP_EINVAL, "not a public key: \"%.60s\"", server_key);
    else if (zmq_connect(c->socket, endpoint) != 0)
        rc = err_set(e, HP_EINVAL, "\"%s\" is not an address HOST:PORT: %s", address,
                     zmq_strerror(zmq_errno()));
    if (rc < 0) {
        destroy_sockets(c);
        return rc;
    }
    start_handles(c, loop);
    *out = &c->base;
    return 0;
}
