/* Owns the way from an action of the core to whoever does it. Decides nothing. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "agent/shell_int.h"
#include "common/vector.h"

/* ---- messages and frames ---- */

static void message_lost(const struct message *m, const char *why)
{
    if (m->type != MESSAGE_JOIN && m->type != MESSAGE_HEARTBEAT)
        log_warn_limited("agent", "message_lost", "type=%s text=\"%s\"", message_type_word(m->type),
                         why);
}

/* The loop sends it. */
static void send_message(struct agent *a, const struct message *m)
{
    struct outbox *o = &a->outbox;
    size_t at = o->bytes.size;
    uint32_t head[2] = {m->type, 0};
    if (o->n == OUTBOX_MESSAGES || at > OUTBOX_BYTES) {
        message_lost(m, "too many wait to be sent");
        return;
    }
    buffer_append(&o->bytes, head, sizeof head);
    message_encode(m, &o->bytes);
    if (o->bytes.failed) {
        message_lost(m, "no memory for a message");
        o->bytes.size = at;
        o->bytes.failed = false;
        return;
    }
    head[1] = (uint32_t)(o->bytes.size - at - sizeof head);
    memcpy(o->bytes.data + at, head, sizeof head);
    o->n++;
    a->loop_due = true;
}

/* ---- sequences ---- */

/* What was sampled before counts as output: the next token is the one that would have followed. */
static int sampler_make(const struct message_sequence_open *o, uint32_t vocabulary,
                        struct sampler **out, struct err *e)
{
    struct sampling_params sampling = o->sampling;
    size_t n_prompt = o->prompt.count - o->sampled;
    sampling_fill(&sampling);
    int rc = sampler_create(&sampling, (int)vocabulary, o->prompt.items, n_prompt, out, e);
    if (rc == 0 && (sampling.grammar.size || sampler_needs_texts(*out))) {
        rc = sampler_expect(*out, o->max_tokens, o->end_ids.items, o->end_ids.count, e);
        if (rc < 0)
            sampler_destroy(out);
    }
    for (size_t i = n_prompt; rc == 0 && i < o->prompt.count; i++)
        sampler_accept(*out, o->prompt.items[i]);
    return rc;
}

static void sequence_open(struct agent *a, const struct agent_action *act)
{
    const struct message_sequence_open *o = act->u.sequence_open.open;
    const struct shell_stage *s = shell_stage_of(a, act->u.sequence_open.slot);
    struct sampler *sampler = NULL;
    struct err e = {0};
    int rc = s ? 0 : err_set(&e, HP_ENOENT, "the stage is not here");
    if (rc == 0 && act->u.sequence_open.sampler)
        rc = sampler_make(o, s->vocabulary, &sampler, &e);
    if (rc == 0) {
        executor_sequence_open(s->executor,
                               &(struct executor_opening){.slot = act->u.sequence_open.slot,
                                                          .ticket = act->u.sequence_open.ticket,
                                                          .sequence = o->sequence,
                                                          .kv_tokens = (uint32_t)o->kv_tokens,
                                                          .reserved = (uint32_t)o->reserved,
                                                          .length = (uint32_t)o->length,
                                                          .shared = (uint32_t)o->shared,
                                                          .share = o->share,
                                                          .sampler = sampler});
        return;
    }
    struct queued_event m = {.event = {.kind = AGENT_EVENT_SEQUENCE_OPENED},
                             .error = malloc(sizeof(struct err))};
    m.event.u.sequence_opened.slot = act->u.sequence_open.slot;
    m.event.u.sequence_opened.ticket = act->u.sequence_open.ticket;
    m.event.u.sequence_opened.sequence = o->sequence;
    m.event.u.sequence_opened.status = rc;
    if (m.error)
        *m.error = e;
    shell_event_put(a, &m);
}

static void sequence_grow(struct agent *a, const struct agent_action *act)
{
    const struct shell_stage *s = shell_stage_of(a, act->u.sequence_grow.slot);
    if (s)
        executor_sequence_grow(s->executor, s->slot, act->u.sequence_grow.sequence,
                               act->u.sequence_grow.reserved);
}

static void sequence_close(struct agent *a, const struct agent_action *act)
{
    const struct shell_stage *s = shell_stage_of(a, act->u.sequence_close.slot);
    if (s)
        executor_sequence_close(s->executor, s->slot, act->u.sequence_close.sequence,
                                act->u.sequence_close.keep);
}

