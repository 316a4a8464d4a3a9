/* libhp-grpc.so: rpc.h by libgrpc's C core. One thread waits at its completion queue, reads and
 * writes connections there, and hands what comes of it to the owner's loop.
 *
 * A call is freed when nobody holds it any more: its owner, until it has answered or was told that
 * the caller is gone, and each operation that the library has not ended yet.
 *
 * Callers that neither send their message nor read their answer hold no others up: of these the one
 * that has been waited for longest is cancelled where calls or memory run out. The library is
 * always asked for one call more, since it keeps without bound what nobody asked for: what comes
 * beyond twice as many as there may be is refused at once. */
#include <grpc/byte_buffer.h>
#include <grpc/byte_buffer_reader.h>
#include <grpc/compression.h>
#include <grpc/grpc.h>
#include <grpc/grpc_posix.h>
#include <grpc/grpc_security.h>
#include <grpc/slice.h>
#include <grpc/support/alloc.h>
#include <grpc/support/log.h>
#include <grpc/support/time.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/thread_turns.h"
#include "coordinator/gateway/rpc.h"

enum {
    METADATA_BYTES = 16384,
    STREAMS_PER_CONNECTION = 256,
    IDLE_MS = 75000,
    ALIVE_ASK_MS = 60000,
    ALIVE_WAIT_MS = 20000,
    STOP_MS = 1000, /* for answers that were given, when it stops */
    STOP_LOOK_US = 2000
};

enum tag_kind { TAG_NEW, TAG_CLOSED, TAG_READ, TAG_SENT, TAG_KINDS };

struct tag {
    enum tag_kind kind;
    struct rpc_call *call; /* NULL: of the server, which is down */
};

struct rpc_call {
    struct rpc_server *server;
    struct tag tags[TAG_KINDS];
    grpc_call *call;
    grpc_call_details details;
    grpc_metadata_array metadata;
    grpc_byte_buffer *message, *answer;
    struct rpc_head head;
    char *method, *authorization, *api_key;
    void *data;
    int cancelled;
    int held;                     /* by so many operations, and by the owner */
    bool owned, came, read, gone; /* the last three: events that wait */
    uint64_t since_ms;            /* its caller is waited for */
    uint64_t answer_bytes;        /* that the caller has not read, as far as is known */
    struct rpc_call *next_wait, **link_wait;
    struct rpc_call *next_event, **link_event;
    struct rpc_call *next, **link; /* of all calls */
};

struct rpc_server {
    struct rpc_config config;
    grpc_server *server;
    grpc_completion_queue *queue;
    grpc_resource_quota *quota;
    pthread_t thread;
    pthread_mutex_t lock; /* of all below, and of the calls */
    struct rpc_call *calls;
    struct rpc_call *events, **events_end;
    struct rpc_call *waits, **waits_end; /* for callers, the longest first */
    uint64_t unread_bytes;               /* of answers */
    uint32_t n_calls;
    bool asked;    /* a call waits to become one */
    bool stopping; /* who comes is refused */
    bool ended;    /* nobody comes any more */
    struct tag down;
};

/* ---- callers that are waited for: all under the lock ---- */

