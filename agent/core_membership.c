/* Owns what this agent is to its cluster: outside, joining, or a member that beats and is heard. */
#include "agent/core_membership.h"

#include <stdlib.h>
#include <string.h>

#include "agent/core_alive.h"
#include "agent/core_arrivals.h"
#include "agent/core_moves.h"
#include "agent/core_out.h"
#include "agent/core_sequences.h"
#include "agent/core_streams.h"
#include "common/log.h"

static const uint64_t ms = 1000000;

static void join_send(struct agent_core *c, uint64_t now_ns)
{
    struct message *m = core_send(c, MESSAGE_JOIN);
    c->membership = MEMBERSHIP_JOINING;
    c->last_join_ns = now_ns;
    c->next_join_ns = now_ns + AGENT_JOIN_RETRY_MS * ms;
    if (!m)
        return;
    const struct agent_core_config *g = c->config;
    m->u.join = (struct message_join){.name = c->name[0] ? c->name : g->name,
                                      .token = c->ever_joined ? "" : g->secret,
                                      .program = g->program,
                                      .process = g->process,
                                      .machine = g->machine,
                                      .hostname = g->hostname,
                                      .node = g->node_json,
                                      .data_address = g->data_address,
                                      .held = {c->held, core_stages_held(c)},
                                      .models = {c->models, c->n_models},
                                      .streams = core_streams_count(c)};
}

void core_start(struct agent_core *c, const struct agent_event *ev)
{
    (void)ev;
    join_send(c, c->now_ns);
}

/* The coordinator that opened them is gone: those stay that somebody may come back for. */
static void sequences_pass_on(struct agent_core *c)
{
    for (size_t i = 0; i < c->n_stages; i++)
        if (c->stages[i]->queue)
            core_sequences_close_dead(c, c->stages[i]);
}

void core_welcome(struct agent_core *c, struct message_ref *message)
{
    const struct message_welcome *m = &message->message.u.welcome;
    uint64_t now_ns = c->now_ns;
    char *name = strdup(m->name);
    if (name) {
        free(c->name);
        c->name = name;
    }
    if (c->membership != MEMBERSHIP_JOINED)
        log_info("agent", "joined", "name=%s boot=%llu", c->name,
                 (unsigned long long)m->coordinator_boot);
    c->membership = MEMBERSHIP_JOINED;
    c->ever_joined = true;
    c->orphaned = false;
    c->joins_unanswered = 0;
    uint64_t orphan_ms = m->orphan_ms ? m->orphan_ms : AGENT_ORPHAN_MS;
    c->orphan_ns = (orphan_ms < AGENT_ORPHAN_MOST_MS ? orphan_ms : AGENT_ORPHAN_MOST_MS) * ms;
    if (c->boot && c->boot != m->coordinator_boot)
        sequences_pass_on(c);
    if (core_streams_count(c)) /* as the join said, perhaps not for the first time */
        core_streams_tell(c);
    c->boot = m->coordinator_boot;
    /* A coordinator that started again numbers its sequences above all of before. What of those
     * never came to be open here would wait for its opening in vain. */
    for (size_t i = 0; i < c->n_stages; i++)
        if (c->stages[i]->queue)
            queue_numbers_begin(c->stages[i]->queue, (c->boot << 32) - (c->boot > 0));
    /* A heartbeat of 50 ms to 10 s makes sense; a message cannot make us flood or fall silent. */
    uint64_t beat = m->heartbeat_ms ? m->heartbeat_ms : AGENT_HEARTBEAT_MS;
    beat = beat < 50 ? 50 : beat > 10000 ? 10000 : beat;
    c->heartbeat_ns = beat * ms;
    c->next_heartbeat_ns = now_ns;
    c->last_ack_ns = now_ns;
}

