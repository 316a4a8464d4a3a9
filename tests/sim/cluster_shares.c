/* Shares of simulated agents: a batch waits for its begin, takes what the plan says of its size,
 * and goes on to the next share of its way, or back to the coordinator. What a share gives is what
 * came to it. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/share_queue.h"
#include "tests/sim/cluster_int.h"
#include "transport/frame_tensors.h"

static const uint64_t us = 1000, msec = 1000000;

enum { STEP_DUE = 4, STEP_DONE = 5, STEP_LOADED = 6 };

struct sim_share {
    uint64_t slot, ticket, deployment, generation, stage, session;
    double seconds[MESSAGE_MAX_BATCH];
    size_t n_seconds;
    bool ready, busy;
    struct share_queue queue;
    struct share_batch running;
    uint64_t began_ns;
    char (*addresses)[32]; /* of the plan's peers; "" is the coordinator */
    uint64_t *sessions;
    size_t n_peers;
};

static struct sim_share *share_of_slot(struct sim_agent *a, uint64_t slot)
{
    for (size_t i = 0; i < a->n_shares; i++)
        if (a->shares[i]->slot == slot)
            return a->shares[i];
    return NULL;
}

static struct sim_share *share_of_frame(struct sim_agent *a, const struct frame_header *h)
{
    for (size_t i = 0; i < a->n_shares; i++) {
        struct sim_share *x = a->shares[i];
        if (x->deployment == h->deployment && x->generation == h->generation &&
            x->stage == h->stage && x->session == h->session)
            return x;
    }
    return NULL;
}

static void share_event(struct sim *s, const struct sim_agent *a, uint64_t slot, int step,
                        uint64_t after_ns)
{
    struct sim_event *ev = sim_event_add(s, EVENT_WORK, after_ns);
    ev->agent = a->index;
    ev->incarnation = a->incarnation;
    ev->slot = slot;
    ev->step = step;
}

void sim_share_load(struct sim *s, struct sim_agent *a, const struct agent_action *act)
{
    const struct message_stage_prepare *p = &act->u.work.prepare->message.u.stage_prepare;
    const struct message_share *share = p->share.items;
    const struct message_seconds *seconds = share->seconds.items;
    struct sim_share *x = calloc(1, sizeof *x);
    a->shares = realloc(a->shares, (a->n_shares + 1) * sizeof(struct sim_share *));
    assert(x && a->shares && share->seconds.count <= MESSAGE_MAX_BATCH);
    *x = (struct sim_share){.slot = act->u.work.slot,
                            .ticket = act->u.work.ticket,
                            .deployment = p->deployment,
                            .generation = p->generation,
                            .stage = p->stage,
                            .session = p->input_session ? p->input_session : p->session,
                            .n_seconds = share->seconds.count,
                            .queue.limit_bytes = 64 << 20};
    for (size_t i = 0; i < x->n_seconds; i++)
        x->seconds[i] = seconds[i].s;
    a->shares[a->n_shares++] = x;
    s->loads++;
    share_event(s, a, x->slot, STEP_LOADED, sim_delay_ns(s, 5 * msec, 60 * msec));
}

static void share_free(struct sim_share *x)
{
    for (size_t i = 0; i < x->queue.n; i++)
        free(x->queue.batches[i].payload);
    free(x->running.payload);
    free(x->addresses);
    free(x->sessions);
    free(x);
}

bool sim_share_drop(struct sim_agent *a, uint64_t slot)
{
    for (size_t i = 0; i < a->n_shares; i++)
        if (a->shares[i]->slot == slot) {
            share_free(a->shares[i]);
            a->shares[i] = a->shares[--a->n_shares];
            return true;
        }
    return false;
}

void sim_shares_free(struct sim_agent *a)
{
    while (a->n_shares)
        share_free(a->shares[--a->n_shares]);
    free(a->shares);
    a->shares = NULL;
}

void sim_share_connect(struct sim_agent *a, const struct agent_action *act)
{
    const struct message_share_peer *peers = act->u.share_connect.peers.items;
    size_t n = act->u.share_connect.peers.count;
    for (size_t i = 0; i < a->n_shares; i++) {
        struct sim_share *x = a->shares[i];
        if (x->deployment != act->u.share_connect.deployment ||
            x->generation != act->u.share_connect.generation)
            continue;
        x->addresses = realloc(x->addresses, (n + 1) * sizeof *x->addresses);
        x->sessions = realloc(x->sessions, (n + 1) * sizeof *x->sessions);
        assert(x->addresses && x->sessions);
        for (size_t k = 0; k < n; k++) {
            snprintf(x->addresses[k], sizeof x->addresses[k], "%.*s",
                     k ? (int)peers[k].data_address.size : 0,
                     (const char *)peers[k].data_address.data);
            x->sessions[k] = peers[k].session;
        }
        x->n_peers = n;
    }
}

/* ---- batches ---- */

