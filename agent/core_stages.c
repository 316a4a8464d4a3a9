/* Owns a stage's way from `stage_prepare` to `stage_unload`: which weights it keeps over
 * generations, its links, its session, and what the coordinator hears of it. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "agent/core_int.h"

static const uint64_t LINK_TELL_NS = 60000000000u;

const struct machine_state stage_states[STAGE_STATES] = {
    [STAGE_FETCHING] = {"fetching", MACHINE_TO(STAGE_LOADING) | MACHINE_TO(STAGE_FAILED)},
    [STAGE_LOADING] = {"loading", MACHINE_TO(STAGE_WARMING) | MACHINE_TO(STAGE_READY) |
                                      MACHINE_TO(STAGE_FAILED)},
    [STAGE_WARMING] = {"warming", MACHINE_TO(STAGE_READY) | MACHINE_TO(STAGE_FAILED)},
    [STAGE_READY] = {"ready", MACHINE_TO(STAGE_FAILED)},
    [STAGE_FAILED] = {"failed", 0}, /* the next stage_prepare makes a new one */
};

struct core_stage *core_stage_of(struct agent_core *c, uint64_t deployment)
{
    for (size_t i = 0; i < c->n_stages; i++)
        if (c->stages[i]->prepare.deployment == deployment)
            return c->stages[i];
    return NULL;
}

struct core_stage *core_stage_of_slot(struct agent_core *c, uint64_t slot)
{
    for (size_t i = 0; i < c->n_stages; i++)
        if (c->stages[i]->slot == slot)
            return c->stages[i];
    return NULL;
}

void core_stage_free(struct core_stage *s)
{
    free(s->wanted);
    free(s->next_address);
    free(s->first_address);
    free(s->next_device);
    free(s->first_device);
    arena_free(&s->arena);
    buffer_free(&s->bytes);
    free(s);
}

/* ---- what the coordinator hears
 * ---------------------------------------------------------------------------------- */

void core_stage_report(struct agent_core *c, const struct core_stage *s)
{
    struct message *m = core_send(c, MESSAGE_STAGE_STATE);
    if (!m)
        return;
    bool failed = s->state == STAGE_FAILED;
    m->u.stage_state = (struct message_stage_state){
        .deployment = s->prepare.deployment,
        .generation = s->prepare.generation,
        .stage = s->prepare.stage,
        .state = stage_states[s->state].word,
        .done_bytes = s->done_bytes,
        .total_bytes = s->total_bytes,
        .moved_bytes = s->moved_bytes,
        .wanted = {s->wanted, s->state == STAGE_FETCHING ? s->n_wanted : 0},
        .code = failed ? status_word(s->error.code) : "",
        .text = failed ? s->error.text : "",
        .hint = failed ? s->error.hint : ""};
}

/* For a stage that there is not: refused before it began, or unloaded. */
static void report_without(struct agent_core *c, uint64_t deployment, uint64_t generation,
                           uint64_t stage, const char *state, const struct err *e)
{
    struct message *m = core_send(c, MESSAGE_STAGE_STATE);
    if (m)
        m->u.stage_state = (struct message_stage_state){.deployment = deployment,
                                                        .generation = generation,
                                                        .stage = stage,
                                                        .state = state,
                                                        .code = e ? status_word(e->code) : "",
                                                        .text = core_text(c, e ? e->text : ""),
                                                        .hint = core_text(c, e ? e->hint : "")};
}

size_t core_stages_held(struct agent_core *c)
{
    for (size_t i = 0; i < c->n_stages; i++) {
        const struct core_stage *s = c->stages[i];
        struct queue_view q = s->queue ? queue_view(s->queue) : (struct queue_view){0};
        c->held[i] = (struct message_held_stage){.deployment = s->prepare.deployment,
                                                 .generation = s->prepare.generation,
                                                 .stage = s->prepare.stage,
                                                 .state = stage_states[s->state].word,
                                                 .sequences = q.sequences,
                                                 .queued_batches = q.frames + q.in_flight,
                                                 .kv_used_tokens = q.kv_tokens,
                                                 .kv_tokens = s->prepare.kv_tokens,
                                                 .batches_done = s->batches_done,
                                                 .busy_s = s->busy_s,
                                                 .planned_s = s->planned_s,
                                                 .hop_heard = s->hop.heard,
                                                 .running = c->n_running &&
                                                            c->runs[c->first_run].slot == s->slot};
    }
    return c->n_stages;
}

