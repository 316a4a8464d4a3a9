/* Owns what becomes of a profile that is being made: opened, measured, told. */
#include "agent/shell_int.h"

static void profile_failed(struct agent *a, const struct shell_profile *p, const struct err *e)
{
    struct agent_event ev = {.kind = AGENT_EVENT_PROFILED};
    ev.u.profiled.id = p->id;
    ev.u.profiled.model = (struct pack_span){p->model, sizeof p->model};
    ev.u.profiled.kind = a->kinds[p->device];
    ev.u.profiled.tables = "";
    ev.u.profiled.status = e->code;
    ev.u.profiled.error = e;
    shell_event(a, &ev);
}

void shell_profile_opened(struct agent *a, const struct queued_event *m)
{
    for (size_t i = 0; i < a->n_profiles; i++) {
        struct shell_profile p = a->profiles[i];
        if (p.slot != m->event.u.progress.slot)
            continue;
        if (m->event.u.progress.status == 0 && m->path) {
            executor_profile(a->executors[p.device],
                             &(struct executor_profile){.ticket = p.slot,
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

void shell_profiled(struct agent *a, struct queued_event *m)
{
    uint64_t slot = m->event.u.profiled.id;
    if (m->known) {
        m->event.u.profiled.kind = ""; /* it never came to be of a device, or its share is */
        m->event.u.profiled.tables = m->memory ? m->memory : "";
        m->event.u.profiled.error = m->error;
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
        m->event.u.profiled.kind = a->kinds[p.device];
        m->event.u.profiled.tables = m->memory ? m->memory : "";
        m->event.u.profiled.error = m->error;
        shell_event(a, &m->event);
        return;
    }
}

void shell_profiling(struct agent *a, struct queued_event *m)
{
    if (m->known) {
        m->event.u.profiling.progress.what = m->memory ? m->memory : "";
        shell_event(a, &m->event);
        return;
    }
    for (size_t i = 0; i < a->n_profiles; i++)
        if (a->profiles[i].slot == m->event.u.profiling.id) {
            m->event.u.profiling.id = a->profiles[i].id;
            m->event.u.profiling.progress.what = m->memory ? m->memory : "";
            shell_event(a, &m->event);
            return;
        }
}
