/* Owns what becomes of a profile that is being made: opened, measured, told. */
#include "agent/shell_int.h"

/* False: there is none in that slot, or no more. */
static bool profile_of_slot(const struct agent *a, uint64_t slot, struct shell_profile *out)
{
    for (size_t i = 0; i < a->n_profiles; i++)
        if (a->profiles[i].slot == slot) {
            *out = a->profiles[i];
            return true;
        }
    return false;
}

static void profile_failed(struct agent *a, const struct shell_profile *p, const struct err *e)
{
    struct agent_event ev = {.kind = AGENT_EVENT_PROFILED};
    ev.u.profiled.id = p->request;
    ev.u.profiled.model = (struct pack_span){p->model, sizeof p->model};
    ev.u.profiled.kind = a->kinds[p->device];
    ev.u.profiled.tables = "";
    ev.u.profiled.status = e->code;
    ev.u.profiled.error = e;
    shell_event(a, &ev);
}

void shell_profile_opened(struct agent *a, const struct queued_event *m)
{
    struct shell_profile p;
    if (!profile_of_slot(a, m->profile_slot, &p))
        return;
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
}

void shell_profiled(struct agent *a, struct queued_event *m)
{
    struct shell_profile p;
    m->event.u.profiled.kind = ""; /* it never came to be of a device, or its share is */
    if (m->profile_slot) {
        if (!profile_of_slot(a, m->profile_slot, &p))
            return;
        shell_profile_drop(a, p.slot);
        m->event.u.profiled.id = p.request;
        m->event.u.profiled.model = (struct pack_span){p.model, sizeof p.model};
        m->event.u.profiled.kind = a->kinds[p.device];
    }
    m->event.u.profiled.tables = m->memory ? m->memory : "";
    m->event.u.profiled.error = m->error;
    shell_event(a, &m->event);
}

void shell_profiling(struct agent *a, struct queued_event *m)
{
    struct shell_profile p;
    if (m->profile_slot) {
        if (!profile_of_slot(a, m->profile_slot, &p))
            return;
        m->event.u.profiling.id = p.request;
    }
    m->event.u.profiling.progress.what = m->memory ? m->memory : "";
    shell_event(a, &m->event);
}
