/* The data channel over UCX active messages. One worker, on a thread of its own: everything that
 * touches UCX happens there; other threads leave orders in a queue and signal. The thread goes
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
#include "transport/data_ucx_int.h"

enum { ORDERS_A_TURN = 64, STEPS_A_TURN = 8, SPIN_NS = 20000, SLEEP_MS = 1000 };

/* ---- orders
 * ------------------------------------------------------------------------------------------------------------------------
 */

void ucx_order_append(struct order_list *list, struct order *o)
{
    o->next = NULL;
    *list->tail = o;
    list->tail = &o->next;
}

/* Under the lock: an order for a link, of those that are kept, or a new one. */
static struct order *order_take(struct ucx_endpoint *d, struct ucx_link *link)
{
    struct order *o = d->spare_orders;
    if (link->queued == UCX_MAX_LINK_ORDERS)
        return NULL;
    if (o)
        d->spare_orders = o->next;
    else if (d->n_orders == UCX_MAX_ORDERS || !(o = malloc(sizeof *o)))
        return NULL;
    else
        d->n_orders++;
    link->queued++;
    return o;
}

void ucx_order_end(struct ucx_endpoint *d, struct order *o)
{
    data_done_fn done = o->done;
    void *ctx = o->done_ctx;
    int status = o->status;
    data_buffer_release(&d->base, o->payload);
    pthread_mutex_lock(&d->order_lock);
    o->link->queued--;
    o->next = d->spare_orders;
    d->spare_orders = o;
    pthread_mutex_unlock(&d->order_lock);
    if (done)
        done(ctx, status);
}

/* Carries out some orders. True when there were any. */
static bool orders_carry_out(struct ucx_endpoint *d)
{
    int n = 0;
    for (; n < ORDERS_A_TURN; n++) {
        pthread_mutex_lock(&d->order_lock);
        struct order *o = d->orders.first;
        if (o && !(d->orders.first = o->next))
            d->orders.tail = &d->orders.first;
        pthread_mutex_unlock(&d->order_lock);
        if (!o)
            break;
        switch (o->kind) {
        case ORDER_POST: ucx_frame_send(d, o); break;
        case ORDER_DISCONNECT: ucx_link_end(d, o->link); break;
        case ORDER_INTRODUCED: ucx_peer_introduced(d, o->peer); break;
        }
    }
    return n > 0;
}

/* The thread sleeps only when it found the queue empty: one signal wakes it for all that follow. */
void ucx_order_give(struct ucx_endpoint *d, struct order *o)
{
    pthread_mutex_lock(&d->order_lock);
    bool first = d->orders.first == NULL;
    ucx_order_append(&d->orders, o);
    pthread_mutex_unlock(&d->order_lock);
    if (first)
        ucp_worker_signal(d->worker);
}

/* ---- the thread
 * --------------------------------------------------------------------------------------------------------------------
 */

/* Sleeps until UCX or an order has something. */
static void worker_sleep(struct ucx_endpoint *d)
{
    if (ucp_worker_arm(d->worker) != UCS_OK)
        return; /* something came in between */
    struct pollfd p = {d->wake_fd, POLLIN, 0};
    if (poll(&p, 1, SLEEP_MS) == 0)
        atomic_store(&d->room,
                     true); /* memory may have come back to the system, which tells nobody */
}

static bool orders_wait(struct ucx_endpoint *d)
{
    pthread_mutex_lock(&d->order_lock);
    bool any = d->orders.first != NULL;
    pthread_mutex_unlock(&d->order_lock);
    return any;
}

static bool worker_turn(struct ucx_endpoint *d)
{
    bool moved = orders_carry_out(d);
    for (int i = 0; i < STEPS_A_TURN && ucp_worker_progress(d->worker) > 0; i++) {
        moved = true;
        if (orders_wait(d))
            break; /* a step may receive megabytes */
    }
    if (atomic_load(&d->room))
        ucx_frames_fetch(d);
    if (d->n_requests > 0)
        ucx_requests_accept(d);
    moved |= ucx_frames_finish(d);
    if (d->changed)
        ucx_peers_look_after(d);
    return moved;
}

