/* Owns what other threads tell the agent: each report becomes an event. What the decoding of tokens
 * waits for is fed at once; the rest waits for the loop. */
#include <stdlib.h>
#include <string.h>

#include "agent/shell_int.h"

static struct err *error_copy(const struct err *e)
{
    struct err *copy = e ? malloc(sizeof *copy) : NULL;
    if (copy)
        *copy = *e;
    return copy;
}

/* ---- from the data channel ---- */

/* Behind the gate nothing of the agent is taken down; once it stops, nothing gets in. */
static bool gate_enter(struct agent *a)
{
    pthread_mutex_lock(&a->gate);
    if (!a->stopping)
        return true;
    pthread_mutex_unlock(&a->gate);
    return false;
}

void shell_on_frame(void *ctx, const struct frame_header *h, struct data_buffer *payload)
{
    struct agent *a = ctx;
    if (!gate_enter(a)) {
        if (payload)
            data_buffer_release(a->data, payload);
        return;
    }
    if (h->kind == FRAME_ACTIVATION || h->kind == FRAME_TOKEN || h->kind == FRAME_ALIVE ||
        h->kind == FRAME_KV) {
        shell_enter(a);
        shell_frame(a, h, payload);
        shell_leave(a);
    } else if (h->kind == FRAME_TENSORS) {
        shell_enter(a);
        shell_share_frame(a, h, payload);
        shell_leave(a);
    } else if (h->kind == FRAME_CHUNK || h->kind == FRAME_CHUNK_WANT) {
        store_worker_frame(a->store, h, payload);
    } else if (h->kind == FRAME_PROBE || h->kind == FRAME_PROBE_ECHO) {
        link_probe_io_frame(a->probes, h, payload);
    } else if (payload) {
        data_buffer_release(a->data, payload);
    }
    pthread_mutex_unlock(&a->gate);
}

void shell_on_link_down(void *ctx, struct data_link *link, const struct err *why)
{
    struct agent *a = ctx;
    if (!gate_enter(a))
        return;
    log_warn_limited("agent", "data_link_down", "text=\"%s\"", why->text);
    store_worker_link_down(a->store, data_link_number(link));
    link_probe_io_link_down(a->probes, link);
    shell_event_put(a, &(struct queued_event){.event = {.kind = AGENT_EVENT_LINK_DOWN},
                                              .link = data_link_number(link)});
    pthread_mutex_unlock(&a->gate);
}

/* From a probe of a link, on whichever thread that is. */
void shell_on_probed(void *ctx, uint64_t id, int status, const struct err *why, double latency_s,
                     double bandwidth_bytes_per_s)
{
    struct queued_event m = {.event = {.kind = AGENT_EVENT_PROBED}, .error = error_copy(why)};
    m.event.u.probed.id = id;
    m.event.u.probed.status = status;
    m.event.u.probed.latency_s = latency_s;
    m.event.u.probed.bandwidth_bytes_per_s = bandwidth_bytes_per_s;
    shell_event_put(ctx, &m);
}

/* ---- from the executor ---- */

static struct agent_event opened_event(const struct executor_report *r)
{
    struct agent_event ev = {.kind = AGENT_EVENT_SEQUENCE_OPENED};
    ev.u.sequence_opened.slot = r->slot;
    ev.u.sequence_opened.ticket = r->ticket;
    ev.u.sequence_opened.sequence = r->sequence;
    ev.u.sequence_opened.status = r->status;
    ev.u.sequence_opened.error = r->status < 0 ? r->error : NULL;
    ev.u.sequence_opened.awaited = r->awaited;
    return ev;
}

static struct agent_event imported_event(const struct executor_report *r)
{
    struct agent_event ev = opened_event(r);
    ev.kind = AGENT_EVENT_KV_IMPORTED;
    return ev;
}

static struct agent_event exported_event(const struct executor_report *r)
{
    struct agent_event ev = {.kind = AGENT_EVENT_KV_LEFT};
    ev.u.kv_left.ticket = r->ticket;
    ev.u.kv_left.status = r->status;
    ev.u.kv_left.error = r->error;
    ev.u.kv_left.range = r->range;
    return ev;
}

