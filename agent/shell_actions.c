/* Owns the way from an action of the core to whoever does it. Decides nothing. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "agent/shell_int.h"

/* ---- messages and frames
 * --------------------------------------------------------------------------------------------- */

static void send_message(struct agent *a, const struct message *m)
{
    struct err e = {0};
    a->encoded.size = 0;
    message_encode(m, &a->encoded);
    int rc = a->encoded.failed ? err_set(&e, HP_ENOMEM, "no memory for a message")
                               : control_send(a->control, 0, a->encoded.data, a->encoded.size, &e);
    if (rc < 0 && m->type != MESSAGE_JOIN && m->type != MESSAGE_HEARTBEAT)
        log_warn("agent", "message_lost", "type=%s text=\"%s\"", message_type_word(m->type),
                 e.text);
    if (a->encoded.failed || a->encoded.capacity > (8 << 20))
        buffer_free(&a->encoded);
}

/* The table of a frame without rows; NULL when memory ran out. */
static struct data_buffer *tokens_buffer(struct agent *a, const struct agent_action *act)
{
    size_t bytes = (size_t)act->u.post.header.n_runs * FRAME_TOKEN_BYTES;
    struct data_buffer *b = data_buffer_get(a->data, bytes);
    if (b) {
        frame_tokens_encode(act->u.post.tokens, act->u.post.header.n_runs, b->bytes);
        b->size = bytes;
    }
    return b;
}

/* A frame that cannot be posted is as good as a link that broke. */
static void outlet_left(void *ctx, uint64_t slot, uint64_t link, int status, bool reserved)
{
    struct agent *a = ctx;
    if (reserved) {
        struct mail m = {.event = {.kind = AGENT_EVENT_OUTPUT_BACK}};
        m.event.u.output_back.slot = slot;
        shell_mail(a, &m);
    }
    if (status >= 0)
        return;
    struct mail m = {.event = {.kind = AGENT_EVENT_LINK_DOWN}, .link = link};
    m.event.u.link_down.slot = slot;
    shell_mail(a, &m);
}

static void post_frame(struct agent *a, const struct agent_action *act)
{
    struct shell_stage *s = shell_stage_of(a, act->u.post.slot);
    struct outlet *o = !s ? NULL : act->u.post.link == AGENT_LINK_NEXT ? s->next : s->first;
    struct data_buffer *b = act->u.post.buffer;
    bool tokens = act->u.post.header.kind == FRAME_TOKEN && act->u.post.header.n_runs > 0;
    if (tokens && o)
        b = tokens_buffer(a, act);
    if (o && (b || !tokens)) {
        outlet_post(o, &act->u.post.header, b, false);
        return;
    }
    if (act->u.post.header.kind == FRAME_ALIVE)
        return; /* its loss is what tells */
    log_warn("agent", "frame_lost", "batch=%u reason=%s", act->u.post.header.batch,
             o ? "no_memory" : "no_link");
    if (b)
        data_buffer_release(a->data, b);
    if (s)
        outlet_left(a, s->slot, o ? outlet_number(o) : 0, HP_ELINK, false);
}

/* ---- stages
 * ----------------------------------------------------------------------------------------------------------
 */

static void outlet_drop(struct outlet **o)
{
    if (*o)
        outlet_forget(*o);
    outlet_release(*o);
    *o = NULL;
}

void shell_stage_drop(struct agent *a, uint64_t slot)
{
    struct shell_stage *s = shell_stage_of(a, slot);
    if (!s)
        return;
    outlet_drop(&s->next);
    outlet_drop(&s->first);
    free(s->path);
    *s = a->stages[--a->n_stages];
}

static struct shell_stage *stage_make(struct agent *a, uint64_t slot)
{
    struct shell_stage *s = shell_stage_of(a, slot);
    if (s)
        return s;
    if (a->n_stages == a->stage_capacity) {
        size_t capacity = a->stage_capacity ? 2 * a->stage_capacity : 8;
        struct shell_stage *p = realloc(a->stages, capacity * sizeof *p);
        if (!p)
            return NULL;
        a->stages = p;
        a->stage_capacity = capacity;
    }
    s = &a->stages[a->n_stages++];
    *s = (struct shell_stage){.slot = slot};
    return s;
}

/* What could not even begin fails as if it had been tried. */
static void work_failed(struct agent *a, enum agent_event_kind kind, const struct agent_action *act,
                        int code, const char *text)
{
    struct mail m = {.event = {.kind = kind}, .error = calloc(1, sizeof(struct err))};
    m.event.u.progress.slot = act->u.work.slot;
    m.event.u.progress.ticket = act->u.work.ticket;
    m.event.u.progress.status = code;
    err_set(m.error, code, "%s", text);
    shell_mail(a, &m);
}

