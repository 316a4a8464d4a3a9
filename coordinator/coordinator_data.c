/* The coordinator's own data endpoint: batches of pools go out here, and their results come in.
 * Opened when the first plan of pools is made, of the kind that the agents have, at the address of
 * this box on the way to them. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "common/env.h"
#include "common/log.h"
#include "common/vector.h"
#include "coordinator/coordinator_int.h"
#include "transport/data.h"
#include "transport/data_choice.h"

enum { LINKS_MOST = 256, SESSIONS_MOST = 16, PEERS_MOST = 4096, MAX_WAITING = 4096 };

/* What came from the endpoint's thread. */
struct data_event {
    struct data_event *next;
    struct frame_header header;
    struct data_buffer *payload; /* NULL: `header` was not sent, or a link is down */
    uint64_t link;               /* of a link that is down; 0: none */
};

struct data_route {
    uint8_t *address;
    size_t address_size;
    struct data_link *link;
};

struct coordinator_data {
    struct coordinator *coordinator;
    struct data_endpoint *endpoint;
    struct data_route routes[LINKS_MOST];
    int n_routes;
    uint64_t sessions[SESSIONS_MOST]; /* allowed */
    int n_sessions;
    struct coord_frame **waiting; /* for a buffer */
    int n_waiting, room_waiting;
    pthread_mutex_t lock; /* over what follows */
    struct data_event *first, **last;
};

/* ---- the endpoint's thread ---- */

static void event_push(struct coordinator_data *d, const struct data_event *made)
{
    struct data_event *ev = malloc(sizeof *ev);
    if (!ev) {
        data_buffer_release(d->endpoint, made->payload);
        return; /* as lost on a bad network: its batch has a deadline */
    }
    *ev = *made;
    ev->next = NULL;
    pthread_mutex_lock(&d->lock);
    *d->last = ev;
    d->last = &ev->next;
    pthread_mutex_unlock(&d->lock);
    uv_async_send(&d->coordinator->wake);
}

static void on_frame(void *ctx, const struct frame_header *h, struct data_buffer *payload)
{
    struct coordinator_data *d = ctx;
    if (h->kind == FRAME_TENSORS && payload)
        event_push(d, &(struct data_event){.header = *h, .payload = payload});
    else
        data_buffer_release(d->endpoint, payload);
}

static void on_link_down(void *ctx, struct data_link *link, const struct err *why)
{
    log_warn_limited("coordinator", "data_link_down", "why=\"%s\"", why->text);
    event_push(ctx, &(struct data_event){.link = data_link_number(link)});
}

/* A frame on its way. */
struct post_ctx {
    struct coordinator_data *data;
    struct frame_header header;
};

static void on_posted(void *ctx, int status)
{
    struct post_ctx *p = ctx;
    if (status < 0) {
        log_warn_limited("coordinator", "frame_not_sent", "status=%s", status_word(status));
        event_push(p->data, &(struct data_event){.header = p->header});
    }
    free(p);
}

/* ---- the loop ---- */

static int endpoint_open(struct coordinator *c, const struct data_address *to, struct err *e)
{
    char host[DATA_HOST_TEXT], interface[64];
    struct coordinator_data *d = calloc(1, sizeof *d);
    if (!d)
        return err_no_memory(e, "a data endpoint");
    d->coordinator = c;
    d->last = &d->first;
    pthread_mutex_init(&d->lock, NULL);
    struct data_config config = {
        .host = host,
        .keys = c->own,
        .callbacks = {.ctx = d, .frame = on_frame, .link_down = on_link_down}};
    int rc = data_host_find(NULL, to->host, host, e);
    if (rc == 0 && data_interface_find(host, interface, sizeof interface))
        config.network = interface;
    rc = rc < 0 ? rc : data_open_kind(to->kind, &config, &d->endpoint, e);
    if (rc < 0) {
        pthread_mutex_destroy(&d->lock);
        free(d);
        return rc;
    }
    c->data = d;
    log_info("coordinator", "data_endpoint", "kind=%s host=%s", data_kind_word(to->kind), host);
    return 0;
}

int coordinator_data_open(void *ctx, struct pack_span agent, struct pack_span *own, struct err *e)
{
    struct coordinator *c = ctx;
    struct data_address to;
    int rc = c->data ? 0 : data_address_parse(agent.data, agent.size, &to, e);
    rc = rc < 0 || c->data ? rc : endpoint_open(c, &to, e);
    if (rc == 0)
        own->data = data_address(c->data->endpoint, &own->size);
    return rc;
}

static struct data_route *route_find(struct coordinator_data *d, const struct coord_frame *f)
{
    for (int i = 0; i < d->n_routes; i++)
        if (d->routes[i].address_size == f->address_size &&
            memcmp(d->routes[i].address, f->address, f->address_size) == 0)
            return &d->routes[i];
    return NULL;
}

static void route_remove(struct coordinator_data *d, int i)
{
    data_disconnect(&d->routes[i].link);
    free(d->routes[i].address);
    d->routes[i] = d->routes[--d->n_routes];
}

static struct data_link *route_link(struct coordinator_data *d, const struct coord_frame *f,
                                    struct err *e)
{
    struct data_route *r = route_find(d, f);
    if (r)
        return r->link;
    if (d->n_routes == LINKS_MOST)
        route_remove(d, 0);
    r = &d->routes[d->n_routes];
    *r = (struct data_route){.address = malloc(f->address_size + 1),
                             .address_size = f->address_size};
    if (!r->address) {
        err_no_memory(e, "a link");
        return NULL;
    }
    memcpy(r->address, f->address, f->address_size);
    if (data_connect(d->endpoint, f->address, f->address_size, &r->link, e) < 0) {
        free(r->address);
        return NULL;
    }
    d->n_routes++;
    return r->link;
}

