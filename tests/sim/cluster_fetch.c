/* How an agent of the simulated cluster comes by weights. */
#include <assert.h>

#include "tests/sim/cluster_int.h"

static const uint64_t msec = 1000000;

static bool peer_has(const struct sim *s, const struct sim_agent *self, int layer)
{
    for (int i = 0; i < s->n_agents; i++)
        if (s->agents[i] != self && s->agents[i]->alive && !s->agents[i]->stopped &&
            s->agents[i]->has_layer[layer])
            return true;
    return false;
}

static void fetch_go(struct sim *s, struct sim_agent *a, int f)
{
    uint32_t wanted[TOY_LAYERS];
    size_t n = 0;
    uint64_t moved = 0;
    for (int l = a->fetch[f].first; l < a->fetch[f].end; l++) {
        if (!a->has_layer[l] && peer_has(s, a, l)) {
            a->has_layer[l] = true;
            moved += 100;
        }
        if (!a->has_layer[l])
            wanted[n++] = (uint32_t)l;
    }
    struct agent_event ev = {.kind = AGENT_EVENT_FETCHED};
    ev.u.progress = (struct agent_progress){
        .slot = a->fetch[f].slot,
        .ticket = a->fetch[f].ticket,
        .status = n ? HP_PENDING : 0,
        .total_bytes = 100 * (uint64_t)(a->fetch[f].end - a->fetch[f].first),
        .moved_bytes = moved,
        .wanted = {wanted, n}};
    ev.u.progress.done_bytes = ev.u.progress.total_bytes - 100 * n;
    a->fetch[f].waiting = n > 0;
    if (n == 0)
        sim_store_tell(s, a, 0);
    sim_agent_event(s, a, &ev);
}

void sim_fetch_begin(struct sim *s, struct sim_agent *a, const struct agent_action *act)
{
    sim_slot_of(a, act->u.work.slot)->device =
        (int)act->u.work.prepare->message.u.stage_prepare.device;
    for (int f = 0; f < 8; f++) {
        if (a->fetch[f].slot)
            continue;
        a->fetch[f].slot = act->u.work.slot;
        a->fetch[f].ticket = act->u.work.ticket;
        a->fetch[f].first = (int)act->u.work.prepare->message.u.stage_prepare.first_layer;
        a->fetch[f].end = (int)act->u.work.prepare->message.u.stage_prepare.end_layer;
        if (act->u.work.prepare->message.u.stage_prepare.share.count > 0 ||
            act->u.work.prepare->message.u.stage_prepare.keeps)
            a->fetch[f].end = a->fetch[f].first; /* networks are here, as it were; no weights */
        struct sim_event *ev = sim_event_add(s, EVENT_WORK, sim_delay_ns(s, msec, 40 * msec));
        ev->agent = a->index;
        ev->incarnation = a->incarnation;
        ev->slot = act->u.work.slot;
        ev->ticket = act->u.work.ticket;
        return;
    }
    assert(false && "too many fetches");
}

void sim_fetch_step(struct sim *s, struct sim_agent *a, const struct sim_event *ev)
{
    for (int f = 0; f < 8; f++)
        if (a->fetch[f].slot == ev->slot && a->fetch[f].ticket == ev->ticket) {
            fetch_go(s, a, f);
            if (!a->fetch[f].waiting)
                a->fetch[f].slot = 0;
            return;
        }
}

void sim_agent_uploaded(struct sim *s, struct sim_agent *a, const json_t *chunks)
{
    for (size_t i = 0; i < json_array_size(chunks); i++)
        a->has_layer[json_integer_value(json_array_get(chunks, i))] = true;
    for (int f = 0; a->alive && f < 8; f++)
        if (a->fetch[f].slot && a->fetch[f].waiting) {
            struct sim_event *ev = sim_event_add(s, EVENT_WORK, sim_delay_ns(s, msec, 40 * msec));
            ev->agent = a->index;
            ev->incarnation = a->incarnation;
            ev->slot = a->fetch[f].slot;
            ev->ticket = a->fetch[f].ticket;
        }
}
