/* The data channel over TCP: the endpoint, its thread, and the face that data.h shows of it.
 * data_tcp_int.h tells how the parts fit. */
#include <errno.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/env.h"
#include "common/thread_turns.h"
#include "transport/data_tcp_int.h"

enum { EVENTS_PER_TURN = 64, LONGEST_TURN_MS = 500 };

/* ---- the thread ---- */

static void endpoint_wake(struct tcp_endpoint *d)
{
    uint64_t one = 1;
    ssize_t n = write(d->wake_fd, &one, sizeof one);
    (void)n; /* a full counter wakes as well */
}

static void orders_carry_out(struct tcp_endpoint *d)
{
    pthread_mutex_lock(&d->base.lock);
    struct tcp_order *o = d->orders;
    d->orders = NULL;
    d->orders_tail = &d->orders;
    d->n_orders = 0;
    d->asleep = false;
    pthread_mutex_unlock(&d->base.lock);
    while (o) {
        struct tcp_order *next = o->next;
        if (o->is_frame)
            tcp_peer_post(d, (struct tcp_frame *)o);
        else
            tcp_peer_link_gone(o->link);
        o = next;
    }
}

/* Time counts only while this thread listens: after a pause (suspend, a debugger) nobody is judged
 * before what came meanwhile was read. */
static bool clock_turn(struct tcp_endpoint *d)
{
    uint64_t now = env_now_ns(&env_real), passed_ms = (now - d->turned_ns) / 1000000;
    if (passed_ms == 0)
        return false;
    d->turned_ns += passed_ms * 1000000;
    d->clock_ms += passed_ms < LONGEST_TURN_MS ? passed_ms : LONGEST_TURN_MS;
    if (d->clock_ms - d->ticked_ms < TCP_TICK_MS)
        return false;
    d->ticked_ms = d->clock_ms;
    return true;
}

static void endpoint_tick(struct tcp_endpoint *d)
{
    tcp_proofs_tick(d);
    tcp_conns_tick(d);
    tcp_peers_tick(d);
    tcp_listen_again(d);
}

static void flags_look(struct tcp_endpoint *d)
{
    if (atomic_exchange(&d->peers_changed, false)) {
        tcp_peers_look(d);
        tcp_proofs_look(d);
    }
    if (!atomic_exchange(&d->room, false))
        return;
    for (struct tcp_conn *c = d->conns, *next; c; c = next) {
        next = c->next;
        tcp_conn_room(c);
    }
    for (struct tcp_peer *peer = d->peers; peer; peer = peer->next)
        if (peer->self)
            tcp_peer_self_deliver(peer);
}

static void dirty_write(struct tcp_endpoint *d)
{
    for (struct tcp_conn *c = d->conns, *next; c; c = next) {
        next = c->next;
        if (c->dirty)
            tcp_conn_write(c);
    }
}

/* Orders that came since the last look are not slept over, and wake nobody. */
static bool may_sleep(struct tcp_endpoint *d)
{
    pthread_mutex_lock(&d->base.lock);
    d->asleep = !d->orders;
    bool may = d->asleep;
    pthread_mutex_unlock(&d->base.lock);
    return may;
}

static int events_wait(struct tcp_endpoint *d, struct epoll_event *events)
{
    bool idle = !d->conns && !d->proofs && d->listening && d->base.strangers.unsaid == 0;
    int limit_ms = !may_sleep(d) ? 0 : idle ? -1 : TCP_TICK_MS;
    pthread_mutex_unlock(&d->awake);
    int n = epoll_wait(d->epoll, events, EVENTS_PER_TURN, limit_ms);
    pthread_mutex_lock(&d->awake);
    return n;
}

/* One turn: what came, what is ordered, what may go. */
static void endpoint_turn(struct tcp_endpoint *d)
{
    struct epoll_event events[EVENTS_PER_TURN];
    int n = events_wait(d, events);
    bool due = clock_turn(d);
    for (int i = 0; i < n; i++) {
        struct tcp_watch *w = events[i].data.ptr;
        w->ready(w, events[i].events);
    }
    orders_carry_out(d);
    flags_look(d);
    if (due)
        endpoint_tick(d);
    dirty_write(d);
    tcp_watches_free(d);
}