static void run_order(struct agent *a, const struct agent_action *act)
{
    const struct shell_stage *s = shell_stage_of(a, act->u.run.slot);
    assert(s); /* it was loaded */
    struct executor_run r = {.slot = act->u.run.slot,
                             .ticket = act->u.run.ticket,
                             .batch = act->u.run.batch,
                             .ready_ns = act->u.run.ready_ns,
                             .outlet = outlet_hold(s->next),
                             .header = act->u.run.header,
                             .reserved = act->u.run.reserved};
    executor_run(s->executor, &r);
}

/* ---- profiles ---- */

void shell_profile_drop(struct agent *a, uint64_t slot)
{
    for (size_t i = 0; i < a->n_profiles; i++)
        if (a->profiles[i].slot == slot) {
            a->profiles[i] = a->profiles[--a->n_profiles];
            store_worker_drop(a->store, slot);
            return;
        }
}

/* Nothing is measured: the device that this agent stands for has a profile. */
static void profile_paced(struct agent *a, uint64_t slot)
{
    struct buffer tables = {0};
    struct err e = {0};
    struct queued_event m = {.event = {.kind = AGENT_EVENT_PROFILED}};
    m.profile_slot = slot;
    m.event.u.profiled.status = paced_tables(a->paced, &tables, &e);
    m.memory = strdup(buffer_cstr(&tables));
    if (!m.memory && m.event.u.profiled.status == 0)
        m.event.u.profiled.status = HP_ENOMEM;
    buffer_free(&tables);
    shell_event_put(a, &m);
}

static void profile_start(struct agent *a, const struct agent_action *act)
{
    const struct message_profile_run *r = &act->u.profile.request;
    struct shell_profile p = {.slot = SHELL_PROFILE_SLOT | ++a->last_profile,
                              .request = act->u.profile.id,
                              .budget_ms = r->budget_ms,
                              .device = (unsigned)r->device,
                              .f32 = strcmp(r->compute, "f32") == 0,
                              .fine = r->fine};
    bool room = vector_reserve(a->profiles, a->room_profiles, a->n_profiles + 1);
    if (r->model.size == DIGEST_BYTES)
        memcpy(p.model, r->model.data, DIGEST_BYTES);
    if (!room || r->device >= a->n_devices) {
        struct queued_event m = {.event = {.kind = AGENT_EVENT_PROFILED}};
        m.event.u.profiled.id = p.request;
        m.event.u.profiled.status = room ? HP_EINVAL : HP_ENOMEM;
        shell_event_put(a, &m);
        return;
    }
    a->profiles[a->n_profiles++] = p;
    if (a->paced)
        profile_paced(a, p.slot);
    else
        store_worker_open(a->store, p.slot, p.slot, r->manifest);
}

/* ---- links ---- */

static void probe_order(struct agent *a, const struct agent_action *act)
{
    const struct message_link_probe *p = &act->u.probe.request;
    struct agent_event ev = {.kind = AGENT_EVENT_PROBED};
    struct err e = {0};
    bool echo = strcmp(p->role, "echo") == 0, measure = strcmp(p->role, "measure") == 0;
    int rc;
    if (strcmp(p->role, "end") == 0) {
        link_probe_io_end(a->probes, p->session);
        return;
    }
    if (echo)
        rc = link_probe_io_echo(a->probes, p->session, p->data_address.data, p->data_address.size,
                                &e);
    else if (measure)
        rc = link_probe_io_measure(a->probes, act->u.probe.id, p->session, p->data_address.data,
                                   p->data_address.size, &e);
    else
        rc = err_set(&e, HP_EPROTO, "\"%.20s\" is no part in a probe", p->role);
    if (rc == 0 && measure)
        return;
    struct queued_event m = {.event = ev, .error = rc < 0 ? malloc(sizeof e) : NULL};
    m.event.u.probed.id = act->u.probe.id;
    m.event.u.probed.status = rc;
    if (m.error)
        *m.error = e;
    shell_event_put(a, &m);
}

/* ---- the rest ---- */

