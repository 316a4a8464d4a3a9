#include "coordinator/gateway/kserve_rpc.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/env.h"
#include "common/heap.h"
#include "common/log.h"
#include "coordinator/gateway/infer_message.h"
#include "coordinator/gateway/kserve_rpc_int.h"
#include "coordinator/gateway/listen_address.h"
#include "coordinator/gateway/rpc.h"
#include "coordinator/gateway/rpc_guard.h"

enum { DEADLINE_LOOK_MS = 500, ACCEPT_AT_ONCE = 64, EVENTS_A_TURN = 256, LARGE_BYTES = 4 << 20 };

/* A call from when it came until it is answered. */
struct rpc_ask {
    struct kserve_rpc *k;
    struct rpc_call *call;
    const struct kserve_method *method;
    char client[REQUEST_CLIENT_BYTES];
    uint64_t came_ns;
    bool reading; /* its message is waited for */
    struct pool_infer *infer;
    struct rpc_ask *next, **link;
};

struct kserve_rpc {
    const struct rpc_table *rpc;
    struct rpc_server *server;
    struct rpc_guard *guard; /* of its connections */
    struct kserve_rpc_config config;
    struct access access;
    uv_async_t wake;
    uv_timer_t deadlines;
    uv_poll_t listening;
    int handles;
    int socket, port;
    struct rpc_ask *asks;
    int open;
    bool draining;
    bool large; /* a message has come, or has not, that the library held in very many blocks */
};

/* ---- answers ---- */

static void ask_free(struct rpc_ask *a)
{
    if (a->next)
        a->next->link = a->link;
    *a->link = a->next;
    a->k->open--;
    free(a);
}

static void call_refuse(struct kserve_rpc *k, struct rpc_call *call, enum rpc_status status,
                        const struct err *e, uint32_t retry_after_s)
{
    bool passes = status == RPC_RESOURCE_EXHAUSTED || status == RPC_UNAVAILABLE;
    const struct rpc_answer answer = {
        .status = status, .text = e->text, .retry_after_s = passes ? retry_after_s : 0};
    k->rpc->answer(call, &answer);
}

static enum rpc_status status_of(int code)
{
    switch (code) {
    case HP_EINVAL:
    case HP_EPARSE: return RPC_INVALID_ARGUMENT;
    case HP_EUNSUPPORTED: return RPC_UNIMPLEMENTED;
    case HP_EDENIED: return RPC_PERMISSION_DENIED;
    case HP_ENOENT: return RPC_NOT_FOUND;
    case HP_ELIMIT:
    case HP_ERATE:
    case HP_EQUOTA:
    case HP_ETIMEOUT: return RPC_RESOURCE_EXHAUSTED;
    case HP_ELINK:
    case HP_EBUSY:
    case HP_ENOMEM:
    case HP_ECANCELED: return RPC_UNAVAILABLE;
    default: return RPC_INTERNAL;
    }
}

static void ask_fail(void *caller, const struct err *why, uint32_t retry_after_s)
{
    struct rpc_ask *a = caller;
    /* A message that is too large is so whenever it comes. */
    call_refuse(a->k, a->call, status_of(why->code), why,
                why->code == HP_ELIMIT ? 0 : retry_after_s);
    ask_free(a);
}

static void ask_answer(void *caller, struct buffer *message, size_t json_bytes)
{
    struct rpc_ask *a = caller;
    struct err e = {0};
    (void)json_bytes;
    if (message->failed) {
        err_no_memory(&e, "the answer");
        ask_fail(a, &e, 1);
        buffer_free(message);
        return;
    }
    const struct rpc_answer answer = {.status = RPC_OK, .message = message};
    a->k->rpc->answer(a->call, &answer);
    ask_free(a);
}

/* ---- infer ---- */

static int body_read(const struct infer_model *m, struct buffer *body, size_t json_bytes,
                     struct infer_request *out, struct err *e)
{
    (void)json_bytes;
    return infer_message_read(m, body, out, e);
}