static void fetch(struct agent *a, const struct agent_action *act)
{
    if (stage_make(a, act->u.work.slot))
        store_worker_fetch(a->store, act->u.work.slot, act->u.work.ticket, act->u.work.prepare);
    else
        work_failed(a, AGENT_EVENT_FETCHED, act, HP_ENOMEM, "no memory for a stage");
}

static void load(struct agent *a, const struct agent_action *act)
{
    const struct message_stage_prepare *p = act->u.work.prepare;
    struct shell_stage *s = shell_stage_of(a, act->u.work.slot);
    if (!s || !s->path) {
        work_failed(a, AGENT_EVENT_LOADED, act, HP_ENOMEM,
                    "the store did not say where the model lies");
        return;
    }
    struct executor_load l = {.slot = act->u.work.slot,
                              .ticket = act->u.work.ticket,
                              .path = s->path,
                              .first_layer = (int)p->first_layer,
                              .end_layer = (int)p->end_layer,
                              .f32 = strcmp(p->compute, "f32") == 0,
                              .kv_tokens = p->kv_tokens,
                              .max_sequences = (uint32_t)p->max_sequences,
                              .max_batch_tokens = (uint32_t)p->max_batch_tokens,
                              .n_stages = (uint32_t)p->n_stages,
                              .stands_for = p->stands_for};
    s->end_layer = (int)p->end_layer;
    s->stands_for = p->stands_for;
    s->is_first = p->stage == 0;
    s->n_stages = p->n_stages;
    s->max_batch_tokens = p->max_batch_tokens;
    executor_load(a->executor, &l);
}

static void unload(struct agent *a, uint64_t slot)
{
    executor_unload(a->executor, slot);
    store_worker_drop(a->store, slot);
    shell_stage_drop(a, slot);
}

static void outlet_make(struct agent *a, const struct shell_stage *s, struct pack_span address,
                        const char *device, bool tokens, struct outlet **out)
{
    struct err e = {0};
    struct outlet_config c = {.data = a->data,
                              .slot = s->slot,
                              .wire = a->wire,
                              .paced = a->paced,
                              .device = device,
                              .tokens = tokens,
                              .end_layer = s->end_layer,
                              .stands_for = s->stands_for,
                              .left = outlet_left,
                              .ctx = a};
    outlet_drop(out);
    if (address.size && outlet_open(&c, address.data, address.size, out, &e) < 0) {
        log_warn("agent", "link_failed", "text=\"%s\"", e.text);
        *out = NULL;
    }
}

static void connect_links(struct agent *a, const struct agent_action *act)
{
    struct shell_stage *s = shell_stage_of(a, act->u.connect.slot);
    if (!s)
        return;
    outlet_make(a, s, act->u.connect.next, act->u.connect.next_device, false, &s->next);
    outlet_make(a, s, act->u.connect.first, act->u.connect.first_device, true, &s->first);
}

/* ---- sequences
 * -------------------------------------------------------------------------------------------------------
 */

static void sampler_params_of(const struct message_sequence_open *o, struct sampler_params *p)
{
    const struct message_bias *bias = o->bias.items;
    *p = (struct sampler_params){.temperature = o->temperature,
                                 .top_k = o->top_k > UINT32_MAX ? UINT32_MAX : (uint32_t)o->top_k,
                                 .top_p = o->top_p,
                                 .min_p = o->min_p,
                                 .repetition_penalty = o->repetition_penalty,
                                 .presence_penalty = o->presence_penalty,
                                 .frequency_penalty = o->frequency_penalty,
                                 .seed = o->seed};
    /* A missing number reads as 0, which for these two would mean nothing. */
    p->top_p = p->top_p > 0 ? p->top_p : 1;
    p->repetition_penalty = p->repetition_penalty > 0 ? p->repetition_penalty : 1;
    p->n_bias = o->bias.count < SAMPLER_MAX_BIAS ? (uint32_t)o->bias.count : SAMPLER_MAX_BIAS;
    for (uint32_t i = 0; i < p->n_bias; i++) {
        p->bias[i].token = bias[i].token > UINT32_MAX ? UINT32_MAX : (uint32_t)bias[i].token;
        p->bias[i].bias = (float)bias[i].bias;
    }
}

