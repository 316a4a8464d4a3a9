/* What the core of a simulated agent orders, and what it is told: its shell. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/cluster_int.h"

static const uint64_t msec = 1000000;

static void unload(struct sim *s, struct sim_agent *a, uint64_t slot)
{
    for (int f = 0; f < 8; f++)
        if (a->fetch[f].slot == slot)
            a->fetch[f].slot = 0;
    if (sim_share_drop(a, slot))
        return;
    sim_order_add(s, a, (struct sim_order){.kind = AGENT_DO_UNLOAD, .slot = slot});
    for (int f = 0; f < 8; f++)
        if (a->fetch[f].slot == slot)
            a->fetch[f].slot = 0;
    for (size_t i = 0; i < a->n_slots; i++)
        if (a->slots[i].slot == slot)
            a->slots[i] = a->slots[--a->n_slots];
}

static void run_begin(struct sim *s, struct sim_agent *a, const struct agent_action *act)
{
    struct agent_action *copy = malloc(sizeof *copy);
    assert(copy);
    *copy = *act;
    sim_order_add(s, a,
                  (struct sim_order){.kind = AGENT_DO_RUN,
                                     .slot = act->u.run.slot,
                                     .ticket = act->u.run.ticket,
                                     .run = copy});
}

static void profile_later(struct sim *s, struct sim_agent *a, const struct agent_action *act)
{
    struct sim_event *ev = sim_event_add(s, EVENT_WORK, 300 * msec);
    ev->agent = a->index;
    ev->incarnation = a->incarnation;
    ev->step = 1;
    ev->ticket = act->u.profile.id;
    ev->size = act->u.profile.request.model.size;
    ev->bytes = malloc(ev->size);
    assert(ev->bytes);
    memcpy(ev->bytes, act->u.profile.request.model.data, ev->size);
}

static void profile_done(struct sim *s, struct sim_agent *a, const struct sim_event *ev)
{
    static const char tables[] =
        "{\"embed\": {\"slice\": [1], \"prefix\": [0], \"seconds\": [[1e-5]]}, \"attn\": "
        "{\"slice\": [1, 64], \"prefix\": [0], "
        "\"seconds\": [[1e-4], [3e-3]]}, \"mlp\": {\"slice\": [1, 64], \"prefix\": [0], "
        "\"seconds\": [[1e-4], [4e-3]]}, "
        "\"head\": {\"slice\": [1], \"prefix\": [0], \"seconds\": [[1e-4]]}}";
#define TABLE                                                                                      \
    "{\"slice\": [1, 64], \"prefix\": [0, 128], \"seconds\": [[1e-4, 2e-4], [6.4e-3, 1.28e-2]]}"
    static const char even[] =
        "{\"embed\": " TABLE ", \"attn\": " TABLE ", \"mlp\": " TABLE ", \"head\": " TABLE "}";
#undef TABLE
    struct agent_event in = {.kind = AGENT_EVENT_PROFILED};
    in.u.profiled.id = ev->ticket;
    in.u.profiled.model = (struct pack_span){ev->bytes, ev->size};
    in.u.profiled.kind = "toy";
    in.u.profiled.tables = s->as_profiled ? even : tables;
    sim_agent_event(s, a, &in);
}

static void probe_later(struct sim *s, struct sim_agent *a, const struct agent_action *act)
{
    if (strcmp(act->u.probe.request.role, "end") == 0)
        return;
    struct sim_event *ev = sim_event_add(s, EVENT_WORK, 100 * msec);
    ev->agent = a->index;
    ev->incarnation = a->incarnation;
    ev->step = 3;
    ev->ticket = act->u.probe.id;
}

static void probe_done(struct sim *s, struct sim_agent *a, const struct sim_event *ev)
{
    struct agent_event in = {.kind = AGENT_EVENT_PROBED};
    in.u.probed.id = ev->ticket;
    in.u.probed.latency_s = 5e-5;
    in.u.probed.bandwidth_bytes_per_s = s->network.bytes_per_s > 0 ? s->network.bytes_per_s : 1e9;
    sim_agent_event(s, a, &in);
}

static void action_do(struct sim *s, struct sim_agent *a, const struct agent_action *act)
{
    switch (act->kind) {
    case AGENT_DO_SEND: sim_say(s, a, &act->u.message); break;
    case AGENT_DO_POST: sim_post(s, a, act); break;
    case AGENT_DO_RELEASE: sim_buffer_release(a, act->u.release.buffer); break;
    case AGENT_DO_FETCH: sim_fetch_begin(s, a, act); break;
    case AGENT_DO_LOAD: sim_load_begin(s, a, act); break;
    case AGENT_DO_UNLOAD: unload(s, a, act->u.unload.slot); break;
    case AGENT_DO_CONNECT: sim_link_connect(a, act); break;
    case AGENT_DO_SHARE_CONNECT: sim_share_connect(a, act); break;
    case AGENT_DO_SEQUENCE_OPEN:
        sim_order_add(s, a,
                      (struct sim_order){.kind = act->kind,
                                         .slot = act->u.sequence_open.slot,
                                         .ticket = act->u.sequence_open.ticket,
                                         .sequence = act->u.sequence_open.open->sequence,
                                         .share = act->u.sequence_open.open->share,
                                         .shared = (uint32_t)act->u.sequence_open.open->shared,
                                         .tokens = (uint32_t)act->u.sequence_open.open->reserved,
                                         .length = (uint32_t)act->u.sequence_open.open->length});
        break;
    case AGENT_DO_SEQUENCE_GROW:
        sim_order_add(s, a,
                      (struct sim_order){.kind = act->kind,
                                         .slot = act->u.sequence_grow.slot,
                                         .sequence = act->u.sequence_grow.sequence,
                                         .tokens = act->u.sequence_grow.reserved});
        break;
    case AGENT_DO_SEQUENCE_CLOSE:
        sim_order_add(s, a,
                      (struct sim_order){.kind = act->kind,
                                         .slot = act->u.sequence_close.slot,
                                         .sequence = act->u.sequence_close.sequence,
                                         .length = act->u.sequence_close.keep});
        break;
    case AGENT_DO_KV_IMPORT:
    case AGENT_DO_KV_EXPORT: sim_kv_order(s, a, act); break;
    case AGENT_DO_SPILL:
    case AGENT_DO_UNSPILL: sim_spill_order(s, a, act); break;
    case AGENT_DO_SPILLS_TELL: sim_spills_tell(s, a, act); break;
    case AGENT_DO_RUN: run_begin(s, a, act); break;
    case AGENT_DO_PROFILE: profile_later(s, a, act); break;
    case AGENT_DO_PROBE: probe_later(s, a, act); break;
    case AGENT_DO_TIMER: {
        uint64_t now = s->clock.now_ns, at = act->u.timer.at_ns;
        struct sim_event *ev = sim_event_add(s, EVENT_TIMER, at > now ? at - now : 0);
        ev->agent = a->index;
        ev->incarnation = a->incarnation;
        ev->timer = ++a->timer;
        break;
    }
    case AGENT_DO_STORE_REMOVE: {
        struct sim_event *ev = sim_event_add(s, EVENT_WORK, msec);
        ev->agent = a->index;
        ev->incarnation = a->incarnation;
        ev->step = 2;
        ev->ticket = act->u.store_remove.id;
        break;
    }
    default: break; /* sessions, logs: nobody looks at them here */
    }
}