static size_t body_write(const struct infer_model *m, const struct infer_request *r,
                         const struct ndarray *outputs, struct buffer *out)
{
    infer_message_write(m, r, outputs, out);
    return out->size;
}

static int64_t time_left(const struct rpc_ask *a)
{
    int64_t left = a->k->rpc->head(a->call)->left_ns;
    return left == INT64_MAX ? left : left - (int64_t)(env_now_ns(&env_real) - a->came_ns);
}

static void infer_begin(struct rpc_ask *a, const struct infer_model *m, struct buffer *message)
{
    static const struct pool_infer_caller how = {body_read, body_write, ask_answer, ask_fail};
    struct pool_infer *p = pool_infer_open(a->k->config.desk, &how, a, m, a->client, message,
                                           message->size, time_left(a));
    if (!p)
        return;
    a->infer = p;
    pool_infer_run(p);
}

/* ---- messages ---- */

static void ask_serve(struct rpc_ask *a, struct buffer *message)
{
    struct buffer out = {0};
    const struct infer_model *m = NULL;
    struct err e = {0};
    int rc = kserve_method_answer(a->method, a->k->config.kserve, a->client, message, &m, &out, &e);
    if (rc == HP_PENDING) {
        infer_begin(a, m, message);
        return;
    }
    buffer_free(message);
    if (rc < 0)
        ask_fail(a, &e, 1);
    else
        ask_answer(a, &out, 0);
}

static void on_message(struct rpc_ask *a, struct rpc_event *event)
{
    struct err e = {0};
    a->reading = false;
    a->k->large |= event->missing || event->message.size >= LARGE_BYTES;
    if (!event->missing) {
        ask_serve(a, &event->message);
        return;
    }
    err_set(&e, HP_EINVAL, "%s", event->missing);
    ask_fail(a, &e, 0);
}

/* ---- calls ---- */

/* The address of who asks, without the port. */
static void address_of(int connection, char out[HOST_BYTES])
{
    struct sockaddr_storage peer;
    socklen_t size = sizeof peer;
    if (connection < 0 || getpeername(connection, (struct sockaddr *)&peer, &size) != 0 ||
        getnameinfo((struct sockaddr *)&peer, size, out, HOST_BYTES, NULL, 0, NI_NUMERICHOST) != 0)
        snprintf(out, HOST_BYTES, "unknown");
}

/* Whether the call is to be read: its method is there, and its key may ask. */
static bool call_check(struct kserve_rpc *k, struct rpc_call *call,
                       const struct kserve_method *method, const struct http_request *r)
{
    uint32_t retry_after_s = 1;
    struct err e = {0};
    int rc = 0;
    enum rpc_status status = RPC_OK;
    if (!method) {
        kserve_method_missing(k->rpc->head(call)->method, &e);
        status = RPC_UNIMPLEMENTED;
    } else if (k->draining && !method->open) {
        err_set(&e, HP_ECANCELED, "the coordinator is stopping: try again later");
        status = RPC_UNAVAILABLE;
    } else if (!method->open && access_check_key(&k->access, r, &e) < 0) {
        status = RPC_UNAUTHENTICATED;
    } else if (method->counts && (rc = access_check_spent(&k->access, r, &retry_after_s, &e)) < 0) {
        status = status_of(rc);
    }
    if (status != RPC_OK)
        call_refuse(k, call, status, &e, retry_after_s);
    return status == RPC_OK;
}

static void on_call(struct kserve_rpc *k, struct rpc_call *call)
{
    const struct rpc_head *head = k->rpc->head(call);
    const struct kserve_method *method = kserve_method_find(head->method);
    char address[HOST_BYTES];
    const char *bearer = http_bearer(head->authorization);
    address_of(rpc_guard_connection(k->guard, head->connection), address);
    const struct http_request r = {.bearer = bearer ? bearer : head->api_key, .client = address};
    struct err e = {0};
    if (!call_check(k, call, method, &r))
        return;
    struct rpc_ask *a = calloc(1, sizeof *a);
    if (!a) {
        err_no_memory(&e, "a call");
        call_refuse(k, call, RPC_UNAVAILABLE, &e, 1);
        return;
    }
    *a = (struct rpc_ask){.k = k,
                          .call = call,
                          .method = method,
                          .came_ns = env_now_ns(&env_real),
                          .reading = true,
                          .next = k->asks,
                          .link = &k->asks};
    access_client(&k->access, &r, a->client);
    if (a->next)
        a->next->link = &a->next;
    k->asks = a;
    k->open++;
    k->rpc->keep(call, a);
    k->rpc->read(call);
}