static struct agent_event ran_event(const struct executor_report *r)
{
    struct agent_event ev = {.kind = AGENT_EVENT_BATCH_DONE};
    ev.u.batch_done.slot = r->slot;
    ev.u.batch_done.ticket = r->ticket;
    ev.u.batch_done.status = r->status;
    ev.u.batch_done.error = r->status < 0 ? r->error : NULL;
    ev.u.batch_done.seconds = r->seconds;
    ev.u.batch_done.start_ns = r->start_ns;
    ev.u.batch_done.end_ns = r->end_ns;
    ev.u.batch_done.due_ns = r->due_ns;
    ev.u.batch_done.picked = r->picked;
    ev.u.batch_done.logits = r->logits;
    ev.u.batch_done.scores = r->scores;
    ev.u.batch_done.posted = r->posted;
    return ev;
}

/* The executor's own thread feeds what it did, so that its next batch is in its queue before it
 * looks there. A refusal comes on whichever thread gave the order, which is in the monitor. */
static void executor_event(struct agent *a, const struct executor_report *r, struct agent_event *ev)
{
    if (r->refused) {
        shell_event_put(a, &(struct queued_event){.event = *ev, .error = error_copy(r->error)});
    } else if (shell_enter_alive(a)) {
        shell_event(a, ev);
        shell_leave(a);
    }
}

static void loaded_put(struct agent *a, const struct executor_report *r)
{
    struct queued_event m = {.event = {.kind = AGENT_EVENT_LOADED},
                             .error = r->status < 0 ? error_copy(r->error) : NULL};
    m.event.u.progress = (struct agent_progress){.slot = r->slot,
                                                 .ticket = r->ticket,
                                                 .status = r->status,
                                                 .done_bytes = r->done_bytes,
                                                 .total_bytes = r->total_bytes,
                                                 .warming = r->warming,
                                                 .row_in = r->row_in,
                                                 .row_out = r->row_out,
                                                 .vocabulary = r->vocabulary,
                                                 .row_width = r->row_width,
                                                 .kv = r->kv,
                                                 .outputs = r->outputs,
                                                 .hop = r->hop};
    shell_event_put(a, &m);
}

static void filling_put(struct agent *a, const struct executor_report *r)
{
    struct queued_event m = {.event = {.kind = AGENT_EVENT_FILLING},
                             .error = r->status < 0 ? error_copy(r->error) : NULL};
    m.event.u.filling.slot = r->slot;
    m.event.u.filling.status = r->status;
    m.event.u.filling.missing_bytes = r->total_bytes - r->done_bytes;
    shell_event_put(a, &m);
}

static void profiling_put(struct agent *a, const struct executor_report *r)
{
    struct queued_event m = {.event = {.kind = AGENT_EVENT_PROFILING},
                             .memory = strdup(r->profiling->what),
                             .profile_slot = r->ticket};
    m.event.u.profiling.progress = *r->profiling;
    shell_event_put(a, &m);
}

static void profiled_put(struct agent *a, const struct executor_report *r)
{
    struct queued_event m = {.event = {.kind = AGENT_EVENT_PROFILED},
                             .error = r->status < 0 ? error_copy(r->error) : NULL,
                             .memory = strdup(r->tables),
                             .profile_slot = r->ticket};
    m.event.u.profiled.status = m.memory || r->status < 0 ? r->status : HP_ENOMEM;
    shell_event_put(a, &m);
}

void shell_on_executor(void *ctx, const struct executor_report *r)
{
    struct agent_event ev;
    switch (r->kind) {
    case EXECUTOR_LOADED: loaded_put(ctx, r); return;
    case EXECUTOR_FILLING: filling_put(ctx, r); return;
    case EXECUTOR_OPENED: ev = opened_event(r); break;
    case EXECUTOR_RAN: ev = ran_event(r); break;
    case EXECUTOR_KV_IMPORTED: ev = imported_event(r); break;
    case EXECUTOR_KV_EXPORTED: ev = exported_event(r); break;
    case EXECUTOR_PROFILING: profiling_put(ctx, r); return;
    case EXECUTOR_PROFILED: profiled_put(ctx, r); return;
    }
    executor_event(ctx, r, &ev);
}