/* Says goodbye on every connection, and waits a moment for the other's, so that what was sent last
 * arrives: closing a socket with unread bytes would take back what is on its way. */
static void endpoint_leave(struct tcp_endpoint *d)
{
    d->closing = true;
    tcp_proofs_drop(d);
    orders_carry_out(d);
    for (struct tcp_peer *peer = d->peers; peer; peer = peer->next)
        tcp_peer_fail(peer, &(struct err){HP_ECANCELED, "this endpoint closes", ""});
    for (struct tcp_conn *c = d->conns, *next; c; c = next) {
        next = c->next;
        tcp_queue_fail(d, &c->announced, HP_ELINK);
        tcp_conn_retire(c, BYE_CLOSING);
        c->bye = BYE_CLOSING;
        if (c->bye_sent)
            tcp_conn_break(c, NULL);
    }
    dirty_write(d);
    uint64_t until = d->clock_ms + tcp_ms(d, TCP_CLOSE_MS);
    while (d->conns && d->clock_ms < until)
        endpoint_turn(d);
    while (d->conns)
        tcp_conn_break(d->conns, NULL);
    tcp_watches_free(d);
}

static void *endpoint_run(void *ctx)
{
    struct tcp_endpoint *d = ctx;
    pthread_setname_np(pthread_self(), "hp-data");
    thread_turns_short();
    pthread_mutex_lock(&d->awake);
    while (!atomic_load(&d->stopping))
        endpoint_turn(d);
    endpoint_leave(d);
    pthread_mutex_unlock(&d->awake);
    return NULL;
}

/* ---- the face ---- */

static bool order_give(struct tcp_endpoint *d, struct tcp_order *o)
{
    o->next = NULL;
    pthread_mutex_lock(&d->base.lock);
    bool room = !o->is_frame || d->n_orders < TCP_MAX_ORDERS, sleeps = room && d->asleep;
    if (room) {
        *d->orders_tail = o;
        d->orders_tail = &o->next;
        d->n_orders++;
        d->asleep = false;
    }
    pthread_mutex_unlock(&d->base.lock);
    if (sleeps)
        endpoint_wake(d);
    return room;
}

/* While the thread sleeps or is in a frame's callback, a small frame need not wait for it. */
static bool frame_send_now(struct tcp_endpoint *d, struct tcp_link *link, struct tcp_frame *f)
{
    bool small = !f->payload || f->payload->size <= DATA_CONTROL_BYTES;
    if (!small || f->background || pthread_mutex_trylock(&d->awake) != 0)
        return false;
    struct tcp_conn *c = link->peer && !link->down ? link->peer->current : NULL;
    bool taken = c && !d->closing && tcp_conn_send_now(c, f), rest = taken && c->dirty;
    pthread_mutex_unlock(&d->awake);
    if (rest)
        endpoint_wake(d);
    return taken;
}

static int tcp_connect(struct data_endpoint *base, const uint8_t *address, size_t size,
                       struct data_link **out, struct err *e)
{
    struct data_address where;
    int rc = data_address_parse(address, size, &where, e);
    if (rc < 0)
        return rc;
    if (where.kind != DATA_KIND_TCP) {
        err_set(e, HP_EINVAL, "the peer %s speaks UCX on its data channel, this process TCP",
                where.host);
        return err_hint(e, "all agents of a cluster use the transport that `hpctl cluster init "
                           "--data` chose; start this one again");
    }
    struct tcp_link *link = calloc(1, sizeof *link);
    if (!link)
        return err_set(e, HP_ENOMEM, "out of memory for a link");
    link->base.endpoint = base;
    link->where = where;
    *out = &link->base;
    return 0;
}

static void tcp_disconnect(struct data_link *base)
{
    struct tcp_link *link = (struct tcp_link *)base;
    link->gone = (struct tcp_order){.link = link};
    order_give((struct tcp_endpoint *)base->endpoint, &link->gone);
}

static void tcp_post(struct data_link *base, const struct frame_header *h,
                     struct data_buffer *payload, data_done_fn done, void *done_ctx)
{
    struct tcp_endpoint *d = (struct tcp_endpoint *)base->endpoint;
    struct tcp_frame *f = tcp_frame_get(d);
    if (!f) {
        data_buffer_release(base->endpoint, payload);
        if (done)
            done(done_ctx, HP_ENOMEM);
        return;
    }
    *f = (struct tcp_frame){.order = {.is_frame = true, .link = (struct tcp_link *)base},
                            .background = h->kind == FRAME_CHUNK,
                            .payload = payload,
                            .done = done,
                            .done_ctx = done_ctx};
    frame_header_encode(h, f->header);
    if (!frame_send_now(d, (struct tcp_link *)base, f) && !order_give(d, &f->order))
        tcp_frame_end(d, f, HP_EBUSY);
}

