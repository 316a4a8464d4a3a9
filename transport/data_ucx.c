/* The data channel over UCX active messages. One worker, on a thread of its own: everything that
 * touches UCX happens there; other threads leave orders in a queue and signal, or, while it sleeps
 * or is in a frame's callback, give UCX a small frame themselves. The thread goes
 * round: a few orders, a few steps of UCX, then what UCX finished, so that neither direction
 * starves the other; when nothing moves it spins for microseconds while something is in flight,
 * then arms the worker and sleeps.
 *
 * UCX does not authenticate: the guard (ucx_guard.h) lets only members reach it. Which of them sent
 * a frame UCX does not tell: a frame counts with an allowed session, which is checked in its header
 * before a large payload is fetched. UCX's packed worker addresses are neither sent nor read. */
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/env.h"
#include "common/log.h"
#include "common/thread_turns.h"
#include "transport/data_ucx_int.h"

enum { ORDERS_A_TURN = 64, STEPS_A_TURN = 8, SPIN_NS = 20000, SLEEP_MS = 1000 };

/* ---- orders ---- */

static void orders_carry_out(struct ucx_endpoint *d)
{
    for (int n = 0; n < ORDERS_A_TURN; n++) {
        struct ucx_order *o = ucx_order_next(d);
        if (!o)
            break;
        switch (o->kind) {
        case ORDER_POST: ucx_frame_send(d, o); break;
        case ORDER_DISCONNECT: ucx_link_end(d, o->link); break;
        case ORDER_INTRODUCED: ucx_peer_introduced(d, o->peer); break;
        }
    }
}

/* ---- the thread ---- */

/* Sleeps until UCX or an order has something. */
static void worker_sleep(struct ucx_endpoint *d)
{
    if (ucp_worker_arm(d->worker) != UCS_OK || !ucx_orders_may_sleep(d))
        return; /* something came in between */
    struct pollfd p = {d->wake_fd, POLLIN, 0};
    pthread_mutex_unlock(&d->awake);
    int n = poll(&p, 1, SLEEP_MS);
    pthread_mutex_lock(&d->awake);
    if (n == 0)
        atomic_store(&d->room,
                     true); /* memory may have come back to the system, which tells nobody */
}

/* True when UCX may have more to do at once. Whether there are more orders the thread sees before
 * it sleeps. */
static bool worker_turn(struct ucx_endpoint *d)
{
    bool moved = false;
    orders_carry_out(d);
    for (int i = 0; i < STEPS_A_TURN && ucp_worker_progress(d->worker) > 0; i++) {
        moved = true;
        if (d->arrived.first || ucx_orders_wait(d))
            break; /* a step may receive megabytes */
    }
    if (atomic_load(&d->room))
        ucx_frames_fetch(d);
    if (d->n_requests > 0)
        ucx_requests_accept(d);
    ucx_frames_finish(d);
    moved |= d->changed;
    if (d->changed) {
        ucx_frames_send_early(d);
        ucx_peers_look_after(d);
    }
    return moved;
}

static void peers_look(struct ucx_endpoint *d, uint64_t now_ns)
{
    ucx_peers_expire(d, now_ns);
    ucx_overdue_end(d, now_ns);
}

static void *worker_run(void *ctx)
{
    struct ucx_endpoint *d = ctx;
    uint64_t idle_since = 0;
    pthread_setname_np(pthread_self(), "hp-data");
    thread_turns_short();
    ucx_guard_enter(d->guard);
    pthread_mutex_lock(&d->awake);
    while (!atomic_load(&d->stopping)) {
        if (worker_turn(d)) {
            idle_since = 0;
            continue;
        }
        if (d->in_flight > 0 && idle_since == 0)
            idle_since = env_now_ns(&env_real);
        if (d->in_flight > 0 && env_now_ns(&env_real) - idle_since < SPIN_NS)
            continue;
        worker_sleep(d);
        if (d->n_opening > 0 || d->in_flight > 0)
            peers_look(d, env_now_ns(&env_real));
        idle_since = 0;
    }
    pthread_mutex_unlock(&d->awake);
    return NULL;
}

