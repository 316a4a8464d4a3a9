/* Owns the agent's life: its threads, its handles, and the mail that other threads put for the
 * loop. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/discover_limits.h"
#include "agent/profiler.h"
#include "agent/shell_int.h"
#include "common/host.h"

/* ---- mail
 * ------------------------------------------------------------------------------------------------------------
 */

static void mail_free(struct agent *a, struct mail *m)
{
    if (m->buffer)
        data_buffer_release(a->data, m->buffer);
    free(m->error);
    free(m->memory);
    free(m->path);
}

/* Frames are bounded by their senders' flights, outputs by the stages' reserves, runs and opened
 * sequences by the orders that they answer. */
static const uint32_t mail_places[MAIL_CLASSES] = {
    [MAIL_FRAME] = 8192,   [MAIL_LINK] = 256,    [MAIL_OUTPUT] = 4096, [MAIL_RAN] = 16,
    [MAIL_OPENED] = 16384, [MAIL_LOADED] = 1024, [MAIL_OTHER] = 1024};

static enum mail_class mail_class_of(enum agent_event_kind kind)
{
    switch (kind) {
    case AGENT_EVENT_FRAME: return MAIL_FRAME;
    case AGENT_EVENT_LINK_DOWN: return MAIL_LINK;
    case AGENT_EVENT_OUTPUT_BACK: return MAIL_OUTPUT;
    case AGENT_EVENT_BATCH_DONE: return MAIL_RAN;
    case AGENT_EVENT_SEQUENCE_OPENED: return MAIL_OPENED;
    case AGENT_EVENT_LOADED:
    case AGENT_EVENT_FETCHED: return MAIL_LOADED;
    default: return MAIL_OTHER;
    }
}

void shell_mail(struct agent *a, const struct mail *m)
{
    struct mail copy = *m;
    enum mail_class of_class = mail_class_of(m->event.kind);
    bool put = post_box_put_as(&a->mail, of_class, m);
    if (!put) {
        log_warn_limited("agent", "mail_lost", "reason=full kind=%d", (int)m->event.kind);
        mail_free(a, &copy);
        if (of_class != MAIL_OTHER && of_class != MAIL_LOADED)
            atomic_store(&a->lost, true);
    }
    uv_async_send(&a->wake);
}

static struct err *error_copy(const struct err *e)
{
    struct err *copy = e ? malloc(sizeof *copy) : NULL;
    if (copy)
        *copy = *e;
    return copy;
}

/* ---- from the data channel
 * -------------------------------------------------------------------------------------------- */

/* Behind the gate nothing of the agent is taken down; once it stops, nothing gets in. */
static bool gate_enter(struct agent *a)
{
    pthread_mutex_lock(&a->gate);
    if (!a->stopping)
        return true;
    pthread_mutex_unlock(&a->gate);
    return false;
}

static void on_frame(void *ctx, const struct frame_header *h, struct data_buffer *payload)
{
    struct agent *a = ctx;
    if (!gate_enter(a)) {
        if (payload)
            data_buffer_release(a->data, payload);
        return;
    }
    if (h->kind == FRAME_ACTIVATION || h->kind == FRAME_TOKEN || h->kind == FRAME_ALIVE) {
        shell_mail(a, &(struct mail){
                          .event = {.kind = AGENT_EVENT_FRAME}, .header = *h, .buffer = payload});
    } else if (h->kind == FRAME_CHUNK || h->kind == FRAME_CHUNK_WANT) {
        store_worker_frame(a->store, h, payload);
    } else if (h->kind == FRAME_PROBE || h->kind == FRAME_PROBE_ECHO) {
        link_prober_frame(a->prober, h, payload);
    } else if (payload) {
        data_buffer_release(a->data, payload);
    }
    pthread_mutex_unlock(&a->gate);
}

static void on_link_down(void *ctx, struct data_link *link, const struct err *why)
{
    struct agent *a = ctx;
    if (!gate_enter(a))
        return;
    log_warn_limited("agent", "data_link_down", "text=\"%s\"", why->text);
    store_worker_link_down(a->store, data_link_number(link));
    link_prober_link_down(a->prober, link);
    shell_mail(a, &(struct mail){.event = {.kind = AGENT_EVENT_LINK_DOWN},
                                 .link = data_link_number(link)});
    pthread_mutex_unlock(&a->gate);
}

