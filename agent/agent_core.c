/* Owns membership, time and the way of every event; stages and sequences have files of their own
 * (core_int.h). */
#include <stdlib.h>
#include <string.h>

#include "agent/core_int.h"

enum {
    ACTIONS_MADE = 384,
    ACTIONS_FOR_RELEASES = 320
}; /* a stage's queue holds 4 frames for each stage of its pipeline, and 16 */

static const uint64_t ms = 1000000;

/* ---- actions
 * ----------------------------------------------------------------------------------------------------
 */

void agent_actions_free(struct agent_actions *a)
{
    free(a->items);
    memset(a, 0, sizeof *a);
}

/* The first actions are allocated with the core, and the last of these are for buffers alone: one
 * that nobody gives back is lost to the pool for ever. */
static bool action_fits(struct agent_actions *a, enum agent_action_kind kind)
{
    size_t room = a->capacity - a->count;
    if (room > (kind == AGENT_DO_RELEASE ? 0 : ACTIONS_FOR_RELEASES))
        return true;
    size_t capacity = 2 * a->capacity > ACTIONS_MADE ? 2 * a->capacity : ACTIONS_MADE;
    struct agent_action *p = realloc(a->items, capacity * sizeof *p);
    if (!p)
        return false;
    a->items = p;
    a->capacity = capacity;
    return true;
}

struct agent_action *core_act(struct agent_core *c, enum agent_action_kind kind)
{
    struct agent_actions *a = c->out;
    if (!action_fits(a, kind)) {
        log_error_limited("agent", "action_lost", "reason=no_memory kind=%d", (int)kind);
        return NULL;
    }
    struct agent_action *action = &a->items[a->count++];
    memset(action, 0, sizeof *action);
    action->kind = kind;
    return action;
}

struct message *core_send(struct agent_core *c, enum message_type type)
{
    struct agent_action *a = core_act(c, AGENT_DO_SEND);
    if (!a)
        return NULL;
    a->u.message.type = type;
    return &a->u.message;
}

void core_release(struct agent_core *c, void *buffer)
{
    struct agent_action *a = buffer ? core_act(c, AGENT_DO_RELEASE) : NULL;
    if (a)
        a->u.release.buffer = buffer;
}

const char *core_text(struct agent_core *c, const char *text)
{
    const char *copy = text ? arena_strdup(&c->scratch, text) : NULL;
    return copy ? copy : "";
}

int core_message_copy(const struct message *m, struct buffer *bytes, struct arena *arena,
                      struct message *out)
{
    message_encode(m, bytes);
    struct err e = {0};
    if (bytes->failed)
        return HP_ENOMEM;
    return message_decode(bytes->data, bytes->size, arena, out, &e);
}

/* ---- membership
 * --------------------------------------------------------------------------------------------------
 */

static void join_send(struct agent_core *c, uint64_t now)
{
    struct message *m = core_send(c, MESSAGE_JOIN);
    c->member = MEMBER_JOINING;
    c->last_join_ns = now;
    c->next_join_ns = now + AGENT_JOIN_RETRY_MS * ms;
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
                                      .models = {c->models, c->n_models}};
}

static void welcome(struct agent_core *c, const struct message_welcome *m, uint64_t now)
{
    char *name = strdup(m->name);
    if (name) {
        free(c->name);
        c->name = name;
    }
    if (c->member != MEMBER_JOINED)
        log_info("agent", "joined", "name=%s boot=%llu", c->name,
                 (unsigned long long)m->coordinator_boot);
    c->member = MEMBER_JOINED;
    c->ever_joined = true;
    c->orphaned = false;
    c->joins_unanswered = 0;
    c->boot = m->coordinator_boot;
    /* A heartbeat of 50 ms to 10 s makes sense; a message cannot make us flood or fall silent. */
    uint64_t beat = m->heartbeat_ms ? m->heartbeat_ms : AGENT_HEARTBEAT_MS;
    beat = beat < 50 ? 50 : beat > 10000 ? 10000 : beat;
    c->heartbeat_ns = beat * ms;
    c->next_heartbeat_ns = now;
    c->last_ack_ns = now;
}