/* ---- opening, closing, posting ---- */

static void orders_drop(struct ucx_endpoint *d)
{
    for (struct ucx_order *o = d->orders.first, *next; o; o = next) {
        next = o->next;
        if (o->kind == ORDER_DISCONNECT)
            ucx_link_end(d, o->link);
        if (o->kind != ORDER_POST)
            continue;
        o->status = HP_ELINK;
        ucx_order_end(d, o);
    }
    d->orders = (struct ucx_order_list){NULL, &d->orders.first};
}

static void ucx_close(struct data_endpoint *base)
{
    struct ucx_endpoint *d = (struct ucx_endpoint *)base;
    if (d->thread_started) {
        atomic_store(&d->stopping, true);
        ucp_worker_signal(d->worker);
        pthread_join(d->thread, NULL);
    }
    if (d->guard)
        ucx_guard_stop(d->guard); /* no introduction comes back from now on */
    orders_drop(d);
    ucx_peers_down(d);
    ucx_frames_send_early(d);
    ucx_peers_close(d);
    pthread_mutex_lock(&d->awake);
    for (int i = 0; d->worker && d->in_flight > 0 && i < UCX_CLOSE_TURNS; i++) {
        ucp_worker_progress(d->worker);
        ucx_frames_finish(d);
    }
    pthread_mutex_unlock(&d->awake);
    ucx_frames_drop(d);
    if (d->listener)
        ucp_listener_destroy(d->listener);
    if (d->worker)
        ucp_worker_destroy(d->worker);
    if (d->context)
        ucp_cleanup(d->context);
    ucx_guard_close(&d->guard);
    ucx_peers_free(d);
    ucx_orders_free(d);
    pthread_mutex_destroy(&d->order_lock);
    pthread_mutex_destroy(&d->awake);
    data_base_fini(base);
    free(d);
}

static int ucx_connect(struct data_endpoint *base, const uint8_t *address, size_t size,
                       struct data_link **out, struct err *e)
{
    struct ucx_link *link;
    int rc = ucx_link_create((struct ucx_endpoint *)base, address, size, &link, e);
    if (rc == 0)
        *out = &link->base;
    return rc;
}

static void ucx_disconnect(struct data_link *base)
{
    struct ucx_link *link = (struct ucx_link *)base;
    link->disconnect.kind = ORDER_DISCONNECT;
    link->disconnect.link = link;
    ucx_order_give((struct ucx_endpoint *)base->endpoint, &link->disconnect);
}

/* While the thread sleeps or is in a frame's callback, a small frame need not wait for it; unless
 * UCX has to go on with it. */
static bool frame_send_now(struct ucx_endpoint *d, struct ucx_order *o)
{
    bool small = !o->payload || o->payload->size <= DATA_CONTROL_BYTES;
    if (!small || pthread_mutex_trylock(&d->awake) != 0)
        return false;
    int before = d->in_flight;
    bool taken = !atomic_load(&d->stopping) && !ucx_orders_wait(d) && ucx_frame_send_now(d, o),
         rest = d->in_flight > before || d->changed;
    pthread_mutex_unlock(&d->awake);
    if (taken && rest)
        ucp_worker_signal(d->worker);
    return taken;
}

/* Rows that wait at their sender until there is room for them are posted without their run table.
 */
static size_t head_of(const struct ucx_endpoint *d, const struct frame_header *h,
                      const struct data_buffer *payload)
{
    size_t table = (size_t)h->n_runs * FRAME_RUN_BYTES;
    if (payload && payload->device)
        return payload->head;
    bool apart = payload && d->splits && h->kind == FRAME_ACTIVATION && table <= DATA_HEAD_BYTES &&
                 payload->size > table + DATA_CONTROL_BYTES;
    return apart ? table : 0;
}