/* From the prober, on whichever thread that is. */
static void on_probed(void *ctx, uint64_t id, int status, const struct err *why, double latency_s,
                      double bandwidth_bytes_per_s)
{
    struct mail m = {.event = {.kind = AGENT_EVENT_PROBED}, .error = error_copy(why)};
    m.event.u.probed.id = id;
    m.event.u.probed.status = status;
    m.event.u.probed.latency_s = latency_s;
    m.event.u.probed.bandwidth_bytes_per_s = bandwidth_bytes_per_s;
    shell_mail(ctx, &m);
}

/* ---- from the executor
 * -------------------------------------------------------------------------------------------------
 */

static void on_executor(void *ctx, const struct executor_report *r)
{
    struct agent *a = ctx;
    struct mail m = {.error = r->status < 0 ? error_copy(r->error) : NULL};
    struct agent_event *ev = &m.event;
    switch (r->kind) {
    case EXECUTOR_LOADED:
        ev->kind = AGENT_EVENT_LOADED;
        ev->u.progress = (struct agent_progress){.slot = r->slot,
                                                 .ticket = r->ticket,
                                                 .status = r->status,
                                                 .done_bytes = r->done_bytes,
                                                 .total_bytes = r->total_bytes,
                                                 .warming = r->warming,
                                                 .width = r->width,
                                                 .vocabulary = r->vocabulary,
                                                 .outputs = r->outputs};
        break;
    case EXECUTOR_OPENED:
        ev->kind = AGENT_EVENT_SEQUENCE_OPENED;
        ev->u.sequence_opened.slot = r->slot;
        ev->u.sequence_opened.ticket = r->ticket;
        ev->u.sequence_opened.sequence = r->sequence;
        ev->u.sequence_opened.status = r->status;
        break;
    case EXECUTOR_RAN:
        ev->kind = AGENT_EVENT_BATCH_DONE;
        ev->u.batch_done.slot = r->slot;
        ev->u.batch_done.ticket = r->ticket;
        ev->u.batch_done.status = r->status;
        ev->u.batch_done.seconds = r->seconds;
        ev->u.batch_done.start_ns = r->start_ns;
        ev->u.batch_done.end_ns = r->end_ns;
        ev->u.batch_done.due_ns = r->due_ns;
        ev->u.batch_done.picked = r->picked;
        ev->u.batch_done.logits = r->logits;
        ev->u.batch_done.posted = r->posted;
        break;
    case EXECUTOR_PROFILING:
        ev->kind = AGENT_EVENT_PROFILING;
        ev->u.profiling.id = r->ticket; /* as below */
        ev->u.profiling.progress =
            (struct message_profile_progress){.points = (uint64_t)r->profiling->points,
                                              .elapsed_s = r->profiling->elapsed_s,
                                              .budget_s = r->profiling->budget_s,
                                              .error = r->profiling->error};
        m.memory = strdup(r->profiling->what);
        break;
    case EXECUTOR_PROFILED:
        ev->kind = AGENT_EVENT_PROFILED;
        ev->u.profiled.id = r->ticket; /* the profile's slot, until the loop looks it up */
        ev->u.profiled.status = r->status;
        m.memory = strdup(r->tables);
        if (!m.memory && r->status == 0)
            ev->u.profiled.status = HP_ENOMEM;
        break;
    }
    shell_mail(a, &m);
}

/* ---- from the store
 * -----------------------------------------------------------------------------------------------------
 */

/* The models of a report, with what they point at, in one allocation. */
static bool models_copy(struct mail *m, const struct pack_list *from)
{
    const struct message_model *models = from->items;
    size_t bytes = from->count * (sizeof *models + DIGEST_BYTES);
    for (size_t i = 0; i < from->count; i++)
        bytes += strlen(models[i].name) + 1;
    struct message_model *copy = m->memory = malloc(bytes + 1);
    if (!copy)
        return false;
    uint8_t *at = (uint8_t *)(copy + from->count);
    for (size_t i = 0; i < from->count; i++) {
        memcpy(at, models[i].model.data, DIGEST_BYTES);
        copy[i] = (struct message_model){
            {at, DIGEST_BYTES}, models[i].bytes, (const char *)at + DIGEST_BYTES};
        strcpy((char *)at + DIGEST_BYTES, models[i].name);
        at += DIGEST_BYTES + strlen(models[i].name) + 1;
    }
    m->event.u.store.models = (struct pack_list){copy, from->count};
    return true;
}