/* False: there is no buffer now. */
static bool frame_post(struct coordinator *c, struct coord_frame *f)
{
    struct coordinator_data *d = c->data;
    struct err e = {0};
    struct data_buffer *b = data_buffer_get(d->endpoint, f->header.payload_bytes);
    if (!b)
        return false;
    struct data_link *link = route_link(d, f, &e);
    struct post_ctx *p = link ? malloc(sizeof *p) : NULL;
    memcpy(b->bytes, f->payload, f->header.payload_bytes);
    b->size = f->header.payload_bytes;
    if (p) {
        *p = (struct post_ctx){d, f->header};
        p->header.sent_ns = f->header.sent_ns = env_now_ns(&env_real);
        data_post(link, &f->header, b, on_posted, p);
    } else {
        log_warn_limited("coordinator", "frame_not_sent", "why=\"%s\"",
                         link ? "no memory" : e.text);
        data_buffer_release(d->endpoint, b);
        coord_frame_lost(c->core, &f->header);
    }
    coord_frame_free(f);
    return true;
}

void coordinator_data_post(struct coordinator *c, struct coord_frame *f)
{
    struct coordinator_data *d = c->data;
    if (d && d->n_waiting == 0 && frame_post(c, f))
        return;
    if (d && d->n_waiting < MAX_WAITING &&
        vector_push(d->waiting, d->n_waiting, d->room_waiting, f))
        return;
    coord_frame_lost(c->core, &f->header);
    coord_frame_free(f);
}

static void waiting_post(struct coordinator *c)
{
    struct coordinator_data *d = c->data;
    while (d->n_waiting > 0 && frame_post(c, d->waiting[0]))
        vector_remove(d->waiting, d->n_waiting, 0);
}

static void event_in(struct coordinator *c, const struct data_event *ev)
{
    struct coordinator_data *d = c->data;
    for (int i = d->n_routes - 1; ev->link && i >= 0; i--)
        if (data_link_number(d->routes[i].link) == ev->link) {
            coord_link_broken(c->core, d->routes[i].address, d->routes[i].address_size);
            route_remove(d, i);
        }
    if (ev->payload)
        coord_frame_in(c->core, &ev->header, ev->payload->bytes);
    else if (!ev->link)
        coord_frame_lost(c->core, &ev->header);
    data_buffer_release(d->endpoint, ev->payload);
}

static bool session_is_in(uint64_t session, const uint64_t *list, int n)
{
    for (int i = 0; i < n; i++)
        if (list[i] == session)
            return true;
    return false;
}

/* Who may send frames here, and with which tokens. Those that stay are never without. */
static void sessions_sync(struct coordinator *c)
{
    struct coordinator_data *d = c->data;
    uint64_t wanted[SESSIONS_MOST];
    struct err e = {0};
    int n = coord_pool_sessions(c->core, wanted, SESSIONS_MOST);
    if (n == d->n_sessions && memcmp(wanted, d->sessions, (size_t)n * sizeof *wanted) == 0)
        return;
    for (int i = 0; i < d->n_sessions; i++)
        if (!session_is_in(d->sessions[i], wanted, n))
            data_revoke(d->endpoint, d->sessions[i]);
    uint8_t(*keys)[KEY_BYTES] = calloc(PEERS_MOST, KEY_BYTES);
    int rc = keys ? data_peers_allow(d->endpoint, (const uint8_t(*)[KEY_BYTES])keys,
                                     coord_member_keys(c->core, keys, PEERS_MOST), &e)
                  : err_no_memory(&e, "keys");
    for (int i = 0; i < n && rc == 0; i++)
        rc = data_allow(d->endpoint, wanted[i], NULL, &e);
    free(keys);
    memcpy(d->sessions, wanted, (size_t)n * sizeof *wanted);
    d->n_sessions = n;
    if (rc == 0)
        return;
    log_warn_limited("coordinator", "data_not_allowed", "why=\"%s\"", e.text);
    d->n_sessions = 0; /* the next turn tries again */
}

void coordinator_data_run(struct coordinator *c)
{
    struct coordinator_data *d = c->data;
    if (!d)
        return;
    pthread_mutex_lock(&d->lock);
    struct data_event *ev = d->first;
    d->first = NULL;
    d->last = &d->first;
    pthread_mutex_unlock(&d->lock);
    while (ev) {
        struct data_event *next = ev->next;
        event_in(c, ev);
        free(ev);
        ev = next;
    }
    sessions_sync(c);
    waiting_post(c);
}

static void events_free(struct coordinator_data *d)
{
    pthread_mutex_lock(&d->lock);
    struct data_event *ev = d->first;
    d->first = NULL;
    d->last = &d->first;
    pthread_mutex_unlock(&d->lock);
    for (struct data_event *next; ev; ev = next) {
        next = ev->next;
        if (ev->payload)
            data_buffer_release(d->endpoint, ev->payload);
        free(ev);
    }
}

void coordinator_data_close(struct coordinator *c)
{
    struct coordinator_data *d = c->data;
    if (!d)
        return;
    c->data = NULL;
    for (int i = 0; i < d->n_waiting; i++)
        coord_frame_free(d->waiting[i]);
    free(d->waiting);
    while (d->n_routes > 0)
        route_remove(d, 0);
    events_free(d); /* buffers go back before the endpoint ends */
    data_close(&d->endpoint);
    events_free(d); /* of frames that did not leave */
    pthread_mutex_destroy(&d->lock);
    free(d);
}