static void batch_fail(struct sim *s, struct sim_agent *a, const struct frame_header *h,
                       const char *why)
{
    struct agent_event ev = {.kind = AGENT_EVENT_SHARE_FAILED};
    ev.u.share_failed.deployment = h->deployment;
    ev.u.share_failed.generation = h->generation;
    ev.u.share_failed.share = h->stage;
    ev.u.share_failed.batch = h->batch;
    ev.u.share_failed.code = HP_EBUSY;
    ev.u.share_failed.text = why;
    sim_agent_event(s, a, &ev);
}

bool sim_frame_send(struct sim *s, const char *address, const struct frame_header *h,
                    const uint8_t *payload)
{
    const struct sim_agent *to = address[0] ? sim_agent_at(s, address) : NULL;
    struct sim_event *ev;
    if (address[0] && !to)
        return false;
    ev = sim_event_add(s, to ? EVENT_FRAME : EVENT_RESULT, sim_delay_ns(s, 50 * us, 100 * us));
    ev->agent = to ? to->index : 0;
    ev->incarnation = to ? to->incarnation : s->core_incarnation;
    ev->header = *h;
    ev->size = h->payload_bytes;
    ev->bytes = malloc(ev->size + 1);
    assert(ev->bytes);
    memcpy(ev->bytes, payload, ev->size);
    return true;
}

static void share_next(struct sim *s, struct sim_agent *a, struct sim_share *x)
{
    uint64_t due = share_queue_due_ns(&x->queue);
    if (x->busy || a->hung || due == UINT64_MAX)
        return;
    if (!share_queue_take(&x->queue, s->clock.now_ns, &x->running)) {
        share_event(s, a, x->slot, STEP_DUE, due - s->clock.now_ns);
        return;
    }
    size_t n = x->running.header.n_tokens;
    double seconds = x->n_seconds ? x->seconds[(n < x->n_seconds ? n : x->n_seconds) - 1] : 1e-3;
    x->busy = true;
    x->began_ns = s->clock.now_ns;
    share_event(s, a, x->slot, STEP_DONE, (uint64_t)(seconds * 1e9));
}

/* Legs of a frame that was checked when it came. */
static void legs_read(const struct share_batch *b, struct frame_leg legs[FRAME_MAX_LEGS],
                      struct frame_tensor *tensors, int *n)
{
    struct err e = {0};
    int rc = frame_tensors_decode(&b->header, b->payload, legs, tensors, FRAME_MAX_TENSORS, n, &e);
    assert(rc == 0);
}

static void share_done(struct sim *s, struct sim_agent *a, struct sim_share *x)
{
    struct frame_leg legs[FRAME_MAX_LEGS];
    static struct frame_tensor tensors[FRAME_MAX_TENSORS];
    struct share_batch *b = &x->running;
    struct frame_header h = b->header;
    int n;
    legs_read(b, legs, tensors, &n);
    struct frame_leg *own = &legs[h.first_position];
    own->arrived_ns = b->arrived_ns;
    own->began_ns = x->began_ns;
    own->ended_ns = s->clock.now_ns;
    h.first_position++;
    uint32_t peer = h.first_position < h.n_runs ? legs[h.first_position].peer : 0;
    uint8_t *out = malloc(h.payload_bytes + 1);
    assert(out);
    frame_tensors_encode(legs, h.n_runs, tensors, n, out);
    if (peer < x->n_peers) {
        h.stage = h.first_position < h.n_runs ? (uint16_t)legs[h.first_position].share : 0;
        h.session = x->sessions[peer];
        if (!sim_frame_send(s, x->addresses[peer], &h, out))
            batch_fail(s, a, &b->header, "the link broke");
    } else {
        batch_fail(s, a, &b->header, "no such peer");
    }
    free(out);
    free(b->payload);
    b->payload = NULL;
    x->busy = false;
}

bool sim_share_work(struct sim *s, struct sim_agent *a, const struct sim_event *ev)
{
    struct sim_share *x = share_of_slot(a, ev->slot);
    if (ev->step != STEP_DUE && ev->step != STEP_DONE && ev->step != STEP_LOADED)
        return false;
    if (!x)
        return true;
    if (ev->step == STEP_LOADED) {
        struct agent_event in = {.kind = AGENT_EVENT_LOADED};
        in.u.progress = (struct agent_progress){.slot = x->slot, .ticket = x->ticket};
        x->ready = true;
        sim_agent_event(s, a, &in);
        return true;
    }
    if (ev->step == STEP_DONE && x->busy)
        share_done(s, a, x);
    share_next(s, a, x);
    return true;
}

void sim_share_frame(struct sim *s, struct sim_agent *a, struct sim_event *ev)
{
    struct frame_leg legs[FRAME_MAX_LEGS];
    static struct frame_tensor tensors[FRAME_MAX_TENSORS];
    struct sim_share *x = share_of_frame(a, &ev->header);
    struct share_batch b = {
        .header = ev->header, .payload = ev->bytes, .arrived_ns = s->clock.now_ns};
    int n;
    if (!x)
        return; /* stale */
    legs_read(&b, legs, tensors, &n);
    b.start_ns = legs[b.header.first_position].start_ns;
    if (!x->ready || share_queue_put(&x->queue, &b, NULL) < 0) {
        batch_fail(s, a, &ev->header, x->ready ? "full" : "not loaded");
        return;
    }
    ev->bytes = NULL;
    share_next(s, a, x);
}