static void on_store(void *ctx, const struct store_report *r)
{
    struct agent *a = ctx;
    struct mail m = {.error = r->status < 0 ? error_copy(r->error) : NULL,
                     .path = r->path ? strdup(r->path) : NULL};
    if (r->kind == STORE_CHANGED) {
        m.event.kind = AGENT_EVENT_STORE;
        m.event.u.store.id = r->ticket;
        m.event.u.store.status = r->status;
        m.event.u.store.models_unknown = r->models_unknown || !models_copy(&m, &r->models);
    } else {
        m.event.kind = AGENT_EVENT_FETCHED;
        m.opened = r->kind == STORE_OPENED;
        m.event.u.progress = (struct agent_progress){.slot = r->slot,
                                                     .ticket = r->ticket,
                                                     .status = r->status,
                                                     .done_bytes = r->done_bytes,
                                                     .total_bytes = r->total_bytes,
                                                     .moved_bytes = r->moved_bytes};
        size_t bytes = r->wanted.count * sizeof(uint32_t);
        m.memory = bytes ? malloc(bytes) : NULL;
        if (m.memory) {
            memcpy(m.memory, r->wanted.items, bytes);
            m.event.u.progress.wanted = (struct pack_u32s){m.memory, r->wanted.count};
        }
    }
    shell_mail(a, &m);
}

/* ---- on the loop
 * --------------------------------------------------------------------------------------------------------
 */

struct shell_stage *shell_stage_of(struct agent *a, uint64_t slot)
{
    for (size_t i = 0; i < a->n_stages; i++)
        if (a->stages[i].slot == slot)
            return &a->stages[i];
    return NULL;
}

void shell_event(struct agent *a, const struct agent_event *ev)
{
    agent_core_event(a->core, ev, &a->actions);
    shell_actions_do(a);
}

static void frame_in(struct agent *a, struct mail *m)
{
    struct err e = {0};
    struct agent_event *ev = &m->event;
    const uint8_t *bytes = m->buffer ? m->buffer->bytes : NULL;
    bool empty = m->header.kind == FRAME_ALIVE;
    int rc = m->header.n_runs > (empty ? 0 : FRAME_MAX_RUNS) || (m->header.n_runs && !bytes)
                 ? err_set(&e, HP_EPROTO, "a frame of %u runs", m->header.n_runs)
                 : 0;
    if (rc == 0 && m->header.n_runs)
        rc = m->header.kind == FRAME_ACTIVATION
                 ? frame_runs_decode(&m->header, bytes, a->runs, &e)
                 : frame_tokens_decode(&m->header, bytes, a->tokens, &e);
    if (rc < 0) {
        log_warn_limited("agent", "frame_malformed", "text=\"%s\"", e.text);
        return;
    }
    ev->u.frame.header = &m->header;
    ev->u.frame.arrived_ns = a->paced ? paced_stamp(m->header.sent_ns, env_now_ns(&env_real)) : 0;
    ev->u.frame.runs = a->runs;
    ev->u.frame.tokens = a->tokens;
    if (m->header.kind == FRAME_ACTIVATION) {
        ev->u.frame.buffer = m->buffer;
        m->buffer = NULL; /* the core's */
    }
    shell_event(a, ev);
}

static void link_down_of(struct agent *a, struct mail *m, const struct shell_stage *s, bool next)
{
    m->event.u.link_down.slot = s->slot;
    m->event.u.link_down.link = next ? AGENT_LINK_NEXT : AGENT_LINK_FIRST;
    shell_event(a, &m->event);
}

/* Whatever is said of an outlet that has been made anew since is not of interest. */
static bool outlet_means(const struct outlet *o, const struct mail *m)
{
    return o ? outlet_number(o) == m->link : !m->link;
}

static void link_down_in(struct agent *a, struct mail *m)
{
    for (size_t i = 0; i < a->n_stages; i++) {
        const struct shell_stage *s = &a->stages[i];
        if (m->event.u.link_down.slot && s->slot != m->event.u.link_down.slot)
            continue;
        bool next = outlet_means(s->next, m);
        if (!next && !outlet_means(s->first, m))
            continue;
        link_down_of(a, m, s, next);
        return;
    }
}