static void ucx_post(struct data_link *base, const struct frame_header *h,
                     struct data_buffer *payload, data_done_fn done, void *done_ctx)
{
    struct ucx_endpoint *d = (struct ucx_endpoint *)base->endpoint;
    struct ucx_link *link = (struct ucx_link *)base;
    struct ucx_order *o = ucx_order_take(d, link);
    if (!o) {
        data_buffer_release(base->endpoint, payload);
        if (done)
            done(done_ctx, HP_EBUSY);
        return;
    }
    memset(o, 0, offsetof(struct ucx_order, header));
    o->kind = ORDER_POST;
    o->link = link;
    o->payload = payload;
    o->done = done;
    o->done_ctx = done_ctx;
    frame_header_encode(h, o->header);
    o->head = head_of(d, h, payload);
    if (o->head)
        memcpy(o->header + FRAME_HEADER_BYTES, payload->bytes, o->head);
    if (!frame_send_now(d, o))
        ucx_order_give(d, o);
}

static void ucx_room(struct data_endpoint *base)
{
    struct ucx_endpoint *d = (struct ucx_endpoint *)base;
    if (!atomic_exchange(&d->room, true))
        ucp_worker_signal(d->worker);
}

static void ucx_peers_changed(struct data_endpoint *base)
{
    ucx_guard_peers_changed(((struct ucx_endpoint *)base)->guard);
}

static void peer_loss_add(void *ctx, const uint8_t key[KEY_BYTES], uint64_t segments, uint64_t lost)
{
    data_loss_add(ctx, key, segments, lost);
}

static void ucx_count(struct data_endpoint *base)
{
    ucx_guard_count(((struct ucx_endpoint *)base)->guard, peer_loss_add, base);
}

static const struct data_ops ucx_ops = {ucx_close, ucx_connect,       ucx_disconnect, ucx_post,
                                        ucx_room,  ucx_peers_changed, ucx_count};

/* ---- opening and closing the whole ---- */

static int address_make(struct ucx_endpoint *d, const struct data_address *own, struct err *e)
{
    if (!(d->base.address = malloc(DATA_ADDRESS_TEXT)))
        return err_set(e, HP_ENOMEM, "out of memory for a data endpoint");
    d->base.address_size = data_address_print(own, (char *)d->base.address);
    return 0;
}

static void lists_init(struct ucx_endpoint *d)
{
    d->orders.tail = &d->orders.first;
    d->finished.tail = &d->finished.first;
    d->own.tail = &d->own.first;
    d->waiting.tail = &d->waiting.first;
    d->arrived.tail = &d->arrived.first;
    pthread_mutex_init(&d->order_lock, NULL);
    pthread_mutex_init(&d->awake, NULL);
}

static const struct ucx_handlers handlers = {ucx_on_message, ucx_on_request};

int data_open_ucx(const struct data_config *c, struct data_endpoint **out, struct err *e)
{
    struct data_address own = {.kind = DATA_KIND_UCX, .port = c->port};
    char network[IF_NAMESIZE];
    int rc = ucx_place_find(c, &own, network, e);
    rc = rc < 0 ? rc : key_decode(c->keys.public_key, own.key, e);
    if (rc < 0)
        return rc;
    struct ucx_endpoint *d = calloc(1, sizeof *d);
    if (!d)
        return err_set(e, HP_ENOMEM, "out of memory for a data endpoint");
    data_base_init(&d->base, &ucx_ops, c);
    lists_init(d);
    rc = ucx_stack_open(d, c, network, &handlers, &own, e);
    rc = rc < 0 ? rc : address_make(d, &own, e);
    if (rc == 0 && pthread_create(&d->thread, NULL, worker_run, d) != 0)
        rc = err_set(e, HP_ENOMEM, "cannot start the thread of the data channel");
    if (rc < 0) {
        ucx_close(&d->base);
        return rc;
    }
    d->thread_started = true;
    *out = &d->base;
    return 0;
}
