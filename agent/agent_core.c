/* The core's face: which handler an event or a message goes to, the timer, and the core's life. */
#include "agent/agent_core.h"

#include <stdlib.h>
#include <string.h>

#include "agent/core_alive.h"
#include "agent/core_answers.h"
#include "agent/core_arrivals.h"
#include "agent/core_batches.h"
#include "agent/core_copies.h"
#include "agent/core_exports.h"
#include "agent/core_frames.h"
#include "agent/core_imports.h"
#include "agent/core_membership.h"
#include "agent/core_out.h"
#include "agent/core_sequences.h"
#include "agent/core_sessions.h"
#include "agent/core_shares.h"
#include "agent/core_spills.h"
#include "agent/core_stages.h"
#include "agent/core_state.h"
#include "agent/core_streams.h"
#include "agent/core_turns.h"
#include "agent/core_watch.h"

static const uint64_t ms = 1000000;

/* ---- time ---- */

static void timer_set(struct agent_core *c, uint64_t now)
{
    uint64_t at = core_member_deadline(c), hold = core_expire_deadline(c);
    if (hold != UINT64_MAX && hold < now + 1000 * ms)
        hold = now + 1000 * ms; /* what must not be given up yet is looked at once a second */
    uint64_t hop = core_hops_deadline(c), comes = core_imports_deadline(c),
             goes = core_exports_deadline(c);
    at = comes < at ? comes : at;
    at = goes < at ? goes : at;
    at = hold < at ? hold : at;
    at = hop < at ? hop : at;
    if (at == UINT64_MAX || (c->timer_ns > now && c->timer_ns <= at))
        return; /* what is asked for already comes early enough */
    c->timer_ns = at;
    struct agent_action *a = core_act(c, AGENT_DO_TIMER);
    if (a)
        a->u.timer.at_ns = at;
}

/* ---- messages and events ---- */

typedef void (*message_fn)(struct agent_core *c, struct message_ref *m);
typedef void (*event_fn)(struct agent_core *c, const struct agent_event *ev);

static const message_fn message_handlers[MESSAGE_TYPE_COUNT] = {
    [MESSAGE_WELCOME] = core_welcome,
    [MESSAGE_HEARTBEAT_ACK] = core_heartbeat_ack,
    [MESSAGE_REFUSED] = core_refused,
    [MESSAGE_MEMBERS] = core_members_told,
    [MESSAGE_STAGE_PREPARE] = core_stage_prepare,
    [MESSAGE_STAGE_CONNECT] = core_stage_connect,
    [MESSAGE_STAGE_UNLOAD] = core_stage_unload,
    [MESSAGE_SHARE_CONNECT] = core_share_connect,
    [MESSAGE_CHUNK_GRANT] = core_grant,
    [MESSAGE_SEQUENCE_OPEN] = core_sequence_open,
    [MESSAGE_SEQUENCE_GROW] = core_sequence_grow,
    [MESSAGE_SEQUENCE_SPILL] = core_sequence_spill,
    [MESSAGE_SEQUENCE_CLOSE] = core_sequence_closed,
    [MESSAGE_KV_IMPORT] = core_kv_import,
    [MESSAGE_KV_EXPORT] = core_kv_export,
    [MESSAGE_PROFILE_RUN] = core_profile_run,
    [MESSAGE_LINK_PROBE] = core_link_probe,
    [MESSAGE_STORE_REMOVE] = core_store_remove,
    [MESSAGE_LOG_FETCH] = core_log_fetch,
};

static void message_in(struct agent_core *c, const struct agent_event *ev)
{
    message_fn handler = message_handlers[ev->u.message->message.type];
    (handler ? handler : core_unknown)(c, ev->u.message);
}

/* Every event looks at the time, whatever it is: AGENT_EVENT_TIMER does nothing else. */
static const event_fn event_handlers[AGENT_EVENT_KINDS] = {
    [AGENT_EVENT_START] = core_start,
    [AGENT_EVENT_MESSAGE] = message_in,
    [AGENT_EVENT_FRAME] = core_frame,
    [AGENT_EVENT_LINK_DOWN] = core_stage_link_down,
    [AGENT_EVENT_OUTPUT_BACK] = core_output_freed,
    [AGENT_EVENT_FETCHED] = core_stage_fetched,
    [AGENT_EVENT_LOADED] = core_stage_loaded,
    [AGENT_EVENT_FILLING] = core_stage_filling,
    [AGENT_EVENT_SEQUENCE_OPENED] = core_sequence_opened,
    [AGENT_EVENT_BATCH_DONE] = core_batch_done,
    [AGENT_EVENT_KV_IMPORTED] = core_kv_imported,
    [AGENT_EVENT_KV_LEFT] = core_kv_left,
    [AGENT_EVENT_SPILLS] = core_spills_told,
    [AGENT_EVENT_PROFILED] = core_profiled,
    [AGENT_EVENT_PROFILING] = core_profiling,
    [AGENT_EVENT_PROBED] = core_probed,
    [AGENT_EVENT_STORE] = core_store_changed,
    [AGENT_EVENT_LOG] = core_log_answer,
    [AGENT_EVENT_METER] = core_meter,
    [AGENT_EVENT_SHARE_METER] = core_share_metered,
    [AGENT_EVENT_SHARE_FAILED] = core_share_failed,
    [AGENT_EVENT_LOST] = core_events_lost,
};