static void fetched_in(struct agent *a, struct mail *m)
{
    if (m->opened) {
        shell_profile_opened(a, m);
        return;
    }
    struct shell_stage *s = shell_stage_of(a, m->event.u.progress.slot);
    if (s && m->path) {
        free(s->path);
        s->path = m->path;
        m->path = NULL;
    }
    m->event.u.progress.error = m->error;
    shell_event(a, &m->event);
}

static void profiled_in(struct agent *a, struct mail *m)
{
    uint64_t slot = m->event.u.profiled.id;
    if (m->known) {
        m->event.u.profiled.kind = a->kind;
        m->event.u.profiled.tables = "";
        shell_event(a, &m->event);
        return;
    }
    for (size_t i = 0; i < a->n_profiles; i++) {
        struct shell_profile p = a->profiles[i];
        if (p.slot != slot)
            continue;
        shell_profile_drop(a, slot);
        m->event.u.profiled.id = p.id;
        m->event.u.profiled.model = (struct pack_span){p.model, sizeof p.model};
        m->event.u.profiled.kind = a->kind;
        m->event.u.profiled.tables = m->memory ? m->memory : "";
        m->event.u.profiled.error = m->error;
        shell_event(a, &m->event);
        return;
    }
}

static void profiling_in(struct agent *a, struct mail *m)
{
    for (size_t i = 0; i < a->n_profiles; i++)
        if (a->profiles[i].slot == m->event.u.profiling.id) {
            m->event.u.profiling.id = a->profiles[i].id;
            m->event.u.profiling.progress.what = m->memory ? m->memory : "";
            shell_event(a, &m->event);
            return;
        }
}

static uint64_t pool_least_bytes(const struct agent *a)
{
    return a->config.pool_limit_bytes ? a->config.pool_limit_bytes
                                      : discover_pool_bytes(&a->config.share);
}

/* The pool of received frames has room for all that can be on its way to the stages at once. */
static void pool_size(struct agent *a)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < a->n_stages; i++)
        bytes += a->stages[i].inputs_bytes;
    if (!a->config.pool_limit_bytes)
        data_pool_limit(a->data, bytes > pool_least_bytes(a) ? bytes : pool_least_bytes(a));
}

static void stage_loaded(struct agent *a, struct shell_stage *s, const struct agent_event *ev)
{
    s->vocabulary = ev->u.progress.vocabulary;
    uint64_t row = ev->u.progress.width * sizeof(float) + FRAME_RUN_BYTES;
    s->inputs_bytes = s->is_first ? 0 : 2 * s->n_stages * s->max_batch_tokens * row;
    pool_size(a);
}

static void mail_in(struct agent *a, struct mail *m)
{
    struct agent_event *ev = &m->event;
    switch (ev->kind) {
    case AGENT_EVENT_FRAME: frame_in(a, m); return;
    case AGENT_EVENT_LINK_DOWN: link_down_in(a, m); return;
    case AGENT_EVENT_FETCHED: fetched_in(a, m); return;
    case AGENT_EVENT_LOADED: {
        struct shell_stage *s = shell_stage_of(a, ev->u.progress.slot);
        if (s && ev->u.progress.status == 0)
            stage_loaded(a, s, ev);
        ev->u.progress.error = m->error;
        shell_event(a, ev);
        return;
    }
    case AGENT_EVENT_SEQUENCE_OPENED: ev->u.sequence_opened.error = m->error; break;
    case AGENT_EVENT_BATCH_DONE: ev->u.batch_done.error = m->error; break;
    case AGENT_EVENT_PROFILED: profiled_in(a, m); return;
    case AGENT_EVENT_PROFILING: profiling_in(a, m); return;
    case AGENT_EVENT_PROBED: ev->u.probed.error = m->error; break;
    case AGENT_EVENT_STORE: ev->u.store.error = m->error; break;
    default: break;
    }
    shell_event(a, ev);
}

/* So much mail and no more, then the loop looks at everything else: a peer that sends without end
 * must not keep heartbeats and orders waiting. */
static void on_wake(uv_async_t *wake)
{
    struct agent *a = wake->data;
    struct mail m;
    int n = 0;
    for (; n < MAIL_A_TURN && !a->stopping && post_box_take(&a->mail, &m); n++) {
        mail_in(a, &m);
        mail_free(a, &m);
    }
    if (n == MAIL_A_TURN)
        uv_async_send(&a->wake);
    if (!a->stopping && atomic_exchange(&a->lost, false))
        shell_event(a, &(struct agent_event){.kind = AGENT_EVENT_LOST});
}

