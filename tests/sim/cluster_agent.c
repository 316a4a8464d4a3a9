/* The life of an agent of the simulated cluster: started, killed, stopped, cut off. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/digest.h"
#include "common/manifest.h"
#include "tests/sim/cluster_int.h"

static const uint64_t msec = 1000000;

static void node_write(char *out, size_t size, int devices)
{
    size_t n = (size_t)snprintf(out, size, "{\"name\": \"n\", \"devices\": [");
    for (int i = 0; i < devices; i++)
        n += (size_t)snprintf(
            out + n, size - n,
            "%s{\"name\": \"cpu%.*d\", \"kind\": \"toy\", \"memory_bytes\": 1000000000}",
            i ? ", " : "", devices > 1, i);
    snprintf(
        out + n, size - n,
        "], \"device_link\": {\"bandwidth_bytes_per_s\": 4e9, \"latency_s\": 2e-5}, "
        "\"nics\": [{\"name\": \"lo\", \"bandwidth_bytes_per_s\": 1e9, \"latency_s\": 1e-4}]}");
}

void sim_agent_create(struct sim *s, int index)
{
    struct sim_agent *a = calloc(1, sizeof *a);
    assert(a);
    a->index = index;
    snprintf(a->name, sizeof a->name, "a%d", index);
    snprintf(a->key, sizeof a->key, "agent-%d-key-of-forty-characters-0123456789", index);
    snprintf(a->machine, sizeof a->machine, "box%d", index / 2);
    node_write(a->node, sizeof a->node, s->n_devices);
    s->agents[index] = a;
}

void sim_stage_remove(struct sim_agent *a, uint64_t slot)
{
    for (size_t i = 0; i < a->n_stages; i++)
        if (a->stages[i].slot == slot) {
            sim_stage_free(&a->stages[i]);
            a->stages[i] = a->stages[--a->n_stages];
            return;
        }
}

static void release_for_core(void *ctx, void *buffer)
{
    sim_buffer_release(ctx, buffer);
}

static void orders_drop(struct sim_agent *a, struct sim_executor *x)
{
    for (size_t i = 0; i < x->n_orders; i++) {
        struct agent_action *run = (struct agent_action *)(uintptr_t)x->orders[i].run;
        if (run)
            sim_buffer_release(a, run->u.run.batch->input);
        free(run);
        sim_buffer_release(a, x->orders[i].buffer);
        free(x->orders[i].pages);
    }
    x->n_orders = 0;
    x->busy = false;
}

static void process_end(struct sim_agent *a)
{
    for (int d = 0; d < SIM_DEVICES; d++)
        orders_drop(a, &a->executors[d]); /* their batches are the core's */
    agent_core_destroy(&a->core, release_for_core, a);
    a->n_slots = 0;
    while (a->n_stages)
        sim_stage_remove(a, a->stages[0].slot);
    sim_shares_free(a);
    sim_orders_forget(a);
    for (size_t i = 0; i < a->n_deferred; i++)
        sim_event_free(a->deferred[i]);
    for (size_t i = 0; i < a->n_unsent; i++)
        sim_event_free(a->unsent[i]);
    a->n_deferred = a->n_unsent = 0;
    a->buffers = 0;
    memset(a->fetch, 0, sizeof a->fetch);
    for (size_t i = 0; i < a->n_spills; i++)
        a->spills[i].slot = 0;
    a->alive = a->stopped = a->hung = false;
    a->peer = 0;
}

void sim_agent_destroy(struct sim *s, struct sim_agent *a)
{
    if (a->alive)
        process_end(a);
    agent_actions_free(&a->actions);
    sim_spills_free(a);
    free(a->stages);
    free(a->slots);
    for (int d = 0; d < SIM_DEVICES; d++)
        free(a->executors[d].orders);
    free(a->deferred);
    free(a->unsent);
    s->agents[a->index] = NULL;
    free(a);
}

bool sim_agent_alive(const struct sim *s, int agent)
{
    return s->agents[agent]->alive;
}

void sim_store_tell(struct sim *s, struct sim_agent *a, uint64_t id)
{
    struct buffer manifest = {0};
    toy_manifest("toy", &manifest);
    struct digest digest = manifest_id(manifest.data, manifest.size);
    buffer_free(&manifest);
    struct message_model model = {{digest.bytes, sizeof digest.bytes}, 0, "toy"};
    for (int i = 0; i < TOY_LAYERS; i++)
        model.bytes += a->has_layer[i] ? 100 : 0;
    struct agent_event ev = {.kind = AGENT_EVENT_STORE};
    ev.u.store.id = id;
    ev.u.store.models = (struct pack_list){&model, model.bytes > 0};
    sim_agent_event(s, a, &ev);
}