/* What the last event's actions pointed at. */
static void dead_free(struct agent_core *c)
{
    arena_free(&c->scratch);
    while (c->dead_sequences) {
        struct core_sequence *s = c->dead_sequences;
        c->dead_sequences = s->next_dead;
        core_sequence_free(s);
    }
    while (c->dead_stages) {
        struct core_stage *s = c->dead_stages;
        c->dead_stages = s->next_dead;
        core_stage_free(s);
    }
}

void agent_core_event(struct agent_core *c, const struct agent_event *event,
                      struct agent_actions *out)
{
    uint64_t now = env_now_ns(c->env);
    dead_free(c);
    out->count = 0;
    if (!out->items && c->actions_made) {
        *out = (struct agent_actions){.items = c->actions_made, .capacity = CORE_ACTIONS_MADE};
        c->actions_made = NULL;
    }
    c->out = out;
    c->now_ns = now;
    c->due_ns = 0;
    c->ready_ns = event->kind == AGENT_EVENT_BATCH_DONE ? 0 : now;
    if (event->kind == AGENT_EVENT_FRAME && event->u.frame.arrived_ns)
        c->ready_ns = event->u.frame.arrived_ns;
    core_pause_forgive(c, now);
    if (event_handlers[event->kind])
        event_handlers[event->kind](c, event);
    core_member_tick(c, now);
    core_hops_tick(c, now);
    core_expire(c, now);
    core_exports_tick(c, now);
    core_imports_tick(c, now);
    core_dispatch(c);
    core_kv_follow(c);
    timer_set(c, now);
    c->out = NULL;
}

/* ---- its life ---- */

static void core_free(struct agent_core *c)
{
    if (!c)
        return;
    free(c->devices);
    free(c->device_states);
    free(c->name);
    free(c->actions_made);
    free(c);
}

int agent_core_create(const struct env *env, const struct agent_core_config *config,
                      struct agent_core **out, struct err *e)
{
    struct agent_core *c = calloc(1, sizeof *c);
    if (c) {
        c->n_devices = config->n_devices ? config->n_devices : 1;
        c->devices = calloc(c->n_devices, sizeof *c->devices);
        c->device_states = calloc(c->n_devices, sizeof *c->device_states);
        c->name = strdup("");
        c->actions_made = malloc(CORE_ACTIONS_MADE * sizeof *c->actions_made);
    }
    if (!c || !c->devices || !c->device_states || !c->name || !c->actions_made) {
        core_free(c);
        return err_set(e, HP_ENOMEM, "no memory for the agent's core");
    }
    c->env = env;
    c->config = config;
    c->heartbeat_ns = AGENT_HEARTBEAT_MS * ms;
    c->orphan_ns = AGENT_ORPHAN_MS * ms;
    *out = c;
    return 0;
}

void agent_core_destroy(struct agent_core **pc, void (*release)(void *ctx, void *buffer), void *ctx)
{
    struct agent_core *c = *pc;
    if (!c)
        return;
    for (size_t i = 0; i < c->n_stages; i++) {
        struct core_stage *s = c->stages[i];
        struct queue_sequence *q;
        for (size_t k = 0; s->queue && (q = queue_sequence_at(s->queue, k)) != NULL; k++)
            core_sequence_free(q->owner);
        queue_destroy(&s->queue, release, ctx);
        core_stage_free(s);
    }
    core_copies_free(c);
    core_remains_free(c);
    for (size_t i = 0; i < AGENT_MAX_KV_EXPORTS; i++)
        message_ref_release(c->kv_exports[i].message);
    for (size_t i = 0; i < c->n_devices * CORE_RUN_PLACES; i++)
        batch_free(&c->devices[i / CORE_RUN_PLACES].runs[i % CORE_RUN_PLACES].batch);
    free(c->tokens);
    free(c->told_ids);
    free(c->pooled);
    free(c->said);
    dead_free(c);
    arena_free(&c->models_arena);
    core_free(c);
    *pc = NULL;
}

struct agent_core_view agent_core_view(const struct agent_core *c)
{
    struct agent_core_view v = {.joined = c->membership == MEMBERSHIP_JOINED,
                                .name = c->name,
                                .coordinator_boot = c->boot,
                                .n_stages = (uint32_t)c->n_stages,
                                .dropped_stale = c->dropped_stale,
                                .dropped_foreign = c->dropped_foreign,
                                .dropped_malformed = c->dropped_malformed,
                                .dropped_runs = c->dropped_runs,
                                .dropped_full = c->dropped_full};
    for (size_t i = 0; i < c->n_stages; i++) {
        struct queue_view q =
            c->stages[i]->queue ? queue_view(c->stages[i]->queue) : (struct queue_view){0};
        v.n_sequences += q.sequences;
        v.n_held_frames += q.frames;
    }
    return v;
}
