/* Owns what the loop does when it is woken, and what an event means here before the core
 * hears of it. */
#include <stdlib.h>
#include <string.h>

#include "agent/shell_int.h"
#include "common/host_limits.h"

/* ---- on the loop ---- */

void shell_frame(struct agent *a, const struct frame_header *h, struct data_buffer *payload)
{
    struct err e = {0};
    const uint8_t *bytes = payload ? payload->bytes : NULL;
    bool empty = h->kind == FRAME_ALIVE;
    int rc = h->n_runs > (empty ? 0 : FRAME_MAX_RUNS) || (h->n_runs && !bytes)
                 ? err_set(&e, HP_EPROTO, "a frame of %u runs", h->n_runs)
                 : 0;
    struct kv_range kv = {0};
    if (rc == 0 && h->kind == FRAME_KV)
        rc = frame_kv_decode(h, bytes, &kv, &e);
    else if (rc == 0 && h->n_runs)
        rc = h->kind == FRAME_ACTIVATION ? frame_runs_decode(h, bytes, a->runs, &e)
                                         : frame_tokens_decode(h, bytes, a->tokens, &e);
    bool taken = rc == 0 && (h->kind == FRAME_ACTIVATION || h->kind == FRAME_KV); /* the core's */
    if (!taken)
        data_buffer_release(a->data, payload);
    if (rc < 0) {
        log_warn_limited("agent", "frame_malformed", "text=\"%s\"", e.text);
        return;
    }
    struct agent_event ev = {.kind = AGENT_EVENT_FRAME};
    ev.u.frame.header = h;
    ev.u.frame.arrived_ns = a->paced ? paced_stamp(h->sent_ns, env_now_ns(&env_real)) : 0;
    ev.u.frame.runs = a->runs;
    ev.u.frame.tokens = a->tokens;
    ev.u.frame.kv = kv;
    ev.u.frame.buffer = taken ? payload : NULL;
    shell_event(a, &ev);
}

static void link_down_of(struct agent *a, struct queued_event *m, const struct shell_stage *s,
                         bool next)
{
    m->event.u.link_down.slot = s->slot;
    m->event.u.link_down.link = next ? AGENT_LINK_NEXT : AGENT_LINK_FIRST;
    shell_event(a, &m->event);
}

/* Whatever is said of an outlet that has been made anew since is not of interest. */
static bool outlet_means(const struct outlet *o, const struct queued_event *m)
{
    return o ? outlet_number(o) == m->link : !m->link;
}

static void link_down_in(struct agent *a, struct queued_event *m)
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

static void fetched_in(struct agent *a, struct queued_event *m)
{
    if (m->profile_slot) {
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

static void queued_event_in(struct agent *a, struct queued_event *m)
{
    struct agent_event *ev = &m->event;
    switch (ev->kind) {
    case AGENT_EVENT_LINK_DOWN: link_down_in(a, m); return;
    case AGENT_EVENT_FETCHED: fetched_in(a, m); return;
    case AGENT_EVENT_LOADED: {
        struct shell_stage *s = shell_stage_of(a, ev->u.progress.slot);
        if (s && ev->u.progress.status == 0)
            shell_stage_loaded(a, s, &ev->u.progress);
        ev->u.progress.error = m->error;
        shell_event(a, ev);
        return;
    }
    case AGENT_EVENT_FILLING: ev->u.filling.error = m->error; break;
    case AGENT_EVENT_SEQUENCE_OPENED: ev->u.sequence_opened.error = m->error; break;
    case AGENT_EVENT_BATCH_DONE: ev->u.batch_done.error = m->error; break;
    case AGENT_EVENT_KV_IMPORTED: ev->u.kv_imported.error = m->error; break;
    case AGENT_EVENT_KV_LEFT: ev->u.kv_left.error = m->error; break;
    case AGENT_EVENT_PROFILED: shell_profiled(a, m); return;
    case AGENT_EVENT_PROFILING: shell_profiling(a, m); return;
    case AGENT_EVENT_PROBED: ev->u.probed.error = m->error; break;
    case AGENT_EVENT_STORE: ev->u.store.error = m->error; break;
    default: break;
    }
    shell_event(a, ev);
}

/* So many events and no more, then the loop looks at everything else: a peer that sends without end
 * must not keep heartbeats and orders waiting. */
void shell_woken(uv_async_t *wake)
{
    struct agent *a = wake->data;
    struct queued_event m;
    int n = 0;
    for (; n < QUEUED_A_TURN && event_queue_take(&a->events, &m); n++) {
        if (shell_enter_alive(a)) {
            queued_event_in(a, &m);
            shell_leave(a);
        }
        queued_event_free(&m);
    }
    if (n == QUEUED_A_TURN)
        uv_async_send(&a->wake);
    if (atomic_exchange(&a->lost, false) && shell_enter_alive(a)) {
        shell_event(a, &(struct agent_event){.kind = AGENT_EVENT_LOST});
        shell_leave(a);
    }
    shell_loop_turn(a);
}