void core_refused(struct agent_core *c, struct message_ref *message)
{
    const struct message_refused *m = &message->message.u.refused;
    uint64_t now_ns = c->now_ns;
    int code = status_of_word(m->code);
    log_warn("agent", "core_refused", "code=%s text=\"%s\"", m->code, m->text);
    /* Something else than a join was refused, and that may be many times a second: who is not a
     * member joins, and those refusals do not put it off. */
    if (c->membership == MEMBERSHIP_JOINED || code == HP_ELINK) {
        if (now_ns - c->last_join_ns >= 500 * ms)
            join_send(c, now_ns);
        return;
    }
    c->next_join_ns = now_ns + 5 * AGENT_JOIN_RETRY_MS * ms;
    /* Whose key is not known (any more) would knock for ever; a member that meets another version
     * waits for its own. */
    if (code != HP_EDENIED && (c->ever_joined || code != HP_EPROTO))
        return;
    struct agent_action *a = core_act(c, AGENT_DO_QUIT);
    if (a) {
        err_set(&a->u.quit.error, code, "the coordinator refuses this agent: %s", m->text);
        err_hint(&a->u.quit.error, "%s", m->hint);
    }
}

void core_heartbeat_ack(struct agent_core *c, struct message_ref *m)
{
    c->acks++;
    c->last_ack_ns = c->now_ns;
    c->orphaned = false;
    core_arrivals_told(c, &m->message.u.heartbeat_ack.loading);
}

/* Without memory for the news the old set stays: an empty one would end every connection. */
void core_members_told(struct agent_core *c, struct message_ref *message)
{
    const struct message_members *m = &message->message.u.members;
    if (m->keys.size % KEY_BYTES)
        return;
    struct pack_span keys = core_span(c, m->keys);
    struct agent_action *a = keys.size == m->keys.size ? core_act(c, AGENT_DO_PEERS) : NULL;
    if (a)
        a->u.peers.keys = keys;
}

static void heartbeat_send(struct agent_core *c, uint64_t now_ns)
{
    struct message *m = core_send(c, MESSAGE_HEARTBEAT);
    c->next_heartbeat_ns = now_ns + c->heartbeat_ns;
    if (m)
        m->u.heartbeat =
            (struct message_heartbeat){.number = ++c->heartbeat_number,
                                       .memory_free_bytes = c->memory_free_bytes,
                                       .dropped_stale = c->dropped_stale + c->endpoint_stale,
                                       .dropped_foreign = c->dropped_foreign + c->endpoint_foreign,
                                       .data_sent_bytes = c->data_sent_bytes,
                                       .data_received_bytes = c->data_received_bytes,
                                       .held = {c->held, core_stages_held(c)},
                                       .devices = {c->device_states, c->n_devices}};
}

static void sequences_orphan(struct agent_core *c)
{
    log_warn("agent", "orphaned", "action=sequences_freed");
    c->orphaned = true;
    for (size_t i = 0; i < c->n_stages; i++)
        if (c->stages[i]->queue)
            core_sequences_close_all(c, c->stages[i]);
}

void core_pause_forgive(struct agent_core *c, uint64_t now_ns)
{
    uint64_t gap = c->woke_ns ? now_ns - c->woke_ns : 0;
    c->woke_ns = now_ns;
    if (gap > AGENT_PAUSE_MS * ms)
        core_hops_forgive(c, gap);
    if (gap <= c->heartbeat_ns + AGENT_PAUSE_MS * ms)
        return;
    core_kv_forgive(c, gap);
    if (c->membership == MEMBERSHIP_JOINED)
        c->last_ack_ns += gap - c->heartbeat_ns;
}

void core_member_tick(struct agent_core *c, uint64_t now_ns)
{
    if (c->membership == MEMBERSHIP_JOINED) {
        if (now_ns - c->last_ack_ns >= AGENT_ACK_LIMIT_MS * ms) {
            log_warn("agent", "coordinator_silent", "seconds=%.1f",
                     (double)(now_ns - c->last_ack_ns) * 1e-9);
            join_send(c, now_ns);
        } else if (now_ns >= c->next_heartbeat_ns) {
            heartbeat_send(c, now_ns);
        }
    } else if (c->membership == MEMBERSHIP_JOINING && now_ns >= c->next_join_ns) {
        if (++c->joins_unanswered % 10 == 0)
            log_warn("agent", "no_coordinator",
                     "joins_unanswered=%llu hint=\"does it run, and is the address right?\"",
                     (unsigned long long)c->joins_unanswered);
        join_send(c, now_ns);
    }
    if (c->ever_joined && !c->orphaned && now_ns - c->last_ack_ns >= c->orphan_ns)
        sequences_orphan(c);
}