void sim_agent_event(struct sim *s, struct sim_agent *a, const struct agent_event *ev)
{
    struct agent_core *core = a->core;
    /* An action may lead to the next event (a store that changed), so the list is put aside. */
    struct agent_actions actions = a->actions;
    a->actions = (struct agent_actions){0};
    agent_core_event(core, ev, &actions);
    if (a->order_is_old)
        sim_old_order_check(s, a, &actions);
    a->order_is_old = false;
    for (size_t i = 0; i < actions.count; i++)
        action_do(s, a, &actions.items[i]);
    agent_actions_free(&a->actions);
    a->actions = actions;
}

static void work_done(struct sim *s, struct sim_agent *a, const struct sim_event *ev)
{
    if (sim_share_work(s, a, ev))
        return;
    if (ev->step == 1) {
        profile_done(s, a, ev);
    } else if (ev->step == 3) {
        probe_done(s, a, ev);
    } else if (ev->step == 2) {
        memset(a->has_layer, 0, sizeof a->has_layer);
        sim_store_tell(s, a, ev->ticket);
    } else {
        sim_fetch_step(s, a, ev);
    }
}

void sim_agent_handle(struct sim *s, struct sim_agent *a, struct sim_event *ev)
{
    struct agent_event out = {0};
    switch (ev->kind) {
    case EVENT_TO_AGENT: sim_message_in(s, a, ev); break;
    case EVENT_FRAME: sim_frame_in(s, a, ev); break;
    case EVENT_WORK: work_done(s, a, ev); break;
    case EVENT_EXECUTOR: sim_executor_done(s, a, ev->step); break;
    case EVENT_TIMER:
        out.kind = AGENT_EVENT_TIMER;
        if (ev->timer == a->timer)
            sim_agent_event(s, a, &out);
        break;
    case EVENT_LINK_DOWN:
        out.kind = AGENT_EVENT_LINK_DOWN;
        out.u.link_down.slot = ev->slot;
        out.u.link_down.link = ev->link;
        sim_agent_event(s, a, &out);
        break;
    default: break;
    }
}