static void on_gone(struct rpc_ask *a)
{
    if (!a)
        return; /* before it was looked at */
    a->k->large |= a->reading;
    if (a->infer)
        pool_infer_leave(a->infer);
    ask_free(a);
}

static void on_wake(uv_async_t *wake)
{
    struct kserve_rpc *k = wake->data;
    struct rpc_event event;
    int n = 0;
    for (; n < EVENTS_A_TURN && k->server && k->rpc->next(k->server, &event); n++)
        switch (event.kind) {
        case RPC_CALL: on_call(k, event.call); break;
        case RPC_MESSAGE: on_message(event.data, &event); break;
        case RPC_GONE: on_gone(event.data); break;
        }
    if (n == EVENTS_A_TURN)
        uv_async_send(wake); /* others' turn first */
}

/* ---- connections ---- */

/* Half of the descriptors are for others. */
static bool connection_fits(int fd)
{
    struct rlimit files;
    return getrlimit(RLIMIT_NOFILE, &files) != 0 || (rlim_t)fd < files.rlim_cur / 2;
}

/* Without a descriptor for the next one it rests until on_deadlines looks again. */
static void on_connection(uv_poll_t *poll, int status, int events)
{
    struct kserve_rpc *k = poll->data;
    (void)status, (void)events;
    for (int i = 0; i < ACCEPT_AT_ONCE; i++) {
        struct sockaddr_storage from;
        socklen_t size = sizeof from;
        int fd = accept4(k->socket, (struct sockaddr *)&from, &size, SOCK_NONBLOCK | SOCK_CLOEXEC);
        int one = 1;
        if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM))
            uv_poll_stop(poll);
        if (fd < 0)
            return;
        if (k->draining || !connection_fits(fd)) {
            close(fd);
            continue;
        }
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        if ((fd = rpc_guard_take(k->guard, fd)) >= 0)
            k->rpc->connect(k->server, fd);
    }
}

/* A message may take its time, but not for ever. */
static void on_deadlines(uv_timer_t *timer)
{
    struct kserve_rpc *k = timer->data;
    uv_poll_start(&k->listening, UV_READABLE, on_connection);
    uint64_t now = env_now_ns(&env_real);
    struct err e = {0};
    err_set(&e, HP_ETIMEOUT, "the request's message took too long to come");
    for (struct rpc_ask *a = k->asks, *next; a; a = next) {
        next = a->next;
        if (!a->reading || now - a->came_ns < KSERVE_RPC_MESSAGE_MS * 1000000ull)
            continue;
        call_refuse(k, a->call, RPC_DEADLINE_EXCEEDED, &e, 0);
        ask_free(a);
        k->large = true;
    }
    k->rpc->tend(k->server);
    if (k->large)
        heap_trim();
    k->large = false;
}

/* ---- starting and stopping ---- */

/* On any thread. */
static void loop_wake(void *ctx)
{
    uv_async_send(&((struct kserve_rpc *)ctx)->wake);
}

static void on_closed(uv_handle_t *handle)
{
    struct kserve_rpc *k = handle->data;
    if (--k->handles > 0)
        return;
    close(k->socket);
    free(k);
}

static void handles_close(struct kserve_rpc *k)
{
    uv_close((uv_handle_t *)&k->wake, on_closed);
    uv_close((uv_handle_t *)&k->deadlines, on_closed);
    uv_close((uv_handle_t *)&k->listening, on_closed);
}