static uint64_t now_ms(void)
{
    gpr_timespec now = gpr_now(GPR_CLOCK_MONOTONIC);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static void wait_end(struct rpc_call *c)
{
    struct rpc_server *s = c->server;
    if (!c->link_wait)
        return;
    if (c->next_wait)
        c->next_wait->link_wait = c->link_wait;
    else
        s->waits_end = c->link_wait;
    *c->link_wait = c->next_wait;
    c->link_wait = NULL;
    s->unread_bytes -= c->answer_bytes;
    c->answer_bytes = 0;
}

static void wait_begin(struct rpc_call *c, uint64_t answer_bytes)
{
    struct rpc_server *s = c->server;
    wait_end(c);
    c->since_ms = now_ms();
    c->answer_bytes = answer_bytes;
    s->unread_bytes += answer_bytes;
    c->next_wait = NULL;
    c->link_wait = s->waits_end;
    *s->waits_end = c;
    s->waits_end = &c->next_wait;
}

/* An operation of it is under way, and ends by this. */
static void wait_give_up(struct rpc_call *c)
{
    wait_end(c);
    grpc_call_cancel(c->call, NULL);
}

static bool waits_too_long(const struct rpc_call *c, uint64_t now)
{
    const struct rpc_config *g = &c->server->config;
    return now - c->since_ms >= g->caller_ms + c->answer_bytes * 1000 / g->caller_bytes_per_s;
}

/* ---- calls ---- */

/* Its events are for nobody any more. */
static void event_drop(struct rpc_call *c)
{
    if (!c->link_event)
        return;
    if (c->next_event)
        c->next_event->link_event = c->link_event;
    else
        c->server->events_end = c->link_event;
    *c->link_event = c->next_event;
    c->link_event = NULL;
}

static void call_free(struct rpc_call *c)
{
    wait_end(c);
    event_drop(c);
    if (c->link) {
        if (c->next)
            c->next->link = c->link;
        *c->link = c->next;
    }
    grpc_byte_buffer_destroy(c->message);
    grpc_byte_buffer_destroy(c->answer);
    grpc_call_details_destroy(&c->details);
    grpc_metadata_array_destroy(&c->metadata);
    if (c->call)
        grpc_call_unref(c->call);
    free(c->method);
    free(c->authorization);
    free(c->api_key);
    free(c);
}

static void call_ask(struct rpc_server *s);

/* One holder less; under the lock. */
static void call_release(struct rpc_call *c)
{
    struct rpc_server *s = c->server;
    if (--c->held > 0)
        return;
    call_free(c);
    s->n_calls--;
    call_ask(s);
}

/* Asks the library for one call more. */
static void call_ask(struct rpc_server *s)
{
    if (s->asked || s->ended)
        return;
    struct rpc_call *c = calloc(1, sizeof *c);
    if (!c)
        return; /* the next call that ends, or connection that comes, asks again */
    c->server = s;
    for (int i = 0; i < TAG_KINDS; i++)
        c->tags[i] = (struct tag){(enum tag_kind)i, c};
    grpc_call_details_init(&c->details);
    grpc_metadata_array_init(&c->metadata);
    if (grpc_server_request_call(s->server, &c->call, &c->details, &c->metadata, s->queue, s->queue,
                                 &c->tags[TAG_NEW]) != GRPC_CALL_OK) {
        call_free(c);
        return;
    }
    s->asked = true;
}

/* Starts operations that hold the call until they end. */
static void call_do(struct rpc_call *c, const grpc_op *ops, size_t n, enum tag_kind kind)
{
    c->held++;
    if (grpc_call_start_batch(c->call, ops, n, &c->tags[kind], NULL) != GRPC_CALL_OK)
        c->held--;
}

/* ---- events: on the library's thread ---- */

static void event_put(struct rpc_call *c)
{
    struct rpc_server *s = c->server;
    if (c->link_event || !c->owned)
        return;
    c->next_event = NULL;
    c->link_event = s->events_end;
    *s->events_end = c;
    s->events_end = &c->next_event;
    s->config.wake(s->config.ctx);
}

static char *slice_copy(const grpc_slice *slice)
{
    return strndup((const char *)GRPC_SLICE_START_PTR(*slice), GRPC_SLICE_LENGTH(*slice));
}

static int64_t left_ns(gpr_timespec deadline)
{
    if (gpr_time_cmp(deadline, gpr_inf_future(deadline.clock_type)) == 0)
        return INT64_MAX;
    gpr_timespec left = gpr_time_sub(deadline, gpr_now(deadline.clock_type));
    return left.tv_sec > INT32_MAX ? INT64_MAX : left.tv_sec * 1000000000 + left.tv_nsec;
}

/* What the library calls a connection that it was given: "fd:37". */
static int connection_of(grpc_call *call)
{
    int fd = -1;
    char *peer = grpc_call_get_peer(call);
    if (!peer || sscanf(peer, "fd:%d", &fd) != 1)
        fd = -1;
    gpr_free(peer);
    return fd;
}

static void head_read(struct rpc_call *c)
{
    c->method = slice_copy(&c->details.method);
    for (size_t i = 0; i < c->metadata.count; i++) {
        const grpc_metadata *m = &c->metadata.metadata[i];
        if (grpc_slice_str_cmp(m->key, "authorization") == 0 && !c->authorization)
            c->authorization = slice_copy(&m->value);
        else if (grpc_slice_str_cmp(m->key, "x-api-key") == 0 && !c->api_key)
            c->api_key = slice_copy(&m->value);
    }
    c->head = (struct rpc_head){c->method, c->authorization, c->api_key, connection_of(c->call),
                                left_ns(c->details.deadline)};
}

static void call_tell_stop(struct rpc_call *c)
{
    grpc_call_cancel_with_status(c->call, GRPC_STATUS_UNAVAILABLE,
                                 "the coordinator stops: ask again later", NULL);
}

/* Its owner hears nothing more of it. */
static void call_drop(struct rpc_call *c)
{
    event_drop(c);
    c->owned = c->came = false;
    call_release(c);
}

/* One that nobody has heard of. */
static void call_refuse(struct rpc_call *c)
{
    struct rpc_server *s = c->server;
    if (s->stopping)
        call_tell_stop(c);
    else
        grpc_call_cancel_with_status(c->call, GRPC_STATUS_RESOURCE_EXHAUSTED,
                                     "too many calls are open: try again later", NULL);
    call_free(c);
    call_ask(s);
}

static void call_came(struct rpc_call *c, bool ok)
{
    struct rpc_server *s = c->server;
    s->asked = false;
    if (!ok) {
        call_free(c);
        return;
    }
    if (s->stopping || s->n_calls >= 2 * s->config.calls_max) {
        call_refuse(c);
        return;
    }
    s->n_calls++;
    c->next = s->calls;
    c->link = &s->calls;
    if (c->next)
        c->next->link = &c->next;
    s->calls = c;
    head_read(c);
    c->held = 1;
    c->owned = c->came = true;
    const grpc_op closed = {.op = GRPC_OP_RECV_CLOSE_ON_SERVER,
                            .data.recv_close_on_server.cancelled = &c->cancelled};
    call_do(c, &closed, 1, TAG_CLOSED);
    event_put(c);
    if (s->n_calls >= s->config.calls_max && s->waits)
        wait_give_up(s->waits);
    call_ask(s);
}

static void tag_take(const struct tag *t, bool ok)
{
    struct rpc_call *c = t->call;
    switch (t->kind) {
    case TAG_NEW: call_came(c, ok); return;
    case TAG_CLOSED:
        c->gone = true;
        if (c->came)
            call_drop(c);
        else
            event_put(c);
        break;
    case TAG_READ:
        wait_end(c);
        c->read = true;
        event_put(c);
        break;
    case TAG_SENT:
    case TAG_KINDS: break;
    }
    call_release(c);
}

/* Until the queue is shut down and empty. */
static void queue_run(struct rpc_server *s)
{
    for (;;) {
        grpc_event event =
            grpc_completion_queue_next(s->queue, gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL);
        if (event.type == GRPC_QUEUE_SHUTDOWN)
            return;
        if (event.type != GRPC_OP_COMPLETE)
            continue;
        if (event.tag == &s->down) { /* all calls have ended */
            grpc_completion_queue_shutdown(s->queue);
            continue;
        }
        pthread_mutex_lock(&s->lock);
        tag_take(event.tag, event.success != 0);
        pthread_mutex_unlock(&s->lock);
    }
}

static void *thread_run(void *arg)
{
    thread_turns_short();
    queue_run(arg);
    return NULL;
}

/* ---- events: on the owner's thread ---- */

static bool message_copy(struct rpc_call *c, struct buffer *out, const char **missing)
{
    grpc_byte_buffer_reader reader;
    grpc_slice slice;
    const grpc_byte_buffer *message = c->message;
    if (!message || message->data.raw.compression != GRPC_COMPRESS_NONE) {
        *missing = message ? "compressed messages are not taken" : "the call has no message";
        return false;
    }
    grpc_byte_buffer_reader_init(&reader, c->message);
    while (grpc_byte_buffer_reader_next(&reader, &slice)) {
        buffer_append(out, GRPC_SLICE_START_PTR(slice), GRPC_SLICE_LENGTH(slice));
        grpc_slice_unref(slice);
    }
    grpc_byte_buffer_reader_destroy(&reader);
    grpc_byte_buffer_destroy(c->message);
    c->message = NULL;
    if (out->failed)
        *missing = "no memory for the message: try again later";
    return !out->failed;
}

/* The first event of a call that waits. */
static void event_take(struct rpc_call *c, struct rpc_event *out)
{
    *out = (struct rpc_event){.call = c, .data = c->data, .kind = RPC_CALL};
    if (c->came) {
        c->came = false;
    } else if (c->gone) {
        out->kind = RPC_GONE;
        c->owned = c->read = false;
    } else {
        out->kind = RPC_MESSAGE;
        c->read = false;
    }
}

static bool server_next(struct rpc_server *s, struct rpc_event *out)
{
    pthread_mutex_lock(&s->lock);
    struct rpc_call *c = s->events;
    if (c) {
        event_drop(c);
        event_take(c, out);
        if (out->kind == RPC_GONE)
            call_release(c);
        else if (c->read || c->gone)
            event_put(c);
    }
    pthread_mutex_unlock(&s->lock);
    if (c && out->kind == RPC_MESSAGE && !message_copy(out->call, &out->message, &out->missing))
        buffer_free(&out->message);
    return c != NULL;
}

static const struct rpc_head *call_head(const struct rpc_call *c)
{
    return &c->head;
}

static void call_keep(struct rpc_call *c, void *data)
{
    c->data = data;
}

static void call_read(struct rpc_call *c)
{
    const grpc_op read = {.op = GRPC_OP_RECV_MESSAGE,
                          .data.recv_message.recv_message = &c->message};
    pthread_mutex_lock(&c->server->lock);
    wait_begin(c, 0);
    call_do(c, &read, 1, TAG_READ);
    pthread_mutex_unlock(&c->server->lock);
}

/* The bytes are the library's from here on, which frees them once they are sent. */
static grpc_byte_buffer *answer_message(struct buffer *message)
{
    grpc_slice slice =
        message->size > 0
            ? grpc_slice_new_with_user_data(message->data, message->size, free, message->data)
            : grpc_empty_slice();
    if (message->size == 0)
        buffer_free(message);
    *message = (struct buffer){0};
    grpc_byte_buffer *out = grpc_raw_byte_buffer_create(&slice, 1);
    grpc_slice_unref(slice);
    return out;
}

static void answer_send(struct rpc_call *c, const struct rpc_answer *a)
{
    char seconds[16];
    snprintf(seconds, sizeof seconds, "%u", a->retry_after_s);
    grpc_slice details = grpc_slice_from_copied_string(a->status == RPC_OK ? "" : a->text);
    grpc_metadata retry = {.key = grpc_slice_from_static_string("retry-after"),
                           .value = grpc_slice_from_copied_string(seconds)};
    grpc_op ops[3] = {{.op = GRPC_OP_SEND_INITIAL_METADATA},
                      {.op = GRPC_OP_SEND_STATUS_FROM_SERVER},
                      {.op = GRPC_OP_SEND_MESSAGE}};
    ops[1].data.send_status_from_server.status = (grpc_status_code)a->status;
    ops[1].data.send_status_from_server.status_details = &details;
    ops[1].data.send_status_from_server.trailing_metadata_count = a->retry_after_s > 0;
    ops[1].data.send_status_from_server.trailing_metadata = &retry;
    ops[2].data.send_message.send_message = c->answer;
    call_do(c, ops, c->answer ? 3 : 2, TAG_SENT);
    grpc_slice_unref(details);
    grpc_slice_unref(retry.value);
}

static void call_answer(struct rpc_call *c, const struct rpc_answer *a)
{
    struct rpc_server *s = c->server;
    pthread_mutex_lock(&s->lock);
    if (a->status == RPC_OK && a->message) {
        wait_begin(c, a->message->size);
        c->answer = answer_message(a->message);
    } else {
        wait_begin(c, 0);
    }
    answer_send(c, a);
    call_drop(c);
    while (s->unread_bytes > s->config.memory_bytes)
        wait_give_up(s->waits);
    pthread_mutex_unlock(&s->lock);
}

static void server_tend(struct rpc_server *s)
{
    uint64_t now = now_ms();
    pthread_mutex_lock(&s->lock);
    for (struct rpc_call *c = s->waits, *next; c; c = next) {
        next = c->next_wait;
        if (waits_too_long(c, now))
            wait_give_up(c);
    }
    if (s->n_calls >= s->config.calls_max && s->waits)
        wait_give_up(s->waits);
    pthread_mutex_unlock(&s->lock);
}

/* ---- starting and stopping ---- */

static grpc_arg number_arg(const char *key, int value)
{
    return (grpc_arg){
        .type = GRPC_ARG_INTEGER, .key = (char *)(uintptr_t)key, .value.integer = value};
}

/* Nothing is decompressed: a kilobyte may become a gigabyte. */
static grpc_server *server_create(struct rpc_server *s)
{
    grpc_arg args[] = {
        number_arg(GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, (int)s->config.message_bytes_max),
        number_arg(GRPC_ARG_MAX_METADATA_SIZE, METADATA_BYTES),
        number_arg(GRPC_ARG_MAX_CONCURRENT_STREAMS, STREAMS_PER_CONNECTION),
        number_arg(GRPC_ARG_MAX_CONNECTION_IDLE_MS, IDLE_MS),
        number_arg(GRPC_ARG_KEEPALIVE_TIME_MS, ALIVE_ASK_MS),
        number_arg(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, ALIVE_WAIT_MS),
        number_arg(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0),
        number_arg(GRPC_COMPRESSION_CHANNEL_ENABLED_ALGORITHMS_BITSET, 1 << GRPC_COMPRESS_NONE),
        {.type = GRPC_ARG_POINTER,
         .key = (char *)(uintptr_t)GRPC_ARG_RESOURCE_QUOTA,
         .value.pointer = {s->quota, grpc_resource_quota_arg_vtable()}},
    };
    const grpc_channel_args all = {sizeof args / sizeof *args, args};
    return grpc_server_create(&all, NULL);
}

static void server_free(struct rpc_server *s)
{
    if (s->server)
        grpc_server_destroy(s->server);
    if (s->queue)
        grpc_completion_queue_destroy(s->queue);
    grpc_resource_quota_unref(s->quota);
    grpc_shutdown();
    pthread_mutex_destroy(&s->lock);
    free(s);
}

/* Answers that callers take are given, for a moment. */
static void calls_end(struct rpc_server *s)
{
    uint64_t until_ms = now_ms() + STOP_MS;
    bool open = true;
    while (open && now_ms() < until_ms) {
        pthread_mutex_lock(&s->lock);
        open = s->n_calls > 0;
        pthread_mutex_unlock(&s->lock);
        if (open)
            usleep(STOP_LOOK_US);
    }
}

/* Ends all calls and waits until the library has let go of everything. */
static void server_down(struct rpc_server *s, bool has_thread)
{
    pthread_mutex_lock(&s->lock);
    s->ended = true;
    pthread_mutex_unlock(&s->lock);
    grpc_server_shutdown_and_notify(s->server, s->queue, &s->down);
    grpc_server_cancel_all_calls(s->server);
    if (has_thread)
        pthread_join(s->thread, NULL);
    else
        queue_run(s);
    server_free(s);
}

/* Signals are the owner's. */
static int thread_start(struct rpc_server *s, struct err *e)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(&s->thread, NULL, thread_run, s);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc == 0 ? 0 : err_set(e, HP_ENOMEM, "no thread for gRPC: %s", strerror(rc));
}