static void *worker_run(void *ctx)
{
    struct ucx_endpoint *d = ctx;
    uint64_t idle_since = 0;
    ucx_guard_enter(d->guard);
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
        if (d->n_opening > 0)
            ucx_peers_expire(d, env_now_ns(&env_real));
        idle_since = 0;
    }
    return NULL;
}

/* ---- opening, closing, posting
 * -----------------------------------------------------------------------------------------------------
 */

static void orders_drop(struct ucx_endpoint *d)
{
    for (struct order *o = d->orders.first, *next; o; o = next) {
        next = o->next;
        if (o->kind == ORDER_DISCONNECT)
            ucx_link_end(d, o->link);
        if (o->kind != ORDER_POST)
            continue;
        o->status = HP_ELINK;
        ucx_order_end(d, o);
    }
    d->orders = (struct order_list){NULL, &d->orders.first};
}

static void orders_free(struct ucx_endpoint *d)
{
    for (struct order *o = d->spare_orders, *next; o; o = next) {
        next = o->next;
        free(o);
    }
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
    ucx_peers_close(d);
    for (int i = 0; d->worker && d->in_flight > 0 && i < UCX_CLOSE_TURNS; i++) {
        ucp_worker_progress(d->worker);
        ucx_frames_finish(d);
    }
    ucx_frames_drop(d);
    if (d->listener)
        ucp_listener_destroy(d->listener);
    if (d->worker)
        ucp_worker_destroy(d->worker);
    if (d->context)
        ucp_cleanup(d->context);
    ucx_guard_close(&d->guard);
    ucx_peers_free(d);
    orders_free(d);
    pthread_mutex_destroy(&d->order_lock);
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

static void ucx_post(struct data_link *base, const struct frame_header *h,
                     struct data_buffer *payload, data_done_fn done, void *done_ctx)
{
    struct ucx_endpoint *d = (struct ucx_endpoint *)base->endpoint;
    struct ucx_link *link = (struct ucx_link *)base;
    pthread_mutex_lock(&d->order_lock);
    struct order *o = order_take(d, link);
    pthread_mutex_unlock(&d->order_lock);
    if (!o) {
        data_buffer_release(base->endpoint, payload);
        if (done)
            done(done_ctx, HP_EBUSY);
        return;
    }
    *o = (struct order){
        .kind = ORDER_POST, .link = link, .payload = payload, .done = done, .done_ctx = done_ctx};
    frame_header_encode(h, o->header);
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

static const struct data_ops ucx_ops = {ucx_close, ucx_connect, ucx_disconnect,
                                        ucx_post,  ucx_room,    ucx_peers_changed};

/* ---- opening: the guard, then UCX behind it
 * ------------------------------------------------------------------------------------------- */

/* Told at most once a second. */
static void on_refused(void *ctx, const char *from, const char *why)
{
    struct ucx_endpoint *d = ctx;
    uint64_t now = env_now_ns(&env_real);
    data_count_stranger(&d->base);
    d->refused_unsaid++;
    if (d->refused_said_ns && now - d->refused_said_ns < 1000000000)
        return;
    log_warn("data", "strangers_refused", "n=%llu last=\"%s: %s\"",
             (unsigned long long)d->refused_unsaid, from, why);
    d->refused_said_ns = now;
    d->refused_unsaid = 0;
}

static bool key_is_allowed(void *ctx, const uint8_t key[KEY_BYTES])
{
    return data_peer_is_allowed(ctx, key);
}

/* Settings of ours, which the user's environment overrules (UCX_TLS=... names transports that no
 * guard stands before). */
static void setting_set(ucp_config_t *config, const char *name, const char *value)
{
    char variable[64];
    snprintf(variable, sizeof variable, "UCX_%s", name);
    if (!getenv(variable))
        ucp_config_modify(config, name, value);
}

static ucs_status_t context_open(struct ucx_endpoint *d, const char *network)
{
    ucp_config_t *config;
    ucs_status_t s = ucp_config_read(NULL, NULL, &config);
    if (s != UCS_OK)
        return s;
    setting_set(config, "TLS", "tcp");
    setting_set(config, "SOCKADDR_TLS_PRIORITY", "tcp");
    setting_set(config, "RNDV_SCHEME",
                "get_zcopy"); /* on TCP: active messages. What it puts ends UCX 1.13 now and then
                                 (tcp_ep.c, PUT_TX_WAITING_ACK) */
    setting_set(config, "RNDV_THRESH",
                "65536"); /* what is larger waits at its sender for room: see DATA_CONTROL_BYTES */
    s = ucp_config_modify(config, "NET_DEVICES", network);
    ucp_params_t p = {
        .field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_NAME,
        .features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP,
        .name = "hodgepodge",
    };
    if (s == UCS_OK)
        s = ucp_init(&p, config, &d->context);
    ucp_config_release(config);
    return s;
}

static ucs_status_t worker_open(struct ucx_endpoint *d)
{
    ucp_worker_params_t p = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                             .thread_mode = UCS_THREAD_MODE_SERIALIZED};
    ucp_am_handler_param_t handler = {
        .field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                      UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG,
        .id = UCX_AM_ID,
        .flags = UCP_AM_FLAG_WHOLE_MSG,
        .cb = ucx_on_message,
        .arg = d,
    };
    ucs_status_t s = ucp_worker_create(d->context, &p, &d->worker);
    s = s == UCS_OK ? ucp_worker_set_am_recv_handler(d->worker, &handler) : s;
    return s == UCS_OK ? ucp_worker_get_efd(d->worker, &d->wake_fd) : s;
}

/* Listens at `own`, and fills in the port. */
static ucs_status_t listener_open(struct ucx_endpoint *d, struct data_address *own)
{
    struct sockaddr_storage sa;
    socklen_t size = ucx_socket_address(own, &sa);
    ucp_listener_params_t p = {
        .field_mask = UCP_LISTENER_PARAM_FIELD_SOCK_ADDR | UCP_LISTENER_PARAM_FIELD_CONN_HANDLER,
        .sockaddr = {(struct sockaddr *)&sa, size},
        .conn_handler = {ucx_on_request, d},
    };
    ucp_listener_attr_t attributes = {.field_mask = UCP_LISTENER_ATTR_FIELD_SOCKADDR};
    ucs_status_t s = ucp_listener_create(d->worker, &p, &d->listener);
    s = s == UCS_OK ? ucp_listener_query(d->listener, &attributes) : s;
    if (s == UCS_OK)
        own->port = ntohs(((const struct sockaddr_in *)(const void *)&attributes.sockaddr)
                              ->sin_port); /* in the same place for IPv6 */
    return s;
}

static int ucx_open_failed(const struct ucx_endpoint *d, struct err *e, ucs_status_t s,
                           const char *network, const struct data_address *own)
{
    int listen_error = ucx_guard_listen_error(d->guard);
    if (s == UCS_ERR_NO_MEMORY || listen_error == ENOMEM)
        return err_set(e, HP_ENOMEM, "out of memory for a data endpoint");
    if (s == UCS_ERR_BUSY || listen_error == EADDRINUSE)
        return err_set(e, HP_EBUSY,
                       "port %u or %u of %s is taken: the data channel cannot listen there",
                       own->port, own->port + 1u, own->host);
    err_set(e, HP_EDEVICE, "cannot open the data channel at %s on network %s: %s", own->host,
            network, ucs_status_string(s));
    return err_hint(e, "`ip link` lists the interfaces; name one with --network");
}

static int ucx_open(struct ucx_endpoint *d, const struct data_config *c, const char *network,
                    struct data_address *own, struct err *e)
{
    struct ucx_guard_config guard = {.keys = c->keys,
                                     .port = c->port ? c->port + 1u : 0,
                                     .ctx = &d->base,
                                     .allowed = key_is_allowed,
                                     .refused = on_refused};
    int rc = ucx_guard_open(&guard, &d->guard, e);
    if (rc < 0)
        return rc;
    ucx_guard_enter(d->guard);
    ucs_status_t s = context_open(d, network);
    s = s == UCS_OK ? worker_open(d) : s;
    s = s == UCS_OK ? listener_open(d, own) : s;
    ucx_guard_enter(NULL);
    return s == UCS_OK ? ucx_guard_test(d->guard, own, e) : ucx_open_failed(d, e, s, network, own);
}

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
    d->waiting.tail = &d->waiting.first;
    d->arrived.tail = &d->arrived.first;
    pthread_mutex_init(&d->order_lock, NULL);
}

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
    rc = ucx_open(d, c, network, &own, e);
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
