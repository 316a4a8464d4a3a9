/* The simulated cluster: no order of an old term is obeyed. The term of a deployment at an agent is
 * the newest generation of which a stage was ordered there. Nothing comes out of order over one
 * control channel, so old orders are made: what was ordered of a generation comes once more, each
 * time that the agent has had a newer one, and when its stages are gone. Whenever an order is older
 * than its term the agent may say something, and must begin, open, move or end nothing. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/cluster_int.h"

struct order_term {
    uint64_t deployment, generation;
    bool begins; /* it orders a stage */
};

/* False: it is no order of one generation, or one that only ends what is there. Plans of pools
 * stand beside each other. */
static bool order_term(const struct message *m, struct order_term *out)
{
#define TERM(field) ((struct order_term){m->u.field.deployment, m->u.field.generation, false})
    switch (m->type) {
    case MESSAGE_STAGE_PREPARE:
        *out = TERM(stage_prepare);
        out->begins = !m->u.stage_prepare.copy;
        return m->u.stage_prepare.share.count == 0;
    case MESSAGE_STAGE_CONNECT: *out = TERM(stage_connect); return true;
    case MESSAGE_SEQUENCE_OPEN: *out = TERM(sequence_open); return true;
    case MESSAGE_SEQUENCE_GROW: *out = TERM(sequence_grow); return true;
    case MESSAGE_SEQUENCE_SPILL: *out = TERM(sequence_spill); return true;
    case MESSAGE_KV_IMPORT: *out = TERM(kv_import); return true;
    case MESSAGE_KV_EXPORT: *out = TERM(kv_export); return true;
    default: return false;
    }
#undef TERM
}

static struct sim_term *term_of(struct sim_agent *a, uint64_t deployment)
{
    for (size_t i = 0; i < a->n_terms; i++)
        if (a->terms[i].deployment == deployment)
            return &a->terms[i];
    return NULL;
}

static void term_raise(struct sim_agent *a, const struct order_term *o)
{
    struct sim_term *t = term_of(a, o->deployment);
    if (!t) {
        a->terms = realloc(a->terms, (a->n_terms + 1) * sizeof *a->terms);
        assert(a->terms);
        t = &a->terms[a->n_terms++];
        *t = (struct sim_term){.deployment = o->deployment};
    }
    t->generation = o->generation;
}

/* ---- orders that come once more ---- */

static void order_keep(struct sim_agent *a, const struct sim_event *ev, const struct order_term *o)
{
    struct sim_kept_order *k = &a->orders[a->next_order++ % SIM_KEPT_ORDERS];
    free(k->bytes);
    *k = (struct sim_kept_order){o->deployment, o->generation, malloc(ev->size), ev->size};
    assert(k->bytes);
    memcpy(k->bytes, ev->bytes, ev->size);
}

static void message_feed(struct sim *s, struct sim_agent *a, const uint8_t *bytes, size_t size)
{
    struct message_ref *m;
    struct err e = {0};
    int rc = message_ref_decode(bytes, size, &m, &e);
    assert(rc == 0);
    struct agent_event in = {.kind = AGENT_EVENT_MESSAGE, .u.message = m};
    sim_agent_event(s, a, &in);
    message_ref_release(m);
}

static void old_orders_repeat(struct sim *s, struct sim_agent *a, uint64_t deployment)
{
    const struct sim_term *t = term_of(a, deployment);
    for (size_t i = 0; t && i < SIM_KEPT_ORDERS; i++) {
        const struct sim_kept_order *k = &a->orders[i];
        if (!k->bytes || k->deployment != deployment || k->generation >= t->generation)
            continue;
        a->order_is_old = true;
        message_feed(s, a, k->bytes, k->size);
        s->old_orders++;
    }
}

/* ---- what is looked at ---- */

void sim_old_order_check(const struct sim *s, const struct sim_agent *a,
                         const struct agent_actions *did)
{
    for (size_t i = 0; i < did->count; i++)
        switch (did->items[i].kind) {
        case AGENT_DO_FETCH:
        case AGENT_DO_UNLOAD:
        case AGENT_DO_CONNECT:
        case AGENT_DO_SESSION_ALLOW:
        case AGENT_DO_SEQUENCE_OPEN:
        case AGENT_DO_SEQUENCE_GROW:
        case AGENT_DO_SPILL:
        case AGENT_DO_KV_IMPORT:
            fprintf(stderr,
                    "# seed %llu at %.6f s (trace %016llx): %s obeys an order of an old term "
                    "(action %d)\n",
                    (unsigned long long)s->seed, (double)s->clock.now_ns * 1e-9,
                    (unsigned long long)s->trace, a->name, (int)did->items[i].kind);
            abort();
        default: break;
        }
}

void sim_message_in(struct sim *s, struct sim_agent *a, const struct sim_event *ev)
{
    struct message_ref *m;
    struct err e = {0};
    struct order_term o = {0};
    int rc = message_ref_decode(ev->bytes, ev->size, &m, &e);
    assert(rc == 0);
    bool is_order = order_term(&m->message, &o), unloads = m->message.type == MESSAGE_STAGE_UNLOAD;
    uint64_t ended = unloads ? m->message.u.stage_unload.deployment : 0;
    const struct sim_term *t = is_order ? term_of(a, o.deployment) : NULL;
    bool newer = o.begins && t && o.generation > t->generation;
    a->order_is_old = t && o.generation < t->generation;
    if (is_order && o.begins && !a->order_is_old)
        term_raise(a, &o);
    struct agent_event in = {.kind = AGENT_EVENT_MESSAGE, .u.message = m};
    sim_agent_event(s, a, &in);
    message_ref_release(m);
    if (is_order)
        order_keep(a, ev, &o);
    if (newer || ended)
        old_orders_repeat(s, a, newer ? o.deployment : ended);
}

void sim_orders_forget(struct sim_agent *a)
{
    for (size_t i = 0; i < SIM_KEPT_ORDERS; i++) {
        free(a->orders[i].bytes);
        a->orders[i] = (struct sim_kept_order){0};
    }
    free(a->terms);
    a->terms = NULL;
    a->n_terms = 0;
}