static void tcp_room(struct data_endpoint *base)
{
    struct tcp_endpoint *d = (struct tcp_endpoint *)base;
    atomic_store(&d->room, true);
    endpoint_wake(d);
}

static void tcp_peers_changed(struct data_endpoint *base)
{
    struct tcp_endpoint *d = (struct tcp_endpoint *)base;
    atomic_store(&d->peers_changed, true);
    endpoint_wake(d);
}

static void peers_free(struct tcp_endpoint *d)
{
    while (d->peers) {
        struct tcp_peer *peer = d->peers;
        d->peers = peer->next;
        free(peer);
    }
}

static void tcp_close(struct data_endpoint *base)
{
    struct tcp_endpoint *d = (struct tcp_endpoint *)base;
    if (d->thread_started) {
        atomic_store(&d->stopping, true);
        endpoint_wake(d);
        pthread_join(d->thread, NULL);
    }
    orders_carry_out(d);
    peers_free(d);
    tcp_frames_free(d);
    int fds[] = {d->listener, d->wake_fd, d->epoll};
    for (int i = 0; i < 3; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    sodium_memzero(&d->keys, sizeof d->keys);
    pthread_mutex_destroy(&d->awake);
    data_base_fini(base);
    free(d);
}

static const struct data_ops tcp_ops = {
    tcp_close, tcp_connect, tcp_disconnect, tcp_post, tcp_room, tcp_peers_changed, NULL};

static int loop_open(struct tcp_endpoint *d, struct err *e)
{
    d->epoll = epoll_create1(EPOLL_CLOEXEC);
    d->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    d->wake_watch.ready = tcp_watch_ignore;
    if (d->epoll >= 0 && d->wake_fd >= 0 &&
        tcp_watch_add(d, d->wake_fd, &d->wake_watch,
                      EPOLLIN | EPOLLET)) /* each write is an edge; nobody needs to read */
        return 0;
    return err_set(e, HP_EDEVICE, "cannot open the data channel: %s", strerror(errno));
}

static int keys_take(struct tcp_endpoint *d, const struct key_pair *keys, struct err *e)
{
    uint8_t secret[KEY_BYTES];
    int rc = key_decode(keys->public_key, d->key, e);
    rc = rc < 0 ? rc : key_decode(keys->secret_key, secret, e);
    sodium_memzero(secret, sizeof secret);
    d->keys = *keys;
    return rc < 0 ? err_at(e, "the data channel's own keys") : 0;
}

int data_open_tcp(const struct data_config *c, struct data_endpoint **out, struct err *e)
{
    struct tcp_endpoint *d = calloc(1, sizeof *d);
    if (!d)
        return err_set(e, HP_ENOMEM, "out of memory for a data endpoint");
    data_base_init(&d->base, &tcp_ops, c);
    pthread_mutex_init(&d->awake, NULL);
    d->orders_tail = &d->orders;
    d->epoll = d->wake_fd = d->listener = -1;
    d->time_scale = env_time_scale();
    d->turned_ns = env_now_ns(&env_real);
    int rc = sodium_init() < 0
                 ? err_set(e, HP_EUNSUPPORTED, "libsodium cannot start on this machine")
                 : keys_take(d, &c->keys, e);
    do
        randombytes_buf(&d->instance, sizeof d->instance);
    while (d->instance == 0);
    rc = rc < 0 ? rc : loop_open(d, e);
    rc = rc < 0 ? rc : tcp_listen(d, c->host ? c->host : "127.0.0.1", c->port, e);
    if (rc == 0 && pthread_create(&d->thread, NULL, endpoint_run, d) != 0)
        rc = err_set(e, HP_ENOMEM, "cannot start the thread of a data endpoint");
    if (rc < 0) {
        tcp_close(&d->base);
        return rc;
    }
    d->thread_started = true;
    *out = &d->base;
    return 0;
}
