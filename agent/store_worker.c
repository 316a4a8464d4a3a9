/* Owns the thread and its orders. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "agent/store_worker_int.h"
#include "common/env.h"
#include "common/log.h"

enum store_order_kind {
    STORE_ORDER_FETCH,
    STORE_ORDER_DROP,
    STORE_ORDER_OPEN,
    STORE_ORDER_FRAME,
    STORE_ORDER_LINK_DOWN,
    STORE_ORDER_REMOVE,
    STORE_ORDER_QUIT
};
enum { TRY_AGAIN_MS = 5 };

struct store_order {
    enum store_order_kind kind;
    uint64_t slot, ticket;
    struct message_ref *prepare; /* FETCH: held */
    struct buffer bytes;         /* OPEN: the manifest */
    struct frame_header header;
    struct data_buffer *payload;
    uint64_t link; /* LINK_DOWN: its number */
    struct digest model;
};

/* What an order asked for will not be done: its answer, which needs no memory here. */
static void order_fail(struct store_worker *w, const struct store_order *o, const char *why)
{
    struct err e = {0};
    struct store_report r = {.slot = o->slot,
                             .ticket = o->ticket,
                             .status = err_set(&e, HP_ENOMEM, "%s", why),
                             .error = &e,
                             .path = o->kind == STORE_ORDER_OPEN ? "" : NULL};
    log_error("store", "order_lost", "reason=no_memory kind=%d", (int)o->kind);
    if (o->kind != STORE_ORDER_FETCH && o->kind != STORE_ORDER_OPEN &&
        o->kind != STORE_ORDER_REMOVE)
        return; /* frames are asked for again, links fall silent */
    r.kind = o->kind == STORE_ORDER_FETCH  ? STORE_FETCHED
             : o->kind == STORE_ORDER_OPEN ? STORE_OPENED
                                           : STORE_CHANGED;
    r.models_unknown = r.kind == STORE_CHANGED;
    w->config.report(w->config.ctx, &r);
}

/* ---- the thread ---- */

static void model_hold(struct store_worker *w, struct store_order *o)
{
    struct err e = {0};
    struct store_job *j = calloc(1, sizeof *j);
    int rc = j ? weight_store_hold(w->store, o->bytes.data, o->bytes.size, &j->model, &e)
               : err_set(&e, HP_ENOMEM, "no memory for a model");
    if (rc == 0) {
        j->slot = o->slot;
        j->next = w->jobs;
        w->jobs = j;
    } else {
        free(j);
    }
    w->config.report(w->config.ctx,
                     &(struct store_report){.kind = STORE_OPENED,
                                            .slot = o->slot,
                                            .ticket = o->ticket,
                                            .status = rc,
                                            .error = &e,
                                            .path = rc == 0 ? store_model_path(j->model) : ""});
}

static void model_remove(struct store_worker *w, const struct store_order *o)
{
    struct err e = {0};
    int rc = weight_store_remove(w->store, &o->model, &e);
    store_models_tell(w, o->ticket, rc, &e);
}

static void order_do(struct store_worker *w, struct store_order *o)
{
    switch (o->kind) {
    case STORE_ORDER_FETCH:
        if (!store_job_start(w, o->slot, o->ticket, o->prepare))
            order_fail(w, o, "no memory to fetch a stage");
        break;
    case STORE_ORDER_DROP: store_job_drop(w, o->slot); break;
    case STORE_ORDER_OPEN: model_hold(w, o); break;
    case STORE_ORDER_FRAME:
        if (o->header.kind == FRAME_CHUNK)
            store_chunk_in(w, &o->header, o->payload);
        else if (o->payload)
            store_answers_want(&w->answers, &w->links, &o->header, o->payload->bytes,
                               o->payload->size);
        break;
    case STORE_ORDER_LINK_DOWN: store_job_link_down(w, o->link); break;
    case STORE_ORDER_REMOVE: model_remove(w, o); break;
    case STORE_ORDER_QUIT: w->quitting = true; break;
    }
}

static void order_free(struct store_worker *w, struct store_order *o)
{
    message_ref_release(o->prepare);
    buffer_free(&o->bytes);
    if (o->payload)
        data_buffer_release(w->config.data, o->payload);
}