/* ---- sessions
 * -----------------------------------------------------------------------------------------------------
 */

static bool session_used(const struct agent_core *c, uint64_t session)
{
    for (size_t i = 0; i < c->n_stages; i++)
        if (c->stages[i]->prepare.session == session ||
            c->stages[i]->prepare.input_session == session)
            return true;
    for (size_t i = 0; i < c->n_grants; i++)
        if (c->grants[i].session == session)
            return true;
    return false;
}

/* `from`: the key of the only sender; empty: anybody who may connect. */
static void session_allow(struct agent_core *c, uint64_t session, struct pack_span from)
{
    struct agent_action *a = core_act(c, AGENT_DO_SESSION_ALLOW);
    if (!a)
        return;
    a->u.session.session = session;
    a->u.session.from = from.size == KEY_BYTES ? from.data : NULL;
}

/* Once nothing uses it any more. */
static void session_revoke(struct agent_core *c, uint64_t session)
{
    struct agent_action *a = session_used(c, session) ? NULL : core_act(c, AGENT_DO_SESSION_REVOKE);
    if (a)
        a->u.session.session = session;
}

static void stage_sessions_allow(struct agent_core *c, const struct core_stage *s)
{
    session_allow(c, s->prepare.session, (struct pack_span){0});
    if (s->prepare.input_session)
        session_allow(c, s->prepare.input_session, s->prepare.input_from);
}

static void stage_sessions_revoke(struct agent_core *c, uint64_t session, uint64_t input_session)
{
    session_revoke(c, session);
    if (input_session)
        session_revoke(c, input_session);
}

void core_grant(struct agent_core *c, const struct message_chunk_grant *m)
{
    size_t i = 0;
    while (i < c->n_grants && c->grants[i].session != m->session)
        i++;
    if (m->revoke && i < c->n_grants) {
        c->grants[i] = c->grants[--c->n_grants];
        session_revoke(c, m->session);
    } else if (!m->revoke && i == c->n_grants) {
        if (c->n_grants == AGENT_MAX_GRANTS) {
            uint64_t oldest = c->grants[0].session;
            memmove(&c->grants[0], &c->grants[1], (c->n_grants - 1) * sizeof *c->grants);
            c->n_grants--;
            session_revoke(c, oldest);
        }
        c->grants[c->n_grants++].session = m->session;
        session_allow(c, m->session, (struct pack_span){0});
    }
}

/* ---- prepare
 * ------------------------------------------------------------------------------------------------------
 */

static int prepare_check(const struct message_stage_prepare *p, struct err *e)
{
    if (!p->n_stages || p->n_stages > QUEUE_MAX_STAGES || p->stage >= p->n_stages)
        return err_set(e, HP_EINVAL, "stage %llu of %llu stages", (unsigned long long)p->stage,
                       (unsigned long long)p->n_stages);
    if (p->first_layer >= p->end_layer || p->end_layer > INT32_MAX)
        return err_set(e, HP_EINVAL, "layers %llu to %llu", (unsigned long long)p->first_layer,
                       (unsigned long long)p->end_layer);
    if (strcmp(p->compute, "auto") != 0 && strcmp(p->compute, "f32") != 0)
        return err_set(e, HP_EUNSUPPORTED, "compute \"%s\" is not known; auto and f32 are",
                       p->compute);
    if (!p->max_batch_tokens || p->max_batch_tokens > UINT32_MAX || !p->max_sequences ||
        p->max_sequences > (1 << 20) || !p->kv_tokens)
        return err_set(e, HP_EINVAL,
                       "a stage needs kv_tokens, max_batch_tokens and max_sequences of at least 1");
    if (p->model.size != 32)
        return err_set(e, HP_EINVAL, "a model's id has 32 bytes, this has %zu", p->model.size);
    return 0;
}

static void stage_move(struct agent_core *c, struct core_stage *s, enum stage_state to)
{
    machine_move(stage_states, &s->state, (int)to);
    log_info("agent", "stage_state", "deployment=%llu generation=%llu stage=%llu state=%s",
             (unsigned long long)s->prepare.deployment, (unsigned long long)s->prepare.generation,
             (unsigned long long)s->prepare.stage, stage_states[to].word);
    core_stage_report(c, s);
}