static void sequence_open(struct agent *a, const struct agent_action *act)
{
    const struct message_sequence_open *o = act->u.sequence_open.open;
    const struct shell_stage *s = shell_stage_of(a, act->u.sequence_open.slot);
    struct sampler *sampler = NULL;
    struct sampler_params params;
    struct err e = {0};
    int rc = s ? 0 : err_set(&e, HP_ENOENT, "the stage is not here");
    if (rc == 0 && act->u.sequence_open.sampler) {
        sampler_params_of(o, &params);
        rc = sampler_create(&params, (int)s->vocabulary, o->prompt.items, o->prompt.count, &sampler,
                            &e);
    }
    if (rc == 0) {
        executor_sequence_open(a->executor, act->u.sequence_open.slot, act->u.sequence_open.ticket,
                               o->sequence, (uint32_t)o->kv_tokens, sampler);
        return;
    }
    struct mail m = {.event = {.kind = AGENT_EVENT_SEQUENCE_OPENED},
                     .error = malloc(sizeof(struct err))};
    m.event.u.sequence_opened.slot = act->u.sequence_open.slot;
    m.event.u.sequence_opened.ticket = act->u.sequence_open.ticket;
    m.event.u.sequence_opened.sequence = o->sequence;
    m.event.u.sequence_opened.status = rc;
    if (m.error)
        *m.error = e;
    shell_mail(a, &m);
}

static void run(struct agent *a, const struct agent_action *act)
{
    const struct shell_stage *s = shell_stage_of(a, act->u.run.slot);
    struct executor_run r = {.slot = act->u.run.slot,
                             .ticket = act->u.run.ticket,
                             .runs = act->u.run.runs,
                             .n_runs = act->u.run.n_runs,
                             .n_tokens = act->u.run.n_tokens,
                             .n_logits = act->u.run.n_logits,
                             .ids = act->u.run.ids,
                             .input = act->u.run.input,
                             .input_runs = act->u.run.input_runs,
                             .input_tokens = act->u.run.input_tokens,
                             .ready_ns = act->u.run.ready_ns,
                             .outlet = s ? outlet_hold(s->next) : NULL,
                             .header = act->u.run.header,
                             .reserved = act->u.run.reserved};
    executor_run(a->executor, &r);
}

/* ---- profiles
 * --------------------------------------------------------------------------------------------------------
 */

static void profile_failed(struct agent *a, const struct shell_profile *p, const struct err *e)
{
    struct agent_event ev = {.kind = AGENT_EVENT_PROFILED};
    ev.u.profiled.id = p->id;
    ev.u.profiled.model = (struct pack_span){p->model, sizeof p->model};
    ev.u.profiled.kind = a->kind;
    ev.u.profiled.tables = "";
    ev.u.profiled.status = e->code;
    ev.u.profiled.error = e;
    shell_event(a, &ev);
}

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
    struct mail m = {.event = {.kind = AGENT_EVENT_PROFILED}};
    m.event.u.profiled.id = slot;
    m.event.u.profiled.status = paced_tables(a->paced, &tables, &e);
    m.memory = strdup(buffer_cstr(&tables));
    if (!m.memory && m.event.u.profiled.status == 0)
        m.event.u.profiled.status = HP_ENOMEM;
    buffer_free(&tables);
    shell_mail(a, &m);
}

static void profile_start(struct agent *a, const struct agent_action *act)
{
    const struct message_profile_run *r = &act->u.profile.request;
    struct shell_profile p = {.slot = SHELL_PROFILE_SLOT | ++a->last_profile,
                              .id = act->u.profile.id,
                              .budget_ms = r->budget_ms,
                              .f32 = strcmp(r->compute, "f32") == 0,
                              .fine = r->fine};
    struct shell_profile *grown = realloc(a->profiles, (a->n_profiles + 1) * sizeof *grown);
    if (r->model.size == DIGEST_BYTES)
        memcpy(p.model, r->model.data, DIGEST_BYTES);
    if (!grown) {
        struct mail m = {.event = {.kind = AGENT_EVENT_PROFILED}, .known = true};
        m.event.u.profiled.id = p.id;
        m.event.u.profiled.status = HP_ENOMEM;
        shell_mail(a, &m);
        return;
    }
    a->profiles = grown;
    a->profiles[a->n_profiles++] = p;
    if (a->paced)
        profile_paced(a, p.slot);
    else
        store_worker_open(a->store, p.slot, p.slot, r->manifest);
}

void shell_profile_opened(struct agent *a, const struct mail *m)
{
    for (size_t i = 0; i < a->n_profiles; i++) {
        struct shell_profile p = a->profiles[i];
        if (p.slot != m->event.u.progress.slot)
            continue;
        if (m->event.u.progress.status == 0 && m->path) {
            executor_profile(a->executor, &(struct executor_profile){.ticket = p.slot,
                                                                     .budget_ms = p.budget_ms,
                                                                     .path = m->path,
                                                                     .cache = a->profile_folder,
                                                                     .f32 = p.f32,
                                                                     .fine = p.fine});
            return;
        }
        struct err e = {0};
        err_set(&e, m->event.u.progress.status < 0 ? m->event.u.progress.status : HP_ENOMEM, "%s",
                m->error ? m->error->text : "the model could not be opened");
        shell_profile_drop(a, p.slot);
        profile_failed(a, &p, &e);
        return;
    }
}