static void *worker_thread(void *ctx)
{
    struct store_worker *w = ctx;
    pthread_setname_np(pthread_self(), "hp-store");
    store_models_tell(w, 0, 0, NULL);
    while (!w->quitting) {
        bool more = false, waits = false;
        for (struct store_job *j = w->jobs; j; j = j->next) {
            more = (j->fetch && store_job_step(w, j)) || more;
            waits = waits || j->fetch;
        }
        more = store_answers_step(&w->answers, &w->links, w->store) || more;
        /* While there is work the orders are only looked at; while room or an answer is waited for,
         * time must pass; else only orders count. */
        struct store_order o;
        bool came = event_queue_wait(&w->orders, &o,
                                     more               ? 0
                                     : w->answers.count ? TRY_AGAIN_MS
                                     : waits            ? 100
                                                        : -1);
        while (came && !w->quitting) {
            order_do(w, &o);
            order_free(w, &o);
            came = event_queue_take(&w->orders, &o);
        }
        if (came)
            order_free(w, &o);
    }
    return NULL;
}

int store_worker_create(const struct store_worker_config *c, struct store_worker **out,
                        struct err *e)
{
    struct store_worker *w = calloc(1, sizeof *w);
    if (!w)
        return err_set(e, HP_ENOMEM, "no memory for the store's thread");
    w->config = *c;
    event_queue_init(&w->orders, sizeof(struct store_order));
    w->links.data = c->data;
    int rc = store_answers_init(&w->answers, e);
    rc = rc < 0 ? rc : weight_store_open(c->folder, c->limit_bytes, &w->store, e);
    if (rc == 0 && pthread_create(&w->thread, NULL, worker_thread, w) != 0)
        rc = err_set(e, HP_ENOMEM, "cannot start the store's thread");
    w->started = rc == 0;
    if (rc < 0)
        store_worker_destroy(&w);
    else
        *out = w;
    return rc;
}

static void order_put(struct store_worker *w, struct store_order *o)
{
    if (!event_queue_put(&w->orders, o)) {
        order_fail(w, o, "no memory for an order to the store");
        order_free(w, o);
    }
}

void store_worker_destroy(struct store_worker **pw)
{
    struct store_worker *w = *pw;
    struct store_order o = {.kind = STORE_ORDER_QUIT};
    if (!w)
        return;
    if (w->started) {
        order_put(w, &o);
        pthread_join(w->thread, NULL);
    }
    while (event_queue_take(&w->orders, &o))
        order_free(w, &o);
    while (w->jobs)
        store_job_drop(w, w->jobs->slot);
    store_links_close(&w->links);
    store_answers_fini(&w->answers);
    weight_store_close(&w->store);
    event_queue_fini(&w->orders);
    free(w);
    *pw = NULL;
}

void store_worker_fetch(struct store_worker *w, uint64_t slot, uint64_t ticket,
                        struct message_ref *prepare)
{
    order_put(w, &(struct store_order){.kind = STORE_ORDER_FETCH,
                                       .slot = slot,
                                       .ticket = ticket,
                                       .prepare = message_ref_hold(prepare)});
}

void store_worker_drop(struct store_worker *w, uint64_t slot)
{
    order_put(w, &(struct store_order){.kind = STORE_ORDER_DROP, .slot = slot});
}

void store_worker_open(struct store_worker *w, uint64_t slot, uint64_t ticket,
                       struct pack_span manifest)
{
    struct store_order o = {.kind = STORE_ORDER_OPEN, .slot = slot, .ticket = ticket};
    buffer_append(&o.bytes, manifest.data, manifest.size);
    order_put(w, &o);
}

void store_worker_frame(struct store_worker *w, const struct frame_header *h,
                        struct data_buffer *payload)
{
    order_put(w,
              &(struct store_order){.kind = STORE_ORDER_FRAME, .header = *h, .payload = payload});
}

void store_worker_link_down(struct store_worker *w, uint64_t link)
{
    order_put(w, &(struct store_order){.kind = STORE_ORDER_LINK_DOWN, .link = link});
}

void store_worker_remove(struct store_worker *w, uint64_t ticket, const struct digest *model)
{
    order_put(w,
              &(struct store_order){.kind = STORE_ORDER_REMOVE, .ticket = ticket, .model = *model});
}