static void stage_fail(struct agent_core *c, struct core_stage *s, const struct err *e)
{
    if (e)
        s->error = *e;
    else
        err_set(&s->error, HP_EBUG, "failed without a reason");
    log_warn("agent", "stage_failed", "deployment=%llu code=%s text=\"%s\"",
             (unsigned long long)s->prepare.deployment, status_word(s->error.code), s->error.text);
    stage_move(c, s, STAGE_FAILED);
}

void core_stage_break(struct agent_core *c, struct core_stage *s, const struct err *e)
{
    if (s->state == STAGE_READY)
        stage_fail(c, s, e);
}

static void work_order(struct agent_core *c, struct core_stage *s, enum agent_action_kind kind)
{
    struct agent_action *a = core_act(c, kind);
    s->ticket = ++c->last_ticket;
    s->done_bytes = s->total_bytes = 0;
    if (!a)
        return;
    a->u.work.slot = s->slot;
    a->u.work.ticket = s->ticket;
    a->u.work.prepare = &s->prepare;
}

static void stage_drop(struct agent_core *c, struct core_stage *s)
{
    core_queue_destroy(c, s);
    struct agent_action *a = core_act(c, AGENT_DO_UNLOAD);
    if (a)
        a->u.unload.slot = s->slot;
    for (size_t i = 0; i < c->n_stages; i++)
        if (c->stages[i] == s)
            c->stages[i] = c->stages[--c->n_stages];
    stage_sessions_revoke(c, s->prepare.session, s->prepare.input_session);
    s->next_dead = c->dead_stages;
    c->dead_stages = s;
}

static void stage_start(struct agent_core *c, const struct message *m)
{
    const struct message_stage_prepare *p = &m->u.stage_prepare;
    struct err e = {0};
    struct message copy;
    struct core_stage *s = NULL;
    int rc = prepare_check(p, &e);
    if (rc == 0 && c->n_stages == AGENT_MAX_STAGES)
        rc = err_set(&e, HP_EBUSY, "this agent holds %d stages already", AGENT_MAX_STAGES);
    if (rc == 0 && (s = calloc(1, sizeof *s)) == NULL)
        rc = err_set(&e, HP_ENOMEM, "no memory for a stage");
    if (rc == 0 && core_message_copy(m, &s->bytes, &s->arena, &copy) < 0)
        rc = err_set(&e, HP_ENOMEM, "no memory for the manifest of a stage");
    if (rc < 0) {
        report_without(c, p->deployment, p->generation, p->stage, "failed", &e);
        if (s)
            core_stage_free(s);
        return;
    }
    s->prepare = copy.u.stage_prepare;
    s->slot = ++c->last_slot;
    s->state = STAGE_FETCHING;
    c->stages[c->n_stages++] = s;
    stage_sessions_allow(c, s);
    log_info("agent", "stage_prepare",
             "deployment=%llu generation=%llu stage=%llu/%llu layers=%llu-%llu",
             (unsigned long long)p->deployment, (unsigned long long)p->generation,
             (unsigned long long)p->stage, (unsigned long long)p->n_stages,
             (unsigned long long)p->first_layer, (unsigned long long)p->end_layer - 1);
    core_stage_report(c, s);
    work_order(c, s, AGENT_DO_FETCH);
}

/* The weights that are there, or being loaded, serve the new generation too. */
static bool adoptable(const struct core_stage *s, const struct message_stage_prepare *p)
{
    const struct message_stage_prepare *have = &s->prepare;
    return (s->state == STAGE_READY || s->state == STAGE_LOADING || s->state == STAGE_WARMING) &&
           prepare_check(p, NULL) == 0 && have->model.size == p->model.size &&
           memcmp(have->model.data, p->model.data, p->model.size) == 0 &&
           have->first_layer == p->first_layer && have->end_layer == p->end_layer &&
           strcmp(have->compute, p->compute) == 0 && p->kv_tokens <= s->loaded_kv_tokens &&
           p->max_sequences <= s->loaded_sequences &&
           p->max_batch_tokens <= s->loaded_batch_tokens && have->stands_for <= p->stands_for &&
           have->stands_for >= p->stands_for;
}

