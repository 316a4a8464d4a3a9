/* The simulated cluster: time, network, coordinator, clients. */
#include "tests/sim/cluster.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/log.h"
#include "coordinator/store/store.h"
#include "tests/sim/cluster_int.h"

static const uint64_t msec = 1000000;

/* ---- running ---- */

/* With windows where the test says so. */
static struct model_facts sim_toy_facts(const struct sim *s, struct layer_facts layers[TOY_LAYERS])
{
    struct model_facts facts = toy_facts;
    memcpy(layers, facts.layers, TOY_LAYERS * sizeof *layers);
    for (int i = 0; i < TOY_LAYERS; i++)
        layers[i].window = s->window;
    facts.layers = layers;
    facts.windows[0] = s->window;
    return facts;
}

static void core_event(struct sim *s, struct sim_event *ev)
{
    if (!s->core || ev->incarnation != s->core_incarnation)
        return;
    if (ev->kind == EVENT_TICK) {
        coord_tick(s->core);
        sim_clients_ask(s);
        sim_event_add(s, EVENT_TICK, COORD_TICK_MS * msec)->incarnation = s->core_incarnation;
    } else if (ev->kind == EVENT_WORKED) {
        ev->work->run(ev->work);
        coord_worked(s->core, ev->work);
    } else if (ev->kind == EVENT_STORED) {
        sim_disk_stored(s, ev);
    } else if (ev->kind == EVENT_RESULT) {
        coord_frame_in(s->core, &ev->header, ev->bytes);
    } else if (ev->kind == EVENT_POOLS) {
        s->pools_ns = 0; /* it is looked at below */
    } else if (ev->kind == EVENT_MODEL) {
        struct layer_facts layers[TOY_LAYERS];
        struct model_facts facts = sim_toy_facts(s, layers);
        coord_model_opened(s->core, ev->key, &facts, NULL);
    } else {
        struct sim_agent *a = s->agents[ev->agent];
        if (a->peer != ev->peer)
            return; /* the connection broke while it was on its way */
        coord_message(s->core, ev->peer, ev->key, ev->bytes, ev->size);
        if ((double)sim_random(s, 1000) < 1000 * s->network.repeat)
            coord_message(s->core, ev->peer, ev->key, ev->bytes, ev->size);
    }
    sim_core_settle(s);
}

static bool agent_event_defer(struct sim_agent *a, struct sim_event *ev)
{
    if (!a->stopped)
        return false;
    a->deferred = realloc(a->deferred, (a->n_deferred + 1) * sizeof(struct sim_event *));
    assert(a->deferred);
    a->deferred[a->n_deferred++] = ev;
    return true;
}

/* FNV-1a. */
static void trace_add(struct sim *s, const void *bytes, size_t n)
{
    const unsigned char *b = bytes;
    for (size_t i = 0; i < n; i++)
        s->trace = (s->trace ^ b[i]) * 0x100000001b3u;
}

static void trace_event(struct sim *s, const struct sim_event *ev)
{
    const uint64_t what[] = {ev->at_ns, ev->kind, (uint64_t)ev->agent, ev->size};
    trace_add(s, what, sizeof what);
    if (ev->bytes)
        trace_add(s, ev->bytes, ev->size);
    for (size_t i = 0; i < ev->n_changes; i++)
        if (ev->changes[i].bytes)
            trace_add(s, ev->changes[i].bytes, ev->changes[i].size);
}

static void step(struct sim *s)
{
    struct sim_event *ev = sim_event_pop(s);
    s->clock.now_ns = ev->at_ns;
    trace_event(s, ev);
    if (ev->kind == EVENT_TICK || ev->kind == EVENT_MODEL || ev->kind == EVENT_WORKED ||
        ev->kind == EVENT_STORED || ev->kind == EVENT_TO_CORE || ev->kind == EVENT_POOLS ||
        ev->kind == EVENT_RESULT) {
        if (sim_core_event_defer(s, ev))
            return;
        core_event(s, ev);
    } else if (ev->kind == EVENT_CONNECT) {
        sim_connected(s, s->agents[ev->agent]);
    } else {
        struct sim_agent *a = s->agents[ev->agent];
        bool lost = !a->alive || ev->incarnation != a->incarnation ||
                    (ev->kind == EVENT_TO_AGENT && ev->peer != a->peer);
        s->frames_lost += lost && ev->kind == EVENT_FRAME;
        if (!lost && agent_event_defer(a, ev))
            return;
        if (!lost)
            sim_agent_handle(s, a, ev);
    }
    sim_event_free(ev);
}

void sim_core_run(struct sim *s)
{
    sim_core_settle(s);
}

void sim_run_ms(struct sim *s, uint64_t ms)
{
    sim_run_us(s, 1000 * ms);
}

void sim_run_us(struct sim *s, uint64_t us)
{
    uint64_t end = s->clock.now_ns + us * 1000;
    while (s->n_events && s->events[0]->at_ns <= end)
        step(s);
    s->clock.now_ns = end;
}

bool sim_run_until(struct sim *s, bool (*done)(struct sim *s), uint64_t limit_ms)
{
    uint64_t end = s->clock.now_ns + limit_ms * msec;
    while (!done(s)) {
        if (!s->n_events || s->events[0]->at_ns > end)
            return false;
        step(s);
    }
    return true;
}

static bool all_ready(struct sim *s)
{
    return coord_view(s->core).members_ready == (uint32_t)s->n_agents;
}

void sim_open(struct sim *s, uint64_t seed, int agents)
{
    sim_open_devices(s, seed, agents, 1);
}

void sim_open_devices(struct sim *s, uint64_t seed, int agents, int devices)
{
    assert(devices <= SIM_DEVICES);
    *s = (struct sim){.seed = seed,
                      .chance = seed ^ 0x5eed,
                      .n_agents = agents,
                      .n_devices = devices,
                      .next_peer = 100,
                      .uploader = true,
                      .profile_ms = UINT64_MAX};
    s->network.slow_ns = 3 * msec;
    s->env = env_virtual_init(&s->clock, seed);
    s->clock.now_ns = 1000 * msec;
    if (!getenv("HP_LOG"))
        log_set_level(LOG_ERROR);
    struct err e = {0};
    int rc = store_open_memory(&s->store, &e);
    assert(rc == 0);
    sim_coordinator_start(s);
    for (int i = 0; i < agents; i++)
        sim_agent_create(s, i);
    for (int i = 0; i < agents; i++) {
        rc = sim_ask_wait(s, "token.create", json_pack("{s:i}", "ttl_s", 60), NULL);
        assert(rc == 0);
        const char *token = json_string_value(json_object_get(s->answer, "token"));
        struct join_token parsed;
        rc = join_token_parse(token, &parsed, &e);
        assert(rc == 0);
        snprintf(s->token, sizeof s->token, "%s", parsed.secret);
        sim_agent_start(s, i);
    }
    bool ready = sim_run_until(s, all_ready, 10000);
    assert(ready);
}

void sim_close(struct sim *s)
{
    for (int i = 0; i < s->n_agents; i++)
        sim_agent_destroy(s, s->agents[i]);
    sim_coordinator_continue(s);
    while (s->n_events)
        sim_event_free(sim_event_pop(s));
    free(s->events);
    free(s->core_deferred);
    coord_destroy(&s->core);
    store_close(&s->store);
    json_decref(s->answer);
    buffer_free(&s->logits);
}