static void welcome_in(struct agent *a, const struct message_welcome *m);

static void on_message(void *ctx, uint64_t peer, const char *key, const uint8_t *bytes, size_t size)
{
    struct agent *a = ctx;
    struct arena arena = {0};
    struct message m = {0};
    struct err e = {0};
    (void)peer;
    (void)key; /* the handshake has proven that it is the coordinator's */
    int rc = message_decode(bytes, size, &arena, &m, &e);
    if (rc == 0 && m.type == MESSAGE_WELCOME)
        welcome_in(a, &m.u.welcome);
    if (rc == 0)
        shell_event(a, &(struct agent_event){.kind = AGENT_EVENT_MESSAGE, .u.message = &m});
    else
        log_warn("agent", "message_refused", "code=%s text=\"%s\"", status_word(rc), e.text);
    arena_free(&arena);
}

/* An agent that nobody answers says so after five seconds, and again every half minute. */
static void absence_tell(struct agent *a)
{
    uint64_t now = env_now_ns(&env_real);
    if (agent_core_view(a->core).joined) {
        a->absent_ns = 0;
        return;
    }
    if (!a->absent_ns)
        a->absent_ns = a->absence_told_ns = now + ABSENCE_FIRST_NS - ABSENCE_AGAIN_NS;
    if (now < a->absence_told_ns + ABSENCE_AGAIN_NS)
        return;
    a->absence_told_ns = now;
    log_warn("agent", "coordinator_silent",
             "address=%s text=\"no answer: does hp-coordinator run there, does it listen beyond "
             "loopback, and may this box open that port?\"",
             a->config.coordinator);
}

static void on_meter(uv_timer_t *t)
{
    struct agent *a = t->data;
    absence_tell(a);
    struct data_stats stats;
    data_stats(a->data, &stats);
    /* A paced device's memory is not the box's: what runs here is a small model that stands in for
     * a large one. */
    uint64_t device = executor_memory_free(a->executor), box = UINT64_MAX;
    if (!a->paced && discover_memory_free("", &box))
        a->box_free_bytes = box;
    else if (!a->paced)
        box = a->box_free_bytes; /* no descriptor left, or no /proc: as it was */
    struct agent_event ev = {.kind = AGENT_EVENT_METER};
    ev.u.meter.memory_free_bytes = device < box ? device : box;
    ev.u.meter.dropped_foreign = stats.dropped_foreign + stats.dropped_malformed;
    shell_event(a, &ev);
    link_prober_tick(a->prober);
}

static void on_log_line(void *ctx, const char *line)
{
    struct agent *a = ctx;
    pthread_mutex_lock(&a->log_lock);
    if (a->log_lines) {
        snprintf(a->log_lines[a->log_at], LOG_LINE_BYTES, "%s", line);
        a->log_at = (a->log_at + 1) % LOG_LINES;
        a->log_count += a->log_count < LOG_LINES;
    }
    pthread_mutex_unlock(&a->log_lock);
}

/* ---- its life
 * -----------------------------------------------------------------------------------------------------------
 */

static void free_agent(struct agent *a)
{
    pthread_mutex_destroy(&a->log_lock);
    pthread_mutex_destroy(&a->gate);
    post_box_fini(&a->mail);
    buffer_free(&a->node_json);
    buffer_free(&a->encoded);
    agent_actions_free(&a->actions);
    free(a->stages);
    free(a->profiles);
    free(a->runs);
    free(a->tokens);
    free(a->log_lines);
    free(a);
}

static void on_closed(uv_handle_t *h)
{
    struct agent *a = h->data;
    if (--a->open_handles == 0)
        free_agent(a);
}

static void release_buffer(void *ctx, void *buffer)
{
    struct agent *a = ctx;
    data_buffer_release(a->data, buffer);
}

/* Threads end before what they use: the executor and the store post frames; the data channel calls
 * back until it is closed, but for nothing (gate). */
static void parts_stop(struct agent *a)
{
    struct mail m;
    if (a->control)
        control_close(&a->control);
    executor_destroy(&a->executor);
    while (a->n_stages)
        shell_stage_drop(a, a->stages[0].slot);
    wire_destroy(&a->wire);
    if (a->core)
        agent_core_destroy(&a->core, release_buffer, a);
    store_worker_destroy(&a->store);
    link_prober_destroy(&a->prober);
    while (post_box_take(&a->mail, &m))
        mail_free(a, &m);
    if (a->data)
        data_close(&a->data);
    paced_close(&a->paced);
}