static void log_answer(struct agent *a, const struct agent_action *act)
{
    struct buffer text = {0};
    uint64_t lines = act->u.log_fetch.lines ? act->u.log_fetch.lines : 100;
    log_ring_read(a->log, (size_t)lines, &text);
    struct queued_event m = {.event = {.kind = AGENT_EVENT_LOG}};
    m.event.u.log.id = act->u.log_fetch.id;
    m.event.u.log.text = buffer_cstr(&text);
    m.memory = text.data; /* the event's from now on */
    shell_event_put(a, &m);
}

/* The loop is woken only when its timer would fire too late. */
static void timer_set(struct agent *a, uint64_t at_ns)
{
    a->timer_ns = at_ns;
    a->loop_due |= at_ns < a->armed_ns;
}

static void agent_quit(struct agent *a, const struct err *why)
{
    if (a->quit.code == 0)
        a->quit = *why;
    a->loop_due = true;
}

static void store_remove(struct agent *a, const struct agent_action *act)
{
    struct digest id = {{0}};
    if (act->u.store_remove.model.size == DIGEST_BYTES)
        memcpy(id.bytes, act->u.store_remove.model.data, DIGEST_BYTES);
    store_worker_remove(a->store, act->u.store_remove.id, &id);
}

static void peers_allow(struct agent *a, struct pack_span keys)
{
    struct err e = {0};
    if (data_peers_allow(a->data, (const uint8_t(*)[KEY_BYTES])keys.data, keys.size / KEY_BYTES,
                         &e) < 0)
        log_error("agent", "peers_not_allowed", "text=\"%s\"", e.text);
}

static void session_allow(struct agent *a, uint64_t session, const uint8_t *from)
{
    struct err e = {0};
    if (data_allow(a->data, session, from, &e) < 0)
        log_error("agent", "session_not_allowed", "text=\"%s\"", e.text);
}

static void action_do(struct agent *a, const struct agent_action *act)
{
    switch (act->kind) {
    case AGENT_DO_SEND: send_message(a, &act->u.message); return;
    case AGENT_DO_POST: shell_frame_post(a, act); return;
    case AGENT_DO_RELEASE: data_buffer_release(a->data, act->u.release.buffer); return;
    case AGENT_DO_SESSION_ALLOW:
        session_allow(a, act->u.session.session, act->u.session.from);
        return;
    case AGENT_DO_PEERS: peers_allow(a, act->u.peers.keys); return;
    case AGENT_DO_SESSION_REVOKE: data_revoke(a->data, act->u.session.session); return;
    case AGENT_DO_FETCH: shell_stage_fetch(a, act); return;
    case AGENT_DO_LOAD: shell_stage_load(a, act); return;
    case AGENT_DO_UNLOAD: shell_stage_unload(a, act->u.unload.slot); return;
    case AGENT_DO_SHARE_CONNECT: shell_share_connect(a, act); return;
    case AGENT_DO_CONNECT: shell_stage_connect(a, act); return;
    case AGENT_DO_SEQUENCE_OPEN: sequence_open(a, act); return;
    case AGENT_DO_SEQUENCE_GROW: sequence_grow(a, act); return;
    case AGENT_DO_SEQUENCE_CLOSE: sequence_close(a, act); return;
    case AGENT_DO_RUN: run_order(a, act); return;
    case AGENT_DO_KV_IMPORT: shell_kv_import(a, act); return;
    case AGENT_DO_KV_EXPORT: shell_kv_export(a, act); return;
    case AGENT_DO_KV_DROP: shell_kv_drop(a, act->u.kv_drop.ticket); return;
    case AGENT_DO_SPILL: shell_spill(a, act); return;
    case AGENT_DO_UNSPILL: shell_unspill(a, act); return;
    case AGENT_DO_SPILLS_TELL: shell_spills_tell(a, act); return;
    case AGENT_DO_PROFILE: profile_start(a, act); return;
    case AGENT_DO_PROBE: probe_order(a, act); return;
    case AGENT_DO_STORE_REMOVE: store_remove(a, act); return;
    case AGENT_DO_LOG_FETCH: log_answer(a, act); return;
    case AGENT_DO_TIMER: timer_set(a, act->u.timer.at_ns); return;
    case AGENT_DO_QUIT: agent_quit(a, &act->u.quit.error); return;
    }
}

void shell_actions_do(struct agent *a)
{
    for (size_t i = 0; i < a->actions.count; i++)
        action_do(a, &a->actions.items[i]);
}