/* ---- links
 * -----------------------------------------------------------------------------------------------------------
 */

static void probe(struct agent *a, const struct agent_action *act)
{
    const struct message_link_probe *p = &act->u.probe.request;
    struct agent_event ev = {.kind = AGENT_EVENT_PROBED};
    struct err e = {0};
    bool echo = strcmp(p->role, "echo") == 0, measure = strcmp(p->role, "measure") == 0;
    int rc;
    if (strcmp(p->role, "end") == 0) {
        link_prober_end(a->prober, p->session);
        return;
    }
    if (echo)
        rc =
            link_prober_echo(a->prober, p->session, p->data_address.data, p->data_address.size, &e);
    else if (measure)
        rc = link_prober_measure(a->prober, act->u.probe.id, p->session, p->data_address.data,
                                 p->data_address.size, &e);
    else
        rc = err_set(&e, HP_EPROTO, "\"%.20s\" is no part in a probe", p->role);
    if (rc == 0 && measure)
        return;
    struct mail m = {.event = ev, .error = rc < 0 ? malloc(sizeof e) : NULL};
    m.event.u.probed.id = act->u.probe.id;
    m.event.u.probed.status = rc;
    if (m.error)
        *m.error = e;
    shell_mail(a, &m);
}

/* ---- the rest
 * --------------------------------------------------------------------------------------------------------
 */

static void log_answer(struct agent *a, const struct agent_action *act)
{
    struct buffer text = {0};
    uint64_t lines = act->u.log_fetch.lines ? act->u.log_fetch.lines : 100;
    pthread_mutex_lock(&a->log_lock);
    size_t n = a->log_count < lines ? a->log_count : (size_t)lines;
    for (size_t i = 0; a->log_lines && i < n; i++)
        buffer_printf(&text, "%s\n", a->log_lines[(a->log_at + LOG_LINES - n + i) % LOG_LINES]);
    pthread_mutex_unlock(&a->log_lock);
    struct mail m = {.event = {.kind = AGENT_EVENT_LOG}};
    m.event.u.log.id = act->u.log_fetch.id;
    m.event.u.log.text = buffer_cstr(&text);
    m.memory = text.data; /* the mail's from now on */
    shell_mail(a, &m);
}

static void timer_fired(uv_timer_t *t)
{
    shell_event(t->data, &(struct agent_event){.kind = AGENT_EVENT_TIMER});
}

static void timer_set(struct agent *a, uint64_t at_ns)
{
    uint64_t now = env_now_ns(&env_real);
    uv_timer_start(&a->timer, timer_fired, at_ns > now ? (at_ns - now + 999999) / 1000000 : 0, 0);
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
    case AGENT_DO_POST: post_frame(a, act); return;
    case AGENT_DO_RELEASE: data_buffer_release(a->data, act->u.release.buffer); return;
    case AGENT_DO_SESSION_ALLOW:
        session_allow(a, act->u.session.session, act->u.session.from);
        return;
    case AGENT_DO_PEERS: peers_allow(a, act->u.peers.keys); return;
    case AGENT_DO_SESSION_REVOKE: data_revoke(a->data, act->u.session.session); return;
    case AGENT_DO_FETCH: fetch(a, act); return;
    case AGENT_DO_LOAD: load(a, act); return;
    case AGENT_DO_UNLOAD: unload(a, act->u.unload.slot); return;
    case AGENT_DO_CONNECT: connect_links(a, act); return;
    case AGENT_DO_SEQUENCE_OPEN: sequence_open(a, act); return;
    case AGENT_DO_SEQUENCE_CLOSE:
        executor_sequence_close(a->executor, act->u.sequence_close.slot,
                                act->u.sequence_close.sequence);
        return;
    case AGENT_DO_RUN: run(a, act); return;
    case AGENT_DO_PROFILE: profile_start(a, act); return;
    case AGENT_DO_PROBE: probe(a, act); return;
    case AGENT_DO_STORE_REMOVE: store_remove(a, act); return;
    case AGENT_DO_LOG_FETCH: log_answer(a, act); return;
    case AGENT_DO_TIMER: timer_set(a, act->u.timer.at_ns); return;
    case AGENT_DO_QUIT:
        if (!a->quit_said && a->config.quit)
            a->config.quit(a->config.ctx, &act->u.quit.error);
        a->quit_said = true;
        return;
    }
}

void shell_actions_do(struct agent *a)
{
    for (size_t i = 0; i < a->actions.count; i++)
        action_do(a, &a->actions.items[i]);
}
