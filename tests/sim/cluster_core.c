/* The simulated cluster: the coordinator, its network, its disk and its threads. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "coordinator/store/store.h"
#include "tests/sim/cluster_int.h"

static const uint64_t msec = 1000000;

struct sim_agent *sim_agent_at(struct sim *s, const char *address)
{
    for (int i = 0; i < s->n_agents; i++)
        if (s->agents[i]->alive && strcmp(s->agents[i]->address, address) == 0)
            return s->agents[i];
    return NULL;
}

/* Onto the connection, behind what was said before. */
static void to_core(struct sim *s, struct sim_agent *a, struct sim_event *ev)
{
    uint64_t at = s->clock.now_ns + sim_delay_ns(s, 50000, 2 * msec);
    a->to_core_ns = at > a->to_core_ns ? at : a->to_core_ns;
    ev->at_ns = a->to_core_ns;
    ev->order = s->event_order++;
    ev->peer = a->peer;
    ev->incarnation = s->core_incarnation;
    sim_event_push(s, ev);
}

void sim_say(struct sim *s, struct sim_agent *a, const struct message *m)
{
    struct buffer bytes = {0};
    message_encode(m, &bytes);
    struct sim_event *ev = calloc(1, sizeof *ev);
    assert(ev && !bytes.failed);
    ev->kind = EVENT_TO_CORE;
    ev->agent = a->index;
    ev->bytes = bytes.data;
    ev->size = bytes.size;
    snprintf(ev->key, sizeof ev->key, "%s", a->key);
    if (a->peer) {
        to_core(s, a, ev);
        return;
    }
    a->unsent = realloc(a->unsent, (a->n_unsent + 1) * sizeof(struct sim_event *));
    assert(a->unsent);
    a->unsent[a->n_unsent++] = ev;
}

void sim_connected(struct sim *s, struct sim_agent *a)
{
    if (!s->core || !a->alive || a->peer)
        return;
    a->peer = s->next_peer++;
    for (size_t i = 0; i < a->n_unsent; i++)
        to_core(s, a, a->unsent[i]);
    a->n_unsent = 0;
}

void sim_connection_break(struct sim *s, int agent)
{
    struct sim_agent *a = s->agents[agent];
    if (!a->alive || !a->peer)
        return;
    a->peer = 0; /* what is on its way carries the old number and is lost */
    sim_event_add(s, EVENT_CONNECT, sim_delay_ns(s, 10 * msec, 300 * msec))->agent = agent;
}

static void send(struct sim *s, const struct coord_action *act)
{
    if (act->peer == SIM_ADMIN_PEER && !s->admin_gone) {
        sim_admin_answer(s, act);
        return;
    }
    bool found = false;
    for (int i = 0; i < s->n_agents; i++) {
        struct sim_agent *a = s->agents[i];
        if (!a->alive || a->peer != act->peer)
            continue;
        found = true;
        uint64_t at = s->clock.now_ns + sim_delay_ns(s, 50000, 2 * msec);
        a->to_agent_ns = at > a->to_agent_ns ? at : a->to_agent_ns;
        struct sim_event *ev = sim_event_add(s, EVENT_TO_AGENT, a->to_agent_ns - s->clock.now_ns);
        ev->agent = i;
        ev->peer = act->peer;
        ev->incarnation = a->incarnation;
        ev->size = act->size;
        ev->bytes = malloc(act->size);
        assert(ev->bytes);
        memcpy(ev->bytes, act->bytes, act->size);
    }
    if (!found)
        coord_peer_gone(s->core, act->peer);
}

static void act(struct sim *s, const struct coord_action *a)
{
    if (a->kind == COORD_SEND) {
        send(s, a);
    } else if (a->kind == COORD_MODEL_OPEN) {
        struct sim_event *ev = sim_event_add(s, EVENT_MODEL, sim_delay_ns(s, msec, 20 * msec));
        ev->incarnation = s->core_incarnation;
        snprintf(ev->key, sizeof ev->key, "%s", a->key);
    } else if (a->kind == COORD_FRAME) {
        char address[32];
        snprintf(address, sizeof address, "%.*s", (int)a->frame->address_size,
                 (const char *)a->frame->address);
        if (!sim_frame_send(s, address, &a->frame->header, a->frame->payload))
            coord_frame_lost(s->core, &a->frame->header);
        coord_frame_free(a->frame);
    } else if (a->kind == COORD_WORK) {
        struct sim_event *ev = sim_event_add(s, EVENT_WORKED, sim_delay_ns(s, msec, 200 * msec));
        ev->incarnation = s->core_incarnation;
        ev->work = a->work;
    } else if (a->kind >= COORD_TOKENS) {
        coord_action_call_back(a);
    }
}

/* The batch of a step goes to the disk, behind those before it; a coordinator that dies first has
 * never written it. */
static void keep(struct sim *s, const struct coord_action *actions, size_t n)
{
    struct sim_event *ev = NULL;
    for (size_t i = 0; i < n; i++) {
        const struct coord_action *a = &actions[i];
        if (a->kind != COORD_STORE)
            continue;
        if (!ev) {
            uint64_t at =
                s->clock.now_ns + sim_delay_ns(s, s->disk_ns / 2 + 100000, s->disk_ns + 30 * msec);
            s->stored_ns = at > s->stored_ns ? at : s->stored_ns;
            ev = sim_event_add(s, EVENT_STORED, s->stored_ns - s->clock.now_ns);
            ev->incarnation = s->core_incarnation;
            ev->number = a->number;
            ev->changes = calloc(n, sizeof *ev->changes);
            assert(ev->changes);
        }
        struct sim_change *c = &ev->changes[ev->n_changes++];
        snprintf(c->kind, sizeof c->kind, "%s", a->record_kind);
        snprintf(c->key, sizeof c->key, "%s", a->key);
        c->size = a->size;
        c->bytes = a->bytes ? malloc(a->size + 1) : NULL;
        if (c->bytes)
            memcpy(c->bytes, a->bytes, a->size);
    }
}