/* ---- from the store ---- */

/* The models of a report, with what they point at, in one allocation. */
static bool models_copy(struct queued_event *m, const struct pack_list *from)
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
        size_t name_bytes = strlen(models[i].name) + 1;
        memcpy(at + DIGEST_BYTES, models[i].name, name_bytes);
        at += DIGEST_BYTES + name_bytes;
    }
    m->event.u.store.models = (struct pack_list){copy, from->count};
    return true;
}

void shell_on_store(void *ctx, const struct store_report *r)
{
    struct agent *a = ctx;
    struct queued_event m = {.error = error_copy(r->error),
                             .path = r->path ? strdup(r->path) : NULL};
    if (r->kind == STORE_CHANGED) {
        m.event.kind = AGENT_EVENT_STORE;
        m.event.u.store.id = r->ticket;
        m.event.u.store.status = r->status;
        m.event.u.store.models_unknown = r->models_unknown || !models_copy(&m, &r->models);
    } else {
        m.event.kind = AGENT_EVENT_FETCHED;
        m.profile_slot = r->kind == STORE_OPENED ? r->slot : 0;
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
    shell_event_put(a, &m);
}

/* ---- from the store of what is spilled ---- */

/* The chains of a report, with what they point at, in one allocation. */
static bool chains_copy(struct queued_event *m, const struct spill_report *r)
{
    size_t bytes = r->n_chains * sizeof *r->chains;
    for (size_t i = 0; i < r->n_chains; i++)
        bytes += r->chains[i].pages.size;
    struct message_spill *copy = m->memory = malloc(bytes + 1);
    if (!copy)
        return false;
    uint8_t *at = (uint8_t *)(copy + r->n_chains);
    for (size_t i = 0; i < r->n_chains; i++) {
        copy[i] = r->chains[i];
        copy[i].pages.data = memcpy(at, r->chains[i].pages.data, r->chains[i].pages.size);
        at += r->chains[i].pages.size;
    }
    m->event.u.spills.told.chains = (struct pack_list){copy, r->n_chains};
    return true;
}

void shell_on_spills(void *ctx, const struct spill_report *r)
{
    struct queued_event m = {.event = {.kind = AGENT_EVENT_SPILLS}};
    m.event.u.spills.slot = r->slot;
    m.event.u.spills.told = (struct message_spills){.anew = r->anew,
                                                    .memory_bytes_per_s = r->memory_bytes_per_s,
                                                    .disk_bytes_per_s = r->disk_bytes_per_s,
                                                    .memory_bytes = r->memory_bytes,
                                                    .disk_bytes = r->disk_bytes,
                                                    .dropped = r->dropped};
    if (chains_copy(&m, r)) /* what is not told is not used */
        shell_event_put(ctx, &m);
}

void shell_on_spill_found(void *ctx, const struct spill_want *w, struct spill_found *found,
                          const struct err *why)
{
    if (found) {
        executor_spill_back(w->executor, &(struct executor_spill){.slot = w->slot,
                                                                  .ticket = w->ticket,
                                                                  .sequence = w->sequence,
                                                                  .n_pages = w->n_pages,
                                                                  .kept = w->kept,
                                                                  .found = found});
        return;
    }
    struct queued_event m = {.event = {.kind = AGENT_EVENT_KV_IMPORTED}, .error = error_copy(why)};
    m.event.u.kv_imported.slot = w->slot;
    m.event.u.kv_imported.ticket = w->ticket;
    m.event.u.kv_imported.sequence = w->sequence;
    m.event.u.kv_imported.status = why->code;
    shell_event_put(ctx, &m);
}
