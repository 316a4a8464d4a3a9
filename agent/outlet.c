#include "agent/outlet.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "common/env.h"
#include "common/log.h"

struct outlet {
    struct outlet_config config;
    struct data_link *link;
    uint64_t number;      /* of the link, which may be gone before the last of its frames */
    atomic_uint holders;  /* who may post */
    atomic_uint users;    /* those together, and the posts on their way */
    pthread_mutex_t lock; /* guards `queue` */
    struct paced_queue queue;
    struct cluster_wire wire;
    bool known; /* `wire` says how slow the link is */
};

static void user_leave(struct outlet *o)
{
    if (atomic_fetch_sub(&o->users, 1) != 1)
        return;
    pthread_mutex_destroy(&o->lock);
    free(o);
}

static void wire_find(struct outlet *o)
{
    struct err e = {0};
    if (!o->config.paced || !o->config.device[0])
        return;
    o->known = paced_hop(o->config.paced, o->config.device, &o->wire, &e) == 0;
    if (!o->known)
        log_warn("agent", "link_not_paced", "text=\"%s\"", e.text);
}

int outlet_open(const struct outlet_config *c, const uint8_t *address, size_t size,
                struct outlet **out, struct err *e)
{
    struct outlet *o = calloc(1, sizeof *o);
    if (!o)
        return err_set(e, HP_ENOMEM, "no memory for a link");
    o->config = *c;
    int rc = data_connect(c->data, address, size, &o->link, e);
    if (rc < 0) {
        free(o);
        return rc;
    }
    o->number = data_link_number(o->link);
    pthread_mutex_init(&o->lock, NULL);
    wire_find(o);
    o->config.device = NULL; /* the caller's no longer */
    atomic_store(&o->holders, 1);
    atomic_store(&o->users, 1);
    *out = o;
    return 0;
}

struct outlet *outlet_hold(struct outlet *o)
{
    if (!o)
        return NULL;
    atomic_fetch_add(&o->holders, 1);
    atomic_fetch_add(&o->users, 1);
    return o;
}

void outlet_release(struct outlet *o)
{
    if (!o)
        return;
    if (atomic_fetch_sub(&o->holders, 1) == 1) {
        outlet_forget(o);
        data_disconnect(&o->link);
    }
    user_leave(o);
}

void outlet_forget(struct outlet *o)
{
    if (o->config.line)
        delay_line_forget(o->config.line, o->link);
}

uint64_t outlet_number(const struct outlet *o)
{
    return o->number;
}

bool outlet_takes(const struct outlet *o, enum memory_kind kind)
{
    return !o->known && data_link_takes(o->link, kind);
}

static void post_left(struct outlet *o, int status, bool reserved)
{
    o->config.left(o->config.ctx, o->config.slot, o->number, status, reserved);
    user_leave(o);
}

static void on_left(void *ctx, int status)
{
    post_left(ctx, status, false);
}
static void on_reserved_left(void *ctx, int status)
{
    post_left(ctx, status, true);
}

/* When the link that this one stands for would have brought the frame. */
static uint64_t due_ns(struct outlet *o, const struct frame_header *h)
{
    double seconds =
        o->config.tokens
            ? paced_token_seconds(o->config.paced, &o->wire, h->n_runs, o->config.stands_for)
            : paced_hop_seconds(o->config.paced, &o->wire, o->config.hop.layer + 1, h->n_tokens,
                                o->config.stands_for) *
                  o->config.hop.crosses *
                  frame_dtype_ratio(h->dtype); /* the profile counts float32 */
    pthread_mutex_lock(&o->lock);
    uint64_t left = paced_queue_take(&o->queue, h->sent_ns, env_now_ns(&env_real), seconds);
    pthread_mutex_unlock(&o->lock);
    return left + (uint64_t)(o->wire.latency_s * 1e9);
}

void outlet_post(struct outlet *o, const struct frame_header *h, struct data_buffer *payload,
                 bool reserved)
{
    data_done_fn done = reserved ? on_reserved_left : on_left;
    struct frame_header own = *h;
    atomic_fetch_add(&o->users, 1);
    if (!o->known || h->kind == FRAME_ALIVE) {
        data_post(o->link, &own, payload, done, o);
        return;
    }
    own.sent_ns = due_ns(o, h);
    delay_line_post(o->config.line, o->link, &own, payload, own.sent_ns, done, o);
}