void sim_disk_stored(struct sim *s, const struct sim_event *ev)
{
    struct err e = {0};
    for (size_t i = 0; i < ev->n_changes; i++) {
        const struct sim_change *c = &ev->changes[i];
        struct store_change change = {c->kind, c->key, c->bytes, c->size};
        int rc = store_apply(s->store, &change, 1, &e);
        assert(rc == 0);
    }
    coord_stored(s->core, ev->number, NULL);
}

static void actions_do(struct sim *s)
{
    size_t n;
    const struct coord_action *actions;
    while (actions = coord_take(s->core, &n), n > 0) {
        keep(s, actions, n);
        for (size_t i = 0; i < n; i++)
            act(s, &actions[i]);
    }
}

void sim_core_settle(struct sim *s)
{
    actions_do(s);
    int64_t wake = coord_pools_run(s->core), now = (int64_t)s->clock.now_ns;
    actions_do(s);
    sim_core_check(s);
    if (wake == INT64_MAX || (s->pools_ns > s->clock.now_ns && s->pools_ns <= (uint64_t)wake))
        return; /* what is asked for already comes early enough */
    s->pools_ns = (uint64_t)(wake > now ? wake : now);
    sim_event_add(s, EVENT_POOLS, s->pools_ns - s->clock.now_ns)->incarnation = s->core_incarnation;
}

/* Its data endpoint is there, at an address of no agent. */
static int data_open(void *ctx, struct pack_span agent, struct pack_span *own, struct err *e)
{
    (void)ctx;
    (void)agent;
    (void)e;
    *own = (struct pack_span){(const uint8_t *)"coordinator", strlen("coordinator")};
    return 0;
}

struct sim_restoring {
    struct coord *core;
    const char *kind;
};

static int restore_one(void *ctx, const char *key, const void *bytes, size_t size, struct err *e)
{
    struct sim_restoring *r = ctx;
    return coord_restore(r->core, r->kind, key, bytes, size, e);
}

void sim_coordinator_start(struct sim *s)
{
    if (s->core)
        return;
    struct err e = {0};
    struct coord_config config = {.env = &s->env,
                                  .cluster = "sim",
                                  .version = "sim",
                                  .public_key = "server-key-of-forty-characters-012345678",
                                  .admin_key = admin_key,
                                  .unix_s = 1000000 + s->clock.now_ns / 1000000000u,
                                  .max_sequences = 4,
                                  .profile_ms = s->profile_ms,
                                  .data_open = data_open};
    int rc = coord_create(&config, &s->core, &e);
    assert(rc == 0);
    for (int i = 0; coord_kinds[i]; i++) {
        struct sim_restoring r = {s->core, coord_kinds[i]};
        rc = store_each(s->store, coord_kinds[i], restore_one, &r, &e);
        if (rc < 0)
            fprintf(stderr, "# seed %llu: %s\n", (unsigned long long)s->seed, e.text);
        assert(rc == 0);
    }
    s->core_incarnation++;
    coord_start(s->core, true);
    coord_requests(s->core, &s->requests);
    sim_clients_return(s);
    sim_core_settle(s);
    sim_event_add(s, EVENT_TICK, COORD_TICK_MS * msec)->incarnation = s->core_incarnation;
    for (int i = 0; i < s->n_agents; i++)
        sim_event_add(s, EVENT_CONNECT, sim_delay_ns(s, 10 * msec, 500 * msec))->agent = i;
}

void sim_coordinator_stop(struct sim *s)
{
    s->core_stopped = s->core != NULL;
}

/* Its timer first, as a loop does after a pause; then what lies in its sockets, in the order in
 * which it came. */
void sim_coordinator_continue(struct sim *s)
{
    s->core_stopped = false;
    for (int ticks = 1; ticks >= 0; ticks--)
        for (size_t i = 0; i < s->n_core_deferred; i++) {
            struct sim_event *ev = s->core_deferred[i];
            if ((ev->kind == EVENT_TICK) != ticks)
                continue;
            ev->at_ns = s->clock.now_ns;
            ev->order = s->event_order++;
            sim_event_push(s, ev);
        }
    s->n_core_deferred = 0;
}

bool sim_core_event_defer(struct sim *s, struct sim_event *ev)
{
    if (!s->core_stopped)
        return false;
    s->core_deferred =
        realloc(s->core_deferred, (s->n_core_deferred + 1) * sizeof(struct sim_event *));
    assert(s->core_deferred);
    s->core_deferred[s->n_core_deferred++] = ev;
    return true;
}

void sim_coordinator_kill(struct sim *s)
{
    if (!s->core)
        return;
    sim_coordinator_continue(s); /* what lay in its sockets is lost with it */
    coord_destroy(&s->core);
    s->core_incarnation++;
    for (int i = 0; i < s->n_agents; i++)
        s->agents[i]->peer = 0;
    for (int i = 0; i < s->n_clients; i++) {
        struct sim_client *c = &s->clients[i];
        c->leaves = false; /* the next one finds what it finds */
        c->found = false;
        c->n_now = c->n_scored = 0;
        c->scored = (struct toy_memory){0};
        if (c->open && c->stream)
            c->asks = true;
        else if (c->open) {
            c->open = false;
            c->lost = true;
        }
    }
}