static void refused(struct agent_core *c, const struct message_refused *m, uint64_t now)
{
    int code = status_of_word(m->code);
    log_warn("agent", "refused", "code=%s text=\"%s\"", m->code, m->text);
    if (c->member == MEMBER_JOINED) {
        if (now - c->last_join_ns >= 500 * ms)
            join_send(c, now);
        return;
    }
    c->next_join_ns = now + 5 * AGENT_JOIN_RETRY_MS * ms;
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

static void heartbeat_send(struct agent_core *c, uint64_t now)
{
    struct message *m = core_send(c, MESSAGE_HEARTBEAT);
    c->next_heartbeat_ns = now + c->heartbeat_ns;
    if (m)
        m->u.heartbeat =
            (struct message_heartbeat){.number = ++c->heartbeat_number,
                                       .memory_free_bytes = c->memory_free_bytes,
                                       .dropped_stale = c->dropped_stale,
                                       .dropped_foreign = c->dropped_foreign + c->endpoint_foreign,
                                       .held = {c->held, core_stages_held(c)}};
}

/* ---- time
 * ---------------------------------------------------------------------------------------------------------
 */

static void orphaned(struct agent_core *c)
{
    log_warn("agent", "orphaned", "action=sequences_freed");
    c->orphaned = true;
    for (size_t i = 0; i < c->n_stages; i++)
        if (c->stages[i]->queue)
            core_sequences_close_all(c, c->stages[i]);
}

/* While this process itself stood still it read no ack: what it missed then is not the
 * coordinator's silence. */
static void pause_forgive(struct agent_core *c, uint64_t now)
{
    uint64_t gap = c->woke_ns ? now - c->woke_ns : 0;
    c->woke_ns = now;
    if (gap > AGENT_PAUSE_MS * ms)
        core_hops_forgive(c, gap);
    if (c->member == MEMBER_JOINED && gap > c->heartbeat_ns + AGENT_PAUSE_MS * ms)
        c->last_ack_ns += gap - c->heartbeat_ns;
}

static void tick(struct agent_core *c, uint64_t now)
{
    if (c->member == MEMBER_JOINED) {
        if (now - c->last_ack_ns >= AGENT_ACK_LIMIT_MS * ms) {
            log_warn("agent", "coordinator_silent", "seconds=%.1f",
                     (double)(now - c->last_ack_ns) * 1e-9);
            join_send(c, now);
        } else if (now >= c->next_heartbeat_ns) {
            heartbeat_send(c, now);
        }
    } else if (c->member == MEMBER_JOINING && now >= c->next_join_ns) {
        if (++c->joins_unanswered % 10 == 0)
            log_warn("agent", "no_coordinator",
                     "joins_unanswered=%llu hint=\"does it run, and is the address right?\"",
                     (unsigned long long)c->joins_unanswered);
        join_send(c, now);
    }
    if (c->ever_joined && !c->orphaned && now - c->last_ack_ns >= AGENT_ORPHAN_MS * ms)
        orphaned(c);
    core_hops_tick(c, now);
    core_expire(c, now);
}

static void timer_set(struct agent_core *c, uint64_t now)
{
    uint64_t at = UINT64_MAX, hold = core_expire_deadline(c);
    if (c->member == MEMBER_JOINED)
        at = c->next_heartbeat_ns < c->last_ack_ns + AGENT_ACK_LIMIT_MS * ms
                 ? c->next_heartbeat_ns
                 : c->last_ack_ns + AGENT_ACK_LIMIT_MS * ms;
    else if (c->member == MEMBER_JOINING)
        at = c->next_join_ns;
    if (hold != UINT64_MAX && hold < now + 1000 * ms)
        hold = now + 1000 * ms; /* what must not be given up yet is looked at once a second */
    uint64_t hop = core_hops_deadline(c);
    at = hold < at ? hold : at;
    at = hop < at ? hop : at;
    if (at == UINT64_MAX || (c->timer_ns > now && c->timer_ns <= at))
        return; /* what is asked for already comes early enough */
    c->timer_ns = at;
    struct agent_action *a = core_act(c, AGENT_DO_TIMER);
    if (a)
        a->u.timer.at_ns = at;
}

/* ---- events
 * -------------------------------------------------------------------------------------------------------
 */

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

static void store_changed(struct agent_core *c, const struct agent_event *ev)
{
    if (!ev->u.store.models_unknown)
        models_keep(c, &ev->u.store.models);
    struct message *m = c->member == MEMBER_JOINED ? core_send(c, MESSAGE_STORE_STATE) : NULL;
    if (!m)
        return;
    const struct err *e = ev->u.store.error;
    m->id = ev->u.store.id;
    m->u.store_state =
        (struct message_store_state){{c->models, c->n_models},
                                     ev->u.store.status < 0 ? status_word(ev->u.store.status) : "",
                                     core_text(c, e ? e->text : "")};
}

static struct pack_span span_copy(struct agent_core *c, struct pack_span from)
{
    const uint8_t *copy = from.size ? arena_memdup(&c->scratch, from.data, from.size) : NULL;
    return (struct pack_span){copy, copy ? from.size : 0};
}

static void profiled(struct agent_core *c, const struct agent_event *ev)
{
    struct message *m = core_send(c, MESSAGE_PROFILE_RESULT);
    if (!m)
        return;
    bool failed = ev->u.profiled.status < 0;
    m->id = ev->u.profiled.id;
    m->u.profile_result = (struct message_profile_result){
        .model = span_copy(c, ev->u.profiled.model),
        .kind = core_text(c, ev->u.profiled.kind),
        .tables = core_text(c, ev->u.profiled.tables),
        .code = failed ? status_word(ev->u.profiled.status) : "",
        .text = core_text(c, failed && ev->u.profiled.error ? ev->u.profiled.error->text : ""),
    };
}

static void profiling(struct agent_core *c, const struct agent_event *ev)
{
    struct message *m = core_send(c, MESSAGE_PROFILE_PROGRESS);
    if (!m)
        return;
    m->id = ev->u.profiling.id;
    m->u.profile_progress = ev->u.profiling.progress;
    m->u.profile_progress.what = core_text(c, ev->u.profiling.progress.what);
}

static void probed(struct agent_core *c, const struct agent_event *ev)
{
    struct message *m = core_send(c, MESSAGE_LINK_RESULT);
    if (!m)
        return;
    bool failed = ev->u.probed.status < 0;
    m->id = ev->u.probed.id;
    m->u.link_result = (struct message_link_result){
        .latency_s = ev->u.probed.latency_s,
        .bandwidth_bytes_per_s = ev->u.probed.bandwidth_bytes_per_s,
        .code = failed ? status_word(ev->u.probed.status) : "",
        .text = core_text(c, failed && ev->u.probed.error ? ev->u.probed.error->text : "")};
}

static void link_probe(struct agent_core *c, uint64_t id, const struct message_link_probe *p)
{
    struct agent_action *a = core_act(c, AGENT_DO_PROBE);
    if (!a)
        return;
    a->u.probe.id = id;
    a->u.probe.request = (struct message_link_probe){
        p->session, core_text(c, p->role), core_text(c, p->peer), span_copy(c, p->data_address)};
}

/* Without memory for the news the old set stays: an empty one would end every connection. */
static void members_told(struct agent_core *c, const struct message_members *m)
{
    if (m->keys.size % KEY_BYTES)
        return;
    struct pack_span keys = span_copy(c, m->keys);
    struct agent_action *a = keys.size == m->keys.size ? core_act(c, AGENT_DO_PEERS) : NULL;
    if (a)
        a->u.peers.keys = keys;
}

static void message_in(struct agent_core *c, const struct message *m, uint64_t now)
{
    struct agent_action *a;
    struct message *out;
    switch (m->type) {
    case MESSAGE_WELCOME: welcome(c, &m->u.welcome, now); return;
    case MESSAGE_HEARTBEAT_ACK:
        c->last_ack_ns = now;
        c->orphaned = false;
        return;
    case MESSAGE_REFUSED: refused(c, &m->u.refused, now); return;
    case MESSAGE_MEMBERS: members_told(c, &m->u.members); return;
    case MESSAGE_STAGE_PREPARE: core_stage_prepare(c, m); return;
    case MESSAGE_STAGE_CONNECT: core_stage_connect(c, &m->u.stage_connect); return;
    case MESSAGE_STAGE_UNLOAD: core_stage_unload(c, &m->u.stage_unload); return;
    case MESSAGE_CHUNK_GRANT: core_grant(c, &m->u.chunk_grant); return;
    case MESSAGE_SEQUENCE_OPEN: core_sequence_open(c, m); return;
    case MESSAGE_SEQUENCE_CLOSE: {
        const struct message_sequence_close *close = &m->u.sequence_close;
        struct core_stage *s = core_stage_of(c, close->deployment);
        if (s && s->prepare.generation == close->generation && s->queue)
            core_sequence_close(c, s, close->sequence);
        return;
    }
    case MESSAGE_PROFILE_RUN:
        if ((a = core_act(c, AGENT_DO_PROFILE)) != NULL) {
            a->u.profile.id = m->id;
            a->u.profile.request = (struct message_profile_run){
                span_copy(c, m->u.profile_run.model), span_copy(c, m->u.profile_run.manifest),
                core_text(c, m->u.profile_run.compute), m->u.profile_run.budget_ms,
                m->u.profile_run.fine};
        }
        return;
    case MESSAGE_LINK_PROBE: link_probe(c, m->id, &m->u.link_probe); return;
    case MESSAGE_STORE_REMOVE:
        if ((a = core_act(c, AGENT_DO_STORE_REMOVE)) != NULL) {
            a->u.store_remove.id = m->id;
            a->u.store_remove.model = span_copy(c, m->u.store_remove.model);
        }
        return;
    case MESSAGE_LOG_FETCH:
        if ((a = core_act(c, AGENT_DO_LOG_FETCH)) != NULL) {
            a->u.log_fetch.id = m->id;
            a->u.log_fetch.lines = m->u.log_fetch.lines;
        }
        return;
    default:
        /* Only what is asked gets an answer: two programs must not refuse each other's refusals for
         * ever. */
        if (m->id && (out = core_send(c, MESSAGE_REFUSED)) != NULL) {
            out->id = m->id;
            out->u.refused = (struct message_refused){
                status_word(HP_EUNSUPPORTED), "an agent has no answer to this kind of message", ""};
        }
        return;
    }
}

static void output_back(struct agent_core *c, uint64_t slot)
{
    struct core_stage *s = core_stage_of_slot(c, slot);
    if (s)
        core_output_back(c, s);
}

static void event_in(struct agent_core *c, const struct agent_event *ev, uint64_t now)
{
    struct message *m;
    switch (ev->kind) {
    case AGENT_EVENT_START: join_send(c, now); return;
    case AGENT_EVENT_TIMER: return;
    case AGENT_EVENT_MESSAGE: message_in(c, ev->u.message, now); return;
    case AGENT_EVENT_FRAME: core_frame(c, ev); return;
    case AGENT_EVENT_LINK_DOWN:
        core_stage_link_down(c, ev->u.link_down.slot, ev->u.link_down.link);
        return;
    case AGENT_EVENT_OUTPUT_BACK: output_back(c, ev->u.output_back.slot); return;
    case AGENT_EVENT_FETCHED: core_stage_fetched(c, &ev->u.progress); return;
    case AGENT_EVENT_LOADED: core_stage_loaded(c, &ev->u.progress); return;
    case AGENT_EVENT_SEQUENCE_OPENED: core_sequence_opened(c, ev); return;
    case AGENT_EVENT_BATCH_DONE: core_batch_done(c, ev); return;
    case AGENT_EVENT_PROFILED: profiled(c, ev); return;
    case AGENT_EVENT_PROFILING: profiling(c, ev); return;
    case AGENT_EVENT_PROBED: probed(c, ev); return;
    case AGENT_EVENT_STORE: store_changed(c, ev); return;
    case AGENT_EVENT_LOG:
        if ((m = core_send(c, MESSAGE_LOG_TEXT)) != NULL) {
            m->id = ev->u.log.id;
            m->u.log_text.text = core_text(c, ev->u.log.text);
        }
        return;
    case AGENT_EVENT_METER:
        c->memory_free_bytes = ev->u.meter.memory_free_bytes;
        c->endpoint_foreign = ev->u.meter.dropped_foreign;
        return;
    case AGENT_EVENT_LOST:
        for (size_t i = 0; i < c->n_stages; i++)
            core_sequences_fail_all(c, c->stages[i], HP_EBUSY,
                                    "more came to this agent at once than it could keep");
        return;
    }
}

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
        *out = (struct agent_actions){.items = c->actions_made, .capacity = ACTIONS_MADE};
        c->actions_made = NULL;
    }
    c->out = out;
    c->due_ns = 0;
    c->ready_ns = event->kind == AGENT_EVENT_BATCH_DONE ? 0 : now;
    if (event->kind == AGENT_EVENT_FRAME && event->u.frame.arrived_ns)
        c->ready_ns = event->u.frame.arrived_ns;
    pause_forgive(c, now);
    event_in(c, event, now);
    tick(c, now);
    core_dispatch(c);
    timer_set(c, now);
    c->out = NULL;
}

/* ---- its life
 * ------------------------------------------------------------------------------------------------------
 */

int agent_core_create(const struct env *env, const struct agent_core_config *config,
                      struct agent_core **out, struct err *e)
{
    struct agent_core *c = calloc(1, sizeof *c);
    if (c) {
        c->name = strdup("");
        c->actions_made = malloc(ACTIONS_MADE * sizeof *c->actions_made);
    }
    if (!c || !c->name || !c->actions_made) {
        if (c) {
            free(c->name);
            free(c->actions_made);
        }
        free(c);
        return err_set(e, HP_ENOMEM, "no memory for the agent's core");
    }
    c->env = env;
    c->config = config;
    c->heartbeat_ns = AGENT_HEARTBEAT_MS * ms;
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
    for (size_t i = 0; i < CORE_RUN_PLACES; i++)
        queue_batch_free(&c->runs[i].batch);
    free(c->tokens);
    free(c->told);
    free(c->name);
    free(c->actions_made);
    dead_free(c);
    arena_free(&c->models_arena);
    free(c);
    *pc = NULL;
}

struct agent_core_view agent_core_view(const struct agent_core *c)
{
    struct agent_core_view v = {.joined = c->member == MEMBER_JOINED,
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