static void stage_adopt(struct agent_core *c, struct core_stage *s, const struct message *m)
{
    struct buffer bytes = {0};
    struct arena arena = {0};
    struct message copy;
    if (core_message_copy(m, &bytes, &arena, &copy) < 0) {
        arena_free(&arena);
        buffer_free(&bytes);
        stage_drop(c, s);
        stage_start(c, m);
        return;
    }
    core_queue_destroy(c, s);
    uint64_t old_session = s->prepare.session, old_input_session = s->prepare.input_session;
    arena_free(&s->arena);
    buffer_free(&s->bytes);
    s->arena = arena;
    s->bytes = bytes;
    s->prepare = copy.u.stage_prepare;
    s->connected = s->link_broken = false;
    core_hop_reset(s);
    s->batches_done = s->tokens_done = 0;
    s->busy_s = s->planned_s = 0;
    stage_sessions_allow(c, s);
    stage_sessions_revoke(c, old_session, old_input_session);
    log_info("agent", "stage_kept", "deployment=%llu generation=%llu stage=%llu/%llu state=%s",
             (unsigned long long)s->prepare.deployment, (unsigned long long)s->prepare.generation,
             (unsigned long long)s->prepare.stage, (unsigned long long)s->prepare.n_stages,
             stage_states[s->state].word);
    struct err e = {0};
    if (s->state == STAGE_READY && core_queue_create(c, s, &e) < 0)
        stage_fail(c, s, &e);
    else
        core_stage_report(c, s);
}

void core_stage_prepare(struct agent_core *c, const struct message *m)
{
    const struct message_stage_prepare *p = &m->u.stage_prepare;
    struct core_stage *s = core_stage_of(c, p->deployment);
    if (s && p->generation < s->prepare.generation) {
        c->dropped_stale++;
        return;
    }
    if (s && p->generation == s->prepare.generation && s->state != STAGE_FAILED) {
        core_stage_report(c, s);
        return;
    }
    if (s && adoptable(s, p)) {
        stage_adopt(c, s, m);
        return;
    }
    if (s)
        stage_drop(c, s);
    stage_start(c, m);
}

/* ---- how fetching and loading go
 * ---------------------------------------------------------------------------------- */

static void progress_take(struct core_stage *s, const struct agent_progress *p)
{
    s->done_bytes = p->done_bytes;
    s->total_bytes = p->total_bytes;
    s->moved_bytes = p->moved_bytes > s->moved_bytes ? p->moved_bytes : s->moved_bytes;
    if (!p->wanted.count) {
        s->n_wanted = 0;
        return;
    }
    uint32_t *list = realloc(s->wanted, p->wanted.count * sizeof *list);
    if (!list)
        return;
    memcpy(list, p->wanted.items, p->wanted.count * sizeof *list);
    s->wanted = list;
    s->n_wanted = p->wanted.count;
}

void core_stage_fetched(struct agent_core *c, const struct agent_progress *p)
{
    struct core_stage *s = core_stage_of_slot(c, p->slot);
    if (!s || s->state != STAGE_FETCHING || s->ticket != p->ticket)
        return;
    progress_take(s, p);
    if (p->status == HP_PENDING) {
        core_stage_report(c, s);
    } else if (p->status < 0) {
        stage_fail(c, s, p->error);
    } else {
        s->loaded_kv_tokens = s->prepare.kv_tokens;
        s->loaded_sequences = s->prepare.max_sequences;
        s->loaded_batch_tokens = s->prepare.max_batch_tokens;
        work_order(c, s, AGENT_DO_LOAD);
        stage_move(c, s, STAGE_LOADING);
    }
}

void core_stage_loaded(struct agent_core *c, const struct agent_progress *p)
{
    struct core_stage *s = core_stage_of_slot(c, p->slot);
    if (!s || (s->state != STAGE_LOADING && s->state != STAGE_WARMING) || s->ticket != p->ticket)
        return;
    progress_take(s, p);
    struct err e = {0};
    if (p->status == HP_PENDING) {
        if (p->warming && s->state == STAGE_LOADING)
            stage_move(c, s, STAGE_WARMING);
        else
            core_stage_report(c, s);
        return;
    }
    if (p->status < 0) {
        stage_fail(c, s, p->error);
        return;
    }
    s->loaded = true;
    s->outputs = p->outputs;
    s->width = p->width;
    s->vocabulary = p->vocabulary;
    if (core_queue_create(c, s, &e) < 0)
        stage_fail(c, s, &e);
    else
        stage_move(c, s, STAGE_READY);
}