void sim_agent_start(struct sim *s, int agent)
{
    struct sim_agent *a = s->agents[agent];
    if (a->alive)
        return;
    a->alive = true;
    a->incarnation++;
    snprintf(a->address, sizeof a->address, "%d#%llu", a->index,
             (unsigned long long)a->incarnation);
    a->config = (struct agent_core_config){
        .name = a->name,
        .secret = s->token,
        .program = "sim",
        .machine = a->machine,
        .hostname = a->machine,
        .node_json = a->node,
        .n_devices = (unsigned)s->n_devices,
        .spills = true,
        .runs_ahead = 2,
        .data_address = {(const uint8_t *)a->address, strlen(a->address)}};
    struct err e = {0};
    int rc = agent_core_create(&s->env, &a->config, &a->core, &e);
    assert(rc == 0);
    sim_store_tell(s, a, 0);
    struct agent_event start = {.kind = AGENT_EVENT_START};
    sim_agent_event(s, a, &start);
    sim_event_add(s, EVENT_CONNECT, sim_delay_ns(s, msec, 100 * msec))->agent = agent;
}

/* Everybody who has a link to it hears that it broke. */
static void links_break(struct sim *s, const struct sim_agent *dead)
{
    for (int i = 0; i < s->n_agents; i++) {
        struct sim_agent *a = s->agents[i];
        for (size_t k = 0; a->alive && a != dead && k < a->n_slots; k++)
            for (int link = 0; link < 2; link++) {
                if (strcmp(link ? a->slots[k].first : a->slots[k].next, dead->address) != 0)
                    continue;
                struct sim_event *ev = sim_event_add(s, EVENT_LINK_DOWN, 20 * msec);
                ev->agent = i;
                ev->incarnation = a->incarnation;
                ev->slot = a->slots[k].slot;
                ev->link = link ? AGENT_LINK_FIRST : AGENT_LINK_NEXT;
            }
    }
}

void sim_agent_kill(struct sim *s, int agent)
{
    struct sim_agent *a = s->agents[agent];
    if (!a->alive)
        return;
    links_break(s, a);
    process_end(a);
}

void sim_link_down_later(struct sim *s, struct sim_agent *a, uint64_t slot, enum agent_link link)
{
    struct sim_event *ev = sim_event_add(s, EVENT_LINK_DOWN, 20 * msec);
    ev->agent = a->index;
    ev->incarnation = a->incarnation;
    ev->slot = slot;
    ev->link = link;
    s->frames_lost++;
}

/* Frames that it has sent and that have not arrived are lost, and it hears so. */
void sim_links_break(struct sim *s, int agent)
{
    struct sim_agent *a = s->agents[agent];
    for (size_t i = 0; i < s->n_events; i++)
        if (s->events[i]->kind == EVENT_FRAME && s->events[i]->from == agent + 1)
            s->events[i]->incarnation = UINT64_MAX; /* of nobody */
    for (size_t i = 0; a->alive && i < 2 * a->n_slots; i++) {
        const struct sim_slot *slot = &a->slots[i / 2];
        if ((i % 2 ? slot->first : slot->next)[0])
            sim_link_down_later(s, a, slot->slot, i % 2 ? AGENT_LINK_FIRST : AGENT_LINK_NEXT);
    }
}

void sim_agent_stop(struct sim *s, int agent)
{
    s->agents[agent]->stopped = s->agents[agent]->alive;
}

void sim_agent_continue(struct sim *s, int agent)
{
    struct sim_agent *a = s->agents[agent];
    if (!a->stopped)
        return;
    a->stopped = false;
    struct sim_event **deferred = a->deferred;
    size_t n = a->n_deferred;
    a->deferred = NULL;
    a->n_deferred = 0;
    for (size_t i = 0; i < n; i++) {
        if (a->alive && deferred[i]->incarnation == a->incarnation)
            sim_agent_handle(s, a, deferred[i]);
        if (deferred[i])
            sim_event_free(deferred[i]);
    }
    free(deferred);
}

void sim_agent_forget_weights(struct sim *s, int agent)
{
    memset(s->agents[agent]->has_layer, 0, sizeof s->agents[agent]->has_layer);
}

void sim_agent_have_weights(struct sim *s, int agent)
{
    memset(s->agents[agent]->has_layer, 1, sizeof s->agents[agent]->has_layer);
    sim_store_tell(s, s->agents[agent], 0);
}

struct sim_slot *sim_slot_of(struct sim_agent *a, uint64_t slot)
{
    for (size_t i = 0; i < a->n_slots; i++)
        if (a->slots[i].slot == slot)
            return &a->slots[i];
    a->slots = realloc(a->slots, (a->n_slots + 1) * sizeof *a->slots);
    assert(a->slots);
    a->slots[a->n_slots] = (struct sim_slot){.slot = slot};
    return &a->slots[a->n_slots++];
}