void agent_stop(struct agent **pa)
{
    struct agent *a = *pa;
    if (!a)
        return;
    *pa = NULL;
    pthread_mutex_lock(&a->gate);
    a->stopping = true;
    pthread_mutex_unlock(&a->gate);
    log_set_sink(NULL, NULL);
    parts_stop(a);
    uv_handle_t *handles[] = {(uv_handle_t *)&a->wake, (uv_handle_t *)&a->timer,
                              (uv_handle_t *)&a->meter};
    if (!a->open_handles)
        free_agent(a);
    else
        for (size_t i = 0; i < sizeof handles / sizeof *handles; i++)
            uv_close(handles[i], on_closed);
}

static int folders_make(struct agent *a, struct err *e)
{
    const char *dir = a->config.dir;
    if (strlen(dir) > 1000)
        return err_set(e, HP_EINVAL, "%s: the path is too long", dir);
    snprintf(a->store_folder, sizeof a->store_folder, "%s/store", dir);
    snprintf(a->profile_folder, sizeof a->profile_folder, "%s/profiles", dir);
    snprintf(a->key_file, sizeof a->key_file, "%s/agent.key", dir);
    if (mkdir(dir, 0700) != 0 && access(dir, W_OK) != 0)
        return err_set(e, HP_EIO, "%s: cannot make or write this folder", dir);
    return key_pair_load_or_create(a->key_file, &a->keys, e);
}

static int data_start(struct agent *a, struct err *e)
{
    char interface[64];
    struct data_config c = {.network = a->config.network,
                            .port = a->config.data_port,
                            .keys = a->keys,
                            .pool_limit_bytes = pool_least_bytes(a),
                            .callbacks = {a, on_frame, on_link_down}};
    if (a->config.hub)
        return data_open_inproc(&c, &a->data, e);
    int rc = data_host_find(a->config.network, a->config.coordinator, a->data_host, e);
    if (rc < 0)
        return rc;
    c.host = a->data_host;
    if (!c.network && data_interface_find(a->data_host, interface, sizeof interface))
        c.network = interface;
    a->data_kind = data_policy_kind(&a->config.data, a->data_host);
    return data_open_kind(a->data_kind, &c, &a->data, e);
}

/* Where others must be able to reach this agent: what a firewall has to let in. */
static void data_tell(const struct agent *a)
{
    struct data_address at;
    size_t size;
    const uint8_t *bytes = data_address(a->data, &size);
    if (data_address_parse(bytes, size, &at, NULL) == 0)
        log_info("agent", "data", "kind=%s host=%s port=%u", data_kind_word(at.kind), at.host,
                 (unsigned)at.port);
}

/* The coordinator says with its welcome which data channel the cluster wants. */
static void welcome_in(struct agent *a, const struct message_welcome *m)
{
    struct data_policy wanted;
    struct err e = {0};
    if (a->config.hub || !a->config.data_wanted)
        return;
    if (data_policy_set(&wanted, m->data, m->trust, &e) < 0) {
        log_warn("agent", "data_policy_refused", "text=\"%s\"", e.text);
        return;
    }
    bool reopen = data_policy_kind(&wanted, a->data_host) != a->data_kind;
    if (reopen || !data_policy_equal(&wanted, &a->config.data))
        a->config.data_wanted(a->config.ctx, &wanted, reopen);
    a->config.data = wanted;
}

/* What it says it has: itself, or the device that it stands for. */
static int node_describe(struct agent *a, struct err *e)
{
    const char *name = a->config.name[0] ? a->config.name : "node";
    if (!a->paced)
        return discover_node(name, &a->config.share, a->config.network, &a->node_json, a->kind, e);
    snprintf(a->kind, sizeof a->kind, "%s", paced_kind(a->paced));
    return paced_node(a->paced, name, &a->node_json, e);
}