/* ---- links
 * --------------------------------------------------------------------------------------------------------
 */

static void address_keep(uint8_t **address, size_t *size, struct pack_span from)
{
    free(*address);
    *address = from.size ? malloc(from.size) : NULL;
    *size = *address ? from.size : 0;
    if (*address)
        memcpy(*address, from.data, from.size);
}

static void links_make(struct agent_core *c, struct core_stage *s)
{
    struct agent_action *a = core_act(c, AGENT_DO_CONNECT);
    s->link_broken = false;
    if (!a)
        return;
    a->u.connect.slot = s->slot;
    a->u.connect.next = (struct pack_span){s->next_address, s->next_size};
    a->u.connect.first = (struct pack_span){s->first_address, s->first_size};
    a->u.connect.next_device = s->next_device ? s->next_device : "";
    a->u.connect.first_device = s->first_device ? s->first_device : "";
}

static void device_keep(char **device, const char *from)
{
    free(*device);
    *device = from[0] ? strdup(from) : NULL;
}

void core_stage_links_mend(struct agent_core *c, struct core_stage *s)
{
    if (s->connected && s->link_broken)
        links_make(c, s);
}

void core_stage_connect(struct agent_core *c, const struct message_stage_connect *m)
{
    struct core_stage *s = core_stage_of(c, m->deployment);
    if (!s || m->generation != s->prepare.generation) {
        c->dropped_stale++;
        return;
    }
    if (s->state != STAGE_READY) {
        core_stage_report(c, s);
        return;
    }
    /* A coordinator that started again has lost the streams of what is open here. */
    if (s->connected)
        core_sequences_close_all(c, s);
    address_keep(&s->next_address, &s->next_size, m->next_address);
    address_keep(&s->first_address, &s->first_size, m->first_address);
    s->next_session = m->next_session ? m->next_session : s->prepare.session;
    s->first_session = m->first_session ? m->first_session : s->prepare.session;
    device_keep(&s->next_device, m->next_device ? m->next_device : "");
    device_keep(&s->first_device, m->first_device ? m->first_device : "");
    s->connected = true;
    links_make(c, s);
    log_info("agent", "stage_connected", "deployment=%llu generation=%llu stage=%llu",
             (unsigned long long)m->deployment, (unsigned long long)m->generation,
             (unsigned long long)m->stage);
}

/* Not each time that it is tried again: an agent that is gone for days does not fill the log. */
static void link_down_tell(struct agent_core *c, struct core_stage *s, enum agent_link link)
{
    uint64_t now = env_now_ns(c->env);
    if (s->link_told_ns && now - s->link_told_ns < LINK_TELL_NS)
        return;
    s->link_told_ns = now;
    log_warn("agent", "link_down", "deployment=%llu stage=%llu link=%s",
             (unsigned long long)s->prepare.deployment, (unsigned long long)s->prepare.stage,
             link == AGENT_LINK_NEXT ? "next" : "first");
}

void core_stage_link_down(struct agent_core *c, uint64_t slot, enum agent_link link)
{
    struct core_stage *s = core_stage_of_slot(c, slot);
    if (!s || !s->connected)
        return;
    link_down_tell(c, s, link);
    s->link_broken = true;
    core_sequences_fail_all(c, s, HP_ELINK,
                            link == AGENT_LINK_NEXT ? "the link to the next stage broke"
                                                    : "the link to the first stage broke");
    if (s->queue)
        queue_flights_clear(s->queue);
}

void core_stage_unload(struct agent_core *c, const struct message_stage_unload *m)
{
    struct core_stage *s = core_stage_of(c, m->deployment);
    if (!s || s->prepare.generation > m->generation) {
        c->dropped_stale += s != NULL;
        return;
    }
    uint64_t stage = s->prepare.stage, generation = s->prepare.generation;
    stage_drop(c, s);
    log_info("agent", "stage_unloaded", "deployment=%llu generation=%llu stage=%llu",
             (unsigned long long)m->deployment, (unsigned long long)generation,
             (unsigned long long)stage);
    report_without(c, m->deployment, generation, stage, "unloaded", NULL);
}