static int listen_check(const struct kserve_rpc_config *config, char host[HOST_BYTES], int *port,
                        struct err *e)
{
    int rc = listen_address_read(config->listen, host, port, e);
    if (rc < 0 || host_is_loopback(host))
        return rc;
    if (config->encrypted) {
        err_set(e, HP_EUSAGE,
                "gRPC is not encrypted, and beside HTTPS it does not listen beyond "
                "loopback (%s)",
                host);
        return err_hint(e, "listen on 127.0.0.1, and let a proxy speak TLS before it");
    }
    if (config->requests->api_keys(config->requests->ctx) > 0)
        return 0;
    err_set(e, HP_EDENIED, "gRPC does not listen beyond loopback (%s) without API keys", host);
    return err_hint(e,
                    "`hpctl key create NAME` makes one, and gRPC starts; or listen on 127.0.0.1");
}

/* The listening socket is its own from here on. */
static struct kserve_rpc *service_create(uv_loop_t *loop, const struct kserve_rpc_config *config,
                                         int listening, bool beyond_loopback)
{
    struct kserve_rpc *k = calloc(1, sizeof *k);
    if (!k)
        return NULL;
    k->config = *config;
    k->socket = listening;
    k->access = (struct access){
        .requests = config->requests, .beyond_loopback = beyond_loopback, .open = config->open};
    uv_async_init(loop, &k->wake, on_wake);
    uv_timer_init(loop, &k->deadlines);
    uv_poll_init(loop, &k->listening, listening);
    k->wake.data = k->deadlines.data = k->listening.data = k;
    k->handles = 3;
    return k;
}

static int service_start(struct kserve_rpc *k, struct err *e)
{
    const struct rpc_config config = {.message_bytes_max = KSERVE_RPC_MESSAGE_BYTES,
                                      .memory_bytes = KSERVE_RPC_MEMORY_BYTES,
                                      .calls_max = KSERVE_RPC_CALLS,
                                      .caller_ms = KSERVE_RPC_MESSAGE_MS,
                                      .caller_bytes_per_s = KSERVE_RPC_ANSWER_BYTES_PER_S,
                                      .ctx = k,
                                      .wake = loop_wake};
    int rc = rpc_guard_start(&k->guard, e);
    rc = rc < 0 ? rc : k->rpc->start(&config, &k->server, e);
    if (rc < 0) {
        rpc_guard_stop(&k->guard);
        handles_close(k);
    } else {
        uv_timer_start(&k->deadlines, on_deadlines, 0, DEADLINE_LOOK_MS);
    }
    return rc;
}

int kserve_rpc_start(uv_loop_t *loop, const struct kserve_rpc_config *config,
                     struct kserve_rpc **out, struct err *e)
{
    char host[HOST_BYTES];
    const struct rpc_table *rpc;
    int port, listening;
    int rc = listen_check(config, host, &port, e);
    rc = rc < 0 ? rc : rpc_plugin_load(&rpc, e);
    if (rc < 0)
        return rc;
    if ((listening = listen_socket_open("gRPC", host, port, &port, e)) < 0)
        return listening;
    struct kserve_rpc *k = service_create(loop, config, listening, !host_is_loopback(host));
    if (!k) {
        close(listening);
        return err_no_memory(e, "gRPC");
    }
    k->rpc = rpc;
    k->port = port;
    if ((rc = service_start(k, e)) < 0)
        return rc;
    log_info("gateway", "listening", "grpc=%s:%d keys_needed=%s", host, port,
             access_key_needed(&k->access) ? "yes" : "no");
    *out = k;
    return 0;
}

int kserve_rpc_port(const struct kserve_rpc *k)
{
    return k->port;
}

void kserve_rpc_drain(struct kserve_rpc *k)
{
    k->draining = true;
}

int kserve_rpc_open(const struct kserve_rpc *k)
{
    return k->open;
}

void kserve_rpc_stop(struct kserve_rpc **out)
{
    struct kserve_rpc *k = *out;
    *out = NULL;
    if (!k)
        return;
    k->rpc->stop(&k->server);
    rpc_guard_stop(&k->guard);
    for (struct rpc_ask *a = k->asks, *next; a; a = next) {
        next = a->next;
        on_gone(a);
    }
    handles_close(k);
}