static int parts_start(struct agent *a, struct err *e)
{
    const struct discover_share *share = &a->config.share;
    struct executor_config x = {.device = {.backend = "cpu",
                                           .n_threads = share->n_threads,
                                           .cores = share->cores,
                                           .n_cores = share->n_cores,
                                           .memory_bytes = discover_stage_bytes(share)},
                                .report = on_executor,
                                .ctx = a};
    struct store_worker_config s = {.folder = a->store_folder,
                                    .machine = a->machine,
                                    .limit_bytes = a->config.store_limit_bytes,
                                    .report = on_store,
                                    .ctx = a};
    int rc = data_start(a, e);
    x.data = s.data = a->data;
    if (rc == 0 && a->config.pace_as)
        rc = paced_open(a->config.pace_cluster, a->config.pace_profile, a->config.pace_as,
                        &a->paced, e);
    if (rc == 0 && a->paced)
        rc = wire_create(a->data, &a->wire, e);
    x.paced = a->paced;
    rc = rc < 0 ? rc : link_prober_create(a->data, on_probed, a, &a->prober, e);
    rc = rc < 0 ? rc : store_worker_create(&s, &a->store, e);
    rc = rc < 0 ? rc : executor_create(&x, &a->executor, e);
    rc = rc < 0 ? rc : node_describe(a, e);
    if (rc < 0)
        return rc;
    size_t address_size;
    const uint8_t *address = data_address(a->data, &address_size);
    a->core_config = (struct agent_core_config){.name = a->config.name,
                                                .secret = a->config.secret,
                                                .program = HP_VERSION,
                                                .process = env_random_u64(&env_real),
                                                .machine = a->machine,
                                                .hostname = a->hostname,
                                                .node_json = buffer_cstr(&a->node_json),
                                                .data_address = {address, address_size},
                                                .runs_ahead = 2,
                                                .time_scale = env_time_scale()};
    return agent_core_create(&env_real, &a->core_config, &a->core, e);
}

static int control_start(struct agent *a, struct err *e)
{
    struct control_callbacks cb = {.ctx = a, .message = on_message};
    const struct agent_config *c = &a->config;
    return c->hub ? control_connect_inproc(c->hub, a->loop, c->coordinator, c->server_key, &a->keys,
                                           &cb, &a->control, e)
                  : control_connect_zmq(a->loop, c->coordinator, c->server_key, &a->keys, &cb,
                                        &a->control, e);
}

static int handles_start(struct agent *a, struct err *e)
{
    a->wake.data = a->timer.data = a->meter.data = a;
    if (uv_async_init(a->loop, &a->wake, on_wake) != 0)
        return err_set(e, HP_ENOMEM, "cannot make the agent's handles");
    uv_timer_init(a->loop, &a->timer);
    uv_timer_init(a->loop, &a->meter);
    a->open_handles = 3;
    return 0;
}

int agent_start(uv_loop_t *loop, const struct agent_config *c, struct agent **out, struct err *e)
{
    struct agent *a = calloc(1, sizeof *a);
    if (!a)
        return err_set(e, HP_ENOMEM, "no memory for an agent");
    a->config = *c;
    a->loop = loop;
    a->box_free_bytes = UINT64_MAX;
    pthread_mutex_init(&a->log_lock, NULL);
    pthread_mutex_init(&a->gate, NULL);
    post_box_init_classes(&a->mail, sizeof(struct mail), mail_places, MAIL_CLASSES);
    host_id(a->machine);
    if (gethostname(a->hostname, sizeof a->hostname - 1) != 0)
        snprintf(a->hostname, sizeof a->hostname, "unknown");
    a->runs = malloc(FRAME_MAX_RUNS * sizeof *a->runs);
    a->tokens = malloc(FRAME_MAX_RUNS * sizeof *a->tokens);
    a->log_lines = malloc(LOG_LINES * sizeof *a->log_lines);
    int rc = !a->runs || !a->tokens || !a->log_lines || !a->mail.places[MAIL_FRAME]
                 ? err_set(e, HP_ENOMEM, "no memory for an agent")
                 : handles_start(a, e);
    rc = rc < 0 ? rc : folders_make(a, e);
    rc = rc < 0 ? rc : parts_start(a, e);
    rc = rc < 0 ? rc : control_start(a, e);
    if (rc < 0) {
        agent_stop(&a);
        return rc;
    }
    log_set_sink(on_log_line, a);
    if (!a->config.hub)
        data_tell(a);
    log_info("agent", "start", "version=%s device=\"%s\" kind=%s memory_bytes=%llu coordinator=%s",
             HP_VERSION, executor_describe(a->executor), a->kind,
             (unsigned long long)c->share.memory_bytes, c->coordinator);
    uv_timer_start(&a->meter, on_meter, 0, 1000);
    shell_event(a, &(struct agent_event){.kind = AGENT_EVENT_START});
    *out = a;
    return 0;
}