/* What the library says is of strangers mostly, who may say it as often as they like. */
static void library_log(gpr_log_func_args *said)
{
    (void)said;
}

static int server_start(const struct rpc_config *config, struct rpc_server **out, struct err *e)
{
    struct rpc_server *s = calloc(1, sizeof *s);
    if (!s)
        return err_no_memory(e, "gRPC");
    s->config = *config;
    s->events_end = &s->events;
    s->waits_end = &s->waits;
    pthread_mutex_init(&s->lock, NULL);
    gpr_set_log_function(library_log);
    grpc_init();
    s->quota = grpc_resource_quota_create("hp");
    grpc_resource_quota_resize(s->quota, config->memory_bytes);
    s->queue = grpc_completion_queue_create_for_next(NULL);
    s->server = server_create(s);
    grpc_server_register_completion_queue(s->server, s->queue, NULL);
    grpc_server_start(s->server);
    int rc = thread_start(s, e);
    if (rc < 0) {
        server_down(s, false);
        return rc;
    }
    pthread_mutex_lock(&s->lock);
    call_ask(s);
    pthread_mutex_unlock(&s->lock);
    *out = s;
    return 0;
}

static void server_connect(struct rpc_server *s, int fd)
{
    grpc_server_credentials *plain = grpc_insecure_server_credentials_create();
    grpc_server_add_channel_from_fd(s->server, fd, plain);
    grpc_server_credentials_release(plain);
    pthread_mutex_lock(&s->lock);
    call_ask(s); /* there may have been no memory for it, and no call that could end */
    pthread_mutex_unlock(&s->lock);
}

static void server_stop(struct rpc_server **out)
{
    struct rpc_server *s = *out;
    *out = NULL;
    if (!s)
        return;
    pthread_mutex_lock(&s->lock);
    s->stopping = true;
    for (struct rpc_call *c = s->calls, *next; c; c = next) {
        next = c->next;
        if (c->owned) {
            call_tell_stop(c);
            call_drop(c);
        }
    }
    pthread_mutex_unlock(&s->lock);
    calls_end(s);
    server_down(s, true);
}

extern const struct rpc_table hp_grpc_plugin;
const struct rpc_table hp_grpc_plugin = {.magic = RPC_MAGIC,
                                         .bytes = sizeof(struct rpc_table),
                                         .version = HP_VERSION,
                                         .start = server_start,
                                         .connect = server_connect,
                                         .next = server_next,
                                         .head = call_head,
                                         .keep = call_keep,
                                         .read = call_read,
                                         .answer = call_answer,
                                         .tend = server_tend,
                                         .stop = server_stop};