uint64_t core_member_deadline(const struct agent_core *c)
{
    uint64_t limit_ns = c->last_ack_ns + AGENT_ACK_LIMIT_MS * ms;
    if (c->membership == MEMBERSHIP_JOINED)
        return c->next_heartbeat_ns < limit_ns ? c->next_heartbeat_ns : limit_ns;
    return c->membership == MEMBERSHIP_JOINING ? c->next_join_ns : UINT64_MAX;
}

/* Without memory for all of them the list stays as it was: a model that was removed is missed when
 * it is wanted, one that is new is fetched again. */
static void models_keep(struct agent_core *c, const struct pack_list *list)
{
    struct arena arena = {0};
    const struct message_model *from = list->items;
    struct message_model *models = arena_alloc(&arena, list->count + 1, sizeof *models);
    bool whole = models != NULL;
    for (size_t i = 0; whole && i < list->count; i++) {
        const char *name = arena_strdup(&arena, from[i].name);
        uint8_t *id = arena_memdup(&arena, from[i].model.data, from[i].model.size);
        models[i] = (struct message_model){{id, from[i].model.size}, from[i].bytes, name};
        whole = name && id;
    }
    if (!whole) {
        arena_free(&arena);
        log_warn("agent", "models_not_listed", "reason=no_memory");
        return;
    }
    arena_free(&c->models_arena);
    c->models_arena = arena;
    c->models = models;
    c->n_models = list->count;
}

void core_store_changed(struct agent_core *c, const struct agent_event *ev)
{
    if (!ev->u.store.models_unknown)
        models_keep(c, &ev->u.store.models);
    struct message *m =
        c->membership == MEMBERSHIP_JOINED ? core_send(c, MESSAGE_STORE_STATE) : NULL;
    if (!m)
        return;
    const struct err *e = ev->u.store.error;
    m->id = ev->u.store.id;
    m->u.store_state =
        (struct message_store_state){{c->models, c->n_models},
                                     ev->u.store.status < 0 ? status_word(ev->u.store.status) : "",
                                     core_text(c, e ? e->text : "")};
}

/* What is not told now is part of what will be told: counts go on. */
static void losses_send(struct agent_core *c, const struct data_loss *losses, size_t n)
{
    struct message_loss *rows =
        n && c->membership == MEMBERSHIP_JOINED ? arena_alloc(&c->scratch, n, sizeof *rows) : NULL;
    for (size_t i = 0; rows && i < n; i++)
        rows[i] = (struct message_loss){
            .peer = core_span(c, (struct pack_span){losses[i].peer, KEY_BYTES}),
            .segments = losses[i].segments,
            .lost = losses[i].lost};
    struct message *m = rows ? core_send(c, MESSAGE_LOSSES) : NULL;
    if (m)
        m->u.losses.losses = (struct pack_list){rows, n};
}

void core_meter(struct agent_core *c, const struct agent_event *ev)
{
    c->memory_free_bytes = ev->u.meter.memory_free_bytes;
    for (size_t i = 0; ev->u.meter.device_free_bytes && i < c->n_devices; i++)
        c->device_states[i].memory_free_bytes = ev->u.meter.device_free_bytes[i];
    c->endpoint_foreign = ev->u.meter.dropped_foreign;
    c->endpoint_stale = ev->u.meter.dropped_stale;
    c->data_sent_bytes = ev->u.meter.data_sent_bytes;
    c->data_received_bytes = ev->u.meter.data_received_bytes;
    losses_send(c, ev->u.meter.losses, ev->u.meter.n_losses);
}
